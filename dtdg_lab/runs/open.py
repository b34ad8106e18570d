"""Runs of the past: open one, compare several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.lines import merged_lines
from dtdg_lab.runs.reader import tables
from dtdg_lab.views.compare import compare_figure
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.metrics import BASELINE
from dtdg_lab.views.series import XAxis
from dtdg_lab.views.wall_time import wall_time_figure, wall_time_words
from dtdg_lab.views.window import RunWindow

if TYPE_CHECKING:
    import pandas as pd

TRAIN_STEP = "train-step"
COMPARED = ("status", "task", "train_loss", "validation_loss", "test_loss", "persistence_loss", "skill",
            "epochs", "steps", "epoch_time_s", "imbalance", "wait_share", "bytes_sent", "peak_bytes", "peak_rss_bytes",
            "energy_j")  # fmt: skip


class StoredRun:
    """A run read from its folder; it may still be under way, and is read as far as it has come."""

    def __init__(self, directory: RunDirectory, *, points: int = 1500) -> None:
        self.directory = directory
        self.id = directory.id
        self.path = directory.path
        self.config: RunConfig = directory.config()
        self.points = points

    def __repr__(self) -> str:
        return f"StoredRun({self.id!r}, {self.status!r})"

    @property
    def status(self) -> str:
        """The state written last: starting, running, paused, stopping, finished, stopped or failed."""
        return self.directory.status()["state"]

    @property
    def reason(self) -> str:
        """Why the run is in that state, in words; empty where nothing is out of the ordinary."""
        return self.directory.status()["reason"]

    @property
    def summary(self) -> dict[str, Any]:
        """The numbers of the whole run; empty before it ended (see ``runs.summary.MEANINGS``)."""
        return self.directory.summary()

    @property
    def environment(self) -> dict[str, Any]:
        """What the run was done with."""
        return self.directory.environment()

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events of all attempts in order of time: rank, attempt, step, epoch, time_ns, kind, data."""
        return self.table("events", all_attempts=True).sort_values("time_ns", kind="stable").to_dict("records")

    def table(self, name: str, *, all_attempts: bool = False) -> pd.DataFrame:
        """One record table (see ``runs.reader.tables``).

        Raises:
            UnknownNameError: the run has no such table.
        """
        found = tables(self.directory, all_attempts=all_attempts, only=(name,))
        if name not in found:
            found = tables(self.directory, all_attempts=all_attempts)
        if name not in found:
            raise UnknownNameError("record table", name, found)
        return found[name]

    def to_pandas(self) -> pd.DataFrame:
        """Steps and evaluations in one frame, in order of time.

        Rows of steps have ``split`` = ``train-step`` and the rank's own mean loss of the step (``global_loss`` is that
        of all ranks). Rows of evaluations have ``split`` = ``train``, ``validation`` or ``test``, their loss, their
        metrics as columns of their names, and no times. ``rank`` is the rank that wrote the row.
        """
        import pandas as pd

        found = tables(self.directory, only=("steps", "evaluations"))
        steps = found["steps"].assign(split=TRAIN_STEP)
        frames = [frame for frame in (steps, _spread_metrics(found["evaluations"])) if len(frame)] or [steps]
        joined = pd.concat(frames, ignore_index=True).sort_values(["step", "time_ns"], kind="stable", ignore_index=True)
        first = ["rank", "epoch", "step", "split", "loss"]
        return joined[[*first, *(column for column in joined.columns if column not in first)]]

    @cached_property
    def window(self) -> RunWindow:
        """The views of this run, made from its records."""
        window = RunWindow(self.config, points=self.points)
        for line in merged_lines(self.directory):
            window.add(line)
        return window

    def figures(self, x: XAxis = "steps") -> dict[str, Figure]:
        """The charts as plotly figure dicts: loss, phases, energy, timeline; partition where the run has one."""
        return self.window.figures(x)

    def sentences(self) -> dict[str, str]:
        """What each chart shows, in one sentence."""
        return self.window.sentences()

    def report(self) -> Path:
        """Write report.html anew and return its path."""
        from dtdg_lab.runs.report import write_report

        return write_report(self.directory)


