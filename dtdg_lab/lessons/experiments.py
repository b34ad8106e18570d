"""Experiments of lessons: several trainings, what follows a live change, what a batch or a window reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optuna.pruners import BasePruner

from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.stopping_rule import Evaluated
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.user_data import from_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.records.events import SettingsChanged
from dtdg_lab.records.position import Progress
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.studies.search import pruning_judge
from dtdg_lab.studies.trials import PRUNED, Trial
from dtdg_lab.systems.decayed_windows.window import decayed_counts, kept_share

FAST = "DTDG_LAB_FAST"  # environment variable set by tests: every experiment is short
FAST_STEPS = 30


def train_or_follow(session: Session, config: RunConfig) -> Any:
    """Return the session's run if one is under way, otherwise begin one: a cell may be run twice."""
    run = session.current
    return run if run is not None and run.status not in ENDED else session.train(config)


def in_milliseconds(name: str) -> str:
    """Return the heading of a column of seconds whose numbers are milliseconds."""
    return name.replace("_s", " (ms)")


def shorter(value: Any, fast: Any) -> Any:
    """Return the first value, or the second where tests ask for short experiments."""
    return fast if FAST in os.environ else value


def train_all(
    session: Session, configs: Mapping[str, RunConfig], *, epochs: int, seeds: Sequence[int] = (1, 2, 3)
) -> dict[str, list[float]]:
    """Train each config once a seed, and return name -> its test loss for each seed.

    Args:
        session: trains them one after the other.
        configs: name -> settings.
        epochs: of each training.
        seeds: of parameters and batches.
    """
    if FAST in os.environ:
        seeds = seeds[:1]
    losses: dict[str, list[float]] = {name: [] for name in configs}
    for name, config in configs.items():
        for seed in seeds:
            run = session.train(config.replace(epochs=epochs, seed=seed, evaluate_every=epochs)).wait()
            losses[name].append(float(run.summary["test_loss"]))
    return losses


def train_each(session: Session, configs: Mapping[str, RunConfig]) -> dict[str, StoredRun]:
    """Train each config, and return name -> its run.

    Args:
        session: trains them one after the other.
        configs: name -> settings.
    """
    return {name: open_run(session.train(config).wait().path) for name, config in configs.items()}


def graph_of(*snapshots: str) -> DynamicGraph:
    """Return a graph whose snapshots are given by their edges, such as ``"01 12"`` for 0 to 1 and 1 to 2.

    The last snapshot is that of the labels only.
    """
    edges = [(int(edge[0]), int(edge[1]), time) for time, text in enumerate(snapshots) for edge in text.split()]
    source, target, when = zip(*edges, strict=True)
    return from_edges(source, target, when, cut=len(snapshots), name=f"{len(snapshots)} snapshots")


def largest(losses: Mapping[str, Sequence[float]]) -> str:
    """Return the name with the largest mean."""
    return max(losses, key=lambda name: sum(losses[name]) / len(losses[name]))


def errors_of_means(graph: DynamicGraph, lengths: Sequence[int], *, protocol: str = "warm") -> dict[int, float]:
    """Return, for each length w, the mean squared error of predicting the mean of the last w snapshots.

    It is measured on the test split, like the errors of models.

    Args:
        graph: a graph with targets, (T, N).
        lengths: numbers of snapshots, at most those before the test split.
        protocol: protocol of the split.
    """
    test = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[protocol]).test
    errors = {}
    for length in lengths:
        means = [graph.persistence[t - length + 1 : t + 1].mean(axis=0) for t in test]
        squares = [((mean - graph.targets[t]) ** 2).mean() for t, mean in zip(test, means, strict=True)]
        errors[length] = float(sum(squares) / len(squares))
    return errors


def ways_to_cut(config: RunConfig) -> dict[str, RunConfig]:
    """Return name -> settings of four ways to cut history, on one rank, from those of a decayed window."""
    alone = config.replace(ranks=1)
    return {
        "full history": alone.replace(system="full-history"),
        "decayed": alone,
        "recent only": alone.replace(system="recent-only"),
        "two from zero": alone.replace(system="psg", group_window=alone["full_snapshots"]),
    }


def rows_kept(config: RunConfig) -> float:
    """Return the share of the rows of a whole window that a decayed one keeps, by its formula."""
    decayed = config["window"] - config["full_snapshots"]
    counts = decayed_counts(config["decay"], chunks=config["chunks"], alpha=config["alpha"], decayed=decayed)
    return kept_share(counts, chunks=config["chunks"], full=config["full_snapshots"])


async def change(run: Any, *, steps: int = 0, epochs: int = 0, **settings: Any) -> None:
    """Change settings of a run, wait until its ranks have applied them, and then for some more steps or epochs.

    Raises:
        ConfigError: the run refuses the change.
    """
    steps = min(steps, FAST_STEPS) if FAST in os.environ else steps
    count = _count_changes(run)
    run.set(**settings)
    while _count_changes(run) == count:  # until all ranks have applied the change
        if run.reason:
            raise ConfigError(f"the run refuses {settings}: {run.reason}")
        await run.wait_for_step(_progress(run).step + 1)
    applied = _progress(run)
    if steps:
        await run.wait_for_step(applied.step + steps)
    while (progress := _progress(run)).epoch < applied.epoch + epochs:
        await run.wait_for_step(progress.step + 1)


