"""The time of one fetch of features: our model of a remote procedure call, and the paper's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.systems.feature_cache.costs.cache_costs import Vector

_MS = 1e3


@dataclass(frozen=True, slots=True)
class RpcModel:
    """rtt = a + b bytes + trips delay + bytes / rate.

    Attributes:
        a_s: seconds of a fetch apart from its bytes: its initiation.
        s_per_byte: b, seconds per byte on an unthrottled link.
        trips: number of the fetch's sequential messages; each one is delayed.

    References: SYSTEMS.md section 5, instead of GreenDyGNN's equation 4 (see :class:`PaperRpcModel`).
    """

    a_s: float
    s_per_byte: float
    trips: float = 1.0

    def rtt_s(self, nbytes: ArrayLike, delay_s: ArrayLike = 0.0, bytes_per_s: ArrayLike = np.inf) -> Vector:
        """Return seconds of a fetch of ``nbytes``; arguments broadcast."""
        sizes = np.asarray(nbytes, dtype=np.float64)
        added = self.trips * np.asarray(delay_s, dtype=np.float64) + sizes / np.asarray(bytes_per_s, dtype=np.float64)
        return np.asarray(self.a_s + self.s_per_byte * sizes + added)


@dataclass(frozen=True, slots=True)
class PaperRpcModel:
    """rtt = alpha + beta bytes + gamma bytes delay: kept for comparison, under the name ``paper``.

    Here a delay of 20 ms makes a fetch of 200 kB only 0.8 ms slower, and one without bytes not at all.

    Attributes:
        alpha_s: seconds of a fetch apart from its bytes.
        s_per_byte: beta.
        s_per_byte_ms: gamma, seconds per byte and millisecond of delay.

    References: GreenDyGNN equations 4 and 8, with the constants of section IV-B.
    """

    alpha_s: float = 4.67e-3
    s_per_byte: float = 1.40e-9
    s_per_byte_ms: float = 2.01e-10

    def rtt_s(self, nbytes: ArrayLike, delay_s: ArrayLike = 0.0) -> Vector:
        """Return seconds of a fetch of ``nbytes``; arguments broadcast."""
        sizes, delay_ms = np.asarray(nbytes, dtype=np.float64), np.asarray(delay_s, dtype=np.float64) * _MS
        return np.asarray(self.alpha_s + self.s_per_byte * sizes + self.s_per_byte_ms * sizes * delay_ms)


PAPER = PaperRpcModel()
