"""How a batch gets its features: own rows, rows of the cache, and the rest from their owners."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.feature_path import OwnerReply
from dtdg_lab.features.cache import FeatureCache
from dtdg_lab.features.fetched import Fetch, fetch_into
from dtdg_lab.features.own_rows import OwnRows
from dtdg_lab.features.sampled import Sampled


@dataclass(frozen=True, slots=True, eq=False)
class ResolveFacts:
    """What resolving a batch took.

    Attributes:
        step: of the batch.
        window: number of the cache's window that served it; -1 without a cache.
        hits: (P,) rows of each part that the cache held; 0 for the own part.
        misses: (P,) rows that each part sent.
        rpcs: requests made.
        nbytes: of requests and replies.
        resolve_s: seconds the resolver took.
        wait_s: seconds that training stood still for the batch, without those for the first cache.
        exposed_s: seconds that it stood still for the first cache.
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
        """Remote rows that the batch asked for."""
        return int(self.hits.sum() + self.misses.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A batch with its features.

    Attributes:
        sampled: the batch.
        rows: (K, F) float32, the rows of ``sampled.keys`` in their order.
        facts: what it took.
    """

    sampled: Sampled
    rows: NDArray[np.float32]
    facts: ResolveFacts


def resolve(
    step: int, sampled: Sampled, own: OwnRows, fetch: Fetch, *, cache: FeatureCache | None = None, window: int = -1
) -> tuple[Resolved, list[OwnerReply]]:
    """The rows of a batch, bitwise the same whatever the cache holds.

    Args:
        step: of the batch.
        sampled: the batch.
        own: rows of its part.
        fetch: asks other parts.
        cache: of others' rows, if there is one.
        window: its number.

    Returns:
        The batch with its rows, and what each owner sent.

    Raises:
        RunFailedError: an owner did not answer, or sent other rows than asked for.
    """
    began, space = time.perf_counter(), own.space
    keys = sampled.keys
    owners = space.owners(keys)
    rows = np.empty((len(keys), own.features), dtype=np.float32)
    mine = owners == own.part
    missed = ~mine
    hits = np.zeros(space.parts, dtype=np.int64)
    if cache is not None and len(cache):
        slots = cache.find(keys)  # own keys are never held
        held = np.flatnonzero(slots >= 0)
        rows[held] = cache.rows[slots[held]]
        missed[held] = False
        hits = np.bincount(owners[held], minlength=space.parts)
    mine = np.flatnonzero(mine)
    rows[mine] = own.take(keys[mine])
    places = np.flatnonzero(missed)
    replies = fetch_into(rows, places, keys[places], owners[places], fetch)
    misses = np.bincount(owners[places], minlength=space.parts)
    nbytes = sum(reply.nbytes for reply in replies)
    facts = ResolveFacts(step, window, hits, misses, len(replies), nbytes, time.perf_counter() - began)
    return Resolved(sampled, rows, facts), replies
