"""On a slow network a step of esdg hides most of its exchanges behind computing, with the same bits as without overlap.

Rows leave a rank one exchange after another, at a rate by which those of a leg take ``LEG_S``. What overlap hides is
told by two runs: what the ranks stand still for with it, of the time in flight without it. The time in flight of pieces
that travel together, summed, would count the same second several times.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.testing.processes import delayed_group
from dtdg_lab.testing.training import Trained, train_in_memory
from tests.distributed.groups import in_groups

pytestmark = pytest.mark.slow  # seconds are compared; that no bit changes: test_snapshot_plans.py
LEG_S, EPOCHS, HIDDEN, NODES, OWN = 0.025, 5, 64, 2800, 6
BYTES_PER_S = OWN * NODES // 2 * HIDDEN * 8 / LEG_S
BUSY = {
    "dataset": "growing",
    "generated_nodes": NODES,
    "generated_edges": 60 * NODES,
    "generated_snapshots": 40,
    "hidden": HIDDEN,
    "layers": 2,
    "device": "cpu",
    "epochs": EPOCHS,
    "dtype": "float64",
    "threads": 1,
    "evaluate_every": 100,
}


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(system="esdg", **BUSY))


def _on_rank(group: Group, folder: str) -> dict[bool, dict[str, Any]]:
    network, found = delayed_group(group, 0.0, BYTES_PER_S), {}
    for overlap in (False, True):
        config = RunConfig(system="esdg", overlap=overlap, ranks=group.size, **BUSY)
        done = train_in_memory(config, _graph(), Path(folder) / "last.pt", group=network)
        found[overlap] = {
            "losses": done.losses,
            "steps": [_seconds(done, step) for step in range(1, EPOCHS)],
            "exchanges": sum(done.recorder.column("exchanges", "exchanges")),
        }
    return found


def _seconds(done: Trained, step: int) -> tuple[float, float]:
    """In flight and exposed in a step; the first one also makes what is made once."""
    rows = [row for row in done.recorder.tables["exchanges"] if row["step"] == step]
    return sum(row["in_flight_s"] for row in rows), sum(row["exposed_s"] for row in rows)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[bool, dict[str, Any]]]:
    _graph()
    return in_groups(_on_rank, 2, str(tmp_path_factory.mktemp("overlap")))


def test_without_overlap_nothing_is_hidden(ranks: list[dict[bool, dict[str, Any]]]) -> None:
    for found in ranks:
        for flying_s, exposed_s in found[False]["steps"]:
            assert flying_s > 4 * LEG_S, "four legs as wide as the hidden state, and one as wide as the features"
            assert 1 - exposed_s / flying_s < 0.1


def test_with_overlap_most_is_hidden(ranks: list[dict[bool, dict[str, Any]]]) -> None:
    """Of the least disturbed steps: others use this machine's cores too."""
    for found in ranks:
        without_s = min(flying_s for flying_s, _ in found[False]["steps"])
        still_s = min(exposed_s for _, exposed_s in found[True]["steps"])
        assert found[True]["exchanges"] > 3 * found[False]["exchanges"]
        assert 1 - still_s / without_s >= 0.6, f"stands still {still_s:.3f} s where {without_s:.3f} s were in flight"
        assert max(1 - exposed_s / flying_s for flying_s, exposed_s in found[True]["steps"]) >= 0.6
