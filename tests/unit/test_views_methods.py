"""Methods and policies beside each other: joules, regret, and models against measurements."""

from __future__ import annotations

from typing import Any

import pytest
from hybrid_windows import check, traces
from synthetic_lines import START_NS, energy_row, line, step_row

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.manual_windows import regret_lines
from dtdg_lab.systems.feature_cache.model_errors import error_rows, model_figure, model_panels, model_words
from dtdg_lab.systems.feature_cache.policies.calibration import products
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, best_plan, cost_of
from dtdg_lab.systems.feature_cache.policies.simulator import CacheNoise, CacheSimulator, comparison_cases, draw_episode
from dtdg_lab.systems.feature_cache.policies.training import SEED, always_compared, run_policy
from dtdg_lab.visualization.energy import SO_FAR, energy_panel, energy_rows
from dtdg_lab.visualization.run_window import RunWindow


def run(method: str, joules: float | None, condition: str = "clean", **more: Any) -> dict[str, Any]:
    return {"method": method, "joules": joules, "condition": condition, "dataset": "products", **more}


# energy


def test_phases_are_means_over_seeds_and_what_is_not_told_apart_is_said() -> None:
    rows = [
        run("bgl", 100.0, phases={"compute": 60.0, "wait": 40.0}), run("bgl", 120.0, phases={"compute": 60.0}),
        run("dgl-default", 300.0), run("rapidgnn", None),
    ]  # fmt: skip
    figure, words = energy_panel(rows)
    check(figure)
    drawn = traces(figure)
    assert drawn["compute"]["x"] == ["bgl", "dgl-default", "rapidgnn"] and drawn["compute"]["y"] == [60.0, 0.0, 0.0]
    assert drawn["unattributed"]["y"] == [30.0, 300.0, 0.0], "half of the second seed's joules"
    assert drawn["seeds"]["x"] == ["bgl", "dgl-default"], "an unknown energy is not 0"
    assert drawn["seeds"]["error_y"]["array"] == [10.0, 0.0] == drawn["seeds"]["error_y"]["arrayminus"]
    texts = {note["x"]: note["text"] for note in figure["layout"]["annotations"]}
    assert texts == {"bgl": "110 J", "dgl-default": "300 J", "rapidgnn": "unknown"}
    assert words.startswith("bgl needs least, 110 J, 63 % less than dgl-default. Unknown: rapidgnn.")


def test_no_energy_is_a_picture_too() -> None:
    for figure, _ in (energy_panel([]), energy_panel([run("bgl", None)])):
        check(figure)
        assert figure["data"] == [] and figure["layout"]["annotations"]


def test_rows_of_runs_have_what_was_spent_by_phase() -> None:
    shown, bare = (RunWindow(RunConfig(dataset="growing", ranks=2)) for _ in range(2))
    for rank in (0, 1):
        for window in (shown, bare):
            window.add(line("steps", [step_row(0, 1.0)], rank=rank))
        shown.add(line("energy", [energy_row(1.0, 5.0)], rank=rank))
        shown.add(line("phase_energy", [[0, 0, START_NS, "compute", 3.0, 1.0, "modelled", 1.0]], rank=rank))
    first, second = energy_rows([("a", shown), ("b", bare)])
    assert (first["joules"], first["phases"], first["source"]) == (10.0, {"compute": 6.0}, "modelled")
    assert (second["joules"], second["phases"]) == (None, {})
    assert traces(energy_panel([first, second], SO_FAR)[0])["unattributed"]["y"] == [4.0, 0.0]


# policies


