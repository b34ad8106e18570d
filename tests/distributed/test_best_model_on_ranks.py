"""The best model of a run on two processes: rank 0's on all ranks, with gradients and with averaged models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.nn.utils import vector_to_parameters

from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.testing.training import train_in_memory
from dtdg_lab.training.best_model import BestModel
from dtdg_lab.training.build import build
from dtdg_lab.training.checkpoint import Checkpoint
from tests.distributed.groups import in_groups
from tests.small_training import config_of

UNSTEADY = {"optimizer": "sgd", "learning_rate": 0.5, "epochs": 6, "test_model": "best", "dtype": "float64"}
CASES: dict[str, dict[str, Any]] = {
    "gradients": {},
    "models": {"system": "dynahb", "average_every_s": 0.01, "epoch_batches": 8, "reservoir": False},
}


def evaluations(group: Group, folder: Path) -> dict[str, list[dict[str, Any]]]:
    rows = {}
    for name, case in CASES.items():
        config = config_of(**UNSTEADY, **case, ranks=group.size)
        done = train_in_memory(config, load_for(config), folder / f"{name}.pt", group=group)
        rows[name] = done.recorder.tables["evaluations"]
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    first, second = in_groups(evaluations, 2, folder)
    assert not any(second.values()), "rank 0 records evaluations"
    return first


@pytest.mark.parametrize("name", CASES)
def test_the_test_loss_is_that_of_the_lowest_validation_loss(
    name: str, rows: dict[str, list[dict[str, Any]]], folder: Path
) -> None:
    (tested,) = (row for row in rows[name] if row["split"] == "test")
    lowest = min((row for row in rows[name] if row["split"] == "validation"), key=lambda row: row["loss"])
    assert (tested["step"], tested["epoch"]) == (lowest["step"], lowest["epoch"])
    config = config_of(**UNSTEADY, **CASES[name])
    alone = build(config, load_for(config), SoloGroup())
    checkpoint = Checkpoint.load(folder / f"{name}.pt")
    assert checkpoint.best is not None
    best = BestModel.read(checkpoint.best)
    if best.loss == lowest["loss"]:
        vector_to_parameters(best.parameters, alone.model.parameters())
    else:  # the evaluation after the last step
        checkpoint.restore(alone.model)
    validated, found = alone.evaluator.evaluate(alone.model, ("validation", "test"), final=True)
    assert (validated.loss, found.loss) == pytest.approx((lowest["loss"], tested["loss"]), rel=1e-12)


def test_ranks_test_the_model_of_one_process(rows: dict[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    alone = evaluations(SoloGroup(), tmp_path)["gradients"]
    found = [(row["split"], row["step"]) for row in rows["gradients"]]
    assert found == [(row["split"], row["step"]) for row in alone]
    assert found[-1][0] == "test" and found[-1][1] < found[-2][1], "the last step is not the best"
