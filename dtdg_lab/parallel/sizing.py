"""The sizes that the batches of a run may have: one that is set, or those that an adjuster chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dtdg_lab.batching.batch_sizes import Grid, adjustable, batch_size, grid, nearest
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.target_batches import BatchSize

MOST_CHOICES = 1024

Sizes = tuple[tuple[BatchSize, ...], ...]


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sizes of batches, the same choices for every part.

    Attributes:
        shares: of each of the N_A choices, the snapshots and vertices as they were given.
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
            snapshots: T of the training part.
            candidates: vertices that may be targets, of each of P parts.

        Raises:
            ConfigError: a size is beyond the snapshots or vertices that there are, or an adjuster has one choice.
        """
        set_by_hand = (config["batch_snapshots"], config["batch_vertices"])
        empty = [part for part, number in enumerate(candidates) if not number]
        if empty:
            raise ConfigError(
                f"part {empty[0]} has no vertex with a label that training counts: a batch of its targets has no "
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
                "vertices here. Give sizes that are farther apart, or set adjuster='none'."
            )
        if len(shares) > MOST_CHOICES:
            raise ConfigError(f"{len(shares)} sizes to choose from: at most {MOST_CHOICES} are allowed. Give fewer.")
        return cls(shares, sizes, nearest(shares, *set_by_hand))

    def __len__(self) -> int:
        return len(self.shares)

    def told(self) -> list[list[int]]:
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
