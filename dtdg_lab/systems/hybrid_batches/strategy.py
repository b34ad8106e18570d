"""DynaHB: hybrid batches of some nodes and some snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, PlanError, UnsupportedError
from dtdg_lab.core.plans import BatchSize, TargetBatch
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.backprop.reference import HOW, bring
from dtdg_lab.engine.backprop.time_blocks import PIECE_NUMBERS, STEP_NUMBERS
from dtdg_lab.engine.graph_view import Apart, SnapshotView, stack_ranges
from dtdg_lab.engine.halo_exchange import LocalSource, PartEdges
from dtdg_lab.engine.minibatch_blocks import BlockShape, BuiltBatch, TargetBlocks, built_batch
from dtdg_lab.engine.replicated import CachedSequence, OwnBest
from dtdg_lab.engine.strategy import SequenceSegment, SnapshotSequence, StackedView, Step, StepMarks, StepResult
from dtdg_lab.kernels.operators import Operators, OperatorSettings, keep_freed_memory
from dtdg_lab.models.base import DynamicModel, run_straight
from dtdg_lab.systems.hybrid_batches.batches import (
    Grid,
    Reservoir,
    TargetSampler,
    adjustable,
    batch_size,
    capacity,
    check_fits,
    grid,
    nearest,
)
from dtdg_lab.systems.hybrid_batches.target_edges import target_edges
from dtdg_lab.systems.hybrid_batches.workers import BatchMaker, Generators, Source
from dtdg_lab.tasks.base import Rows, Task

# A hybrid batch's blocks as spaces on the device that computes: what trains them cannot tell them from a graph.


class TargetSequence(Apart):
    """The snapshots of a batch as spaces (see :class:`dtdg_lab.engine.strategy.SnapshotSequence`).

    The targets are the first rows of every space. Snapshots are stacked. Pulls of features, which no parameter changes,
    are computed once and kept with the sequence, so that a batch that is trained again is cheap.

    Args:
        blocks: of the batch.
        settings: of the operators; they say where tensors live, and their type.
    """

    where = "hybrid batches, which have some of them"
    instead = "system='adgnn-t' (halo_vertex)"

    def __init__(self, blocks: TargetBlocks, settings: OperatorSettings) -> None:
        keep_freed_memory()
        self.blocks, self.settings = blocks, settings
        self.own = len(blocks.batch.targets)
        self.device, self.dtype = settings.device, settings.dtype
        self.vertices: Tensor | None = torch.tensor(blocks.arrays["vertices"], device=self.device)
        self._spaces: dict[tuple[range, int], SnapshotView] = {}
        self._one_by_one: dict[int, _LayerByLayer] = {}

    @cached_property
    def _stacks(self) -> list[range]:
        whole, blocks = self.blocks.batch.snapshots, self.blocks
        features = blocks.arrays["features"].shape[1]
        return stack_ranges(whole, rows=blocks.heights[0], features=features, device=self.device)

    def view(self, t: int) -> SnapshotView:
        """Snapshot t for all layers of the model."""
        once, shape = range(t, t + 1), self.blocks.shape
        if shape.layers == 1 or shape.truncated:
            return self._space(once, 0)
        if t not in self._one_by_one:
            self._one_by_one[t] = _LayerByLayer(self._space(once, 0), partial(self._narrowing, once))
        return self._one_by_one[t]

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotView]:
        """Consecutive snapshots for one layer, several as one space.

        Raises:
            PlanError: the blocks have no such layer or snapshots, or serve all layers as one.
        """
        if not 0 <= layer < self.blocks.shape.layers or (self.blocks.shape.truncated and layer):
            raise PlanError(f"layer {layer} of {self.blocks.shape}.")
        if snapshots == self.blocks.batch.snapshots:
            return [self._space(some, layer) for some in self._stacks]
        return [self._space(range(t, t + 1), layer) for t in snapshots]

    def _space(self, snapshots: range, layer: int) -> SnapshotView:
        key = snapshots, layer
        if key not in self._spaces:
            self._spaces[key] = self._first(snapshots) if layer == 0 else self._later(snapshots, layer)
        return self._spaces[key]

    def _first(self, snapshots: range) -> SnapshotView:
        features, of = self.blocks.features_of(snapshots)
        moved = torch.tensor(features, device=self.device).to(self.dtype)
        if of is not None:
            moved = moved.index_select(0, torch.tensor(of, device=self.device))
        rows = len(snapshots) * self.blocks.heights[0]
        return SnapshotView(
            self._operators(partial(target_edges, self.blocks, snapshots, 0)),
            snapshots,
            moved if len(moved) == rows else moved[:rows],
            OwnBest(self.own),
            num_nodes=self.own,
            all_inputs=moved,
            pulled={},
            may_keep=_always,
        )

    def _later(self, snapshots: range, layer: int) -> SnapshotView:
        unfed = torch.empty(
            len(snapshots) * self.blocks.heights[layer], 0, dtype=self.dtype, device=self.device
        )  # only the first layer is fed features
        operators = self._operators(partial(target_edges, self.blocks, snapshots, layer))
        return SnapshotView(operators, snapshots, unfed, OwnBest(self.own), num_nodes=self.own)

    def _narrowing(self, snapshots: range, layer: int) -> SnapshotView:
        """A later layer of one snapshot whose pulls give the rows that the layer after it reads."""
        heights = (*self.blocks.heights, self.own)

        def edges(way: str) -> PartEdges:
            whole = target_edges(self.blocks, snapshots, layer, way)
            return whole.first(heights[layer + 1])

        unfed = torch.empty(heights[layer], 0, dtype=self.dtype, device=self.device)
        return SnapshotView(self._operators(edges), snapshots, unfed, OwnBest(self.own), num_nodes=self.own)

    def _operators(self, edges: Callable[[str], PartEdges]) -> Operators:
        return Operators(LocalSource(edges, self.settings), self.settings)


class _LayerByLayer(SnapshotView):
    """One snapshot whose layers see ever fewer rows, for models that go through all layers before the next snapshot.

    Args:
        first: what the first layer sees.
        later: makes what another one sees.
    """

    def __init__(self, first: SnapshotView, later: Callable[[int], SnapshotView]) -> None:
        self.__dict__.update(first.__dict__)
        self._first, self._later, self._layers = first, later, {0: first}

    def layer(self, number: int) -> SnapshotView:
        """What a layer sees."""
        if number not in self._layers:
            self._layers[number] = self._later(number)
        return self._layers[number]


def _always(size: int) -> bool:
    return True


# The batches of one part of a rank: which one a step trains, and where it comes from.


DEVICE_COPIES = 3  # what a batch takes as tensors, in times of its arrays: operators both ways, and pulled features

_DRAWN = 256  # steps whose numbers are drawn at once
FIRST_NEW = 1 << 40  # number of step 0's new batch: apart from those that generators number from 0

RESERVOIR, NEW, SNAPSHOT = "reservoir", "new", "snapshot"


@dataclass(frozen=True, slots=True)
class Drawn:
    """Which batch a step took, so that it can be taken again.

    Attributes:
        source: ``reservoir``; ``new``, built in the step; ``snapshot``, all trained nodes of its snapshots.
        action: number of the size.
        index: number of the batch.
    """

    source: str
    action: int
    index: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch to be trained.

    Attributes:
        sequence: its snapshots, with whatever its targets reach.
        batch: what it is.
        drawn: where it came from.
        rows: of nodes, in all its snapshots.
        edges: that its layers pull along.
        built_s: seconds that building it took, whoever did it; None where nothing was built.
        nbytes: of the arrays it was built of.
    """

    sequence: SnapshotSequence
    batch: TargetBatch
    drawn: Drawn
    rows: int
    edges: int
    built_s: float | None
    nbytes: int = 0

    def row(self, part: int, shown: list[int] | None) -> tuple[Any, ...]:
        """Of the record table ``targets``."""
        drawn, batch = self.drawn, self.batch
        return (
            part,
            drawn.action,
            drawn.index,
            drawn.source,
            batch.snapshots.start,
            len(batch.snapshots),
            len(batch.targets),
            self.rows,
            self.edges,
            self.built_s,
            shown,
        )


