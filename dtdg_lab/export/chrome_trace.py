"""A run as a timeline in the Chrome trace format, for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.record_tables import BETWEEN_STEPS
from dtdg_lab.runs.json_files import dumps, finite
from dtdg_lab.runs.packed_run import MADE_BY
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.visualization.runs.curves import joules_until

if TYPE_CHECKING:
    import pandas as pd


Event = dict[str, Any]
Frames = Mapping[str, "pd.DataFrame"]  # tables of a run by name


# Counters of a run's timeline: losses, bytes, joules and memory.


def counters(
    run: StoredRun, frames: Frames, process: Mapping[int, int], everyone: int, origin_ns: int
) -> Iterator[Event]:
    """Return the counter events of a run.

    Args:
        run: a run read from its folder.
        frames: its tables steps, evaluations and memory.
        process: rank -> its process number in the timeline.
        everyone: process number of all ranks together.
        origin_ns: the time at which the timeline starts.
    """
    for rank, rows in frames["steps"].groupby("rank"):
        yield from _of_rank(rows, process[int(rank)], origin_ns)
    for row in frames["memory"].to_dict("records"):
        if is_known(row["rss_bytes"]):
            time_ns, pid = int(row["time_ns"]) - origin_ns, process.get(int(row["rank"]), everyone)
            yield _event("C", "memory (RSS)", time_ns, pid, args={"bytes": row["rss_bytes"]})
    ends = frames["steps"].groupby("step").agg(time_ns=("time_ns", "max"), attempt=("attempt", "max"))
    so_far = joules_until(run.live, ends["attempt"].tolist(), ends["time_ns"].tolist())
    if so_far is not None:  # every node and device is counted once
        for time_ns, joules in zip(ends["time_ns"].tolist(), so_far.tolist(), strict=True):
            yield _event("C", "joules so far", int(time_ns) - origin_ns, everyone, args={"joules": joules})
    yield from _losses(run.table("steps"), frames["evaluations"], everyone, origin_ns)


def _of_rank(steps: pd.DataFrame, process: int, origin_ns: int) -> Iterator[Event]:
    """Return the bytes that a rank moves during each step."""
    for row in steps.sort_values("time_ns", kind="stable").to_dict("records"):
        end_ns = int(row["time_ns"]) - origin_ns
        start_ns = end_ns - nanoseconds(row["time_s"])
        sent, received = row["bytes_sent"], row["bytes_received"]
        if is_known(sent) and is_known(received):
            moved = {"sent": sent, "received": received}
            for time_ns, args in ((start_ns, moved), (end_ns, dict.fromkeys(moved, 0))):
                yield _event("C", "bytes moved by the step", time_ns, process, args=args)


def _losses(steps: pd.DataFrame, evaluations: pd.DataFrame, everyone: int, origin_ns: int) -> Iterator[Event]:
    first = steps.sort_values("time_ns", kind="stable").drop_duplicates("step", keep="last")
    for time_ns, loss in zip(first["time_ns"], first["global_loss"], strict=True):
        if is_known(loss):
            yield _event("C", "training loss", int(time_ns) - origin_ns, everyone, args={"loss": float(loss)})
    for row in evaluations.to_dict("records"):
        if is_known(row["loss"]):
            time_ns = int(row["time_ns"]) - origin_ns
            yield _event("C", f"{row['split']} loss, evaluated", time_ns, everyone, args={"loss": row["loss"]})


def _event(kind: str, name: str, time_ns: int, process: int, *, thread: int = 1, **fields: Any) -> Event:
    """Return an event in the trace format; its time is in microseconds."""
    return {"name": name, "ph": kind, "ts": time_ns / 1000, "pid": process, "tid": thread, **fields}


def nanoseconds(seconds: float | None) -> int:
    """Return seconds as whole nanoseconds; 0 if the time is unknown."""
    return round(seconds * 1e9) if seconds is not None and math.isfinite(seconds) else 0


def is_known(value: Any) -> bool:
    """Return whether a cell holds a finite number."""
    return value is not None and math.isfinite(value)


TRACKS = ("epochs", "steps", "between steps", "groups")
_A_TRACK = 100  # maximum number of threads of a track
_MOST_LETTERS = 2_000  # maximum length of an event's text
_PASSED_OVER = ("epoch", "checkpoint", "between_steps")  # kinds of events that are shown as slices instead


@dataclass(frozen=True, slots=True)
class Slice:
    """Something with a duration, on a track of a rank; times are nanoseconds from the start of the timeline."""

    track: int
    name: str
    category: str
    start_ns: int
    end_ns: int
    facts: Mapping[str, Any]


def chrome_trace(run: StoredRun, *, first_process: int = 1, named: str = "") -> list[Event]:
    """Return the events of a run's timeline in order of time, after the names of processes and threads.

    Each rank is a process. Its epochs, steps with their phases, work between steps, and snapshot groups are nested
    slices. Of exchanges and of caches rebuilt in the background only the duration is known, so they are asynchronous
    slices that start with their step. Losses, bytes, joules and memory are counters; live changes, evaluations and
    other events are instants. All attempts are included, also steps that a resumed run repeated.

    Args:
        run: a run read from its folder.
        first_process: process number of rank 0; the number after the last rank's stands for all ranks together.
        named: start of the processes' names; by default the run's name.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    frames = {
        name: run.table(name, all_attempts=True)
        for name in ("steps", "phases", "groups", "evaluations", "events", "exchanges", "windows", "memory")
    }
    origin_ns = _origin(frames)
    ranks = sorted({int(rank) for name in ("steps", "phases", "events") for rank in frames[name]["rank"].unique()})
    process = {rank: first_process + rank for rank in ranks}
    everyone = first_process + max(run.config.ranks, max(ranks, default=-1) + 1)
    title = named or run.id
    names = [_named("process_name", everyone, f"{title} · all ranks")]
    timed: list[Event] = []
    for rank in ranks:
        of_rank = {name: frame[frame["rank"] == rank] for name, frame in frames.items()}
        slices = _slices(of_rank, origin_ns)
        lanes = _lanes(slices)
        names += [_named("process_name", process[rank], f"{title} · rank {rank}")]
        for lane in sorted(set(lanes.values())):
            track, number = divmod(lane - 1, _A_TRACK)
            name = TRACKS[track] + (f" ({number + 1})" if number else "")
            names.append(_named("thread_name", process[rank], name, thread=lane))
        for index, span in enumerate(slices):
            fields: Event = {"dur": (span.end_ns - span.start_ns) / 1000, "args": {"rank": rank, **span.facts}}
            event = _event(
                "X", span.name, span.start_ns, process[rank], thread=lanes[index], cat=span.category, **fields
            )
            timed.append(event)
        timed += _beside(of_rank, origin_ns, process[rank])
    timed += counters(run, frames, process, everyone, origin_ns)
    timed += _instants(frames, process, everyone, origin_ns)
    return [*names, *sorted(timed, key=lambda event: (event["ts"], -event.get("dur", 0.0)))]


