"""Steps of ESDG on many ranks, predicted from runs on few ranks, with the errors of predictions."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.graphs.delta import SequenceChanges, scaled
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.systems import step_time
from dtdg_lab.systems.step_time import MeasuredStep, NetworkCosts, PredictedStepTime, ScalingModel, StepForecast
from dtdg_lab.systems.workload import StepWork
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.studies.result import StudyResult
from dtdg_lab.visualization.studies.scaling import scaling_caption, scaling_figure

STEP_RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
SAME_SIZE = 0.05  # largest relative difference in edges at which a measured graph counts as the predicted one
MEANINGS: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepScaling(StudyResult):
    """Steps on different numbers of ranks, measured and predicted.

    Attributes:
        rows: one per step; ``MEANINGS`` describes the columns.
        errors: one per measured step and part (``compute``, ``communicate``, ``transfer``, their ``sum``, and ``wall``,
            which compares the sum with the step's wall time): ``name``, ``ranks``, ``fitted``, ``part``,
            ``measured_s``, ``predicted_s`` and ``error`` (predicted over measured, minus 1).
        model: the rates.
        described: a description of what was done.
        weak: whether the graph grows with the ranks.
        paper: the paper's speed-up on its largest number of ranks; None if it reports none.
    """

    rows: tuple[dict[str, Any], ...]
    errors: tuple[dict[str, Any], ...]
    model: ScalingModel
    described: str
    weak: bool
    paper: float | None = None
    meanings = MEANINGS
    text_columns = ("ranks", "source", *(f"{part}_s" for part in step_time.PARTS), "step_s", "speedup")

    def error(self, part: str = "sum", *, fitted: bool = False) -> tuple[float, float] | None:
        """Return median and largest absolute error of a part over fitted or held-out steps; None without any."""
        errors = [abs(row["error"]) for row in self.errors if row["part"] == part and row["fitted"] is fitted]
        return (median(errors), max(errors)) if errors else None

    @property
    def figure(self) -> Figure:
        """Parts of a step by ranks, the speed-up next to the paper's, and predicted over measured times."""
        return scaling_figure(self.rows, self.errors, weak=self.weak, paper=self.paper, title=self.described)

    def conclusion(self) -> str:
        """Return sentences on the prediction for the largest number of ranks, and on the errors."""
        return scaling_caption(self.rows, self.errors, weak=self.weak)


def extrapolate(
    runs: Sequence[StoredRun | str | Path],
    ranks: Sequence[int] = STEP_RANKS,
    *,
    held_out: Sequence[StoredRun | str | Path] = (),
    weak: bool = False,
    size: float = 1.0,
    graph: DynamicGraph | None = None,
    network: NetworkCosts | None = None,
    cores: int | None = None,
) -> StepScaling:
    """Extrapolate runs on few ranks to many, separately for compute, communicate and transfer.

    Rates are fitted to the runs (see :mod:`dtdg_lab.systems.step_time`), then multiplied by the exact numbers of rows,
    edges and bytes on each number of ranks. To separate the rates, runs of several sizes and on one and two ranks are
    needed.

    Args:
        runs: runs of snapshot parallelism with one model, on one rank and on more, recorded with ``overlap="off"``.
            Predictions are for the settings and graph of the first run.
        ranks: numbers of ranks to predict.
        held_out: runs that are predicted and compared, but not used for the fit.
        weak: whether the graph grows with the ranks, in nodes and edges alike; otherwise it stays the same.
        size: factor by which the predicted graph's nodes and edges are scaled.
        graph: the data of all runs; by default their configs load it.
        network: network topology; by default the paper's 8 ranks per node, with the measured speed within a node.
        cores: cores of the machine on which the runs were trained; by default this process's.

    Raises:
        ConfigError: no run is given, or runs are of other systems, models or precisions, or overlap exchanges.
        PlanError: a phase needed for the prediction was never measured, or the ranks do not fit the graph.

    References: ESDG section 6.3, Figures 5 (strong scaling) and 7 (weak scaling).
    """
    opened = [_opened(run) for run in runs]
    if not opened or not ranks:
        raise ConfigError(
            f"forecast() needs at least one run and one number of ranks, but got {len(opened)} runs and "
            f"ranks={tuple(ranks)}."
        )
    everything = [*opened, *map(_opened, held_out)]
    measured = [run.family.measured_step(run, graph, cores=cores) for run in everything]
    (_, settings, changes), *later = measured
    for run, (_, run_settings, _) in zip(everything[1:], later, strict=True):
        if differing := settings.differences(run_settings):
            raise ConfigError(
                f"run {run.id} differs from the first in {', '.join(differing)}, but rates are for one model and size."
            )
    steps = [step for step, _, _ in measured]
    few = f"{len(opened)} run{'s' * (len(opened) > 1)} on up to {max(step.ranks for step in steps)} ranks"
    return continued(
        steps[: len(opened)],
        steps[len(opened) :],
        settings,
        scaled(changes, size) if size != 1 else changes,
        ranks=ranks,
        weak=weak,
        network=network,
        described=f"{settings.model} by snapshots, extrapolated from {few}",
    )


def continued(
    fitted: Sequence[MeasuredStep],
    held_out: Sequence[MeasuredStep],
    settings: StepForecast,
    changes: SequenceChanges,
    *,
    ranks: Sequence[int] = STEP_RANKS,
    weak: bool = False,
    network: NetworkCosts | None = None,
    described: str = "",
) -> StepScaling:
    """Fit rates to steps, then predict held-out steps and those on other numbers of ranks.

    Args:
        fitted: steps to which rates are fitted.
        held_out: steps that are predicted and compared.
        settings: settings of the predicted steps.
        changes: changes of the graph on one rank.
        ranks: numbers of ranks.
        weak: whether the graph grows with the ranks.
        network: network topology.
        described: description of the study.

    Raises:
        PlanError: nothing was measured, a phase is missing, or the ranks do not fit the graph.
    """
    model = step_time.fit_scaling(fitted)
    alone = settings.work(changes, 1)
    base_s = alone.edges / model.predict(alone, network).total_s
    measured = [(step, step in fitted) for step in (*fitted, *held_out)]
    rows = []
    for count in dict.fromkeys(ranks):
        work = settings.work(scaled(changes, count), count) if weak else settings.work(changes, count)
        rows.append(_row(settings, work, model.predict(work, network), "predicted", base_s, fitted=False))
        for step, is_fitted in measured:
            if _is_same(step.work, work):
                source = "own time" if step.communicate_s is None else "measured"
                rows.append(_row(settings, step.work, step.time, source, None, fitted=is_fitted))
    one = next((row for row in rows if row["source"] == "measured" and row["ranks"] == 1), None)
    for row in rows:
        if one is not None and row["source"] == "measured":
            row["speedup"] = (row["edges"] / row["step_s"]) / (one["edges"] / one["step_s"])
    errors = [error for step, is_fitted in measured for error in _errors(step, model, network, fitted=is_fitted)]
    return StepScaling(tuple(rows), tuple(errors), model, described, weak, settings.paper_speedup(weak=weak))


def _opened(run: Any) -> StoredRun:
    if isinstance(run, str | Path):
        return open_run(run)
    if not isinstance(run, StoredRun):
        raise ConfigError(
            f"steps() needs runs or their folders, such as forecast(config, runs=[...]), but got {shortened(run)}."
        )
    return run


def _is_same(step: StepWork, work: StepWork) -> bool:
    """Return whether a measured step has the predicted settings and about the same number of edges."""
    is_near = abs(step.edges - work.edges) <= SAME_SIZE * work.edges
    return step.ranks == work.ranks and step.nodes == work.nodes and is_near


def _row(
    settings: StepForecast, work: StepWork, time: PredictedStepTime, source: str, base_s: float | None, *, fitted: bool
) -> dict[str, Any]:
    shared = source == "own time"
    return {
        "model": settings.model,
        "ranks": work.ranks,
        "source": source,
        "fitted": fitted,
        "nodes": work.nodes,
        "edges": work.edges,
        "compute_s": time.compute_s,
        "communicate_s": None if shared else time.communicate_s,
        "transfer_s": time.transfer_s,
        "step_s": time.total_s,
        "speedup": work.edges / time.total_s / base_s if base_s else None,
    }


def _errors(
    step: MeasuredStep, model: ScalingModel, network: NetworkCosts | None, *, fitted: bool
) -> list[dict[str, Any]]:
    """Return the prediction error of each measured phase; ``sum`` leaves out exchanges if they are unknown."""
    predicted, measured = model.predict(step.work, network), step.time
    parts = [part for part in step_time.PARTS if getattr(measured, f"{part}_s") > 0]
    pairs = [(part, getattr(measured, f"{part}_s"), getattr(predicted, f"{part}_s")) for part in parts]
    pairs.append(("sum", measured.total_s, sum(value for _, _, value in pairs)))
    if step.step_s is not None:
        pairs.append(("wall", step.step_s, predicted.total_s))
    identity = {"name": step.name, "ranks": step.ranks, "fitted": fitted}
    return [
        {**identity, "part": part, "measured_s": seconds, "predicted_s": value, "error": value / seconds - 1}
        for part, seconds, value in pairs
    ]
