"""The batches of one part of a rank: drawing, building and keeping them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dtdg_lab.core.plans import BatchSize, TargetBatch
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.minibatch.blocks import BlockShape, BuiltBatch, built_batch
from dtdg_lab.engine.minibatch.state_cache import StateCache
from dtdg_lab.engine.minibatch.target_sequence import TargetRun, TargetSequence
from dtdg_lab.engine.views.replicated_sequence import CachedSequence
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.kernels.uploads import upload
from dtdg_lab.systems.hybrid_batches.generators import BatchMaker, Source
from dtdg_lab.systems.hybrid_batches.reservoir import Reservoir, capacity, check_fits
from dtdg_lab.systems.hybrid_batches.sampler import TargetSampler

DEVICE_COPIES = 3  # size of a batch's tensors relative to its arrays: operators both ways, and pulled features
FIRST_NEW = 1 << 40  # index of step 0's new batch, beyond the generators' indices from 0
RESERVOIR, NEW, SNAPSHOT = "reservoir", "new", "snapshot"
_UNIFORM_STEPS = 256  # number of steps whose random numbers are drawn together: creating a stream is slow


@dataclass(frozen=True, slots=True)
class Draw:
    """The batch that a step took, so that it can be taken again.

    Attributes:
        source: ``reservoir``; ``new``, built in the step; ``snapshot``, all trained nodes of its snapshots.
        action: index of the size.
        index: index of the batch.
    """

    source: str
    action: int
    index: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch to be trained.

    Attributes:
        run: its snapshots with the nodes that its targets reach, and the loss.
        batch: the batch.
        draw: its source.
        rows: node rows over all its snapshots.
        edges: edges that its layers aggregate along.
        built_s: seconds of building it, in any process; None if nothing was built.
        nbytes: bytes of the arrays it was built from.
    """

    run: TargetRun
    batch: TargetBatch
    draw: Draw
    rows: int
    edges: int
    built_s: float | None
    nbytes: int = 0


