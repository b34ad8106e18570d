"""Whole small races in this process: table, words, figures, files, going on after a kill, and runs that fail."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest

from dtdg_lab.cluster import one_run
from dtdg_lab.core.errors import ConfigError, NotFiniteError, RunStoreError
from dtdg_lab.studies import trial_runner as race_runner
from dtdg_lab.studies.race import prepare, race
from dtdg_lab.studies.race_plan import FILE, StopRule, find_race
from dtdg_lab.studies.race_result import Race, open_race
from tests.factories import small_config

SHORT = {"epochs": 3, "generated_snapshots": 20, "threads": 1}
PAIR = {
    "reference": small_config("single", **SHORT),
    "halo": small_config("adgnn-t", parts=2, **SHORT),
    "groups": small_config("psg", parts=2, **SHORT),
}


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("races")


@pytest.fixture(scope="module")
def described() -> list[tuple[str, ...]]:
    """States of the runs at every call of ``on_change``."""
    return []


@pytest.fixture(scope="module")
def made(runs_dir: Path, described: list[tuple[str, ...]]) -> Race:
    def changed(now: Race) -> None:
        described.append(tuple(run.state for run in now.runs))
        now.curves()

    return race(PAIR, seeds=(0, 1), runs_dir=runs_dir, name="whole", on_change=changed, progress=False)


@pytest.mark.slow
def test_every_contestant_runs_with_every_seed_and_is_watched(made, described):
    assert made.over and len(made.runs) == 6 and {run.state for run in made.runs} == {"finished"}
    assert {(run.label, run.seed) for run in made.runs} == {(label, seed) for label in PAIR for seed in (0, 1)}
    assert [run.open().config.seed for run in made.runs] == [run.seed for run in made.runs]
    assert ("under way",) in described and described[-1] == ("finished",) * 6
    assert len(described) >= 6 * (2 + 2), "beginning, end, and the evaluations in between"


@pytest.mark.slow
def test_the_table_has_medians_spreads_and_what_they_were_measured_on(made):
    table = made.table
    assert list(table.index) == list(PAIR) and (table["seeds"] == 2).all()
    for label in PAIR:
        losses = sorted(run.open().summary["test_loss"] for run in made.runs if run.label == label)
        row = table.loc[label]
        assert (row["test_loss_min"], row["test_loss_max"]) == pytest.approx((losses[0], losses[1]))
        assert row["test_loss"] == pytest.approx(sum(losses) / 2) and row["persistence_loss"] > 0
    assert (table["protocol"] == "warm").all() and (table["purge"] == 0).all()
    hashes = {digits for cell in table["data"] for digits in cell.split(", ")}
    assert len(hashes) == 2 and all(len(digits) == 12 for digits in hashes), "a generated graph for each seed"
    assert table.loc["reference", "coincides"] is True and pd.isna(table.loc["groups", "coincides"])
    assert table["joules"].gt(0).all() and table["peak_bytes"].gt(0).all() and (table["bytes"] == 0).all()


def test_joules_and_seconds_of_the_curves_end_where_the_run_does(made):
    for curve, run in zip(made.curves(), made.runs, strict=True):
        stored = run.open()
        assert curve.losses[-1] == pytest.approx(stored.summary["validation_loss"])
        assert 0 < curve.joules[-1] <= sum(stored.summary["energy_j"].values()) * 1.001
        assert curve.peak == stored.summary["peak_bytes"]
        assert list(curve.seconds) == sorted(curve.seconds) and list(curve.joules) == sorted(curve.joules)


def test_words_figures_and_page_say_the_same(made):
    words, page = made.summary(), made._repr_html_()
    assert "6 of 6 runs have finished" in words and "Losses that should be the same are: reference and halo" in words
    for figure in made.figures.values():
        go.Figure(figure)
    assert {"seconds", "joules", "bytes", "peak", "race", "bounds"} <= made.figures.keys()
    best_in = {name for cell in made.table["best_in"] for name in cell.split(", ") if name}
    cells = page[page.index("<table") : page.index("</table>")]
    assert cells.count("<b>") == len(best_in)
    assert "Bold marks the best median" in page and "DIFFER" not in page
    assert {bound.quantity for bound in made.bounds} == {"epoch"}, "nobody sends anything"
    assert all(bound.label == "groups" and bound.measured > bound.bound > 0 for bound in made.bounds)


def test_a_stored_race_is_read_back_as_it_was(made):
    for path in (made.folder, made.folder / FILE):
        again = open_race(path)
        pd.testing.assert_frame_equal(again.table, made.table)
        assert again.summary() == made.summary() and again.curves() == made.curves()


def test_the_same_call_repeats_nothing_and_more_seeds_go_on(made, runs_dir):
    before = sorted(path.name for path in runs_dir.iterdir())
    again = race(PAIR, seeds=(0, 1), runs_dir=runs_dir, name="whole", progress=False)
    assert sorted(path.name for path in runs_dir.iterdir()) == before and again.over
    other = {**PAIR, "groups": PAIR["groups"].replace(learning_rate=0.5)}
    with pytest.raises(ConfigError, match=r"'groups' with learning_rate=0.02, but now learning_rate=0.5"):
        race(other, seeds=(0, 1), runs_dir=runs_dir, name="whole", progress=False)
    with pytest.raises(ConfigError, match="leaves out"):
        race(dict(list(PAIR.items())[:2]), seeds=(0, 1), runs_dir=runs_dir, name="whole", progress=False)
    with pytest.raises(ConfigError, match=r"stop=None, but now stop=StopRule"):
        race(PAIR, seeds=(0, 1), runs_dir=runs_dir, name="whole", stop=StopRule(seconds=9), progress=False)
    assert sorted(path.name for path in runs_dir.iterdir()) == before


@pytest.mark.slow
def test_a_run_that_fails_is_told_and_tried_again(tmp_path, monkeypatch):
    real = one_run.run_config

    def failing(config, **more):
        if config.system == "psg":
            real(config, **more)
            raise NotFiniteError("the loss became NaN at step 3")
        return real(config, **more)

    monkeypatch.setattr(race_runner, "run_config", failing)
    made = race(PAIR, seeds=(0,), runs_dir=tmp_path, name="fails", progress=False)
    assert not made.over and made.runs[2].state == "failed"
    assert "Failed: groups with seed 0 (the loss became NaN at step 3)" in made.summary()
    assert made.table["failed"].tolist() == [0, 0, 1] and "1 failed" in made._repr_html_()
    assert math.isnan(made.table.loc["groups", "test_loss"])
    monkeypatch.undo()
    again = race(PAIR, seeds=(0,), runs_dir=tmp_path, name="fails", progress=False)
    assert again.over and "Failed" not in again.summary() and "With one seed there is no spread" in again.summary()
    assert "<b>" not in again._repr_html_()


def test_a_rule_ends_runs_before_their_epochs_and_still_tests_them(tmp_path):
    two = {label: PAIR[label].replace(epochs=300) for label in ("reference", "groups")}
    made = race(two, seeds=(0,), runs_dir=tmp_path, stop=StopRule(loss=10.0, patience=50), progress=False)
    for run in made.runs:
        summary = run.open().summary
        assert summary["epochs"] < 20 and summary["test_loss"] is not None
        assert "reached 10" in run.why
    assert "2 ended early" in made.summary()


def test_losses_that_should_coincide_and_do_not_are_red(made, runs_dir, tmp_path):
    shutil.copytree(runs_dir, tmp_path / "copy")
    copied = open_race(tmp_path / "copy" / "races" / made.folder.name)
    assert copied.runs[0].path.is_relative_to(tmp_path), "a folder of runs can be moved with its races"
    halo = next(run for run in copied.runs if run.label == "halo")
    records = halo.path / "records" / "rank0.jsonl"
    lines = [json.loads(text) for text in records.read_text().splitlines()]
    for each in lines:
        if each["table"] == "steps":
            at = each["columns"].index("global_loss")
            for row in each["rows"]:
                row[at] *= 1.001
    records.write_text("\n".join(json.dumps(each) for each in lines) + "\n")
    again = open_race(copied.folder)
    assert "reference and halo, seed 0, DIFFER by 0.001" in again.summary()
    assert not again.table.loc["reference", "coincides"] and again.table.loc["groups", "coincides"] is None
    page = again._repr_html_()
    assert page.count(">NO</span>") == 2 and "font-weight:bold'>reference and halo" in page


def test_what_a_race_cannot_be_made_of_is_refused_before_anything_is_written(tmp_path):
    two = [PAIR["reference"], PAIR["groups"].replace(ranks=2)]
    with pytest.raises(ConfigError, match=r"ranks=2, which need engines"):
        race(two, runs_dir=tmp_path / "runs")
    with pytest.raises(ConfigError, match="parallel=True needs engines"):
        race([PAIR["reference"], PAIR["groups"]], parallel=True, runs_dir=tmp_path / "runs")
    with pytest.raises(ConfigError, match="name="):
        race([PAIR["reference"], PAIR["groups"]], name="../x", runs_dir=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_one_process_writes_a_race_and_a_damaged_one_is_left_as_it_is(tmp_path):
    two = [PAIR["reference"], PAIR["groups"]]
    first = prepare(two, seeds=(0,), runs_dir=tmp_path, name="held")
    with pytest.raises(RunStoreError, match=rf"being written by another call in this process \({os.getpid()}\)"):
        prepare(two, seeds=(0,), runs_dir=tmp_path, name="held")
    first.close()
    file = first.race.folder / FILE
    old, new, empty = (f'{{"schema": {number}}}' for number in (1, 99, 2))
    said_of = {"{": "not valid JSON", new: "schema 99", old: "Start the race again", empty: "cannot be read"}
    for text, said in said_of.items():
        file.write_text(text)
        with pytest.raises(RunStoreError, match=said):
            race(two, seeds=(0,), runs_dir=tmp_path, name="held")
        assert file.read_text() == text
    with pytest.raises(RunStoreError, match="is not a race"):
        open_race(tmp_path)
    assert find_race("other", tmp_path) is None, "a damaged race of another name is in nobody's way"
