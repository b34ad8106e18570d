"""The same numbers on a GPU; skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.kernels.backend_choice import can_use_dgl, faster
from dtdg_lab.kernels.device_clock import clock_of
from dtdg_lab.kernels.device_memory import device_memory
from dtdg_lab.training.build import build
from dtdg_lab.training.clock import PhaseClock, seconds_by_phase
from dtdg_lab.training.memory import peak_bytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: what runs on a GPU is not tested here"),
]


@pytest.mark.parametrize("model", catalogue.names("models"))
def test_a_step_on_the_gpu_is_the_step_on_the_cpu(model: str) -> None:
    config = RunConfig(system="psg", dataset="growing", model=model, dtype="float64", optimizer="sgd", layers=2)
    graph, results = load_for(config), []
    for device in ("cpu", "cuda:0"):
        built = build(config, graph, SoloGroup(device), device=device)
        built.gradients.zero()
        computed = built.strategy.compute(built.strategy.epoch(0)[0], StepMarks())
        agreed = built.gradients.exchange(version=7, loss_sum=computed.loss_sum, groups=computed.groups)
        losses = built.evaluator.evaluate(built.model, ("train", "validation"))
        agreed = agreed.sums()
        results.append((agreed, built.gradients.gradients.cpu(), [result.loss for result in losses]))
    (cpu, on_cpu, cpu_losses), (gpu, on_gpu, gpu_losses) = results
    assert gpu == pytest.approx(cpu, rel=1e-10)
    assert torch.allclose(on_gpu, on_cpu, rtol=1e-8, atol=1e-12)
    assert gpu_losses == pytest.approx(cpu_losses, rel=1e-10)


def test_limits_and_kernels_follow_the_gpu() -> None:
    config = RunConfig(system="psg", dataset="growing", model="tgcn", layers=2)
    memory = device_memory("cuda:0")
    assert 0 < memory.free_bytes <= memory.capacity_bytes
    built = build(config, load_for(config), SoloGroup(), device="cuda:0")
    compute = built.compute
    assert built.sequence.settings.limits == compute.limits
    assert compute.limits.activation_bytes == int(0.2 * memory.capacity_bytes)
    assert (compute.seconds is not None) == can_use_dgl("cuda:0", torch.float32)
    assert built.sequence.backend == compute.backend == faster(compute.seconds or {"torch": 1.0})


@pytest.mark.parametrize("settings", [{}, {"decay": "text", "alpha": 0.5}, {"layers": 2, "task": "link"}], ids=str)
@pytest.mark.parametrize("model", ["tgcn", "mpnn-lstm", "evolvegcn-h", "dcrnn"])
def test_windows_on_the_gpu_are_the_windows_on_the_cpu(model: str, settings: dict[str, Any]) -> None:
    config = RunConfig(
        system="flaredtdg",
        dataset="growing",
        model=model,
        dtype="float64",
        optimizer="sgd",
        partitioner="round_robin",
        chunker="hash",
        **settings,
    )
    graph, losses_by_device = load_for(config), []
    for device in ("cpu", "cuda:0"):
        built, losses = build(config, graph, SoloGroup(device), device=device), []
        for work in built.strategy.epoch(0):
            built.gradients.zero()
            losses.append(built.strategy.compute(work, StepMarks()).loss_sum.item())
            built.optimizer.step()
        losses_by_device.append(losses)
    on_cpu, on_gpu = losses_by_device
    assert on_gpu == pytest.approx(on_cpu, rel=1e-8)


TASKS = [
    {"task": "link", "link_share": 0.5},
    {"task": "link", "link_share": 0.5, "link_head": "dot", "negatives": 2},
    {"task": "classification", "dataset": "sbm"},
]


@pytest.mark.parametrize("settings", TASKS, ids=str)
def test_a_task_on_the_gpu_is_the_task_on_the_cpu(settings: dict[str, Any]) -> None:
    config = RunConfig(**{"system": "psg", "dataset": "growing", "dtype": "float64", "optimizer": "sgd", **settings})
    graph, results = load_for(config), []
    for device in ("cpu", "cuda:0"):
        built = build(config, graph, SoloGroup(device), device=device)
        built.gradients.zero()
        computed = built.strategy.compute(built.strategy.epoch(0)[0], StepMarks())
        scores = built.evaluator.evaluate(built.model, ("train", "validation", "test"), final=True)
        numbers = [value for one in scores for value in (one.loss, one.persistence_loss, *one.metrics.values())]
        results.append((float(computed.loss_sum), built.gradients.gradients.cpu(), numbers))
    (cpu, on_cpu, cpu_numbers), (gpu, on_gpu, gpu_numbers) = results
    assert gpu == pytest.approx(cpu, rel=1e-10)
    assert torch.allclose(on_gpu, on_cpu, rtol=1e-8, atol=1e-12)
    for gpu_number, cpu_number in zip(gpu_numbers, cpu_numbers, strict=True):
        assert gpu_number == (None if cpu_number is None else pytest.approx(cpu_number, rel=1e-10))


def test_phases_have_the_times_of_the_device_and_memory_is_the_allocator_s() -> None:
    matrix = torch.randn(4000, 4000, device="cuda:0")
    clock = PhaseClock(clock_of("cuda:0"))
    for _ in range(20):
        matrix @ matrix
    clock("compute")
    clock("update")
    spent = seconds_by_phase(clock.intervals())
    assert spent["compute"] > 10 * spent["update"]
    assert peak_bytes(lambda: matrix @ matrix, device="cuda:0") >= 2 * 4000 * 4000 * 4
