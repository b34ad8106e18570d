"""The test split is evaluated with the parameters of the lowest validation loss, if a run asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.testing.training import Trained
from dtdg_lab.training.best_model import BestModel, parameters_of_rank_0
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.position import Position
from tests.small_training import config_of, train

pytestmark = pytest.mark.usefixtures("one_thread")
# the validation loss rises and falls from epoch to epoch
UNSTEADY: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.5, "epochs": 6, "test_model": "best"}


def unsteady(**changes: Any) -> RunConfig:
    return config_of(**{**UNSTEADY, **changes})


def of_split(done: Trained, split: str) -> list[dict[str, Any]]:
    return [row for row in done.recorder.tables["evaluations"] if row["split"] == split]


def scores(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "time_ns"} for row in rows]


def best_row(done: Trained) -> dict[str, Any]:
    return min(of_split(done, "validation"), key=lambda row: row["loss"])


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("best"), unsteady())


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("last"), unsteady(test_model="last"))


def test_the_test_row_is_of_the_step_with_the_lowest_validation_loss(best: Trained) -> None:
    (tested,) = of_split(best, "test")
    row = best_row(best)
    assert (tested["step"], tested["epoch"]) == (row["step"], row["epoch"])
    assert 0 < tested["step"] < best.outcome.position.step, "else the case shows nothing"


def test_the_test_loss_is_that_of_a_run_that_ends_there(best: Trained, tmp_path: Path) -> None:
    shorter = train(tmp_path, unsteady(test_model="last", epochs=best_row(best)["epoch"]))
    assert scores(of_split(best, "test")) == scores(of_split(shorter, "test"))


def test_training_and_the_last_parameters_stay_the_same(best: Trained, last: Trained) -> None:
    assert best.losses == last.losses
    assert all(torch.equal(tensor, last.parameters[name]) for name, tensor in best.parameters.items())
    for split in ("train", "validation"):
        assert scores(of_split(best, split)) == scores(of_split(last, split))
    assert [row["step"] for row in of_split(last, "test")] == [last.outcome.position.step]


@pytest.mark.parametrize("step", [2, 16, 29])
def test_a_resumed_run_tests_the_same_model(best: Trained, tmp_path: Path, step: int) -> None:
    first = train(tmp_path, unsteady(), script={step: {"stop": True}})
    assert first.outcome.state == "stopped" and not of_split(first, "test")
    second = train(tmp_path, unsteady(), first_step=step + 1, resume=True)
    assert scores(of_split(second, "test")) == scores(of_split(best, "test"))


def test_a_fork_forgets_the_best_model_of_its_parent(tmp_path: Path) -> None:
    from tests.steered_here import trained

    config = unsteady(epochs=2, learning_rate=0.1)
    parent = trained(config, tmp_path / "parent.pt")
    done = trained(config.replace(epochs=3, learning_rate=2.0), tmp_path / "fork.pt", begin=tmp_path / "parent.pt")
    assert best_row(done)["loss"] > best_row(parent)["loss"], "else the case shows nothing"
    assert of_split(done, "test")[0]["step"] == best_row(done)["step"]


def test_more_epochs_may_find_a_better_model(best: Trained, tmp_path: Path) -> None:
    train(tmp_path, unsteady(epochs=1))
    longer = train(tmp_path, unsteady(), resume=True, changes={"epochs": 6}, first_step=5)
    assert scores(of_split(longer, "test")) == scores(of_split(best, "test"))


def test_the_checkpoint_has_the_best_model(tmp_path: Path) -> None:
    done = train(tmp_path, unsteady(epochs=4))
    stored = Checkpoint.load(tmp_path / "last.pt").best
    assert stored is not None
    found = BestModel.read(stored)
    rows = [row for row in of_split(done, "validation") if row["step"] < done.outcome.position.step]
    row = min(rows, key=lambda row: row["loss"])
    assert (found.loss, found.position) == (row["loss"], Position(row["epoch"], 0, row["step"]))
    train(tmp_path, config_of())
    assert Checkpoint.load(tmp_path / "last.pt").best is None


def test_parameters_come_back_after_an_error() -> None:
    model = torch.nn.Linear(2, 1)
    own = [parameter.detach().clone() for parameter in model.parameters()]
    best = BestModel(0.1, Position(), torch.arange(3.0))
    with pytest.raises(ZeroDivisionError), parameters_of_rank_0(model, best, SoloGroup()):
        assert torch.cat([parameter.reshape(-1) for parameter in model.parameters()]).tolist() == [0.0, 1.0, 2.0]
        raise ZeroDivisionError
    assert all(torch.equal(new, old) for new, old in zip(model.parameters(), own, strict=True))


@pytest.mark.parametrize("protocol", ["dynahb-2024", "flare-2026"])
def test_a_protocol_without_validation_is_refused(protocol: str) -> None:
    with pytest.raises(
        ConfigError, match=r"needs a validation split, but protocol='.*' has none. Set test_model='last'"
    ):
        config_of(protocol=protocol, test_model="best")
