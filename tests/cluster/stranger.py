"""A stranger on the machine, run as ``python stranger.py JSON``: attacks ports of ranks until its input ends.

To every port it sends junk, and joins as a client of a torch store: where one answers it overwrites and deletes what it
finds listed, and sets names that runs use. ``account`` is what it becomes first; 0 stays. It prints ``begun``, then
lines of what it has done so far.
"""

from __future__ import annotations

import datetime
import encodings.idna  # noqa: F401 (another account may not read Python's folder: all is imported before)
import json
import os
import select
import socket
import sys

import torch.distributed as dist

HEARTBEAT = ["failed", "cause", "claims", "beat/0", "beat/1", "left/0", "left/1"]
NAMES = [*(f"heartbeat/{name}" for name in HEARTBEAT), *(f"control/{number}" for number in range(1, 30))]
RENDEZVOUS = ("group", "default_pg")  # gloo's own names are not checked for who set them on a network
WAIT = datetime.timedelta(seconds=0.3)


def junk(port: int, done: dict[str, int]) -> None:
    """Send what no protocol has."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.2) as line:
            line.sendall(os.urandom(2000))
    except OSError:
        return
    done["junk"] += 1


def poison(port: int, done: dict[str, int]) -> None:
    """Write and delete as a client of a store."""
    try:
        store = dist.TCPStore("127.0.0.1", port, 2, False, WAIT, wait_for_workers=False)
        done["stores"] += 1
        listed = [name for name in store.list_keys() if not name.startswith(RENDEZVOUS)]
        for number, name in enumerate([*NAMES, *listed]):
            if number % 3 == 2:
                store.delete_key(name)
            else:
                store.set(name, "1" if number % 3 else "the stranger's words")
            done["set"] += 1
    except (RuntimeError, ValueError):  # no store is there
        return


def main(given: dict[str, object]) -> None:
    """Attack."""
    if account := int(str(given["account"])):
        os.setgid(account)
        os.setuid(account)
    done = {"junk": 0, "stores": 0, "set": 0, "opened": 0}
    for name in given["files"]:  # type: ignore[attr-defined]
        try:
            open(name, "ab").close()
        except OSError:
            continue
        done["opened"] += 1
    print("begun", flush=True)
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        for port in given["ports"]:  # type: ignore[attr-defined]
            for attack in (junk, poison):
                attack(port, done)
                print(json.dumps(done), flush=True)  # after each: torch may wait long for a port that is no store


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
