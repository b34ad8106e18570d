"""Runs opened from disk: settings, records, provenance and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, RunStoreError, UnknownNameError
from dtdg_lab.runs import html as page
from dtdg_lab.runs.charts import all_rollups, captions_of, figures_of
from dtdg_lab.runs.checkpoints import Kept
from dtdg_lab.runs.directory import ENDED, RunDirectory, read_config
from dtdg_lab.runs.figures import save_figures
from dtdg_lab.runs.frames import RunFrames
from dtdg_lab.runs.json_files import RESTORE, read_object, reading
from dtdg_lab.runs.stored_tables import open_tables
from dtdg_lab.runs.summary import COMPARED, SCHEMA
from dtdg_lab.runs.tables import RunTables
from dtdg_lab.visualization.changes.log import changes_frame, requested_changes
from dtdg_lab.visualization.chart import XAxis
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.metrics import BASELINE
from dtdg_lab.visualization.run_names import differing_names
from dtdg_lab.visualization.runs.loss import step_losses
from dtdg_lab.visualization.runs.step_time import imbalance, step_times
from dtdg_lab.visualization.sheet import as_figure, sheet
from dtdg_lab.visualization.studies.comparison import ComparedRuns, Spending, compare_runs, headline, verdicts
from dtdg_lab.visualization.studies.comparison_charts import (
    OVER,
    energy_caption,
    energy_card,
    loss_caption,
    loss_card,
    trade_caption,
    trade_card,
)
from dtdg_lab.visualization.studies.result import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.cluster.run import Run, RunHandle
    from dtdg_lab.cluster.session import Session


# Provenance of a run's numbers: protocol, purge gap and data, as named in every table of results.


_DIGITS = 12
_PARTS = ("train", "validation", "test")


def provenance(run: StoredRun) -> dict[str, Any]:
    """The facts that decide whether two results are comparable; see ``visualization.studies.result.MEANINGS``.

    Unknown ones are None.

    Returns:
        ``protocol`` (a name), ``leaky`` (bool), ``purge`` (snapshots left out at each boundary), ``data`` (the first
        12 hexadecimal digits of ``data_hash``) and ``data_hash``.

    Raises:
        RunStoreError, DataError: the run's files cannot be read.
    """
    environment = run.environment
    with reading(run.directory.environment_file):
        data_hash = (environment.get("data") or {}).get("sha256") or None
        data = data_hash[:_DIGITS] if data_hash else None
    leaky = catalogue.PROTOCOLS[run.config.protocol].leaky and edge_life(run.config) != 1
    return {"protocol": run.config.protocol, "leaky": leaky, "purge": _purge(run), "data": data, "data_hash": data_hash}


def ground(runs: Sequence[StoredRun]) -> str:
    """Protocol, gap and data of these runs in a sentence, if it is the same for all of them."""
    described, config = provenance(runs[0]), runs[0].config
    gap = "an unknown number of" if described["purge"] is None else described["purge"]
    left = f"{gap} snapshot{'' if described['purge'] == 1 else 's'} left out at each boundary"
    leaks = ", so splits share edges" if described["leaky"] else ""
    return (
        f"Scored by protocol {config.protocol} with {left}{leaks}, on {config.dataset} "
        f"(data {described['data'] or 'unknown'})."
    )


def differences(runs: Sequence[StoredRun]) -> list[str]:
    """Why results of these runs may not be comparable, one sentence each; empty if the evaluation setting is the same.

    Args:
        runs: finished or active; those with unknown data are ignored when data are compared.
    """
    described = [provenance(run) for run in runs]
    captions = []
    data = {each["data"]: run.config.dataset for run, each in zip(runs, described, strict=True) if each["data"]}
    if len(data) > 1:
        named = ", ".join(f"{name} ({digits})" for digits, name in data.items())
        captions.append(f"The runs use different data: {named}. Their losses cannot be compared.")
    protocols = list(dict.fromkeys(run.config.protocol for run in runs))
    if len(protocols) > 1:
        meant = ", ".join(f"{name} ({catalogue.PROTOCOLS[name].meaning.partition(';')[0]})" for name in protocols)
        captions.append(f"The runs use different evaluation protocols: {meant}. Their losses mean different things.")
    gaps = sorted({each["purge"] for each in described if each["purge"] is not None})
    if len(gaps) > 1:
        counts = ", ".join(map(str, gaps))
        captions.append(f"The runs leave out {counts} snapshots at each boundary: their splits differ.")
    tasks = list(dict.fromkeys(run.config["task"] for run in runs))
    if len(tasks) > 1:
        captions.append(f"The runs have different tasks ({', '.join(tasks)}): their losses have different units.")
    hashes: dict[str, dict[str, None]] = {}
    for extension in (one for run in runs for one in run.directory.extensions() if one.sha256):
        hashes.setdefault(extension.title, {})[extension.sha256] = None
    for title, known in hashes.items():
        if len(known) > 1:
            captions.append(f"The runs use different code of {title} (sha256 {', '.join(known)}).")
    return captions


def edge_life(config: RunConfig) -> int | None:
    """Return the base intervals that an edge lives; None for a stored graph, which alone knows."""
    return None if config.dataset.startswith(catalogue.STORED) else config["edge_life"]


def _purge(run: StoredRun) -> int | None:
    """The gap from the run's own event, else from protocol and edge life."""
    with reading(run.directory.records):
        parts = _parts_event(run)
        if parts is not None:
            ends = [parts[name] for name in _PARTS if name in parts]
            return int(ends[1]["first"]) - int(ends[0]["last"]) - 1 if len(ends) > 1 else None
    life = 1 if catalogue.PROTOCOLS[run.config.protocol].leaky else edge_life(run.config)
    return None if life is None else catalogue.PROTOCOLS[run.config.protocol].gap(life)


