"""The state of the links during a run, by pattern and by option, and the mechanisms that slow them down."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, NotAvailableError, PlanError, shortened
from dtdg_lab.core.units import NETEM, state_root
from dtdg_lab.distributed.all_to_all import Arrived, PendingRows
from dtdg_lab.distributed.group import Group, SoloGroup, columns_of, rows_of
from dtdg_lab.network.netem import NetemLinks
from dtdg_lab.network.patterns import LinkState, Pattern, RecordedTrace, links_of_ranks, make_pattern, parse_links

# Ranks with slow links between them, emulated where rows arrive.


@dataclass(slots=True)
class _Lines:
    """The links to this rank; shared by its group and the groups split from it.

    Attributes:
        links: (R, R) as set last.
        free_s: of each rank of the run, when its link to this one will have passed what is on it.
        flying: exchanges whose times are not known yet, in the order of their starts.
    """

    links: LinkState
    free_s: list[float]
    flying: deque[_LateRows] = field(default_factory=deque)


class LinkedGroup:
    """A group whose exchanges of rows come late by the state of the links between its ranks.

    Rows that rank o sends to rank r come ``delay_s[o, r]`` seconds later, and pass its link at ``bytes_per_s[o, r]``,
    one exchange after another, from when the last rank has started the exchange. It completes on rank r when the rows
    of all ranks that send it any have come: several slow links cost the slowest one's time, not their sum. The
    processor is free meanwhile. What else ranks do together, gradients among it, takes the time it takes, and a group
    by itself has no links.

    Args:
        group: the ranks; what is asked of this one is asked of it.
        links: of its R ranks, see :func:`dtdg_lab.network.patterns.links_of_ranks`; clean where None.

    Raises:
        PlanError: the links are of another number of ranks.
    """

    def __init__(self, group: Group, links: LinkState | None = None) -> None:
        self.rank, self.size, self.store = group.rank, group.size, group.store
        self._group = group
        self._lines = _Lines(LinkState.clean(self.size), [0.0] * self.size)
        self._numbers = list(range(self.size))
        self._splits: dict[int, tuple[Group, Group]] = {}
        if links is not None:
            self.set_links(links)

    @property
    def inner(self) -> Group:
        """The group inside."""
        return self._group

    @property
    def links(self) -> LinkState:
        """(R, R) the links as set last, of all ranks of the run."""
        return self._lines.links

    def set_links(self, links: LinkState) -> None:
        """Change the links for exchanges that start from now on, also of the groups split from this one.

        A rank reads only the links to itself, so every rank must call this.

        Raises:
            PlanError: the links are of another number of ranks.
        """
        ranks = len(self._lines.free_s)
        if links.parts != ranks:
            raise PlanError(
                f"links between {links.parts} ranks were given to a group of {ranks}: give one row and one column for "
                "each rank; congestion.rank_links makes them of links between parts."
            )
        self._lines.links = links

    @property
    def bytes_sent(self) -> int:
        """As counted by the group inside."""
        return self._group.bytes_sent

    @bytes_sent.setter
    def bytes_sent(self, number: int) -> None:
        """Counted on by the group inside."""
        self._group.bytes_sent = number

    @property
    def bytes_received(self) -> int:
        """As counted by the group inside."""
        return self._group.bytes_received

    @bytes_received.setter
    def bytes_received(self, number: int) -> None:
        """Counted on by the group inside."""
        self._group.bytes_received = number

    def start_exchange(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, place: Sequence[int] = ()
    ) -> PendingRows:
        """An exchange of the group inside that completes when its rows have passed the links."""
        pending = self._group.start_exchange(rows, send_counts, receive_counts, place=place)
        links = self._lines.links
        if self.size == 1 or links.is_clean:
            return pending
        width = rows.element_size() * math.prod(rows.shape[1:])
        mine = self._numbers[self.rank]
        coming = [
            _Coming(number, count * width, float(links.delay_s[number, mine]), float(links.bytes_per_s[number, mine]))
            for number, count in zip(self._numbers, receive_counts, strict=True)
            if count and number != mine
        ]
        late = _LateRows(pending, coming, self._lines)
        self._lines.flying.append(late)
        return late

    def split(self, row_ranks: int) -> tuple[Group, Group]:
        """The groups of the group inside, with the links between their ranks."""
        if row_ranks not in self._splits:
            row_group, column = self._group.split(row_ranks)
            of_rows = self._part(row_group, rows_of(row_ranks, self.size))
            self._splits[row_ranks] = of_rows, self._part(column, columns_of(row_ranks, self.size))
        return self._splits[row_ranks]

    def _part(self, group: Group, parts: list[list[int]]) -> Group:
        """This rank's subgroup of a division of the ranks."""
        if group is self._group:
            return self
        if isinstance(group, SoloGroup):
            return group
        part = LinkedGroup(group)
        part._lines = self._lines
        part._numbers = next(numbers for numbers in parts if self.rank in numbers)
        return part

    def all_reduce(self, flat: Tensor) -> None:
        """As the group inside does."""
        self._group.all_reduce(flat)

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """As the group inside does."""
        return self._group.gather_rows(rows, counts)

    def broadcast_array(self, array: NDArray[Any] | None) -> NDArray[Any]:
        """As the group inside does."""
        return self._group.broadcast_array(array)

    def broadcast_text(self, text: str) -> str:
        """As the group inside does."""
        return self._group.broadcast_text(text)

    def barrier(self) -> None:
        """As the group inside does."""
        self._group.barrier()

    def clock_ns(self) -> int:
        """As the group inside has it."""
        return self._group.clock_ns()

    def close(self) -> None:
        """Leave the group inside."""
        self._group.close()


