"""Studies shipped with the lab, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dtdg_lab.cluster.study_decay import ALPHAS, FULL_SNAPSHOTS, SEEDS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.decay_study import MEANINGS, DecayStudy
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FAILED, FINISHED, Trial
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.loss import NEAR, loss_points
from dtdg_lab.visualization.scaling import Efficiency, efficiency_figure, efficiency_words
from dtdg_lab.visualization.study import SpreadBar, order_words, spread_bars

# A shipped study: its question, its runs, and their analysis.


Panel = tuple[Figure, str]


@dataclass(frozen=True, slots=True)
class Shipped:
    """A study by name.

    Attributes:
        name: in lower case.
        question: that it answers.
        source: paper and figure or table, or ``ours``.
        sweep: ``sweep(base, quick)``: its runs. ``base`` replaces the study's own data, model and sizes unless it is
            None; ``quick`` asks for a sweep of about a minute. The sweep must have ``shipped=name``.
        analysis: from the study, finished or not, to figures by name, each with a caption.
    """

    name: str
    question: str
    source: str
    sweep: Callable[[RunConfig | None, bool], Sweep]
    analysis: Callable[[Study], dict[str, Panel]]


# Time to a loss close to the best of all runs, which papers call convergence time.


Points = tuple[tuple[float, float], ...]  # (seconds of the run, validation loss)
MOST_READ = 1000
_READ: dict[Path, Points] = {}


def seconds_to_near_best(study: Study, axis: str, paper: Mapping[str, float]) -> list[SpreadBar]:
    """A bar for each value of the one axis: wall seconds to a validation loss 5 % above the lowest of its seed.

    Args:
        study: finished or not.
        axis: that is studied.
        paper: value -> seconds that the paper reports.
    """
    done = [trial for trial in study.trials if trial.status == FINISHED]
    points = {trial.key: _points(study, trial) for trial in done}
    least: dict[int, float] = {}  # by seed: generated data depend on the seed
    for trial in done:
        for _, loss in points[trial.key]:
            least[trial.seed] = min(loss, least.get(trial.seed, loss))
    bars = []
    for value in study.sweep.axes[0].values:
        seconds = []
        for trial in (each for each in done if each.settings[axis] == value):
            aim = least.get(trial.seed, 0.0) * (1 + NEAR)
            seconds.append(next((at for at, loss in points[trial.key] if loss <= aim), None))
        known = tuple(each for each in seconds if each is not None)
        bars.append(SpreadBar(str(value), known, len(seconds) - len(known), paper.get(str(value))))
    return bars


def _points(study: Study, trial: Trial) -> Points:
    """Seconds and losses of a finished run; cached, because a study is redrawn with every trial."""
    path = None if trial.run is None else trial.run.resolve()
    if path is None or path not in _READ:
        found = tuple(loss_points(study.open(trial).live))
        if path is None:
            return found
        if len(_READ) >= MOST_READ:
            _READ.clear()
        _READ[path] = found
    return _READ[path]


def near_best_panel(study: Study, axis: str, *, paper: Mapping[str, float], title: str) -> Panel:
    """The bars and their ranking, beside the values that the paper reports for its own data and machines."""
    bars = seconds_to_near_best(study, axis, paper)
    figure = spread_bars(bars, title, f"seconds to a validation loss {NEAR:.0%} above the lowest of the seed")
    reported = ", ".join(f"{bar.label} {format_seconds(bar.paper)}" for bar in bars if bar.paper is not None)
    said = f" The paper reports, on other data and machines: {reported}." if reported else ""
    return figure, f"{order_words(bars, 'time')}{said}"


# The smallest data sets of the short forms of shipped studies.


QUICK: dict[str, Any] = {
    "dataset": "growing",
    "generated_nodes": 200,
    "generated_edges": 800,
    "generated_snapshots": 30,
    "hidden": 8,
    "threads": 1,
}


# Table 8 of DynaHB: fixed hybrid-batch sizes against the DQN controller.


TABLE8_NAME, TABLE8_AXIS = "dynahb-table8", "size"
TABLE8_PAPER = {"1 %": 2.47, "5 %": 2.49, "10 %": 2.51, "20 %": 2.72, "DQN": 1.84}  # seconds, Slashdot


def hybrid_base(base: RunConfig | None, quick: bool) -> RunConfig:
    """Settings of a study of hybrid batches.

    Raises:
        ConfigError: the base's system has no batch-size controller.
    """
    if base is not None:
        if "adjuster" not in base.flat:
            raise ConfigError(f"system={base.system!r} has no hybrid batches: study config.replace(system='dynahb').")
        return base
    if quick:
        return RunConfig(system="dynahb", model="tgcn", epochs=8, epoch_batches=10, reservoir=False, **QUICK)
    return RunConfig(system="dynahb", model="tgcn", epochs=60)


def table8_sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """Four fixed sizes, equal for nodes and snapshots, and the DQN.

    Differs from the paper: it names its columns fanouts, but its text calls them hybrid-batch sizes; we use sizes.
    """
    sizes = (0.05, 0.2) if quick else (0.01, 0.05, 0.1, 0.2)
    cases: dict[str, dict[str, Any]] = {
        f"{100 * size:g} %": {"adjuster": "none", "batch_vertices": size, "batch_snapshots": size} for size in sizes
    }
    cases["DQN"] = {"adjuster": "dqn"}
    return Sweep(hybrid_base(base, quick), {TABLE8_AXIS: cases}, (0, 1) if quick else (0, 1, 2), shipped=TABLE8_NAME)


def table8_analysis(study: Study) -> dict[str, Panel]:
    """Seconds to a loss close to the best, by size."""
    return {
        TABLE8_NAME: near_best_panel(
            study, TABLE8_AXIS, paper=TABLE8_PAPER, title="Hybrid batch sizes, fixed and chosen by the DQN"
        )
    }


TABLE8 = Shipped(
    name=TABLE8_NAME,
    sweep=table8_sweep,
    analysis=table8_analysis,
    question="Which hybrid batch size converges fastest, and does a DQN controller beat every fixed size?",
    source="DynaHB section 7.5, Table 8 (its row Slashdot is quoted)",
)


# N_S x N_V: loss, time and memory of each shape of hybrid batches.


BATCH_SIZES_NAME, SNAPSHOTS, VERTICES = "batch-sizes", "batch_snapshots", "batch_vertices"


def batch_sizes_sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """The nine actions of DynaHB's DQN as fixed sizes; a two-by-two grid in the short form."""
    config = hybrid_base(base, quick).replace(adjuster="none")
    snapshots, vertices = ((0.1, 0.3), (0.05, 0.2)) if quick else ((0.1, 0.2, 0.3), (0.01, 0.05, 0.1))
    over = {SNAPSHOTS: snapshots, VERTICES: vertices}
    return Sweep(config, over, (0, 1) if quick else (0, 1, 2), shipped=BATCH_SIZES_NAME)


