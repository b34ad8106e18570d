"""``lab.predict_scaling``: predicts ESDG steps on many ranks from runs on few, with the prediction error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.core.units import format_seconds
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.delta import SequenceChanges, sequence_changes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.run import StoredRun, open_run
from dtdg_lab.systems.snapshot_blocks.cost_model import (
    PARTS,
    MeasuredStep,
    NetworkCosts,
    PredictedStepTime,
    ScalingModel,
    StepSettings,
    StepWork,
    fit_scaling,
    scaled,
)
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.scaling import scaling_figure, scaling_words

if TYPE_CHECKING:
    import pandas as pd


# Steps of a recorded run of ESDG as input of the scaling model: the work of each rank, and the time of its phases.


WARM_UPS = 1  # steps left out: the first fills caches


def measured_step(
    run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
) -> tuple[MeasuredStep, StepSettings, SequenceChanges]:
    """The median step of a run, its computation, and its graph.

    If there were more ranks than cores, compute and transfer are the rank's processor seconds, in the proportion of
    their wall times, and other times are unknown. They then include the processor time of exchanges, too.

    Args:
        run: of a system whose ranks have whole snapshots, without overlap on several ranks.
        graph: its data; loaded by default.
        cores: of the machine it ran on; by default those of this process.

    Raises:
        ConfigError: it is another system's, has too few steps, or overlaps exchanges with computation.
    """
    described, config = _blocks_event(run), run.config
    ranks = described["ranks"]
    if ranks > 1 and config["overlap"]:
        raise ConfigError(
            f"run {run.id} overlaps exchanges with computation, so neither can be timed alone: record one with "
            "overlap=False."
        )
    graph = load_for(config) if graph is None else graph
    first, *_, last = described["bounds"]
    changes = sequence_changes(graph.snapshots[first:last])
    settings = _settings(run, described, graph.num_features)
    seconds = _seconds(run)
    compute, transfer, cpu = (np.array([each[name] for each in seconds]) for name in ("compute", "transfer", "cpu"))
    work = settings.work(changes, ranks)
    if ranks > (len(os.sched_getaffinity(0)) if cores is None else cores):
        share = compute / np.maximum(compute + transfer, 1e-12)
        return MeasuredStep(run.id, work, cpu * share, cpu * (1 - share)), settings, changes
    exchanged, whole = (max(each[name] for each in seconds) for name in ("communicate", "whole"))
    exchanged = exchanged if ranks > 1 else 0.0  # a single rank exchanges nothing
    return MeasuredStep(run.id, work, compute, transfer, exchanged, whole), settings, changes


def _blocks_event(run: StoredRun) -> dict[str, Any]:
    """The content of the run's last event ``blocks``."""
    described = [event["data"] for event in run.events if event["kind"] == "blocks"]
    if not described or described[-1].get("layout") != "snapshot" or described[-1]["row_ranks"] > 1:
        raise ConfigError(
            f"run {run.id} is of system {run.config.system!r}; only steps of esdg, whose ranks have whole snapshots, "
            "can be used. Record one with system='esdg'."
        )
    return described[-1]


def _settings(run: StoredRun, described: dict[str, Any], features: int) -> StepSettings:
    config, last = run.config, run.config.layers - 1
    scored = [
        width for layer, way, leg, width in described["legs"] if (layer, way, leg) == (last, "forward", "to_snapshots")
    ]
    return StepSettings(
        config.model,
        features,
        config.hidden,
        config.layers,
        pairs=scored[0] if scored else 0,
        blocks=described["blocks"],
        difference=config["difference"],
        reuse=config["halo_reuse"],
        itemsize=np.dtype(config["dtype"]).itemsize,
        options=config.options.get("models", {}),
    )


def _seconds(run: StoredRun) -> list[dict[str, float]]:
    """Medians of each rank."""
    steps = run.table("steps")
    steps = steps[steps["step"] >= WARM_UPS]
    if steps.empty:
        raise ConfigError(f"run {run.id} has no step after the first: record a run of at least {WARM_UPS + 1} epochs.")
    found = []
    for _, own in steps.groupby("rank", sort=True):
        middle = own[["batch_s", "compute_s", "update_s", "transfer_s", "communicate_s", "cpu_s", "time_s"]].median()
        found.append(
            {
                "compute": float(middle[["batch_s", "compute_s", "update_s"]].sum()),
                "cpu": float(middle["cpu_s"]),
                "transfer": float(middle["transfer_s"]),
                "communicate": float(middle["communicate_s"]),
                "whole": float(middle["time_s"]),
            }
        )
    return found


RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
SAME_SIZE = (
    0.05  # by which a measured graph's edges may differ from those predicted for, to be compared with the prediction
)
# ESDG sections 6.3, Figures 5 and 7, on 128 GPUs: speed-ups over 1; strong is the best of all its graphs and models
PAPER: Mapping[bool, Mapping[str, float]] = MappingProxyType(
    {
        False: MappingProxyType({"cdgcn": 30.0, "tmgcn": 30.0, "evolvegcn-o": 30.0}),
        True: MappingProxyType({"cdgcn": 79.0, "tmgcn": 125.0, "evolvegcn-o": 260.0}),
    }
)
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "source": "predicted; measured, on as many cores as ranks; own time: by processors, where ranks shared cores, "
        "without exchanges",
        "fitted": "whether the rates were fitted to this step",
        "nodes": "nodes of the graph",
        "compute_s": "of the slowest rank (straggler)",
        "communicate_s": "exchanges, without waiting for others; missing if ranks shared cores",
        "transfer_s": "transfer of graphs to the slowest rank",
        "step_s": "sum of the three",
        "speedup": "edges a second, over those on one rank",
    }
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScalingStudy:
    """Steps over numbers of ranks, measured and predicted.

    Attributes:
        rows: one for each step; ``MEANINGS`` describes the columns.
        errors: one for each measured step and part (``compute``, ``communicate``, ``transfer``, ``sum``, and ``wall``,
            the sum against the wall time of the step): ``name``, ``ranks``, ``fitted``, ``part``, ``measured_s``,
            ``predicted_s``, ``error`` (predicted over measured, less 1).
        model: the rates.
        described: what was done, in words.
        weak: whether the graph grows with the ranks.
    """

    rows: tuple[dict[str, Any], ...]
    errors: tuple[dict[str, Any], ...]
    model: ScalingModel
    described: str
    weak: bool

    def error(self, part: str = "sum", *, fitted: bool = False) -> tuple[float, float] | None:
        """Median and largest absolute error of a part over steps that were fitted, or held out; None without any."""
        found = [abs(row["error"]) for row in self.errors if row["part"] == part and row["fitted"] is fitted]
        return (median(found), max(found)) if found else None

    @property
    def figure(self) -> Figure:
        """Phases of a step over ranks, speed-up beside the paper's, and predicted against measured."""
        name = str(self.rows[0]["model"])
        return scaling_figure(
            self.rows, self.errors, weak=self.weak, paper=PAPER[self.weak].get(name), title=self.described
        )

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def __repr__(self) -> str:
        lines = [
            self.described,
            f"{'ranks':>6} {'source':10}{'compute':>10}{'communicate':>13}{'transfer':>10}{'step':>10}{'speed-up':>10}",
        ]
        for row in self.rows:
            times = [format_seconds(row[f"{part}_s"]) if row[f"{part}_s"] is not None else "" for part in PARTS]
            lines.append(
                f"{row['ranks']:>6} {row['source']:10}{times[0]:>10}{times[1]:>13}{times[2]:>10}"
                f"{format_seconds(row['step_s']):>10}" + (f"{row['speedup']:>10.2f}" if row["speedup"] else "")
            )
        return "\n".join([*lines, scaling_words(self.rows, self.errors, weak=self.weak)])

    def _repr_html_(self) -> str:
        """The table with a description of its columns; ``lab.plot(study.figure)`` draws it."""
        said = "".join(f"<li><b>{name}</b>: {words}</li>" for name, words in MEANINGS.items())
        table = self.to_pandas().to_html(na_rep="", index=False, float_format=lambda value: f"{value:.4g}")
        words = scaling_words(self.rows, self.errors, weak=self.weak)
        return f"<p>{self.described}</p>{table}<p>{words}</p><ul style='font-size:90%'>{said}</ul>"


