"""The program tc: whether it may be used here, and what it answers."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

from dtdg_lab.congestion.netem_commands import HANDLE, Command
from dtdg_lab.core.errors import NotAvailableError

TIME_LIMIT_S = 10.0
_CAP_NET_ADMIN = 12  # linux/capability.h


def check_device(device: str) -> None:
    """Go on where traffic of a device may be shaped, and is not yet.

    Raises:
        NotAvailableError: this is not Linux with tc, the right to use it is lacking, there is no such device, or
            somebody has set up a queue on it. The message says what to do.
    """
    if not may_administer():
        raise NotAvailableError(
            "shaping traffic needs the right CAP_NET_ADMIN, which this process lacks. Run as root, or set "
            "congestion_by=emulated."
        )
    try:
        socket.if_nametoindex(device)
    except OSError as error:
        raise NotAvailableError(
            f"there is no network device {device!r} here; there are: "
            f"{', '.join(name for _, name in socket.if_nameindex())}."
        ) from error
    kind, handle = root_queue(device)
    if handle != "0:":  # the kernel's default queues have no handle
        owner = "another run's, or was left by one" if handle == HANDLE else "not this program's, and stays untouched"
        raise NotAvailableError(
            f"the device {device} has a queue {kind} {handle} that is {owner}. Set congestion_by=emulated, or remove "
            f"it with 'tc qdisc del dev {device} root' if nobody needs it."
        )


def may_administer() -> bool:
    """Whether this process has the right to change the network; False where that cannot be known."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_NET_ADMIN & 1)


def root_queue(device: str) -> tuple[str, str]:
    """Kind and handle of a device's queue; handle ``0:`` is the kernel's default.

    Raises:
        NotAvailableError: tc is not there, or does not answer.
    """
    found = json.loads(run(("-j", "qdisc", "show", "dev", device)) or "[]")
    root = next((each for each in found if each.get("root")), {"kind": "none", "handle": "0:"})
    return str(root["kind"]), str(root["handle"])


def run(command: Command) -> str:
    """What ``tc`` prints, given these arguments.

    Raises:
        NotAvailableError: it is not there, takes too long, or refuses; its words are quoted.
    """
    program = shutil.which("tc") or shutil.which("tc", path="/usr/sbin:/sbin")
    if program is None:
        raise NotAvailableError(
            "the program tc is not here. Install it (Debian: apt-get install iproute2), or set congestion_by=emulated."
        )
    try:
        done = subprocess.run([program, *command], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailableError(f"tc {' '.join(command)} failed: {error}.") from error
    if done.returncode:
        told = " ".join(done.stderr.split()).rstrip(".")
        advice = ""
        if "kind is unknown" in told:
            lacks = "netem (sch_netem)" if "netem" in command else "htb (sch_htb)"
            advice = f" This machine's kernel lacks {lacks}: load its module, or set congestion_by=emulated."
        raise NotAvailableError(f"tc {' '.join(command)} was refused: {told}.{advice}")
    return done.stdout