def batch_sizes_analysis(study: Study) -> dict[str, Panel]:
    """Maps of the validation loss, the seconds of an epoch, and the peak of tensor memory."""
    return {
        BATCH_SIZES_NAME: study.map_panel(SNAPSHOTS, VERTICES),
        "seconds": study.map_panel(SNAPSHOTS, VERTICES, "epoch_time_s"),
        "memory": study.map_panel(SNAPSHOTS, VERTICES, "peak_bytes"),
    }


BATCH_SIZES = Shipped(
    name=BATCH_SIZES_NAME,
    sweep=batch_sizes_sweep,
    analysis=batch_sizes_analysis,
    question="How many snapshots and how many nodes does a batch need to match the loss of a larger one?",
    source="DynaHB section 5.1 (its actions), as a map",
)


# Cache window against congestion: step and epoch costs for each W on each network.


CACHE_WINDOW_NAME, W, NETWORK = "cache-window", "cache_window", "network"
NETWORKS = {
    "clean": {"links": ""},
    "20 ms late": {"links": "0 delay=20"},
    "8 Mbit/s": {"links": "0 rate=8"},
}  # on the links of partition 0, which the others wait for


def cache_window_sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """W x network x seeds; each network applies from the first step on.

    Raises:
        ConfigError: the base's system has no feature cache with a window.
    """
    small = {**QUICK, "generated_nodes": 400, "generated_edges": 2400, "epochs": 3}
    config = base or RunConfig(
        system="fixed-window",
        model="tgcn",
        parts=2,
        batch_size=16,
        fanouts="5",
        **({**small, "cache_rows": 300} if quick else {"epochs": 8}),
    )
    if W not in config.flat:
        raise ConfigError(f"system={config.system!r} has no cache window: study config.replace(system='fixed-window').")
    windows = (1, 16) if quick else (1, 4, 16, 64)
    networks = {name: NETWORKS[name] for name in (("clean", "20 ms late") if quick else NETWORKS)}
    seeds = (0,) if quick else (0, 1, 2)
    return Sweep(config, {W: windows, NETWORK: networks}, seeds, objective="epoch_time_s", shipped=CACHE_WINDOW_NAME)


