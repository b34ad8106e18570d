"""Runs of the past: open one, compare several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, RunStoreError, UnknownNameError
from dtdg_lab.runs import page
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.environment import SCHEMA as ENVIRONMENT
from dtdg_lab.runs.kept import Kept
from dtdg_lab.runs.lines import merged_lines
from dtdg_lab.runs.provenance import COLUMNS, differences, ground, provenance
from dtdg_lab.runs.reader import tables
from dtdg_lab.runs.stored_files import RESTORE, read_config, read_object, reading
from dtdg_lab.runs.summary import SCHEMA
from dtdg_lab.views.compare import compare_figure
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.metrics import BASELINE
from dtdg_lab.views.series import XAxis
from dtdg_lab.views.wall_time import wall_time_figure, wall_time_words
from dtdg_lab.views.window import RunWindow

if TYPE_CHECKING:
    import pandas as pd

TRAIN_STEP = "train-step"
COMPARED = ("status", "task", "train_loss", "validation_loss", "test_loss", "persistence_loss", "mean_loss", "skill",
            *COLUMNS, "epochs", "steps", "total_time_s", "epoch_time_s", "epoch_time_spread_s", "epoch_time_median_s",
            "epoch_time_clean_s", "epoch_time_congested_s", "imbalance", "wait_share", "bytes_sent", "peak_bytes",
            "peak_rss_bytes", "total_j", "energy_j", "energy_coverage", "epoch_j", "epoch_j_spread")  # fmt: skip

_LINKED = ("link_pairs", "link_ranked", "link_intervals")  # columns where some run predicts links


class StoredRun:
    """A run read from its folder; it may still be under way, and is read as far as it has come.

    Reading changes nothing in the folder. What is damaged there, or of a newer version, raises DataError or
    RunStoreError with the file's name as soon as it is asked for; the rest can be read.

    Attributes:
        keeper: what must stay while the folder is read, such as the race whose temporary folder it is in.
    """

    keeper: object = None

    def __init__(self, directory: RunDirectory, *, points: int = 1500) -> None:
        self.directory = directory
        self.id = directory.id
        self.path = directory.path
        self.config: RunConfig = read_config(directory.config_file)
        self.points = points

    def __repr__(self) -> str:
        return f"StoredRun({self.id!r}, {self.status!r})"

    @property
    def status(self) -> str:
        """The state written last: starting, running, paused, stopping, finished, stopped or failed."""
        return str(self._status["state"])

    @property
    def reason(self) -> str:
        """Why the run is in that state, in words; empty where nothing is out of the ordinary."""
        return str(self._status["reason"])

    @property
    def _status(self) -> dict[str, Any]:
        return read_object(self.directory.status_file, needs=("state", "reason"))

    @property
    def summary(self) -> dict[str, Any]:
        """The numbers of the whole run; empty before it ended (see ``runs.summary.MEANINGS``)."""
        file = self.directory.summary_file
        found = read_object(file, newest=SCHEMA) if file.is_file() else {}
        if not isinstance(found.get("metrics") or {}, dict):
            raise RunStoreError(f"{file} is damaged: its metrics are no object. {RESTORE}")
        return found

    @property
    def environment(self) -> dict[str, Any]:
        """What the run was done with."""
        return read_object(self.directory.environment_file, newest=ENVIRONMENT)

    @property
    def checkpoints(self) -> tuple[Kept, ...]:
        """Checkpoints to fork from, in order of steps."""
        return self.directory.checkpoints

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events of all attempts in order of time: rank, attempt, step, epoch, time_ns, kind, data."""
        found = self.table("events", all_attempts=True)
        with reading(self.directory.records):
            return found.sort_values("time_ns", kind="stable").to_dict("records")

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
        with reading(self.directory.records):
            frames = [frame for frame in (steps, _spread_metrics(found["evaluations"])) if len(frame)] or [steps]
            joined = pd.concat(frames, ignore_index=True)
            joined = joined.sort_values(["step", "time_ns"], kind="stable", ignore_index=True)
        first = ["rank", "epoch", "step", "split", "loss"]
        return joined[[*first, *(column for column in joined.columns if column not in first)]]

    @cached_property
    def window(self) -> RunWindow:
        """The views of this run, made from its records."""
        window = RunWindow(self.config, points=self.points)
        with reading(self.directory.records):
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
        """Write report.html anew and return its path; where the run cannot be read, the report stays as it is.

        Raises:
            DataError, RunStoreError: a file is damaged or of a newer version, or the report cannot be written.
        """
        from dtdg_lab.runs.report import write_report

        with reading(self.path):
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
        RunStoreError: there is no run at that path, or its settings cannot be read.
    """
    return StoredRun(RunDirectory.open(path))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs side by side: ``table`` has one row a run, ``figure`` overlays their losses.

    The table's columns are the settings that differ, what every run has (its losses beside those of persistence and of
    the mean, and what they were measured on: see ``runs.provenance``), and the metrics of the runs' tasks; ``labels``
    name the runs in charts. ``notes`` say why results may not be comparable; empty where they are.
    """

    runs: tuple[StoredRun, ...]
    differing: tuple[str, ...]
    table: pd.DataFrame
    figure: Figure
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def wall_time(self) -> Figure:
        """Validation and training loss over wall seconds, with a star where a run is near the best of all."""
        return wall_time_figure(self._labelled())

    def in_words(self) -> str:
        """What the runs stand on; who is first near the least loss, and whether adjusters beat the best fixed size."""
        return " ".join([*(self.notes or (ground(self.runs),)), wall_time_words(self._labelled())])

    def _labelled(self) -> list[tuple[str, RunWindow]]:
        return [(label, run.window) for label, run in zip(self.labels, self.runs, strict=True)]

    def _repr_html_(self) -> str:
        """The table; where plotly is installed, ``plotly.graph_objects.Figure(comparison.figure)`` draws the chart."""
        said = ", ".join(self.differing) if self.differing else "no setting"
        notes = "".join(f"<p><b>{page.text(note)}</b></p>" for note in self.notes)
        stands = f"<p>{page.text(ground(self.runs))}</p>" if not self.notes else ""
        differ = f"<p>{len(self.runs)} runs that differ in: {page.text(said)}</p>"
        return f"{notes}{differ}{stands}{self.table.to_html(na_rep='unknown', escape=True)}"