class PartBatches:
    """Draws one part's batches, out of its reservoir where there is one.

    Args:
        sequence: the part's nodes with the neighbours that they reach.
        sampler: of its targets.
        folder: where what the part holds is mapped from.
        shape: of the model's computation blocks.
        settings: of the operators.
    """

    def __init__(
        self,
        sequence: CachedSequence,
        sampler: TargetSampler,
        folder: Path,
        *,
        shape: BlockShape,
        settings: OperatorSettings,
    ) -> None:
        self.sequence, self.sampler, self.groups = sequence, sampler, sampler.groups
        self.number = sampler.part
        self._folder, self._shape, self._settings = folder, shape, settings
        self.sizes: tuple[BatchSize, ...] = ()
        self.reservoir: Reservoir[BuiltBatch] | None = None
        self._used: dict[Drawn, Prepared] = {}  # of the reservoir's: what is on the device, and pulled once
        self._uses: dict[Drawn, int] = {}
        self._most_uses = 0
        self._device_room = 0
        self._block, self._uniforms = -1, np.empty((0, 2))

    def use(self, sizes: tuple[BatchSize, ...], limit_bytes: int | None, most_uses: int = 0) -> None:
        """Draw batches of these sizes from here on, and keep some where there is a limit.

        Args:
            sizes: of each action.
            limit_bytes: most that those kept may take, and as much again for what is on the device of those used; None
                keeps none.
            most_uses: steps after which one that is kept makes room for another; 0 keeps all.
        """
        self.sizes, self.reservoir, self._most_uses = sizes, None, most_uses
        self._used.clear()
        self._uses.clear()
        self._device_room = limit_bytes or 0
        if limit_bytes is not None:
            self.reservoir = Reservoir(self._capacities(), limit_bytes)

    def check_fits(self, limit_bytes: int) -> None:
        """Refuse a reservoir that cannot hold one batch of each size.

        Raises:
            ConfigError: it cannot.
        """
        first = [self._built(Drawn(NEW, action, 0)) for action in range(len(self.sizes))]
        check_fits([built.nbytes for built in first], limit_bytes, self.sizes)

    def source(self) -> Source:
        """What generators need to know to fill the reservoir."""
        assert self.reservoir is not None
        maker = BatchMaker(self.number, self._folder, self.sequence.part.reach, self.sampler, self.sizes, self._shape)
        return Source(maker, self.reservoir)

    def next(self, step: int, action: int, *, stands_in: bool) -> Prepared:
        """The batch of a step.

        Args:
            step: of this rank, from 0; decides all draws.
            action: the size.
            stands_in: whether a snapshot batch is taken where the reservoir gives none.

        References: DynaHB algorithm 3.
        """
        if self.reservoir is None:
            return self.again(Drawn(NEW, action, FIRST_NEW + step))
        u, v = self._uniform(step)
        taken = self.reservoir.take(action, u, v)
        if taken is not None:
            drawn = Drawn(RESERVOIR, action, taken[0])
            prepared = self._prepared(drawn, taken[1])
            self._count(drawn)
            return prepared
        return self.again(Drawn(SNAPSHOT, action, step) if stands_in else Drawn(NEW, action, FIRST_NEW + step))

    def _uniform(self, step: int) -> tuple[float, float]:
        """Two numbers in [0, 1) of a step: a generator's start takes longer than many of its numbers."""
        block, place = divmod(step, _DRAWN)
        if self._block != block:
            self._uniforms = generator(self.sampler.seed, "hybrid/draw", self.number, block).random((_DRAWN, 2))
            self._block = block
        u, v = self._uniforms[place].tolist()
        return u, v

    def again(self, drawn: Drawn) -> Prepared:
        """The batch that was drawn, built anew where it is not kept."""
        size = self.sizes[drawn.action]
        if drawn.source == SNAPSHOT:
            return self._whole(self.sampler.snapshot_batch(size, drawn.index, drawn.action), drawn)
        if drawn.source == NEW and size.vertices == self.sequence.own:  # a snapshot batch: nothing need be built
            return self._whole(self.sampler.batch(size, drawn.action, drawn.index), drawn)
        kept = None if self.reservoir is None else self.reservoir.get(drawn.action, drawn.index)
        return self._prepared(drawn, kept or self._built(drawn))

    def _count(self, drawn: Drawn) -> None:
        """Have a batch that was used as often as it may leave the reservoir; the step that has it keeps it."""
        assert self.reservoir is not None
        self._uses[drawn] = self._uses.get(drawn, 0) + 1
        if self._uses[drawn] == self._most_uses:
            self.reservoir.drop(drawn.action, drawn.index)
            del self._uses[drawn]
            if drawn in self._used:
                self._device_room += DEVICE_COPIES * self._used.pop(drawn).nbytes

    def _capacities(self) -> list[int]:
        sampler = self.sampler
        return [
            capacity(size, snapshots=len(sampler.snapshots), vertices=len(self.groups), actions=len(self.sizes))
            for size in self.sizes
        ]

    def _built(self, drawn: Drawn) -> BuiltBatch:
        batch = self.sampler.batch(self.sizes[drawn.action], drawn.action, drawn.index)
        return built_batch(self.sequence.part, batch, self._shape)

    def _prepared(self, drawn: Drawn, built: BuiltBatch) -> Prepared:
        if drawn in self._used:
            return self._used[drawn]
        blocks = built.blocks
        sequence = TargetSequence(blocks, self._settings)
        prepared = Prepared(sequence, built.batch, drawn, blocks.rows, blocks.edges, built.built_s, blocks.nbytes)
        size = DEVICE_COPIES * blocks.nbytes
        if drawn.source == RESERVOIR and size <= self._device_room:
            self._used[drawn] = prepared
            self._device_room -= size
        return prepared

    def _whole(self, batch: TargetBatch, drawn: Drawn) -> Prepared:
        """All of the part in the batch's snapshots: its loss hears of labelled nodes only."""
        part = self.sequence.part
        hops = part.reach.hops
        rows = sum(part.prefix(t, hops) for t in batch.snapshots)
        edges = sum(part.num_edges(t, hops) for t in batch.snapshots)
        return Prepared(self.sequence, batch, drawn, rows, edges, None)


