"""Energy by rank and by phase."""

from __future__ import annotations

import pytest

from tests.common_charts import STARTED, card_of, drawn, readings, run_of, steps, traces
from tests.tables import START_NS


def test_energy_is_stacked_by_rank() -> None:
    run = run_of(events=[STARTED], steps=steps(1), energy=readings(range(1, 31)))
    figure, caption = drawn("energy", run)
    tops = [trace["y"][-1] for trace in figure["data"] if trace.get("customdata")]
    assert tops == pytest.approx([300.0, 600.0])
    assert card_of(figure)["unit"] == "J, all ranks, modelled"
    assert [note["text"].split("</span> ")[1] for note in figure["layout"]["annotations"]] == ["rank 0", "rank 1"]
    assert caption == "Both ranks have used 600 J and draw 44.0 W now."


def test_energy_of_one_and_of_many_ranks_is_one_area() -> None:
    alone = run_of({"ranks": 1}, events=[STARTED], steps=steps(1, 1), energy=readings(range(1, 31), 1))
    assert drawn("energy", alone)[1] == "The only rank has used 300 J and draws 22.0 W now."
    config = {"ranks": 64, "parts": 64}
    figure, _ = drawn("energy", run_of(config, events=[STARTED], steps=steps(1, 64), energy=readings(range(1, 5), 64)))
    assert {trace["name"] for trace in figure["data"]} == {"all ranks"}
    assert figure["data"][-1]["y"][-1] == pytest.approx(64 * 40) and not figure["layout"]["annotations"]


def test_energy_that_was_not_read_is_a_gap_and_said() -> None:
    rows = [*readings(range(1, 11)), *readings(range(31, 41))]
    figure, caption = drawn("energy", run_of(events=[STARTED], steps=steps(1), energy=rows))
    top = figure["data"][-1]
    inside = [y for x, y in zip(top["x"], top["y"], strict=True) if 11 < x < 29]
    assert inside and all(y is None for y in inside) and top["y"][-1] == pytest.approx(400.0)
    assert caption == "Energy is known for 50% of the time; the rest is missing."


def test_energy_that_nothing_reads_is_unknown() -> None:
    rows = readings(range(1, 31), joules=None, watts=None)
    figure, caption = drawn("energy", run_of(events=[STARTED], steps=steps(1), energy=rows))
    assert not figure["data"] and caption == "Energy is unknown: this machine neither measures nor models it."


def test_energy_of_a_machine_and_of_steps() -> None:
    whole = readings(range(1, 31), 1, reader="rapl", source="counter", scope="node", node="a")
    figure, _ = drawn("energy", run_of(events=[STARTED], steps=steps(1), energy=whole))
    assert {trace["name"] for trace in figure["data"]} == {"machine"}
    assert card_of(figure)["unit"] == "J, all ranks, measured"
    rows = steps(5, energy_j=3.0, energy_source="modelled")
    assert drawn("energy", run_of(events=[STARTED], steps=rows))[1] == "Both ranks have used 30.0 J."


def test_energy_by_phase_names_the_largest() -> None:
    rows = [
        {"rank": rank, "phase": phase, "joules": joules, "seconds": 1.0, "source": "modelled", "coverage": 1.0}
        for rank in (0, 1)
        for phase, joules in (("compute", 6.0), ("wait", 4.0))
    ]
    figure, caption = drawn("energy_by_phase", run_of(steps=steps(1), phase_energy=rows))
    bars = traces(figure)
    assert bars["compute"]["x"] == [6.0, 6.0] and "pattern" in bars["wait for ranks"]["marker"]
    assert caption == "Compute took 60% of the energy."


def test_every_colour_of_the_energy_by_phase_is_named_and_small_phases_are_other() -> None:
    amounts = (("compute", 96.0), ("rebuild", 1.5), ("checkpoint", 1.5), ("stall", 1.0))
    rows = [{"rank": 0, "phase": phase, "joules": joules, "seconds": 1.0} for phase, joules in amounts]
    figure, _ = drawn("energy_by_phase", run_of({"ranks": 1}, steps=steps(1), phase_energy=rows))
    assert [key[0] for key in card_of(figure)["keys"]] == ["compute", "other"]
    assert traces(figure)["other"]["x"] == [4.0]


def test_joules_of_phases_that_nothing_reads_are_unknown_and_not_0() -> None:
    rows = [
        {"rank": rank, "phase": phase, "joules": joules, "seconds": 1.0, "source": "counter", "coverage": 1.0}
        for rank, phase, joules in ((0, "compute", 12_345.0), (0, "new phase", 5.0), (1, "compute", None))
    ]
    figure, caption = drawn("energy_by_phase", run_of(steps=steps(1), phase_energy=rows[2:]))
    assert figure["data"] == [] and caption == "Nothing measured yet."
    late = [{**row, "time_ns": START_NS + 60 * 10**9} for row in steps(1, first=1)]
    figure, caption = drawn("energy_by_phase", run_of(steps=[*steps(1), *late], phase_energy=rows[2:]))
    assert figure["data"] == [] and "unknown" in caption.lower()
    figure, caption = drawn("energy_by_phase", run_of(steps=steps(1), phase_energy=rows))
    assert card_of(figure)["unit"] == "kJ" and caption == "Compute took 100% of the energy."
    assert {name: bar["x"] for name, bar in traces(figure).items()} == {"compute": [12.345], "other": [0.005]}
