"""A newcomer follows docs/extending.md: writes the files, runs the commands, opens the dashboard, adds an entry."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_program
from tests.how_tos import ROOT, TEXT, HowTo, how_tos

HOW_TOS = how_tos()
QUICK = ("model", "scheduler", "chart")


def shell(command: str, folder: Path, package: Path = ROOT) -> str:
    """Return what a command prints, in a process of its own, because what is registered stays registered."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return run_program("bash", "-c", command, folder=folder, paths=[package], PATH=path)


# the dashboard's session below trains with all of them
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k not in QUICK)) for k in HOW_TOS])
def test_its_commands_train_on_two_ranks_and_check(tmp_path: Path, kind: str) -> None:
    how_to = HOW_TOS[kind]
    (tmp_path / how_to.file).write_text(how_to.code, encoding="utf-8")
    assert shell(how_to.run, tmp_path).startswith("finished: 5 epochs, ")
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "config.json").read_text())["ranks"] == 2
    checked = shell(how_to.check, tmp_path)
    if kind == "chart":
        assert re.fullmatch(r"The longest step took \d+\.\d+ s\n", checked)
    else:
        (extension,) = json.loads((run / "extensions.json").read_text())["extensions"]
        assert extension["target"].startswith(f"{Path(how_to.file).stem}:")
        assert ", 0 are wrong" in checked.splitlines()[0]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the dashboard of one session shows with all files."""
    folder = tmp_path_factory.mktemp("dashboard")
    for how_to in HOW_TOS.values():
        (folder / how_to.file).write_text(how_to.code, encoding="utf-8")
    script = Path(__file__).with_name("how_tos_trial.py")
    yield json.loads(shell(f"python '{script}' .", folder).splitlines()[-1])


def test_the_dashboard_offers_them(seen: dict[str, Any]) -> None:
    added = {"model": "smoothed", "task": "absolute", "scheduler": "shortest_first", "partitioner": "ranges"}
    for control, name in {**added, "dataset": "ring"}.items():
        assert name in seen["offered"][control], control


def test_the_dashboard_has_a_card_of_the_system_and_none_of_the_charts(seen: dict[str, Any]) -> None:
    assert seen["cards"][-1] == "Stretches" and "My charts" not in seen["cards"]


@pytest.mark.parametrize("run", ["at once", "partitioner", "system"])
def test_the_live_page_shows_the_run_with_the_chart(seen: dict[str, Any], run: str) -> None:
    shown = seen[run]
    assert math.isfinite(shown["loss"])
    assert {"loss", "step_time", "longest_step"} <= set(shown["charts"])
    assert shown["bars"] == 2 and "The longest step took" in shown["caption"]


# Inside the package: a copy of it, files moved there, an entry each.


PLACES = {
    "model": ("models/smoothed.py", "models", "smoothed", "SmoothedGCN"),
    "scheduler": ("systems/snapshot_groups/schedulers/shortest_first.py", "scheduling", "shortest_first", ""),
    "partitioner": ("partition/ranges.py", "partition", "ranges", "ranges"),
    "task": ("tasks/absolute.py", "tasks", "absolute", "Absolute"),
    "data set": ("datasets/generators/ring.py", "datasets", "ring", "RING"),
}
SETTINGS = {"model": "smoothed", "task": "absolute", "dataset": "ring", "generated_nodes": 60, "epochs": 2}


def entry_of(how_to: HowTo) -> str:
    """Return the entry that the page tells to write; that of the scheduler is there."""
    path, kind, name, attribute = PLACES[how_to.kind]
    if how_to.kind == "scheduler":
        (text,) = re.findall(r"((?:^    .*\n)+)", TEXT[TEXT.index("    [entries.") :], re.M)[:1]
        return re.sub("^    ", "", str(text), flags=re.M)
    module = f"dtdg_lab.{path.removesuffix('.py').replace('/', '.')}"
    lines = [f"[entries.{kind}.{name}]", f'target = "{module}:{attribute}"', 'summary = "New."', 'source = "ours"']
    if kind == "datasets":
        lines.append(
            'options = ["generated_nodes", "generated_snapshots", "edge_life", "smoothing_window", "features"]'
        )
    return "\n".join(lines) + "\n"


def test_a_file_and_an_entry_are_all_that_the_package_needs(tmp_path: Path) -> None:
    package = tmp_path / "dtdg_lab"
    shutil.copytree(ROOT / "dtdg_lab", package, ignore=shutil.ignore_patterns("__pycache__"))
    for kind, (path, *_) in PLACES.items():
        (package / path).write_text(HOW_TOS[kind].definition, encoding="utf-8")
        table = "systems/snapshot_groups/family.toml" if kind == "scheduler" else "config/catalogue.toml"
        with (package / table).open("a", encoding="utf-8") as file:
            file.write(f"\n{entry_of(HOW_TOS[kind])}")
    runs = [
        {"system": "psg", "scheduler": "shortest_first", **SETTINGS},
        {"system": "adgnn-t", "partitioner": "ranges", "parts": 2, **SETTINGS},
    ]
    code = f"""
        import dtdg_lab as lab
        assert lab.__file__.startswith({str(package)!r})
        print([lab.train(lab.RunConfig(**run), progress=False).status for run in {runs!r}])
    """
    (tmp_path / "run.py").write_text("\n".join(line.strip() for line in code.splitlines()), encoding="utf-8")
    printed = shell(f"python run.py && python '{ROOT}/tests/algorithms.py' NEW.md", tmp_path, tmp_path)
    assert "['finished', 'finished']" in printed
    listed = (tmp_path / "NEW.md").read_text()
    assert all(f"`{name}`" in listed for _, _, name, _ in PLACES.values())
