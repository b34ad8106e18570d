"""What this machine does: costs of a run, calls, decisions, samplers and look-ups; for benchmarks/greendygnn.py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from contenders.gd_plan import Plan, config
from dtdg_lab.cluster.calibrate_here import calibrate_here
from dtdg_lab.core.errors import LabError
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration, calibrate
from dtdg_lab.systems.feature_cache.calibration.fits import relative_line
from dtdg_lab.systems.feature_cache.calibration.report import against_middle, mean_percent, regrets
from dtdg_lab.systems.feature_cache.calibration.study import CalibrationStudy, measure
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts, RpcModel
from dtdg_lab.systems.feature_cache.costs.run_costs import RunFacts, run_costs, timed_fetches
from dtdg_lab.systems.feature_cache.pipeline.cache import FeatureCache

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.training.build import RunComponents

Row = dict[str, Any]
FLOAT_BYTES = 4
TRIED = 3  # steps, of which the last is timed


def built(config: RunConfig) -> RunComponents:
    """A run's parts in this process; to be closed."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.distributed.group import SoloGroup
    from dtdg_lab.training.build import build

    return build(config, load_for(config), SoloGroup())


def costs_here(config: RunConfig, *, ranks: int) -> tuple[CacheCosts, int]:
    """Costs of part 0's steps, counted and timed as the planner's are, and how many steps an epoch has.

    A step is timed with all parts one after another; ranks share the cores.
    """
    from dtdg_lab.engine.strategy import StepMarks
    from dtdg_lab.systems.feature_cache.strategy import RemoteFeatureStrategy

    with closing(built(config)) as made:
        layout = made.strategy
        assert isinstance(layout, RemoteFeatureStrategy)
        for _ in range(TRIED):
            began_s = time.perf_counter()
            layout.tried(StepMarks())
        base_s = (time.perf_counter() - began_s) / min(ranks, os.cpu_count() or 1)
        service, part = layout.service, layout.parts[0]
        with closing(service.fetcher(part.number)) as fetcher:
            rpc = timed_fetches(fetcher, part.number, service.space, row_bytes=service.row_bytes, note=lambda _: None)
        stall_w = config["power_idle_w"] / ranks
        busy_w = stall_w + (config["power_max_w"] - config["power_idle_w"]) / (os.cpu_count() or 1)
        facts = RunFacts(
            name=config.dataset, part=part.number, space=service.space, capacity=config["cache_rows"],
            row_bytes=service.row_bytes, base_s=base_s, rpc=rpc, busy_w=busy_w, stall_w=stall_w,
        )  # fmt: skip
        asked = []
        for number in range(min(WINDOWS[-1], 2 * layout.epoch_steps)):
            keys = part.sampler.sample(number).keys
            asked.append(keys[service.space.owners(keys) != part.number])
        return run_costs(facts, asked), layout.epoch_steps


def call_rows(plan: Plan) -> list[Row]:
    """Figure 1: medians by rows of a call, of our own RPC between processes, and the line through them."""
    rows = []
    for features in plan.rpc_features:
        calls = [call for call in measure(plan.rpc_rows, features, repeats=plan.rpc_repeats, parts=2)
                 if not call["concurrent"]]  # fmt: skip
        width = features * FLOAT_BYTES
        by_rows = {count: [call["rtt_s"] for call in calls if call["rows"] == count] for count in plan.rpc_rows}
        medians = np.array([median(each) for each in by_rows.values()])
        cost = RpcModel(*relative_line(np.array(list(by_rows)) * float(width), medians))
        for count, seconds in by_rows.items():
            rows.append({
                "features": features, "rows": count, "bytes": count * width,
                "rtt_s": (min(seconds), median(seconds), max(seconds)),
                "initiation": cost.a_s / cost.rtt_s(count * width),
                "initiation_s": cost.a_s, "s_per_byte": cost.s_per_byte,
                "crossover_rows": cost.a_s / cost.s_per_byte / width if cost.s_per_byte else None,
            })  # fmt: skip
    return rows


def calibration_rows(calibration: Calibration, where: str) -> list[Row]:
    """Mean errors of each data set: fitted, without the cell, without its condition; beside a guess, and regret.

    The guess is what was measured under the same condition at W = 16; regret is that of the window that is chosen.
    """
    rows = []
    for dataset in calibration.cells:
        errors = calibration.errors(dataset)
        fitted, cell_out, condition_out = mean_percent(errors)
        worst = max(errors, key=lambda each: abs(each.percent))
        guess, guessed_cell_out, guessed_condition_out, guessed = against_middle(errors)
        chosen = regrets(errors)
        rows.append({
            "where": where, "dataset": dataset, "cells": len(errors), "fitted": fitted, "cell_out": cell_out,
            "condition_out": condition_out, "worst_percent": abs(worst.percent),
            "worst": f"{worst.condition} W={worst.window} {worst.percent:+.1f} %",
            "guess": guess, "guessed": guessed, "guessed_cell_out": guessed_cell_out,
            "guessed_condition_out": guessed_condition_out,
            "regret_conditions": len(chosen), "regret_cell_out": _worst(each.cell_out_percent for each in chosen),
            "regret_condition_out": _worst(each.condition_out_percent for each in chosen),
            "regret_middle": _worst(each.middle_percent for each in chosen),
            "unpredicted": int(sum(np.isnan(each.condition_out_ms) for each in errors)),
        })  # fmt: skip
    return rows


def _worst(percent: Iterable[float]) -> float | None:
    return max((each for each in percent if not np.isnan(each)), default=None)


def cluster_calibration(folder: Path) -> Calibration | None:
    """Of the authors' cluster; None where its figures are not here."""
    return calibrate(folder) if (folder / "step_time.csv").is_file() else None


def own_calibration(plan: Plan, folder: Path) -> CalibrationStudy | str:
    """Of this machine, in one process; or why there is none."""
    of = config(plan, plan.lived, {"system": "fixed-window"}, ranks=1, seed=0)
    try:
        return calibrate_here(
            of, folder / "measured", windows=plan.windows, conditions=plan.throttled, steps=plan.cell_steps,
            repeats=plan.rpc_repeats, name=plan.lived.name, runs_dir=folder, progress=False,
        )  # fmt: skip
    except LabError as error:
        return str(error)


def timed(call: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Least, median and most seconds of a call, after one that does not count."""
    call()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken), median(taken), max(taken)


def look_up_row(plan: Plan) -> Row:
    """Finding a batch's rows in a cache, and copying those that it holds."""
    held, asked = plan.looked_up
    draw = np.random.default_rng(0)
    size, features = 10 * held, plan.lived.features
    keys = np.sort(draw.choice(size, held, replace=False))
    cache = FeatureCache(keys, draw.random((held, features), dtype=np.float32), size=size)
    wanted = np.sort(draw.choice(size, asked, replace=False))

    def look_up() -> object:
        slots = cache.find(wanted)
        return cache.rows[slots[slots >= 0]]

    return {
        "what": f"look-up of {asked:,} keys in {held:,} rows of {features}",
        "seconds": timed(look_up, plan.repeats),
    }
