"""What is known where a cache was swapped in and the next window is decided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.features.lookahead import Lookahead


@dataclass(frozen=True, slots=True)
class FetchTime:
    """One RPC.

    Attributes:
        owner: part that was asked.
        purpose: ``miss`` for rows of a batch, ``bulk`` for those of a cache.
        rows: asked for.
        nbytes: of request and reply.
        rtt_s: seconds until the last byte.
        step: of the batch, or the first of the cache's window.
    """

    owner: int
    purpose: str
    rows: int
    nbytes: int
    rtt_s: float
    step: int


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of training: its seconds, and its joules where they are known."""

    seconds: float
    joules: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """Facts at a swap; what is counted is counted since the swap before. P parts; vectors have a 0 for the own part.

    Attributes:
        part: whose cache it is.
        parts: P.
        number: of the window that is to be decided.
        step: its first step, if it is not late.
        steps_left: of the epoch from there on.
        previous: action that holds until then; the nearest one where the window is none of the actions'.
        served: batches resolved.
        remote: (P,) rows of each part that they asked for.
        hits: (P,) of these, rows that the cache held.
        resolve_s: seconds that resolving them took in all.
        fetches: RPCs made, for batches and for caches.
        rebuild_s: seconds that building the cache just swapped in took.
        late_steps: by which its swap came late.
        stepped: steps of training that ended.
        lookahead: the batches from ``step`` on that are sampled already.
        now: the step that is resolved next.
        early: whether a change of the links was found within the window that serves, which may be abandoned.
        pending: action that was decided to follow it, or the nearest one; -1 where it is not early.
        left: steps that it has left then.
    """

    part: int
    parts: int
    number: int
    step: int
    steps_left: int
    previous: int
    served: int
    remote: NDArray[np.int64]
    hits: NDArray[np.int64]
    resolve_s: float
    fetches: tuple[FetchTime, ...]
    rebuild_s: float
    late_steps: int
    stepped: tuple[StepTime, ...]
    lookahead: Lookahead
    now: int = -1
    early: bool = False
    pending: int = -1
    left: int = 0
