"""Systems that train the same data for the same time leave different records: none is another by a second name."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.testing.training import train_in_memory
from tests.distributed.groups import in_groups

SMALL = {
    "dataset": "growing",
    "generated_nodes": 40,
    "generated_edges": 120,
    "generated_snapshots": 40,
    "hidden": 4,
    "layers": 2,
    "device": "cpu",
    "epochs": 1,
}
CACHING = ("rapidgnn", "fixed-window", "threshold-window", "greendygnn", "clairvoyant")
REMOTE = ("dgl-default", "bgl", *CACHING)
ALONE = ("single", "pipad")  # systems of one process
MORE: dict[str, dict[str, Any]] = {
    **{system: {"parts": 4} for system in ("psg", "blad", "dygnex-g", "dygnex-l", *REMOTE)},
    **{system: {"parts": 4, "cache_window": 4} for system in CACHING[1:]},
    "dygnex-l": {"parts": 4, "schedule_gap": 1.0},
    "pipad": {"shared_snapshots": 2},
}


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(system="single", **SMALL))


def _recorded(system: str, group: Group, folder: Path) -> dict[str, Any]:
    """What the records of an epoch tell but names and seconds."""
    settings = {**SMALL, **MORE.get(system, {}), "ranks": group.size}
    done = train_in_memory(RunConfig(system=system, **settings), _graph(), folder / "last.pt", group=group)
    tables = done.recorder.tables
    sent: Counter[tuple[int, str]] = Counter()
    for row in tables["links"]:
        sent[row["layer"], row["pass_name"]] += row["rows"]
    schedules = [event["data"] for event in done.recorder.events("schedule")]
    return {
        "steps": len(tables["steps"]),
        "work": sum(row["vertex_snapshots"] for row in tables["steps"]),
        "sent": dict(sent),
        "legs": {(row["layer"], row["pass_name"], row["collective"]) for row in tables["exchanges"]},
        "batches": [(row["chunks"], row["edges"]) for row in tables["batches"]],
        "schedules": [(described["assignment"], described["gap"]) for described in schedules],
        "shared": [event["data"]["chosen"] for event in done.recorder.events("shared_edges")],
        "remote": _remote(tables) if tables["resolved"] else {},
    }


def _remote(tables: Any) -> dict[str, Any]:
    """How features of other parts came: ahead of training or not, cached for how long, chosen by what."""
    decisions = tables["cache_decisions"]
    return {
        "steps_asked": len({(row["part"], row["step"]) for row in tables["fetches"] if row["purpose"] == "miss"}),
        "ahead": any(row["wait_s"] < row["resolve_s"] for row in tables["resolved"]),
        "longest": max((row["length"] for row in tables["windows"]), default=0),
        "per_part": min(Counter(row["part"] for row in tables["windows"]).values(), default=0),
        "decides": bool(decisions),
        "forecasts": any(len(row["forecast_ms"]) for row in decisions),
        "values": sorted({len(row["values"]) for row in decisions}),
    }


def _on_rank(group: Group, folder: str) -> dict[str, Any]:
    systems = [system for system in catalogue.names("systems") if system not in ALONE]
    return {system: _recorded(system, group, Path(folder)) for system in systems}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What ranks recorded of every system; those of one process have one, the others two."""
    _graph()
    folder = tmp_path_factory.mktemp("aliases")
    ranks = in_groups(_on_rank, 2, str(folder))
    found = {system: [rank[system] for rank in ranks] for system in ranks[0]}
    return {**{system: [_recorded(system, SoloGroup(), folder)] for system in ALONE}, **found}


@pytest.mark.slow
def test_every_pair_of_systems_differs_in_what_is_recorded(recorded: dict[str, list[dict[str, Any]]]) -> None:
    assert set(recorded) == set(catalogue.names("systems"))
    alike = [(one, other) for one, other in combinations(recorded, 2) if recorded[one] == recorded[other]]
    assert alike == []


@pytest.mark.slow
def test_each_difference_is_the_one_that_the_catalogue_claims(recorded: dict[str, list[dict[str, Any]]]) -> None:
    sends = {system: any(rank["sent"] for rank in ranks) for system, ranks in recorded.items()}
    legs = {system: {leg for rank in ranks for _, _, leg in rank["legs"]} for system, ranks in recorded.items()}
    windows = {"flaredtdg", "full-history", "recent-only"}
    assert {system for system, some in sends.items() if some} == windows | {
        "esdg",
        "esdg-hybrid",
        "hypergraph-vertex",
        "adgnn-t",
    }
    kept = {system: recorded[system][0]["batches"] for system in (*windows, "dynagraph")}
    assert any(isinstance(count, int) for counts, _ in kept["flaredtdg"] for count in counts), "decayed snapshots"
    assert {len(counts) for counts, _ in kept["recent-only"]} == {1, 2}
    assert all(count is None for counts, _ in kept["full-history"] for count in counts)
    assert all(edges > 0 for _, edges in kept["dynagraph"]), "neighbours were drawn"
    assert legs["esdg"] == {"to_vertices", "to_snapshots"}
    assert "halo" in legs["esdg-hybrid"] and not legs["psg"]
    cut, metis = (recorded[system][0]["sent"] for system in ("hypergraph-vertex", "adgnn-t"))
    assert cut.keys() == metis.keys() and cut != metis


@pytest.mark.slow
def test_the_feature_paths_differ_as_the_catalogue_claims(recorded: dict[str, list[dict[str, Any]]]) -> None:
    paths = {system: [rank["remote"] for rank in recorded[system]] for system in REMOTE}
    assert {system for system, ranks in recorded.items() if any(rank["remote"] for rank in ranks)} == set(REMOTE)
    assert {system for system, found in paths.items() if not all(rank["ahead"] for rank in found)} == {"dgl-default"}
    for system in ("dgl-default", "bgl"):
        assert all(rank["steps_asked"] and not rank["longest"] for rank in paths[system]), system
    steps = recorded["rapidgnn"][0]["steps"]
    assert all((rank["longest"], rank["per_part"]) == (steps, 1) for rank in paths["rapidgnn"])
    assert all(rank["longest"] == 4 and rank["per_part"] > 1 for rank in paths["fixed-window"])
    assert {system for system, found in paths.items() if found[0]["decides"]} == {
        "threshold-window",
        "greendygnn",
        "clairvoyant",
    }
    assert paths["greendygnn"][0]["values"] == [8 * 4], "a value for each of 8 P actions"
    assert paths["threshold-window"][0]["values"] == [0]
