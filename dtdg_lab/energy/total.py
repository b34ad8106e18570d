"""Joules of a whole run: the sum over nodes and devices, each counted once, and how much of it is known.

Summary, live view, race, report and export all take the total from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dtdg_lab.energy.readers import Device

PROCESSOR: Device = "processor"
GPU: Device = "gpu"
MEASURED = ("counter", "polled")
STEPS = "steps"  # the reader of joules that stand in rows of ``steps``
KINDS = ("read", "modelled", "unknown")
_GPU_READERS = ("nvml:", "gpu-")
_NVML = "nvml:"  # begins the names of readers that name their GPU by its UUID


class Stream(NamedTuple):
    """Readings of one reader by one rank in one attempt.

    Attributes:
        attempt: of the run.
        node: the machine; of records that do not name it, ``of rank <rank>``.
        device: what draws the joules.
        reader: its name.
        scope: ``rank``, or ``node`` where the joules are those of the whole machine.
        rank: that reads.
        source: ``counter``, ``polled`` or ``modelled``.
    """

    attempt: int
    node: str
    device: str
    reader: str
    scope: str
    rank: int
    source: str


def stream_of(rank: int, attempt: int, row: Mapping[str, Any]) -> Stream:
    """The stream that a row of ``energy`` belongs to.

    Rows recorded before there were the columns ``device`` and ``node`` are placed by their reader and rank.
    """
    reader = _text(row.get("reader"))
    device = _text(row.get("device")) or (GPU if reader.startswith(_GPU_READERS) else PROCESSOR)
    return Stream(
        attempt,
        _text(row.get("node")) or f"of rank {rank}",
        device,
        reader,
        _text(row.get("scope")) or "rank",
        rank,
        _text(row.get("source")) or "unknown source",
    )


def counted(streams: Mapping[Stream, float]) -> list[Stream]:
    """The streams whose joules add up to the run's: every device once in every attempt.

    A GPU read by several ranks counts once, by the rank that read it longest. Measured GPUs are identified by the UUID
    in the name of their reader, modelled ones by rank. The processors of a node count by the reader of the whole node;
    without one, by the shares of its ranks.

    Args:
        streams: each with the seconds for which its joules are known, above 0.
    """
    best: dict[tuple[Any, ...], Stream] = {}
    whole = {(each.attempt, each.node) for each in streams if each.device == PROCESSOR and each.scope == "node"}
    for each in sorted(streams):
        device: tuple[Any, ...]
        if each.device == GPU:
            device = (each.attempt, each.reader if each.reader.startswith(_NVML) else (each.node, each.rank))
        elif (each.attempt, each.node) not in whole:
            device = (each.attempt, each.node, each.rank)
        elif each.scope == "node":
            device = (each.attempt, each.node)
        else:
            continue  # a share of what the node's reader has
        if device not in best or streams[each] > streams[best[device]]:
            best[device] = each
    return sorted(best.values())


@dataclass(slots=True)
class _Known:
    joules: float = 0.0
    seconds: float = 0.0  # for which joules are known


class EnergyTotal:
    """Sums up rows of ``energy`` and ``steps`` in any order of ranks; a repeated row counts once.

    Joules of steps that a resumed run repeated stay counted, because they were spent.
    """

    def __init__(self) -> None:
        self._known: dict[Stream, _Known] = {}
        self._in_steps: dict[Stream, _Known] = {}
        self._newest_ns: dict[Stream, int] = {}
        self._ranks: dict[tuple[int, int], str] = {}  # attempt and rank -> node; empty where no row names it
        self._gpus: set[tuple[int, int]] = set()  # attempt and rank of ranks with a GPU
        self._span_ns: dict[int, tuple[float, float]] = {}  # attempt -> first and last instant

    def add(self, rank: int, attempt: int, row: Mapping[str, Any]) -> Stream | None:
        """Add a row of ``energy``.

        Returns:
            Its stream; None if its joules are unknown, or it is repeated.
        """
        stream, time_ns, seconds = stream_of(rank, attempt, row), int(row["time_ns"]), _number(row["interval_s"]) or 0.0
        self._seen(attempt, time_ns, seconds)
        self._ranks[attempt, rank] = stream.node
        if stream.device == GPU:
            self._gpus.add((attempt, rank))
        joules = _number(row["joules"])
        if joules is None:
            return None
        return self._take(self._known, stream, time_ns, joules, seconds)

    def step(self, rank: int, attempt: int, row: Mapping[str, Any]) -> Stream | None:
        """Add a row of ``steps``: its joules count where nothing else is known of the rank's processors.

        Returns:
            The stream of its joules, without a node; None if they are unknown, or it is repeated.
        """
        time_ns, seconds, joules = int(row["time_ns"]), _number(row.get("time_s")) or 0.0, _number(row.get("energy_j"))
        self._seen(attempt, time_ns, seconds)
        self._ranks.setdefault((attempt, rank), "")
        if joules is None:
            return None
        source = _text(row.get("energy_source")) or "unknown source"
        stream = Stream(attempt, "", PROCESSOR, STEPS, "rank", rank, source)
        return self._take(self._in_steps, stream, time_ns, joules, seconds)

    def streams(self) -> list[Stream]:
        """Those that count; see :func:`counted`."""
        return counted({stream: known.seconds for stream, known in self._all().items()})

    def joules(self, device: str | None = None) -> dict[str, float]:
        """Joules by source, of all devices or of one kind of them; empty where none are known."""
        known = self._all()
        found: dict[str, float] = {}
        for stream in self.streams():
            if device in (None, stream.device):
                found[stream.source] = found.get(stream.source, 0.0) + known[stream].joules
        return found

    def coverage(self) -> dict[str, float] | None:
        """How the energy of all devices' time is known, in shares that sum to 1: ``read``, ``modelled``, ``unknown``.

        Every GPU and the processors of every node weigh the same; None before anything was seen.
        """
        lasted = wanted = 0.0
        found = dict.fromkeys(KINDS, 0.0)
        for attempt, of in self._devices().items():
            first, last = self._span_ns[attempt]
            span_s = (last - first) * 1e-9
            wanted += span_s * len(of)
            for ranks in of.values():
                for share, stream, seconds in ranks:
                    if stream is not None:
                        known_s = share * min(seconds, span_s)
                        found["read" if stream.source in MEASURED else "modelled"] += known_s
                        lasted += known_s
        if wanted <= 0:
            return None
        return {**{kind: seconds / wanted for kind, seconds in found.items()}, "unknown": max(1 - lasted / wanted, 0.0)}

    def unknown(self) -> list[str]:
        """Devices of the newest attempt whose energy is neither measured nor modelled, as text."""
        devices = self._devices().get(max(self._span_ns, default=0), {})
        return [name for name, ranks in devices.items() if all(stream is None for _, stream, _ in ranks)]

    def _devices(self) -> dict[int, dict[str, list[tuple[float, Stream | None, float]]]]:
        """By attempt and device: its streams, with the share of the device and the seconds of each."""
        known = self._all()
        streams = counted({stream: each.seconds for stream, each in known.items()})
        found: dict[int, dict[str, list[tuple[float, Stream | None, float]]]] = {}
        for attempt in self._span_ns:
            own = [stream for stream in streams if stream.attempt == attempt]
            devices = found.setdefault(attempt, {})
            nodes = {each.node: each for each in own if each.device == PROCESSOR and each.scope == "node"}
            by_rank = {each.rank: each for each in own if each.device == PROCESSOR and each.scope == "rank"}
            ranks = sorted(rank for of, rank in self._ranks if of == attempt)
            for node, stream in nodes.items():
                devices[f"the processors of node {node}"] = [(1.0, stream, known[stream].seconds)]
            for rank in ranks:
                node = self._ranks[attempt, rank]
                named = bool(node) and node != f"of rank {rank}"
                if node in nodes or (nodes and not named and rank not in by_rank):
                    continue  # in its node's; records that name no node have a reader of it on one rank alone
                beside = [each for each in ranks if named and self._ranks[attempt, each] == node] or [rank]
                stream_ = by_rank.get(rank)
                seconds = 0.0 if stream_ is None else known[stream_].seconds
                name = f"the processors of rank {rank}" if len(beside) == 1 else f"the processors of node {node}"
                devices.setdefault(name, []).append((1 / len(beside), stream_, seconds))
            gpus = [each for each in own if each.device == GPU]
            read = {each.rank for each in known if each.device == GPU and each.attempt == attempt}
            for stream in gpus:
                devices[f"the GPU of rank {stream.rank}"] = [(1.0, stream, known[stream].seconds)]
            for of, rank in sorted(self._gpus):
                if of == attempt and rank not in read:
                    devices[f"the GPU of rank {rank}"] = [(1.0, None, 0.0)]
        return found

    def _all(self) -> dict[Stream, _Known]:
        """The joules of the readers; for ranks without a processor reader, those of their steps."""
        processors = {(each.attempt, each.rank) for each in self._known if each.device == PROCESSOR}
        more = {
            each._replace(node=self._ranks[each.attempt, each.rank] or f"of rank {each.rank}"): known
            for each, known in self._in_steps.items()
            if (each.attempt, each.rank) not in processors
        }
        return {**self._known, **more}

    def _take(
        self, to: dict[Stream, _Known], stream: Stream, time_ns: int, joules: float, seconds: float
    ) -> Stream | None:
        if time_ns <= self._newest_ns.get(stream, -1):
            return None
        self._newest_ns[stream] = time_ns
        known = to.setdefault(stream, _Known())
        known.joules += joules
        known.seconds += seconds
        return stream

    def _seen(self, attempt: int, time_ns: int, seconds: float) -> None:
        first, last = self._span_ns.get(attempt, (math.inf, -math.inf))
        self._span_ns[attempt] = min(first, time_ns - seconds * 1e9), max(last, time_ns)


def total_of(energy: Iterable[Mapping[str, Any]], steps: Iterable[Mapping[str, Any]] = ()) -> EnergyTotal:
    """The total of rows of record tables, which have the columns ``rank`` and, after a resume, ``attempt``."""
    found = EnergyTotal()
    for row in sorted(energy, key=lambda each: each.get("time_ns", 0)):
        found.add(int(row["rank"]), int(row.get("attempt", 1)), row)
    for row in sorted(steps, key=lambda each: each["time_ns"]):
        found.step(int(row["rank"]), int(row.get("attempt", 1)), row)
    return found


def _text(value: Any) -> str:
    """A word of a record; empty where there is none, which a table may hold as NaN."""
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
