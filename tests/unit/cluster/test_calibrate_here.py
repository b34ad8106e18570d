"""``lab.calibration.calibrate_here`` measures the cells that were asked for, and its files hold the times of runs."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtdg_lab.cluster import calibrate_here as here
from dtdg_lab.cluster.one_run import EndedRun
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.network.links import BITS, parse_links
from dtdg_lab.runs.measurements import WARM_UPS, power_rows, step_seconds
from dtdg_lab.systems.feature_cache.calibration.calibration import SHIPPED, calibrate
from dtdg_lab.systems.feature_cache.calibration.measurements import condition_named
from dtdg_lab.systems.feature_cache.calibration.study import links_of, planned_cells

PARTS, EPOCH_STEPS = 4, 12
MODEL = SHIPPED.steps["ogbn-products"]
CONFIG = RunConfig(system="fixed-window", dataset="growing", model="tgcn", parts=PARTS, epochs=3)
WATTS = {"compute": 60.0, "wait": 20.0, "stall": 20.0, "idle": 10.0}


class PretendRun:
    """A run whose steps take what a model says of its window and links.

    Its first steps take ten times as long, and half as long those for which nothing is left to sample or to rebuild.
    """

    def __init__(self, config: RunConfig) -> None:
        self.id, self.config, self.status = "pretend", config, "finished"
        self.events = [{"kind": "features", "data": {"steps_per_epoch": EPOCH_STEPS, "row_bytes": 400}}]

    def table(self, name: str) -> pd.DataFrame:
        if name == "phase_energy":
            known = {"rank": 0, "seconds": 2.0, "source": "modelled", "coverage": 1.0}
            return pd.DataFrame(
                [
                    {**known, "time_ns": number, "phase": phase, "joules": 2.0 * watts}
                    for number, (phase, watts) in enumerate(WATTS.items())
                ]
            )
        owner = PARTS - 1
        links = parse_links(self.config["links"], PARTS)
        delay_ms = 1e3 * links.delay_s[owner].max()
        mbit = links.bytes_per_s[owner, 0] * BITS * (PARTS - 1)
        step_s = float(MODEL.step_ms(self.config["cache_window"], mbit, delay_ms)) / 1e3
        end = self.config.epochs * EPOCH_STEPS
        free_from = end - max(2 * self.config["cache_window"] + self.config["queue_depth"], WARM_UPS)
        rows = []
        for step in range(end):
            longest_s = step_s * (10 if step < WARM_UPS else 0.5 if step >= free_from else 1)
            rows += [{"rank": rank, "step": step, "time_s": longest_s * share} for rank, share in ((0, 0.5), (1, 1.0))]
        return pd.DataFrame(rows)


def pretend_fetches(rows: Any, features: int, *, links: Any, condition: str, dataset: str, **_: Any) -> list[Any]:
    """Calls that take 1 ms and 2 ns a byte, and what the links to part 0 add."""
    known = {"dataset": dataset, "condition": condition, "concurrent": 0, "requester": 0, "feat_dim": features}

    def seconds(owner: int, count: int) -> float:
        return float(1e-3 + 4 * features * count * (2e-9 + 1 / links.bytes_per_s[owner, 0]))

    return [
        {**known, "owner": owner, "rows": count, "rtt_s": seconds(owner, count)}
        for owner in range(1, PARTS)
        for count in rows
        for _ in range(4)
    ]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """The configs of runs that were asked for; none trains."""
    asked: list[RunConfig] = []

    def run_config(config: RunConfig, **_: Any) -> EndedRun:
        asked.append(config)
        return EndedRun(PretendRun(config))  # type: ignore[arg-type]

    monkeypatch.setattr(here, "run_config", run_config)
    monkeypatch.setattr("dtdg_lab.systems.feature_cache.calibration.study.measure", pretend_fetches)
    return asked


def test_what_was_measured_is_what_is_calibrated(trained: list[RunConfig], tmp_path: Path) -> None:
    (tmp_path / "step_time.csv").write_text("of an earlier study")
    study = here.calibrate_here(CONFIG, tmp_path, name="made", progress=False)
    cells = {(error.condition, error.window): error for error in study.calibration.errors()}
    assert set(cells) == {*(("clean", window) for window in here.WINDOWS), *((name, 16) for name in here.CONDITIONS)}
    for (name, window), error in cells.items():
        under = condition_named(name)
        # neither the warm-up nor the steps after the last rebuild
        assert error.measured_ms == pytest.approx(MODEL.step_ms(window, under.mbit, under.delay_ms))
        assert abs(error.percent) < 1
    assert study.costs().parts == PARTS and study.costs().row_bytes == 400
    fit = study.calibration.rpc["made"]
    assert fit.owners[1].a_s == pytest.approx(1e-3, rel=1e-3) and fit.throttled["c1_50mbit"].owner == PARTS - 1
    assert fit.throttled["c1_50mbit"].bytes_per_s == pytest.approx(50 / 3 / BITS, rel=1e-3)
    assert study.calibration.watts is not None and study.costs().busy_w == pytest.approx(60)
    assert study.costs().stall_w == pytest.approx(20)
    again = calibrate(tmp_path)
    assert again.predict("c4_7ms", 8) == study.calibration.predict("c4_7ms", 8)
    assert study.table() in repr(study) and "14 cells" in study.described and "modelled" in study.described
    assert study.figure()["data"]


def test_whole_windows_are_measured_and_the_last_two_are_not(trained: list[RunConfig], tmp_path: Path) -> None:
    here.calibrate_here(
        CONFIG.replace(cache_policy="planner", congestion="one_slow"), tmp_path, steps=20, progress=False
    )
    first, *others = trained
    assert first.epochs == 1 and len(others) == 14
    assert {config["cache_policy"] for config in trained} == {"fixed"}
    assert {config["congestion"] for config in trained} == {"none"}
    for config in others:
        window = config["cache_window"]
        after = config.epochs * EPOCH_STEPS - WARM_UPS - max(2 * window + config["queue_depth"], WARM_UPS)
        measured = window * max(-(-20 // window), 2)
        assert after >= measured > after - EPOCH_STEPS
        assert config["evaluate_every"] == config.epochs


def test_links_of_conditions_are_those_of_the_last_part() -> None:
    throttled = parse_links(links_of("c1_90mbit", PARTS), PARTS)
    assert throttled.bytes_per_s[3, :3] == pytest.approx(np.full(3, 30 / BITS)) and not throttled.delay_s.any()
    assert np.isinf(throttled.bytes_per_s[:3]).all()
    late = parse_links(links_of("c4_7ms", PARTS), PARTS)
    assert late.delay_s[3, 0] == pytest.approx(7e-3) and np.count_nonzero(late.delay_s) == 1
    assert links_of("clean", PARTS) == ""


def test_cells_are_each_measured_once() -> None:
    cells = planned_cells((1, 2, 16, 2, 8), ("clean", "c1_50", "c1_50mbit", "c4_5", "c4_6", "c4_7"), 16)
    clean = tuple(("clean", window) for window in (1, 2, 16, 8))
    assert cells == (*clean, ("c1_50mbit", 16), ("c4_5ms", 16), ("c4_6ms", 16), ("c4_7ms", 16))


@pytest.mark.parametrize(
    ("config", "more", "said"),
    [
        (RunConfig(system="psg", dataset="growing", parts=4), {}, "fetches no features"),
        (CONFIG.replace(ranks=2), {}, "Session"),
        (CONFIG, {"windows": (0,)}, "at least 1"),
        (CONFIG, {"windows": ()}, "at least 1"),
        (CONFIG, {"windows": (1, 2), "conditions": ("clean",)}, "3 cells"),
        (CONFIG, {"conditions": ("c2_5",)}, "c1_<X>"),
        (CONFIG, {"steps": 0}, "steps=0"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_trains(
    trained: list[RunConfig], tmp_path: Path, config: RunConfig, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        here.calibrate_here(config, tmp_path, progress=False, **more)
    assert not trained and not list(tmp_path.iterdir())


def test_a_stopped_run_ends_the_study(
    trained: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(config: RunConfig, **_: Any) -> Any:
        run = PretendRun(config)
        run.status = "stopped"
        return EndedRun(run)  # type: ignore[arg-type]

    monkeypatch.setattr(here, "run_config", stopped)
    with pytest.raises(RunFailedError, match="run pretend was stopped"):
        here.calibrate_here(CONFIG, tmp_path, progress=False)
    short = PretendRun(CONFIG.replace(epochs=1))
    assert len(step_seconds(short)) == EPOCH_STEPS - WARM_UPS  # type: ignore[arg-type]
    none = SimpleNamespace(id="x", table=lambda _: short.table("steps").head(WARM_UPS))
    with pytest.raises(RunFailedError, match="more epochs"):
        step_seconds(none)  # type: ignore[arg-type]


def test_unknown_power_is_not_written(
    trained: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "power.csv").write_text("of an earlier study")

    class Unread(PretendRun):
        def table(self, name: str) -> pd.DataFrame:
            described = super().table(name)
            return described.assign(joules=None) if name == "phase_energy" else described

    assert power_rows([Unread(CONFIG)]) == []  # type: ignore[list-item]
    monkeypatch.setattr(here, "run_config", lambda config, **_: EndedRun(Unread(config)))  # type: ignore[arg-type]
    study = here.calibrate_here(CONFIG, tmp_path, progress=False)
    assert not (tmp_path / "power.csv").exists() and study.calibration.watts is None
    assert "of another cluster" in study.described
    assert gzip.decompress((tmp_path / "fetch_rtt.csv.gz").read_bytes()).startswith(b"dataset,condition,concurrent")
