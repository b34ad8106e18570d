"""Comparisons name the settings that differ, and tell equal runs apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.runs.comparison import compare
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.stored_run import open_run
from tests.stored_runs import finished_run


@pytest.mark.slow
def test_comparison_shows_the_settings_that_differ_and_only_those(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path, epochs=epochs, learning_rate=rate) for epochs, rate in ((2, 0.01), (3, 0.02))]
    for run in runs:
        finish(run, "finished")
    found = compare([runs[0].path, open_run(runs[1].path)])
    assert found.differing == ("epochs", "learning_rate")
    assert found.table.index.tolist() == [run.id for run in runs]
    assert found.table["learning_rate"].tolist() == [0.01, 0.02]
    assert found.table["steps"].tolist() == [10, 15]
    assert not {"seed", "hidden", "system"} & set(found.table.columns)
    names = [trace.get("name") for trace in found.figure["data"]]
    assert names[:2] == ["PSG, learning rate 0.01, 2 epochs", "PSG, learning rate 0.02, 3 epochs"]
    assert "differ in: epochs, learning_rate" in found._repr_html_()


def test_equal_runs_are_told_apart_by_name(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path) for _ in range(2)]
    found = compare([run.path for run in runs])
    assert found.differing == ()
    assert found.table["test_loss"].isna().all()
    assert [trace.get("name") for trace in found.figure["data"]][:2] == ["PSG", "PSG (2)"] == [*found.labels]
    with pytest.raises(ConfigError, match="got no run"):
        compare([])
    with pytest.raises(ConfigError, match="as a list"):
        compare("runs/a", "runs/b")
    with pytest.raises(RunStoreError, match="is not a run"):
        compare([tmp_path])