def _parts_event(run: StoredRun) -> dict[str, Any] | None:
    """The event ``parts``, from the first lines of rank 0 if available, else from all events."""
    if not run.directory.record_file(0).is_file():
        return next((each["data"] for each in run.events if each["kind"] == "parts"), None)
    for table, row in run.tables.rows(0):
        if table == "steps":  # the event comes before the first of them
            return None
        if table == "events" and row["kind"] == "parts":
            return dict(row["data"])
    return None


# Past runs: open one, compare several.


TRAIN_STEP = "train-step"
_LINKED = ("link_pairs", "link_ranked", "link_intervals")  # columns if some run predicts links


class StoredRun:
    """A run read from its folder, in its current state; it may still be active.

    Reading changes nothing in the folder. Files that are damaged, or of a newer version, raise DataError or
    RunStoreError with the file's name when they are read; the rest stays readable.

    Attributes:
        keeper: object that keeps the folder alive while it is read, such as the race of a temporary folder.
    """

    keeper: object = None

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.tables = RunFrames(directory)
        self.id = directory.id
        self.path = directory.path
        self.config: RunConfig = read_config(directory.config_file)

    def __repr__(self) -> str:
        status = self.directory.status()
        state = status["reason"].partition(":")[0] if status["state"] == "interrupted" else status["state"]
        return f"StoredRun({self.id!r}, {state!r})"

    @property
    def family(self) -> Any:
        """The family of its system."""
        return catalogue.family(catalogue.system(self.config.system).family)

    @property
    def status(self) -> str:
        """``starting running paused stopping finished stopped failed``, or ``interrupted``.

        Interrupted is a run that SIGTERM or SIGUSR1 ended, or that has not ended and has no process left: all were
        killed, or the machine was switched off. ``reason`` names the signal and the step.
        """
        return str(self.directory.status()["state"])

    @property
    def reason(self) -> str:
        """Why the run is in that state; empty in the usual case."""
        return str(self.directory.status()["reason"])

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the whole run; empty before its end (see ``runs.summary.SUMMARY_MEANINGS``)."""
        file = self.directory.summary_file
        found = read_object(file, newest=SCHEMA) if file.is_file() else {}
        if not isinstance(found.get("metrics") or {}, dict):
            raise RunStoreError(f"{file} is damaged: its metrics are not an object. {RESTORE}")
        return found

    @property
    def environment(self) -> dict[str, Any]:
        """The environment of the run."""
        return self.directory.environment()

    @property
    def checkpoints(self) -> tuple[Kept, ...]:
        """Checkpoints to fork from, in order of steps."""
        return self.directory.checkpoints

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events of all attempts in order of time: rank, attempt, step, epoch, time_ns, kind, data.

        Events with equal data share one object: copy it before you change it.
        """
        return self.tables.events()

    def table(self, name: str, *, all_attempts: bool = False) -> pd.DataFrame:
        """One record table (see ``RunFrames.frames``).

        Raises:
            UnknownNameError: the run has no such table.
        """
        found = self.tables.frames((name,), all_attempts=all_attempts)
        if name not in found:
            found = self.tables.frames(all_attempts=all_attempts)
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

        found = self.tables.frames(("steps", "evaluations"))
        steps = found["steps"].assign(split=TRAIN_STEP)
        with reading(self.directory.records):
            frames = [frame for frame in (steps, _spread_metrics(found["evaluations"])) if len(frame)] or [steps]
            joined = pd.concat(frames, ignore_index=True)
            joined = joined.sort_values(["step", "time_ns"], kind="stable", ignore_index=True)
        first = ["rank", "epoch", "step", "split", "loss"]
        return joined[[*first, *(column for column in joined.columns if column not in first)]]

    @cached_property
    def live(self) -> RunTables:
        """The record tables of this run as columns, for charts."""
        with reading(self.directory.records):
            return open_tables(self.directory, self.config, all_rollups())

    def requests(self) -> pd.DataFrame:
        """Return the log of changes: who asked for which setting, its old and new value, and what became of it.

        A row for each setting, with the number of its request as index. ``time`` is seconds of training at the request.
        ``step`` is the first step under the change; where it was not applied, the step that came next. ``who`` is
        ``notebook``, ``page`` (a dashboard), ``tuner`` or the name of a program; in a replay ``replay of`` one of
        these, and ``fork of`` a run for the changes that a fork began with. ``outcome`` is ``applied``, ``refused`` or
        ``not applied`` (with the ``reason``), or, of an active run, ``asked`` or ``waiting`` for the end of an epoch.
        """
        while self.live.update():
            pass
        return changes_frame(requested_changes(self.live, ended=self.status in ENDED))

    def figures(self, x: XAxis = "steps") -> dict[str, Figure]:
        """Return the charts by name, as plotly figure dicts; the picture of its system comes first."""
        return figures_of(self.live, x, ended=self.status in ENDED)

    def captions(self) -> dict[str, str]:
        """Return the caption of each chart."""
        return captions_of(self.live, ended=self.status in ENDED)

    def save_figures(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write every chart to a folder and return the paths (see ``runs.figures.save_figures``)."""
        return save_figures(self.figures(), folder, overwrite=overwrite)

    def resume(self, session: Session, **changes: Any) -> Run:
        """Resume a run that has ended, or was interrupted, on a session's engines (see ``Session.resume``)."""
        return session.resume(self, **changes)

    def report(self) -> Path:
        """Rewrite report.html and return its path; if the run cannot be read, the report stays unchanged.

        Raises:
            DataError, RunStoreError: a file is damaged or of a newer version, or the report cannot be written.
        """
        from dtdg_lab.runs.report import write_report

        with reading(self.path):
            return write_report(self.directory)


def _spread_metrics(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The table with a column for each metric; records may have none."""
    import pandas as pd

    if "metrics" not in evaluations:
        return evaluations
    described = [value if isinstance(value, dict) else {} for value in evaluations["metrics"]]
    spread = pd.DataFrame(described, index=evaluations.index, dtype=float)
    return evaluations.drop(columns="metrics").join(spread)


def open_run(path: str | Path) -> StoredRun:
    """Open a run's folder.

    Raises:
        RunStoreError: there is no run at that path, or its settings cannot be read.
    """
    return StoredRun(RunDirectory.open(path))


def newest_interrupted(runs_dir: Path) -> Path | None:
    """The newest run in a folder of runs, if it was interrupted and can be resumed."""
    newest = max(runs_dir.glob("[0-9]*-[0-9]*-*"), key=lambda path: path.name, default=None)
    if newest is None:
        return None
    try:
        run = RunDirectory.open(newest)
        resumable = run.checkpoint_file.is_file() or run.recorded_status()["state"] == "interrupted"
        return newest if run.status()["state"] == "interrupted" and resumable else None
    except RunStoreError:  # damaged, or not a run: opening it reports the reason
        return None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs side by side: ``table`` has one row per run, ``figure`` shows their losses and energy.

    The table's columns are the settings that differ, the losses beside those of the persistence and mean
    baselines, the provenance (see ``runs.provenance``), and the metrics of the runs' tasks; ``labels``
    name the runs in charts. ``notes`` give reasons why results may not be comparable; empty if they are.
    """

    runs: tuple[StoredRun, ...]
    differing: tuple[str, ...]
    table: pd.DataFrame
    figure: Figure
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def wall_time(self) -> Figure:
        """Losses over seconds of training, with a star where a run reached the target."""
        compared = self._compared()
        return as_figure(loss_card(compared), loss_caption(compared))

    def summary(self) -> str:
        """Provenance, which run was first at the target, and whether controllers beat the best fixed batch size."""
        compared = self._compared()
        words = (*(self.notes or (ground(self.runs),)), headline(compared), verdicts(compared))
        return " ".join(filter(None, words))

    def _compared(self) -> ComparedRuns:
        return compare_runs([(label, run.live) for label, run in zip(self.labels, self.runs, strict=True)])

    def _repr_html_(self) -> str:
        """The table; where plotly is installed, ``plotly.graph_objects.Figure(comparison.figure)`` draws the chart."""
        said = ", ".join(self.differing) if self.differing else "no setting"
        notes = "".join(f"<p><b>{page.text(note)}</b></p>" for note in self.notes)
        stands = f"<p>{page.text(ground(self.runs))}</p>" if not self.notes else ""
        differ = f"<p>{len(self.runs)} runs that differ in: {page.text(said)}</p>"
        return f"{notes}{differ}{stands}{self.table.to_html(na_rep='unknown', escape=True)}"


def compare(runs: Sequence[str | Path | StoredRun], *others: object, x: Spending = "steps") -> Comparison:
    """Return summaries of several runs, with the settings in which they differ, and charts of losses and energy.

    The target of the chart is 20% below persistence. Runs of other data, protocols or tasks than the first one's are
    drawn grey; ``notes`` and the text state the differences.

    Args:
        runs: folders, opened runs, or pages and tables that runs were exported to.
        others: refused: the runs are one list.
        x: what losses are drawn over: ``steps``, ``seconds``, ``joules`` or ``bytes``.

    Raises:
        ConfigError: no run is given, or no list of them.
        UnknownNameError: ``x`` is none of these.
        RunStoreError: there is no run at one of the paths, or it cannot be read; the message says which.
    """
    if others or isinstance(runs, str | PathLike | StoredRun):
        raise ConfigError("compare() takes its runs as one list: compare([run, other]).")
    opened = tuple(_readable(run, f"run {number} of {len(runs)}") for number, run in enumerate(runs, start=1))
    if not opened:
        raise ConfigError("compare() got no run: give folders of runs, such as compare(['runs/a', 'runs/b']).")
    if x not in OVER:
        raise UnknownNameError("axis of a comparison", x, OVER)
    settings = [run.config.flat for run in opened]
    names = list(dict.fromkeys(name for flat in settings for name in flat))
    differing = tuple(name for name in names if any(flat.get(name) != settings[0].get(name) for flat in settings))
    labels = differing_names([run.config for run in opened], [run.directory.name() for run in opened])
    figure = _figure(compare_runs([(label, run.live) for label, run in zip(labels, opened, strict=True)]), x)
    warnings = zip(labels, (run.summary.get("link_warning") for run in opened), strict=True)
    few = [f"{label}: {warning}" for label, warning in warnings if warning]
    notes = (*differences(opened), *few)
    return Comparison(opened, differing, _table(opened, differing), figure, tuple(labels), notes)


def _readable(run: str | Path | StoredRun, which: str) -> StoredRun:
    """The opened run, after reading everything that is compared."""
    from dtdg_lab.runs import exports  # imported here because that module imports this one

    path = run.path if isinstance(run, StoredRun) else run
    try:
        opened = run if isinstance(run, StoredRun) else exports.open_run(run)
        if not isinstance(opened, StoredRun):
            raise RunStoreError("it holds only a part of a run. Give its folder, or an html or parquet export of it.")
        for known in (opened.live, opened.summary, opened.status, provenance(opened)):
            assert known is not None
    except LabError as error:
        raise RunStoreError(f"{which} cannot be compared ({path}): {error}") from error
    return opened


def _figure(compared: ComparedRuns, x: Spending) -> Figure:
    cards = [
        (loss_card(compared, x), loss_caption(compared)),
        (energy_card(compared), energy_caption(compared)),
        (trade_card(compared), trade_caption(compared)),
    ]
    return sheet(cards, title=headline(compared, x), wide=[0])


def _table(runs: tuple[StoredRun, ...], differing: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    metrics = [run.summary.get("metrics") or {} for run in runs]
    named = dict.fromkeys(name for described in metrics for name in described)
    scores = [name for name in named if not name.startswith(BASELINE)]
    linked = [name for name in _LINKED if any(run.summary.get(name) is not None for run in runs)]
    rows = [
        {name: run.config.flat.get(name) for name in differing}
        | {name: run.summary.get(name) for name in COMPARED}
        | {name: described.get(name) for name in scores}
        | {name: run.summary.get(name) for name in linked}
        | {"status": run.status}
        | {name: described for name, described in provenance(run).items() if name in COLUMNS}
        for run, described in zip(runs, metrics, strict=True)
    ]
    columns = list(dict.fromkeys([*differing, *COMPARED, *scores, *linked]))  # a setting may be in the summary too
    return pd.DataFrame(rows, index=pd.Index([run.id for run in runs], name="run"), columns=columns)


# Progress of a run, in terminals and notebooks: a line before its first step, then a bar of epochs.


class PreparationLine:
    """A line with what a run does before its first step; it appears with the first words, and goes at the end."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, words: str) -> None:
        """Show these words in place of those before; none end the line."""
        from tqdm.auto import tqdm

        if not words:
            self.__exit__()
            return
        if self._bar is None:
            self._bar = tqdm(bar_format="{desc}", leave=False)
        self._bar.set_description_str(f"starting: {words}")

    def __enter__(self) -> PreparationLine:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def show_progress(run: RunHandle, *, every_s: float = 0.25, **bar_options: Any) -> str:
    """Show a progress bar of epochs, with step, loss and imbalance, until the run ends; returns its last status.

    It only reads: interrupting it does not affect the run.

    Args:
        run: a run handle, such as that of ``session.train(config)``.
        every_s: seconds between two updates.
        bar_options: passed to ``tqdm.auto.tqdm``, such as ``file`` or ``leave``.
    """
    from tqdm.auto import tqdm

    with run.lock:
        epochs = run.live.config.epochs
    with tqdm(total=epochs, unit="epoch", **bar_options) as bar:
        while True:
            status = run.status  # read before the charts, so that the last update comes after the end
            with run.lock:
                _show(bar, run.live, status)
            if status in ENDED:
                break
            time.sleep(every_s)
        if run.reason:
            bar.set_description(f"{status}: {run.reason}")
    return status


def _show(bar: Any, tables: RunTables, status: str) -> None:
    progress, losses, times = tables.progress, step_losses(tables).values, step_times(tables)
    facts: dict[str, Any] = {"step": progress.step}
    if tables.preparing:
        status = f"{status}: {tables.preparing}"
    if len(losses) and math.isfinite(losses[-1]):
        facts["loss"] = f"{losses[-1]:.4g}"
    if len(times) > 1:
        facts["imbalance"] = f"{imbalance(times):.2f}"
    bar.n = progress.epoch
    bar.set_description(status, refresh=False)
    bar.set_postfix(facts, refresh=False)
    bar.refresh()
