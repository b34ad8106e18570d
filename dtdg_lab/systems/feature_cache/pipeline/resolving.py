"""The features of a batch: own rows, cached rows, and the rest from their owners."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.pipeline.cache import FeatureCache
from dtdg_lab.systems.feature_cache.pipeline.fetching import Fetch, OwnerReply, fetch_into
from dtdg_lab.systems.feature_cache.pipeline.keys import OwnRows


class Sampled(Protocol):
    """A batch with sampled neighbours and without features."""

    @property
    def keys(self) -> NDArray[np.int64]:
        """(K,) distinct keys of the first layer's inputs, in the order of the requested rows."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory of the batch in bytes."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ResolveFacts:
    """Costs of resolving a batch.

    Attributes:
        step: step of the batch.
        window: index of the cache's window; -1 without a cache.
        hits: (P,) rows of each part that the cache contained; 0 for the own part.
        misses: (P,) rows that each part sent.
        rpcs: number of requests.
        nbytes: bytes of requests and replies.
        resolve_s: seconds of the resolver.
        wait_s: seconds that training waited for the batch, except for the first cache.
        exposed_s: seconds that it waited for the first cache.
    """

    step: int
    window: int
    hits: NDArray[np.int64]
    misses: NDArray[np.int64]
    rpcs: int
    nbytes: int
    resolve_s: float
    wait_s: float = 0.0
    exposed_s: float = 0.0

    @property
    def remote(self) -> int:
        """Number of remote rows of the batch."""
        return int(self.hits.sum() + self.misses.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A batch with its features.

    Attributes:
        sampled: the batch.
        rows: (K, F) float32, the rows of ``sampled.keys`` in their order.
        facts: costs of resolving it.
    """

    sampled: Sampled
    rows: NDArray[np.float32]
    facts: ResolveFacts


def resolve(
    step: int, sampled: Sampled, own_rows: OwnRows, fetch: Fetch, *, cache: FeatureCache | None = None, window: int = -1
) -> tuple[Resolved, list[OwnerReply]]:
    """Collect the rows of a batch, bitwise the same for any cache.

    Args:
        step: step of the batch.
        sampled: the batch.
        own_rows: rows of its part.
        fetch: requests rows from other parts.
        cache: cache of remote rows, if any.
        window: index of the cache's window.

    Returns:
        The batch with its rows, and the reply of each owner.

    Raises:
        RunFailedError: an owner did not answer, or returned the wrong rows.
    """
    start, space = time.perf_counter(), own_rows.space
    keys = sampled.keys
    owners = space.owners(keys)
    rows = np.empty((len(keys), own_rows.features), dtype=np.float32)
    is_own = owners == own_rows.part
    missed = ~is_own
    hits = np.zeros(space.parts, dtype=np.int64)
    if cache is not None and len(cache):
        slots = cache.find(keys)  # own keys are never cached
        cached = np.flatnonzero(slots >= 0)
        rows[cached] = cache.rows[slots[cached]]
        missed[cached] = False
        hits = np.bincount(owners[cached], minlength=space.parts)
    own_indices = np.flatnonzero(is_own)
    rows[own_indices] = own_rows.take(keys[own_indices])
    indices = np.flatnonzero(missed)
    replies = fetch_into(rows, indices, keys[indices], owners[indices], fetch)
    misses = np.bincount(owners[indices], minlength=space.parts)
    nbytes = sum(reply.nbytes for reply in replies)
    facts = ResolveFacts(step, window, hits, misses, len(replies), nbytes, time.perf_counter() - start)
    return Resolved(sampled, rows, facts), replies
