"""Requests for feature rows of other parts, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import RunFailedError


@dataclass(frozen=True, slots=True)
class OwnerReply:
    """The reply of one owner.

    Attributes:
        owner: number of its part.
        rows: (k, F) float32, in the requested order.
        rtt_s: seconds from the request to the last byte.
        nbytes: bytes of request and reply.
    """

    owner: int
    rows: NDArray[np.float32]
    rtt_s: float
    nbytes: int


class Fetcher(Protocol):
    """Fetches feature rows from their owners. Not thread-safe."""

    def fetch(self, keys_by_owner: Mapping[int, NDArray[np.int64]]) -> dict[int, OwnerReply]:
        """Fetch from all owners concurrently, one RPC each, and return when the last has replied.

        Args:
            keys_by_owner: keys of the rows of each owner, at least one per owner.

        Raises:
            RunFailedError: an owner timed out or refused; the message names it.
        """
        ...

    def close(self) -> None:
        """Disconnect; idempotent."""
        ...


Fetch = Callable[[Mapping[int, NDArray[np.int64]]], dict[int, OwnerReply]]


def fetch_into(
    rows: NDArray[np.float32],
    indices: NDArray[np.int64],
    keys: NDArray[np.int64],
    owners: NDArray[np.integer],
    fetch: Fetch,
) -> list[OwnerReply]:
    """Fetch the rows of some keys into ``rows[indices]``: one RPC per owner, all at once.

    Args:
        rows: (K, F) float32, output.
        indices: (M,) row indices of the keys.
        keys: (M,) keys of the rows.
        owners: (M,) parts that own them.
        fetch: requests rows from owners.

    Raises:
        RunFailedError: an owner did not answer, or returned the wrong rows.
    """
    if not len(keys):
        return []
    order = np.argsort(owners, kind="stable")
    requested_owners, starts = np.unique(owners[order], return_index=True)
    groups = dict(zip(requested_owners.tolist(), np.split(order, starts[1:]), strict=True))
    replies = fetch({owner: keys[group] for owner, group in groups.items()})
    for owner, group in groups.items():
        sent = replies[owner].rows.shape if owner in replies else "nothing"
        if sent != (len(group), rows.shape[1]):
            raise RunFailedError(
                f"part {owner} sent {sent} for {len(group)} rows of {rows.shape[1]} features. Is it of another run?"
            )
        rows[indices[group]] = replies[owner].rows
    return [replies[owner] for owner in groups]