@dataclass(frozen=True, slots=True)
class _Coming:
    """What one rank sends this one in an exchange, and the link it passes."""

    sender: int
    nbytes: int
    delay_s: float
    bytes_per_s: float


class _LateRows:
    """Pending rows that are here when the last of them has passed its link."""

    def __init__(self, pending: PendingRows, coming: list[_Coming], lines: _Lines) -> None:
        self._pending, self._coming, self._lines = pending, coming, lines
        self._started_s = time.perf_counter()
        self._flight_s: float | None = None
        self._arrived: Arrived | None = None

    def wait(self) -> Arrived:
        """Sleep for what is left of the way."""
        if self._arrived is None:
            entered_s = time.perf_counter()
            while self._flight_s is None:  # a link passes what was sent before first: its times are needed
                self._lines.flying.popleft().settle()
            arrived, due_s = self._pending.wait(), self._started_s + self._flight_s
            if (left_s := due_s - time.perf_counter()) > 0:
                time.sleep(left_s)
            exposed_s = min(max(0.0, due_s - entered_s), self._flight_s)
            wait_s = min(max(0.0, arrived.all_started_s - entered_s), exposed_s)
            self._arrived = replace(
                arrived, wait_s=wait_s, in_flight_s=self._flight_s, exposed_s=exposed_s, started_s=self._started_s
            )
        return self._arrived

    def settle(self) -> None:
        """Find out when the rows are here, once every rank has started to send. Times are from this one's start."""
        arrived, free_s = self._pending.wait(), self._lines.free_s
        crossing_s = max(0.0, arrived.all_started_s - self._started_s)
        self._flight_s = max(0.0, arrived.started_s + arrived.in_flight_s - self._started_s)  # inside it may be slower
        for each in self._coming:
            passed_s = crossing_s
            if each.bytes_per_s < math.inf:
                free = free_s[each.sender] - self._started_s
                passed_s = max(crossing_s, free) + each.nbytes / each.bytes_per_s
                free_s[each.sender] = self._started_s + passed_s
            self._flight_s = max(self._flight_s, passed_s + each.delay_s)


# Links made slow by the kernel instead of the process that serves features.


LOOPBACK = "127."


class KernelLinks:
    """Traffic control on this machine's loopback device, set up by one rank for the servers of all parts.

    Args:
        addresses: where each part's features are served.
        leads: whether this rank sets it up.

    Raises:
        NotAvailableError: a part is served on another machine, or traffic control cannot be used here.
    """

    def __init__(self, addresses: Mapping[int, str], *, leads: bool) -> None:
        found = {part: address.rpartition("//")[2].rpartition(":") for part, address in addresses.items()}
        elsewhere = [part for part, (host, _, _) in found.items() if not host.startswith(LOOPBACK)]
        if elsewhere:
            raise NotAvailableError(
                f"congestion_by='netem' with part(s) {elsewhere} served over a network: the lab shapes the loopback "
                "device of one machine alone. Set congestion_by='emulated', which works anywhere."
            )
        self._ports, self._leads = {part: int(port) for part, (_, _, port) in found.items()}, leads
        self._netem: NetemLinks | None = None
        self._start()

    def set_links(self, links: LinkState) -> None:
        """Make packets from the servers' ports so slow; it holds when this returns. Once closed, it starts again."""
        self._start()
        if self._netem is not None:
            self._netem.set_links(links)

    def close(self) -> None:
        """Give the device back as it was; a second call does nothing."""
        if self._netem is not None:
            self._netem.close()
        self._netem = None

    def _start(self) -> None:
        if self._leads and self._netem is None:
            netem = NetemLinks("lo", self._ports, state_root() / NETEM)
            netem.start()
            self._netem = netem


