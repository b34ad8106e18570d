"""Seconds and joules to a validation loss near the best one, from the curves of compared trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dtdg_lab.reproduction.rows import MeasuredRow

WITHIN_J = "within_j"  # value of rankings: the lowest validation loss within the same joules
NEAR: Mapping[str, int] = MappingProxyType({"near_s": 0, "near_j": 1})  # values of claims -> position in a point
MARGIN = 0.05  # a loss is near if it is at most this share above the best


@dataclass(frozen=True, slots=True)
class NearCosts:
    """Costs of compared trainings up to the same loss.

    Attributes:
        costs: key of a row -> cost until the first evaluation at or below the target; None if it is unknown. Of a
            training that did not reach it, its whole cost, which is a lower bound.
        unreached: keys of the rows that did not reach it.
        below_persistence: whether the targets are below the validation loss of persistence.
    """

    costs: Mapping[str, float | None]
    unreached: frozenset[str]
    below_persistence: bool


def near_costs(rows: Sequence[MeasuredRow], value: str) -> NearCosts:
    """Return the costs of trainings of the same data, model and task.

    The target of a seed is the lowest validation loss of all its trainings and 5 %, since first parameters, and with
    generated data also the graph, follow the seed.

    Args:
        rows: of all compared systems and seeds.
        value: ``near_s`` or ``near_j``.
    """
    position = NEAR[value]
    costs: dict[str, float | None] = {}
    unreached: set[str] = set()
    below_persistence = True
    for seed in dict.fromkeys(row.seed for row in rows):
        of_seed = [row for row in rows if row.seed == seed]
        losses = [loss for row in of_seed for _, _, loss in row.curve]
        target = min(losses, default=0.0) * (1 + MARGIN)
        known = [loss for row in of_seed if (loss := row.values.get("validation_persistence_loss")) is not None]
        below_persistence &= bool(losses and known) and target < min(known)
        for row in of_seed:
            reached = [point for point in row.curve if point[2] <= target]
            costs[row.key] = reached[0][position] if reached else row.curve[-1][position] if row.curve else None
            if not reached:
                unreached.add(row.key)
    return NearCosts(costs, frozenset(unreached), below_persistence)


def losses_within(rows: Sequence[MeasuredRow]) -> dict[str, float | None]:
    """Return key of a row -> lowest validation loss within the joules that all trainings of its seed have spent.

    The budget of a seed is that of the training that spent least. None if joules or losses are unknown, or the training
    failed.
    """
    losses: dict[str, float | None] = {row.key: None for row in rows}
    for seed in dict.fromkeys(row.seed for row in rows):
        of_seed = [row for row in rows if row.seed == seed and not row.failed]
        ends = [row.curve[-1][1] for row in of_seed if row.curve]
        known = [joules for joules in ends if joules is not None]
        budget_j = min(known) if known and len(known) == len(of_seed) else None
        for row in of_seed:
            within = [
                loss
                for _, joules, loss in row.curve
                if budget_j is not None and joules is not None and joules <= budget_j
            ]
            losses[row.key] = min(within, default=None)
    return losses