class PartBatches:
    """Draws one part's batches, from its reservoir if it has one.

    Args:
        sequence: the part's nodes with the neighbours that they reach.
        sampler: sampler of its targets.
        folder: folder of the part's cached files.
        shape: shape of the model's computation blocks.
        settings: settings of the operators.
        run: builds the computation of a step from a sequence, its snapshots and the positions of its rows.
        states: initial states of batches; None if all start from zero.
    """

    def __init__(
        self,
        sequence: CachedSequence,
        sampler: TargetSampler,
        folder: Path,
        *,
        shape: BlockShape,
        settings: OperatorSettings,
        run: Callable[..., TargetRun],
        states: StateCache | None = None,
    ) -> None:
        self._run, self.states = run, states
        self.sequence, self.sampler, self.groups = sequence, sampler, sampler.groups
        self.number = sampler.part
        self._folder, self._shape, self._settings = folder, shape, settings
        self.sizes: tuple[BatchSize, ...] = ()
        self.reservoir: Reservoir[BuiltBatch] | None = None
        self._prepared: dict[Draw, Prepared] = {}  # the reservoir's batches on the device
        self._uses: dict[Draw, int] = {}
        self._max_uses = self._device_room = 0
        self._uniform_block, self._uniforms = -1, np.empty((0, 2))

    def use(self, sizes: tuple[BatchSize, ...], limit_bytes: int | None, max_uses: int = 0) -> None:
        """Draw batches of these sizes from now on, and keep some if there is a limit.

        Args:
            sizes: size of each action.
            limit_bytes: limit of the kept batches, and again of those among them on the device; None to keep none.
            max_uses: number of steps after which a kept batch makes room for another; 0 for no limit.
        """
        self.sizes, self.reservoir, self._max_uses = sizes, None, max_uses
        self._prepared.clear()
        self._uses.clear()
        self._device_room = limit_bytes or 0
        if limit_bytes is not None:
            snapshots, vertices = len(self.sampler.snapshots), len(self.groups)
            capacities = [capacity(size, snapshots=snapshots, vertices=vertices, actions=len(sizes)) for size in sizes]
            self.reservoir = Reservoir(capacities, limit_bytes)

    def check_fits(self, limit_bytes: int) -> None:
        """Raise unless a reservoir can hold one batch of each size.

        Raises:
            ConfigError: a batch is too large.
        """
        check_fits(
            [self._build(Draw(NEW, action, 0)).nbytes for action in range(len(self.sizes))], limit_bytes, self.sizes
        )

    def source(self) -> Source:
        """Return the input of the generator that fills the reservoir."""
        assert self.reservoir is not None
        maker = BatchMaker(self.number, self._folder, self.sequence.part.reach, self.sampler, self.sizes, self._shape)
        return Source(maker, self.reservoir)

    def next(self, step: int, action: int, *, stands_in: bool) -> Prepared:
        """Draw the batch of a step.

        Args:
            step: step of this rank, from 0; determines all draws.
            action: index of the size.
            stands_in: True to take a snapshot batch if the reservoir gives none.

        References: DynaHB algorithm 3.
        """
        new = Draw(NEW, action, FIRST_NEW + step)
        if self.reservoir is None:
            return self.again(new)
        stored = self.reservoir.take(action, *self._step_uniforms(step))
        if stored is None:
            return self.again(Draw(SNAPSHOT, action, step) if stands_in else new)
        draw = Draw(RESERVOIR, action, stored[0])
        prepared = self._prepare(draw, stored[1])
        self._count(draw)
        return prepared

    def _step_uniforms(self, step: int) -> tuple[float, float]:
        """Return a step's two random numbers in [0, 1)."""
        block, row = divmod(step, _UNIFORM_STEPS)
        if self._uniform_block != block:
            stream = generator(self.sampler.seed, "hybrid/draw", self.number, block)
            self._uniform_block, self._uniforms = block, stream.random((_UNIFORM_STEPS, 2))
        u, v = self._uniforms[row].tolist()
        return u, v

    def again(self, draw: Draw) -> Prepared:
        """Return the batch of a draw, rebuilt unless it is kept."""
        size = self.sizes[draw.action]
        if draw.source == SNAPSHOT:
            return self._prepare_whole(self.sampler.snapshot_batch(size, draw.index, draw.action), draw)
        if draw.source == NEW and size.vertices == self.sequence.own:  # a snapshot batch, which needs no building
            return self._prepare_whole(self.sampler.batch(size, draw.action, draw.index), draw)
        stored = None if self.reservoir is None else self.reservoir.get(draw.action, draw.index)
        return self._prepare(draw, stored or self._build(draw))

    def _count(self, draw: Draw) -> None:
        """Count a use of a batch, and drop it from the reservoir after the last; the current step can still use it."""
        assert self.reservoir is not None
        self._uses[draw] = self._uses.get(draw, 0) + 1
        if self._uses[draw] == self._max_uses:
            self.reservoir.drop(draw.action, draw.index)
            del self._uses[draw]
            if draw in self._prepared:
                self._device_room += DEVICE_COPIES * self._prepared.pop(draw).nbytes

    def _build(self, draw: Draw) -> BuiltBatch:
        batch = self.sampler.batch(self.sizes[draw.action], draw.action, draw.index)
        return built_batch(self.sequence.part, batch, self._shape)

    def _prepare(self, draw: Draw, built: BuiltBatch) -> Prepared:
        if draw in self._prepared:
            return self._prepared[draw]
        blocks = built.blocks
        sequence = TargetSequence(blocks, self._settings)
        rows = blocks.arrays.get("places")
        places = None if rows is None else upload(rows, self._settings.device)
        run = self._run(sequence=sequence, snapshots=built.batch.snapshots, places=places, states=self.states)
        prepared = Prepared(run, built.batch, draw, blocks.rows, blocks.edges, built.built_s, blocks.nbytes)
        device_bytes = DEVICE_COPIES * blocks.nbytes
        if draw.source == RESERVOIR and device_bytes <= self._device_room:
            self._prepared[draw] = prepared
            self._device_room -= device_bytes
        return prepared

    def _prepare_whole(self, batch: TargetBatch, draw: Draw) -> Prepared:
        """Prepare the whole part in the batch's snapshots; its loss only counts labelled nodes."""
        part = self.sequence.part
        hops = part.reach.hops
        rows = sum(part.prefix(t, hops) for t in batch.snapshots)
        edges = sum(part.num_edges(t, hops) for t in batch.snapshots)
        run = self._run(sequence=self.sequence, snapshots=batch.snapshots, states=self.states)
        return Prepared(run, batch, draw, rows, edges, None)
