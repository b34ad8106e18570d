"""What blocks of time cost and save on one process: peak memory and seconds of a step, with equal gradients."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from dtdg_lab.core.config import RunConfig
from dtdg_lab.distributed.group import SoloGroup, share_cores
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.build import RunComponents, build
from dtdg_lab.training.memory import MemoryTrace, trace_memory


@dataclass(frozen=True, slots=True, eq=False)
class BlockCost:
    """A step with one number of blocks.

    Attributes:
        blocks: nb.
        peak_bytes: of tensors made in the step.
        step_s: forward, reruns and backward; the median of several.
        loss: of the step.
        gradient: of all parameters, flat.
        trace: memory over the step.
    """

    blocks: int
    peak_bytes: int
    step_s: float
    loss: float
    gradient: Tensor
    trace: MemoryTrace


def block_cost(config: RunConfig, graph: DynamicGraph, *, steps: int = 3) -> BlockCost:
    """Measure the first step of a run on one process; nothing is updated.

    Args:
        config: of one rank, with the option ``blocks``.
        graph: its data.
        steps: timed, after one that is not.

    Raises:
        LabError: the config cannot be built on this graph, as where it has more blocks than snapshots.
    """
    with threads_of(config):
        return _cost(config, graph, steps)


@contextmanager
def threads_of(config: RunConfig) -> Iterator[None]:
    """As many threads of torch as the config gives a rank, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(share_cores(config.threads, 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cost(config: RunConfig, graph: DynamicGraph, steps: int) -> BlockCost:
    on_gpu = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    device = "cuda:0" if on_gpu else "cpu"
    built = build(config, graph, SoloGroup(), device=device)
    loss = _step(built, StepMarks())
    seconds = []
    for _ in range(steps):
        began_s = _now_s(device)
        _step(built, StepMarks())
        seconds.append(_now_s(device) - began_s)
    gradient = torch.cat([each.grad.flatten() for each in built.model.parameters() if each.grad is not None]).clone()

    def probed(marks: StepMarks) -> None:
        _step(built, marks)

    trace = trace_memory(probed, device=device)
    built.strategy.rows()  # drop the rows of the probing steps: they are not recorded
    return BlockCost(config["blocks"], trace.peak_bytes, statistics.median(seconds), loss, gradient, trace)


def _step(built: RunComponents, marks: StepMarks) -> float:
    built.gradients.zero()
    computed = built.strategy.compute(built.strategy.epoch(0)[0], marks)
    return computed.loss_sum / max(computed.groups, 1)


def _now_s(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()
