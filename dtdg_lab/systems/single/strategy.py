"""Training in one process, the reference of all systems: one batch, or products shared by consecutive snapshots."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.config.model_facts import ModelFacts
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.plans import SnapshotGroups
from dtdg_lab.core.rng import torch_seed
from dtdg_lab.engine.backprop.reference import GroupRunner
from dtdg_lab.engine.strategy import BuildContext, Step, StepMarks, StepResult, Strategy
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.kernels.device_memory import MemoryLimits
from dtdg_lab.kernels.operators import Operators, SharedOperators, SnapshotSource
from dtdg_lab.kernels.spmm import SharedOperator
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.records.events import Event
from dtdg_lab.systems.single.events import OverlapProfile, SnapshotTimes
from dtdg_lab.tasks.base import Task

PASSES = 3  # the first warms up; the fastest counts
LONG_S = 0.02  # from which a pass is not repeated: warming up matters little to it


@torch.no_grad()
def time_snapshots(model: DynamicModel, sequence: DeviceSequence, train: range) -> SnapshotTimes:
    """Time the forward pass of each training snapshot.

    Views are built, used and freed one by one, besides those kept by training.

    Args:
        model: the trained model.
        sequence: the graph on this device.
        train: the training snapshots.
    """
    settings = sequence.settings
    alone = DeviceSequence(
        sequence.graph,
        device=sequence.device,
        dtype=sequence.dtype,
        kernel=settings.backend,
        norm=settings.norm,
        self_loops=settings.self_loops,
        limits=settings.limits.without_views(),
    )
    state, seconds = model.initial_state(alone.view(train.start).num_rows), []
    for snapshot in train:
        view = alone.view(snapshot)
        rounds_s: list[float] = []
        while len(rounds_s) < PASSES and max(rounds_s, default=0.0) < LONG_S:
            wait_for(alone.device)
            began_s = time.perf_counter()
            _, after = model.snapshot(view, view.inputs, state)
            wait_for(alone.device)
            rounds_s.append(time.perf_counter() - began_s)
        state = after
        seconds.append(min(rounds_s))
    return SnapshotTimes(train.start, tuple(seconds))


def wait_for(device: str) -> None:
    """Wait until the GPU is idle; return at once on other devices."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


class SingleStrategy(Strategy):
    """One step per epoch: back-propagation through the whole training split, with the loss at every snapshot.

    Args:
        model: any model.
        sequence: the graph on this device.
        task: what is predicted.
        train: the labelled snapshots of the training split.
    """

    plan_kinds: tuple[str, ...] = (SnapshotTimes.kind,)

    def __init__(self, model: DynamicModel, sequence: DeviceSequence, task: Task, train: range) -> None:
        self._model, self._sequence, self._train = model, sequence, train
        groups = SnapshotGroups(np.array([train.start]), np.array([train.stop]))
        self._runner = GroupRunner(model, sequence, task, groups, "all")

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return the only step, the same in every epoch."""
        return (Step(0, (0,), 1),)

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of the whole sequence."""
        return self._runner.compute(work, marks)

    def plan_events(self) -> list[Event]:
        """Time the forward pass of each snapshot, for display only."""
        return [time_snapshots(self._model, self._sequence, self._train)]


def build_whole(context: BuildContext) -> SingleStrategy:
    """Build the strategy that trains on the whole training split as one batch."""
    return SingleStrategy(context.model, context.sequence, context.task, context.train)


SIZES = (1, 2, 4, 8)
PROFILED, ROUNDS = 8, 3  # number of measured snapshots, and of repetitions
LEAST_GAIN = 0.95  # maximum time relative to the ordinary product; above it, sharing is not worth its preparation
SHARED_KINDS = ("gcn", "mean", "diffusion-in")

Pull = tuple[str, int]  # kind and width


