"""Sizes of hybrid batches (DynaHB), as shares and as numbers of snapshots and targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.core.plans import BatchSize

Grid = tuple[tuple[float, float], ...]

MAX_CHOICES = 1024
_ROUNDING = 1e-9  # tolerance for whole numbers in products of shares
_ITEMS: Mapping[str, str] = MappingProxyType(
    {
        "batch_snapshots": "snapshots of the training split",
        "snapshot_sizes": "snapshots of the training split",
        "batch_nodes": "nodes of the part that may be targets",
        "node_sizes": "nodes of the part that may be targets",
    }
)
_EXAMPLES: Mapping[str, str] = MappingProxyType({"snapshot_sizes": "0.1 0.2 0.3", "node_sizes": "0.01 0.05 0.1"})


def resolved(value: float, total: int, name: str) -> int:
    """Convert a share or a whole number to a number of items.

    Args:
        value: a share up to 1 (1 is all; rounded up to at least one item), or a whole number above 1.
        total: number of items, at least 1.
        name: name of the option, for messages.

    Returns:
        1 to ``total``.

    Raises:
        ConfigError: the value is invalid or above the total.
    """
    if not _is_size(value) or value > total:
        counts = f" or a whole number from 2 to {total}" if total > 1 else ""
        raise ConfigError(
            f"{name}={shortened(value)} is not allowed for {total} {_ITEMS.get(name, 'items')}: give a share above 0 "
            f"and up to 1 (1 is all){counts}."
        )
    return int(value) if value > 1 else max(1, math.ceil(value * total - _ROUNDING))


def _is_size(value: float) -> bool:
    return 0 < value <= 1 or (1 < value < math.inf and value == int(value))


def batch_size(
    batch_snapshots: float,
    batch_nodes: float,
    *,
    snapshots: int,
    candidates: int,
    options: tuple[str, str] = ("batch_snapshots", "batch_nodes"),
) -> BatchSize:
    """Return the size of a part's batches.

    Args:
        batch_snapshots: share or number of snapshots, as in :func:`resolved`.
        batch_nodes: share or number of targets.
        snapshots: T of the training split.
        candidates: number of the part's nodes that may be targets.
        options: names of the two options, for messages: ``("snapshot_sizes", "node_sizes")`` for a grid.

    Raises:
        ConfigError: a value is not allowed, such as more snapshots than there are.
    """
    return BatchSize(resolved(batch_snapshots, snapshots, options[0]), resolved(batch_nodes, candidates, options[1]))


def grid(snapshot_sizes: str, node_sizes: str) -> Grid:
    """Return the sizes that a batch-size controller chooses from: all pairs of numbers of snapshots and of targets.

    Args:
        snapshot_sizes: shares or whole numbers, such as ``"0.1 0.2 0.3"``, separated by spaces or commas.
        node_sizes: the same for targets.

    Returns:
        (batch_snapshots, batch_nodes) of each action. The action's index is the index in ``snapshot_sizes`` times
        the number of sizes in ``node_sizes``, plus the index in ``node_sizes``.

    Raises:
        ConfigError: a list is empty, repeats a size, or contains an invalid size.

    References: DynaHB section 5.1 (definition 5).
    """
    snapshots, nodes = _parsed("snapshot_sizes", snapshot_sizes), _parsed("node_sizes", node_sizes)
    return tuple((first, second) for first in snapshots for second in nodes)


def _parsed(option: str, text: str) -> tuple[float, ...]:
    """Return the numbers of a list, in its order."""
    example = f"Give sizes such as {option}={_EXAMPLES[option]!r}."
    try:
        sizes = tuple(float(item) for item in text.replace(",", " ").split())
    except ValueError as error:
        raise ConfigError(f"{option}={shortened(text)}: {error}. {example}") from error
    if not sizes:
        raise ConfigError(f"{option}={shortened(text)} contains no size. {example}")
    for size in sizes:
        if not _is_size(size):
            raise ConfigError(
                f"{option}={shortened(text)}: {size} is not a size. Give shares above 0 and up to 1 (1 is all), or "
                f"whole numbers above 1. {example}"
            )
    if len(set(sizes)) < len(sizes):
        raise ConfigError(f"{option}={shortened(text)} repeats a size. List each size once.")
    return sizes


def nearest(sizes: Grid, batch_snapshots: float, batch_nodes: float) -> int:
    """Return the action whose sizes are nearest by ratio; of equally near ones, the first.

    Shares and whole numbers are compared as given, so a run should use the same kind for both.

    Args:
        sizes: at least one.
        batch_snapshots: above 0.
        batch_nodes: above 0.
    """
    distances = [
        abs(math.log(snapshots / batch_snapshots)) + abs(math.log(nodes / batch_nodes)) for snapshots, nodes in sizes
    ]
    return distances.index(min(distances))


@dataclass(frozen=True, slots=True)
class SizeChoices:
    """The possible batch sizes of a run: a fixed one, or those that a controller chooses from.

    Attributes:
        shares: snapshots and nodes of each of the N_A choices, as given.
        sizes: N_A sizes of each of P parts.
        initial: the first choice.
    """

    shares: Grid
    sizes: tuple[tuple[BatchSize, ...], ...]
    initial: int

    @classmethod
    def of(cls, config: RunConfig, *, snapshots: int, candidates: Sequence[int]) -> SizeChoices:
        """Return the choices of a config.

        Args:
            config: the run's settings.
            snapshots: T of the training split.
            candidates: number of possible targets of each of P parts.

        Raises:
            ConfigError: a size exceeds the snapshots or nodes, or a controller has only one choice.
        """
        empty = [part for part, number in enumerate(candidates) if not number]
        if empty:
            raise ConfigError(
                f"part {empty[0]} has no labelled node that training counts, so its batches have no loss. Set fewer "
                "parts, or another partitioner."
            )

        def by_part(shares: Grid, options: tuple[str, str]) -> tuple[tuple[BatchSize, ...], ...]:
            return tuple(
                tuple(batch_size(*share, snapshots=snapshots, candidates=number, options=options) for share in shares)
                for number in candidates
            )

        fixed = (config["batch_snapshots"], config["batch_nodes"])
        fixed_sizes = by_part((fixed,), ("batch_snapshots", "batch_nodes"))
        if config["batch_policy"] == "none":
            return cls((fixed,), fixed_sizes, 0)
        shares = grid(config["snapshot_sizes"], config["node_sizes"])
        if not 2 <= len(shares) <= MAX_CHOICES:
            raise ConfigError(
                f"snapshot_sizes={config['snapshot_sizes']!r} x node_sizes={config['node_sizes']!r} give the "
                f"batch-size controller {len(shares)} sizes, but it needs 2 to {MAX_CHOICES}. Change them, or set "
                "batch_policy='none'."
            )
        sizes = by_part(shares, ("snapshot_sizes", "node_sizes"))
        if not any(len(set(part_sizes)) > 1 for part_sizes in sizes):
            raise ConfigError(
                f"the batch-size controller has only one size: all of snapshot_sizes={config['snapshot_sizes']!r} x "
                f"node_sizes={config['node_sizes']!r} come to {sizes[0][0].snapshots} snapshots x "
                f"{sizes[0][0].vertices} nodes. Give sizes that are farther apart, or set batch_policy='none'."
            )
        return cls(shares, sizes, nearest(shares, *fixed))

    def __len__(self) -> int:
        return len(self.shares)