def _spread_metrics(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The table with a column for each metric; runs recorded before there were metrics have none."""
    import pandas as pd

    if "metrics" not in evaluations:
        return evaluations
    told = [value if isinstance(value, dict) else {} for value in evaluations["metrics"]]
    spread = pd.DataFrame(told, index=evaluations.index, dtype=float)
    return evaluations.drop(columns="metrics").join(spread)


def open_run(path: str | Path) -> StoredRun:
    """Open a run's folder.

    Raises:
        RunStoreError: there is no run at that path.
    """
    return StoredRun(RunDirectory.open(path))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs side by side: ``table`` has one row a run, ``figure`` overlays their losses.

    The table's columns are the settings that differ, what every run has, and the metrics of the runs' tasks; ``labels``
    name the runs in charts.
    """

    runs: tuple[StoredRun, ...]
    differing: tuple[str, ...]
    table: pd.DataFrame
    figure: Figure
    labels: tuple[str, ...]

    @property
    def wall_time(self) -> Figure:
        """Validation and training loss over wall seconds, with a star where a run is near the best of all."""
        return wall_time_figure(self._labelled())

    def in_words(self) -> str:
        """Who is first near the least loss of all, and whether adjusters of batches beat the best fixed size."""
        return wall_time_words(self._labelled())

    def _labelled(self) -> list[tuple[str, RunWindow]]:
        return [(label, run.window) for label, run in zip(self.labels, self.runs, strict=True)]

    def _repr_html_(self) -> str:
        """The table; where plotly is installed, ``plotly.graph_objects.Figure(comparison.figure)`` draws the chart."""
        said = ", ".join(self.differing) if self.differing else "no setting"
        return f"<p>{len(self.runs)} runs that differ in: {said}</p>" + self.table.to_html(
            na_rep="unknown", escape=True
        )


def compare(runs: Sequence[str | Path | StoredRun], *, x: XAxis = "steps") -> Comparison:
    """Summaries of several runs, with the settings in which they differ, and their validation losses in one chart.

    Args:
        runs: folders or opened runs.
        x: what the chart's axis counts, ``steps`` or ``seconds``.

    Raises:
        ConfigError: no run is given.
        RunStoreError: there is no run at one of the paths.
    """
    opened = tuple(run if isinstance(run, StoredRun) else open_run(run) for run in runs)
    if not opened:
        raise ConfigError("compare() got no run: give folders of runs, such as compare(['runs/a', 'runs/b']).")
    settings = [run.config.flat for run in opened]
    names = list(dict.fromkeys(name for flat in settings for name in flat))
    differing = tuple(name for name in names if any(flat.get(name) != settings[0].get(name) for flat in settings))
    labels = _labels(opened, differing)
    figure = compare_figure([(label, run.window) for label, run in zip(labels, opened, strict=True)], x)
    return Comparison(opened, differing, _table(opened, differing), figure, tuple(labels))


def _labels(runs: tuple[StoredRun, ...], differing: tuple[str, ...]) -> list[str]:
    """The first three settings that differ; where they do not tell the runs apart, the ones that do, else the ids."""
    labels = [_label(run, differing[:3]) for run in runs]
    if len(set(labels)) == len(labels):
        return labels
    telling: tuple[str, ...] = ()
    for name in differing:
        more = [_label(run, (*telling, name)) for run in runs]
        if len(set(more)) > len({_label(run, telling) if telling else "" for run in runs}):
            telling, labels = (*telling, name), more
    return labels if len(set(labels)) == len(labels) else [run.id for run in runs]


def _label(run: StoredRun, names: tuple[str, ...]) -> str:
    said = ", ".join(f"{name} {run.config.flat.get(name)}" for name in names if name in run.config.flat)
    return said or run.id


def _table(runs: tuple[StoredRun, ...], differing: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    metrics = [run.summary.get("metrics") or {} for run in runs]
    scores = [
        name for name in dict.fromkeys(name for told in metrics for name in told) if not name.startswith(BASELINE)
    ]
    rows = [
        {name: run.config.flat.get(name) for name in differing}
        | {name: run.summary.get(name) for name in COMPARED}
        | {name: told.get(name) for name in scores}
        | {"status": run.status}
        for run, told in zip(runs, metrics, strict=True)
    ]
    columns = list(dict.fromkeys([*differing, *COMPARED, *scores]))  # a setting may be in the summary too
    return pd.DataFrame(rows, index=pd.Index([run.id for run in runs], name="run"), columns=columns)
