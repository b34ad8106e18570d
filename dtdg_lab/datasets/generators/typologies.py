"""Money-laundering schemes planted among accounts: fan-in, fan-out, cycle, scatter-gather.

Source: the alert patterns of AMLSim (Weber et al. 2018; Suzumura, Kanezashi 2021), with the margin of 10 % that each
hop keeps in its parameter file for 1,000 accounts.

Differs from AMLSim: a scheme is run again and again, with a period of its own, where an alert there happens once; and
it moves 1,000 to 10,000, ten times what a normal payment does, where amounts there are alike: with so few payments an
account, nothing else could be learned from one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.keys import keys_of

KINDS = ("fan-in", "fan-out", "cycle", "scatter-gather")
SMALLEST, LARGEST = 4, 8  # members of a scheme
SHORTEST, LONGEST = 4, 12  # intervals after which a scheme starts again
LEAST_AMOUNT, MOST_AMOUNT = 1000.0, 10_000.0
MARGIN = 0.1  # what an intermediary keeps


@dataclass(frozen=True, slots=True, eq=False)
class Schemes:
    """A schemes and the S payments they are made of; payment i happens at interval t where
    ``(t + phase[i]) % period[i] == step[i]``.

    Attributes:
        keys: shape (S,): the payments' edges, rising, all different (graphs/keys.py).
        amount: shape (S,), float32.
        step: shape (S,): when in its scheme a payment is made, 0 .. period - 1.
        period: shape (S,): intervals after which its scheme starts again.
        phase: shape (S,): intervals its scheme is ahead by.
        accounts: shape (M,): members of all schemes, scheme by scheme, each in one scheme only.
        scheme: shape (M,): the scheme of every member, 0 .. A - 1; its kind is ``KINDS[scheme % 4]``.
    """

    keys: NDArray[np.int64]
    amount: NDArray[np.float32]
    step: NDArray[np.int64]
    period: NDArray[np.int64]
    phase: NDArray[np.int64]
    accounts: NDArray[np.int64]
    scheme: NDArray[np.int64]

    def at(self, interval: int) -> NDArray[np.bool_]:
        """Which payments are made in an interval, shape (S,)."""
        return (interval + self.phase) % self.period == self.step


def plant(draws: np.random.Generator, nodes: int, *, share: float, snapshots: int) -> Schemes:
    """Schemes among a ``share`` of N = ``nodes`` accounts, about equally many of each kind, at least one.

    Args:
        draws: the random stream.
        nodes: N, at least ``4 * LARGEST``.
        share: of the accounts that are members of a scheme.
        snapshots: B, at least ``SHORTEST``; no period is longer, so that every payment is made.
    """
    schemes = max(len(KINDS), round(share * nodes / ((SMALLEST + LARGEST) / 2)))
    size = draws.integers(SMALLEST, LARGEST + 1, schemes)
    period = draws.integers(SHORTEST, min(LONGEST, snapshots) + 1, schemes)
    phase = draws.integers(0, period)
    amount = draws.uniform(LEAST_AMOUNT, MOST_AMOUNT, schemes)
    accounts = draws.permutation(nodes)[: size.sum()]
    scheme = np.repeat(np.arange(schemes), size)
    src, dst, step, part, of = _payments(draws, accounts, scheme, size, period)
    keys = keys_of(src, dst)
    order = np.argsort(keys)
    of = of[order]
    return Schemes(
        keys=keys[order], amount=(amount[of] * part[order]).astype(np.float32), step=step[order], period=period[of],
        phase=phase[of], accounts=accounts, scheme=scheme,
    )  # fmt: skip


def _payments(
    draws: np.random.Generator,
    accounts: NDArray[np.int64],
    scheme: NDArray[np.int64],
    size: NDArray[np.int64],
    period: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Source, target, step, share of the scheme's amount, and scheme of every payment; shapes (S,)."""
    start = np.cumsum(size) - size
    place = np.arange(len(accounts)) - start[scheme]  # 0 .. size - 1 within the scheme
    kind, length, span = scheme % len(KINDS), size[scheme], period[scheme]
    first, last = accounts[start[scheme]], accounts[(start + size - 1)[scheme]]
    following = accounts[start[scheme] + (place + 1) % length]
    anywhen = draws.integers(0, span)
    early, late = draws.integers(0, span // 2), draws.integers(span // 2, span)
    between = (place > 0) & (place < length - 1)
    much, all_of_it = draws.uniform(0.9, 1.0, len(accounts)), np.ones(len(accounts))
    rows = (
        ((kind == 0) & (place > 0), accounts, first, anywhen, much),
        ((kind == 1) & (place > 0), first, accounts, anywhen, much),
        (kind == 2, accounts, following, place * span // length, (1 - MARGIN) ** place),
        ((kind == 3) & between, first, accounts, early, all_of_it),
        ((kind == 3) & between, accounts, last, late, all_of_it * (1 - MARGIN)),
    )
    src, dst, step, part = (np.concatenate([row[i][row[0]] for row in rows]) for i in range(1, 5))
    return src, dst, step, part, np.concatenate([scheme[row[0]] for row in rows])
