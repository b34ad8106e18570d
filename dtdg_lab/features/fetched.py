"""Rows asked of their owners, put where they belong."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.core.feature_path import OwnerReply

Fetch = Callable[[Mapping[int, NDArray[np.int64]]], dict[int, OwnerReply]]


def fetch_into(
    rows: NDArray[np.float32],
    places: NDArray[np.int64],
    keys: NDArray[np.int64],
    owners: NDArray[np.integer],
    fetch: Fetch,
) -> list[OwnerReply]:
    """Fetch the rows of some keys into ``rows[places]``: one RPC for each owner, all at once, none where none is due.

    Args:
        rows: (K, F) float32, written.
        places: (M,) where the rows belong.
        keys: (M,) theirs.
        owners: (M,) parts that own them.
        fetch: asks owners.

    Raises:
        RunFailedError: an owner did not answer, or sent other rows than asked for.
    """
    if not len(keys):
        return []
    order = np.argsort(owners, kind="stable")
    asked, starts = np.unique(owners[order], return_index=True)
    groups = dict(zip(asked.tolist(), np.split(order, starts[1:]), strict=True))
    replies = fetch({owner: keys[group] for owner, group in groups.items()})
    for owner, group in groups.items():
        sent = replies[owner].rows.shape if owner in replies else "nothing"
        if sent != (len(group), rows.shape[1]):
            raise RunFailedError(
                f"part {owner} sent {sent} for {len(group)} rows of {rows.shape[1]} features. Is it of another run?"
            )
        rows[places[group]] = replies[owner].rows
    return [replies[owner] for owner in groups]
