"""Checkpoints on the page: what is listed, what a fork would change, forks and replays that are really made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtdg_lab.cluster.local import train_here
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.dashboard.actions import Actions
from dtdg_lab.dashboard.pages.checkpoints import NONE, Branch
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.runs.stored_run import open_run
from tests.dashboards import choose_in, click_button, page_until
from tests.factories import small_config

CONFIG = small_config("single", epochs=4, threads=1, keep_every=2, generated_snapshots=20)


class Here:
    """A session whose runs are trained in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, []

    def launch(self, ranks: int, make: Any, *, config: RunConfig, runs_dir: object = None) -> Any:
        assert config in make.args and config.ranks == ranks and runs_dir is None
        self.made.append(handle(train_here(config, runs_dir=self.folder, make=make)))
        return self.made[-1]


def handle(run: Any) -> Any:
    asked: list[str] = []
    return SimpleNamespace(
        id=run.id, path=run.path, status=run.status, save_checkpoint=lambda: asked.append("keep"), asked=asked
    )


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def page(tmp_path: Path, problems: list[str]):
    actions = Actions(problems.append)
    settings = Settings(1, CONFIG, lambda name, value: None, defer=actions.later)
    made = Branch(settings, Here(tmp_path / "runs"), actions, problems.clear)  # type: ignore[arg-type]
    yield made
    made.close()
    actions.close()


@pytest.mark.slow
def test_nothing_is_offered_before_there_is_a_run(page, tmp_path):
    page.follow(None)
    page.enable("idle", free=True)
    assert page.keep.disabled and page.fork.disabled and page.replay.disabled and page.changes.value == ""
    page.follow(SimpleNamespace(id="young", path=tmp_path / "young", status="running"))
    assert page.changes.value == NONE
    page.enable("running", free=False)
    assert not page.keep.disabled and page.fork.disabled and page.replay.disabled


def test_a_checkpoint_is_asked_for_while_a_run_is_on(page, tmp_path):
    asked: list[str] = []
    page.follow(SimpleNamespace(id="on", path=tmp_path, status="running", save_checkpoint=lambda: asked.append("keep")))
    page.enable("running", free=False)
    click_button(page, page.keep)
    page_until(page, lambda: asked == ["keep"])


def test_a_run_is_forked_and_replayed_from_the_page(page, problems):
    run = handle(train_here(CONFIG, runs_dir=page._session.folder))
    page.follow(run)
    page.enable("finished", free=True)
    page.update(slow=True)
    assert not page.at.options, "nothing is read from the disk while it is folded"
    page.panel.collapsed = False
    page_until(page, lambda: bool(page.at.options))
    assert list(page.at.options.values()) == ["last", "epoch-00004", "epoch-00002"]
    assert "epoch-00002: step 2, after 2 epochs" in page.at.options
    page.enable("finished", free=True)
    assert page.changes.value.startswith("All 4 epochs are trained")

    page.at.value = "epoch-00002"
    page._actions.poll()
    assert page.changes.value == "A fork repeats this run."
    click_button(page, page.fork)
    page_until(page, lambda: len(page._session.made) == 1)
    losses = [list(open_run(of.path).table("steps")["loss"]) for of in (run, page._session.made[0])]
    assert losses[0][2:] == losses[1] and len(losses[1]) == 2

    choose_in(page, "learning_rate", -1.0)  # the slider's power of ten
    assert page.changes.value == "From there on, a fork differs by learning_rate=0.1."
    click_button(page, page.fork)
    page_until(page, lambda: len(page._session.made) == 2)
    other = open_run(page._session.made[1].path)
    assert other.config.learning_rate == 0.1 and list(other.table("steps")["loss"]) != losses[1]

    choose_in(page, "hidden", 8)
    assert not problems
    click_button(page, page.fork)
    page_until(page, lambda: bool(problems))
    assert "'hidden' cannot change in a fork" in problems[0] and len(page._session.made) == 2

    click_button(page, page.replay)
    assert not problems, "what was wrong before is taken away"
    page_until(page, lambda: "bit for bit" in page.found.value)
    assert open_run(page._session.made[2].path).environment["repeats"]["bit_for_bit"] and not problems


@pytest.mark.slow
def test_another_run_brings_other_checkpoints(page):
    for epochs in (2, 4):
        run = handle(train_here(CONFIG.replace(epochs=epochs), runs_dir=page._session.folder))
        page.follow(run)
        assert not page.at.options
        page.panel.collapsed = False
        page_until(page, lambda: bool(page.at.options))
        assert len(page.at.options) == 1 + epochs // 2
