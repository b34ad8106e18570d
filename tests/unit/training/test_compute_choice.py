"""Choices of a run that depend on its machines: agreed by all ranks, recorded, and repeated by a resume or a replay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dtdg_lab.cluster import local
from dtdg_lab.cluster.replay import replay, verify_replay
from dtdg_lab.config.model_facts import model_facts
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.kernels.device_memory import DeviceMemory, MemoryLimits
from dtdg_lab.training import build, compute_choice
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.compute_choice import COMPUTE, ComputeChoice, agree, choose_here, earlier_choice
from tests.backends import needs_dgl
from tests.factories import random_graph, small_config
from tests.small_training import config_of, train
from tests.steered_here import events, losses, small, steered

pytestmark = pytest.mark.usefixtures("one_thread")
GIB = 1 << 30
LARGE, SMALL = DeviceMemory("cpu", 16 * GIB, 8 * GIB), DeviceMemory("cpu", 20_000, 10_000)


def _memory(monkeypatch: pytest.MonkeyPatch, memory: DeviceMemory) -> None:
    monkeypatch.setattr(build, "device_memory", lambda device: memory)


def _offers(monkeypatch: pytest.MonkeyPatch, *offers: tuple[str, str, int, int]) -> None:
    """Let these be the ranks' backend, owner of the memory, capacity and free bytes."""
    monkeypatch.setattr(compute_choice, "gather_texts", lambda *_, **__: [json.dumps(offer) for offer in offers])


def _agreed(preferred: Any = ("torch", None), earlier: ComputeChoice | None = None, **changes: Any) -> ComputeChoice:
    memory = build.device_memory("cpu")
    return agree(small_config(**changes), preferred, memory, SoloGroup(), device="cpu", earlier=earlier)


