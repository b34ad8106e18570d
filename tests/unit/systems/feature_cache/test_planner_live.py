"""The planner of a live run: it looks over the end of an epoch, and each decision records how far it looked."""

from __future__ import annotations

from pathlib import Path

import pytest

import dtdg_lab as lab


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [60])
def test_every_decision_has_a_forecast_though_a_window_is_as_long_as_an_epoch(tmp_path: Path, batch_size: int) -> None:
    config = lab.RunConfig(
        system="greendygnn", dataset="growing", model="tgcn", parts=3, epochs=6, batch_size=batch_size,
        generated_nodes=360, generated_edges=1200, generated_snapshots=12, cache_policy="planner", cache_window=16,
        device="cpu", evaluate_every=100, seed=1,
    )  # fmt: skip
    run = lab.train(config, runs_dir=tmp_path, progress=False)
    steps = run.table("resolved")["step"].max() + 1
    decisions = run.table("cache_decisions")
    assert len(decisions) > 5
    inner = decisions[decisions["step"] + 16 < steps]
    without = (inner["covered"] == 0).sum()
    assert without == 0, f"{without} of {len(inner)} decisions without a forecast"
    assert all(len(of) == 24 for of in inner["forecast_ms"])
    print(len(inner), inner["covered"].tolist())
