"""What each rank does in an epoch of a system, counted from the graph, and what it keeps in memory meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.partition.step_work import StepWork
from dtdg_lab.studies.advise_facts import Facts, Numbers

EXACT = ("rows", "bytes")  # counts that may be known exactly
FRONT_BYTES = 40  # before the rows for each other rank: clock, count and place, five numbers (comm.rows)


@dataclass(frozen=True, slots=True, eq=False)
class GroupWork:
    """Snapshot groups that a scheduler deals to ranks; (K,) each.

    Attributes:
        passes: (K, 6) of each group, as ``Facts.passes``.
        scheduler: its name.
        per_rank: most groups of a rank in an iteration.
    """

    passes: Numbers
    scheduler: str
    per_rank: int


@dataclass(frozen=True, slots=True, eq=False)
class Fetching:
    """Features fetched in a step, means over parts.

    Attributes:
        owners: asked, all at once.
        bytes: of the rows.
        ahead: whether they are fetched while the step before is computed.
    """

    owners: float
    bytes: float
    ahead: bool


@dataclass(frozen=True, slots=True, eq=False)
class EpochWork:
    """An epoch of R ranks.

    Attributes:
        system: its name.
        steps: updates of the model.
        passes: (R, 6) as ``Facts.passes``: edges and rows in numbers worked on.
        rows: (R,) vertices times snapshots that are run forward once, copies included.
        edges: (R,) pulled along, once.
        sent: (R, R) bytes of rows from rank to rank.
        exchanges: of rows.
        gradient_bytes: that one rank sends in the epoch by the ring's formula, for gradients.
        brought: (R, 3) as ``StepWork.brought``.
        alive: (R, 2) rows and edges kept for backward in the largest step.
        held_bytes: (R,) of the data that a rank needs, beside what a step makes.
        exact: which of ``EXACT`` are counts, not estimates.
        waits: whether ranks meet in every step.
        groups: where snapshot groups are dealt by a scheduler.
        fetching: where features are fetched.
        round_bytes: that a rank sends for a round of averaging models, and seconds between two; where there are any.
        notes: what an estimate rests on, in words.
    """

    system: str
    steps: int
    passes: Numbers
    rows: Numbers
    edges: Numbers
    sent: Numbers
    exchanges: int
    gradient_bytes: float
    brought: Numbers
    alive: Numbers
    held_bytes: Numbers
    exact: frozenset[str] = frozenset()
    waits: bool = True
    groups: GroupWork | None = None
    fetching: Fetching | None = None
    round_bytes: tuple[float, float] | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.sent)

    @property
    def rank_bytes(self) -> float:
        """Bytes that the busiest rank sends in an epoch: rows, gradients, features served; not rounds of averaging."""
        fronts = FRONT_BYTES * self.exchanges * (self.ranks - 1)
        return float(self.sent.sum(axis=1).max()) + fronts + self.gradient_bytes

    def step(self) -> StepWork:
        """The mean step, as the scaling model takes it; gradients go round a ring."""
        ranks, share = self.ranks, 1.0 / max(self.steps, 1)
        sent = self.sent * share
        if ranks > 1 and self.waits:
            sent = sent + np.roll(np.eye(ranks), 1, axis=1) * (self.gradient_bytes * share)
        exchanges = round(self.exchanges * share) + 1 if ranks > 1 else 0
        return StepWork(0, int(self.edges.sum()), self.passes * share, sent, exchanges, self.brought * share)


def plain_work(
    facts: Facts,
    *,
    steps: int,
    edges: Numbers,
    rows: Numbers,
    snapshots: Numbers | float,
    pieces: Numbers | float | None = None,
    **more: object,
) -> EpochWork:
    """Work whose passes follow from its edges, rows and snapshots.

    Args:
        facts: config and graph.
        steps: of an epoch.
        edges: (R,) of an epoch.
        rows: (R,) of an epoch.
        snapshots: of an epoch, (R,) or one number for all.
        pieces: of work, each at once; one a step where not given.
        **more: further attributes, in place of what follows from these.
    """
    ranks = facts.ranks
    pieces = np.full(ranks, float(steps)) if pieces is None else pieces
    given: dict[str, object] = {
        "sent": np.zeros((ranks, ranks)), "exchanges": 0, "brought": np.zeros((ranks, 3)),
        "gradient_bytes": float(facts.gradient_bytes * steps), "held_bytes": np.full(ranks, float(facts.graph_bytes)),
        "alive": np.stack([rows, edges], axis=1) / max(steps, 1),
    }  # fmt: skip
    return EpochWork(
        system=facts.config.system, steps=steps, passes=facts.passes(edges, rows, snapshots, pieces), rows=rows,
        edges=edges, **{**given, **more},  # type: ignore[arg-type]
    )  # fmt: skip


def on_ranks(of_parts: NDArray[np.floating] | NDArray[np.integer], ranks: int) -> Numbers:
    """Sums of P parts over the R ranks that have them: parts of a rank follow each other; (P, ...) -> (R, ...)."""
    parts = np.asarray(of_parts, np.float64)
    return np.asarray(parts.reshape(ranks, len(parts) // ranks, *parts.shape[1:]).sum(axis=1))
