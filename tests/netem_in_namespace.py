"""What tests of traffic control do in a network namespace of their own: a child process, and what it measured.

Run as ``unshare --net python netem_in_namespace.py TASK FOLDER``; prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.network.links import parse_links
from dtdg_lab.network.netem import NetemLinks, root_queue, run, undo_left_over

MEGABYTE, MBIT = 1_000_000, 80.0
REPLY = b"x" * MEGABYTE


def serve() -> int:
    """The port of a server on loopback that answers b'p' with one byte and b'm' with a megabyte."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, suppress(ConnectionError):
            while asked := connection.recv(1):
                connection.sendall(b"p" if asked == b"p" else REPLY)

    def accept() -> None:
        while True:
            threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listening.getsockname()[1])


def asks(port: int, what: bytes, times: int) -> float:
    """Median seconds of an answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return median(_once(connection, what) for _ in range(times))


def _once(connection: socket.socket, what: bytes) -> float:
    began_s, due = time.perf_counter(), 1 if what == b"p" else MEGABYTE
    connection.sendall(what)
    while due:
        due -= len(connection.recv(min(due, 1 << 16)))
    return time.perf_counter() - began_s


def rates(folder: Path) -> dict[str, Any]:
    """Seconds of a megabyte from a slow port, from another, clean again, and after."""
    slow, other = serve(), serve()
    with NetemLinks("lo", {0: slow, 1: other}, folder, delays=False) as links:
        links.set_links(parse_links(f"0 rate={MBIT}", 2))
        asks(slow, b"m", 1)  # what the bucket held at first
        found = {"slow_s": asks(slow, b"m", 5), "other_s": asks(other, b"m", 5), "queue": root_queue("lo")}
        links.set_links(parse_links("", 2))
        found["clean_s"] = asks(slow, b"m", 5)
    return {**found, "after": root_queue("lo"), "left": os.listdir(folder)}


def delays(folder: Path) -> dict[str, Any]:
    """Median seconds of a short answer at delays in ms, and of another port meanwhile."""
    slow, other, found = serve(), serve(), {}
    clean_s = asks(slow, b"p", 50)
    with NetemLinks("lo", {0: slow, 1: other}, folder) as links:
        for delay_ms in (5, 20, 50):
            links.set_links(parse_links(f"0 delay={delay_ms}", 2))
            found[str(delay_ms)] = (asks(slow, b"p", 15) - clean_s, asks(other, b"p", 15) - clean_s)
    return {"shift_s": found, "after": root_queue("lo")}


def lacking(folder: Path) -> dict[str, Any]:
    """What is left of a start that the kernel refuses in the middle, if it has no netem."""
    try:
        with NetemLinks("lo", {0: 5001}, folder):
            pass
    except NotAvailableError as error:
        described = str(error)
    else:
        described = ""
    return {"told": described, "after": root_queue("lo"), "left": os.listdir(folder)}


def foreign(folder: Path) -> dict[str, Any]:
    """What happens where somebody else has set up a queue."""
    run(("qdisc", "add", "dev", "lo", "root", "handle", "9:", "htb"))
    try:
        NetemLinks("lo", {0: 5001}, folder, delays=False).start()
    except NotAvailableError as error:
        described = str(error)
    return {"told": described, "undone": undo_left_over(folder), "after": root_queue("lo"), "left": os.listdir(folder)}


def _hold(folder: Path) -> None:
    NetemLinks("lo", {0: 5001}, folder, delays=False).start()
    sys.stdout.write("held\n")
    sys.stdout.flush()
    signal.pause()


def killed(folder: Path) -> dict[str, Any]:
    """A process that shapes is refused a rival while it lives; killed, the next start undoes what it left."""
    child = subprocess.Popen([sys.executable, __file__, "hold", str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "held\n"
    while_alive, queue = undo_left_over(folder), root_queue("lo")
    try:
        NetemLinks("lo", {0: 5001}, folder, delays=False).start()
    except NotAvailableError as error:
        described = str(error)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    left, marked = root_queue("lo"), os.listdir(folder)
    undone = undo_left_over(folder)
    after = root_queue("lo")
    with NetemLinks("lo", {0: 5001}, folder, delays=False):
        again = root_queue("lo")
    return {
        "while_alive": while_alive,
        "queue": queue,
        "told": described,
        "left": left,
        "marked": marked,
        "undone": undone,
        "after": after,
        "again": again,
        "files": os.listdir(folder),
    }


def ends(folder: Path) -> dict[str, Any]:
    """A process that ends without leaving the context undoes all the same, and one that raises."""
    code = (
        "import sys; from dtdg_lab.network.netem import NetemLinks;"
        "NetemLinks('lo', {0: 5001}, sys.argv[1], delays=False).start(); raise SystemExit(3)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    return {"rc": done.returncode, "after": root_queue("lo"), "left": os.listdir(folder)}


TASKS: dict[str, Callable[[Path], Any]] = {
    made.__name__.removeprefix("_"): made for made in (rates, delays, lacking, foreign, killed, ends, _hold)
}

if __name__ == "__main__":
    task, given = sys.argv[1], Path(sys.argv[2])
    given.mkdir(exist_ok=True)
    if task != "hold":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    sys.stdout.write(json.dumps(TASKS[task](given)) + "\n")