def cache_window_analysis(study: Study) -> dict[str, Panel]:
    """Maps of epoch time, epoch energy, and cache hit rate."""
    return {
        CACHE_WINDOW_NAME: study.map_panel(W, NETWORK),
        "joules": study.map_panel(W, NETWORK, "epoch_j"),
        "hits": study.map_panel(W, NETWORK, "hit_rate"),
    }


CACHE_WINDOW = Shipped(
    name=CACHE_WINDOW_NAME,
    sweep=cache_window_sweep,
    analysis=cache_window_analysis,
    question="How long should a feature cache be kept, and does that depend on the network?",
    source="GreenDyGNN equation 1, measured (the paper's windows, our networks)",
)


# Table 10 of DynaHB: influence of the DQN's settings.


TABLE10_NAME, TABLE10_AXIS = "dynahb-table10", "strategy"
TABLE10_PAPER = {
    "#1": 4.57,
    "#2": 4.52,
    "#3": 4.99,
    "#4": 4.46,
    "#5": 4.49,
    "#6": 4.18,
    "paper's": 3.21,
    "random": 5.82,
}
_AGENTS = {  # epsilon's decay and end, learning rate
    "#1": (0.999, 0.1, 0.005),
    "#2": (0.75, 0.1, 0.005),
    "#3": (0.95, 0.0, 0.005),
    "#4": (0.95, 0.5, 0.005),
    "#5": (0.95, 0.1, 0.1),
    "#6": (0.95, 0.1, 0.001),
    "paper's": (0.95, 0.1, 0.005),
}
_QUICK = ("#3", "paper's")


def table10_sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """Seven agents and a random policy."""
    cases: dict[str, dict[str, Any]] = {
        name: {"adjuster": "dqn", "epsilon_decay": decay, "epsilon_min": end, "agent_rate": rate}
        for name, (decay, end, rate) in _AGENTS.items()
        if not quick or name in _QUICK
    }
    cases["random"] = {"adjuster": "random"}
    return Sweep(hybrid_base(base, quick), {TABLE10_AXIS: cases}, (0, 1) if quick else (0, 1, 2), shipped=TABLE10_NAME)


def table10_analysis(study: Study) -> dict[str, Panel]:
    """Seconds to a loss close to the best, by strategy."""
    return {
        TABLE10_NAME: near_best_panel(
            study, TABLE10_AXIS, paper=TABLE10_PAPER, title="Settings of the DQN batch-size controller"
        )
    }


TABLE10 = Shipped(
    name=TABLE10_NAME,
    sweep=table10_sweep,
    analysis=table10_analysis,
    question="How much do the settings of the DQN matter, and does it beat a random policy?",
    source="DynaHB section 7.5, Table 10",
)


# Figure 8 of FlareDTDG: loss, memory and time over the full snapshots K and alpha.


FIGURE8_NAME = "figure8"
K, ALPHA = "full_snapshots", "alpha"
_QUICK_K, _QUICK_ALPHAS, _QUICK_SEEDS = (1, 2, 4), (0.1, 0.6), (0, 1)


