"""A generator of payments among accounts with planted money-laundering schemes, similar to AMLSim.

Every account has partners that it pays repeatedly, popular accounts are paid by many, and a few accounts run schemes.
AMLSim itself is an agent-based simulator in Python and Java with balances, banks, cash and account models, which are
not modelled here. datasets/formats/temporal.py reads data of AMLSim.

Source: Weber et al. 2018, "Scalable Graph Learning for Anti-Money Laundering: A First Look" (AMLSim), and the released
simulator (Suzumura, Kanezashi 2021). Differs from it as said above; the sizes and periods are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.generators import base
from dtdg_lab.datasets.generators.base import Generated, Keys, checked_settings
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import Snapshot, keys_of, read_only

# Money-laundering schemes planted among accounts: fan-in, fan-out, cycle, scatter-gather.
#
# Source: the alert patterns of AMLSim (Weber et al. 2018; Suzumura, Kanezashi 2021), with the margin of 10 % for each
# hop of its parameter file for 1,000 accounts.
#
# Differs from AMLSim: a scheme repeats with a period of its own, where an alert in AMLSim happens once. It moves 1,000
# to 10,000, ten times a normal payment, where amounts in AMLSim are alike. With so few payments for each account, one
# snapshot could teach nothing else.


KINDS = ("fan-in", "fan-out", "cycle", "scatter-gather")
SMALLEST, LARGEST = 4, 8  # members of a scheme
SHORTEST, LONGEST = 4, 12  # intervals after which a scheme starts again
LEAST_AMOUNT, MOST_AMOUNT = 1000.0, 10_000.0
MARGIN = 0.1  # share that an intermediary keeps


@dataclass(frozen=True, slots=True, eq=False)
class Schemes:
    """A schemes and their S payments.

    Payment i happens at interval t where ``(t + phase[i]) % period[i] == step[i]``.

    Attributes:
        keys: shape (S,): rising keys of the payments' edges, all different (graphs/snapshot.py).
        amount: shape (S,), float32.
        step: shape (S,): step of a payment in its scheme, 0 .. period - 1.
        period: shape (S,): intervals after which its scheme starts again.
        phase: shape (S,): offset of its scheme, in intervals.
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
        """Return which payments are made in an interval, shape (S,)."""
        return (interval + self.phase) % self.period == self.step


def plant(draws: np.random.Generator, nodes: int, *, share: float, snapshots: int) -> Schemes:
    """Plant schemes among a ``share`` of N = ``nodes`` accounts, at least one and about equally many of each kind.

    Args:
        draws: the random stream.
        nodes: N, at least ``4 * LARGEST``.
        share: share of the accounts that are members of a scheme.
        snapshots: B, at least ``SHORTEST``; no period is longer, so that every payment is made.
    """
    schemes = max(len(KINDS), round(share * nodes / ((SMALLEST + LARGEST) / 2)))
    size = draws.integers(SMALLEST, LARGEST + 1, schemes)
    period = draws.integers(SHORTEST, min(LONGEST, snapshots) + 1, schemes)
    phase = draws.integers(0, period)
    amount = draws.uniform(LEAST_AMOUNT, MOST_AMOUNT, schemes)
    accounts = draws.permutation(nodes)[: size.sum()]
    scheme = np.repeat(np.arange(schemes), size)
    src, dst, step, part, owner = _payments(draws, accounts, scheme, size, period)
    keys = keys_of(src, dst)
    order = np.argsort(keys)
    owner = owner[order]
    return Schemes(
        keys=keys[order],
        amount=(amount[owner] * part[order]).astype(np.float32),
        step=step[order],
        period=period[owner],
        phase=phase[owner],
        accounts=accounts,
        scheme=scheme,
    )


