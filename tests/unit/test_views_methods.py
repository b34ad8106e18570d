"""Methods and policies beside each other: joules, tables, regret, calls and models against measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hybrid_windows import check, traces
from synthetic_lines import START_NS, energy_row, line, step_row

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.charts import CallCost, call_cost, rpc_payload_figure, rpc_payload_panels
from dtdg_lab.systems.feature_cache.policies.calibration import products
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, best_plan, regret_of
from dtdg_lab.systems.feature_cache.policies.simulator import CacheNoise, CacheSimulator, comparison_cases, draw_episode
from dtdg_lab.systems.feature_cache.policies.training import SEED, always_compared, compare, run_policy
from dtdg_lab.systems.feature_cache.policy_charts import (
    error_rows,
    model_figure,
    model_panels,
    model_words,
    policy_rows,
    policy_table,
    policy_table_figure,
    policy_table_panels,
    policy_text,
    regret_lines,
    regret_panel,
)
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
    for figure, _ in (energy_panel([]), energy_panel([run("bgl", None)]), regret_panel({})):
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


def rows_of(joules: dict[str, list[float]]) -> list[dict[str, Any]]:
    cases = ["none/light", "none/heavy", "slow/light"]
    return [
        {"policy": name, "case": case, "joules": each}
        for name, described in joules.items() for case, each in zip(cases, described, strict=True)
    ]  # fmt: skip


KNOWN = {
    "clairvoyant": [100.0, 100.0, 100.0], "fixed-8": [110.0, 104.0, 130.0], "fixed-16": [105.0, 120.0, 125.0],
    "learned": [106.0, 104.5, 150.0], "planner": [105.5, 103.0, 104.0],
}  # fmt: skip


def test_distances_are_to_the_optimum_and_to_the_best_fixed_window_of_each_case() -> None:
    table = policy_table(rows_of(KNOWN))
    assert [table.best_fixed(case)[0] for case in table.cases] == ["fixed-16", "fixed-8", "fixed-16"]
    assert table.beyond_optimum("learned", "slow/light") == pytest.approx(0.5)
    assert table.beyond_fixed("learned", "slow/light") == pytest.approx(0.2)
    assert table.losses("planner") == [] and [case for _, case in table.losses("learned")] == ["slow/light"]
    panels = policy_table_panels(table)
    for figure, _ in panels.values():
        check(figure)
    (trace,) = panels["optimum"][0]["data"]
    assert panels["optimum"][0]["layout"]["yaxis"]["ticktext"][0] == "planner" and trace["z"][0] == [5.5, 3.0, 4.0]
    assert panels["optimum"][1].startswith("Joules beyond the optimum, mean of 3 cases: planner 4.2 %,")
    assert panels["fixed"][1] == (
        "learned loses in 1 of 3 cases, by up to 20.0 % (slow/light). Never by more than 1 %: planner."
    )


def test_a_policy_better_than_the_optimum_is_an_error_that_is_told() -> None:
    table = policy_table(rows_of({**KNOWN, "cheat": [99.0, 100.0, 100.0]}))
    assert "Something is wrong: cheat in none/light needs less than the optimum." in policy_table_panels(table)[
        "optimum"
    ][1]  # fmt: skip


def test_a_comparison_without_measures_says_what_is_missing() -> None:
    panels = policy_table_panels(policy_table(rows_of({"learned": [1.0, 2.0, 3.0]})))
    assert "no clairvoyant was run" in str(panels["optimum"][0]) and "no fixed window" in str(panels["fixed"][0])
    for figure, _ in (*panels.values(), *policy_table_panels(policy_table([])).values()):
        check(figure)
    assert policy_text([]).startswith("policy")


def test_the_table_of_policies_in_text() -> None:
    text = policy_text(rows_of(KNOWN))
    lines = {each.split()[0]: each.split() for each in text.splitlines()[1:]}
    assert list(lines) == ["clairvoyant", "planner", "fixed-8", "fixed-16", "learned"]
    assert lines["learned"] == ["learned", "+20.2", "%", "+50.0", "%", "+7.1", "%", "+20.0", "%", "1"]
    several = [{**row, "costs": costs} for row in rows_of(KNOWN) for costs in ("a", "b")]
    assert policy_text(several, markdown=True).count("\n") == 6 and policy_text(several).splitlines()[-1].endswith(" 2")


def test_many_cases_are_named_by_their_patterns() -> None:
    rows = [
        {"policy": name, "case": f"{pattern}/{kind}", "joules": 1.0 + place}
        for place, name in enumerate(("clairvoyant", "fixed-8"))
        for pattern in ("none", "one_slow", "two_slow") for kind in ("light/delay", "heavy/delay", "light/rate", "x")
    ]  # fmt: skip
    figure, _ = policy_table_panels(policy_table(rows))["fixed"]
    assert figure["layout"]["xaxis"]["ticktext"] == ["none", "one slow", "two slow"]
    assert figure["layout"]["xaxis"]["tickvals"] == [1.5, 5.5, 9.5]
    assert "light delay, heavy delay, light rate, x" in figure["layout"]["xaxis"]["title"]["text"]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [3.5, 7.5]


def test_a_simulated_comparison_is_drawn() -> None:
    compared = compare({}, [products()], comparison_cases()[:2], episodes=1, epochs=4)
    rows = policy_rows(compared)
    check(policy_table_figure(rows))
    table = policy_table(rows)
    for each in compared:
        assert table.beyond_optimum(each.policy, each.case) == pytest.approx(each.over_clairvoyant)
        assert table.beyond_fixed(each.policy, each.case) == pytest.approx(each.over_best_fixed)


def test_regret_ends_at_what_the_policies_lost() -> None:
    costs, cases = products(), comparison_cases()
    episode = draw_episode([costs], cases[-1:], 0, seed=SEED, epochs=4, epoch_steps=25, noise=CacheNoise())
    simulator = CacheSimulator([costs], episodes=1, epoch_steps=25, draw=lambda number: episode)
    policies = {"fixed-8": always_compared(costs.parts)["fixed-8"], "random": always_compared(costs.parts)["random"]}
    windows = {name: run_policy(simulator, each, number=0).windows[0] for name, each in policies.items()}
    best = Clairvoyant(best_plan([episode]), [episode.number])
    windows["clairvoyant"] = run_policy(simulator, best, number=0).windows[0]
    lines = regret_lines(episode, windows)
    assert set(lines) == {"fixed-8", "random"} and all(len(each) == episode.steps for each in lines.values())
    for name, each in lines.items():
        assert each[-1] == pytest.approx(regret_of(episode, windows[name]), abs=1e-6) and each[-1] >= -1e-9
    figure, words = regret_panel(lines)
    check(figure)
    assert len(figure["data"]) == 2 and words.startswith("In the end: ")
    with pytest.raises(ConfigError, match="clairvoyant"):
        regret_lines(episode, {"random": windows["random"]})


# calls and models


def calls(rows: int, rtt_s: float, dim: int = 100) -> dict[str, Any]:
    return {"rows": rows, "rtt_s": rtt_s, "feat_dim": dim}


def test_initiation_and_payload_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    rows = [
        calls(count, (0.0015 + 2e-9 * 400 * count) * noise)
        for count in (1, 10, 100, 1000, 10_000) for noise in rng.normal(1, 0.02, 20)
    ]  # fmt: skip
    rows += [calls(100, 0.5)]  # one call that hung
    cost = call_cost({400.0 * n: 0.0015 + 2e-9 * 400 * n for n in (1, 10, 1000, 100_000)})
    assert (cost.initiation_s, cost.s_per_byte) == (pytest.approx(0.0015, rel=1e-3), pytest.approx(2e-9, rel=1e-3))
    assert cost.crossover_bytes == pytest.approx(750_000, rel=1e-3) and cost.share(0) == 1.0
    panels = rpc_payload_panels(rows)
    for figure, _ in panels.values():
        check(figure)
    first = traces(panels["shares"][0])["initiation"]
    assert first["x"] == ["1", "10", "100", "1,000", "10,000"]
    assert first["y"][0] == pytest.approx(100, abs=0.2) and first["y"][3] == pytest.approx(65, abs=2)
    assert "its bytes cost as much from 1,8" in panels["shares"][1] or "1,9" in panels["shares"][1]
    check(rpc_payload_figure(rows))
    check(rpc_payload_panels([])["shares"][0])


def test_no_part_of_a_call_is_negative() -> None:
    falling = call_cost({100.0: 0.010, 1000.0: 0.005, 10_000.0: 0.002})
    assert falling.initiation_s > 0 and falling.s_per_byte == 0.0 and falling.crossover_bytes is None
    through = call_cost({1000.0: 0.0005, 100_000.0: 0.1})
    assert through.initiation_s == 0.0 and through.share(100) == 0.0
    assert CallCost(0.0, 0.0).share(5) == 0.0


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
        "The mean error is 3.8 % over 4 cells it was fitted to and 2.0 % over 1 it had not seen; the largest, +10.0 %, "
        "at clean, W 1. Red: predicted too slow."
    )
    clean, squares = [each for each in panels["curves"][0]["data"] if each["name"] == "clean"]
    assert clean["x"] == [1, 4, 16] and squares["x"] == [1, 16] and squares["y"] == [100.0, 80.0]
    late = [each for each in panels["curves"][0]["data"] if each["name"] == "c4_5ms"]
    assert late[1]["marker"]["symbol"] == ["square-open"] and late[0]["text"] == ["  c4_5ms  "]
    check(model_figure([]))
    assert model_words([])


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
