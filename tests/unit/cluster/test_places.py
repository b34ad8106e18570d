"""A path of a user is expanded and absolute everywhere, and can be written before anything is computed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dtdg_lab.cli import main
from dtdg_lab.cluster import local
from dtdg_lab.cluster.local import train
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, DataError, LabError, RunStoreError
from dtdg_lab.core.files import writable_file, writable_folder
from dtdg_lab.core.units import as_path, state_root
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.runs.exports import open_run
from tests.restricted import AS_NOBODY, needs_root, open_folder, said

__all__ = ["open_folder"]  # a fixture

CONFIG = RunConfig(system="single", dataset="growing", epochs=1)
TRAIN = (
    "from dtdg_lab.cluster.local import train\nfrom dtdg_lab.config.run_config import RunConfig\n"
    "config = RunConfig(system='single', dataset='growing', epochs=1)\n"
)
SESSION = "from dtdg_lab.cluster.session import Session\n"
LIST = "from dtdg_lab.cluster.session_files import list_sessions\n"
LOAD = "from dtdg_lab.datasets.names import load_dataset\n"
ENTRIES = {
    "train": (TRAIN, "train(config{}, progress=False)", "runs_dir"),
    "Session": (SESSION, "Session(ranks=1{})", "runs_dir"),
    "sessions": (LIST, "list_sessions()", "DTDG_LAB_STATE"),
    "datasets.load": (LOAD, "load_dataset('growing')", "DTDG_LAB_CACHE"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "home"


@pytest.mark.parametrize("given", ["~/runs", "$HOME/runs", "${HOME}/runs", "../home/runs", Path("~/runs")])
def test_a_run_trains_into_the_folder_that_is_meant(home: Path, given: str | Path) -> None:
    run = train(CONFIG, runs_dir=given, progress=False)
    assert run.path.resolve().parent == home / "runs" and run.path.is_absolute()
    assert list((home.parent / "elsewhere").iterdir()) == []
    assert open_run(f"~/runs/{run.id}").id == run.id


def test_the_command_line_trains_into_the_home_folder(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.json").write_text(CONFIG.to_json())
    assert main(["run", "~/config.json", "--runs", "~/runs"]) == 0
    assert len(list((home / "runs").glob("*-single-*"))) == 1
    assert capsys.readouterr().out.startswith("finished")


def test_folders_of_the_environment_are_expanded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT", str(home / "project"))
    for variable, folder in [("DTDG_LAB_STATE", state_root), ("DTDG_LAB_CACHE", cache_folder)]:
        for given, meant in [("~/x", home / "x"), ("$PROJECT/x", home / "project" / "x")]:
            monkeypatch.setenv(variable, given)
            assert folder() == meant
    monkeypatch.setenv("DTDG_LAB_STATE", "here")
    assert state_root() == home.parent / "elsewhere" / "here"


def test_graphs_are_saved_to_and_read_from_the_home_folder(home: Path) -> None:
    assert load_dataset("growing").save("~/g") == home / "g"
    assert DynamicGraph.load("~/g").num_snapshots


@pytest.mark.parametrize("given", ["$NOWHERE/runs", "${NOWHERE}/runs", "~nosuchuser/runs"])
def test_what_cannot_be_expanded_is_refused_with_its_name(home: Path, given: str) -> None:
    for use in (lambda: train(CONFIG, runs_dir=given, progress=False), lambda: Session(ranks=1, runs_dir=given)):
        with pytest.raises(RunStoreError, match=r"runs_dir=.*(NOWHERE is not set|nosuchuser).* whole path"):
            use()
    with pytest.raises(DataError, match="folder="):
        load_dataset("growing").save(given)
    assert list((home.parent / "elsewhere").iterdir()) == []


def test_a_name_that_exists_as_written_is_not_expanded(home: Path) -> None:
    (Path.cwd() / "$NOWHERE").mkdir()
    assert as_path("$NOWHERE", "path") == Path.cwd() / "$NOWHERE"
    for name in ("$NOWHERE/new", "$NOWHERE/$HOME", "~/runs", "$HOME/runs", "runs"):
        path = as_path(name, "path")
        assert path.is_absolute()
        assert as_path(path, "path") == as_path(str(path), "path") == path  # an absolute path stays what it is
    assert as_path("$NOWHERE/new", "path") == Path.cwd() / "$NOWHERE" / "new"


def test_a_run_trains_in_a_working_folder_with_a_dollar(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path.cwd() / "a$HOME").mkdir()
    monkeypatch.chdir("a$HOME")
    assert train(CONFIG, progress=False).path.is_relative_to(Path.cwd() / "runs")


def test_a_link_to_a_place_that_is_gone_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    with pytest.raises(RunStoreError, match=r"the link .*link leads to .*disk, which is missing"):
        writable_folder(tmp_path / "link" / "runs", "runs_dir", RunStoreError)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_removed_working_folder_is_told_with_what_to_set(tmp_path: Path, entry: str) -> None:
    setup, call, setting = ENTRIES[entry]
    (tmp_path / "gone").mkdir()
    environment = {} if setting == "runs_dir" else {setting: "here"}
    gone = "import os; os.rmdir(os.getcwd())\n"
    message = said(f"{setup}{gone}{call.format('')}", environment=environment, cwd=tmp_path / "gone")
    assert "the working folder of this process has been removed" in message and "os.chdir" in message
    assert f"{setting}=" in message


@needs_root
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_home_that_may_not_be_entered_is_told_with_what_to_set(open_folder: Path, entry: str) -> None:
    setup, call, setting = ENTRIES[entry]
    setting = "DTDG_LAB_STATE" if entry == "Session" else setting
    home = open_folder / "home"
    home.mkdir(mode=0o700)
    environment = {"HOME": str(home), "DTDG_LAB_STATE": "", "DTDG_LAB_CACHE": ""}
    warm = "load_dataset('growing', root='/tmp')\n" if entry == "datasets.load" else ""
    code = f"{setup}{warm}{AS_NOBODY}{call.format(', runs_dir=sys.argv[1]')}"
    message = said(code, "~/runs", environment=environment, cwd=open_folder)
    assert setting in message and f"{home} belongs to root (mode drwx------)" in message


@needs_root
def test_a_run_elsewhere_names_the_folder_of_the_state_that_may_not_be_entered(open_folder: Path) -> None:
    runs = open_folder / "runs"
    (open_folder / "home").mkdir(mode=0o700)
    runs.mkdir()
    runs.chmod(0o777)
    environment = {"HOME": str(open_folder / "home"), "DTDG_LAB_STATE": ""}
    message = said(f"{TRAIN}{AS_NOBODY}train(config, runs_dir=sys.argv[1])", runs, environment=environment)
    assert "Set DTDG_LAB_STATE to another folder" in message and "home belongs to root" in message
    assert list(runs.iterdir()) == []


def test_nothing_is_computed_for_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(local, "_train", lambda *_, **__: pytest.fail("it trains"))
    for given in (tmp_path / "file", tmp_path / "file" / "runs", "/proc/runs"):
        with pytest.raises(RunStoreError, match="nothing can be written into"):
            train(CONFIG, runs_dir=given, progress=False)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [RunStoreError, ClusterError, DataError, ConfigError])
def test_the_try_leaves_nothing_behind(tmp_path: Path, error: type[LabError]) -> None:
    assert writable_folder(tmp_path / "a" / "b", "x", error) == tmp_path / "a" / "b"
    assert writable_file(tmp_path / "a" / "b.npz", "x", error) == tmp_path / "a" / "b.npz"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(error, match="x="):
        writable_folder(None, "x", error)
