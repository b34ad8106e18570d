"""Slow links by Linux traffic control, only on the ports of the feature servers."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import psutil

from dtdg_lab.core.child_process import is_running
from dtdg_lab.core.errors import ConfigError, DataError, NotAvailableError
from dtdg_lab.core.files import replacing
from dtdg_lab.core.system_errors import reading
from dtdg_lab.core.units import STATE
from dtdg_lab.network.links import LinkState

HANDLE = "d7d6:"  # handle of the root queue, which identifies this program's queues
BURST = 65536  # bytes of the largest packet of the loopback device: a token bucket must hold one
ENDLESS = 10**11  # bits per second of an unlimited class
LIMIT = 100_000  # most delayed packets; netem drops further ones

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """Filter, delay and rate of a traffic class.

    Attributes:
        port: TCP port of the replying server.
        address: destination IPv4 address; empty for any.
        delay_s: delay of packets, in seconds.
        bytes_per_s: rate of packets; infinite for no limit.
    """

    port: int
    address: str = ""
    delay_s: float = 0.0
    bytes_per_s: float = math.inf


def queue(device: str) -> Command:
    """Return the command that replaces a device's default queue by one with classes; other packets pass unchanged."""
    return _words(f"qdisc add dev {device} root handle {HANDLE} htb default 0")


def remove(device: str) -> Command:
    """Return the command that removes the queue with all classes, and restores the device's default queue."""
    return _words(f"qdisc del dev {device} root handle {HANDLE}")


