"""What deciding, sampling and looking up take; for benchmarks/greendygnn.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

import numpy as np

from contenders.dgl_sampler import DglSampler
from contenders.gd_here import built, look_up_row, timed
from contenders.gd_plan import Plan, config
from contenders.gd_sim import policies
from dtdg_lab.core.errors import LabError
from dtdg_lab.energy.readers import Reading
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import shipped_costs
from dtdg_lab.systems.feature_cache.pipeline.cache import FeatureCache
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary, FetchTime, StepTime
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead
from dtdg_lab.systems.feature_cache.policies.baselines import ThresholdWindow
from dtdg_lab.systems.feature_cache.policies.control import WARM_EPOCHS, CacheControl
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
from dtdg_lab.systems.feature_cache.policies.interface import CacheView
from dtdg_lab.systems.feature_cache.simulation.cases import training_cases
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator

Row = dict[str, Any]
EPOCH_STEPS = WINDOWS[-1]  # no more batches than an epoch's are sampled ahead
ROW_BYTES = 400
TALLEST = 3  # keys are drawn as a cube of a uniform number: some are asked for by nearly every batch


def overhead_rows(plan: Plan) -> list[Row]:
    """Seconds of a decision of each policy, of a batch by each sampler, and of a look-up; beside those of a step."""
    rows = [*decision_rows(plan), *live_decision_rows(plan), *sampler_rows(plan), look_up_row(plan)]
    return [{**row, "unit": "s"} for row in rows]


def decision_rows(plan: Plan) -> list[Row]:
    """One decision on what the simulator shows of a run that is congested: its forecast is a formula."""
    costs = shipped_costs(plan.shipped[0], parts=plan.parts)
    simulator = CacheSimulator([costs], training_cases(("one_slow",)), seed=1)
    simulator.reset()
    for _ in range(20):  # into the congestion
        simulator.step([simulator.reference])
    views = simulator.views()
    view = CacheView(
        views.states[0],
        views.delays_s[0],
        int(views.steps[0]),
        int(views.steps_left[0]),
        int(views.previous[0]),
        lambda delays_s: views.forecast(delays_s[np.newaxis])[0],
        now=int(views.now[0]),
        changes=int(views.changes[0]),
    )
    deciding, missing = policies(plan.parts, costs)
    rows: list[Row] = []
    for name, policy in {"threshold": ThresholdWindow(simulator.actions), **deciding}.items():
        rows.append({"what": f"decision of {name}", "seconds": timed(lambda policy=policy: policy.decide(view),
                                                                     plan.repeats)})  # fmt: skip
    return rows + [{"what": f"decision of {name}", "failed": why} for name, why in missing.items()]


def live_decision_rows(plan: Plan) -> list[Row]:
    """One decision as a part's builder takes it while it trains, with fetches since the last one to take in.

    For the planner the batches ahead are counted, too, for every window and allocation.
    """
    deciding, _ = policies(plan.parts, shipped_costs(plan.shipped[0], parts=plan.parts))
    held, asked = plan.looked_up[0], max(plan.looked_up[1] // 5, 1)
    boundary = boundaries(plan.parts, held, asked)
    described = f"{WINDOWS[-1]} batches of {asked:,} keys"
    known: dict[str, Any] = {"threshold": ThresholdWindow(CacheActions(plan.parts)), **deciding}
    rows: list[Row] = []
    for name, policy in known.items():
        control = CacheControl(
            0, plan.parts, epoch_steps=EPOCH_STEPS, row_bytes=ROW_BYTES, estimator=DelayEstimator(plan.parts - 1)
        )
        control.policy = policy
        warm = WARM_EPOCHS * EPOCH_STEPS
        for step in range(warm):
            control.decide(boundary(step, 0))
        # made before, and each with a lookahead that has counted nothing yet
        met = iter([boundary(warm + number, WINDOWS[-1]) for number in range(plan.repeats + 1)])
        taken = timed(lambda control=control, met=met: control.decide(next(met)), plan.repeats)
        rows.append({"what": f"live decision of {name}, {described}", "seconds": taken})
    return rows


def boundaries(parts: int, held: int, asked: int) -> Callable[[int, int], Boundary]:
    """Makes boundaries of part 0 by their step and how many batches are sampled: one owner is late but in the warm-up.

    Args:
        parts: P.
        held: rows of the cache; there are 10 times as many nodes.
        asked: remote keys drawn for a batch; some of them twice.
    """
    draw = np.random.default_rng(0)
    space = KeySpace(draw.integers(parts, size=10 * held).astype(np.int32), parts)

    def remote(drawn: int) -> Any:
        keys = np.unique((draw.random(drawn) ** TALLEST * space.size).astype(np.int64))
        return keys[space.owners(keys) != 0]

    batches = [remote(asked * parts // (parts - 1)) for _ in range(WINDOWS[-1])]
    kept = remote(2 * held)[:held]
    cache = FeatureCache(kept, np.zeros((len(kept), 1), dtype=np.float32), size=space.size)
    served = np.array([0] + [4 * asked] * (parts - 1))
    reading = Reading(
        joules=10.0, interval_s=0.1, watts=100.0, source="counter", reader="rapl", scope="rank", device="processor"
    )

    def boundary(step: int, ahead: int) -> Boundary:
        late_s = 0.02 * (step >= WARM_EPOCHS * EPOCH_STEPS)
        fetches = tuple(
            FetchTime(owner, "miss", rows, rows * ROW_BYTES, 1e-3 + rows * 1e-6 + late_s * (owner == 1), step)
            for owner in range(1, parts) for rows in draw.integers(1, asked + 1, size=16).tolist()
        )  # fmt: skip
        return Boundary(
            part=0, parts=parts, number=step, step=step, steps_left=EPOCH_STEPS, previous=0, served=16, remote=served,
            hits=served // 2, resolve_s=0.1, fetches=fetches, rebuild_s=0.1, late_steps=0,
            stepped=(StepTime(0.1, (reading,)),) * 16,
            lookahead=Lookahead(step, batches[:ahead], space, part=0, capacity=held, serving=cache),
        )  # fmt: skip

    return boundary


def sampler_rows(plan: Plan) -> list[Row]:
    """A mini-batch of part 0 by our sampler and by DGL's, one after another."""
    rows: list[Row] = []
    of = config(plan, plan.lived, {"system": "fixed-window"}, ranks=1, seed=0)
    for sampler in ("own", "dgl"):
        try:
            with closing(built(of)) as made:
                part, numbers = made.strategy.parts[0], count()
                if sampler == "dgl":
                    part.sampler._sampler = DglSampler()
                taken = timed(lambda part=part, numbers=numbers: part.sampler.sample(next(numbers)), plan.repeats)
        except LabError as error:
            rows.append({"what": f"mini-batch, {sampler} sampler", "failed": str(error)})
            continue
        rows.append({"what": f"mini-batch, {sampler} sampler", "seconds": taken})
    return rows
