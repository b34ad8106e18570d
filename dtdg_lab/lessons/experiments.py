"""Experiments of lessons: what follows a live change, what a batch reads, and whether its loss is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from optuna.pruners import BasePruner

from dtdg_lab.cluster.stopping_rule import Evaluated
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.records.events import SettingsChanged
from dtdg_lab.records.position import Progress
from dtdg_lab.studies.search import pruning_judge
from dtdg_lab.studies.trials import PRUNED, Trial


async def change(run: Any, *, steps: int = 0, epochs: int = 0, **settings: Any) -> None:
    """Change settings of a run, wait until its ranks have applied them, and then for some more steps or epochs.

    Raises:
        ConfigError: the run refuses the change.
    """
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