# The sizes that the batches of a run may have: one that is set, or those that an adjuster chooses from.


MOST_CHOICES = 1024

Sizes = tuple[tuple[BatchSize, ...], ...]


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sizes of batches, the same choices for every part.

    Attributes:
        shares: of each of the N_A choices, the snapshots and nodes as they were given.
        sizes: of each of P parts, N_A sizes.
        initial: the choice to begin with.
    """

    shares: tuple[tuple[float, float], ...]
    sizes: Sizes
    initial: int

    @classmethod
    def of(cls, config: RunConfig, *, snapshots: int, candidates: Sequence[int]) -> Sizing:
        """What a config asks for.

        Args:
            config: the run's settings.
            snapshots: T of the training split.
            candidates: nodes that may be targets, of each of P parts.

        Raises:
            ConfigError: a size is beyond the snapshots or nodes that there are, or an adjuster has one choice.
        """
        set_by_hand = (config["batch_snapshots"], config["batch_vertices"])
        empty = [part for part, number in enumerate(candidates) if not number]
        if empty:
            raise ConfigError(
                f"part {empty[0]} has no node with a label that training counts: a batch of its targets has no "
                "loss. Set fewer parts, or another partitioner."
            )
        by_hand = _sizes((set_by_hand,), ("batch_snapshots", "batch_vertices"), snapshots, candidates)
        if config["adjuster"] == "none":
            return cls((set_by_hand,), by_hand, 0)
        shares = adjustable(grid(config["snapshot_sizes"], config["vertex_sizes"]))
        sizes = _sizes(shares, ("snapshot_sizes", "vertex_sizes"), snapshots, candidates)
        if not any(len(set(of_part)) > 1 for of_part in sizes):
            raise ConfigError(
                f"an adjuster with one action: all of snapshot_sizes={config['snapshot_sizes']!r} x vertex_sizes="
                f"{config['vertex_sizes']!r} come to {sizes[0][0].snapshots} snapshots x {sizes[0][0].vertices} "
                "nodes here. Give sizes that are farther apart, or set adjuster='none'."
            )
        if len(shares) > MOST_CHOICES:
            raise ConfigError(f"{len(shares)} sizes to choose from: at most {MOST_CHOICES} are allowed. Give fewer.")
        return cls(shares, sizes, nearest(shares, *set_by_hand))

    def __len__(self) -> int:
        return len(self.shares)

    def to_dict(self) -> list[list[int]]:
        """Of each choice, N_S, and N_V of the part that has fewest and of the one that has most."""
        found = []
        for choice in range(len(self)):
            of_parts = [sizes[choice] for sizes in self.sizes]
            vertices = [size.vertices for size in of_parts]
            found.append([of_parts[0].snapshots, min(vertices), max(vertices)])
        return found


def _sizes(shares: Grid, named: tuple[str, str], snapshots: int, candidates: Sequence[int]) -> Sizes:
    return tuple(
        tuple(batch_size(*share, snapshots=snapshots, candidates=number, named=named) for share in shares)
        for number in candidates
    )


# A run whose loss is the targets' own, which a hybrid batch is trained on, and how its gradients are computed.


@dataclass(frozen=True)
class TargetRun(SequenceSegment):
    """Snapshots trained from the initial state, with the loss of some nodes, those of the sequence.

    The loss is the mean over the snapshots where loss is taken and some target is labelled, of the mean over the
    labelled targets; 0 where none is in any.

    Raises:
        UnsupportedError: the task needs all nodes at once.

    References: DynaHB section 5.1, Algorithm 2 (the loss of a batch is the mean over its snapshots).
    """

    def __post_init__(self) -> None:
        if not self.task.per_vertex:
            raise UnsupportedError(
                f"task={self.task.name!r} on hybrid batches: its loss needs all nodes at once, and a batch has some "
                "of them. Choose system='adgnn-t' (halo_vertex), or another task."
            )

    @cached_property
    def _over_share(self) -> Tensor:
        """Of each snapshot where loss is taken, 1 / the share of its labelled items that are targets; 0 for none."""
        vertices = self.sequence.vertices
        share = self.task.share(self.at, slice(0, self.own) if vertices is None else vertices)
        return torch.where(share > 0, 1 / share, 0.0)

    @cached_property
    def num_labelled(self) -> int:
        """How many of the snapshots where loss is taken have a labelled target."""
        return int((self._over_share > 0).sum())

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """What some targets at some snapshots add to the loss of the run, a scalar.

        Args:
            z: their readout, (S', n, outputs).
            snapshots: S' of those where loss is taken.
            rows: which of the targets they are.
        """
        vertices, start = self.sequence.vertices, snapshots.start - self.at.start
        losses = self.task.loss(z, snapshots, rows if vertices is None else vertices[rows])
        scaled = losses * self._over_share[start : start + len(snapshots)].to(losses.dtype)
        return scaled.sum() / max(self.num_labelled, 1)


def add_gradients(run: SequenceSegment) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss; what it needs is here already.

    A small run of a model that remembers nodes goes layer by layer over all snapshots at once, with one backward:
    that is done before :mod:`dtdg_lab.engine.backprop.time_blocks` has cut it, which computes all layers but the
    last twice. Others
    are differentiated as :data:`dtdg_lab.engine.backprop.reference.HOW` has it.

    Args:
        run: what is differentiated.
    """
    if run.model.memory != "per_vertex":
        return HOW[run.model.memory](run)
    stacks = [run.sequence.stacks(run.snapshots, layer) for layer in range(run.model.layers)]
    heights = [*(spaces[0].num_rows // len(spaces[0].snapshots) for spaces in stacks[1:]), run.own]
    place, hidden = run.sequence.device.partition(":")[0], run.model.hidden
    if (rows := max(heights) * hidden) > STEP_NUMBERS[place] or rows * len(run.snapshots) > PIECE_NUMBERS[place]:
        return HOW[run.model.memory](run)  # a run of several pieces, which fit the cache
    loss = _straight(run, stacks, heights)
    loss.backward()
    return loss.detach()


def _straight(run: SequenceSegment, stacks: Sequence[Sequence[StackedView]], heights: Sequence[int]) -> Tensor:
    """The loss, with its history; a layer's output has the rows that the next one reads."""
    model, counts = run.model, [len(space.snapshots) for space in stacks[0]]
    inputs = [space.inputs for space in stacks[0]]
    for layer, (spaces, height) in enumerate(zip(stacks, heights, strict=True)):
        state = model.initial_state(height)
        mixed = [
            run_straight(model.spatial(layer, space, x, state)).unflatten(0, (count, -1))[:, :height]
            for space, x, count in zip(spaces, inputs, counts, strict=True)
        ]
        h, _ = model.temporal_sequence(layer, mixed[0] if len(mixed) == 1 else torch.cat(mixed), state)
        inputs = [part.flatten(0, 1) for part in h.split(counts)]
    return run.loss(model.readout(h[len(h) - len(run.at) :]), run.at, slice(0, run.own))


# Hybrid batches on node parts that hold copies of what their layers reach: nothing but models travels.


MAP_EVERY_S, LEVELS_EVERY_S = 0.2, 0.5  # between rows that are only looked at


@dataclass(frozen=True, slots=True)
class BatchKeeping:
    """What is generated beside training and kept.

    Attributes:
        on: whether there are reservoirs.
        limit_bytes: most that the batches kept by a rank may take.
        generators: ``threads`` or ``processes``.
        most_uses: steps after which a batch makes room for another; 0: never.
    """

    on: bool
    limit_bytes: int
    generators: str
    most_uses: int = 0


class HybridBatchStrategy:
    """Each step, each part trains one batch: N_S consecutive snapshots of N_V target nodes, from state zero.

    A batch has every neighbour that its layers reach, out of the part's own copies: its loss, the mean over its
    snapshots of the mean over its targets, and its gradients are those of the same targets in the whole graph: exactly
    for memories ``per_vertex``, ``weights`` and ``none``, approximately as
    :class:`dtdg_lab.engine.replicated.ReplicatedStrategy` says for others. A step's gradients are means over
    parts whose batch has labels. With all trained nodes it is a snapshot batch, with all snapshots a node batch.

    Where batches are kept, a step takes one of them by the probability of equation 4, else all nodes of as many
    snapshots, which need no building (where ``stands_in``), else a new batch.

    Args:
        model: any model.
        parts: those of this rank.
        task: what is predicted.
        sizing: sizes that batches may have.
        keeping: what is kept.
        epoch_batches: steps of an epoch.

    Attributes:
        step: which one is computed next, of the run; it decides all draws.
        choice: which size it has.
        stands_in: whether a snapshot batch may stand in for one that is not there.
        replay: what each step and part drew in a run that is repeated; None where batches are drawn.

    Raises:
        UnsupportedError: the task needs all nodes at once.

    References: DynaHB sections 4.2 (balanced groups), 5 (hybrid batches), 5.2 (reservoir; algorithms 2 and 3).
    """

    def __init__(
        self,
        model: DynamicModel,
        parts: Sequence[PartBatches],
        task: Task,
        *,
        sizing: Sizing,
        keeping: BatchKeeping,
        epoch_batches: int,
    ) -> None:
        if not task.per_vertex:
            raise UnsupportedError(
                f"task={task.name!r} with batches of nodes: its loss needs all nodes at once. "
                "Choose system='adgnn-t' (halo_vertex), or another task."
            )
        self._model, self.parts, self._task, self.epoch_batches = model, tuple(parts), task, epoch_batches
        self.step, self.choice, self.stands_in = 0, sizing.initial, False
        self.replay: Mapping[tuple[int, int], Drawn] | None = None
        self.sizing, self.keeping = sizing, keeping
        self._is_open = False
        self._generators: Generators | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._mapped_s = self._levelled_s = 0.0
        self._use()
        self.check_fits()

    # steps

    def epoch(self, epoch: int) -> Sequence[Step]:
        """As many steps in every epoch."""
        own = tuple(part.number for part in self.parts)
        return tuple(Step(number, own, len(self.sizing.sizes)) for number in range(self.epoch_batches))

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Gradients of a batch of each of this rank's parts, one part after another."""
        if self._generators is not None:
            self._generators.check()
        prepared = [self._next(part) for part in self.parts]
        self._note(prepared)
        return self._trained(prepared, marks)

    def _next(self, part: PartBatches) -> Prepared:
        if self.replay is None:
            return part.next(self.step, self.choice, stands_in=self.stands_in)
        try:
            return part.again(self.replay[self.step, part.number])
        except KeyError as error:
            raise ConfigError(
                f"replay: no batch of step {self.step} and part {part.number} was recorded. Replay the records of one "
                "rank, with the settings, data and ranks of their run."
            ) from error

    def _trained(self, prepared: Sequence[Prepared], marks: StepMarks) -> StepResult:
        runs = [TargetRun(self._model, of.sequence, self._task, of.batch.snapshots, "all") for of in prepared]
        marks("batch")
        for run in runs:
            bring(run)
        marks("transfer")
        loss_sum = sum(float(add_gradients(run)) for run in runs)
        labelled = sum(run.num_labelled > 0 for run in runs)
        return StepResult(loss_sum, labelled, sum(run.own * len(run.snapshots) for run in runs))

    def tried(self, source: str, marks: StepMarks) -> None:
        """Compute the largest batches of one kind that steps may have, for their memory; not noted down.

        Args:
            source: ``new`` or ``snapshot``.
            marks: takes down phases.
        """
        prepared = []
        for part in self.parts:
            action = max(range(len(part.sizes)), key=lambda number, of=part.sizes: of[number].targets)  # type: ignore[misc]
            prepared.append(part.again(Drawn(source, action, 0)))
        self._trained(prepared, marks)

    # sizes and what is kept, which change while training runs

    def apply_settings(self, sizing: Sizing, keeping: BatchKeeping) -> None:
        """Have these sizes, and keep batches so, from the next step on; the choice begins anew where sizes change."""
        if (sizing, keeping) == (self.sizing, self.keeping):
            return
        if sizing.initial != self.sizing.initial or sizing.shares != self.sizing.shares:
            self.choice = sizing.initial
        remade = (sizing.sizes, keeping) != (self.sizing.sizes, self.keeping)
        self.sizing, self.keeping = sizing, keeping
        if remade:
            self._stop_generating()
            self._use()
            self._generate()

    def open(self) -> None:
        """Let generators begin, where batches are kept."""
        self._is_open = True
        self._generate()

    def close(self) -> None:
        """Let generators end; a second call does nothing."""
        self._is_open = False
        self._stop_generating()

    def check_fits(self) -> None:
        """Refuse reservoirs that cannot hold one batch of each size.

        Raises:
            ConfigError: one of this rank's parts has batches that are larger.
        """
        for part in self.parts if self.keeping.on else ():
            part.check_fits(self._share_bytes)

    @property
    def _share_bytes(self) -> int:
        return max(1, self.keeping.limit_bytes // len(self.parts))

    def _use(self) -> None:
        limit = self._share_bytes if self.keeping.on else None
        for part in self.parts:
            part.use(self.sizing.sizes[part.number], limit, self.keeping.most_uses)

    def _generate(self) -> None:
        if self.keeping.on and self._is_open and self.replay is None:
            self._generators = Generators([part.source() for part in self.parts], kind=self.keeping.generators)
            self._generators.start()

    def _stop_generating(self) -> None:
        if self._generators is not None:
            self._generators.close()
            self._generators = None

    # what is taken down

    def _note(self, prepared: Sequence[Prepared]) -> None:
        now_s = time.monotonic()
        shows = now_s - self._mapped_s >= MAP_EVERY_S
        for part, of in zip(self.parts, prepared, strict=True):
            self._rows.append(of.row(part.number, part.groups.sixtieths(of.batch.targets) if shows else None))
        if shows:
            self._mapped_s = now_s

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """``targets``: batches trained since this was last asked; ``reservoir``: what is held, twice a second."""
        taken, self._rows = self._rows, []
        found = {"targets": taken}
        now_s = time.monotonic()
        if self._generators is not None and now_s - self._levelled_s >= LEVELS_EVERY_S:
            self._levelled_s = now_s
            found["reservoir"] = self._levels()
        return found

    def _levels(self) -> list[tuple[Any, ...]]:
        assert self._generators is not None
        now_ns, rows = time.time_ns(), []
        made, busy_s = self._generators.made, self._generators.busy_s
        for place, part in enumerate(self.parts):
            assert part.reservoir is not None
            for action, level in enumerate(part.reservoir.levels()):
                of = (
                    level.held,
                    level.capacity,
                    level.nbytes,
                    made[place][action],
                    busy_s[place][action],
                    level.distinct,
                )
                rows.append((now_ns, part.number, action, *of))
        return rows
