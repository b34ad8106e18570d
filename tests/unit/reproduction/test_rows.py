import json
from dataclasses import replace

import pytest

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.reproduction.rows import MeasuredRow, locked, read_rows, write_rows

ROW = MeasuredRow(
    key="0" * 16,
    labels={"system": "esdg"},
    seed=1,
    values={"test_loss": 0.5, "unknown": None},
    seconds=2.5,
    rules=("abc",),
    commit="123",
    date="2026-01-01",
    device="cpu",
    machine={"cores": 2},
    curve=((1.0, None, 0.6),),
    busy=0.01,
)


def test_rows_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "table1.json"
    with locked(file.parent):
        write_rows(file, [ROW])
    assert read_rows(file) == [ROW]
    assert len(json.loads(file.read_text())["origins"]) == 1


def test_a_row_of_an_experiment_that_only_ranks_has_no_rules(tmp_path):
    row = replace(ROW, rules=())
    write_rows(tmp_path / "which.json", [row])
    assert read_rows(tmp_path / "which.json") == [row]


def test_a_missing_file_has_no_rows_and_a_damaged_one_is_refused(tmp_path):
    assert read_rows(tmp_path / "none.json") == []
    (tmp_path / "bad.json").write_text('{"rows": [{}]}')
    with pytest.raises(RunStoreError, match=r"bad\.json are damaged"):
        read_rows(tmp_path / "bad.json")
