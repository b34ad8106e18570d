"""What the batches of one part are made from, and the reservoir they go into."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dtdg_lab.batching.reservoir import Reservoir
from dtdg_lab.batching.target_sampler import TargetSampler
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.target_batches import BatchSize
from dtdg_lab.graphs.store import read
from dtdg_lab.parallel.built_batch import BuiltBatch, built_batch
from dtdg_lab.parallel.cached_part import CachedPart, Reach
from dtdg_lab.parallel.target_blocks import BlockShape


@dataclass(frozen=True, slots=True, eq=False)
class BatchMaker:
    """All that a part's batches are a pure function of, beside action and index: small, and fit to be sent.

    Attributes:
        part: its number.
        folder: of its cached files, which are there.
        reach: what they hold.
        sampler: of its targets.
        sizes: of the batches, one for each action.
        shape: what the model needs of the blocks.

    Raises:
        PlanError: there is no size, or the sampler is another part's.
    """

    part: int
    folder: Path
    reach: Reach
    sampler: TargetSampler
    sizes: tuple[BatchSize, ...]
    shape: BlockShape

    def __post_init__(self) -> None:
        if not self.sizes:
            raise PlanError(f"no batch size for the generators of part {self.part}: give one for each action.")
        if self.sampler.part != self.part:
            raise PlanError(f"the sampler of part {self.sampler.part} for the generators of part {self.part}.")

    def opened(self) -> CachedPart:
        """The cached part, mapped from its files.

        Raises:
            DataError: they are gone or damaged.
        """
        return CachedPart(read(self.folder, mmap=True)[0], self.reach)

    def make(self, part: CachedPart, action: int, index: int) -> BuiltBatch:
        """Batch ``index`` of an action, from the opened part."""
        return built_batch(part, self.sampler.batch(self.sizes[action], action, index), self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One part's batches to be, and the reservoir for them.

    Attributes:
        maker: what the batches are made from.
        reservoir: with a place for each of the maker's sizes.

    Raises:
        PlanError: sizes and reservoir differ in their number of actions.
    """

    maker: BatchMaker
    reservoir: Reservoir[BuiltBatch]

    def __post_init__(self) -> None:
        sizes, places = len(self.maker.sizes), len(self.reservoir.capacities)
        if sizes != places:
            raise PlanError(f"{sizes} batch sizes for a reservoir of {places}: every size needs its place in it.")
