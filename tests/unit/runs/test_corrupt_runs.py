"""Damaged run folders, and those of newer versions: one clear error that names the file, and nothing overwritten."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtdg_lab.config.record_tables import SCHEMA, TABLES
from dtdg_lab.core.errors import DataError, LabError, RunStoreError
from dtdg_lab.runs.comparison import compare
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.packed_run import ABOUT, read_about
from dtdg_lab.runs.provenance import provenance
from dtdg_lab.runs.stored_run import open_run
from tests.stored_runs import finished_run

HASH = "ab" * 32
PARTS = {
    "train": {"first": 0, "last": 8, "without_edges": []},
    "validation": {"first": 9, "last": 11, "without_edges": []},
    "test": {"first": 12, "last": 20, "without_edges": []},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with all its files."""
    run = finished_run(tmp_path_factory.mktemp("whole"), epochs=2)
    lines = run.record_file(0).read_text()
    columns = ["step", "epoch", "time_ns", "kind", "data"]
    described = {"v": SCHEMA, "rank": 0, "attempt": 1, "seq": 0, "table": "events", "columns": columns}
    described["rows"] = [[0, 0, 1, "parts", PARTS]]
    run.record_file(0).write_text(json.dumps(described) + "\n" + lines)
    run.add_environment(data={"dataset": "growing", "source": "generated", "sha256": HASH})
    finish(run, "finished")
    return run.path


@pytest.fixture
def run_dir(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / whole.name))


def read_all(path: Path) -> None:
    """Whatever a person may ask a stored run for."""
    run = open_run(path)
    assert isinstance(run.status, str) and isinstance(run.reason, str)
    assert isinstance(run.summary, dict) and isinstance(run.environment, dict)
    for all_attempts in (False, True):
        assert TABLES.keys() <= run.tables.frames(all_attempts=all_attempts).keys()  # at once: each by itself takes 20x
    assert isinstance(run.events, list)
    run.to_pandas()
    assert run.live is not None
    assert provenance(run)["protocol"] == run.config.protocol


def content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_a_whole_run_reads_without_an_error_and_unchanged(run_dir: Path) -> None:
    before = content(run_dir)
    read_all(run_dir)
    compare([run_dir, run_dir])
    assert content(run_dir) == before


def missing(file: Path) -> None:
    file.unlink()


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def garbled(file: Path) -> None:
    file.write_bytes(b"\x93\x00\xff{not ours" * 40)


def a_list(file: Path) -> None:
    file.write_text("[1, 2, 3]\n")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = (missing, truncated, emptied, garbled, a_list, a_folder)
