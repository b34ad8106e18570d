"""Exported races: what their files hold, and reading them back."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest

import dtdg_lab as lab
from dtdg_lab.cli import main
from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.export.export import RACE_KINDS, export
from dtdg_lab.export.race import SPARE, ExportedRace, open_race, pack_race, race_page
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.exports import open_run
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.provenance import provenance
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.studies.race_plan import RacePlan, StopRule, new_race
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.trials import FAILED, FINISHED, INTERRUPTED, TrialJournal, planned
from tests.stored_runs import START_NS, finished_run
from tests.thinning import thinned
from tests.timelines import check_timeline

ODD = "single <script>"  # a contestant's name


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> Race:
    """Two contestants, two seeds; one run failed before it began, one was left and done again."""
    root = tmp_path_factory.mktemp("raced")
    configs = {"even": lab.RunConfig(system="psg", dataset="growing", ranks=2, epochs=3)}
    configs[ODD] = configs["even"].replace(hidden=16)
    plan = RacePlan("a-b", configs, (0, 1), StopRule(patience=3), True, {0: "0" * 64}, 1e9)
    folder = new_race(plan, root)
    cells = {(cell.settings["contestant"], cell.seed): cell for cell in plan.cells}
    log = TrialJournal(folder)
    log.put(planned(cells["even", 0], status=INTERRUPTED, run=root / "gone"))
    for label, seed in (("even", 0), (ODD, 0), ("even", 1)):
        run = finished_run(root, seed=seed, hidden=configs[label].hidden)
        if not seed and label == "even":
            _add_much(run)
        finish(run, "finished")
        facts = provenance(open_run(run.path))
        reason = "patience" if seed else ""
        log.put(planned(cells[label, seed], status=FINISHED, run=run.path, reason=reason, provenance=facts))
    log.put(planned(cells[ODD, 1], status=FAILED, reason="no engine"))
    return Race(folder)


def _add_much(run: RunDirectory) -> None:
    """Rows without a pattern, as times are."""
    draw = random.Random(0)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        for step in range(15, 4000):
            start = START_NS + step * 10**7 + draw.randrange(10**6)
            writer.row("phases", (step, step // 100, "compute", start, start + draw.randrange(10**6)))


def same_race(read: Race, race: Race) -> None:
    assert (read.name, read.configs, read.seeds) == (race.name, race.configs, race.seeds)
    pd.testing.assert_frame_equal(read.table, race.table)
    assert read.panels() == race.panels()
    for own, other in zip(_finished(read), _finished(race), strict=True):
        assert (own.label, own.seed, own.state, own.why) == (other.label, other.seed, other.state, other.why)
        first, second = own.open(), other.open()
        assert (first.id, first.summary, first.config) == (second.id, second.summary, second.config)
        for table in ("steps", "phases", "evaluations", "events"):
            pd.testing.assert_frame_equal(first.table(table), second.table(table))


def _finished(race: Race) -> list[Any]:
    return [run for run in race.runs if run.state == FINISHED]


@pytest.mark.parametrize("kind", thinned(["html", "parquet"]))
def test_a_page_and_tables_give_the_whole_race_again(raced: Race, kind: str, tmp_path: Path) -> None:
    made = export(raced if kind == "html" else raced.folder, tmp_path, kind)
    read = open_race(made)
    assert isinstance(read, ExportedRace)
    assert (read.source, read.thinned) == (made, "")
    same_race(read, raced)
    with pytest.raises(RunStoreError, match=re.escape("lab.races.open")):
        open_run(made)


def test_tables_as_a_folder_are_the_same(raced: Race, tmp_path: Path) -> None:
    made = export(raced, tmp_path / "tables", "parquet")
    same_race(open_race(made), raced)
    assert pd.read_parquet(made / "table.parquet").shape[0] == 2


def test_the_page_shows_table_words_and_charts_and_needs_nothing_else(raced: Race) -> None:
    page = race_page(raced)
    assert len(page) < 10_000_000
    text = page.decode()
    assert "default-src 'none'" in text[:2000]
    assert ODD not in text
    for name, (_, words) in raced.panels().items():
        assert f"id='plot-{name}'" in text
        assert words.split("<")[0][:30] in text
    assert "no engine" in text
    assert "record tables of 3 runs are embedded" in text


def test_a_page_that_would_be_too_large_is_thinned_and_says_so(raced: Race, tmp_path: Path) -> None:
    whole, page = pack_race(raced), race_page(raced)
    of_runs = sum(len(content) for name, content in whole.files.items() if name.startswith("runs/"))
    room = of_runs + SPARE - 8_000
    thin = pack_race(raced, most_bytes=room)
    assert thin.size < whole.size
    assert thin.thinned.count("one step in") == 1
    limit = len(page) - len(whole.zipped()) * 4 // 3 + room * 4 // 3 + 8_000
    page = race_page(raced, most_bytes=limit)
    assert len(page) <= limit
    (tmp_path / "thin.html").write_bytes(page)
    read = open_race(tmp_path / "thin.html")
    assert isinstance(read, ExportedRace)
    assert read.thinned in page.decode()
    assert read.rows()[0].runs[0].summary == raced.rows()[0].runs[0].summary
    with pytest.raises(RunStoreError, match="kind='parquet'"):
        race_page(raced, most_bytes=10_000)


@pytest.mark.slow
def test_other_kinds_hold_every_run(raced: Race, tmp_path: Path) -> None:
    events = json.loads(export(raced, tmp_path, "trace").read_text())["traceEvents"]
    check_timeline(events)
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {name for name in names if "rank 1" in name} == {
        "even · seed 0 · rank 1",
        f"{ODD} · seed 0 · rank 1",
        "even · seed 1 · rank 1",
    }
    made = export(raced, tmp_path, "tensorboard")
    assert sorted(path.name for path in made.iterdir() if path.is_dir()) == [
        "even-seed0",
        "even-seed1",
        "single__script_-seed0",
    ]
    for folder, kind in ((made / "even-seed1", "tensorboard"), (made, "of a race")):
        with pytest.raises(RunStoreError, match=f"{kind}, not a run"):
            open_run(folder)


def test_script_and_notebook_race_again(raced: Race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Session:
        def __init__(self, **given: Any) -> None:
            asked["engines"] = given

        def __enter__(self) -> Session:
            return self

        def __exit__(self, *_: object) -> None:
            asked["left"] = True

    def race(configs: Any, **given: Any) -> str:
        asked.update(given, configs=configs)
        return "raced"

    for name, stand_in in {"race": race, "Session": Session, "StopRule": StopRule}.items():
        monkeypatch.setattr(lab, name, stand_in, raising=False)
    script = export(raced, tmp_path, "script").read_text()
    notebook = nbformat.read(export(raced, tmp_path, "notebook"), as_version=4)
    nbformat.validate(notebook)
    for source in (script, notebook.cells[1].source):
        names: dict[str, Any] = {"__name__": "elsewhere"}
        asked.clear()
        exec(source, names)
        assert names["repeat"]("somewhere") == "raced"
        assert asked["configs"] == raced.configs
        assert (asked["seeds"], asked["parallel"], asked["stop"]) == ((0, 1), True, StopRule(patience=3))
        assert asked["engines"] == {"ranks": 4, "runs_dir": "somewhere"}
        assert isinstance(asked["session"], Session) and asked["left"]


@pytest.mark.parametrize("kind", thinned(RACE_KINDS, [1]))
def test_nothing_is_overwritten_unless_it_is_wanted(raced: Race, kind: str, tmp_path: Path) -> None:
    made = export(raced, tmp_path, kind)
    assert raced.name in made.name
    with pytest.raises(RunStoreError, match="overwrite=True"):
        export(raced, tmp_path, kind)
    assert main(["export", str(raced.folder), "--kind", kind, "--out", str(tmp_path), "--overwrite"]) == 0


def test_what_is_no_race_is_told_apart(raced: Race, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of ours")
    run = export(_finished(raced)[0].path, tmp_path, "html")
    for path, words in ((tmp_path / "notes.txt", "not a race"), (run, "lab.runs.open"), (tmp_path, "not a race")):
        with pytest.raises(RunStoreError, match=words):
            open_race(path)
    same_race(open_race(raced.folder), raced)
