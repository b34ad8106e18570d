"""Exported files made by others, and names with signs of code in them."""

from __future__ import annotations

import gc
import gzip
import html
import io
import json
import runpy
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.export.artifacts import script
from dtdg_lab.export.export import KINDS, export
from dtdg_lab.export.race import open_race, pack_race
from dtdg_lab.runs import exports, packed_run
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.exports import open_run
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.packed_run import ABOUT, PARQUET_KEY, pack, zip_of
from dtdg_lab.runs.provenance import provenance
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.studies.race_plan import RacePlan, new_race
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.trials import TrialJournal, planned
from dtdg_lab.visualization.studies.race import Curve, RaceLevel, race_cards
from dtdg_lab.visualization.studies.race_bounds import Bound, bounds_cards
from tests.stored_runs import finished_run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    run = finished_run(tmp_path_factory.mktemp("done"), epochs=1)
    finish(run, "finished")
    return StoredRun(run)


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> Race:
    """Two contestants whose names differ in signs that a file's name has not."""
    root = tmp_path_factory.mktemp("raced")
    config = lab.RunConfig(system="psg", dataset="growing", ranks=2, epochs=1)
    configs = {"a b": config, "a/b": config.replace(hidden=16)}
    plan = RacePlan("two", configs, (0,), data={0: "0" * 64})
    folder = new_race(plan, root)
    for cell in plan.cells:
        run = finished_run(root, seed=0, epochs=1, hidden=cell.config.hidden)
        finish(run, "finished")
        facts = provenance(StoredRun(run))
        TrialJournal(folder).put(planned(cell, status="finished", run=run.path, provenance=facts))
    return Race(folder)


# files made by others


def test_a_zip_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_MOST_UNPACKED", 2**22)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(ABOUT, json.dumps({"schema": 1, "kind": "run", "run": "a"}))
        for number in range(2):
            archive.writestr(f"tables/{number}.parquet", bytes(3 * 2**20))
    assert len(bomb.getvalue()) < 2**15
    (tmp_path / "run.zip").write_bytes(bomb.getvalue())
    with pytest.raises(RunStoreError, match="unpacked"):
        open_run(tmp_path / "run.zip")


@pytest.mark.slow
def test_an_encrypted_zip_is_refused(done: StoredRun, tmp_path: Path) -> None:
    content = bytearray(pack(done).zipped())
    at = -1
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := content.find(signature, at + 1)) >= 0:
            content[at + place] |= 1
    (tmp_path / "run.zip").write_bytes(content)
    with pytest.raises(RunStoreError, match=r"run\.zip.*Export the run again"):
        open_run(tmp_path / "run.zip")


def _deep(tmp_path: Path) -> Path:
    (tmp_path / "deep.json").write_text('{"a": ' + "[" * 100_000)
    return tmp_path / "deep.json"


def _endless_schema(tmp_path: Path) -> Path:
    (tmp_path / "a.zip").write_bytes(zip_of({ABOUT: b'{"schema": 1e999, "kind": "run", "run": "a"}'}))
    return tmp_path / "a.zip"


def _table_of_nothing(tmp_path: Path) -> Path:
    table = pa.table({"rank": [0]}).replace_schema_metadata({PARQUET_KEY: b"\xff{"})
    pq.write_table(table, tmp_path / "steps.parquet")
    return tmp_path / "steps.parquet"


def _folder_name(name: str) -> Any:
    def made(tmp_path: Path) -> Path:
        about = json.dumps({"schema": 1, "kind": "run", "run": name}).encode()
        (tmp_path / "a.zip").write_bytes(zip_of({ABOUT: about, "config.json": lab.RunConfig().to_json().encode()}))
        return tmp_path / "a.zip"

    return made


