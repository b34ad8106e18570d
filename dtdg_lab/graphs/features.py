"""Vertex features from degrees, and the next-step label with the baseline that stands beside it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError, UnknownNameError
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.snapshot import Snapshot

KINDS = ("log_degrees", "degrees")


def degree_features(snapshots: tuple[Snapshot, ...], kind: str) -> NDArray[np.float32]:
    """In-degree and out-degree of every vertex and snapshot, weighted where edges carry weights.

    Args:
        snapshots: T snapshots over N vertices.
        kind: ``degrees`` (raw, as in the papers) or ``log_degrees`` (log(1 + degree)).

    Returns:
        Shape (T, N, 2), read-only: in-degree, then out-degree.

    Raises:
        UnknownNameError: another kind.
    """
    if kind not in KINDS:
        raise UnknownNameError("value of features", kind, KINDS)
    features = np.empty((len(snapshots), snapshots[0].num_nodes, 2), dtype=np.float32)
    for t, snapshot in enumerate(snapshots):
        pair = (snapshot.in_degrees(), snapshot.out_degrees())
        for column, degrees in enumerate(pair):
            features[t, :, column] = np.log1p(degrees) if kind == "log_degrees" else degrees
    return give_up(features)


def next_step_labels(
    base: tuple[Snapshot, ...], windows: tuple[Snapshot, ...], *, strict_label: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What is to be predicted at every snapshot but the last, and what "tomorrow is like today" predicts.

    The target at t is log(1 + in-degree in snapshot t + 1), its persistence log(1 + in-degree in snapshot t). With
    ``strict_label`` only edges that the newest base interval of those snapshots holds count: with edges that live
    long, neighbouring snapshots share nearly all of them, and persistence is hard to beat.

    Args:
        base: B snapshots of one base interval each.
        windows: S snapshots of B - S + 1 base intervals each.
        strict_label: count edges of the newest base interval only.

    Returns:
        Targets and persistence, each of shape (S - 1, N), float32, read-only.

    Raises:
        DataError: fewer than two snapshots: the last one is only a label.

    Source: SYSTEMS.md, "Data conventions of the papers" (targets of DynaHB and FlareDTDG); the strict label is ours.
    """
    if len(windows) < 2:
        raise DataError(
            f"{len(base)} base intervals make {len(windows)} snapshot; at least 2 are needed, because the last one is "
            "only a label. Cut more intervals, or lower edge_life."
        )
    counted = base[len(base) - len(windows) :] if strict_label else windows
    logs = np.stack([np.log1p(snapshot.in_degrees()).astype(np.float32) for snapshot in counted])
    return give_up(logs[1:].copy()), give_up(logs[:-1].copy())