class OverlapSequence(DeviceSequence):
    """Snapshots in groups whose common edges are aggregated once.

    Args:
        sequence: the snapshots, all nodes.
        size: snapshots in a group; with 1 nothing is shared.
        limits: bytes kept; those of views are estimated from their edges. None for the limits of ``sequence``.
    """

    def __init__(self, sequence: DeviceSequence, size: int, *, limits: MemoryLimits | None = None) -> None:
        settings = sequence.settings
        super().__init__(
            sequence.graph,
            device=sequence.device,
            dtype=sequence.dtype,
            kernel=settings.backend,
            norm=settings.norm,
            self_loops=settings.self_loops,
            limits=settings.limits if limits is None else limits,
        )
        self._size = size

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotView]:
        """Return consecutive snapshots in groups of about equal length."""
        if self._size == 1:
            return super().stacks(snapshots, layer)
        pieces = -(-len(snapshots) // self._size)
        bounds = [snapshots.start + len(snapshots) * piece // pieces for piece in range(pieces + 1)]
        return [self.stack(range(*pair)) for pair in pairwise(bounds)]

    def common(self, snapshots: range) -> float:
        """Return the share of all edges that the snapshots of their groups have in common."""
        groups = [view.snapshots for view in self.stacks(snapshots) if len(view.snapshots) > 1]
        counts = [
            SharedOperator([operators.scaled("gcn") for operators in self._operators_by_snapshot(group)]).edges
            for group in groups
        ]
        common = sum(shared * len(group) for group, (shared, _) in zip(groups, counts, strict=True))
        return common / max(sum(total for _, total in counts), 1)

    def _operators_by_snapshot(self, snapshots: range) -> list[Operators]:
        nodes, settings = range(self.graph.num_nodes), self.settings
        return [Operators(SnapshotSource(self.graph.snapshots[t], nodes, settings), settings) for t in snapshots]

    def _operators(self, snapshots: range, rows: range) -> Operators:
        if self._size == 1 or len(snapshots) == 1:
            return super()._operators(snapshots, rows)
        return SharedOperators(self._operators_by_snapshot(snapshots))


def shared_pulls(facts: ModelFacts) -> list[Pull]:
    """Return kind and width of every aggregation that depends on parameters; the others are computed once and kept.

    Raises:
        UnsupportedError: an aggregation has edge weights other than degree scaling.
    """
    unsupported = sorted({pull.kind for pull in facts.along_edges} - set(SHARED_KINDS))
    if unsupported:
        raise UnsupportedError(
            f"system='pipad' shares sums over in-neighbours that are scaled by degrees ({', '.join(SHARED_KINDS)}), "
            f"but the model aggregates by {', '.join(unsupported)}. Choose a model that only uses graph.gcn(x) or "
            "graph.mean(x), such as tgcn, or system='single'."
        )
    return [(pull.kind, pull.width) for pull in facts.along_edges if not pull.of_features]


class OverlapStrategy(SingleStrategy):
    """Back-propagation through the whole training split, with shared products (see :class:`OverlapSequence`).

    Args:
        context: the run's model, graph, task and settings.
        profile: the group size, and how it was chosen.
    """

    plan_kinds = ("shared_edges",)

    def __init__(self, context: BuildContext, profile: OverlapProfile) -> None:
        sequence = context.sequence if profile.chosen == 1 else OverlapSequence(context.sequence, profile.chosen)
        super().__init__(context.model, sequence, context.task, context.train)
        self._profile = profile

    def plan_events(self) -> list[Event]:
        """Return the group size and the candidates' times."""
        return [self._profile]

    def state_dict(self) -> dict[str, Any]:
        """Return the profile, so that a resumed run need not measure again."""
        return {"shared_edges": self._profile.write()}


def build_shared(context: BuildContext) -> OverlapStrategy:
    """Build the strategy of a run; its group size is set or measured.

    Raises:
        UnsupportedError: the model has aggregations that cannot be shared.
    """
    pulls, size = shared_pulls(context.model.facts), context.config["shared_snapshots"]
    if size:
        return OverlapStrategy(context, OverlapProfile(size, (), (), (), "shared_snapshots is set"))
    if not pulls:
        reason = "no aggregation of the model depends on parameters, and the others are computed once"
        return OverlapStrategy(context, OverlapProfile(1, (), (), (), reason))
    if context.state.get("shared_edges", {}).get("sizes"):  # measured earlier
        return OverlapStrategy(context, OverlapProfile.read(context.state["shared_edges"]))
    return OverlapStrategy(context, measured(context.sequence, context.train, pulls, seed=context.config.seed))


def measured(sequence: DeviceSequence, train: range, pulls: Sequence[Pull], *, seed: int) -> OverlapProfile:
    """Time each candidate on the last snapshots of the training split, and choose the fastest.

    The operators of one candidate are built, used and freed before those of the next.

    Args:
        sequence: the graph on this device.
        train: the training snapshots.
        pulls: kind and width of each timed aggregation.
        seed: seed of the random rows.

    Returns:
        The chosen size, with seconds per snapshot and share of common edges of each size.
    """
    snapshots = train[-PROFILED:]
    draw = torch.Generator("cpu").manual_seed(torch_seed(seed, "overlap"))
    rows = len(snapshots) * sequence.own
    inputs = {
        width: torch.randn(rows, width, generator=draw).to(sequence.device, sequence.dtype)
        for width in sorted({width for _, width in pulls})
    }
    sizes = tuple(size for size in SIZES if size <= len(snapshots))
    without_views = sequence.settings.limits.without_views()
    seconds, shares = [], []
    for size in sizes:
        candidate = OverlapSequence(sequence, size, limits=without_views)  # operators go with the views
        views = candidate.stacks(snapshots)
        times = [_seconds(views, pulls, inputs, sequence) for _ in range(1 + ROUNDS)]  # the first prepares
        del views
        seconds.append(min(times[1:]) / len(snapshots))
        shares.append(1.0 if size == 1 else candidate.common(snapshots))
    best = min(range(len(sizes)), key=seconds.__getitem__)
    size = sizes[best] if seconds[best] <= LEAST_GAIN * seconds[0] else 1
    return OverlapProfile(size, sizes, tuple(seconds), tuple(shares))


def _seconds(
    views: Sequence[SnapshotView], pulls: Sequence[Pull], inputs: dict[int, Tensor], sequence: DeviceSequence
) -> float:
    """Return the seconds of all aggregations, forward and backward."""
    wait_for(sequence.device)
    began_s = time.perf_counter()
    for kind, width in pulls:
        start = 0
        for view in views:
            x = inputs[width][start : start + view.num_rows].requires_grad_()
            start += view.num_rows
            y = view.pull(x, kind)
            torch.autograd.grad(y, x, y.detach())
    wait_for(sequence.device)
    return time.perf_counter() - began_s
