"""What a run's timeline counts: losses, bytes, joules and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dtdg_lab.runs.open import StoredRun

if TYPE_CHECKING:
    import pandas as pd


def counters(
    run: StoredRun, frames: Mapping[str, pd.DataFrame], process: Mapping[int, int], everyone: int, origin_ns: int
) -> Iterator[dict[str, Any]]:
    """Counter events of a run.

    Args:
        run: read from its folder.
        frames: its tables steps, evaluations and memory.
        process: of each rank, its number in the timeline.
        everyone: number of all ranks together.
        origin_ns: time that the timeline counts from.
    """
    for rank, own in frames["steps"].groupby("rank"):
        yield from _of_rank(own, process[int(rank)], origin_ns)
    for row in frames["memory"].to_dict("records"):
        if _known(row["rss_bytes"]):
            at, pid = int(row["time_ns"]) - origin_ns, process.get(int(row["rank"]), everyone)
            yield _counter("memory (RSS)", at, pid, {"bytes": row["rss_bytes"]})
    ends = frames["steps"].groupby("step").agg(time_ns=("time_ns", "max"), attempt=("attempt", "max"))
    so_far = run.window.joules_until(ends["attempt"].tolist(), ends["time_ns"].tolist())
    if so_far is not None:  # of all nodes and devices, each once
        for time_ns, joules in zip(ends["time_ns"].tolist(), so_far.tolist(), strict=True):
            yield _counter("joules so far", int(time_ns) - origin_ns, everyone, {"joules": joules})
    yield from _losses(run.table("steps"), frames["evaluations"], everyone, origin_ns)


def _of_rank(steps: pd.DataFrame, process: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    """Bytes of each step while it lasts."""
    for row in steps.sort_values("time_ns", kind="stable").to_dict("records"):
        end_ns = int(row["time_ns"]) - origin_ns
        start_ns = end_ns - nanoseconds(row["time_s"])
        sent, received = row["bytes_sent"], row["bytes_received"]
        if _known(sent) and _known(received):
            yield _counter("bytes moved by the step", start_ns, process, {"sent": sent, "received": received})
            yield _counter("bytes moved by the step", end_ns, process, {"sent": 0, "received": 0})


def _losses(steps: pd.DataFrame, evaluations: pd.DataFrame, everyone: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    first = steps.sort_values("time_ns", kind="stable").drop_duplicates("step", keep="last")
    for time_ns, loss in zip(first["time_ns"], first["global_loss"], strict=True):
        if _known(loss):
            yield _counter("training loss", int(time_ns) - origin_ns, everyone, {"loss": float(loss)})
    for row in evaluations.to_dict("records"):
        if _known(row["loss"]):
            at = int(row["time_ns"]) - origin_ns
            yield _counter(f"{row['split']} loss, evaluated", at, everyone, {"loss": row["loss"]})


def _counter(name: str, time_ns: int, process: int, values: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "C", "ts": time_ns / 1000, "pid": process, "tid": 1, "args": values}


def nanoseconds(seconds: float | None) -> int:
    """Whole ones; none where the time is not known."""
    return round(seconds * 1e9) if seconds is not None and math.isfinite(seconds) else 0


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)
