"""Work of an epoch of snapshot groups, and the time of their schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtdg_lab.core.errors import PlanError
from dtdg_lab.systems.snapshot_groups.schedulers.base import named, solve
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import simulate
from dtdg_lab.systems.workload import ASSUMED_COMPUTE, EpochWork, Facts, GroupWork, Numbers, plain_work

LEAST_GROUPS = 2
FULL_ITERATIONS = ("round_robin", "consecutive")  # schedulers whose iterations are full, whatever groups take


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledGroups(GroupWork):
    """Snapshot groups with the scheduler of a config.

    Attributes:
        scheduler: its name.
        per_rank: most groups of a rank in an iteration.
        parts: P.
        seed: of schedulers that draw.
    """

    scheduler: str
    per_rank: int
    parts: int
    seed: int

    def epoch(self, times_s: Numbers, ranks: int) -> tuple[float, float | None, float]:
        """Seconds of the schedule, their bound, and imbalance."""
        if self.parts != ranks:  # several parts a rank, one after another
            return float(times_s.sum()) / ranks, None, 1.0
        (found,) = simulate(
            times_s,
            ranks=(ranks,),
            schedulers=(self.scheduler,),
            per_rank=self.per_rank,
            time_limit_s=1.0,
            seed=self.seed,
        )
        return found.makespan_s, found.bound_s, found.imbalance


def group_work(facts: Facts) -> EpochWork:
    """Snapshot groups of the training split; who computes which follows from their times, and so later.

    References: DyGNeX sections 3 and 4.
    """
    config, ranks = facts.config, facts.ranks
    window, stride = int(config["group_window"]), int(config["group_stride"])
    starts = np.arange(0, len(facts.train) - window + 1, stride)
    if len(starts) < LEAST_GROUPS:
        raise PlanError(
            f"system={config.system!r}: {len(facts.train)} snapshots have no room for two groups of {window}. Set a "
            "smaller group_window, or cut the data finer."
        )
    running = np.concatenate([[0], np.cumsum(facts.edges)])
    edges = (running[starts + window] - running[starts]).astype(float)
    rows = np.full(len(starts), float(window * facts.graph.num_nodes))
    per_rank = int(config["groups_per_rank"])
    at_once = per_rank if config["pipelined"] else 1
    weighed = facts.passes(edges, rows, float(window), 1.0)
    sizes = weighed @ np.array(ASSUMED_COMPUTE)
    most = named(config["scheduler"], per_rank)[1]
    steps = len(solve(config["scheduler"], sizes, config.parts, per_rank=most, time_limit_s=1.0).assignment)
    fixed = steps == -(-len(starts) // (config.parts * most)) and config["scheduler"] in FULL_ITERATIONS
    alive = np.tile([rows[0] * at_once, float(edges.max()) * at_once], (ranks, 1))
    share = np.full(ranks, 1 / ranks)
    return plain_work(
        facts,
        steps=steps,
        edges=edges.sum() * share,
        rows=rows.sum() * share,
        snapshots=len(starts) * window * share,
        pieces=len(starts) * share,
        alive=alive,
        exact=frozenset({"bytes"}) if fixed else frozenset(),
        groups=ScheduledGroups(weighed, str(config["scheduler"]), per_rank, config.parts, config.seed),
    )
