"""Sizes of hybrid batches, as they are given and as numbers of snapshots and targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.core.target_batches import BatchSize

Grid = tuple[tuple[float, float], ...]

_ROUNDING = 1e-9  # what a share of a whole may miss a whole number by, and still be taken for it
_COUNTED: Mapping[str, str] = MappingProxyType({
    "batch_snapshots": "snapshots of the training part", "snapshot_sizes": "snapshots of the training part",
    "batch_vertices": "vertices of the part that may be targets",
    "vertex_sizes": "vertices of the part that may be targets",
})  # fmt: skip


def resolved(value: float, whole: int, name: str) -> int:
    """What is given as a share or as a whole number, as a number of items.

    Args:
        value: a share up to 1 (1 is all; rounded up, so that it is at least one item), or a whole number above 1.
        whole: how many items there are, at least 1.
        name: of the option, for messages.

    Returns:
        1 to ``whole``.

    Raises:
        ConfigError: the value is no such number or is above the whole, or there is no item.
    """
    items = _COUNTED.get(name, "items")
    given = f"{name}={shortened(value)} of {whole} {items}"
    if whole < 1:
        raise ConfigError(f"{given}: there is none to take. Set fewer parts, or choose other data.")
    if not math.isfinite(value) or value <= 0 or value > whole or (value > 1 and value != int(value)):
        counts = f" or a whole number from 2 to {whole}" if whole > 1 else ""
        raise ConfigError(f"{given}: a share above 0 up to 1 (1 is all, a small one is one){counts} is allowed.")
    return int(value) if value > 1 else max(1, math.ceil(value * whole - _ROUNDING))


def batch_size(
    batch_snapshots: float,
    batch_vertices: float,
    *,
    snapshots: int,
    candidates: int,
    named: tuple[str, str] = ("batch_snapshots", "batch_vertices"),
) -> BatchSize:
    """The size of a part's batches.

    Args:
        batch_snapshots: share or number of snapshots, as :func:`resolved` reads it.
        batch_vertices: share or number of targets.
        snapshots: T of the training part.
        candidates: the part's vertices that may be targets.
        named: the options that gave the two, for messages: ``("snapshot_sizes", "vertex_sizes")`` where a grid did.

    Raises:
        ConfigError: one of them is not allowed, such as more snapshots than there are.
    """
    return BatchSize(resolved(batch_snapshots, snapshots, named[0]), resolved(batch_vertices, candidates, named[1]))


def grid(snapshot_sizes: str, vertex_sizes: str) -> Grid:
    """The sizes an adjuster chooses from: each number of snapshots with each number of targets.

    Args:
        snapshot_sizes: shares or whole numbers, such as ``"0.1 0.2 0.3"``; spaces or commas between them.
        vertex_sizes: those of targets.

    Returns:
        (batch_snapshots, batch_vertices) of each action; action = place of the first times number of vertex sizes +
        place of the second.

    Raises:
        ConfigError: a list is empty, names a size twice, or holds what is no size.

    References: DynaHB section 5.1 (definition 5).
    """
    first, second = _sizes("snapshot_sizes", snapshot_sizes), _sizes("vertex_sizes", vertex_sizes)
    return tuple((snapshots, vertices) for snapshots in first for vertices in second)


def adjustable(sizes: Grid) -> Grid:
    """The same sizes, where there is something to choose from.

    Raises:
        ConfigError: there is one only.
    """
    if len(sizes) < 2:
        raise ConfigError(
            f"an adjuster with one action, {shortened(sizes)}, has nothing to choose. Give more snapshot_sizes or "
            "vertex_sizes, or set adjuster='none'."
        )
    return sizes


def nearest(sizes: Grid, batch_snapshots: float, batch_vertices: float) -> int:
    """The action whose sizes are nearest by ratio to the given ones; the first of equally near ones.

    Shares and whole numbers are compared as they are given: a run should give both in the same way.

    Args:
        sizes: at least one.
        batch_snapshots: above 0.
        batch_vertices: above 0.

    Raises:
        ConfigError: a number is not above 0.
    """
    if not (batch_snapshots > 0 and batch_vertices > 0):
        raise ConfigError(
            f"batch_snapshots={shortened(batch_snapshots)}, batch_vertices={shortened(batch_vertices)}: numbers "
            "above 0 are needed."
        )
    far = [
        abs(math.log(snapshots / batch_snapshots)) + abs(math.log(vertices / batch_vertices))
        for snapshots, vertices in sizes
    ]
    return far.index(min(far))


def _sizes(name: str, text: str) -> tuple[float, ...]:
    """The numbers of a list, in its order."""
    words = text.replace(",", " ").split()
    if not words:
        raise ConfigError(f"{name}={shortened(text)} names no size. {_example(name)}")
    try:
        sizes = tuple(float(word) for word in words)
    except ValueError as error:
        raise ConfigError(f"{name}={shortened(text)}: {error}. {_example(name)}") from error
    for size in sizes:
        if not math.isfinite(size) or size <= 0 or (size > 1 and size != int(size)):
            raise ConfigError(
                f"{name}={shortened(text)}: {size} is no size. Shares above 0 up to 1 (1 is all) and whole numbers "
                f"above 1 are allowed. {_example(name)}"
            )
    if len(set(sizes)) < len(sizes):
        raise ConfigError(f"{name}={shortened(text)} names a size twice: name each once.")
    return sizes


def _example(name: str) -> str:
    return f"Give some, such as {name}={'0.1 0.2 0.3' if name == 'snapshot_sizes' else '0.01 0.05 0.1'!r}."
