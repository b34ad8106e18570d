"""Generated payments among accounts, with planted money-laundering schemes: in the manner of AMLSim, not AMLSim.

Every account has partners that it pays again and again, popular accounts are paid by many, and a few accounts run
schemes (typologies.py). AMLSim itself is an agent-based simulator in Python and Java with balances, banks, cash and
account models; none of that is here. Data that AMLSim wrote is read by datasets/formats/amlsim.py.

Source: Weber et al. 2018, "Scalable Graph Learning for Anti-Money Laundering: A First Look" (AMLSim), and the released
simulator (Suzumura, Kanezashi 2021). Differs from it as said above; the sizes and periods are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.streams import generator
from dtdg_lab.datasets.generators.renewal import new_keys, popular_targets, popularity
from dtdg_lab.datasets.generators.settings import checked_settings
from dtdg_lab.datasets.generators.sorted_keys import Keys, snapshot_of_rising, some
from dtdg_lab.datasets.generators.typologies import KINDS, LARGEST, Schemes, plant
from dtdg_lab.datasets.generators.vertex_parts import random_parts
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import Snapshot

LEAST_ACCOUNTS = 2 * len(KINDS) * LARGEST
LEAST_AMOUNT, MOST_AMOUNT = 100.0, 1000.0  # of a normal payment, as in AMLSim's parameter file for 1,000 accounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Payments among accounts; class 1 are the members of a scheme, class 0 the others; weights are amounts.

    Attributes:
        name: the data set's name in the lab.
        suspicious: share of the accounts that are members of a scheme; at least one scheme of each kind is planted.
        partners: pairs of accounts that pay each other, for each payment of a snapshot.
        zipf: exponent of the popularity of accounts as receivers.
        licence: of what is generated.
        cite: where the idea is from.
        version: of the graphs.
    """

    name: str
    suspicious: float = 0.05
    partners: int = 3
    zipf: float = 0.6
    licence: str = "none needed: generated here"
    cite: str = "imitates Weber et al. 2018 (AMLSim)"
    version: int = 1

    @checked_settings
    def generate(self, *, seed: int, nodes: int, edges: int, snapshots: int) -> IntervalStream:
        """B = ``snapshots`` base intervals without self loops or duplicates, with amounts as weights, and classes.

        Args:
            seed: seed of the random streams.
            nodes: N, accounts; at least 64.
            edges: payments of each snapshot, those of the schemes counted.
            snapshots: B.

        Returns:
            Intervals with ``classes`` and ``vertex_split`` of shape (N,): of the vertices, and of the schemes, each
            with all its members, 60 % train, 20 % validate and 20 % test.

        Raises:
            ConfigError: a setting is out of its bounds, too few accounts or payments for the schemes, or too many
                payments for so few accounts.
        """
        if nodes < LEAST_ACCOUNTS:
            raise ConfigError(
                f"generated_nodes={nodes}: at least {LEAST_ACCOUNTS} accounts are needed to hide the schemes among."
            )
        weights = popularity(seed, "transactions/popularity", nodes, zipf=self.zipf, shift=10.0)
        schemes = plant(generator(seed, "transactions/schemes"), nodes, share=self.suspicious, snapshots=snapshots)
        least, most = 2 * len(schemes.keys), nodes * (nodes - 1) // (4 * self.partners)
        if not least <= edges <= most:
            raise ConfigError(
                f"generated_edges={edges} with generated_nodes={nodes}: allowed {least}, twice the payments of the "
                f"schemes, to {most}, for which there are {self.partners} pairs of partners each. Change either."
            )
        draws = generator(seed, "transactions/partners")
        pairs = new_keys(draws, popular_targets(weights), schemes.keys, edges * self.partners)
        classes = np.zeros(nodes, dtype=np.int16)
        classes[schemes.accounts] = 1
        draws = generator(seed, "transactions/parts")
        parts = random_parts(draws, nodes)
        parts[schemes.accounts] = random_parts(draws, int(schemes.scheme[-1]) + 1)[schemes.scheme]
        return IntervalStream(
            num_intervals=snapshots, num_nodes=nodes, weighted=True, rows=edges * snapshots,
            classes=give_up(classes), vertex_split=give_up(parts),
            make=partial(_snapshots, seed, pairs, schemes, nodes, [edges] * snapshots),
        )  # fmt: skip


def _snapshots(seed: int, pairs: Keys, schemes: Schemes, nodes: int, counts: list[int]) -> Iterator[Snapshot]:
    for interval, count in enumerate(counts):
        draws = generator(seed, "transactions/payments", interval)
        active = schemes.at(interval)
        normal = some(draws, pairs, count - int(active.sum()))
        amount = draws.uniform(LEAST_AMOUNT, MOST_AMOUNT, len(normal)).astype(np.float32)
        keys = np.concatenate([normal, schemes.keys[active]])
        order = np.argsort(keys, kind="stable")  # two rising runs without common keys
        yield snapshot_of_rising(keys[order], nodes, np.concatenate([amount, schemes.amount[active]])[order])


TRANSACTIONS = Transactions(name="transactions")
