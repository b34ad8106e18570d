"""Comparison of several runs: a table of results, and charts of losses and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import pandas as pd

from dtdg_lab.core.errors import ConfigError, LabError, RunStoreError, UnknownNameError
from dtdg_lab.runs import html as page
from dtdg_lab.runs.exports import open_run
from dtdg_lab.runs.provenance import differences, evaluation_summary, provenance
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.runs.summary import COMPARED
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.metrics import BASELINE
from dtdg_lab.visualization.run_names import differing_names
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

_LINKED = ("link_pairs", "link_ranked", "link_intervals")  # columns if some run predicts links


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs side by side: ``table`` has one row per run, ``figure`` shows their losses and energy.

    The table's columns are the differing settings, the losses beside the persistence and mean baselines, the provenance
    (see ``runs.provenance``), and the metrics of the runs' tasks. ``labels`` name the runs in charts. ``notes`` give
    reasons why results may not be comparable.
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
        """Return provenance, the first run at the target, and a comparison of controllers with fixed batch sizes."""
        compared = self._compared()
        sentences = (*(self.notes or (evaluation_summary(self.runs[0]),)), headline(compared), verdicts(compared))
        return " ".join(filter(None, sentences))

    def _compared(self) -> ComparedRuns:
        return compare_runs([(label, run.live) for label, run in zip(self.labels, self.runs, strict=True)])

    def _repr_html_(self) -> str:
        """Return the table; ``plotly.graph_objects.Figure(comparison.figure)`` draws the chart."""
        settings = ", ".join(self.differing) or "no setting"
        notes = "".join(f"<p><b>{page.text(note)}</b></p>" for note in self.notes)
        evaluation = "" if self.notes else f"<p>{page.text(evaluation_summary(self.runs[0]))}</p>"
        differ = f"<p>{len(self.runs)} runs that differ in: {page.text(settings)}</p>"
        return f"{notes}{differ}{evaluation}{self.table.to_html(na_rep='unknown', escape=True)}"


def compare(runs: Sequence[str | Path | StoredRun], *others: object, x: Spending = "steps") -> Comparison:
    """Compare several runs: differing settings and results as a table, and charts of losses and energy.

    The target of the chart is 20 % below persistence. Runs with other data, protocols or tasks than the first one are
    drawn grey; ``notes`` and the text state the differences.

    Args:
        runs: folders, opened runs, or exported pages and tables of runs.
        others: not allowed: give the runs as a list.
        x: axis of the losses: ``steps``, ``seconds``, ``joules`` or ``bytes``.

    Raises:
        ConfigError: no run, or no list, is given.
        UnknownNameError: ``x`` is unknown.
        RunStoreError: a path has no readable run; the message names it.
    """
    if others or isinstance(runs, str | PathLike | StoredRun):
        raise ConfigError("compare() takes the runs as a list: compare([run, other]).")
    opened = tuple(_readable(run, f"run {number} of {len(runs)}") for number, run in enumerate(runs, start=1))
    if not opened:
        raise ConfigError("compare() got no runs. Give folders of runs, such as compare(['runs/a', 'runs/b']).")
    if x not in OVER:
        raise UnknownNameError("axis of a comparison", x, OVER)
    settings = [run.config.flat for run in opened]
    names = list(dict.fromkeys(name for flat in settings for name in flat))
    differing = tuple(name for name in names if any(flat.get(name) != settings[0].get(name) for flat in settings))
    labels = differing_names([run.config for run in opened], [run.directory.name() for run in opened])
    figure = _figure(compare_runs([(label, run.live) for label, run in zip(labels, opened, strict=True)]), x)
    warnings = zip(labels, (run.summary.get("link_warning") for run in opened), strict=True)
    notes = (*differences(opened), *(f"{label}: {warning}" for label, warning in warnings if warning))
    return Comparison(opened, differing, _table(opened, differing), figure, tuple(labels), notes)


def _readable(run: str | Path | StoredRun, which: str) -> StoredRun:
    """Return the opened run, after reading all compared facts."""
    path = run.path if isinstance(run, StoredRun) else run
    try:
        opened = run if isinstance(run, StoredRun) else open_run(run)
        if not isinstance(opened, StoredRun):
            raise RunStoreError("it is only a part of a run. Give its folder, or an html or parquet export of it.")
        for facts in (opened.live, opened.summary, opened.status, provenance(opened)):
            assert facts is not None
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
    metrics_by_run = [run.summary.get("metrics") or {} for run in runs]
    scores = dict.fromkeys(name for metrics in metrics_by_run for name in metrics if not name.startswith(BASELINE))
    linked = [name for name in _LINKED if any(run.summary.get(name) is not None for run in runs)]
    rows = [
        {name: run.config.flat.get(name) for name in differing}
        | {name: run.summary.get(name) for name in COMPARED}
        | {name: metrics.get(name) for name in scores}
        | {name: run.summary.get(name) for name in linked}
        | {"status": run.status}
        | {name: fact for name, fact in provenance(run).items() if name in COLUMNS}
        for run, metrics in zip(runs, metrics_by_run, strict=True)
    ]
    columns = list(dict.fromkeys([*differing, *COMPARED, *scores, *linked]))  # a setting may be in the summary too
    return pd.DataFrame(rows, index=pd.Index([run.id for run in runs], name="run"), columns=columns)
