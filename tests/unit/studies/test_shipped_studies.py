"""The studies that come with the lab: their runs are allowed, and what is read from them is what the runs say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.studies.near_best import near_best_bars
from dtdg_lab.studies.preset import preset, presets
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.scaling import efficiencies
from dtdg_lab.studies.sweep import Sweep, preset_sweep
from dtdg_lab.visualization.runs.curves import NEAR, finite_losses
from dtdg_lab.visualization.studies.scaling import Efficiency, efficiency_caption, efficiency_figure
from dtdg_lab.visualization.studies.spread import SpreadBar, apart, order_caption, spread_bars
from tests.factories import small_config


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("quick", [True, False])
def test_every_run_of_a_shipped_study_is_allowed(name: str, quick: bool) -> None:
    shipped = preset(name)
    sweep = preset_sweep(shipped, None, quick=quick)
    assert sweep.shipped == name == shipped.name and Sweep.from_json(sweep.to_json()) == sweep
    assert sweep.total <= 10 if quick else sweep.total >= 15
    assert shipped.question.endswith("?") and shipped.source


@pytest.mark.parametrize("name", [name for name in presets() if name != "scaling"])
def test_a_base_that_cannot_answer_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="system='psg'"):
        preset_sweep(preset(name), RunConfig(system="psg"), quick=True)


@pytest.mark.slow
def test_seconds_to_a_near_loss_are_those_of_the_runs(tmp_path: Path) -> None:
    quick = {"epochs": 4, "epoch_batches": 4, "reservoir": False, "generators": "threads", "threads": 1}
    base = small_config("dynahb", **quick)
    study = run_study("dynahb-table8", base=base, quick=True, runs_dir=tmp_path, progress=False)
    bars = near_best_bars(study.trials, study.sweep.axes[0], {"DQN": 1.84})
    assert [bar.label for bar in bars] == ["5 %", "20 %", "DQN"] and bars[2].paper == 1.84
    for seed in (0, 1):
        of_seed = {str(t.settings["size"]): finite_losses(study.open(t).live) for t in study.trials if t.seed == seed}
        aim = min(loss for points in of_seed.values() for _, loss in points) * (1 + NEAR)
        for bar in bars:
            expected = next((at for at, loss in of_seed[bar.label] if loss <= aim), None)
            assert expected in bar.values if expected is not None else bar.missed
    assert any(bar.values for bar in bars)
    ((figure, words),) = study.analysis().values()
    assert figure["data"] and "least time" in words and "DQN 1.8" in words


def test_bars_say_which_cannot_be_told_apart() -> None:
    bars = [
        SpreadBar("a", (1.0, 2.0)),
        SpreadBar("b", (1.5, 3.0)),
        SpreadBar("c", (5.0, 6.0)),
        SpreadBar("d", (0.5,), 1),
    ]
    assert not apart(bars[0], bars[1]) and apart(bars[0], bars[2]) and not apart(bars[2], bars[3])
    words = order_caption(bars, "time")
    assert words.startswith("a has the least time (median 1.5); indistinguishable from it: b; not with every seed: d.")
    drawn = spread_bars(bars, "t", "s")["data"]
    assert drawn[0]["x"] == [1.5, 2.25, 5.5, 0.5] and len(drawn[1]["x"]) == 7
    assert drawn[0]["y"][3] == "d (1 did not get there)"
    assert "no run has ended yet" in str(spread_bars([SpreadBar("a", ())], "t", "s")["layout"])


def test_efficiency_is_speed_up_over_ranks() -> None:
    known = [Efficiency("psg", {1: 8.0, 2: 5.0, 4: 4.0}), Efficiency("esdg", {1: 8.0, 2: 4.0, 4: 2.0})]
    assert known[0].at(4) == 0.5 and known[1].at(4) == 1.0 and known[0].at(8) is None
    assert "esdg keeps 100% of them, psg 50%" in efficiency_caption(known)
    lines = {trace["name"]: trace["y"] for trace in efficiency_figure(known)["data"]}
    assert lines["psg"] == [1.0, 0.8, 0.5] and lines["ideal"] == [1, 1]
    assert "two engines or more" in efficiency_caption([Efficiency("psg", {1: 1.0})])


def test_scaling_reads_epochs_of_runs(tmp_path: Path) -> None:
    base = small_config(epochs=2, threads=1)
    sweep = Sweep(base, {"ranks": (1,), "system": ("psg",)}, (0, 1), objective="epoch_time_s", shipped="scaling")
    study = run_study(sweep, name="one", runs_dir=tmp_path, progress=False)
    (only,) = efficiencies(study)
    times = sorted(study.open(trial).summary["epoch_time_s"] for trial in study.trials)
    assert only.seconds == {1: pytest.approx(sum(times) / 2)} and only.at(1) == 1.0
    assert "two engines or more" in study.analysis()["scaling"][1]
