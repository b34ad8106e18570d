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
_ROUNDING = 1e-9  # tolerance within which a share of a whole is taken for a whole number
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
        value: a share up to 1 (1 is all; rounded up, so that it is at least one item), or a whole number above 1.
        total: number of items, at least 1.
        name: of the option, for messages.

    Returns:
        1 to ``total``.

    Raises:
        ConfigError: the value is invalid or above the total.
    """
    if not _is_size(value) or value > total:
        counts = f" or a whole number from 2 to {total}" if total > 1 else ""
        raise ConfigError(
            f"{name}={shortened(value)} of {total} {_ITEMS.get(name, 'items')}: a share above 0 and up to 1 (1 is all)"
            f"{counts} is allowed."
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
        batch_snapshots: share or number of snapshots, as :func:`resolved` reads it.
        batch_nodes: share or number of targets.
        snapshots: T of the training split.
        candidates: the part's nodes that may be targets.
        options: the options that the two come from, for messages: ``("snapshot_sizes", "node_sizes")`` for a grid.

    Raises:
        ConfigError: one of them is not allowed, for example more snapshots than there are.
    """
    return BatchSize(resolved(batch_snapshots, snapshots, options[0]), resolved(batch_nodes, candidates, options[1]))


def grid(snapshot_sizes: str, node_sizes: str) -> Grid:
    """Return the sizes that a batch-size controller chooses from: each number of snapshots with each of targets.

    Args:
        snapshot_sizes: shares or whole numbers, such as ``"0.1 0.2 0.3"``; spaces or commas between them.
        node_sizes: those of targets.

    Returns:
        (batch_snapshots, batch_nodes) of each action. The action's index is the index in ``snapshot_sizes`` times
        the number of vertex sizes, plus the index in ``node_sizes``.

    Raises:
        ConfigError: a list is empty, repeats a size, or contains an invalid size.

    References: DynaHB section 5.1 (definition 5).
    """
    snapshots, nodes = _parsed("snapshot_sizes", snapshot_sizes), _parsed("node_sizes", node_sizes)
    return tuple((first, second) for first in snapshots for second in nodes)


def _parsed(option: str, text: str) -> tuple[float, ...]:
    """Return the numbers of a list, in its order."""
    example = f"Give some, such as {option}={_EXAMPLES[option]!r}."
    try:
        sizes = tuple(float(item) for item in text.replace(",", " ").split())
    except ValueError as error:
        raise ConfigError(f"{option}={shortened(text)}: {error}. {example}") from error
    if not sizes:
        raise ConfigError(f"{option}={shortened(text)} contains no size. {example}")
    for size in sizes:
        if not _is_size(size):
            raise ConfigError(
                f"{option}={shortened(text)}: {size} is not a size. Shares above 0 and up to 1 (1 is all) and whole "
                f"numbers above 1 are allowed. {example}"
            )
    if len(set(sizes)) < len(sizes):
        raise ConfigError(f"{option}={shortened(text)} repeats a size: list each once.")
    return sizes


def nearest(sizes: Grid, batch_snapshots: float, batch_nodes: float) -> int:
    """Return the action whose sizes are nearest by ratio to the given ones; the first of equally near ones.

    Shares and whole numbers are compared as given: a run should use the same kind for both.

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
    """The sizes that the batches of a run may have: one that is set, or those that a controller chooses from.

    Attributes:
        shares: of each of the N_A choices, the snapshots and nodes as they were given.
        sizes: of each of P parts, N_A sizes.
        initial: the choice to begin with.
    """

    shares: Grid
    sizes: tuple[tuple[BatchSize, ...], ...]
    initial: int

    @classmethod
    def of(cls, config: RunConfig, *, snapshots: int, candidates: Sequence[int]) -> SizeChoices:
        """Return the choices that a config asks for.

        Args:
            config: the run's settings.
            snapshots: T of the training split.
            candidates: nodes that may be targets, of each of P parts.

        Raises:
            ConfigError: a size is beyond the snapshots or nodes that there are, or a controller has one choice.
        """
        empty = [part for part, number in enumerate(candidates) if not number]
        if empty:
            raise ConfigError(
                f"part {empty[0]} has no node with a label that training counts: a batch of its targets has no "
                "loss. Set fewer parts, or another partitioner."
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
                f"batch-size controller {len(shares)} to choose from: 2 to {MAX_CHOICES} are allowed. Change them, or "
                "set batch_policy='none'."
            )
        sizes = by_part(shares, ("snapshot_sizes", "node_sizes"))
        if not any(len(set(part_sizes)) > 1 for part_sizes in sizes):
            raise ConfigError(
                f"a batch policy with one action: all of snapshot_sizes={config['snapshot_sizes']!r} x node_sizes="
                f"{config['node_sizes']!r} come to {sizes[0][0].snapshots} snapshots x {sizes[0][0].vertices} "
                "nodes here. Give sizes that are farther apart, or set batch_policy='none'."
            )
        return cls(shares, sizes, nearest(shares, *fixed))

    def __len__(self) -> int:
        return len(self.shares)