FILES = {
    "config.json": lambda path: open_run(path),
    "status.json": lambda path: open_run(path).status,
    "summary.json": lambda path: open_run(path).summary,
    "environment.json": lambda path: open_run(path).environment,
    "records/rank1.json": lambda path: open_run(path).table("steps"),
    "records/steps.rank1.parquet": lambda path: open_run(path).table("steps"),
    "records/rank1.jsonl": lambda path: open_run(path).live,
}
HARMLESS = {  # what can be done without; where Parquet files are damaged, the lines are read
    ("summary.json", missing),
    ("summary.json", a_folder),
    ("records/rank1.jsonl", missing),
    ("records/rank1.jsonl", truncated),
    ("records/rank1.jsonl", emptied),
    ("records/rank1.jsonl", garbled),
    *((name, damage) for name in ("records/rank1.json", "records/steps.rank1.parquet") for damage in DAMAGES),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_left_as_it_is(name: str, damage: Callable[[Path], None], run_dir: Path) -> None:
    damage(run_dir / name)
    before = content(run_dir)
    if (name, damage) in HARMLESS:
        FILES[name](run_dir)
    else:
        with pytest.raises((RunStoreError, DataError)) as caught:
            FILES[name](run_dir)
        assert name.rpartition("/")[2] in str(caught.value)
        said = str(caught.value).lower()
        assert any(word in said for word in ("restore", "remove", "check", "move", "give", "update"))
    assert content(run_dir) == before


@pytest.mark.parametrize("name", ["steps.rank0.parquet", "rank0.json"])
def test_where_parquet_files_are_damaged_the_lines_are_read_or_missed(name: str, run_dir: Path) -> None:
    steps, records = open_run(run_dir).table("steps"), run_dir / "records"
    garbled(records / name)
    assert open_run(run_dir).table("steps").equals(steps)
    assert len(open_run(run_dir).live.rows("steps")) == len(steps)
    (records / "rank0.jsonl").unlink()
    for read in (lambda run: run.table("steps"), lambda run: run.live):
        with pytest.raises(DataError, match=r"rank0\.jsonl is missing, and the Parquet files .* damaged. Restore it"):
            read(open_run(run_dir))


def _changed(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("config.json", {"schema": 2}, "newer version.*schema 2.*up to 1.*Update"),
        ("config.json", {"schema": "1.0"}, "schema is '1.0'"),
        ("config.json", {"system": "quantum-dgnn"}, "config.json cannot be used.*quantum-dgnn.*newer version"),
        ("config.json", {"options": {"warp": {"factor": 9}}}, "config.json cannot be used.*warp"),
        ("config.json", {"hidden": None}, "config.json"),
        ("summary.json", {"schema": 7}, "summary.json was written by a newer version.*schema 7"),
        ("summary.json", {"metrics": "good"}, "summary.json is damaged: its metrics"),
        ("environment.json", {"schema": 2}, "environment.json was written by a newer version"),
        ("environment.json", {"data": "somewhere"}, "environment.json is damaged"),
        ("records/rank1.json", {"schema": SCHEMA + 1}, ""),
        ("records/rank1.json", {"bytes": 3}, ""),
        ("records/rank1.json", {"tables": 3}, ""),
    ],
    ids=str,
)
def test_values_of_newer_versions_or_of_none(name: str, values: dict[str, Any], words: str, run_dir: Path) -> None:
    _changed(run_dir / name, **values)
    before = content(run_dir)
    if words:
        with pytest.raises((RunStoreError, DataError), match=words):
            read_all(run_dir)
    else:
        read_all(run_dir)  # the lines are read
    assert content(run_dir) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"v": SCHEMA + 1}, f"rank1.jsonl was written by a newer version.*schema {SCHEMA + 1}.*reads schema {SCHEMA}"),
        ({"v": SCHEMA - 1}, f"rank1.jsonl was written by an older version.*schema {SCHEMA - 1}.*reads schema {SCHEMA}"),
        ({"v": SCHEMA - 1, "table": "steps", "columns": ["at"], "rows": [[1]]}, "written by an older version"),
        ({"v": "new"}, "damaged"),
        ({"rank": "one"}, "damaged"),
        ({"seq": "0"}, "format of record lines"),
        ({"attempt": None}, "damaged"),
        ({"table": 4}, "damaged"),
        ({"columns": "abcdef"}, "damaged"),
        ({"rows": [[1, 2]]}, "rows do"),
        ({"rows": 5}, "damaged"),
        ({"columns": ["step", "step"], "rows": [[1, 1]]}, "twice"),
        ({"table": "steps", "columns": ["step", "epoch", "time_ns"], "rows": [["x", {}, "now"]]}, "records"),
    ],
    ids=str,
)
def test_record_lines_that_no_rank_of_this_version_wrote(change: dict[str, Any], words: str, run_dir: Path) -> None:
    file = run_dir / "records" / "rank1.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], json.dumps({**json.loads(lines[1]), **change}), *lines[2:]]) + "\n")
    before = content(run_dir)
    for read in (lambda run: run.live, lambda run: run.to_pandas()):
        with pytest.raises((RunStoreError, DataError), match=words):
            read(open_run(run_dir))
    assert content(run_dir) == before


def test_an_older_run_is_refused_though_it_has_parquet_files(run_dir: Path) -> None:
    for file in (run_dir / "records").glob("rank*.json"):
        _changed(file, schema=1)
    for file in (run_dir / "records").glob("rank*.jsonl"):
        size = file.stat().st_size
        file.write_text(file.read_text().replace(f'"v": {SCHEMA},', '"v": 1,').replace(f'"v":{SCHEMA},', '"v":1,'))
        assert file.stat().st_size == size
    with pytest.raises(DataError, match=r"was written by an older version of DTDG Lab.*Train it again"):
        open_run(run_dir).table("steps")