def trace_file(run: StoredRun) -> bytes:
    """Return the file of a run's timeline: JSON with the run's settings and summary next to the events.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    frames = {name: run.table(name, all_attempts=True) for name in ("steps", "phases", "events")}
    about = {"run": run.id, "origin_ns": _origin(frames), "config": run.config.model_dump(), "summary": run.summary}
    return written(chrome_trace(run), about)


def written(events: Iterable[Event], about: Mapping[str, Any]) -> bytes:
    """Return the file of a timeline, with one event per line."""
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    head = dumps({"displayTimeUnit": "ms", "otherData": {MADE_BY: dict(about)}})
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'.encode()


def _origin(frames: Frames) -> int:
    """Return the earliest time of a run, in nanoseconds since 1970."""
    phases, events = frames["phases"], frames["events"]
    firsts = [column.min() for column in (phases["start_ns"], events["time_ns"]) if len(column.dropna())]
    return int(min(firsts, default=0))


def _slices(frames: Frames, origin_ns: int) -> list[Slice]:
    """Return the slices of one rank, by track and start; of slices with the same start, the longest comes first."""
    slices: list[Slice] = []
    phases = frames["phases"].to_dict("records")
    bounds: dict[tuple[int, int], tuple[int, int]] = {}
    epochs: dict[tuple[int, int], tuple[int, int]] = {}
    for row in phases:
        start_ns, end_ns = int(row["start_ns"]) - origin_ns, int(row["end_ns"]) - origin_ns
        between = row["phase"] in BETWEEN_STEPS
        facts = _to_dict(row, "phase", "start_ns", "end_ns")
        slices.append(Slice(2 if between else 1, row["phase"], "phase", start_ns, end_ns, facts))
        if not between:
            for bounds_by_key, number in ((bounds, row["step"]), (epochs, row["epoch"])):
                key = (int(row["attempt"]), int(number))
                first_ns, last_ns = bounds_by_key.get(key, (start_ns, end_ns))
                bounds_by_key[key] = (min(first_ns, start_ns), max(last_ns, end_ns))
    for (attempt, epoch), (start_ns, end_ns) in epochs.items():
        slices.append(Slice(0, f"epoch {epoch}", "epoch", start_ns, end_ns, {"epoch": epoch, "attempt": attempt}))
    for row in frames["steps"].to_dict("records"):
        length_ns = nanoseconds(row["time_s"])
        usual = int(row["time_ns"]) - length_ns - origin_ns, int(row["time_ns"]) - origin_ns
        start_ns, end_ns = bounds.get((int(row["attempt"]), int(row["step"])), usual)
        slices.append(Slice(1, f"step {int(row['step'])}", "step", start_ns, end_ns, _to_dict(row)))
    for row in frames["groups"].to_dict("records"):
        times = int(row["start_ns"]) - origin_ns, int(row["end_ns"]) - origin_ns
        slices.append(Slice(3, f"group {int(row['group'])}", "group", *times, _to_dict(row, "start_ns", "end_ns")))
    return sorted(slices, key=lambda span: (span.track, span.start_ns, -span.end_ns, span.category != "step"))


def _lanes(slices: list[Slice]) -> dict[int, int]:
    """Return the thread of each slice, by index: the first of its track whose slices contain it or end before it."""
    lanes: dict[int, int] = {}
    open_until: dict[int, list[int]] = {}
    for index, span in enumerate(slices):
        for lane in range(span.track * _A_TRACK + 1, (span.track + 1) * _A_TRACK):
            ends = open_until.setdefault(lane, [])
            while ends and ends[-1] <= span.start_ns:
                ends.pop()
            if not ends or span.end_ns <= ends[-1] or lane % _A_TRACK == _A_TRACK - 1:
                ends.append(span.end_ns)
                lanes[index] = lane
                break
    return lanes


def _beside(frames: Frames, origin_ns: int, process: int) -> Iterator[Event]:
    """Return exchanges and rebuilt caches as asynchronous slices from the start of their step."""
    rows = frames["steps"].to_dict("records")
    begun = {
        (int(row["attempt"]), int(row["step"])): int(row["time_ns"]) - nanoseconds(row["time_s"]) - origin_ns
        for row in rows
    }
    exchange = ("exchanges", "in_flight_s", "exchange", "exchange: {collective}, layer {layer}")
    cache = ("windows", "rebuild_s", "cache", "rebuild of a cache")
    number = 0
    for table, column, category, named in (exchange, cache):
        for row in frames[table].to_dict("records"):
            start_ns = begun.get((int(row["attempt"]), int(row["step"])))
            if start_ns is None or not row[column] or math.isnan(row[column]):
                continue
            number += 1
            name = named.format_map(row)
            same: dict[str, Any] = {"cat": category, "id": f"{process}.{number}"}
            note = "only the duration was recorded, so it is drawn from the start of its step"
            yield _event("b", name, start_ns, process, **same, args={**_to_dict(row), "place": note})
            yield _event("e", name, start_ns + round(row[column] * 1e9), process, **same)


def _instants(frames: Frames, process: Mapping[int, int], everyone: int, origin_ns: int) -> Iterator[Event]:
    """Return the run's events and evaluations as instants; those of live changes span all processes."""
    for row in frames["events"].to_dict("records"):
        if row["kind"] in _PASSED_OVER:
            continue
        text = dumps(row["data"])
        facts = {"step": row["step"], "epoch": row["epoch"], "rank": row["rank"], "attempt": row["attempt"]}
        facts["data"] = row["data"] if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
        time_ns, scope = int(row["time_ns"]) - origin_ns, "g" if row["kind"] == "settings" else "p"
        yield _event("i", row["kind"], time_ns, process[int(row["rank"])], cat="event", s=scope, args=finite(facts))
    for row in frames["evaluations"].to_dict("records"):
        name, time_ns = f"{row['split']} loss {row['loss']:.4g}", int(row["time_ns"]) - origin_ns
        yield _event("i", name, time_ns, everyone, cat="evaluation", s="p", args=_to_dict(row))


def _named(what: str, process: int, name: str, *, thread: int = 1) -> Event:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _to_dict(row: Mapping[Any, Any], *without: str) -> dict[str, Any]:
    """Return a row as a dict of values that JSON can hold."""
    return {str(name): finite(value) for name, value in row.items() if name not in without}
