"""Curves over ranks: expectations beside counts, growth found again, formulas, what is measured and what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.forecast.forecast import forecast
from dtdg_lab.forecast.rank_curves import RANKS, GrowthCurve, RankCurves, expected_halo
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.measures import pulled_rows
from dtdg_lab.systems.snapshot_groups.forecast import grown_times

SIZES: dict[str, Any] = {"generated_nodes": 240, "generated_edges": 1200, "generated_snapshots": 24}

ASKED = RunConfig(dataset="growing", **SIZES, hidden=8)


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return load_dataset("growing", **SIZES)


@pytest.fixture(scope="module")
def shown(graph: DynamicGraph, tmp_path_factory: pytest.TempPathFactory) -> RankCurves:
    """With one run made here."""
    folder = tmp_path_factory.mktemp("runs")
    config = RunConfig(dataset="growing", **SIZES, system="psg", hidden=8, epochs=3, threads=1, evaluate_every=3)
    run = run_config(config, runs_dir=folder).run
    return forecast(ASKED, changes={"window": 4}, runs=[run]).curves()


def values(shown: RankCurves, quantity: str, curve: str) -> dict[int, tuple[float, str]]:
    """Ranks -> value and kind of one curve."""
    return {
        row["ranks"]: (row["value"], row["kind"])
        for row in shown.rows
        if (row["quantity"], row["curve"]) == (quantity, curve) and row["kind"] != "measured"
    }


@pytest.mark.parametrize("parts", [2, 8, 30])
def test_halo_of_random_parts_is_near_its_expectation(graph: DynamicGraph, parts: int) -> None:
    some = graph.snapshots[-8:]
    counted = pulled_rows(some, make_partition("hash", graph, parts), "in").sum()
    assert expected_halo(some, parts) == pytest.approx(counted, rel=0.06)


def test_halo_of_a_part_for_each_vertex_is_every_edge(graph: DynamicGraph) -> None:
    """But for edges between nodes of one part, which the expectation has 1 / P of."""
    some = graph.snapshots[-3:]
    edges = sum(snapshot.num_edges for snapshot in some)
    assert expected_halo(some, 10**6) == pytest.approx(edges, rel=1e-3) and expected_halo(some, 1) == 0


def test_growth_is_found_again() -> None:
    found = GrowthCurve.through({parts: 3.0 * parts**0.4 for parts in (2, 4, 8, 16)})
    assert found is not None and found.error < 1e-9
    assert (found.scale, found.power, found.at(1024)) == pytest.approx((3.0, 0.4, 3.0 * 1024**0.4))
    assert GrowthCurve.through({2: 1.0, 4: 2.0}) is None


def test_a_longer_sequence_grows_as_the_short_one() -> None:
    times = np.linspace(1.0, 4.0, 40)
    grown = grown_times(times, 1000, window=4, seed=0)
    assert len(grown) == 997
    assert grown[-100:].mean() / grown[:100].mean() == pytest.approx(4.0, rel=0.2)
    assert grown[:20].mean() == pytest.approx(1.0, rel=0.1)


def test_formulas_hold_to_the_most_ranks(shown: RankCurves, graph: DynamicGraph) -> None:
    gradients = values(shown, "rank_bytes", "gradients, every system")
    assert set(gradients) == set(RANKS) and gradients[1][0] == 0
    assert gradients[1024][0] == pytest.approx(2 * gradients[2][0] * 1023 / 1024)
    by_snapshots = values(shown, "rank_bytes", "rows by snapshots (esdg)")
    assert max(by_snapshots) == 128  # no rank without a node of 240
    own = values(shown, "held_rows", "own alone")
    assert own[1024][0] == pytest.approx(graph.num_nodes / 1024)


def test_what_is_continued_is_marked_and_bounded(shown: RankCurves, graph: DynamicGraph) -> None:
    for name in ("hash", "metis"):
        copies = values(shown, "held_rows", f"own and copies, {name}")
        kinds = [copies[count][1] for count in RANKS]
        assert kinds == ["counted"] * 5 + ["fitted"] * 6
        assert all(graph.num_nodes / count <= copies[count][0] <= graph.num_nodes * 1.0001 for count in RANKS)
    halo = {name: values(shown, "rank_bytes", f"halo rows, {name}") for name in ("hash", "metis")}
    assert all(halo["metis"][count][0] <= halo["hash"][count][0] * 1.1 for count in RANKS)
    assert halo["hash"][1024][1] == "formula" and halo["metis"][1024][1] == "fitted"
    assert set(shown.growth) == {
        "rank_bytes: halo rows, metis",
        "held_rows: own and copies, hash",
        "held_rows: own and copies, metis",
    }


def test_no_schedule_beats_the_bound(shown: RankCurves) -> None:
    bound = values(shown, "epoch_s", "bound of schedules")
    efficient = values(shown, "efficiency", "bound of schedules")
    for scheduler in ("psg", "longest_first", "dygnex_greedy"):
        curve = values(shown, "epoch_s", scheduler)
        assert all(curve[count][0] >= bound[count][0] * (1 - 1e-9) for count in RANKS)
    for scheduler in ("psg", "fold"):
        curve = values(shown, "efficiency", scheduler)
        assert all(curve[count][0] <= efficient[count][0] * (1 + 1e-9) for count in RANKS)


def test_systems_are_predicted_as_far_as_partitions_are_made(shown: RankCurves, graph: DynamicGraph) -> None:
    for system, most in (("adgnn-t", 16), ("pygt-dist", 16), ("flaredtdg", 16), ("esdg", 128)):
        curve = values(shown, "epoch_s", system)
        assert max(curve) == most and all(value > 0 for value, _ in curve.values())
    assert "esdg on 256 ranks and more is not shown: ranks=256 for 240 nodes" in repr(shown)


def test_measured_points_and_notes(shown: RankCurves, graph: DynamicGraph) -> None:
    points = [row for row in shown.rows if row["kind"] == "measured"]
    assert {(row["quantity"], row["ranks"]) for row in points} == {("epoch_s", 1), ("rank_bytes", 1)}
    assert shown.measured_ranks == 1 and "Measured locally: 1 run on up to 1 rank;" in repr(shown)
    assert "communicate" in repr(shown) and "assumed" in repr(shown)
    figure = go.Figure(shown.figure)
    assert sum("measured" in (trace.name or "") for trace in figure.data) >= 1
    assert any(trace.line.dash == "dot" for trace in figure.data if trace.line)
    assert shown.figure["layout"]["shapes"], "the measured region is marked"
    assert "measured" in shown._repr_html_() and len(shown.table) == len(shown.rows)


def test_without_runs_the_shape_of_the_curves_is_said_to_be_all(graph: DynamicGraph) -> None:
    bare = forecast(ASKED, changes={"window": 4}, runs_dir=None).curves()
    assert bare.measured_ranks == 0 and "only the shape of the curves is meaningful" in repr(bare)
    assert not any("Shaded" in note["text"] for note in bare.figure["layout"]["annotations"])


def test_what_cannot_be_asked_is_refused(graph: DynamicGraph) -> None:
    with pytest.raises(ConfigError, match="1 to 4096"):
        forecast(ASKED, (1, 5000))
    with pytest.raises(ConfigError, match="whole numbers"):
        forecast(ASKED, (1.5,))  # type: ignore[arg-type]