def test_regret_ends_at_what_the_policies_lost() -> None:
    costs, cases = products(), comparison_cases()
    episode = draw_episode([costs], cases[-1:], 0, seed=SEED, epochs=4, epoch_steps=25, noise=CacheNoise())
    simulator = CacheSimulator([costs], episodes=1, epoch_steps=25, draw=lambda number: episode)
    policies = {"fixed-8": always_compared(costs.parts)["fixed-8"], "random": always_compared(costs.parts)["random"]}
    windows = {name: run_policy(simulator, each, number=0).windows[0] for name, each in policies.items()}
    best = Clairvoyant(best_plan([episode]), [episode.number])
    windows["clairvoyant"] = run_policy(simulator, best, number=0).windows[0]
    lines, optimum = regret_lines(episode, windows), float(best_plan([episode]).totals[0])
    assert set(lines) == {"fixed-8", "random"} and all(len(each) == episode.steps for each in lines.values())
    for name, each in lines.items():
        assert each[-1] == pytest.approx(cost_of(episode, windows[name]) - optimum, abs=1e-6) and each[-1] >= -1e-9
    with pytest.raises(ConfigError, match="clairvoyant"):
        regret_lines(episode, {"random": windows["random"]})


# calls and models


def cell(condition: str, window: int, measured: float, predicted: float, **more: Any) -> dict[str, Any]:
    return {"condition": condition, "window": window, "measured_ms": measured, "predicted_ms": predicted, **more}


def test_errors_are_a_map_and_curves_have_squares() -> None:
    rows = [
        cell("c4_10ms", 16, 200.0, 190.0), cell("clean", 1, 100.0, 110.0), cell("clean", 16, 80.0, 80.0),
        cell("c4_5ms", 16, 150.0, 153.0, held_out=True), cell("c1_50mbit", 16, 900.0, 900.0),
    ]  # fmt: skip
    panels = model_panels(rows, {"clean": [(1, 110.0), (4, 90.0), (16, 80.0)]})
    for figure, _ in panels.values():
        check(figure)
    (trace,) = panels["errors"][0]["data"]
    assert panels["errors"][0]["layout"]["yaxis"]["ticktext"] == ["clean", "c1_50mbit", "c4_5ms", "c4_10ms"]
    assert trace["z"] == [[10.0, 0.0], [None, 0.0], [None, 2.0], [None, -5.0]]
    assert panels["errors"][1] == (
        "Predictions are off by 3.8% on average, and by 2% where the model had not seen the cell."
    )
    clean, squares = [each for each in panels["curves"][0]["data"] if each["name"] == "clean"]
    assert clean["x"] == [1, 4, 16] and squares["x"] == [1, 16] and squares["y"] == [100.0, 80.0]
    late = [each for each in panels["curves"][0]["data"] if each["name"] == "c4_5ms"]
    assert late[1]["marker"]["symbol"] == ["square-open"] and late[0]["text"] == ["  c4_5ms  "]
    check(model_figure([]))
    assert model_words(rows[:2]) == "Predictions are off by 7.5% on average, and by 10% at most, at clean, W 1."
    assert model_words([]) == "Nothing measured yet."


def test_errors_of_a_calibration_as_rows() -> None:
    class EventList:
        dataset, condition, window, measured_ms = "reddit", "clean", 16, 100.0
        predicted_ms, cell_out_ms, condition_out_ms = 101.0, 105.0, float("nan")

    assert [row["predicted_ms"] for row in error_rows([EventList()])] == [101.0]
    (row,) = error_rows([EventList()], without="cell")
    assert row["held_out"] and row["predicted_ms"] == 105.0
    assert error_rows([EventList()], without="condition") == []
    check(model_figure(error_rows([EventList()])))


def test_runs_at_different_epochs_are_compared_by_the_epoch() -> None:
    def so_far(method: str, joules: float, epochs: int) -> dict[str, object]:
        return {"method": method, "condition": SO_FAR, "joules": joules, "epochs": epochs, "phases": {}, "seed": 0}

    _, words = energy_panel([so_far("stopped", 10.0, 1), so_far("finished", 40.0, 8)], SO_FAR)
    assert words.startswith(
        "The runs stand at different epochs; of joules for one epoch: finished needs least, 5 J, 50 %"
    )
    _, words = energy_panel([so_far("one", 10.0, 8), so_far("other", 40.0, 8)], SO_FAR)
    assert words.startswith("one needs least, 10 J, 75 %")
