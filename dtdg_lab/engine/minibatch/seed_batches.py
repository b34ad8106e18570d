"""Mini-batches of one part's nodes, a pure function of seed, part and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, DataError, PlanError
from dtdg_lab.core.plans import TargetBatch
from dtdg_lab.core.rng import generator, key


def fanouts_of(text: str, layers: int) -> tuple[int, ...]:
    """(L,) most neighbours drawn for each layer, the first layer first; the last number holds for further layers.

    Args:
        text: whole numbers with blanks between.
        layers: L.

    Raises:
        ConfigError: something else is given, a number is below 1, or there are more numbers than layers and not two.
    """
    texts = text.split()
    if not texts or not all(word.isdecimal() and int(word) > 0 for word in texts):
        raise ConfigError(
            f"fanouts={text!r}: whole numbers of 1 or more with blanks between are needed, one for each layer, the "
            "first layer first: such as '10 25'."
        )
    numbers = [int(word) for word in texts]
    if len(numbers) > max(layers, 2):
        raise ConfigError(
            f"fanouts={text!r}: {len(numbers)} numbers for {layers} layer(s). Give one for each layer, or fewer: the "
            "last one holds for further layers."
        )
    return tuple((numbers + [numbers[-1]] * layers)[:layers])


@dataclass(frozen=True, slots=True, eq=False)
class SeedBatches:
    """The mini-batches of one part: B of its trained nodes at L consecutive snapshots, in a new order every epoch.

    In an epoch every trained node is a seed once in each stretch of L snapshots, or once in all where snapshots are
    alike. Parts have as many batches as the one with the most nodes: smaller ones go round again.

    Attributes:
        seed: of the run.
        part: number of the part.
        seeds: (k,) int64, numbers in the graph of the nodes that may be trained, ascending.
        size: B; batches of fewer nodes are whole parts.
        stretches: of consecutive snapshots that a batch may have, all of one length.
        rounds: batches in which the largest part's nodes are gone through.
        alike: whether snapshots are the same: then a batch has any one stretch.

    Raises:
        DataError: the part has no node to train.
        PlanError: a number below 1, or no stretch.

    References: Hamilton, Ying, Leskovec 2017, algorithm 2 (mini-batches); DistDGL (Zheng et al. 2020) section 5 (every
    trainer has seeds of its own part, and as many batches as the others).
    """

    seed: int
    part: int
    seeds: NDArray[np.int64]
    size: int
    stretches: tuple[range, ...]
    rounds: int
    alike: bool = False

    def __post_init__(self) -> None:
        if not len(self.seeds):
            raise DataError(
                f"part {self.part} has no node whose label may be trained: its mini-batches would be empty. Choose "
                "fewer parts, or another partitioner."
            )
        if self.size < 1 or self.rounds < 1 or not self.stretches:
            raise PlanError(
                f"mini-batches of {self.size} nodes in {self.rounds} rounds of {len(self.stretches)} stretches: "
                "each must be at least 1."
            )

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        return self.rounds * (1 if self.alike else len(self.stretches))

    def batch(self, number: int) -> TargetBatch:
        """Return the batch of a step, counted through all epochs.

        Its targets are numbers in the graph, ascending; a batch whose part has gone round has each once.

        Raises:
            PlanError: the number is negative.
        """
        if number < 0:
            raise PlanError(f"mini-batch {number}: numbers from 0 on are needed.")
        epoch, index = divmod(number, self.per_epoch)
        turn = _turns(self.seed, self.part, epoch, self.per_epoch)[index]
        stretch, chunk = divmod(int(turn), self.rounds)
        if self.alike:
            draw = key(self.seed, "seed-batches/stretch", self.part, number)
            stretch = draw % len(self.stretches)
        order = _order(self.seed, self.part, epoch, stretch if not self.alike else 0, len(self.seeds))
        first = chunk * self.size
        places = np.arange(first, first + min(self.size, len(order))) % len(order)
        return TargetBatch(self.part, 0, number, self.stretches[stretch], np.sort(self.seeds[order[places]]))


@lru_cache(maxsize=64)
def _turns(seed: int, part: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the order of the batches of the epoch."""
    return generator(seed, "seed-batches/turns", part, epoch).permutation(count)


@lru_cache(maxsize=64)
def _order(seed: int, part: int, epoch: int, stretch: int, count: int) -> NDArray[np.int64]:
    """Return the order in which a stretch goes through the part's nodes."""
    return generator(seed, "seed-batches/order", part, epoch, stretch).permutation(count)


def stretches_of(snapshots: range, length: int) -> tuple[range, ...]:
    """Cut the training split into stretches of L consecutive snapshots; the last may overlap the one before.

    Raises:
        ConfigError: the training split is shorter.
    """
    if length > len(snapshots):
        raise ConfigError(
            f"batch_length={length} of a training split of {len(snapshots)} snapshots: at most all of them are allowed."
        )
    firsts = [*range(snapshots.start, snapshots.stop - length + 1, length)]
    if firsts[-1] + length < snapshots.stop:
        firsts.append(snapshots.stop - length)
    return tuple(range(first, first + length) for first in firsts)


def rounds_of(trained: Sequence[int], size: int) -> int:
    """Batches of B nodes in which the largest part is gone through."""
    return max(1, -(-max(trained) // size))