def test_ranks_of_one_machine_share_its_memory_and_the_smallest_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    one = ("torch", "a", 64 * GIB, 64 * GIB)
    _offers(monkeypatch, one, ("torch", "b", 16 * GIB, 8 * GIB))
    assert _agreed(memory_share=0.5).limits == MemoryLimits(GIB, GIB // 2, 2 * GIB)  # of two sequences
    _offers(monkeypatch, *[one] * 8, ("torch", "b", 16 * GIB, 16 * GIB))
    assert _agreed(memory_share=0.5).limits == MemoryLimits(GIB, GIB // 4, GIB)


def test_an_evaluator_of_several_ranks_keeps_views_too(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SoloGroup()
    group.size = 2
    _offers(monkeypatch, *[("torch", "a", 96 * GIB, 48 * GIB)] * 2)
    agreed = agree(small_config(memory_share=0.5), ("torch", None), LARGE, group, device="cpu")
    assert agreed.limits == MemoryLimits(2 * GIB, GIB, 6 * GIB)  # of three sequences


def test_dgl_is_taken_only_if_all_ranks_prefer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for backends, agreed in ((("dgl", "dgl"), "dgl"), (("dgl", "torch"), "torch"), (("torch", "dgl"), "torch")):
        _offers(monkeypatch, *((backend, "a", GIB, GIB) for backend in backends))
        assert _agreed().backend == agreed


def test_an_earlier_choice_holds_for_the_same_kernel_and_kind_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory(monkeypatch, LARGE)
    choice = replace(_agreed(), seconds={"torch": 2.0, "dgl": 1.0})
    plan = json.loads(json.dumps({COMPUTE: choice.write()}))
    assert earlier_choice(plan, small_config(), device="cpu") == choice
    assert earlier_choice({}, small_config(), device="cpu") is None
    assert earlier_choice(plan, small_config(kernel="torch"), device="cpu") is None
    assert earlier_choice(plan, small_config(), device="cuda:0") is None
    on_gpu = {COMPUTE: {**choice.write(), "device": "cuda:1"}}  # as events have it
    assert earlier_choice(on_gpu, small_config(), device="cuda:0") == replace(choice, device="cuda")


@needs_dgl
def test_an_earlier_backend_is_repeated_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory(monkeypatch, LARGE)
    seconds = {"torch": 2.0, "dgl": 1.0}
    how: Any = {"device": "cpu", "dtype": torch.float64, "earlier": replace(_agreed(), backend="dgl", seconds=seconds)}
    given: Any = small_config(), random_graph(), model_facts("graphsage", 3, 8, 2)
    assert choose_here(*given, **how) == ("dgl", seconds)
    monkeypatch.setattr("dtdg_lab.kernels.backend_choice.dgl_defect", lambda device, dtype: "it is broken")
    with pytest.raises(NotAvailableError, match="it is broken"):
        choose_here(*given, **how)


def test_earlier_limits_are_repeated_but_those_of_views_that_no_longer_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory(monkeypatch, LARGE)
    earlier = _agreed()
    _memory(monkeypatch, replace(LARGE, free_bytes=GIB))  # the views of a run that is rebuilt are still there
    assert _agreed(earlier=earlier) == earlier != _agreed()
    _memory(monkeypatch, DeviceMemory("cpu", 4 * GIB, 2 * GIB))
    fresh = _agreed()
    assert _agreed(earlier=earlier).limits == replace(earlier.limits, views_bytes=fresh.limits.views_bytes)
    assert _agreed(earlier=earlier, memory_share=0.4) == _agreed(memory_share=0.4)


def test_both_backends_are_measured_on_a_gpu_where_dgl_works(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, measured = random_graph(), []
    facts = model_facts("graphsage", 3, 8, 2)

    def measure(snapshot: Any, settings: Any, shapes: Any) -> dict[str, float]:
        measured.append((snapshot.num_edges, settings.device, shapes))
        return {"torch": 2.0, "dgl": 1.0}

    monkeypatch.setattr(compute_choice, "measure_backends", measure)
    monkeypatch.setattr(compute_choice, "can_use_dgl", lambda device, dtype: True)
    how: Any = {"device": "cuda:0", "dtype": torch.float32}
    assert choose_here(small_config(), graph, facts, **how) == ("dgl", {"torch": 2.0, "dgl": 1.0})
    largest = max(snapshot.num_edges for snapshot in graph.snapshots)
    assert measured == [(largest, "cuda:0", [("mean", 8)])]  # the first layer aggregates features, once
    assert choose_here(small_config(kernel="torch"), graph, facts, **how) == ("torch", None)
    monkeypatch.setattr(compute_choice, "can_use_dgl", lambda device, dtype: False)
    assert choose_here(small_config(), graph, facts, **how) == ("torch", None)
    assert len(measured) == 1


@pytest.mark.parametrize("model", ["dcrnn", "evolvegcn-h"])
def test_a_resumed_run_takes_the_limits_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Though another machine would recompute activations and so add gradients in another order."""
    config = config_of(model=model)
    _memory(monkeypatch, LARGE)
    whole = train(tmp_path, config)
    first = train(tmp_path, config.replace(epochs=1))
    _memory(monkeypatch, SMALL)
    rest = train(tmp_path, config, resume=True, changes={"epochs": 2})
    assert first.losses + rest.losses == whole.losses
    assert Checkpoint.load(tmp_path / "last.pt").plan[COMPUTE]["activation_bytes"] == int(0.2 * 16 * GIB)
    (described,) = rest.recorder.events("kernel")
    assert described["data"]["views_bytes"] == 2000
    little = train(tmp_path, config)
    assert little.losses != whole.losses and little.losses == pytest.approx(whole.losses, rel=1e-4)


def test_a_changed_share_of_memory_is_recorded_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _memory(monkeypatch, LARGE)
    script = {3: {"set": {"memory_share": 0.001}}, 7: {"set": {"group_window": 3}}}
    run = steered(small("psg", model="evolvegcn-h"), tmp_path, script)
    described = [(data["memory_share"], data["pulls_bytes"]) for _, data in events(run, "kernel")]
    assert described == [(0.8, int(0.05 * 16 * GIB)), (0.001, int(16 * GIB / 16000))]
    _memory(monkeypatch, SMALL)
    again = replay(run, runs_dir=tmp_path)
    found = verify_replay(again)
    assert found and losses(again) == losses(run), found.caption
    assert [(data["memory_share"], data["pulls_bytes"]) for _, data in events(again, "kernel")] == described
    assert losses(local.train(small("psg", model="evolvegcn-h"), runs_dir=tmp_path, progress=False)) != losses(run)
