"""Total energy of a run: the sum over nodes and devices, each counted once, and its coverage.

Summary, live view, race, report and export all use this total.
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
STEPS = "steps"  # reader of joules from rows of ``steps``
KINDS = ("read", "modelled", "unknown")
_GPU_READERS = ("nvml:", "gpu-")
_NVML = "nvml:"  # prefix of readers that name their GPU by its UUID


class Stream(NamedTuple):
    """Readings of one reader by one rank in one attempt.

    Attributes:
        attempt: attempt of the run.
        node: the machine; ``of rank <rank>`` for records without it.
        device: kind of device that draws the joules.
        reader: name of the reader.
        scope: ``rank``, or ``node`` for joules of the whole machine.
        rank: rank that reads.
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
    """Return the stream of a row of ``energy``.

    Older rows without the columns ``device`` and ``node`` are assigned by reader and rank.
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
    """Choose the streams whose joules sum to the run's: every device once in every attempt.

    If several ranks read a GPU, the longest stream counts. Measured GPUs are identified by the UUID in the name of
    their reader, modelled GPUs by rank. The processors of a node count by the reader of the whole node, or without one
    by the readers of its ranks.

    Args:
        streams: stream -> seconds with known joules, above 0.
    """
    best: dict[tuple[Any, ...], Stream] = {}
    whole_nodes = {
        (stream.attempt, stream.node) for stream in streams if stream.device == PROCESSOR and stream.scope == "node"
    }
    for stream in sorted(streams):
        device: tuple[Any, ...]
        if stream.device == GPU:
            device = (stream.attempt, stream.reader if stream.reader.startswith(_NVML) else (stream.node, stream.rank))
        elif (stream.attempt, stream.node) not in whole_nodes:
            device = (stream.attempt, stream.node, stream.rank)
        elif stream.scope == "node":
            device = (stream.attempt, stream.node)
        else:
            continue  # included in the node's reader
        if device not in best or streams[stream] > streams[best[device]]:
            best[device] = stream
    return sorted(best.values())


@dataclass(slots=True)
class _Known:
    joules: float = 0.0
    seconds: float = 0.0  # seconds with known joules


class EnergyTotal:
    """Sum of rows of ``energy`` and ``steps`` in any order of ranks; duplicate rows count once.

    Steps that a resumed run has repeated count every time, because they used energy every time.
    """

    def __init__(self) -> None:
        self._known: dict[Stream, _Known] = {}
        self._in_steps: dict[Stream, _Known] = {}
        self._newest_ns: dict[Stream, int] = {}
        self._ranks: dict[tuple[int, int], str] = {}  # attempt and rank -> node; empty if unknown
        self._gpus: set[tuple[int, int]] = set()  # attempt and rank of ranks with a GPU
        self._span_ns: dict[int, tuple[float, float]] = {}  # attempt -> first and last instant

    def add(self, rank: int, attempt: int, row: Mapping[str, Any]) -> Stream | None:
        """Add a row of ``energy``.

        Returns:
            Its stream; None if its joules are unknown, or it is a duplicate.
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
        """Add a row of ``steps``; its joules count only without another reader of the rank's processors.

        Returns:
            The stream of its joules, without a node; None if they are unknown, or the row is a duplicate.
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
        """Return the counted streams; see :func:`counted`."""
        return counted({stream: energy.seconds for stream, energy in self._all().items()})

    def joules(self, device: str | None = None) -> dict[str, float]:
        """Return joules by source, of all devices or of one kind; empty if nothing is known."""
        energy = self._all()
        joules: dict[str, float] = {}
        for stream in self.streams():
            if device in (None, stream.device):
                joules[stream.source] = joules.get(stream.source, 0.0) + energy[stream].joules
        return joules

    def coverage(self) -> dict[str, float] | None:
        """Return the shares of all devices' time with ``read``, ``modelled`` and ``unknown`` energy, which sum to 1.

        Every GPU and the processors of every node weigh the same. None without any rows.
        """
        known_total_s = device_s = 0.0
        seconds_by_kind = dict.fromkeys(KINDS, 0.0)
        for attempt, devices in self._devices().items():
            first, last = self._span_ns[attempt]
            span_s = (last - first) * 1e-9
            device_s += span_s * len(devices)
            for ranks in devices.values():
                for share, stream, seconds in ranks:
                    if stream is not None:
                        known_s = share * min(seconds, span_s)
                        seconds_by_kind["read" if stream.source in MEASURED else "modelled"] += known_s
                        known_total_s += known_s
        if device_s <= 0:
            return None
        return {
            **{kind: seconds / device_s for kind, seconds in seconds_by_kind.items()},
            "unknown": max(1 - known_total_s / device_s, 0.0),
        }

    def unknown(self) -> list[str]:
        """Name the devices of the newest attempt whose energy is neither measured nor modelled."""
        devices = self._devices().get(max(self._span_ns, default=0), {})
        return [name for name, ranks in devices.items() if all(stream is None for _, stream, _ in ranks)]

    def _devices(self) -> dict[int, dict[str, list[tuple[float, Stream | None, float]]]]:
        """Return attempt -> device -> its streams, each with its share of the device and its seconds."""
        energy = self._all()
        streams = counted({stream: sums.seconds for stream, sums in energy.items()})
        devices_by_attempt: dict[int, dict[str, list[tuple[float, Stream | None, float]]]] = {}
        for attempt in self._span_ns:
            attempt_streams = [stream for stream in streams if stream.attempt == attempt]
            devices = devices_by_attempt.setdefault(attempt, {})
            nodes = {
                stream.node: stream
                for stream in attempt_streams
                if stream.device == PROCESSOR and stream.scope == "node"
            }
            by_rank = {
                stream.rank: stream
                for stream in attempt_streams
                if stream.device == PROCESSOR and stream.scope == "rank"
            }
            ranks = sorted(rank for other_attempt, rank in self._ranks if other_attempt == attempt)
            for node, stream in nodes.items():
                devices[f"the processors of node {node}"] = [(1.0, stream, energy[stream].seconds)]
            for rank in ranks:
                node = self._ranks[attempt, rank]
                named = bool(node) and node != f"of rank {rank}"
                if node in nodes or (nodes and not named and rank not in by_rank):
                    continue  # included in its node; records without node names have one rank that reads the node
                node_ranks = [other for other in ranks if named and self._ranks[attempt, other] == node] or [rank]
                rank_stream = by_rank.get(rank)
                seconds = 0.0 if rank_stream is None else energy[rank_stream].seconds
                name = f"the processors of rank {rank}" if len(node_ranks) == 1 else f"the processors of node {node}"
                devices.setdefault(name, []).append((1 / len(node_ranks), rank_stream, seconds))
            gpus = [stream for stream in attempt_streams if stream.device == GPU]
            read = {stream.rank for stream in energy if stream.device == GPU and stream.attempt == attempt}
            for stream in gpus:
                devices[f"the GPU of rank {stream.rank}"] = [(1.0, stream, energy[stream].seconds)]
            for gpu_attempt, rank in sorted(self._gpus):
                if gpu_attempt == attempt and rank not in read:
                    devices[f"the GPU of rank {rank}"] = [(1.0, None, 0.0)]
        return devices_by_attempt

    def _all(self) -> dict[Stream, _Known]:
        """Return the joules of all readers, and of the steps of ranks without a processor reader."""
        processors = {(stream.attempt, stream.rank) for stream in self._known if stream.device == PROCESSOR}
        step_streams = {
            stream._replace(node=self._ranks[stream.attempt, stream.rank] or f"of rank {stream.rank}"): sums
            for stream, sums in self._in_steps.items()
            if (stream.attempt, stream.rank) not in processors
        }
        return {**self._known, **step_streams}

    def _take(
        self, to: dict[Stream, _Known], stream: Stream, time_ns: int, joules: float, seconds: float
    ) -> Stream | None:
        if time_ns <= self._newest_ns.get(stream, -1):
            return None
        self._newest_ns[stream] = time_ns
        sums = to.setdefault(stream, _Known())
        sums.joules += joules
        sums.seconds += seconds
        return stream

    def _seen(self, attempt: int, time_ns: int, seconds: float) -> None:
        first, last = self._span_ns.get(attempt, (math.inf, -math.inf))
        self._span_ns[attempt] = min(first, time_ns - seconds * 1e9), max(last, time_ns)


def total_of(energy: Iterable[Mapping[str, Any]], steps: Iterable[Mapping[str, Any]] = ()) -> EnergyTotal:
    """Sum rows of record tables, which have the columns ``rank`` and, after a resume, ``attempt``."""
    total = EnergyTotal()
    for row in sorted(energy, key=lambda row: row.get("time_ns", 0)):
        total.add(int(row["rank"]), int(row.get("attempt", 1)), row)
    for row in sorted(steps, key=lambda row: row["time_ns"]):
        total.step(int(row["rank"]), int(row.get("attempt", 1)), row)
    return total


def _text(value: Any) -> str:
    """Return a text of a record; empty for a missing one, which may be NaN."""
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