async def first_reused(run: Any, *, steps: int) -> None:
    """Wait until a run takes a batch from its reservoir, and then for some more steps."""
    while True:
        with run.lock:
            sources = set(run.live.rows("targets")["source"].tolist())
        if "reservoir" in sources:
            break
        await run.wait_for_step(_progress(run).step + 20)
    await run.wait_for_step(_progress(run).step + (min(steps, FAST_STEPS) if FAST in os.environ else steps))


def step_ms(run: StoredRun) -> dict[str, float]:
    """Return the median milliseconds of a step of each rank."""
    seconds = run.table("steps").groupby("rank")["time_s"].median()
    return {f"rank {rank}": 1e3 * float(value) for rank, value in seconds.items()}


def _count_changes(run: Any) -> int:
    with run.lock:
        return len(run.live.events(SettingsChanged.kind))


def _progress(run: Any) -> Progress:
    with run.lock:
        progress: Progress = run.live.progress
    return progress


def _first_batch(config: RunConfig, graph: DynamicGraph) -> tuple[Any, Any]:
    """Return the trained parts of a run in this process, and its first hybrid batch."""
    from dtdg_lab.distributed.group import SoloGroup
    from dtdg_lab.systems.hybrid_batches.part_batches import Draw
    from dtdg_lab.training.build import build

    built = build(config.replace(kernel="torch"), graph, SoloGroup())
    return built, built.strategy.parts[0].again(Draw("new", action=0, index=0))  # type: ignore[attr-defined]


def rows_read(config: RunConfig, graph: DynamicGraph) -> float:
    """Return the share of rows in its own snapshots that a run's first hybrid batch reads."""
    from dtdg_lab.kernels.torch_defaults import torch_defaults

    with torch_defaults():
        _, batch = _first_batch(config, graph)
    return float(batch.rows / (len(batch.batch.snapshots) * graph.num_nodes))


@dataclass(frozen=True, slots=True)
class Exactness:
    """A batch's loss next to the loss of the same targets on the whole graph.

    Attributes:
        targets: number of nodes with a loss.
        snapshots: the batch's snapshots.
        of_batch: the batch's loss.
        on_the_whole: loss of the same targets, computed with all nodes of these snapshots.
        gradient_off: largest relative difference between gradients of a parameter.
    """

    targets: int
    snapshots: range
    of_batch: float
    on_the_whole: float
    gradient_off: float

    @property
    def off(self) -> float:
        """The relative difference of the losses."""
        return abs(self.of_batch / self.on_the_whole - 1)


def exactness(config: RunConfig, graph: DynamicGraph) -> Exactness:
    """Compute the loss of a run's first hybrid batch in 64 bits, both on its own rows and on the whole graph."""
    from dtdg_lab.kernels.torch_defaults import torch_defaults

    with torch_defaults():
        return _exactness(config, graph)


def _exactness(config: RunConfig, graph: DynamicGraph) -> Exactness:
    import torch

    from dtdg_lab.systems.hybrid_batches.strategy import TargetRun, add_gradients

    built, batch = _first_batch(config.replace(dtype="float64"), graph)
    model, snapshots = built.model, batch.batch.snapshots
    of_batch = TargetRun(model, batch.run.sequence, built.task, snapshots, "all")
    loss = float(add_gradients(of_batch))
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    state, whole_loss = model.initial_state(graph.num_nodes), torch.zeros((), dtype=torch.float64)
    for t in snapshots:
        space = built.sequence.view(t)  # of all nodes
        hidden, state = model.snapshot(space, space.inputs, state)
        readout = model.readout(hidden)[batch.run.sequence.vertices]  # of the targets only
        whole_loss = whole_loss + of_batch.loss(readout.unsqueeze(0), range(t, t + 1), slice(None))
    whole_loss.backward()
    pairs = zip(gradients, model.parameters(), strict=True)
    off = max(float((one - other.grad).norm() / other.grad.norm()) for one, other in pairs)
    return Exactness(of_batch.own, snapshots, loss, float(whole_loss.detach()), off)


def pruned_epochs(trials: Sequence[Trial], pruner: BasePruner) -> dict[str, int]:
    """Return the number of epochs that each trial would run with a pruner, given the complete curves.

    Args:
        trials: finished trials of one seed, in the order in which they were trained.
        pruner: applied after every epoch except the last.
    """
    earlier: list[Trial] = []
    for trial in trials:
        judge = pruning_judge(pruner, earlier)
        verdicts = [judge((Evaluated(epoch, epoch, 0.0, loss),)) for epoch, loss in trial.curve[:-1]]
        count = next((number for number, verdict in enumerate(verdicts, start=1) if verdict), None)
        earlier.append(trial if count is None else replace(trial, status=PRUNED, curve=trial.curve[:count]))
    return {trial.key: trial.curve[-1][0] for trial in earlier}
