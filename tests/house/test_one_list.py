"""The catalogue is the only list of names: whatever is registered is offered, and no code names its siblings again."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outside_family.all_kinds import RUNS

from dtdg_lab.config import catalogue

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("models", "tasks", "scheduling", "partition")
ALLOWED: dict[tuple[str, str], str] = {
    ("forecast/rank_curves.py", "partition"): "two curves of a figure; the formula of one is known",
    ("environment.py", "partition"): "partitioners whose library the report names",
    ("lessons/checks.py", "partition"): "what a lesson compares",
    ("lessons/widgets.py", "scheduling"): "what a lesson compares",
    (
        "partition/child_process.py",
        "partition",
    ): "solvers of a process of their own, not the catalogue's names",
    ("partition/redistribution_volume.py", "models"): "formulas and measurements of the ESDG paper",
    ("systems/decayed_windows/chunks.py", "partition"): "chunkers, choices of an option of their own",
    ("systems/hybrid_batches/card_pictures.py", "partition"): "bars of a card",
    ("systems/decayed_windows/tiles.py", "partition"): "a change to try",
    ("systems/snapshot_blocks/transfer_study.py", "models"): "models of the ESDG paper, by their smoothing",
    ("systems/snapshot_blocks/volume_study.py", "models"): "measurements of the ESDG paper, and its three models",
    ("systems/snapshot_groups/forecast.py", "scheduling"): "curves of a figure",
    ("systems/snapshot_groups/card_charts.py", "scheduling"): "bars of a card, named as systems",
    ("systems/snapshot_groups/card_charts.py", "partition"): "a scheduler that is called like a partitioner",
    ("systems/snapshot_groups/schedulers/simulation.py", "scheduling"): "curves of DyGNeX's figure 5",
    ("systems/snapshot_groups/page.py", "scheduling"): "changes to try",
    ("systems/snapshot_groups/page.py", "partition"): "a scheduler that is called like a partitioner",
    ("systems/vertex_parts/charts.py", "partition"): "bars of a card",
    ("training/build.py", "models"): "two models that warm libraries up before the first run",
}


def listed(tree: ast.Module) -> Iterator[tuple[str, int, set[str]]]:
    """Yield kind, line and names of each collection of two names or more, and of each comparison with one."""
    names = {kind: set(catalogue.names(kind)) for kind in KINDS}
    for node in ast.walk(tree):
        items: list[ast.expr | None] = []
        least = 2
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            items = list(node.elts)
        elif isinstance(node, ast.Dict):
            items = list(node.keys)
        elif isinstance(node, ast.Compare):
            items, least = [node.left, *node.comparators], 1
        texts = {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
        for kind in KINDS:
            if len(texts & names[kind]) >= least:
                yield kind, node.lineno, texts & names[kind]


def test_no_code_lists_names_of_the_catalogue() -> None:
    new: list[str] = []
    for file in sorted((ROOT / "dtdg_lab").rglob("*.py")):
        place = str(file.relative_to(ROOT / "dtdg_lab"))
        for kind, line, names in listed(ast.parse(file.read_text(encoding="utf-8"))):
            if (place, kind) not in ALLOWED:
                new.append(f"{place}, line {line}: {kind} {', '.join(sorted(names))}")
    assert not new, f"take the names from the catalogue, or say in ALLOWED why not: {new}"


@pytest.fixture(scope="module")
def offered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process that has registered one of every kind saw."""
    folder = tmp_path_factory.mktemp("offered")
    tests = ROOT / "tests"
    paths = [str(ROOT), str(tests), os.environ.get("PYTHONPATH", "")]
    process = subprocess.run(
        [sys.executable, "-W", "error", "-m", "outside_family.offered"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "DTDG_LAB_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    seen: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return seen


@pytest.mark.parametrize("name", RUNS)
def test_a_registration_is_described_and_makes_a_config(offered: dict[str, Any], name: str) -> None:
    assert f" {name}: " in offered["described"][name]
    assert name in offered["configs"][name]


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("psg", "latest_first"),
        ("adgnn-t", "ribbons"),
        ("adgnn-t", "dusk"),
        ("adgnn-t", "huber"),
        ("greendygnn", "pendulum"),
        ("dynahb", "seesaw"),
    ],
)
def test_options_of_a_system_list_a_registered_choice(offered: dict[str, Any], system: str, name: str) -> None:
    assert name in offered["options"][system]


def test_options_list_those_of_a_chosen_entry(offered: dict[str, Any]) -> None:
    assert offered["own options"] == ["huber_delta", "ribbon_offset"]
    assert offered["read by"] == ["read by: task huber", "read by: partitioner ribbons"]


@pytest.mark.parametrize(
    ("control", "name"),
    [
        ("model", "smoothed"),
        ("task", "huber"),
        ("scheduler", "latest_first"),
        ("partitioner", "ribbons"),
        ("dataset", "ring"),
        ("congestion", "dusk"),
        ("cache_policy", "pendulum"),
        ("batch_policy", "seesaw"),
    ],
)
def test_the_dashboard_offers_it(offered: dict[str, Any], control: str, name: str) -> None:
    assert name in offered["controls"][control]


def test_the_dashboard_has_cards_of_families_with_systems_only(offered: dict[str, Any]) -> None:
    assert offered["cards"][-1] == "Striped" and "Bare" not in offered["cards"]


def test_the_dashboard_shows_the_options_of_the_chosen_task(offered: dict[str, Any]) -> None:
    assert offered["config"] == "latest_first" and offered["shown"] == ["huber_delta"]


def test_the_page_of_partitions_takes_models_without_options(offered: dict[str, Any]) -> None:
    assert offered["page Partition"] == ["tgcn", "wdgcn", "smoothed"]


def test_data_sets_list_a_registered_one_and_a_registered_task(offered: dict[str, Any]) -> None:
    assert offered["data sets"]["ring"] == ["regression", "link", "huber"]
    assert all("huber" in tasks for tasks in offered["data sets"].values())


def test_the_advisor_leaves_out_only_systems_that_count_no_work(offered: dict[str, Any]) -> None:
    assert "psg" in offered["advised"] and "adgnn-t" in offered["advised"]
    assert "predicts no work" in offered["left out"]["striped"]
    assert offered["forecast"] > 0
    assert "no system can be predicted: striped: the family 'striped' predicts no work" in offered["advised alone"]


def test_partitions_are_compared_with_a_registered_one(offered: dict[str, Any]) -> None:
    assert {"metis", "ribbons"} <= set(offered["partitions"]) and "file" not in offered["partitions"]
