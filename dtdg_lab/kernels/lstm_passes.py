"""The element-wise part of an LSTM's step in one pass, compiled by numba; only imported where numba is installed.

Forward reads and writes every array once, and so does backward; torch needs eight passes and ten. Single precision, on
the CPU. tanh is a rational function, right to 4e-7; NaN stays NaN.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_LARGEST = np.float32(7.905311)  # tanh is 1 in single precision from here on
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
# x P(x^2) / Q(x^2), highest powers first: the minimax approximation of Eigen and XLA
_LOW = (1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)
_P = tuple(
    np.float32(p)
    for p in (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, *_LOW)
)
_Q = tuple(
    np.float32(q) for q in (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
)
_COMPILED: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True, "cache": True}


@numba.njit(inline="always", **_COMPILED)
def _tanh(x: Any) -> Any:
    x = -_LARGEST if x < -_LARGEST else x
    x = _LARGEST if x > _LARGEST else x
    s = x * x
    p = ((((((_P[0] * s + _P[1]) * s + _P[2]) * s + _P[3]) * s + _P[4]) * s + _P[5]) * s + _P[6]) * x
    return p / (((_Q[0] * s + _Q[1]) * s + _Q[2]) * s + _Q[3])


@numba.njit(**_COMPILED)
def forward(gates: Any, before: Any, after: Any, tanhs: Any, h: Any) -> None:
    """See :func:`dtdg_lab.kernels.recurrence.TorchPasses.forward`."""
    width = len(before)
    for row in range(width):
        takes, forgets, gives, candidates = (
            gates[row],
            gates[width + row],
            gates[2 * width + row],
            gates[3 * width + row],
        )
        c, to_c, to_tanh, to_h = before[row], after[row], tanhs[row], h[row]
        for node in range(before.shape[1]):
            take = _HALF + _HALF * _tanh(_HALF * takes[node])
            forget = _HALF + _HALF * _tanh(_HALF * forgets[node])
            give = _HALF + _HALF * _tanh(_HALF * gives[node])
            candidate = _tanh(-_HALF * candidates[node])
            cell = forget * c[node] + take * candidate
            tanh = _tanh(cell)
            takes[node], forgets[node], gives[node], candidates[node] = take, forget, give, candidate
            to_c[node], to_tanh[node], to_h[node] = cell, tanh, give * tanh


@numba.njit(**_COMPILED)
def backward(  # noqa: PLR0917 - numba compiles functions of positional arguments
    gates: Any, before: Any, tanhs: Any, dh: Any, dc: Any, dgates: Any
) -> None:
    """See :func:`dtdg_lab.kernels.recurrence.TorchPasses.backward`."""
    width = len(before)
    for row in range(width):
        takes, forgets, gives, candidates = (
            gates[row],
            gates[width + row],
            gates[2 * width + row],
            gates[3 * width + row],
        )
        d_takes, d_forgets, d_gives = dgates[row], dgates[width + row], dgates[2 * width + row]
        d_candidates, c, ts, of_h, of_c = dgates[3 * width + row], before[row], tanhs[row], dh[row], dc[row]
        for node in range(before.shape[1]):
            take, forget, give, candidate, tanh = takes[node], forgets[node], gives[node], candidates[node], ts[node]
            d_cell = of_c[node] + of_h[node] * give * (_ONE - tanh * tanh)
            d_takes[node] = d_cell * candidate * take * (_ONE - take)
            d_forgets[node] = d_cell * c[node] * forget * (_ONE - forget)
            d_gives[node] = of_h[node] * tanh * give * (_ONE - give)
            d_candidates[node] = d_cell * take * (_ONE - candidate * candidate)
            of_c[node] = d_cell * forget
