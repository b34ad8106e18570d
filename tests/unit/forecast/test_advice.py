"""Counts of an epoch by hand, rates found again from runs made of them, advice under budgets, errors learnt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.forecast.advice import Advice
from dtdg_lab.forecast.forecast import forecast
from dtdg_lab.forecast.measured_runs import MeasuredRun, find_runs, measured_run
from dtdg_lab.forecast.prediction_error import learn_errors, summarize_errors
from dtdg_lab.forecast.rates import fit_rates
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.systems.step_time import MeasuredStep, ScalingModel
from dtdg_lab.systems.workload import ASSUMED_COMPUTE, count_work

DATA: dict[str, Any] = {"dataset": "growing", "generated_nodes": 120, "generated_edges": 500, "generated_snapshots": 30}
SMALL: dict[str, Any] = {**DATA, "hidden": 8, "threads": 1, "epochs": 3, "evaluate_every": 3}
ASKED = RunConfig(**DATA, hidden=8)
CHANGES = {"window": 4, "epoch_batches": 4}
WINDOWED = ("flaredtdg", "full-history", "dynagraph", "recent-only")
TRAINED = ("single", "psg", "flaredtdg", "dbov", "dgl-default", "pygt-dist")


def of(system: str, **changes: Any) -> RunConfig:
    """A small config of a system, whose windows fit the data."""
    window = {"window": 4} if system in WINDOWED else {}
    return RunConfig(**(SMALL | window | changes), system=system)


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return load_dataset(DATA["dataset"], **{name: value for name, value in DATA.items() if name != "dataset"})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoredRun]]:
    """A run of a system of each kind, in this process."""
    folder = tmp_path_factory.mktemp("runs")
    yield [
        run_config(of(system, **({"epoch_batches": 4} if system == "dbov" else {})), runs_dir=folder).run
        for system in TRAINED
    ]


@pytest.fixture(scope="module")
def advice(graph: DynamicGraph, runs: list[StoredRun]) -> Advice:
    return forecast(ASKED, 2, CHANGES, runs=runs).advice(1.0)


@pytest.mark.parametrize("system", [name for name in catalogue.names("systems") if name not in ("single", "pipad")])
def test_every_system_is_counted_on_two_ranks(system: str, graph: DynamicGraph) -> None:
    work, facts = count_work(of(system, ranks=2), graph)
    assert work.steps >= 1 and work.rows.shape == (2,) and (work.rows > 0).all()
    assert (work.edges <= work.rows * facts.graph.num_nodes).all()
    assert (work.passes >= 0).all() and np.isfinite(work.passes).all()
    assert (work.sent.diagonal() == 0).all()


def test_gradients_are_counted_by_hand(graph: DynamicGraph) -> None:
    """T-GCN: three gates of (F H + H) and (2 H H + H), and a readout of H + 1; slots: four, and one a rank."""
    work, facts = count_work(of("psg", ranks=2), graph)
    features, hidden = graph.num_features, 8
    parameters = 3 * (features * hidden + hidden + 2 * hidden * hidden + hidden) + hidden + 1
    assert facts.parameters == parameters
    groups = len(facts.train) - 4 + 1
    assert work.steps == -(-groups // 2)
    assert work.rank_bytes == work.steps * 2 * (parameters + 4 + 2) * 4 // 2


def test_snapshot_rows_follow_the_formula_of_the_paper(graph: DynamicGraph) -> None:
    """S N (R - 1) / R rows a leg, F numbers each, where shares are even: T-GCN of one layer has one leg."""
    config = of("esdg", ranks=3, parts=3, overlap=False)
    work, facts = count_work(config, graph)
    length = len(facts.train)
    assert length % 3 == 0 and graph.num_nodes % 3 == 0
    assert work.sent.sum() == length * graph.num_nodes * 2 / 3 * graph.num_features * 4


@pytest.mark.parametrize("system", ["single", "psg", "flaredtdg", "dgl-default"])
def test_rows_are_those_that_a_run_recorded(system: str, runs: list[StoredRun], graph: DynamicGraph) -> None:
    found = measured_run(next(run for run in runs if run.config.system == system), graph)
    near = 0.0 if system == "single" or system == "psg" else 0.15  # random cuts; the last batch is smaller
    assert float(found.work.rows.sum()) == pytest.approx(found.quantities["rows"], rel=near)


RATES = ScalingModel(np.array([3e-9, 7e-10, 2e-4, 0.0, 0.0, 1e-3]), None, None, None)


def made_of(run: MeasuredRun, graph: DynamicGraph, system: str, factor: float = 1.0, **changes: Any) -> MeasuredRun:
    """A run of a system, as if it had taken exactly what rates say, times a factor, and 5 bytes a number kept."""
    work, facts = count_work(of(system, **changes), graph)
    compute = (work.step().passes @ RATES.compute) * factor
    step = MeasuredStep(f"{system} {changes}", work.step(), compute, np.zeros(1), None, None)
    kept = work.alive[0] @ np.array([facts.row_numbers, facts.edge_numbers])
    described = {"epoch_s": float(compute.max()) * work.steps, "peak_bytes": float(kept) * 5}
    return replace(run, work=work, facts=facts, step=step, quantities=MappingProxyType(described))


def test_runs_that_follow_the_model_are_predicted_without_error(runs: list[StoredRun], graph: DynamicGraph) -> None:
    one = measured_run(runs[0], graph)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("single", {}),
        ("psg", {}),
        ("psg", {"group_window": 6}),
        ("flaredtdg", {}),
        ("dynagraph", {}),
        ("dbov", {"epoch_batches": 4}),
        ("dbos", {"epoch_batches": 4}),
        ("pygt-dist", {"parts": 2}),
        ("full-history", {}),
    ]
    exact = [made_of(one, graph, system, **changes) for system, changes in asked]
    for quantity in ("epoch_s", "peak_bytes"):
        described = summarize_errors(learn_errors(exact), quantity)
        assert described is not None and described[1] < 0.02 and described[2] == len(exact)
    slow = [replace(each, run=runs[0]) for each in exact[:-1]] + [made_of(one, graph, "full-history", 3.0)]
    described = [each for each in learn_errors(slow) if each.quantity == "epoch_s"]
    assert described[-1].error == pytest.approx(1 / 3 - 1, abs=0.02)  # of it alone nothing was known


def test_few_runs_scale_what_is_assumed(runs: list[StoredRun], graph: DynamicGraph) -> None:
    """Rates are told apart by seven runs or more; of fewer, the median says how fast the machine is."""
    one = measured_run(runs[0], graph)
    few = [made_of(one, graph, "single", factor) for factor in (1.0, 2.0, 4.0)]
    found = fit_rates(few, one.facts)
    assert found.scaling.compute / np.array(ASSUMED_COMPUTE).clip(1e-30) == pytest.approx(
        np.where(np.array(ASSUMED_COMPUTE) > 0, found.scaling.compute[0] / ASSUMED_COMPUTE[0], 0.0)
    )
    assert float((few[1].step.work.passes @ found.scaling.compute).sum()) == pytest.approx(few[1].step.compute_s.sum())
    assert "too few" in " ".join(found.notes)


def test_each_run_is_predicted_by_the_others(runs: list[StoredRun], graph: DynamicGraph) -> None:
    """Its own seconds, however wrong, change nothing of what is predicted for it."""

    def predicted(some: list[Any]) -> dict[str, float]:
        return {each.run: each.predicted for each in learn_errors(some) if each.quantity == "epoch_s"}

    found = list(find_runs(runs, graph=graph).runs)
    slower = [replace(of, step=replace(of.step, compute_s=of.step.compute_s * 50)) for of in found]
    one, honest = found[1].run.id, predicted(found)
    assert predicted([found[0], slower[1], *found[2:]])[one] == pytest.approx(honest[one], rel=1e-9)
    assert predicted([slower[0], found[1], *slower[2:]])[one] > 2 * honest[one]
    assert all(each.left_out for each in learn_errors(found)) and not learn_errors(found[:1])[0].left_out


@pytest.mark.slow
@given(first=st.floats(1e-5, 0.05), more=st.floats(1.0, 50.0))
def test_more_memory_never_hurts(advice: Advice, first: float, more: float) -> None:
    """What fits a budget fits a larger one, and the best is no slower there."""

    def fitting(budget: float) -> dict[str, float]:
        return {
            each.system: each.predicted.epoch_s
            for each in advice.suggestions
            if each.predicted.memory_bytes <= budget * 2**30
        }

    small, large = fitting(first), fitting(first * more)
    assert small.keys() <= large.keys()
    if small:
        assert min(large.values()) <= min(small.values())


def test_advice_ranks_what_fits_and_says_what_would(graph: DynamicGraph, runs: list[StoredRun]) -> None:
    described = forecast(ASKED, 2, CHANGES, runs=runs).advice(0.0002)
    verdicts = [each.fits for each in described.suggestions]
    assert verdicts == sorted(verdicts, reverse=True) and True in verdicts and False in verdicts
    for group in (True, False):
        times = [each.predicted.epoch_s for each in described.suggestions if each.fits is group]
        assert times == sorted(times)
    helped = next(each for each in described.suggestions if not each.fits and each.remedy)
    assert str(helped.remedy) in helped.why() and "does not fit" in helped.why()
    work, facts = count_work(helped.config.replace(**helped.remedy.changes), graph)
    assert described.rates.predict(work, facts).memory_bytes <= helped.budget_bytes
    assert described.best is described.suggestions[0] and f"First {described.best.system}: " in described.summary()
    assert set(described.excluded) == {"single", "pipad"}


def test_errors_stand_beside_predictions_or_the_word_assumed(advice: Advice, graph: DynamicGraph) -> None:
    for each in advice.suggestions:
        kinds = {name: each.errors[name].kind for name in ("epoch_s", "rank_bytes", "peak_bytes")}
        assert kinds["rank_bytes"] in ("exact", "assumed")  # no run had two ranks
        assert kinds["epoch_s"] == ("learnt" if each.system in TRAINED else "of others")
        assert "communicate assumed" in str(each.errors["epoch_s"]) or each.system == "dynahb"
    bare = forecast(ASKED, 2, {"window": 4}, runs_dir=None).advice(1.0)
    assert all(str(each.errors["epoch_s"]) == "assumed" for each in bare.suggestions)
    assert "all rates are assumed" in bare.summary() and not bare.errors


def test_figures_can_be_drawn_and_pages_read(advice: Advice) -> None:
    for figure in (advice.figure, advice.against_measured):
        assert go.Figure(figure).data
    html = advice._repr_html_()
    assert "<td>psg</td>" in html and "±" in html and "psg" in repr(advice)
    assert set(advice.table["system"]) == {each.system for each in advice.suggestions}
    assert "1 runs" not in advice.summary()


def test_runs_that_tell_nothing_are_named(graph: DynamicGraph, tmp_path: Path) -> None:
    short = run_config(of("single", epochs=1, evaluate_every=1), runs_dir=tmp_path).run
    slow = run_config(of("psg", slow_rank=0, slow_ms=1.0), runs_dir=tmp_path).run
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    found = find_runs([tmp_path], graph=graph)
    assert not found.runs and set(found.skipped) == {short.id, slow.id, "broken"}
    assert "slowed artificially" in found.skipped[slow.id]


def test_calibration_trains_some_runs(graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: {} for name in ("single", "psg", "pygt-dist")}
    monkeypatch.setattr("dtdg_lab.forecast.forecast.calibration_settings", lambda: few)
    described = forecast(ASKED, 1, {"threads": 1}, systems=("psg", "single"), runs_dir=tmp_path).advice(
        1.0, calibrate=True
    )
    assert described.rates.runs == 3 and "compute" not in described.rates.assumed
    assert {run.parent for run in tmp_path.glob("*/summary.json")}


def test_what_cannot_be_asked_is_refused(graph: DynamicGraph, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="memory_gib=0"):
        forecast(ASKED, 2).advice(0)
    with pytest.raises(UnknownNameError, match="psg"):
        forecast(ASKED, 2, systems=("pgs",))
    with pytest.raises(ConfigError, match="no chosen system reads"):
        forecast(ASKED, 2, {"cache_window": 4}, systems=("psg",), runs_dir=None).advice(1.0)
    with pytest.raises(UnknownNameError, match="full_snapshots"):
        forecast(ASKED, 2, {"full_snapshot": 4})
    with pytest.raises(ConfigError, match="needs a RunConfig"):
        forecast(3)  # type: ignore[arg-type]
    with pytest.raises(RunStoreError, match="is not a run and contains none"):
        forecast(ASKED, 2, runs=[tmp_path]).advice(1.0)
