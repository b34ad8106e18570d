"""The steps of an epoch: the training part cut in two at random, the later part first, a window at each snapshot."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dtdg_lab.core.batch_plans import HybridBatch
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.streams import generator


def segments(train: range, *, seed: int, epoch: int) -> tuple[range, ...]:
    """The training part, cut at a snapshot drawn anew each epoch; the later segment comes first.

    Args:
        train: consecutive snapshots, at least one.
        seed: of the run.
        epoch: whose cut is asked for.

    Returns:
        ``[s, stop)`` and ``[start, s)``; all of it as one where s is the first.

    Raises:
        PlanError: there is no snapshot, or they are not consecutive.

    References: FlareDTDG section 3.5, algorithm 1. What the paper leaves open: s is drawn evenly.
    """
    if not len(train) or train.step != 1:
        raise PlanError(f"segments of {train}: at least one snapshot, one after another, is needed.")
    cut = int(generator(seed, "batching/segments", epoch).integers(train.start, train.stop))
    return tuple(part for part in (range(cut, train.stop), range(train.start, cut)) if len(part))


def hybrid_batch(
    segment: range,
    target: int,
    *,
    window: int,
    full_snapshots: int,
    counts_newest_first: Sequence[int],
    after: int | None = None,
) -> HybridBatch:
    """The window that ends at a target: as many snapshots as its segment has before it; decayed ones lack first.

    Args:
        segment: consecutive snapshots, among them the target.
        target: t.
        window: W, snapshots of a whole window.
        full_snapshots: K, 1 to W.
        counts_newest_first: chunks of the decayed snapshots of a whole window, W - K of them, newest first.
        after: target of the step before in this segment; t - 1 where not given. State goes on after t - 1 only.

    Raises:
        PlanError: the target is in no such segment, or the numbers do not fit each other.
    """
    if target not in segment:
        raise PlanError(f"target {target} is not in the segment of snapshots {segment.start} to {segment.stop - 1}.")
    if not 1 <= full_snapshots <= window:
        raise PlanError(
            f"full_snapshots={full_snapshots} of window={window}: from 1 to the whole window are allowed. Set fewer "
            "full snapshots, or a longer window."
        )
    if len(counts_newest_first) != window - full_snapshots:
        raise PlanError(
            f"{len(counts_newest_first)} counts of chunks for the {window - full_snapshots} decayed snapshots of a "
            f"window of {window} with {full_snapshots} full ones: each needs one."
        )
    snapshots = range(max(segment.start, target - window + 1), target + 1)
    full = min(full_snapshots, len(snapshots))
    counts = tuple(reversed(counts_newest_first[: len(snapshots) - full]))
    follows = after is None or after == target - 1
    return HybridBatch(target, snapshots, full, counts, carries=follows and target - window >= segment.start)


def epoch_batches(
    train: range,
    *,
    seed: int,
    epoch: int,
    window: int,
    full_snapshots: int,
    counts_newest_first: Sequence[int],
    labelled: Collection[int] | None = None,
) -> tuple[HybridBatch, ...]:
    """All steps of an epoch in order, where nothing changes between them.

    Args:
        train: consecutive snapshots.
        seed: of the run.
        epoch: whose steps are asked for.
        window: W.
        full_snapshots: K, 1 to W.
        counts_newest_first: chunks of the W - K decayed snapshots, newest first.
        labelled: the snapshots that have a step; all where None.

    Raises:
        PlanError: the numbers do not fit each other.
    """
    batches = []
    for segment in segments(train, seed=seed, epoch=epoch):
        before = segment.start - 1
        for target in segment:
            if labelled is not None and target not in labelled:
                continue
            batches.append(
                hybrid_batch(
                    segment, target, window=window, full_snapshots=full_snapshots,
                    counts_newest_first=counts_newest_first, after=before,
                )
            )  # fmt: skip
            before = target
    return tuple(batches)
