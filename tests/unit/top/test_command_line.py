"""The command line: help, argument errors, and errors of the lab as one message with exit code 2."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtdg_lab.cli import _config, main
from dtdg_lab.cluster.session_files import SessionInfo
from dtdg_lab.core.errors import ClusterError
from dtdg_lab.systems.feature_cache.calibration.report import CellError


def test_module_runs_and_shows_its_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dtdg_lab", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert all(command in done.stdout for command in ("env", "run", "demo", "dash", "datasets", "sessions"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["dash", "--port", "http"], "is not a port"),
        (["dash", "--port", "70000"], "is not a port"),
        (["dash", "--ranks", "0"], "is not a count"),
        (["sessions", "--end", "a", "--end-all"], "not allowed with"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the config"),
        ("{", "not valid JSON"),
        ("[1]", "must be an object with settings"),
        ('{"schema": 99}', "Update dtdg_lab"),
        ('{"sytem": "psg"}', "Did you mean 'system'?"),
        ('{"system": "pgs"}', "Did you mean 'psg'?"),
        ('{"epochs": 0}', "epochs=0 is out of range"),
    ],
)
def test_a_wrong_config_is_one_message_and_exit_code_2(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.json"
    if text is not None:
        file.write_text(text)
    assert main(["run", str(file), "--runs", str(tmp_path / "runs")]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.startswith("dtdg_lab run: ")
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert not (tmp_path / "runs").exists()


def test_no_traceback_reaches_the_terminal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dtdg_lab", "run", str(tmp_path / "none.json")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Give the path of a JSON file." in done.stderr


def test_datasets_are_listed_with_their_licences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["name", "here", "rows"]
    assert {line.split()[0] for line in lines[1:]} >= {"collegemsg", "email-eu", "mathoverflow", "growing"}


def test_a_data_folder_that_is_none_is_said_beside_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path / "absent"))
    assert main(["datasets"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "is not a folder" in lines["collegemsg"]
    assert lines["growing"].split()[1] == "yes"


@pytest.fixture
def session_list(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two sessions, kept by a double of the module that lists and ends them."""
    alive = ["first", "second"]

    def end_session(name: str) -> int:
        if name not in alive:
            raise ClusterError(f"no session {name!r}. Alive: {', '.join(alive)}.")
        alive.remove(name)
        return 3

    double = types.ModuleType("dtdg_lab.cluster.session_files")
    facts = {"name": "lab", "ranks": 2, "processes": 4, "idle_s": 61.0, "owned": True, "last_run": None}
    double.list_sessions = lambda: [SessionInfo(id=name, **facts) for name in alive]  # type: ignore[attr-defined]
    double.end_session = end_session  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dtdg_lab.cluster.session_files", double)
    return alive


def test_sessions_are_listed_and_ended(session_list: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions"]) == 0
    head, first, _ = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "name", "ranks", "processes", "idle", "last", "run"]
    assert first.split()[:4] == ["first", "lab", "2", "4"]
    assert main(["sessions", "--end", "first"]) == 0
    assert capsys.readouterr().out == "ended first: 3 processes\n"
    assert session_list == ["second"]
    assert main(["sessions", "--end", "third"]) == 2
    assert "no session 'third'" in capsys.readouterr().err
    assert main(["sessions", "--end-all"]) == 0
    assert session_list == []
    assert main(["sessions"]) == 0
    assert capsys.readouterr().out.endswith("no sessions\n")


SETTINGS = {
    "system": "psg",
    "dataset": "growing",
    "epochs": 1,
    "hidden": 4,
    "generated_nodes": 30,
    "generated_edges": 120,
    "generated_snapshots": 24,
    "threads": 1,
    "device": "cpu",
}


def test_run_trains_with_given_settings_and_prints_losses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [f"{name}={value}" for name, value in SETTINGS.items()]
    assert main(["run", "--set", *texts[:2], "--runs", str(tmp_path / "runs"), "--set", *texts[2:]]) == 0
    status, losses, baselines, metrics, energy, report = capsys.readouterr().out.splitlines()
    assert status == "finished: 1 epochs, 4 steps"
    assert re.fullmatch(r"loss: train \S+, validation \S+, test \S+", losses)
    assert re.fullmatch(r"test loss of baselines that learn nothing: persistence 0\.\d+, mean 0\.\d+", baselines)
    assert metrics.startswith("test metrics: ")
    assert re.fullmatch(r"energy: \S+ m?J \w+", energy)
    assert Path(report.removeprefix("report: ")).is_file()


def test_given_settings_go_before_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS))
    texts = ["pipelined=TRUE", "system=blad", "learning_rate=1e-2", "epochs=2e0"]
    config = _config(tmp_path / "config.json", texts)
    assert (config.system, config["pipelined"], config.learning_rate, config.epochs) == ("blad", True, 0.01, 2)
    assert config["generated_nodes"] == 30


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "no settings are given"),
        (["--set", "epochs"], "'epochs' is not NAME=VALUE"),
        (["--set", "=3"], "'=3' is not NAME=VALUE"),
        (["--set", "epochs=many"], "epochs='many' has type str"),
        (["--set", "system=blad", "pipelined=2"], "pipelined='2' has type str"),
        (["--set", "epoch=2"], "Did you mean 'epochs'?"),
        (["--set", "system=pgs"], "Did you mean 'psg'?"),
    ],
)
def test_wrong_settings_are_one_message(texts: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *texts]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1 and shown.out == ""


