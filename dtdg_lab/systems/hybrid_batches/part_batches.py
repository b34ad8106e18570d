"""The batches of one partition of a rank: their sizes, where each comes from, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.plans import BatchSize, TargetBatch
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.minibatch_blocks import BlockShape, BuiltBatch, built_batch
from dtdg_lab.engine.replicated import CachedSequence
from dtdg_lab.engine.target_batches import StateCache, TargetRun, TargetSequence
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.systems.hybrid_batches import batches
from dtdg_lab.systems.hybrid_batches.workers import BatchMaker, Source

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
        run: its snapshots with whatever its targets reach, and the loss.
        batch: what it is.
        drawn: where it came from.
        rows: of nodes, in all its snapshots.
        edges: that its layers pull along.
        built_s: seconds that building it took, in any process; None where nothing was built.
        nbytes: of the arrays it was built of.
    """

    run: TargetRun
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
        run: makes what a step trains of a sequence, its snapshots and the places of its rows.
        states: what batches start from; None where all start from zero.
    """

    def __init__(
        self,
        sequence: CachedSequence,
        sampler: batches.TargetSampler,
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
        self.reservoir: batches.Reservoir[BuiltBatch] | None = None
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
            self.reservoir = batches.Reservoir(self._capacities(), limit_bytes)

    def check_fits(self, limit_bytes: int) -> None:
        """Refuse a reservoir that cannot hold one batch of each size.

        Raises:
            ConfigError: it cannot.
        """
        first = [self._built(Drawn(NEW, action, 0)) for action in range(len(self.sizes))]
        batches.check_fits([built.nbytes for built in first], limit_bytes, self.sizes)

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
        """The batch that was drawn, rebuilt where it is not kept."""
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
            batches.capacity(size, snapshots=len(sampler.snapshots), vertices=len(self.groups), actions=len(self.sizes))
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
        placed = blocks.arrays.get("places")
        places = None if placed is None else torch.tensor(placed, device=self._settings.device)
        run = self._run(sequence=sequence, snapshots=built.batch.snapshots, places=places, states=self.states)
        prepared = Prepared(run, built.batch, drawn, blocks.rows, blocks.edges, built.built_s, blocks.nbytes)
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
        run = self._run(sequence=self.sequence, snapshots=batch.snapshots, states=self.states)
        return Prepared(run, batch, drawn, rows, edges, None)


# The sizes that the batches of a run may have: one that is set, or those that a batch policy chooses from.


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
            ConfigError: a size is beyond the snapshots or nodes that there are, or a batch policy has one choice.
        """
        set_by_hand = (config["batch_snapshots"], config["batch_nodes"])
        empty = [part for part, number in enumerate(candidates) if not number]
        if empty:
            raise ConfigError(
                f"part {empty[0]} has no node with a label that training counts: a batch of its targets has no "
                "loss. Set fewer parts, or another partitioner."
            )
        by_hand = _sizes((set_by_hand,), ("batch_snapshots", "batch_nodes"), snapshots, candidates)
        if config["batch_policy"] == "none":
            return cls((set_by_hand,), by_hand, 0)
        shares = batches.adjustable(batches.grid(config["snapshot_sizes"], config["node_sizes"]))
        sizes = _sizes(shares, ("snapshot_sizes", "node_sizes"), snapshots, candidates)
        if not any(len(set(of_part)) > 1 for of_part in sizes):
            raise ConfigError(
                f"a batch policy with one action: all of snapshot_sizes={config['snapshot_sizes']!r} x node_sizes="
                f"{config['node_sizes']!r} come to {sizes[0][0].snapshots} snapshots x {sizes[0][0].vertices} "
                "nodes here. Give sizes that are farther apart, or set batch_policy='none'."
            )
        if len(shares) > MOST_CHOICES:
            raise ConfigError(f"{len(shares)} sizes to choose from: at most {MOST_CHOICES} are allowed. Give fewer.")
        return cls(shares, sizes, batches.nearest(shares, *set_by_hand))

    def __len__(self) -> int:
        return len(self.shares)

    def of_choices(self) -> list[tuple[int, int, int, tuple[float, float]]]:
        """Of each choice, N_S, N_V of the part that has fewest and of the one that has most, and its shares."""
        found = []
        for given, *of_choice in zip(self.shares, *self.sizes, strict=True):
            vertices = [size.vertices for size in of_choice]
            found.append((of_choice[0].snapshots, min(vertices), max(vertices), given))
        return found


def _sizes(shares: batches.Grid, named: tuple[str, str], snapshots: int, candidates: Sequence[int]) -> Sizes:
    return tuple(
        tuple(batches.batch_size(*share, snapshots=snapshots, candidates=number, named=named) for share in shares)
        for number in candidates
    )


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