class Slowed(Protocol):
    """Whatever makes links between parts slow."""

    def set_links(self, links: LinkState) -> None:
        """Make them so from now on, also after :meth:`close` of what can be started again."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def _check_alike(links: LinkState, said: str) -> None:
    """Refuse links that the kernel cannot distinguish: of one owner, to requesters with the same address."""
    for owner in range(links.parts):
        asking = np.arange(links.parts) != owner
        if len({*zip(links.delay_s[owner, asking], links.bytes_per_s[owner, asking], strict=True)}) > 1:
            raise ConfigError(
                f"{said} with congestion_by='netem': the kernel cannot distinguish part {owner}'s requesters, "
                f"which have the same address. Give all of them the same ('{owner} delay=...'), or set "
                "congestion_by='emulated'."
            )


def _check_for_kernel(config: RunConfig, by_hand: LinkState, pattern: Pattern) -> None:
    """Refuse what traffic control cannot do. Patterns but for a recorded one slow down all of an owner's links alike.

    Raises:
        ConfigError: nothing is served from ports, or an owner's links differ.
    """
    if "features" not in catalogue.system(config.system).parts:
        raise ConfigError(
            f"congestion_by='netem' with system={config.system!r}, whose ranks exchange rows within the process group: "
            "the kernel shapes the ports that features are served from. Set congestion_by='emulated'."
        )
    _check_alike(by_hand, f"links={config['links']!r}")
    for state in pattern.states if isinstance(pattern, RecordedTrace) else ():
        _check_alike(state, f"congestion_file={shortened(config['congestion_file'])}")


class RankLinks:
    """Exchanges of rows between ranks, made as slow as the links between their parts.

    Args:
        group: of the ranks.
    """

    def __init__(self, group: LinkedGroup) -> None:
        self._group = group

    def set_links(self, links: LinkState) -> None:
        """Make exchanges that start from now on so slow."""
        self._group.set_links(links_of_ranks(links, self._group.size))

    def close(self) -> None:
        """Keep the group as it is; the next run has its own."""


class EmulatedNetwork:
    """The links of a run: a pure function of its settings, epoch and place within the epoch.

    Args:
        config: of a system that moves features or rows between parts.
        slowed: what makes them slow; None where nothing crosses a link, as with one rank.

    Raises:
        ConfigError: a link or part does not exist, a pattern, delay or rate makes no sense, or traffic control is asked
            for what it cannot do.
    """

    def __init__(self, config: RunConfig, slowed: Slowed | None = None) -> None:
        self._slowed = slowed
        self._now: LinkState | None = None  # in force
        self._described: LinkState | None = None
        self.use(config)

    def use(self, config: RunConfig) -> None:
        """Be as another config has it; nothing has changed where it is refused.

        Raises:
            ConfigError: as of the constructor.
        """
        by_hand = parse_links(config["links"], config.parts)
        pattern: Pattern = make_pattern(
            config["congestion"],
            parts=config.parts,
            seed=config.seed,
            delay_ms=config["congestion_ms"],
            mbit=config["congestion_mbit"],
            first_epoch=config["congestion_from"],
            cycle=config["congestion_cycle"],
            table=config["congestion_table"],
            file=config["congestion_file"],
            epochs=config.epochs,
            settings=config.options.get("congestion", {}),
        )
        if config["congestion_by"] == "netem":
            _check_for_kernel(config, by_hand, pattern)
        self._config, self._by_hand, self._pattern = config, by_hand, pattern

    @staticmethod
    def validate_settings(config: RunConfig) -> str:
        """Why links cannot be as a config has them; empty where they can. The same on all ranks."""
        try:
            EmulatedNetwork(config)
        except LabError as error:
            return str(error)
        return ""

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """The links when ``share`` of an epoch has passed, 0 to less than 1."""
        return self._pattern.at(epoch, share).with_(self._by_hand)

    def close(self) -> None:
        """Leave links as they were found; a second call does nothing."""
        if self._slowed is not None:
            self._slowed.close()

    def release(self) -> None:
        """Release a device with traffic control, so that another run can use it; :meth:`follow` acquires it again."""
        if self._slowed is not None and self._config["congestion_by"] == "netem":
            self._slowed.close()
            self._now = None

    def follow(self, epoch: int, share: float) -> dict[str, Any] | None:
        """Make the links as they are to be at a step; the event ``congestion`` where that is another state.

        There is none where nothing crosses a link.
        """
        if self._slowed is None:
            return None
        links = self.at(epoch, share)
        if links != self._now and not (self._now is None and links.is_clean):
            self._slowed.set_links(links)
        self._now = links
        if links == self._described:
            return None
        self._described = links
        return {"pattern": self._config["congestion"], **links.to_dict(), "by": self._config["congestion_by"]}