def test_run_trains_a_file_and_prints_its_summary_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS))
    assert main(["run", str(tmp_path / "config.json"), "--json", "--runs", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    summary, _, report = out.partition("report: ")
    assert json.loads(summary)["status"] == "finished"
    assert Path(report.strip()).is_file()
    assert Path(report.strip()).parent.parent == tmp_path / "runs"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    listed = "import sys; from dtdg_lab.cli import main; sys.exit(main(['datasets']))"
    with subprocess.Popen([sys.executable, "-c", listed], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stdout is not None and command.stderr is not None
        command.stdout.close()
        said = command.stderr.read()
    assert (command.returncode, said) == (0, b"")


def test_a_policy_is_trained_with_a_protocol_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "policy.npz"
    command = ["train-policy", "--paper", "--parts", "2", "--episodes", "4", "--updates-per-decision", "1/8"]
    assert main([*command, "--out", str(out)]) == 0
    assert "4 episodes, finite horizon, an update for 8 decisions, reward ratio, seed 0" in capsys.readouterr().out
    before = out.read_bytes()
    assert main([*command, "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err and out.read_bytes() == before
    assert main([*command, "--out", str(out), "--resume"]) == 0
    assert main([*command, "--out", str(out), "--resume", "--horizon", "endless"]) == 2
    assert "a policy of another training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--updates-per-decision", "2"], "'2' is not 1 or 1/n"),
        (["--updates-per-decision", "1/0"], "'1/0' is not 1 or 1/n"),
        (["--paper", "--name", "double_dqn_plus"], "--paper trains double_dqn"),
        (["--calibration", "/nowhere"], "has no measured steps"),
    ],
)
def test_impossible_trainings_are_one_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["train-policy", *arguments, "--out", str(tmp_path / "policy.npz")])
    except SystemExit as error:  # of the parser
        code = int(str(error.code))
    assert code == 2 and message in capsys.readouterr().err


def test_a_machine_is_calibrated_with_settings_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def calibrate_here(config: Any, folder: Path, **sizes: Any) -> Any:
        asked.append((config, folder, sizes))
        errors = [CellError("own", "clean", window, *6 * [float(window)]) for window in (1, 16)]
        return SimpleNamespace(table=lambda: "the table", calibration=SimpleNamespace(errors=lambda: errors))

    monkeypatch.setattr("dtdg_lab.reproduction.timing_lock.busy_share", lambda: 0.5)
    monkeypatch.setattr("dtdg_lab.cluster.calibrate_here.calibrate_here", calibrate_here)
    assert main(["calibrate", str(tmp_path / "here"), "--quick", "--set", "parts=2", "--runs", str(tmp_path)]) == 0
    ((config, folder, sizes),) = asked
    assert (config.system, config.parts, folder) == ("fixed-window", 2, tmp_path / "here")
    assert len(sizes["windows"]) + len(sizes["conditions"]) == 8 and sizes["runs_dir"] == tmp_path
    printed = capsys.readouterr()
    assert "train-policy --calibration" in printed.out and "The fit is no better than this guess" in printed.out
    assert "Other programs use 50% of the processors" in printed.err
    folder.mkdir()
    (folder / "calibration.json").touch()
    assert main(["calibrate", str(folder), "--quick"]) == 2 and len(asked) == 1
    assert "has a calibration already" in capsys.readouterr().err


def test_an_interrupted_command_says_so_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_policy(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("dtdg_lab.systems.feature_cache.simulation.training.train_policy", train_policy)
    assert main(["train-policy", "--out", str(tmp_path / "policy.npz")]) == 130
    assert capsys.readouterr().err == "dtdg_lab train-policy: interrupted. What it had stored is kept.\n"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("step_time.csv", b"dataset,condition,window,measured_ms\n", "no measured steps"),
        ("step_time.csv", b"dataset,condition,window,measured_ms\nown,clean,x,1\n", "measured steps, row 1"),
        ("step_time.csv", b"dataset,condition,window,measured_ms\nown,clean,1,5\n", "own has 1 measured steps"),
        ("fetch_rtt.csv.gz", b"no gzip", "fetch_rtt.csv.gz cannot be read"),
        ("power.csv", b"state,cpu_w,gpu_w\nidle,1,2\n", "has no state"),
    ],
)
def test_a_broken_calibration_is_one_message(
    file: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [("clean", window) for window in (1, 2, 4, 16, 64)] + [("c1_50", 16), ("c4_20", 16)]
    rows = [f"own,{condition},{window},{100 + window}" for condition, window in cells]
    (tmp_path / "step_time.csv").write_text("\n".join(["dataset,condition,window,measured_ms", *rows]) + "\n")
    (tmp_path / file).write_bytes(content)
    assert main(["train-policy", "--calibration", str(tmp_path), "--out", str(tmp_path / "policy.npz")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flaredtdg", "--all"], "--all stands beside flaredtdg"),
        (["--hours", "2"], "--hours and --again need what is measured"),
        (["--again", "--list", "flaredtdg"], "--hours and --again need what is measured"),
        (["--all", "--hours", "0"], "is not above 0"),
    ],
)
def test_reproduce_refuses_what_it_would_ignore(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_reproduce_lists_the_comparisons_of_what_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "esdg/density"]) == 0
    printed = capsys.readouterr().out
    assert "| rival | gain (numbers_per_row)" in printed and re.search(r"measured on .+ cores, .+, 20\d\d-", printed)
    assert main(["reproduce", "--list"]) == 0
    assert "| rival | gain" not in capsys.readouterr().out


def test_reproduce_lists_what_a_device_does_not_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "dynahb/lemma1", "--device", "cuda"]) == 0
    assert "Not measured with --device cuda: dynahb/lemma1." in capsys.readouterr().out
