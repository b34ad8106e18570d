"""What is known of models by name: the stored facts against dry runs, by hand, and without torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import dtdg_lab.config.model_facts as module
from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import Pull, SpatialOutput, memory, model_facts
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.models.dry_run import facts_of_class
from tests.model_facts import FILE, stored_facts, text

OPTIONS = [
    *((name, {}) for name in catalogue.names("models")),
    ("tgcn", {"gc_layers": 2}),
    ("gatlstm", {"heads": 4}),
    ("dcrnn", {"diffusion_steps": 1}),
    ("dcrnn", {"diffusion_steps": 7}),
    ("tmgcn", {"transform_window": 1}),
]


def test_the_stored_facts_are_those_of_the_models() -> None:
    assert FILE.read_text(encoding="utf-8") == text(stored_facts()), "run: python tests/model_facts.py"


@pytest.mark.parametrize("size", [(3, 4, 1), (7, 32, 3), (2, 8, 2)])
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_stored_facts_hold_at_any_size(name: str, options: dict[str, int], size: tuple[int, int, int]) -> None:
    assert model_facts(name, *size, **options) == facts_of_class(catalogue.entry("models", name).load(), size, options)


def test_a_model_whose_file_has_changed_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(module, "source_hash", lambda target: asked.append(target) or "changed")
    monkeypatch.setattr(module, "_at_size", lambda *_: pytest.fail("stored facts of another file"))
    assert model_facts("tgcn", 3, 4, 1).memory == "per_vertex"
    assert asked == ["dtdg_lab.models.tgcn:TGCN"]


def test_dcrnn_by_hand() -> None:
    x = [Pull(0, way, 3, False, True, "diffusion-out" if way == "out" else "mean", True) for way in ("out", "in")]
    state, gated = (
        [Pull(0, way, 4, True, first, "diffusion-out" if way == "out" else "mean") for way in ("out", "in")]
        for first in (False, True)
    )
    facts = model_facts("dcrnn", 3, 4, 1, diffusion_steps=1)
    assert facts.pulls == (*x, *state, *gated)
    assert (facts.hops, facts.directions, facts.memory) == (2, ("in", "out"), "neighbourhood")


def test_mpnn_lstm_by_hand() -> None:
    facts = model_facts("mpnn-lstm", 3, 4, 2)
    first = [Pull(0, "in", 3, False, of_features=True), Pull(0, "in", 4, True)]
    assert facts.pulls == (*first, *[Pull(1, "in", 4, True)] * 2)
    assert facts.spatial == (SpatialOutput(8, True), SpatialOutput(8, True))
    assert (facts.layer_hops, facts.hops, facts.memory) == ((2, 2), 4, "per_vertex")


def test_evolvegcn_h_by_hand() -> None:
    facts = model_facts("evolvegcn-h", 3, 4, 1)
    assert facts.pulls == (Pull(0, "top", 4, True, kind="top"), Pull(0, "in", 3, False, of_features=True))
    assert facts.along_edges == facts.pulls[1:]
    assert (facts.hops, facts.memory) == (1, "weights_from_data")


def test_what_is_not_allowed() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'tgcn'"):
        model_facts("tgcnn", 3, 4, 1)
    with pytest.raises(ConfigError, match="layers=0 must be at least 1"):
        model_facts("tgcn", 3, 4, 0)
    with pytest.raises(ConfigError, match="gc_layers=3 is out of range"):
        memory("tgcn", gc_layers=3)
    with pytest.raises(ConfigError, match="hidden=5 must be divisible by heads=2"):
        model_facts("gatlstm", 3, 5, 1)


def test_stored_facts_need_no_torch() -> None:
    code = (
        "import sys, json; sys.modules['torch'] = None\n"
        "from dtdg_lab.config import catalogue\n"
        "from dtdg_lab.config.model_facts import model_facts\n"
        "print(json.dumps([model_facts(name, 3, 4, 2).memory for name in catalogue.names('models')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [memory(name) for name in catalogue.names("models")]
