"""Commands of Linux' traffic control that make replies of some ports slow, as argument lists."""

from __future__ import annotations

import math
from dataclasses import dataclass

HANDLE = "d7d6:"  # of the root queue: what marks it as this program's
BURST = 65536  # bytes, the largest packet of the loopback device: a token bucket must hold one
ENDLESS = 10**11  # bits per second of a class that limits nothing
LIMIT = 100_000  # packets a delay may hold back; netem drops what is beyond

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """What one class of traffic is told by, and how slow it is.

    Attributes:
        port: TCP port of the server whose replies they are.
        address: IPv4 address they go to; any where empty.
        delay_s: seconds a packet is held back.
        bytes_per_s: at which packets leave; infinite for no limit.
    """

    port: int
    address: str = ""
    delay_s: float = 0.0
    bytes_per_s: float = math.inf


def queue(device: str) -> Command:
    """Put a queue with classes in the place of a device's default one; what no class takes passes as before."""
    return ("qdisc", "add", "dev", device, "root", "handle", HANDLE, "htb", "default", "0")


def remove(device: str) -> Command:
    """Take the queue away, with all classes: the device gets its default one back."""
    return ("qdisc", "del", "dev", device, "root", "handle", HANDLE)


def link_class(device: str, number: int, link: Link, *, change: bool = False) -> Command:
    """The class of a link, a token bucket of its rate: ``number`` is 1 or more.

    The bucket is that of htb, which is tbf's with classes beside each other: tbf itself holds one class only.
    """
    rate = ENDLESS if math.isinf(link.bytes_per_s) else max(8, round(link.bytes_per_s * 8))
    bucket = max(BURST, rate // 8000)  # a millisecond's worth: the kernel's clock refills it no oftener
    return (
        "class", "change" if change else "add", "dev", device, "parent", HANDLE, "classid", f"{HANDLE}{number:x}",
        "htb", "rate", f"{rate}bit", "ceil", f"{rate}bit", "burst", f"{bucket}b", "cburst", f"{bucket}b",
        "quantum", str(BURST),
    )  # fmt: skip


def link_delay(device: str, number: int, link: Link, *, change: bool = False) -> Command:
    """The delay of a link's class."""
    return (
        "qdisc", "change" if change else "add", "dev", device, "parent", f"{HANDLE}{number:x}",
        "handle", f"{number + 0x1000:x}:", "netem", "delay", f"{round(link.delay_s * 1e6)}us", "limit", str(LIMIT),
    )  # fmt: skip


def link_filter(device: str, number: int, link: Link) -> Command:
    """What sends a link's packets, TCP over IPv4 from its port, to its class; of all others none is touched."""
    to = ("match", "ip", "dst", f"{link.address}/32") if link.address else ()
    return (
        "filter", "add", "dev", device, "parent", HANDLE, "protocol", "ip", "prio", "1", "u32",
        "match", "ip", "protocol", "6", "0xff", "match", "ip", "sport", str(link.port), "0xffff", *to,
        "flowid", f"{HANDLE}{number:x}",
    )  # fmt: skip