def figure8_sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """K x alpha x seeds, as in ``lab.studies.decay``; with K = window, alpha has no effect and one run serves.

    Raises:
        ConfigError: the base's system has no decay, or it tunes K and alpha itself.
    """
    sizes = {"generated_nodes": 60, "generated_edges": 240, "generated_snapshots": 30, "hidden": 8, "epochs": 2}
    small = {"dataset": "growing", "window": 4, "chunks": 8, **sizes}
    config = base or RunConfig(system="flaredtdg", model="tgcn", **(small if quick else {"epochs": 10}))
    if ALPHA not in config.flat:
        raise ConfigError(f"system={config.system!r} has no decay: study config.replace(system='flaredtdg').")
    if config["tune"]:
        raise ConfigError("tune=True changes K and alpha while a cell trains: study config.replace(tune=False).")
    window = config["window"]
    full = [k for k in (_QUICK_K if quick else FULL_SNAPSHOTS) if k <= window]
    alphas = _QUICK_ALPHAS if quick else ALPHAS
    skip = [{K: window, ALPHA: alphas[1:]}] if window in full else []
    seeds = _QUICK_SEEDS if quick else SEEDS
    return Sweep(config, {K: full, ALPHA: alphas}, seeds, skip=skip, shipped=FIGURE8_NAME)


def decay_study(study: Study) -> DecayStudy:
    """The study as the result type of ``lab.studies.decay``."""
    values = {axis.name: axis.values for axis in study.sweep.axes}
    config, seeds = study.sweep.base, study.sweep.all_seeds
    rows = []
    for seed in seeds:
        for full in values[K]:
            of_line = [trial for trial in study.trials if trial.seed == seed and trial.settings[K] == full]
            for alpha in values[ALPHA]:
                found = [trial for trial in of_line if trial.settings[ALPHA] == alpha]
                if full == config["window"] and not found:
                    found = of_line  # alpha has no effect
                rows += [_row(trial, full, alpha) for trial in found if trial.status in (FINISHED, FAILED)]
    shape = f"{config['window']} snapshots, {config['decay']} decay"
    described = f"{config.model} on {config.dataset}, {config.system}: windows of {shape}"
    return DecayStudy(tuple(rows), tuple(values[K]), tuple(values[ALPHA]), seeds, config["task"], described)


def _row(trial: Trial, full: int, alpha: float) -> dict[str, Any]:
    known: Mapping[str, Any] = {**trial.values, **trial.provenance} if trial.status == FINISHED else {}
    named = {
        K: full,
        ALPHA: alpha,
        "seed": trial.seed,
        "run": "" if trial.run is None else str(trial.run),
        "reason": trial.reason if trial.status == FAILED else "",
    }
    return {name: {**known, **named}.get(name) for name in MEANINGS}


def figure8_analysis(study: Study) -> dict[str, Panel]:
    """The three maps, and the best cell."""
    found = decay_study(study)
    return {FIGURE8_NAME: (found.figure(), _words(found))}


def _words(found: DecayStudy) -> str:
    best, rows = found.best, found.settings
    if best is None:
        return "No cell has a validation loss yet."
    heaviest = max((row["peak_bytes"] or 0 for row in rows), default=0)
    share = "" if not heaviest or best["peak_bytes"] is None else f", at {best['peak_bytes'] / heaviest:.0%} of the "
    memory = f"{share}most memory of a cell" if share else ""
    spread = "" if best["validation_spread"] is None else f" ± {best['validation_spread']:.2g}"
    return (
        f"Lowest validation loss {best['validation_loss']:.4g}{spread} at K = {best[K]}, alpha "
        f"{best[ALPHA]:g}{memory}. "
        "Look for cells whose loss is not significantly worse and which cost less."
    )


FIGURE8 = Shipped(
    name=FIGURE8_NAME,
    sweep=figure8_sweep,
    analysis=figure8_analysis,
    question="How few full snapshots and how fast a decay preserve the loss, and what do they save?",
    source="FlareDTDG section 4.6, Figure 8",
)


# Partitioners against imbalance: load balance of the ranks, and its communication cost.


PARTITIONERS_NAME, PARTITIONER, MODEL = "partitioners", "partitioner", "model"
PARTITIONERS = ("hash", "round_robin", "metis", "load_aware", "hypergraph")