def link_class(device: str, number: int, link: Link, *, change: bool = False) -> Command:
    """Return the command for a link's class, a token bucket with its rate; ``number`` is 1 or more.

    The class is of htb, because tbf supports only one class.
    """
    rate = ENDLESS if math.isinf(link.bytes_per_s) else max(8, round(link.bytes_per_s * 8))
    bucket = max(BURST, rate // 8000)  # a millisecond's worth: the kernel does not refill more often
    verb = "change" if change else "add"
    return _words(
        f"class {verb} dev {device} parent {HANDLE} classid {HANDLE}{number:x} htb rate {rate}bit ceil {rate}bit "
        f"burst {bucket}b cburst {bucket}b quantum {BURST}"
    )


def link_delay(device: str, number: int, link: Link, *, change: bool = False) -> Command:
    """Return the command for the delay of a link's class."""
    verb = "change" if change else "add"
    return _words(
        f"qdisc {verb} dev {device} parent {HANDLE}{number:x} handle {number + 0x1000:x}: netem "
        f"delay {round(link.delay_s * 1e6)}us limit {LIMIT}"
    )


def link_filter(device: str, number: int, link: Link) -> Command:
    """Return the command that sends only a link's packets (TCP over IPv4 from its port) to its class."""
    to = f"match ip dst {link.address}/32" if link.address else ""
    return _words(
        f"filter add dev {device} parent {HANDLE} protocol ip prio 1 u32 match ip protocol 6 0xff "
        f"match ip sport {link.port} 0xffff {to} flowid {HANDLE}{number:x}"
    )


def _words(command: str) -> Command:
    return tuple(command.split())


# Marks of shaped devices, so that the next start cleans up after a killed process.


@dataclass(frozen=True, slots=True)
class NetemMark:
    """Mark of a device that a process shapes.

    Attributes:
        device: name of the device.
        space: inode of its network namespace.
        process: id of the process.
        started_s: start time of the process, since ids are reused.
        boot: id of the machine's boot, which ends all shaping.
    """

    device: str
    space: int
    process: int
    started_s: float
    boot: str

    @classmethod
    def own(cls, device: str) -> NetemMark:
        """Create the mark of this process on a device."""
        return cls(device, network_space(), os.getpid(), psutil.Process().create_time(), _boot())

    def file(self, folder: Path) -> Path:
        """Return the mark's file, one for each device of a namespace."""
        return folder / f"netem-{self.device}-{self.space}.json"

    @property
    def is_here(self) -> bool:
        """Whether the mark belongs to this process's network namespace and to this boot."""
        return (self.space, self.boot) == (network_space(), _boot())

    @property
    def is_alive(self) -> bool:
        """Whether its process still runs."""
        return is_running(self.process, self.started_s)

    def write(self, folder: Path) -> None:
        """Write the mark, before the first change of the device.

        Raises:
            DataError: the folder cannot be written, so a change could not be undone later.
        """
        path = self.file(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as draft:
                draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        except OSError as error:
            raise DataError(
                f"cannot write {path}, which the next start needs for clean-up: {error}. Give a folder you can write."
            ) from error


_REMEDY = (
    "Look at its device with 'tc qdisc show', remove the queue d7d6: with 'tc qdisc del dev DEVICE root' if it has "
    "one, then remove the file."
)


def marks(folder: Path) -> Iterator[NetemMark]:
    """Yield all marks in a folder.

    Raises:
        DataError: a file is damaged, or the system refuses to read the folder or a file.
    """
    paths: list[Path] = []
    with reading(folder, remedy=_REMEDY, setting=STATE), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        paths = [folder / name for name in os.listdir(folder)]
    for path in sorted(path for path in paths if path.match("netem-*.json")):
        with reading(path, remedy=_REMEDY):
            try:
                mark = NetemMark(**json.loads(path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                continue  # its process has just cleaned up
        yield mark


def network_space() -> int:
    """Return the number of this process's network namespace; 0 if there are none."""
    try:
        return os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return 0


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))


TIME_LIMIT_S = 10.0
_CAP_NET_ADMIN = 12  # linux/capability.h


def check_device(device: str) -> None:
    """Check that the traffic of a device may be shaped, and is not shaped yet.

    Raises:
        NotAvailableError: this is not Linux with tc, the process lacks the right, there is no such device, or it has a
            queue already. The message says what to do.
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
            f"it with 'tc qdisc del dev {device} root' if it is not needed."
        )


def may_administer() -> bool:
    """Return whether this process has the right to change the network; False if unknown."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_NET_ADMIN & 1)


def root_queue(device: str) -> tuple[str, str]:
    """Return kind and handle of a device's queue; handle ``0:`` is the kernel's default.

    Raises:
        NotAvailableError: tc is not there, or does not answer.
    """
    queues = json.loads(run(("-j", "qdisc", "show", "dev", device)) or "[]")
    root = next((queue for queue in queues if queue.get("root")), {"kind": "none", "handle": "0:"})
    return str(root["kind"]), str(root["handle"])


def tc_program() -> str | None:
    """Return the path of ``tc``; None if it is not installed."""
    return shutil.which("tc") or shutil.which("tc", path="/usr/sbin:/sbin")


def run(command: Command) -> str:
    """Run ``tc`` with these arguments and return its output.

    Raises:
        NotAvailableError: tc is missing, takes too long, or refuses; its message is quoted.
    """
    program = tc_program()
    if program is None:
        raise NotAvailableError(
            "the program tc is not installed. Install it (Debian: apt-get install iproute2), or set "
            "congestion_by=emulated."
        )
    try:
        process = subprocess.run([program, *command], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailableError(f"tc {' '.join(command)} failed: {error}.") from error
    if process.returncode:
        message = " ".join(process.stderr.split()).rstrip(".")
        advice = ""
        if "kind is unknown" in message:
            lacks = "netem (sch_netem)" if "netem" in command else "htb (sch_htb)"
            advice = f" This machine's kernel lacks {lacks}: load its module, or set congestion_by=emulated."
        raise NotAvailableError(f"tc {' '.join(command)} was refused: {message}.{advice}")
    return process.stdout


class NetemLinks:
    """Delays and rates that the kernel applies to packets from the ports of some servers; other packets are unaffected.

    As a context manager it sets up the queue on entry, and restores the default queue on exit. It also does so at the
    normal end of the process; :func:`undo_left_over` cleans up after a killed process.

    The kernel distinguishes requesters only by address. If several share an address, as on the loopback device, an
    owner's links to them must be equal.

    Args:
        device: network device, such as ``lo``.
        ports: part -> TCP port of its local server.
        folder: folder of the mark, for clean-up by the next start.
        addresses: requesting part -> its IPv4 address; empty if all share one.
        delays: whether links may have delays, which need the kernel module netem; else only rates.
        dry_run: whether to only collect :attr:`commands`.

    Raises:
        ConfigError: there is no port, or two parts share one.

    References: GreenDyGNN section V-C and VI-A: netem with u32 filters on the RPC port.

    Differs from the paper: also limits rates, by the token buckets of htb.
    """

    def __init__(
        self,
        device: str,
        ports: Mapping[int, int],
        folder: str | Path,
        *,
        addresses: Mapping[int, str] | None = None,
        delays: bool = True,
        dry_run: bool = False,
    ) -> None:
        if not ports or len(set(ports.values())) < len(ports):
            raise ConfigError(f"ports={dict(ports)} are missing or shared. Give each served part its own port.")
        self.device, self.folder = device, Path(folder)
        self._delays, self._dry_run, self._addresses = delays, dry_run, dict(addresses or {})
        goals = sorted(set(self._addresses.values())) or [""]
        self._links = {(owner, to): Link(port, to) for owner, port in sorted(ports.items()) for to in goals}
        self._process: int | None = None  # that has shaped the device
        self.commands: list[Command] = []

    def __enter__(self) -> NetemLinks:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Set up the queue, with clean links.

        Raises:
            NotAvailableError: traffic control is not available, or the device is shaped already; nothing changes then.
            DataError: the mark cannot be written.
        """
        if not self._dry_run:
            undo_left_over(self.folder)
            check_device(self.device)
            NetemMark.own(self.device).write(self.folder)
            self._process = os.getpid()
            atexit.register(self.close)
        try:
            self._run(queue(self.device))
            for number, link in enumerate(self._links.values(), start=1):
                self._run(link_class(self.device, number, link))
                if self._delays:
                    self._run(link_delay(self.device, number, link))
                self._run(link_filter(self.device, number, link))
        except BaseException:
            self.close()
            raise

    def set_links(self, links: LinkState) -> None:
        """Apply changed links at once.

        Args:
            links: (P, P); rows of parts without a local server are ignored.

        Raises:
            ConfigError: requesters of one address have different links, a part is not among the links, or there is a
                delay without ``delays``.
            NotAvailableError: the kernel refuses.
        """
        new_links = {ends: self._link_to(links, *ends) for ends in self._links}
        for number, (ends, link) in enumerate(new_links.items(), start=1):
            old_link = self._links[ends]
            if link.bytes_per_s != old_link.bytes_per_s:
                self._run(link_class(self.device, number, link, change=True))
            if link.delay_s != old_link.delay_s:
                self._run(link_delay(self.device, number, link, change=True))
            self._links[ends] = link

    def close(self) -> None:
        """Restore the device's default queue; a second call, or one in a forked process, does nothing."""
        if self._dry_run:
            self._run(remove(self.device))
        elif self._process == os.getpid():
            self._process = None
            atexit.unregister(self.close)
            mark = NetemMark.own(self.device)
            if root_queue(self.device)[1] == HANDLE:
                self._run(remove(self.device))
            mark.file(self.folder).unlink(missing_ok=True)

    def _run(self, command: Command) -> None:
        if not self._dry_run:
            run(command)
        self.commands.append(("tc", *command))

    def _link_to(self, links: LinkState, owner: int, to: str) -> Link:
        """Return the link of an owner to the requesters at an address."""
        named = [owner, *self._addresses]
        if max(named) >= links.parts:
            raise ConfigError(f"links of {links.parts} parts, but a server's or requester's part is {max(named)}.")
        asking = [part for part, address in self._addresses.items() if address == to] or range(links.parts)
        asking = [part for part in asking if part != owner]
        link = self._links[owner, to]
        if not asking:
            return link
        delays_s, rates = links.delay_s[owner, asking], links.bytes_per_s[owner, asking]
        if np.ptp(delays_s) > 0 or len(set(rates.tolist())) > 1:
            raise ConfigError(
                f"links of part {owner} differ between parts {', '.join(map(str, asking))}, which traffic control "
                "cannot distinguish: they have the same address. Give all of them the same delay and rate (as '"
                f"{owner} delay=...' does), or set congestion_by=emulated."
            )
        if delays_s[0] and not self._delays:
            raise ConfigError(
                f"a delay of {delays_s[0] * 1e3:g} ms is not possible: traffic control was set up for rates only. Set "
                "delays=True."
            )
        return replace(link, delay_s=float(delays_s[0]), bytes_per_s=float(rates[0]))


def undo_left_over(folder: str | Path) -> list[str]:
    """Restore the default queues of devices whose shaping process was killed; return their names.

    Only queues with this program's handle change, and none of a running process.

    Raises:
        NotAvailableError: tc fails; its message is quoted.
        DataError: a mark is damaged.
    """
    undone = []
    for mark in marks(Path(folder)):
        if mark.is_here and not mark.is_alive:
            if root_queue(mark.device)[1] == HANDLE:
                run(remove(mark.device))
                undone.append(mark.device)
            mark.file(Path(folder)).unlink(missing_ok=True)
    return undone
