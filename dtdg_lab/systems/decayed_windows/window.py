"""The window of a step: how many of its snapshots are full, and how alpha shrinks the older ones (FlareDTDG).

:class:`Trapezoid` is the shape given by the options ``window``, ``full_snapshots``, ``alpha`` and ``decay``.
:func:`decayed_counts` turns alpha into numbers of chunks. :func:`window_at` applies the shape to a target snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, PlanError, shortened
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.rng import generator

WHOLE_CHUNKS = 1  # per part, if all snapshots are full
MAX_CHUNKS, MIN_NODES = 128, 4  # of a part, and of a chunk, where their number is left open
RULES = ("text", "ladder")
_ROUNDING = 1e-9  # tolerance for whole numbers in products of floats


def decayed_counts(rule: str, *, chunks: int, alpha: float, decayed: int) -> tuple[int, ...]:
    """Return the number of chunks of each decayed snapshot, newest first.

    Each count is at least 1 and at most that of the next newer snapshot. ``text``: each snapshot has floor(beta times
    the chunks of the next newer one), starting from C. Beta is the m-th root of alpha, so the oldest has about alpha C.
    ``ladder``: geometric from ceil(alpha C) for the newest to 1 for the oldest, each count rounded up. A single
    decayed snapshot has ceil(alpha C).

    Args:
        rule: ``text`` or ``ladder``.
        chunks: C, per part.
        alpha: above 0, at most 1.
        decayed: m, number of decayed snapshots; 0 gives an empty tuple.

    Raises:
        ConfigError: a value is out of range.

    References: FlareDTDG section 3.2 (``text``), and its released code (``ladder``, there ``auto:alpha``), which also
        matches the memory savings reported in the paper.
    Differs from the released code: a count less than 1e-9 above a whole number is rounded down, as a rounding error.
        The oldest snapshot of a ladder keeps one chunk for any alpha, so ``ladder`` with alpha = 1 is not full history.
    """
    if rule not in RULES or not 0 < alpha <= 1 or chunks < 1:
        raise ConfigError(
            f"decay={shortened(rule)}, alpha={shortened(alpha)}, chunks={chunks} is not allowed: decay is "
            f"{' or '.join(RULES)}, alpha is above 0 and at most 1, and chunks is at least 1."
        )
    if rule == "ladder":
        top, rungs = max(1, math.ceil(alpha * chunks - _ROUNDING)), max(1, decayed - 1)
        return tuple(math.ceil(top ** (1 - rung / rungs) - _ROUNDING) for rung in range(decayed))
    counts = [chunks]
    for _ in range(decayed):
        counts.append(max(1, math.floor(alpha ** (1 / decayed) * counts[-1] + _ROUNDING)))
    return tuple(counts[1:])


def kept_share(counts: Sequence[int], *, chunks: int, full: int) -> float:
    """Return the rows of a window relative to one of full snapshots only, for chunks of equal size; 0 to 1.

    Args:
        counts: chunks of each decayed snapshot.
        chunks: C, of a full snapshot.
        full: K, number of full snapshots.
    """
    return (full * chunks + sum(counts)) / ((full + len(counts)) * chunks)


@dataclass(frozen=True, slots=True)
class Trapezoid:
    """The shape of a run's windows, except near the start of a segment.

    Attributes:
        window: W snapshots.
        full: K, the number of full snapshots, the newest ones.
        chunks: C, per part.
        alpha: target share of chunks.
        decay: the decay rule.

    References: FlareDTDG section 3.2.
    """

    window: int
    full: int
    chunks: int
    alpha: float
    decay: str

    @classmethod
    def of(cls, config: RunConfig, *, chunks: int = WHOLE_CHUNKS) -> Trapezoid:
        """Return the shape that a config requests, for parts of ``chunks`` chunks; 1 chunk if no snapshot decays."""
        options = config.options["batching"]
        window = options["window"]
        if "alpha" not in options:
            return cls(window, window, WHOLE_CHUNKS, 1.0, "text")
        return cls(window, options["full_snapshots"], chunks, options["alpha"], options["decay"])

    @property
    def counts(self) -> tuple[int, ...]:
        """(m,) chunks of each decayed snapshot, newest first."""
        return decayed_counts(self.decay, chunks=self.chunks, alpha=self.alpha, decayed=self.window - self.full)


@dataclass(frozen=True, slots=True)
class Window:
    """The snapshots of one step: the newest in full, older ones decayed.

    Attributes:
        target: t, the newest snapshot, on which the loss is computed.
        snapshots: consecutive snapshots, oldest first; the last is the target.
        full: number of newest snapshots used in full; at least 1.
        counts: number of chunks of every part in each decayed snapshot, oldest first; non-decreasing.
        carries: True if the hidden state is carried over from the previous step. Its window ended one snapshot earlier
            in the same segment and included the snapshot before this window.

    References: FlareDTDG section 3.2 (trapezoid-shaped window, there a hybrid batch).
    """

    target: int
    snapshots: range
    full: int
    counts: tuple[int, ...] = ()
    carries: bool = False

    @property
    def decayed(self) -> range:
        """The decayed snapshots, oldest first."""
        return self.snapshots[: len(self.counts)]


def window_at(segment: range, target: int, shape: Trapezoid, *, after: int | None = None) -> Window:
    """Return the window that ends at a target, cut at the start of its segment.

    A window that reaches beyond the start loses its oldest snapshots: decayed ones, then full ones.

    Args:
        segment: consecutive snapshots that contain the target.
        target: t.
        shape: the shape of a whole window.
        after: the previous step's target in this segment; t - 1 by default. State is only carried over from t - 1.

    Raises:
        PlanError: the target is not in the segment.
    """
    if target not in segment:
        raise PlanError(f"target {target} is not in the segment of snapshots {segment.start} to {segment.stop - 1}.")
    snapshots = range(max(segment.start, target - shape.window + 1), target + 1)
    full = min(shape.full, len(snapshots))
    counts = tuple(reversed(shape.counts[: len(snapshots) - full]))
    follows = after is None or after == target - 1
    return Window(target, snapshots, full, counts, carries=follows and target - shape.window >= segment.start)


def segments(train: range, *, seed: int, epoch: int) -> tuple[range, ...]:
    """Cut the training split at a random snapshot in each epoch; the later segment comes first.

    Args:
        train: consecutive snapshots, at least one.
        seed: of the run.
        epoch: index of the epoch.

    Returns:
        ``[s, stop)`` and ``[start, s)``; a single segment if s is the first snapshot.

    References: FlareDTDG section 3.5, algorithm 1. Left open by the paper: s is uniformly distributed.
    """
    cut = int(generator(seed, "batching/segments", epoch).integers(train.start, train.stop))
    return tuple(segment for segment in (range(cut, train.stop), range(train.start, cut)) if segment)


def epoch_windows(train: range, shape: Trapezoid, *, seed: int, epoch: int) -> tuple[Window, ...]:
    """Return the windows of an epoch's steps in order, one for each snapshot, for a constant shape.

    Args:
        train: consecutive snapshots.
        shape: the shape of a whole window.
        seed: of the run.
        epoch: index of the epoch.
    """
    parts = segments(train, seed=seed, epoch=epoch)
    return tuple(window_at(segment, target, shape) for segment in parts for target in segment)


class BatchRow(NamedTuple):
    """The window of a step as recorded in the table ``batches``, without step and epoch."""

    target: int
    first: int
    full: int
    chunks: list[int | None]
    rows: int
    edges: int
    shrink_s: float
    sampled: list[int] | None


def fitting_chunks(partition: Partition) -> int:
    """Return 128 chunks of a part, or fewer where a chunk would have under 4 nodes."""
    return max(1, min(MAX_CHUNKS, int(partition.counts.min()) // MIN_NODES))
