"""The public names: which there are in which group, that each is documented, and that completion lists nothing else."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from IPython.core.completer import IPCompleter, provisionalcompleter

import dtdg_lab as lab
from dtdg_lab.core.errors import RunStoreError

GROUPS = {
    "calibration": "Calibration calibrate calibrate_here check_live predict",
    "congestion": "save_trace",
    "datasets": (
        "compare default from_csv from_dgl from_edges from_pandas from_parquet from_snapshots from_static list load"
    ),
    "estimate": "forecast schedules",
    "inspect": "activations follow_node perturb",
    "partition": "compare load partition",
    "races": "open",
    "runs": "compare export fork open replay show_progress verify_replay",
    "studies": "choice decay integer log_uniform open uniform",
    "testing": "ExtensionCheck check_extension check_model",
}
TOP = (
    "Dashboard DynamicGraph RunConfig Session StopRule Sweep card describe open options plot race register run_study "
    "train"
)
NAMES = [*TOP.split(), *(f"{group}.{name}" for group, names in GROUPS.items() for name in names.split())]


def named(name: str) -> Any:
    group, _, inner = name.rpartition(".")
    return getattr(getattr(lab, group) if group else lab, inner)


def test_the_top_has_these_names_and_groups() -> None:
    assert dir(lab) == sorted([*TOP.split(), *GROUPS]) == sorted(lab.__all__)
    assert isinstance(lab.__version__, str)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_these_names(group: str) -> None:
    module = getattr(lab, group)
    assert isinstance(module, ModuleType) and module.__doc__
    public = [name for name in dir(module) if not name.startswith("_")]
    assert public == sorted(GROUPS[group].split()) == sorted(module.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_documented_and_has_a_signature(name: str) -> None:
    of = named(name)
    assert of.__module__.startswith("dtdg_lab.")
    assert inspect.getdoc(of)
    assert inspect.signature(of).parameters or inspect.isclass(of)


@pytest.mark.parametrize("group", ["", *GROUPS])
@pytest.mark.parametrize("jedi", [True, False])
def test_completion_lists_the_public_names_only(group: str, jedi: bool) -> None:
    text = f"lab.{group}." if group else "lab."
    listed = GROUPS[group].split() if group else [*TOP.split(), *GROUPS]
    completer = IPCompleter(namespace={"lab": lab}, use_jedi=jedi)
    with provisionalcompleter():
        found = {each.text.removeprefix(text).removeprefix(".") for each in completer.completions(text, len(text))}
    assert {name for name in found if not name.startswith("_")} == set(listed)


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"dtdg_lab has no 'load_dataset'; it has .*datasets"):
        lab.load_dataset  # noqa: B018
    with pytest.raises(AttributeError, match=r"dtdg_lab.runs has no 'close'; it has compare, export, fork, open"):
        lab.runs.close  # noqa: B018


def test_open_refuses_what_is_no_run_race_or_study(tmp_path: Path) -> None:
    with pytest.raises(RunStoreError, match="there is nothing at that path"):
        lab.open(tmp_path / "none")
    with pytest.raises(RunStoreError, match=r"since it has no config.json, race.json or sweep.json"):
        lab.open(tmp_path)
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(RunStoreError, match="neither a run nor an export of one"):
        lab.open(tmp_path / "notes.txt")


def test_open_finds_out_what_a_path_holds(tmp_path: Path) -> None:
    drawn = {"generated_nodes": 20, "generated_edges": 60}
    config = lab.RunConfig(system="single", dataset="growing", epochs=1, hidden=4, **drawn)
    race = lab.race({"a": config, "b": config.replace(hidden=8)}, seeds=(0,), runs_dir=tmp_path, progress=False)
    study = lab.run_study(lab.Sweep(config, {"hidden": (4,)}), name="s", runs_dir=tmp_path, progress=False)
    run = study.trials[0].run
    kinds = {race.folder: "Race", race.folder / "race.json": "Race", study.path: "Study", run: "StoredRun"}
    assert {path: type(lab.open(path)).__name__ for path in kinds} == kinds
    assert type(lab.open(lab.runs.export(race, tmp_path / "race.html"))).__name__ == "ExportedRace"
    assert type(lab.open(lab.runs.export(run, tmp_path / "run.html"))).__name__ == "ExportedRun"
    assert type(lab.open(lab.runs.export(run, tmp_path / "run.py", "script"))).__name__ in ("PartialRun", "ExportedRun")
