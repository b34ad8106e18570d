"""A run as TensorBoard events: losses, phases, balance, bytes, joules and memory over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.record_tables import OWN_PHASES, PHASES
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.export.chrome_trace import is_known
from dtdg_lab.runs.json_files import dumps
from dtdg_lab.runs.packed_run import ABOUT, SCHEMA
from dtdg_lab.runs.report import changed_settings
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.visualization.runs.curves import joules_until

if TYPE_CHECKING:
    import pandas as pd


Point = tuple[int, float, str, float]  # step, seconds since 1970, tag, value
ALL_RANKS = "all"
CONFIG_TAG, ABOUT_TAG = "run/config", "run/about"
TRAIN_STEP = "step"  # tag of the training loss of each step; other losses are those of evaluated splits


def write_events(run: StoredRun, folder: Path) -> None:
    """Fill a folder with a run's events: ``all`` has those of all ranks, ``rank0``, ``rank1`` ... those of each.

    Rows that a resumed run replaced are left out. Values are float32, as TensorBoard stores them.

    Raises:
        DataError: a record line is damaged.
        NotAvailableError: tensorboard is not installed.
        RunStoreError: the run's files cannot be read.
    """
    steps, evaluations = run.table("steps"), run.table("evaluations")
    start_s = float(steps["time_ns"].min()) / 1e9 if len(steps) else 0.0
    texts = {CONFIG_TAG: run.config.to_json(), ABOUT_TAG: dumps({"schema": SCHEMA, "run": run.id})}
    _write(folder / ALL_RANKS, _of_all(run, steps, evaluations), start_s, texts=texts, run=run)
    for rank, rows in steps.groupby("rank"):
        _write(folder / f"rank{rank}", _of_rank(run, int(rank), rows), start_s)
    (folder / ABOUT).write_text(dumps({"schema": SCHEMA, "kind": "tensorboard", "run": run.id}), encoding="utf-8")


def _of_all(run: StoredRun, steps: pd.DataFrame, evaluations: pd.DataFrame) -> list[Point]:
    points: list[Point] = []
    if len(steps):
        first = steps.sort_values("time_ns", kind="stable").drop_duplicates("step", keep="last")
        points += _points(first, f"loss/{TRAIN_STEP}", "global_loss")
        points += _balance(steps)
        points += _joules(run, steps)
        sent = steps.groupby("step").agg(time_ns=("time_ns", "max"), bytes_sent=("bytes_sent", "sum"))
        points += _points(sent.reset_index(), "bytes/sent by all ranks", "bytes_sent")
    for split, rows in evaluations.groupby("split"):
        points += _points(rows, f"loss/{split}", "loss")
        points += _points(rows, f"baseline/{split} persistence", "persistence_loss")
        points += _points(rows, f"baseline/{split} mean", "mean_loss")
        points += _metrics(str(split), rows)
    return points


def _joules(run: StoredRun, steps: pd.DataFrame) -> list[Point]:
    """Return the cumulative joules of all nodes and devices at the end of every step, each counted once."""
    ends = steps.groupby("step").agg(time_ns=("time_ns", "max"), attempt=("attempt", "max")).reset_index()
    so_far = joules_until(run.live, ends["attempt"].tolist(), ends["time_ns"].tolist())
    return [] if so_far is None else _points(ends.assign(so_far=so_far), "energy/joules so far", "so_far")


def _metrics(split: str, rows: pd.DataFrame) -> list[Point]:
    evaluations = zip(rows["step"], rows["time_ns"], rows["metrics"], strict=True) if "metrics" in rows else ()
    return [
        (int(step), time_ns / 1e9, f"metric/{split} {name}", float(value))
        for step, time_ns, metrics in evaluations
        if isinstance(metrics, dict)
        for name, value in metrics.items()
        if is_known(value)
    ]


def _balance(steps: pd.DataFrame) -> list[Point]:
    """Return the largest over the mean own time of the ranks in each step, for steps that several ranks recorded."""
    with_own_time = steps.assign(own=steps[[f"{phase}_s" for phase in OWN_PHASES]].sum(axis=1, min_count=1))
    by_step = with_own_time.groupby("step").agg(
        time_ns=("time_ns", "max"), most=("own", "max"), mean=("own", "mean"), ranks=("rank", "nunique")
    )
    several = by_step[(by_step["ranks"] > 1) & (by_step["mean"] > 0)]
    return _points(several.assign(ratio=several["most"] / several["mean"]).reset_index(), "balance/imbalance", "ratio")


def _of_rank(run: StoredRun, rank: int, steps: pd.DataFrame) -> list[Point]:
    points = _points(steps, "time/step (s)", "time_s")
    for phase in PHASES:
        points += _points(steps, f"time/{phase} (s)", f"{phase}_s")
    for column in ("bytes_sent", "bytes_received"):
        points += _points(steps, f"bytes/{column.removeprefix('bytes_')}", column)
    points += _points(steps, "energy/joules of the step", "energy_j")
    memory = run.table("memory")
    of_rank = memory[memory["rank"] == rank]
    for column in ("rss_bytes", "peak_rss_bytes", "peak_bytes"):
        points += _points(of_rank, f"memory/{column}", column)
    return points


def _points(rows: pd.DataFrame, tag: str, column: str) -> list[Point]:
    return [
        (int(step), time_ns / 1e9, tag, float(value))
        for step, time_ns, value in zip(rows["step"], rows["time_ns"], rows[column], strict=True)
        if is_known(value) and is_known(step)
    ]


def _write(
    folder: Path,
    points: Sequence[Point],
    start_s: float,
    *,
    texts: Mapping[str, str] | None = None,
    run: StoredRun | None = None,
) -> None:
    """Write one file of events in order of time, under a name that does not reveal the machine."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise NotAvailableError("TensorBoard events need tensorboard: pip install 'dtdg-lab[lab]'.") from error
    with SummaryWriter(str(folder)) as writer:
        for tag, text in (texts or {}).items():
            writer.add_text(tag, text, 0, walltime=start_s)
        for summary in () if run is None else _hyperparameters(run):
            writer._get_file_writer().add_summary(summary, 0, start_s)
        for step, seconds, tag, value in sorted(points, key=lambda point: (point[1], point[0], point[2])):
            writer.add_scalar(tag, value, step, walltime=seconds)
    for file in folder.iterdir():
        file.rename(folder / f"events.out.tfevents.{int(start_s)}.dtdg_lab")


def _hyperparameters(run: StoredRun) -> list[Any]:
    """Return the settings and the resulting scores, for TensorBoard's page of hyperparameters."""
    from torch.utils.tensorboard.summary import hparams, scalar

    settings = {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in changed_settings(run.config).items()
    }
    names, summary = ("validation_loss", "test_loss", "skill", "total_time_s", "epoch_time_s", "total_j"), run.summary
    scores = {f"score/{name}": float(summary[name]) for name in names if is_known(summary.get(name))}
    experiment, started, ended = hparams(settings, scores)
    summaries = [experiment, started, *(scalar(tag, value) for tag, value in scores.items())]
    return [*summaries, ended] if run.status == "finished" else summaries
