"""A run's folder describes the registered code that the run uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtdg_lab.cluster.replay import causes_of
from dtdg_lab.config import catalogue
from dtdg_lab.config.registration import register
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.core.source_code import source_hash
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.provenance import differences
from dtdg_lab.runs.registered_code import add_extensions, check_same_code
from dtdg_lab.runs.stored_run import open_run
from tests.registrations import registered_apart


class Plain(TGCN):
    """A model of a test."""


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with registered_apart():
        yield


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of a model that is not registered here any more."""
    with registered_apart():
        register(Plain, "model", "plain")
        return RunDirectory.create(RunConfig(system="psg", model="plain"), root=tmp_path)


def test_a_run_of_registered_code_opens_and_cannot_be_made_again(run: RunDirectory) -> None:
    assert open_run(run.path).config.model == "plain" and "plain" not in catalogue.names("models")
    (extension,) = run.extensions()
    assert (extension.title, extension.target) == ("model 'plain'", f"{__name__}:Plain")
    with pytest.raises(ConfigError, match="model 'plain' is not registered here"):
        RunDirectory.create(run.config(), root=run.path.parent)
    assert list(run.path.parent.iterdir()) == [run.path]


def test_a_run_without_registered_code_has_no_such_file(tmp_path: Path) -> None:
    register(Plain, "model", "plain")
    run = RunDirectory.create(RunConfig(system="psg"), root=tmp_path)
    assert not run.extensions_file.exists() and run.extensions() == ()
    add_extensions(run.path, texts=["adam", "plain"])  # a change while it trains
    assert [one.name for one in run.extensions()] == ["plain"]


def test_a_fork_keeps_the_descriptions_of_its_origin(run: RunDirectory) -> None:
    run.checkpoint_file.write_bytes(b"")
    fork = RunDirectory.create(RunConfig(system="psg"), root=run.path.parent, begin=run.checkpoint_file)
    assert fork.extensions() == run.extensions()


@pytest.fixture
def changed(run: RunDirectory) -> RunDirectory:
    """The run, after its model's code has changed."""
    register(Plain, "model", "plain")
    described = json.loads(run.extensions_file.read_text())
    described["extensions"][0]["sha256"] = "0123456789abcdef"
    run.extensions_file.write_text(json.dumps(described))
    return run


def test_code_that_has_changed_is_not_continued(changed: RunDirectory) -> None:
    expected = (
        r"race 'r' cannot be continued: the code of model 'plain' differs \(sha256 0123456789abcdef then, .*or wait"
    )
    with pytest.raises(ConfigError, match=expected):
        check_same_code("race 'r'", changed.path, changed.config(), remedy="wait")
    with pytest.raises(ConfigError, match=expected):
        check_same_code("race 'r'", changed.path, texts=["plain"], remedy="wait")
    check_same_code("race 'r'", changed.path, RunConfig(system="psg"), remedy="wait")
    changed.extensions_file.write_text(changed.extensions_file.read_text().replace("0123456789abcdef", ""))
    check_same_code("race 'r'", changed.path, changed.config(), remedy="wait")


def test_a_fork_records_its_own_code(changed: RunDirectory) -> None:
    changed.checkpoint_file.write_bytes(b"")
    fork = RunDirectory.create(changed.config(), root=changed.path.parent, begin=changed.checkpoint_file)
    assert fork.extensions()[0].sha256 == source_hash(Plain) != changed.extensions()[0].sha256


def test_a_comparison_and_a_replay_name_code_that_differs(changed: RunDirectory) -> None:
    again = RunDirectory.create(changed.config(), root=changed.path.parent)
    (caption,) = differences([open_run(changed.path), open_run(again.path)])
    assert caption.startswith("The runs use different code of model 'plain' (sha256 0123456789abcdef, ")
    assert "as the code of model 'plain' differs" in causes_of(changed, again)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[", "not valid JSON"),
        ('{"schema": 2, "extensions": []}', "written by a newer version"),
        ("{}", "it lacks extensions"),
        ('{"extensions": 3}', "is damaged"),
        ('{"extensions": [{"kind": "models"}]}', "is damaged"),
        ('{"extensions": [{"kind": "models", "name": "plain", "entries": [{"kind": "models"}]}]}', "is damaged"),
        ('{"extensions": [{"kind": "models", "name": "plain", "declared": [{"kind": "list"}]}]}', "is damaged"),
    ],
)
def test_a_damaged_description_is_refused(content: str, why: str, run: RunDirectory) -> None:
    run.extensions_file.write_text(content)
    with pytest.raises(RunStoreError, match=f"extensions.json.*{why}"):
        open_run(run.path)


def test_names_that_a_later_version_adds_are_left_out(run: RunDirectory) -> None:
    described = json.loads(run.extensions_file.read_text())
    described["extensions"][0] |= {"colour": "red", "summary": "Of a later version."}
    described["extensions"][0]["entries"][0]["colour"] = "red"
    run.extensions_file.write_text(json.dumps(described))
    assert open_run(run.path).config.model == "plain"
    assert run.extensions()[0].summary == "Of a later version."