def partitioners_sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """Partitioner x model x seeds on two ranks; needs a session of as many engines.

    Raises:
        ConfigError: the base's system does not partition nodes.
    """
    small = {**QUICK, "epochs": 6}
    config = base or RunConfig(system="adgnn-t", ranks=2, **(small if quick else {"epochs": 20, "threads": 1}))
    if PARTITIONER not in config.flat:
        raise ConfigError(f"system={config.system!r} does not partition nodes: study config.replace(system='adgnn-t').")
    partitioners = ("hash", "metis") if quick else PARTITIONERS
    models = ("tgcn",) if quick else ("tgcn", "mpnn-lstm")
    over = {PARTITIONER: partitioners, MODEL: models}
    return Sweep(config, over, (0, 1) if quick else (0, 1, 2), objective="imbalance", shipped=PARTITIONERS_NAME)


def partitioners_analysis(study: Study) -> dict[str, Panel]:
    """Maps of imbalance, bytes sent, and epoch time."""
    return {
        PARTITIONERS_NAME: study.map_panel(PARTITIONER, MODEL),
        "bytes": study.map_panel(PARTITIONER, MODEL, "bytes_sent"),
        "seconds": study.map_panel(PARTITIONER, MODEL, "epoch_time_s"),
    }


PARTITIONING = Shipped(
    name=PARTITIONERS_NAME,
    sweep=partitioners_sweep,
    analysis=partitioners_analysis,
    question="Which partitioner balances the ranks' work, and how much communication does it cause?",
    source="DynaHB section 7.4; ESDG section 6.4 (hypergraph)",
)


# Scaling of systems: epoch time and parallel efficiency over numbers of ranks.


SCALING_NAME, RANKS, SYSTEM = "scaling", "ranks", "system"
SYSTEMS = ("psg", "dygnex-g", "esdg", "pygt-dist", "adgnn-t", "dynahb", "flaredtdg")


def scaling_sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """System x ranks x seeds, one partition for each rank; needs a session of two engines or more for all of it."""
    config = base or RunConfig(model="tgcn", **({**QUICK, "epochs": 4} if quick else {"epochs": 20, "threads": 1}))
    systems = ("psg", "esdg") if quick else SYSTEMS
    ranks = (1, 2) if quick or base is None else tuple(sorted({1, 2, base.ranks}))
    over: dict[str, Any] = {RANKS: ranks, SYSTEM: systems}
    return Sweep(
        config.replace(ranks=1, parts=1),
        over,
        (0,) if quick else (0, 1, 2),
        skip="refused",
        objective="epoch_time_s",
        shipped=SCALING_NAME,
    )


def efficiencies(study: Study) -> list[Efficiency]:
    """For each system, epoch seconds by ranks; medians over seeds."""
    found: dict[str, dict[int, float]] = {}
    for each in study.combinations:
        if each.middle is not None:
            found.setdefault(str(each.settings[SYSTEM]), {})[int(each.settings[RANKS])] = each.middle
    return [Efficiency(system, seconds) for system, seconds in found.items()]


def scaling_analysis(study: Study) -> dict[str, Panel]:
    """Efficiency over ranks; maps of seconds and of imbalance."""
    known = efficiencies(study)
    return {
        SCALING_NAME: (efficiency_figure(known), efficiency_words(known)),
        "seconds": study.map_panel(RANKS, SYSTEM),
        "imbalance": study.map_panel(RANKS, SYSTEM, "imbalance"),
    }


SCALING = Shipped(
    name=SCALING_NAME,
    sweep=scaling_sweep,
    analysis=scaling_analysis,
    question="How much does each system gain from more ranks, and what limits it?",
    source="ours; DyGNeX Figure 5 and ESDG Figure 5 on their machines",
)


# Shipped studies by name.


__all__ = ["SHIPPED", "Panel", "Shipped", "shipped"]

_ALL = (FIGURE8, TABLE8, TABLE10, BATCH_SIZES, CACHE_WINDOW, SCALING, PARTITIONING)
SHIPPED: Mapping[str, Shipped] = MappingProxyType({each.name: each for each in _ALL})


def shipped(name: str) -> Shipped:
    """The study called ``name``.

    Raises:
        UnknownNameError: none is.
    """
    if name not in SHIPPED:
        raise UnknownNameError("shipped study", name, SHIPPED)
    return SHIPPED[name]
