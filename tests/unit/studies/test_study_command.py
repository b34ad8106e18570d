"""Studies by name: Figure 8 gives what ``lab.studies.decay`` gives, and the command line makes and resumes studies."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import pytest

from dtdg_lab.cli import main
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.studies.decay_study import study_decay
from dtdg_lab.studies.preset import preset
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.sweep import Sweep, preset_sweep
from dtdg_lab.systems.decayed_windows.study import decay_study
from tests.factories import small_config
from tests.pretend_studies import BASE, PretendTraining, pretend_training


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> PretendTraining:
    return pretend_training(monkeypatch)


@pytest.mark.slow
def test_figure_8_has_the_numbers_of_study_decay(tmp_path: Path) -> None:
    parts = {"window": 4, "chunks": 3, "chunker": "hash", "partitioner": "round_robin", "threads": 1}
    config, full, alphas = small_config("flaredtdg", epochs=1, dtype="float64", **parts), (2, 4), (0.1, 0.6)
    over, skip = {"full_snapshots": full, "alpha": alphas}, {"full_snapshots": 4, "alpha": 0.6}
    sweep = Sweep(config, over, (0,), skip=skip, shipped="figure8")
    study = run_study(sweep, name="f8", runs_dir=tmp_path / "a", progress=False)
    found = decay_study(study)
    other = study_decay(config, full, alphas, (0,), runs_dir=tmp_path / "b", progress=False)
    timed = {"epoch_time_s", "run"}
    assert [{name: row[name] for name in row.keys() - timed} for row in found.rows] == [
        {name: row[name] for name in row.keys() - timed} for row in other.rows
    ]
    assert found.is_complete and len(study.trials) == 3 and found.described == other.described
    maps = [figure["data"][0]["z"] for figure in (study.analysis()["figure8"][0], other.figure())]
    assert maps[0] == maps[1] and "The lowest loss is" in study.analysis()["figure8"][1]


def test_figure_8_refuses_what_does_not_decay() -> None:
    for base, message in ((RunConfig(system="psg"), "has no decay"), (BASE.replace(tune=True), "tune=True")):
        with pytest.raises(ConfigError, match=message):
            preset_sweep(preset("figure8"), base, quick=True)
    assert {cell.config["window"] for cell in preset_sweep(preset("figure8"), BASE, quick=True).cells} == {
        BASE["window"]
    }


def test_the_command_resumes_its_study(
    tmp_path: Path, training: PretendTraining, capsys: pytest.CaptureFixture[str]
) -> None:
    file, runs = tmp_path / "mine.json", tmp_path / "runs"
    file.write_text(Sweep(BASE, {"full_snapshots": (1, 2), "alpha": (0.6,)}, seeds=(0,)).to_json())
    for _ in range(2):
        assert main(["study", str(file), "--runs", str(runs)]) == 0
        shown = capsys.readouterr()
        assert "mine: 2 runs, 2 finished." in shown.out and str(runs / "studies" / "mine") in shown.out
    assert len(training.made) == 2
    assert main(["study", "figure8", "--quick", "--runs", str(runs), "--name", "again"]) == 0
    study = run_study("figure8", quick=True, name="again", runs_dir=runs)
    go.Figure(study.analysis()["figure8"][0])
    training.before = _fail
    assert main(["study", str(file), "--runs", str(runs), "--name", "other"]) == 1


def _fail(config: RunConfig) -> None:
    raise MemoryError("too large")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figur8"], "Did you mean 'figure8'"),
        (["none.json"], "Give the path of a JSON file"),
        (["none.json", "--quick"], "to shipped studies"),
    ],
)
def test_a_wrong_study_is_one_message_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *arguments, "--runs", str(tmp_path / "runs")]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("dtdg_lab study: ") and message in shown.err and not (tmp_path / "runs").exists()