def test_an_export_of_an_older_run_is_refused() -> None:
    about = {"schema": 1, "records": SCHEMA - 1, "kind": "run", "run": "a"}
    with pytest.raises(RunStoreError, match=rf"older version \(records {SCHEMA - 1}\).*train the run again"):
        read_about({ABOUT: json.dumps(about).encode()}, "run")


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of ours")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "nowhere"):
        with pytest.raises(RunStoreError, match=r"is not a run.*Give the folder of one run"):
            open_run(path)
    assert content(tmp_path) == {"notes.txt": b"nothing of ours"}


def test_a_report_of_a_damaged_run_leaves_the_old_one(run_dir: Path) -> None:
    _changed(run_dir / "environment.json", cpu="fast")
    before = content(run_dir)
    with pytest.raises(DataError, match="is damaged"):
        open_run(run_dir).report()
    assert content(run_dir) == before


@pytest.mark.parametrize("place", [0, 1, 2])
def test_compare_says_which_run_is_bad(place: int, whole: Path, run_dir: Path) -> None:
    runs = [whole, whole, whole]
    runs[place] = run_dir
    garbled(run_dir / "summary.json")
    with pytest.raises(RunStoreError, match=rf"run {place + 1} of 3 cannot be compared \(.*summary\.json is not valid"):
        compare(runs)


# property: whatever happens to the bytes of a file


@st.composite
def mutations(draw: st.DrawFn) -> tuple[int, Callable[[bytes], bytes]]:
    """A file's number, and what happens to its bytes."""
    number, at, count = draw(st.tuples(st.integers(0, 99), st.floats(0, 1), st.integers(1, 30)))
    new = draw(st.binary(max_size=40) | st.sampled_from([b"null", b"1e999", b"{}", b'"', b"[", b"-", b"\n", b"[]"]))
    kind = draw(st.sampled_from(["cut", "replace", "insert", "drop", "twice", "other"]))

    def mutate(old: bytes) -> bytes:
        place = int(at * len(old))
        return {
            "cut": old[:place],
            "replace": old[:place] + new + old[place + len(new) :],
            "insert": old[:place] + new + old[place:],
            "drop": old[:place] + old[place + count :],
            "twice": old[:place] + old[max(0, place - count) :],
            "other": new,
        }[kind]

    return number, mutate


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations())
def test_mutated_files_raise_ours_or_nothing_and_stay_as_they_are(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, mutation: tuple[int, Callable[[bytes], bytes]]
) -> None:
    number, mutate = mutation
    path = Path(shutil.copytree(whole, tmp_path_factory.mktemp("mutated") / whole.name))
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "report.html")
    file = files[number % len(files)]
    file.write_bytes(mutate(file.read_bytes()))
    before = content(path)
    for read in (read_all, lambda path: compare([path])):
        try:
            read(path)
        except LabError as error:
            assert isinstance(error, RunStoreError | DataError)
            assert file.name in str(error) or "records" in str(error), (file.name, str(error))
    assert content(path) == before
    shutil.rmtree(path)


def test_damaged_checkpoints_are_refused_by_name(tmp_path: Path) -> None:
    import torch

    from dtdg_lab.training.checkpoint import Checkpoint
    from dtdg_lab.training.position import Position

    path, draw = tmp_path / "last.pt", random.Random(1)
    Checkpoint({"w": torch.ones(3)}, {}, Position(1, 2, 3), "{}", [], HASH).save(path)
    whole, refused = path.read_bytes(), 0
    for number in range(120):
        at = draw.randrange(len(whole))
        new = bytes(draw.randrange(256) for _ in range(4))
        path.write_bytes(whole[:at] if number % 4 == 0 else whole[:at] + new + whole[at + 4 :])
        before = path.read_bytes()
        try:
            Checkpoint.load(path)
        except RunStoreError as error:
            assert "last.pt is not a readable checkpoint" in str(error)
            refused += 1
        assert path.read_bytes() == before
    assert refused > 60