def _payments(
    draws: np.random.Generator,
    accounts: NDArray[np.int64],
    scheme: NDArray[np.int64],
    size: NDArray[np.int64],
    period: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return source, target, step, share of the scheme's amount, and scheme of every payment; shapes (S,)."""
    start = np.cumsum(size) - size
    position = np.arange(len(accounts)) - start[scheme]  # 0 .. size - 1 within the scheme
    kind, length, span = scheme % len(KINDS), size[scheme], period[scheme]
    first, last = accounts[start[scheme]], accounts[(start + size - 1)[scheme]]
    following = accounts[start[scheme] + (position + 1) % length]
    anywhen = draws.integers(0, span)
    early, late = draws.integers(0, span // 2), draws.integers(span // 2, span)
    between = (position > 0) & (position < length - 1)
    much, all_of_it = draws.uniform(0.9, 1.0, len(accounts)), np.ones(len(accounts))
    rows = (
        ((kind == 0) & (position > 0), accounts, first, anywhen, much),
        ((kind == 1) & (position > 0), first, accounts, anywhen, much),
        (kind == 2, accounts, following, position * span // length, (1 - MARGIN) ** position),
        ((kind == 3) & between, first, accounts, early, all_of_it),
        ((kind == 3) & between, accounts, last, late, all_of_it * (1 - MARGIN)),
    )
    src, dst, step, part = (np.concatenate([row[i][row[0]] for row in rows]) for i in range(1, 5))
    return src, dst, step, part, np.concatenate([scheme[row[0]] for row in rows])


LEAST_ACCOUNTS = 2 * len(KINDS) * LARGEST
# of a normal payment, as in AMLSim's parameter file for 1,000 accounts
NORMAL_LEAST, NORMAL_MOST = 100.0, 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions(Generated):
    """Payments among accounts. Class 1 are the members of a scheme, class 0 the others. Weights are amounts.

    Attributes:
        suspicious: share of the accounts that are members of a scheme; at least one scheme of each kind is planted.
        partners: pairs of accounts that pay each other, per payment of a snapshot.
        zipf: exponent of the popularity of accounts as receivers.
    """

    suspicious: float = 0.05
    partners: int = 3
    zipf: float = 0.6
    cite: str = "imitates Weber et al. 2018 (AMLSim)"

    @checked_settings
    def generate(self, *, seed: int, nodes: int, edges: int, snapshots: int) -> IntervalStream:
        """Generate B = ``snapshots`` base intervals without self loops or duplicates, with weights and classes.

        Args:
            seed: seed of the random streams.
            nodes: N, accounts; at least 64.
            edges: payments of each snapshot, including those of the schemes.
            snapshots: B.

        Returns:
            Intervals with ``classes`` and ``vertex_split`` of shape (N,). Of the other nodes, and of whole schemes,
            60 % train, 20 % validate and 20 % test.

        Raises:
            ConfigError: a setting is out of its bounds, there are too few accounts or payments for the schemes, or too
                many payments for the accounts.
        """
        if nodes < LEAST_ACCOUNTS:
            raise ConfigError(
                f"generated_nodes={nodes}: at least {LEAST_ACCOUNTS} accounts are needed to hide the schemes among."
            )
        weights = base.popularity(seed, "transactions/popularity", nodes, zipf=self.zipf, shift=10.0)
        schemes = plant(generator(seed, "transactions/schemes"), nodes, share=self.suspicious, snapshots=snapshots)
        minimum, maximum = 2 * len(schemes.keys), nodes * (nodes - 1) // (4 * self.partners)
        if not minimum <= edges <= maximum:
            raise ConfigError(
                f"generated_edges={edges} with generated_nodes={nodes}: allowed {minimum}, twice the payments of the "
                f"schemes, to {maximum}, for which there are {self.partners} pairs of partners each. Change either."
            )
        draws = generator(seed, "transactions/partners")
        pairs = base.new_keys(draws, base.popular_targets(weights), schemes.keys, edges * self.partners)
        classes = np.zeros(nodes, dtype=np.int16)
        classes[schemes.accounts] = 1
        draws = generator(seed, "transactions/parts")
        parts = base.random_parts(draws, nodes)
        parts[schemes.accounts] = base.random_parts(draws, int(schemes.scheme[-1]) + 1)[schemes.scheme]
        return IntervalStream(
            num_intervals=snapshots,
            num_nodes=nodes,
            weighted=True,
            rows=edges * snapshots,
            classes=read_only(classes),
            vertex_split=read_only(parts),
            make=partial(_snapshots, seed, pairs, schemes, nodes, [edges] * snapshots),
        )


def _snapshots(seed: int, pairs: Keys, schemes: Schemes, nodes: int, counts: list[int]) -> Iterator[Snapshot]:
    for interval, count in enumerate(counts):
        draws = generator(seed, "transactions/payments", interval)
        active = schemes.at(interval)
        normal = base.some(draws, pairs, count - int(active.sum()))
        amount = draws.uniform(NORMAL_LEAST, NORMAL_MOST, len(normal)).astype(np.float32)
        keys = np.concatenate([normal, schemes.keys[active]])
        order = np.argsort(keys, kind="stable")  # two rising runs without common keys
        yield base.snapshot_of_rising(keys[order], nodes, np.concatenate([amount, schemes.amount[active]])[order])


TRANSACTIONS = Transactions(name="transactions")
