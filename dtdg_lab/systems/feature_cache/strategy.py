"""GreenDyGNN: mini-batches whose remote features are fetched through a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.distributed.gradients import FlatGradients
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.backprop.reference import bring
from dtdg_lab.engine.minibatch_blocks import TargetBlocks
from dtdg_lab.engine.sampled_blocks import SampledBatch
from dtdg_lab.engine.strategy import BuildContext, Step, StepMarks, StepOutcome, StepResult, Strategy
from dtdg_lab.engine.target_batches import TargetRun, TargetSequence, add_gradients
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.network.emulated_network import KernelLinks, Slowed
from dtdg_lab.systems.feature_cache.controller import FeatureController, MiniBatches, neighbour_sampler, remote_part
from dtdg_lab.systems.feature_cache.rpc import agree_token
from dtdg_lab.systems.feature_cache.service import FeatureService, RemotePart, host_towards
from dtdg_lab.systems.feature_cache.store import check_cache_memory
from dtdg_lab.tasks.base import Task
from dtdg_lab.training.collective import together
from dtdg_lab.training.partition import plain_partition_event

MEMORIES = ("per_vertex", "weights", "none")


class RemoteFeatureStrategy(Strategy):
    """Each step, each part trains one mini-batch: B of its nodes at L snapshots, with sampled neighbours.

    A batch is a pure function of seed, part and step, and features arrive unchanged whatever way they take: losses and
    gradients are the same bits under every cache policy. A step's gradients are means over parts whose batch has
    labels. Every batch begins from state zero.

    Args:
        model: any whose memory is ``per_vertex``, ``weights`` or ``none``.
        parts: those of this rank.
        task: what is predicted.
        graph: trial batches read its features.
        service: of features.
        settings: of the operators.

    Raises:
        UnsupportedError: the task needs all nodes at once, or the model remembers what a batch does not hold.

    References: GreenDyGNN sections II and V; DistDGL (Zheng et al. 2020).

    Differs from the paper: the edges are on every rank and features alone are fetched (DistDGL samples remotely too);
    snapshots of a sequence are served as well, by batches of L snapshots.
    """

    def __init__(
        self,
        model: DynamicModel,
        parts: Sequence[RemotePart],
        task: Task,
        graph: DynamicGraph,
        *,
        service: FeatureService,
        settings: OperatorSettings,
    ) -> None:
        if not task.per_vertex:
            raise UnsupportedError(
                f"task={task.name!r} with mini-batches: its loss needs all nodes at once. Choose system='adgnn-t' "
                "(halo_vertex), or another task."
            )
        if model.memory not in MEMORIES:
            raise UnsupportedError(
                f"a model that remembers {model.memory} with mini-batches, which carry {', '.join(MEMORIES)}. Choose "
                "system='adgnn-t' (halo_vertex), or another model."
            )
        self._model, self.parts, self._task, self._graph = model, tuple(parts), task, graph
        self.service, self._settings, self._total = service, settings, service.space.parts
        self.epoch_steps = self.parts[0].sampler.batches.per_epoch
        self._epoch = 0

    def epoch(self, epoch: int) -> Sequence[Step]:
        """As many steps in every epoch; what is computed next is of this one."""
        self._epoch = epoch
        own = tuple(part.number for part in self.parts)
        return tuple(Step(number, own, self._total) for number in range(self.epoch_steps))

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Gradients of a batch of each of this rank's parts, one part after another."""
        number = self._epoch * self.epoch_steps + work.iteration
        self.service.check()
        for part in self.parts:
            part.begin(number)  # all before any is waited for: first caches are made side by side
            part.prepare(number)
        marks("batch")
        resolved = [part.next(number) for part in self.parts]
        return self._trained([_blocks(of.sampled, of.rows) for of in resolved], marks)

    def tried(self, marks: StepMarks) -> None:
        """Compute the first step with features that are here, for its memory; not noted down."""
        blocks = []
        for part in self.parts:
            sampled = part.sampler.sample(0)
            times, vertices = np.divmod(sampled.keys, self._graph.num_nodes)  # all at 0 where features never change
            blocks.append(sampled.with_features(np.asarray(self._graph.features[times, vertices])))
        marks("batch")
        self._trained(blocks, marks)

    def _trained(self, blocks: Sequence[TargetBlocks], marks: StepMarks) -> StepResult:
        runs = [
            TargetRun(self._model, TargetSequence(of, self._settings), self._task, of.batch.snapshots, "all")
            for of in blocks
        ]
        for run in runs:
            bring(run)
        marks("transfer")
        loss_sum = sum(float(add_gradients(run)) for run in runs)
        labelled = sum(run.num_labelled > 0 for run in runs)
        return StepResult(loss_sum, labelled, sum(run.own * len(run.snapshots) for run in runs))

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """``resolved``, ``fetches``, ``windows``, ``cache_decisions``: what was noted since this was last asked."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for part in self.parts:
            for table, rows in part.rows().items():
                found.setdefault(table, []).extend(rows)
        return found

    def close(self) -> None:
        """End all pipelines and what serves; a second call does nothing."""
        for part in self.parts:
            part.close()
        self.service.close()

    # around training: the controller decides how features come

    plan_kinds = ("partition", "features")
    fails_by_rank = True  # memory and fetches differ
    controller: FeatureController

    def setup(self, gradients: FlatGradients) -> None:
        """Connect the ranks' servers and start the controller; collective."""
        of = self.context
        self.service.connect(of.group, device=of.device)
        with together(of.group, device=of.device):
            self.controller = FeatureController(self, of.config, gradients.zero, of.state)

    def slowable_links(self, group: Group) -> Slowed:
        """The links over which features are fetched, slowed by their servers or by the kernel; collective."""
        if self.context.config["congestion_by"] == "emulated":
            return self.service
        links: KernelLinks | None = None
        try:
            with together(group, device=self.context.device):
                links = KernelLinks(self.service.addresses, leads=group.rank == 0)
        except BaseException:
            if links is not None:
                links.close()
            raise
        return links

    @property
    def children(self) -> tuple[int, ...]:
        """Numbers of the processes that serve features for this rank."""
        return self.service.children

    def on_step_end(self, outcome: StepOutcome) -> None:
        """Report to the parts' policies what the step took."""
        for part in self.parts:
            part.pipeline.stepped(outcome.seconds, outcome.energy_j)

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """The first step, with features that are here."""
        yield self.tried

    def validate_settings(self, config: RunConfig) -> str:
        """Why features cannot come as a config says; ranks may differ."""
        return self.controller.validate_settings(config)

    def apply_settings(self, config: RunConfig) -> None:
        """Get features as a config says, from the next step on."""
        self.controller.apply_settings(config)

    def plan_events(self) -> list[tuple[str, dict[str, Any]]]:
        """The partition, and how features come."""
        return [("partition", plain_partition_event(self.context)), ("features", self.controller.to_dict())]

    def state_dict(self) -> dict[str, Any]:
        """What was measured of links and steps."""
        return self.controller.state_dict()


def build(of: BuildContext) -> RemoteFeatureStrategy:
    """Mini-batches whose remote features are fetched from the ranks that own them; collective.

    Raises:
        LabError: the features or caches do not fit, or no server could be started.
    """
    assert of.partition is not None
    token = agree_token(of.group)
    graph = of.sequence.graph
    mini = MiniBatches.of(of.config, graph, of.train, task=of.task, model=of.model, partition=of.partition)
    draw = neighbour_sampler(of.config, mini.shape)
    service = FeatureService(
        graph,
        of.partition,
        of.parts,
        last=of.train.stop,
        token=token,
        timeout_s=of.config["fetch_timeout_s"],
        host=host_towards(of.group),
    )
    try:
        rows = min(of.config["cache_rows"], service.space.size)
        check_cache_memory(rows, service.row_bytes, caches=len(of.parts))
        parts = [remote_part(mini, part, service, draw) for part in of.parts]
        return RemoteFeatureStrategy(of.model, parts, of.task, graph, service=service, settings=of.sequence.settings)
    except BaseException:
        service.close()
        raise


def _blocks(sampled: Any, rows: Any) -> TargetBlocks:
    assert isinstance(sampled, SampledBatch)
    return sampled.with_features(rows)
