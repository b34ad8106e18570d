"""Calibration of this machine: the cells to measure, their runs and fetches, and the files of the measurements."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.network.links import LinkState, parse_links
from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration, calibrate
from dtdg_lab.systems.feature_cache.calibration.measurements import (
    FETCHES,
    FLOAT_BYTES,
    POWER,
    STEPS,
    cells_of,
    condition_named,
)
from dtdg_lab.systems.feature_cache.charts.model_errors import model_figure
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.rpc.client import FeatureClient
from dtdg_lab.systems.feature_cache.rpc.server import TOKEN_BYTES, FeatureServer
from dtdg_lab.visualization.chart import Figure

if TYPE_CHECKING:
    from dtdg_lab.runs.stored_run import StoredRun

Cell = tuple[str, int]  # condition, window
_FETCHED = ("clean", "c1")  # conditions whose fetches are also timed separately
ABOUT = "calibration.json"  # what was measured, when, and where
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    STEPS: ("dataset", "condition", "window", "measured_ms"),
    FETCHES: ("dataset", "condition", "concurrent", "requester", "owner", "rows", "rtt_s", "feat_dim"),
    POWER: ("host", "state", "cpu_w", "gpu_w", "samples"),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CalibrationStudy:
    """A calibration of this machine, and the folder of its measurements.

    Attributes:
        calibration: fitted to the measurements.
        folder: has the files of :func:`dtdg_lab.calibration.calibrate`.
        described: title of the study.
        parts: P of the runs.
    """

    calibration: Calibration
    folder: Path
    described: str
    parts: int

    def costs(self) -> CacheCosts:
        """Return the costs of steps on this machine, for the simulator and the planner."""
        return self.calibration.costs(parts=self.parts)

    def table(self) -> str:
        """Return the report of the calibration, as Markdown."""
        return f"{self.described}\n\n{self.calibration.table()}"

    def figure(self) -> Figure:
        """Return a map of errors, and curves with measurements (Figure 8), as a plotly figure dict."""
        return model_figure(self.calibration.errors(), title=self.described)

    def __repr__(self) -> str:
        return self.table()


def planned_cells(windows: Sequence[int], conditions: Sequence[str], middle: int) -> tuple[Cell, ...]:
    """Return the cells in the order of measurement: clean links at every window, other conditions at one window.

    Args:
        windows: W.
        conditions: see :mod:`dtdg_lab.systems.feature_cache.calibration.calibration`; clean need not be among them.
        middle: window of conditions other than clean.

    Raises:
        ConfigError: a condition is unknown, a window below 1, or there are fewer cells than constants.
    """
    named = list(dict.fromkeys(condition_named(name).name for name in conditions))
    if not windows or min(*windows, middle) < 1:
        raise ConfigError(f"windows={tuple(windows)}, middle={middle}: give windows of at least 1 step.")
    clean = [("clean", window) for window in dict.fromkeys((*windows, middle))]
    cells = (*clean, *((name, middle) for name in named if name != "clean"))
    if len(cells) < LEAST:
        raise ConfigError(
            f"windows={tuple(windows)} and conditions={tuple(conditions)} give {len(cells)} cells. At least {LEAST} "
            "are needed to fit seven constants without one of them."
        )
    return cells


LEAST = 8  # one more than the constants of a step, since each cell is left out in turn
MIDDLE = 16  # window of conditions other than clean


class CalibrationPlan:
    """The runs and fetches of a study; see :func:`dtdg_lab.calibration.calibrate_here` for the arguments.

    Attributes:
        cells: each has a run.
        first: config of the first run, which warms up and is not measured.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        windows: Sequence[int],
        conditions: Sequence[str],
        rows: Sequence[int],
        repeats: int,
        steps: int,
        name: str,
    ) -> None:
        if steps < 1:
            raise ConfigError(f"steps={steps}: give at least one step.")
        self.cells = planned_cells(windows, conditions, MIDDLE)
        self.first = cell_config(config, ("clean", MIDDLE), 1)
        self._config, self._rows, self._repeats, self._steps, self._name = config, rows, repeats, steps, name

    def configs(self, first: StoredRun, warm_ups: int) -> list[RunConfig]:
        """Return the config of each cell's run: with steps before the measured ones, and after them.

        When the last but one window begins, the last cache is built, and all batches are sampled: steps after it are
        cheaper.
        """
        self._facts = next(event["data"] for event in reversed(first.events) if event["kind"] == "features")
        after = [max(2 * window + self._config["queue_depth"], warm_ups) for _, window in self.cells]
        steps = [warm_ups + self._counted(window) + cheap for (_, window), cheap in zip(self.cells, after, strict=True)]
        epochs = [math.ceil(many / self._facts["steps_per_epoch"]) for many in steps]
        return [cell_config(self._config, *cell) for cell in zip(self.cells, epochs, strict=True)]

    def _counted(self, window: int) -> int:
        """Return the number of measured steps: those of whole windows, so that each has its share of a rebuild."""
        return window * max(math.ceil(self._steps / window), 2)

    def study(
        self,
        folder: Path,
        seconds: Sequence[Sequence[float]],
        power: Sequence[Mapping[str, Any]],
        environment: Mapping[str, Any],
    ) -> CalibrationStudy:
        """Measure fetches, write all measurements to files, and calibrate from these.

        Args:
            folder: folder of the files; files of an earlier study are replaced.
            seconds: of the steps of each cell's run after its warm-up; those of whole windows count.
            power: watts of all runs; empty if unknown on this machine.
            environment: the machine, for ``calibration.json``.
        """
        config, name = self._config, self._name
        steps = [
            row
            for (condition, window), measured in zip(self.cells, seconds, strict=True)
            for row in cells_of(
                [(window, step_s) for step_s in measured[: self._counted(window)]], name, condition=condition
            )
        ]
        fetches = []
        for condition in dict.fromkeys(condition for condition, _ in self.cells if condition.startswith(_FETCHED)):
            fetches += measure(
                self._rows,
                self._facts["row_bytes"] // FLOAT_BYTES,
                repeats=self._repeats,
                parts=config.parts,
                condition=condition,
                dataset=name,
                links=parse_links(links_of(condition, config.parts), config.parts),
            )
        folder.mkdir(parents=True, exist_ok=True)
        for file, rows in ((STEPS, steps), (FETCHES, fetches), (POWER, power)):
            (folder / file).unlink(missing_ok=True)
            if rows:
                packed = {"method": "gzip", "mtime": 0} if file.endswith(".gz") else None
                pd.DataFrame(rows, columns=_COLUMNS[file]).to_csv(folder / file, index=False, compression=packed)
        about = {
            "dataset": name,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": config.device,
            "power": power[0]["host"] if power else None,
            "parts": config.parts,
            "ranks": config.ranks,
            "cells": [list(cell) for cell in self.cells],
            "config": json.loads(config.to_json()),
            "environment": dict(environment),
        }
        (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        by = f"{power[0]['host']}, of a rank" if power else "of another cluster, for energy is unknown here"
        counts = f"{len(self.cells)} cells, {len(fetches):,} fetches, {config.parts} parts on {config.ranks} rank(s)"
        return CalibrationStudy(calibrate(folder), folder, f"{name}: {counts}; watts {by}", config.parts)


def links_of(name: str, parts: int) -> str:
    """Return the option ``links`` of a condition, applied to the replies of the last part.

    The rate of an owner covers all its replies; each of the P - 1 requesters gets an equal share. A delay applies to
    one link, to part 0.
    """
    condition = condition_named(name)
    if condition.delay_ms:
        return f"{parts - 1}>0 delay={condition.delay_ms:g}"
    return "" if condition.is_clean else f"{parts - 1} rate={condition.mbit / (parts - 1):.9g}"


def cell_config(config: RunConfig, cell: Cell, epochs: int) -> RunConfig:
    """Return the config of a run with a cache of one window, under one condition from the first step to the last."""
    condition, window = cell
    return config.replace(
        cache_policy="fixed",
        cache_bias=-1,
        cache_window=window,
        congestion="none",
        epochs=epochs,
        links=links_of(condition, config.parts),
        evaluate_every=epochs,
    )


WARM_UP = 3  # discarded round trips: connections, and memory touched for the first time


def measure(
    rows: Sequence[int],
    features: int,
    *,
    repeats: int = 30,
    parts: int = 4,
    links: LinkState | None = None,
    condition: str = "clean",
    dataset: str = "local",
    seed: int = 0,
    timeout_s: float = 30.0,
) -> list[dict[str, Any]]:
    """Measure requests of part 0 to the other parts, one at a time and all at once; each part has a process.

    Args:
        rows: numbers of rows to request; each owner has twice the largest number, as random floats.
        features: F, floats in a row.
        repeats: round trips per number and owner, one at a time and at once.
        parts: P, at least 2.
        links: at ``[o, 0]`` the link of part o's replies to part 0; None for no emulation.
        condition: written to each row.
        dataset: written to each row.
        seed: of the floats and the requested rows.
        timeout_s: seconds without a reply after which the measurement fails.

    Returns:
        Rows with dataset, condition, concurrent (1: all owners were requested at once), requester, owner, rows, rtt_s
        and feat_dim (floats in a row): the columns of the measurements that the simulator's constants come from.

    Raises:
        PlanError: a size is too small, or no numbers of rows are given.
        RunFailedError: a server exited or did not reply.
    """
    if parts < 2 or not rows or min(rows) < 1 or features < 1 or repeats < 1:
        raise PlanError(
            f"rows={list(rows)}, features={features}, repeats={repeats}, parts={parts}: give positive numbers of rows, "
            "at least one feature and one repeat, and at least two parts."
        )
    token, random = secrets.token_bytes(TOKEN_BYTES), generator(seed, "feature probe")
    keys = np.arange(2 * max(rows), dtype=np.int64)
    with ExitStack() as open_:
        addresses: dict[int, str] = {}
        for owner in range(1, parts):
            content = random.random((len(keys), features), dtype=np.float32)
            server = open_.enter_context(FeatureServer({owner: content}, {owner: keys}, token))
            if links is not None:
                server.set_links(links)
            addresses |= server.addresses
        client = open_.enter_context(FeatureClient(0, addresses, token, features, timeout_s))
        requests = [(1, list(addresses)), *((0, [owner]) for owner in addresses)]
        measured: list[dict[str, Any]] = []
        for repeat in range(-WARM_UP, repeats):
            # numbers and owners alternate, so that disturbances by other processes affect all of them
            for count in rows:
                for concurrent, owners in requests:
                    replies = client.fetch({owner: random.choice(keys, count, replace=False) for owner in owners})
                    measured += [
                        {
                            "dataset": dataset,
                            "condition": condition,
                            "concurrent": concurrent,
                            "requester": 0,
                            "owner": owner,
                            "rows": count,
                            "rtt_s": reply.rtt_s,
                            "feat_dim": features,
                        }
                        for owner, reply in replies.items()
                        if repeat >= 0
                    ]
    return measured
