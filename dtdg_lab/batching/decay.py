"""How many chunks of each part the decayed snapshots of a window have."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtdg_lab.core.errors import ConfigError, shortened

RULES = ("text", "ladder")
_ROUNDING = 1e-9  # what a product of floats may miss a whole number by, and still be taken for it


def decayed_counts(rule: str, *, chunks: int, alpha: float, decayed: int) -> tuple[int, ...]:
    """Chunks of each decayed snapshot, newest first; at least one, and never more than in a newer one.

    ``text``: each has floor(beta times those of the one after it), from C on; beta is the m-th root of alpha, so that
    the oldest has about alpha C. ``ladder``: geometric from ceil(alpha C) for the newest down to 1 for the oldest, each
    rung rounded up; where one is decayed, it has ceil(alpha C).

    Args:
        rule: ``text`` or ``ladder``.
        chunks: C, of a part.
        alpha: above 0, at most 1.
        decayed: m; none give an empty tuple.

    Raises:
        ConfigError: a value is not allowed.

    References: FlareDTDG section 3.2 (``text``), and its released code (``ladder``, where it is ``auto:alpha``), which
        also fits the savings of memory that the paper reports.
    Differs from the released code: a rung that floats put less than 1e-9 above a whole number is that number. The
        oldest snapshot of a ladder keeps one chunk whatever alpha is, so ``ladder`` with alpha = 1 is not full history.
    """
    if rule not in RULES:
        raise ConfigError(f"decay={shortened(rule)}: {' and '.join(RULES)} are allowed.")
    if not 0 < alpha <= 1:
        raise ConfigError(f"alpha={shortened(alpha)}: a share of chunks above 0 and at most 1 is needed.")
    if chunks < 1 or decayed < 0:
        raise ConfigError(f"{chunks} chunks and {decayed} decayed snapshots: at least 1 and at least 0 are needed.")
    return _text(chunks, alpha, decayed) if rule == "text" else _ladder(chunks, alpha, decayed)


def kept_share(counts: Sequence[int], *, chunks: int, full: int) -> float:
    """Rows a window has of those it would have if every snapshot were full, where all chunks are alike; 0 to 1.

    Args:
        counts: chunks of each decayed snapshot.
        chunks: C, of a full one.
        full: K, how many are full.

    Raises:
        ConfigError: there is no snapshot, or no chunk.
    """
    snapshots = full + len(counts)
    if snapshots < 1 or chunks < 1:
        raise ConfigError(
            f"the share of rows in {snapshots} snapshots of {chunks} chunks: at least 1 of each is needed."
        )
    return (full * chunks + sum(counts)) / (snapshots * chunks)


def _text(chunks: int, alpha: float, decayed: int) -> tuple[int, ...]:
    counts: list[int] = []
    for _ in range(decayed):
        before = counts[-1] if counts else chunks
        counts.append(max(1, math.floor(alpha ** (1 / decayed) * before + _ROUNDING)))
    return tuple(counts)


def _ladder(chunks: int, alpha: float, decayed: int) -> tuple[int, ...]:
    top = max(1, math.ceil(alpha * chunks - _ROUNDING))
    steps = max(1, decayed - 1)
    return tuple(math.ceil(top ** (1 - place / steps) - _ROUNDING) for place in range(decayed))
