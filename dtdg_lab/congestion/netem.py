"""Slow links by Linux' traffic control, on the ports of the feature servers alone."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np

from dtdg_lab.congestion import netem_commands as tc
from dtdg_lab.congestion import traffic_control
from dtdg_lab.congestion.netem_marks import Mark, marks
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.links import LinkState


class NetemLinks:
    """Delays and rates that the kernel adds to packets from the ports of some servers; all others pass untouched.

    A context manager: entered, the device has its queue; left, it has its default one back, as also at the process's
    normal end. What a killed process leaves is undone by :func:`undo_left_over`.

    Packets tell requesters apart by their addresses alone: where several have one, as all on the loopback device, an
    owner's links to them must be alike.

    Args:
        device: such as ``lo``.
        ports: of each part served over the device from here, the TCP port of its server.
        folder: where the mark is kept by which the next start undoes.
        addresses: of each part that asks, its IPv4 address; empty where all have one.
        delays: whether links will have delays, for which the kernel must have netem. Without, rates alone may be set.
        dry_run: change nothing, write nothing: see :attr:`commands`.

    Raises:
        ConfigError: no port, or one that two parts share.

    References: GreenDyGNN section V-C and VI-A: netem with u32 filters on the RPC port. Differs from the paper: rates
    too, by the token buckets of htb.
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
            raise ConfigError(f"ports={dict(ports)}: each part that is served needs a port of its own.")
        self.device, self.folder = device, Path(folder)
        self._delays, self._dry_run, self._addresses = delays, dry_run, dict(addresses or {})
        goals = sorted(set(self._addresses.values())) or [""]
        self._links = {(owner, to): tc.Link(port, to) for owner, port in sorted(ports.items()) for to in goals}
        self._process: int | None = None  # that has shaped the device
        self.commands: list[tc.Command] = []

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
            NotAvailableError: it cannot be done here, or somebody else shapes the device; nothing is changed then.
            DataError: the mark cannot be written.
        """
        if not self._dry_run:
            undo_left_over(self.folder)
            traffic_control.check_device(self.device)
            Mark.own(self.device).write(self.folder)
            self._process = os.getpid()
            atexit.register(self.close)
        try:
            self._run(tc.queue(self.device))
            for number, link in enumerate(self._links.values(), start=1):
                self._run(tc.link_class(self.device, number, link))
                if self._delays:
                    self._run(tc.link_delay(self.device, number, link))
                self._run(tc.link_filter(self.device, number, link))
        except BaseException:
            self.close()
            raise

    def set_links(self, links: LinkState) -> None:
        """Change what differs from the links as they are; in force when this returns.

        Args:
            links: (P, P); rows of parts that are not served from here are not looked at.

        Raises:
            ConfigError: requesters of one address have different links, a part is not among the links, or there is a
                delay where none was announced.
            NotAvailableError: the kernel refuses.
        """
        wanted = {place: self._wanted(links, *place) for place in self._links}
        for number, (place, link) in enumerate(wanted.items(), start=1):
            before = self._links[place]
            if link.bytes_per_s != before.bytes_per_s:
                self._run(tc.link_class(self.device, number, link, change=True))
            if link.delay_s != before.delay_s:
                self._run(tc.link_delay(self.device, number, link, change=True))
            self._links[place] = link

    def close(self) -> None:
        """Give the device its default queue back; a second call does nothing, nor one in a forked process."""
        if self._dry_run:
            self._run(tc.remove(self.device))
        elif self._process == os.getpid():
            self._process = None
            atexit.unregister(self.close)
            mark = Mark.own(self.device)
            if traffic_control.root_queue(self.device)[1] == tc.HANDLE:
                self._run(tc.remove(self.device))
            mark.file(self.folder).unlink(missing_ok=True)

    def _run(self, command: tc.Command) -> None:
        if not self._dry_run:
            traffic_control.run(command)
        self.commands.append(("tc", *command))

    def _wanted(self, links: LinkState, owner: int, to: str) -> tc.Link:
        """The link of an owner to those that ask from an address."""
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
                "cannot tell apart: they have one address. Give all of them the same delay and rate (as '"
                f"{owner} delay=...' does), or set congestion_by=emulated."
            )
        if delays_s[0] and not self._delays:
            raise ConfigError(f"a delay of {delays_s[0] * 1e3:g} ms, but traffic was set up for rates alone.")
        return replace(link, delay_s=float(delays_s[0]), bytes_per_s=float(rates[0]))


def undo_left_over(folder: str | Path) -> list[str]:
    """Give devices their default queues back whose shaping process was killed; returns their names.

    Only queues with this program's mark are touched, and none of a process that still runs.

    Raises:
        NotAvailableError: tc does not do it: the message has its words.
        DataError: a mark is damaged.
    """
    undone = []
    for mark in marks(Path(folder)):
        if mark.is_here and not mark.is_alive:
            if traffic_control.root_queue(mark.device)[1] == tc.HANDLE:
                traffic_control.run(tc.remove(mark.device))
                undone.append(mark.device)
            mark.file(Path(folder)).unlink(missing_ok=True)
    return undone