def predict_scaling(
    runs: Sequence[StoredRun | str | Path],
    ranks: Sequence[int] = RANKS,
    *,
    held_out: Sequence[StoredRun | str | Path] = (),
    weak: bool = False,
    size: float = 1.0,
    graph: DynamicGraph | None = None,
    network: NetworkCosts | None = None,
    cores: int | None = None,
) -> ScalingStudy:
    """Extrapolate runs on few ranks to many, separately for compute, communicate and transfer.

    Rates are fitted to the runs (see :mod:`dtdg_lab.systems.snapshot_blocks.cost_model`), then applied to the exact
    rows,
    edges
    and bytes of each number of ranks. Runs of several sizes and of one and two ranks are needed to separate the rates.

    Args:
        runs: of system ``esdg`` and one model, of one rank and of more, recorded with ``overlap=False``; predictions
            are for the first one's settings and graph.
        ranks: numbers of ranks to predict.
        held_out: runs that are predicted and compared, not fitted.
        weak: whether the graph grows with the ranks, nodes and edges alike; otherwise it is constant.
        size: scale of the predicted graph's nodes and edges.
        graph: the data of all runs, unless their configs load it.
        network: topology; by default the paper's 8 ranks per node, with the measured speed within a node.
        cores: of the machine they ran on; by default those of this process.

    Raises:
        ConfigError: no run is given, or runs are of other systems, models or precisions, or overlap exchanges.
        PlanError: a phase needed for the prediction was never measured, or the ranks do not fit the graph.

    References: ESDG section 6.3, Figures 5 (strong scaling) and 7 (weak).
    """
    opened = [_opened(run) for run in runs]
    if not opened or not ranks:
        raise ConfigError(f"{len(opened)} runs and ranks={tuple(ranks)}: give at least one of each.")
    found = [measured_step(run, graph, cores=cores) for run in (*opened, *map(_opened, held_out))]
    (_, settings, changes), *others = found
    for run, (_, other, _) in zip([*opened[1:], *map(_opened, held_out)], others, strict=True):
        differing = [name for name in _ONE if getattr(other, name) != getattr(settings, name)]
        if differing:
            raise ConfigError(
                f"run {run.id} differs from the first in {', '.join(differing)}: rates apply to one model of one size."
            )
    steps = [step for step, _, _ in found]
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


_ONE = ("model", "features", "hidden", "layers", "itemsize", "options")


def continued(
    fitted: Sequence[MeasuredStep],
    held_out: Sequence[MeasuredStep],
    settings: StepSettings,
    changes: SequenceChanges,
    *,
    ranks: Sequence[int] = RANKS,
    weak: bool = False,
    network: NetworkCosts | None = None,
    described: str = "",
) -> ScalingStudy:
    """Fit steps, predict held-out steps and those of other numbers of ranks.

    Args:
        fitted: steps to which rates are fitted.
        held_out: steps that are predicted and compared.
        settings: of the predicted steps.
        changes: of the graph on one rank.
        ranks: numbers of ranks.
        weak: whether the graph grows with the ranks.
        network: their topology.
        described: description of the study.

    Raises:
        PlanError: nothing was measured, a phase is missing, or the ranks do not fit the graph.
    """
    model = fit_scaling(fitted)
    alone = settings.work(changes, 1)
    base_s = alone.edges / model.predict(alone, network).total_s
    measured = [(step, step in fitted) for step in (*fitted, *held_out)]
    rows = []
    for count in dict.fromkeys(ranks):
        work = settings.work(scaled(changes, count), count) if weak else settings.work(changes, count)
        rows.append(_row(settings, work, model.predict(work, network), "predicted", base_s, fitted=False))
        for step, known in measured:
            if _same(step.work, work):
                source = "own time" if step.communicate_s is None else "measured"
                rows.append(_row(settings, step.work, step.time, source, None, fitted=known))
    one = next((row for row in rows if row["source"] == "measured" and row["ranks"] == 1), None)
    for row in rows:
        if one is not None and row["source"] == "measured":
            row["speedup"] = (row["edges"] / row["step_s"]) / (one["edges"] / one["step_s"])
    errors = [error for step, known in measured for error in _errors(step, model, network, fitted=known)]
    return ScalingStudy(tuple(rows), tuple(errors), model, described, weak)


def _opened(run: Any) -> StoredRun:
    if isinstance(run, str | Path):
        return open_run(run)
    if not isinstance(run, StoredRun):
        raise ConfigError(f"predict_scaling() got {shortened(run)} among its runs: give runs or their folders.")
    return run


def _same(step: StepWork, work: StepWork) -> bool:
    """Whether a measured step has the configuration of the prediction."""
    near = abs(step.edges - work.edges) <= SAME_SIZE * work.edges
    return step.ranks == work.ranks and step.nodes == work.nodes and near


def _row(
    settings: StepSettings, work: StepWork, time: PredictedStepTime, source: str, base_s: float | None, *, fitted: bool
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
    """Prediction error of each measured phase; ``sum`` leaves out exchanges if they are unknown."""
    predicted, measured = model.predict(step.work, network), step.time
    known = [part for part in PARTS if getattr(measured, f"{part}_s") > 0]
    pairs = [(part, getattr(measured, f"{part}_s"), getattr(predicted, f"{part}_s")) for part in known]
    pairs.append(("sum", measured.total_s, sum(value for _, _, value in pairs)))
    if step.step_s is not None:
        pairs.append(("wall", step.step_s, predicted.total_s))
    return [
        {
            "name": step.name,
            "ranks": step.ranks,
            "fitted": fitted,
            "part": part,
            "measured_s": truth,
            "predicted_s": value,
            "error": value / truth - 1,
        }
        for part, truth, value in pairs
    ]
