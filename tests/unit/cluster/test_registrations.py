"""Registrations are sent to engines as text or by value, and repeated there."""

from __future__ import annotations

import importlib
import pickle
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from outside_family.smoothed import SmoothedGCN

from dtdg_lab.cluster import registrations
from dtdg_lab.cluster.registrations import MOST_BYTES, SentRegistration, apply_registrations, pack_registrations
from dtdg_lab.config import catalogue
from dtdg_lab.config.registration import register
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError
from tests.registrations import registered_apart


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with registered_apart():
        yield


class Plain(SmoothedGCN):
    """A model of a test."""


def sent() -> tuple[SentRegistration, ...]:
    """Return the registrations as another process gets them."""
    received: tuple[SentRegistration, ...] = pickle.loads(pickle.dumps(pack_registrations()))
    return received


def module_of(text: str, name: str, folder: Path) -> types.ModuleType:
    """Write and import a module that nothing else finds."""
    (folder / f"{name}.py").write_text(text)
    sys.path.append(str(folder))
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_code_of_a_module_goes_as_text() -> None:
    register(Plain, "model", "plain")
    (one,) = sent()
    assert (one.target, one.code) == (f"{__name__}:Plain", b"") and Path(one.folder).is_dir()
    apply_registrations([one])
    assert catalogue.entry("models", "plain").load() is Plain


def test_code_of_main_goes_by_value() -> None:
    names: dict[str, Any] = {"__name__": "__main__", "Plain": Plain}
    exec("HALF = 0.5\nclass Mine(Plain):\n    def half(self):\n        return HALF\n", names)
    register(names["Mine"], "model", "mine")
    (one,) = sent()
    assert one.target == "" and 0 < len(one.code) < 4096
    del names["HALF"]
    apply_registrations([one])
    assert catalogue.entry("models", "mine").load().half(None) == 0.5


def test_a_module_without_a_file_goes_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_by_a_test")
    exec("def late(graph, parts):\n    return helper()\ndef helper():\n    return 3\n", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    register(module.late, "partitioner")
    (one,) = sent()
    monkeypatch.delitem(sys.modules, module.__name__)
    apply_registrations([one])
    assert catalogue.entry("partition", "late").load()(None, 2) == 3


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("HELD = __import__('threading').Lock()", "model 'mine' cannot be sent to engines: cannot pickle"),
        (f"HELD = bytes({MOST_BYTES})", r"model 'mine' takes 4.0 MiB, .*4.0 MiB"),
    ],
)
def test_what_cannot_be_sent_is_refused(line: str, why: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "Plain": Plain}
    exec(f"{line}\nclass Mine(Plain):\n    def held(self):\n        return HELD\n", names)
    register(names["Mine"], "model", "mine")
    with pytest.raises(ClusterError, match=why):
        pack_registrations()
    config = RunConfig()
    assert pack_registrations(config) == ()
    with pytest.raises(ClusterError, match=why):
        pack_registrations(config, config.replace(model="mine"))


def test_modules_of_one_name_in_two_folders_are_not_confused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrations, "_FOLDERS", [])
    text = "def early(graph, parts):\n    return {}\n"
    packed = []
    for part in (1, 2):
        (tmp_path / str(part)).mkdir()
        module = module_of(text.format(part), "rules_of_a_test", tmp_path / str(part))
        with registered_apart():
            register(module.early, "partitioner")
            packed.append(sent())
        sys.path.remove(str(tmp_path / str(part)))
        monkeypatch.delitem(sys.modules, "rules_of_a_test")
    for part in (1, 2, 1):
        apply_registrations(packed[part - 1])
        assert catalogue.entry("partition", "early").load()(None, 2) == part
    monkeypatch.delitem(sys.modules, "rules_of_a_test")
    sys.path.insert(0, str(tmp_path / "2"))
    with pytest.raises(ConfigError, match=r"import rules_of_a_test from .*2/rules_of_a_test.py, which differs"):
        apply_registrations(packed[0])


def test_an_engine_has_what_was_sent_last_and_nothing_else(tmp_path: Path) -> None:
    text = "def early(graph, parts):\n    return {}\n"
    module = module_of(text.format(1), "early_of_a_test", tmp_path)
    register(Plain, "model", "plain")
    register(module.early, "partitioner")
    before = sent()
    apply_registrations(before)
    (tmp_path / "early_of_a_test.py").write_text(text.format("2 + 0"))
    apply_registrations(before[1:])
    assert catalogue.entry("partition", "early").load()(None, 2) == 2, "a changed file is imported again"
    assert "plain" not in catalogue.names("models")


def test_code_that_an_engine_cannot_rebuild_is_named() -> None:
    names: dict[str, Any] = {"__name__": "__main__", "Plain": Plain}
    exec("class Mine(Plain):\n    pass\n", names)
    register(names["Mine"], "model", "mine")
    (one,) = sent()
    broken = replace(one, code=one.code.replace(__name__.encode(), b"x" * len(__name__)))
    with pytest.raises(ConfigError, match="model 'mine' was sent by value, and cannot be rebuilt"):
        broken.load()
    with pytest.raises(ConfigError, match=r"No module named 'no_such_module'.* on PYTHONPATH"):
        apply_registrations([SentRegistration("models", "mine", "no_such_module:Mine", "", b"", "", "", (), ())])
