"""What a schedule comes to for given group times: epoch time, throughput, imbalance, idleness, distance to a bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Schedule

MEANINGS: Mapping[str, str] = MappingProxyType({
    "scheduler": "its name; psg is round_robin with one group a rank and iteration",
    "ranks": "R",
    "per_rank": "most groups of a rank in an iteration",
    "groups": "K",
    "iterations": "of an epoch: updates of the model",
    "makespan_s": "seconds of an epoch: the most loaded rank of every iteration, and the all-reduces",
    "bound_s": "seconds that no schedule can beat",
    "over_bound": "makespan over bound; 1 is the best there can be, perhaps not reached by any",
    "throughput": "groups a second and rank, over those of one rank alone, which waits for nobody",
    "bound_throughput": "the throughput of a schedule as fast as the bound",
    "imbalance": "busy time in the epoch of the most loaded rank over that of the least loaded (the paper's)",
    "iteration_imbalance": "busy time of an iteration's most loaded rank over the mean, weighed by time (ours)",
    "worst_iteration_imbalance": "the largest of an iteration; often the last, which is not full",
    "idle_share": "share of the ranks' time between all-reduces spent waiting for the most loaded one",
    "targets": "targets that DyGNeX-G tried in each iteration, at most; as many as groups are all. Missing where "
    "Algorithm 2 was not asked",
    "solve_s": "seconds the scheduler took",
    "notes": "what the scheduler says of how it was made",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """One schedule's epoch, by its scheduler; ``MEANINGS`` says what each number is.

    ``imbalance`` is infinite where a rank computes nothing in the whole epoch.
    """

    scheduler: str
    ranks: int
    per_rank: int
    groups: int
    iterations: int
    makespan_s: float
    bound_s: float
    over_bound: float
    throughput: float
    bound_throughput: float
    imbalance: float
    iteration_imbalance: float
    worst_iteration_imbalance: float
    idle_share: float
    targets: int | None
    solve_s: float
    notes: str = ""

    def row(self) -> dict[str, Any]:
        """Plain values by name, for tables and events; None in place of what is infinite."""
        values = asdict(self)
        return {
            name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()
        }


def outcome(
    scheduler: str,
    schedule: Schedule,
    times_s: NDArray[np.float64],
    *,
    per_rank: int,
    allreduce_s: float,
    bound_s: float,
    solve_s: float | None = None,
) -> Outcome:
    """What ``schedule`` comes to where groups take ``times_s``.

    Args:
        scheduler: name of what made it.
        schedule: of K groups on R ranks.
        times_s: (K,) seconds of each group, not all 0; not necessarily those the schedule was made for.
        per_rank: most groups of a rank in an iteration.
        allreduce_s: seconds of the exchange that ends an iteration.
        bound_s: what no schedule can beat for these times.
        solve_s: seconds the scheduler took; the schedule's own where not given.
    """
    loads = schedule.loads(times_s)
    slowest, alone = loads.max(axis=1), float(np.sum(times_s))
    busy = float(slowest.sum())
    makespan = busy + allreduce_s * len(loads)
    per_epoch = loads.sum(axis=0)
    mean = loads.mean(axis=1)
    uneven = np.divide(slowest, mean, out=np.ones_like(mean), where=mean > 0)
    least = float(per_epoch.min())
    ranks = schedule.parts
    return Outcome(
        scheduler=scheduler,
        ranks=ranks,
        per_rank=per_rank,
        groups=schedule.groups,
        iterations=len(loads),
        makespan_s=makespan,
        bound_s=bound_s,
        over_bound=makespan / bound_s,
        throughput=alone / (ranks * makespan),
        bound_throughput=alone / (ranks * bound_s),
        imbalance=float(per_epoch.max()) / least if least > 0 else float("inf"),
        iteration_imbalance=busy / float(mean.sum()),
        worst_iteration_imbalance=float(uneven.max()),
        idle_share=max(0.0, 1 - alone / (ranks * busy)),
        targets=schedule.targets,
        solve_s=schedule.seconds if solve_s is None else solve_s,
        notes=schedule.notes,
    )
