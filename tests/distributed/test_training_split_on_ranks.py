"""Two ranks read the training split alone: other edges, features and labels after it change no plan and no bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.distributed.group import Group
from dtdg_lab.testing.training import train_in_memory
from tests.distributed.groups import in_groups
from tests.properties.test_training_split import changed, config_of, original, parts_of, plans

SYSTEMS = ("esdg", "esdg-hybrid", "hypergraph-vertex", "adgnn-t", "dynahb", "flaredtdg", "full-history")


def _train(group: Group, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The plans, losses and parameters of each system on both graphs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for system in SYSTEMS:
        for number, graph in enumerate((original(), changed(parts_of().train.stop))):
            config = config_of(system, "regression", ranks=2)
            run = train_in_memory(config, graph, folder / f"{system}-{number}-{group.rank}.pt", group=group)
            parameters = {name: parameter.tolist() for name, parameter in run.parameters.items()}
            found.setdefault(system, []).append({"plans": plans(run), "losses": run.losses, "parameters": parameters})
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[dict[str, Any]]]]:
    return in_groups(_train, 2, tmp_path_factory.mktemp("checkpoints"), timeout_s=300)


@pytest.mark.parametrize("system", SYSTEMS)
def test_later_snapshots_move_nothing_on_two_ranks(ranks: list[dict[str, list[dict[str, Any]]]], system: str) -> None:
    for found in ranks:
        usual, other = found[system]
        assert usual["losses"] and usual == other