def compare(runs: Sequence[str | Path | StoredRun], *, x: XAxis = "steps") -> Comparison:
    """Summaries of several runs, with the settings in which they differ, and their validation losses in one chart.

    Runs of other data, protocols, gaps or tasks can be compared; ``notes`` and the words say that they differ.

    Args:
        runs: folders, opened runs, or pages and tables that runs were exported to.
        x: what the chart's axis counts, ``steps`` or ``seconds``.

    Raises:
        ConfigError: no run is given.
        RunStoreError: there is no run at one of the paths, or it cannot be read; the message says which.
    """
    opened = tuple(_readable(run, f"run {number} of {len(runs)}") for number, run in enumerate(runs, start=1))
    if not opened:
        raise ConfigError("compare() got no run: give folders of runs, such as compare(['runs/a', 'runs/b']).")
    settings = [run.config.flat for run in opened]
    names = list(dict.fromkeys(name for flat in settings for name in flat))
    differing = tuple(name for name in names if any(flat.get(name) != settings[0].get(name) for flat in settings))
    labels = _labels(opened, differing)
    figure = compare_figure([(label, run.window) for label, run in zip(labels, opened, strict=True)], x)
    few = [
        f"{label}: {run.summary['link_warning']}"
        for label, run in zip(labels, opened, strict=True)
        if run.summary.get("link_warning")
    ]
    notes = (*differences(opened), *few)
    return Comparison(opened, differing, _table(opened, differing), figure, tuple(labels), notes)


def _readable(run: str | Path | StoredRun, which: str) -> StoredRun:
    """The opened run, once all that is compared of it has been read."""
    from dtdg_lab.runs.open_any import open_run as open_any  # it reads what this module defines

    path = run.path if isinstance(run, StoredRun) else run
    try:
        opened = run if isinstance(run, StoredRun) else open_any(run)
        if not isinstance(opened, StoredRun):
            raise RunStoreError("it holds a part of a run only. Give its folder, or an html or parquet export of it.")
        for known in (opened.window, opened.summary, opened.status, provenance(opened)):
            assert known is not None
    except LabError as error:
        raise RunStoreError(f"{which} cannot be compared ({path}): {error}") from error
    return opened


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
    linked = [name for name in _LINKED if any(run.summary.get(name) is not None for run in runs)]
    rows = [
        {name: run.config.flat.get(name) for name in differing}
        | {name: run.summary.get(name) for name in COMPARED}
        | {name: told.get(name) for name in scores}
        | {name: run.summary.get(name) for name in linked}
        | {"status": run.status}
        | {name: told for name, told in provenance(run).items() if name in COLUMNS}
        for run, told in zip(runs, metrics, strict=True)
    ]
    columns = list(dict.fromkeys([*differing, *COMPARED, *scores, *linked]))  # a setting may be in the summary too
    return pd.DataFrame(rows, index=pd.Index([run.id for run in runs], name="run"), columns=columns)