STRANGE = {
    "deep": _deep,
    "schema": _endless_schema,
    "table": _table_of_nothing,
    "name-nul": _folder_name("a\0b"),
    "name-up": _folder_name(".."),
    "name-empty": _folder_name(""),
    "name-long": _folder_name("a" * 300),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_strange_files_raise_errors_of_ours(kind: str, tmp_path: Path) -> None:
    where = STRANGE[kind](tmp_path)
    with pytest.raises(RunStoreError, match=where.name):
        open_run(where)


def test_a_strange_race_raises_an_error_of_ours(raced: Race, tmp_path: Path) -> None:
    files = dict(pack_race(raced).files)
    for name in ("race.json", "optuna.journal"):
        for wrong in (b'{"schema": [1]}\n', b'{"schema": 2, "run": 3}\n', b"[]\n", b'{"a": ' + b"[" * 100_000 + b"\n"):
            (tmp_path / "race.zip").write_bytes(zip_of({**files, name: wrong}))
            with pytest.raises(RunStoreError, match=r"race\.zip"):
                open_race(tmp_path / "race.zip")


def test_ranks_that_are_no_numbers_are_refused(done: StoredRun, tmp_path: Path) -> None:
    files = dict(pack(done).files)
    for rank in ("../0", -1):
        table = pq.read_table(io.BytesIO(files["tables/steps.parquet"]))
        place = table.schema.get_field_index("rank")
        made = io.BytesIO()
        pq.write_table(table.set_column(place, "rank", pa.array([rank] * table.num_rows)), made)
        (tmp_path / "run.zip").write_bytes(zip_of({**files, "tables/steps.parquet": made.getvalue()}))
        with pytest.raises(RunStoreError, match="steps"):
            open_run(tmp_path / "run.zip")


# names


@pytest.mark.parametrize("name", ['a """ + BAD() + """', "C:\\users\\N{x}", "a{b}c", 'it\'s "one"', "\\"])
def test_names_of_runs_are_no_code(done: StoredRun, name: str, tmp_path: Path) -> None:
    shutil.copytree(done.path, tmp_path / name)
    for forked in (False, True):
        if forked:
            file = tmp_path / name / "environment.json"
            file.write_text(json.dumps({**json.loads(file.read_text()), "forked": {"run": "x"}}))
        run = StoredRun(RunDirectory(tmp_path / name))
        made = tmp_path / "again.py"
        made.write_bytes(script(run))
        described = runpy.run_path(str(made))
        assert name in described["__doc__"]
        noted = export(run, tmp_path / "again.ipynb", "notebook", overwrite=True)
        for cell in json.loads(noted.read_text())["cells"]:
            if cell["cell_type"] == "code":
                compile(cell["source"], "cell", "exec")


def test_contestants_whose_names_make_one_file_name_have_folders_each(raced: Race, tmp_path: Path) -> None:
    made = export(raced, tmp_path / "events", "tensorboard")
    assert len([folder for folder in made.iterdir() if folder.is_dir()]) == 2


def test_a_file_in_the_way_of_a_folder_is_not_hidden(done: StoredRun, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(RunStoreError, match="is not an export, so overwrite=True does not overwrite it"):
        export(done, tmp_path / "a", "tensorboard", overwrite=True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "mine")]
    (tmp_path / "a").unlink()
    before = export(done, tmp_path / "a", "script").read_text()
    with pytest.raises(RunStoreError, match="it is a file, but"):
        export(done, tmp_path / "a", "tensorboard", overwrite=True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", before)]


# what is kept


@pytest.mark.slow
def test_a_run_of_a_race_that_was_read_back_outlives_it(raced: Race, tmp_path: Path) -> None:
    page = export(raced, tmp_path / "race.zip", "parquet")
    run = open_race(page).runs[0].open()
    gc.collect()
    assert len(run.table("steps")) == len(raced.runs[0].open().table("steps"))


def test_a_damaged_summary_is_named_when_tables_are_exported(done: StoredRun, tmp_path: Path) -> None:
    shutil.copytree(done.path, tmp_path / "a")
    (tmp_path / "a" / "summary.json").write_text('{"schema": 1, "tr')
    for kind in ("parquet", "html"):
        with pytest.raises(RunStoreError, match=r"summary\.json"):
            export(tmp_path / "a", tmp_path / f"out-{kind}.zip", kind)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a"]


def test_a_step_without_a_time_is_drawn(done: StoredRun, tmp_path: Path) -> None:
    shutil.copytree(done.path, tmp_path / "a")
    for file in (tmp_path / "a" / "records").glob("*"):
        if file.suffix != ".jsonl":
            file.unlink()
            continue
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if line["table"] in ("steps", "evaluations"):
                for name in ("time_s", "loss"):
                    if name in line["columns"]:
                        line["rows"][0][line["columns"].index(name)] = None
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for kind in ("trace", "tensorboard", "html"):
        export(tmp_path / "a", tmp_path, kind)


# charts


def test_a_contestant_is_drawn_letter_for_letter() -> None:
    label = "<b>a</b> & b"
    curve = Curve(label, 0, (2.0, 1.0), (1.0, 2.0), (1.0, 2.0), (1.0, 2.0), 5, "validation", "loss", ("model",), True)
    drawn = race_cards([curve], [RaceLevel(label, "seconds", 0.5, "bound")])
    texts = [each["name"] for figure, _ in drawn.values() for each in figure["data"]]
    texts += [note["text"] for note in drawn["seconds"][0]["layout"]["annotations"]]
    bounds = bounds_cards([Bound(label, "epoch", 2.0, 1.0, "makespan")], (label,))
    texts += bounds["epoch"][0]["data"][0]["y"]
    assert texts
    assert all("<b>" not in text and html.unescape(text).startswith(label) for text in texts)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tensorboard"])
def test_a_file_of_ones_own_is_never_replaced(done: StoredRun, raced: Race, kind: str, tmp_path: Path) -> None:
    mine = tmp_path / ("thesis.zip" if kind == "parquet" else "thesis.gz" if kind == "trace" else "thesis.txt")
    for content in (b"years of work with dtdg_lab", gzip.compress(b"years of work"), zip_of({"a": b"years"}), b""):
        mine.write_bytes(content)
        for what in (done, raced):
            with pytest.raises(RunStoreError, match="is not an export, so overwrite=True does not overwrite it"):
                export(what, mine, kind, overwrite=True)
        assert mine.read_bytes() == content
    mine.unlink()
    for what in (done, raced):
        export(what, mine, kind, overwrite=True)
        export(what, mine, kind, overwrite=True)


def test_a_table_larger_than_memory_is_refused(
    done: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_run, "_MOST_VALUES", 2**20)
    rows = 2**19
    columns = {f"c{number}": np.zeros(rows, np.int8) for number in range(3)}
    bomb = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata({PARQUET_KEY: b"{}"}), bomb, compression="zstd")
    assert len(bomb.getvalue()) < 2**14
    (tmp_path / "steps.parquet").write_bytes(bomb.getvalue())
    files = {**pack(done).files, "tables/steps.parquet": bomb.getvalue()}
    (tmp_path / "run.zip").write_bytes(zip_of(files))
    for name in ("steps.parquet", "run.zip"):
        with pytest.raises(RunStoreError, match=rf"{name}.*(?s:.*)memory"):
            open_run(tmp_path / name)
