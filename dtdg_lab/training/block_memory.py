"""Number of time blocks of a run: configured, or the fewest that fit the memory; and the cost of blocks."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, StepFailedError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.distributed.group import Group, SoloGroup, gather_texts
from dtdg_lab.engine.strategy import BuildContext, StepMarks, Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.torch_defaults import torch_defaults
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.training.build import RunComponents, build
from dtdg_lab.training.memory import MemoryTrace, trace_memory

GIB = 1 << 30
LENGTHS = (4, 8)  # snapshots for each group of ranks in the measured blocks
ALL_AT_ONCE = ("per_vertex", "neighbourhood", "weights_from_data")  # memories that keep all snapshots of a block

MakeStrategy = Callable[[SnapshotBlocks], Strategy]


@dataclass(frozen=True, slots=True)
class BlockMemory:
    """Peak memory of a step as a function of the number of blocks, on the rank that needs most.

    Attributes:
        fixed_bytes: bytes independent of the blocks.
        snapshot_bytes: bytes for each snapshot of a block.
        state_bytes: bytes of the state after each block but the last.
        snapshots: snapshots of the run, S.
    """

    fixed_bytes: float
    snapshot_bytes: float
    state_bytes: float
    snapshots: int

    def peak_bytes(self, blocks: int) -> float:
        """Return the predicted peak of a step in nb blocks."""
        longest = -(-self.snapshots // blocks)
        return self.fixed_bytes + self.snapshot_bytes * longest + self.state_bytes * (blocks - 1)

    def fewest(self, budget_bytes: float) -> int:
        """Return the fewest blocks whose predicted peak is within a budget.

        Raises:
            DataError: no number of blocks fits; the message has the lowest peak.
        """
        fitting = [nb for nb in range(1, self.snapshots + 1) if self.peak_bytes(nb) <= budget_bytes]
        if fitting:
            return fitting[0]
        best = min(range(1, self.snapshots + 1), key=self.peak_bytes)
        raise DataError(
            f"memory_gib={budget_bytes / GIB:.3g} is too small for these {self.snapshots} snapshots with any number of "
            f"blocks: they need at least {self.peak_bytes(best) / GIB:.3g} GiB, with blocks={best}. Set memory_gib "
            "to that or more, or choose more ranks or a smaller hidden."
        )


def planned_blocks(
    context: BuildContext, *, by_rows: int, make: MakeStrategy
) -> tuple[SnapshotBlocks, BlockMemory | None]:
    """Return the plan of a strategy with time blocks, and with ``blocks=0`` the measured memory.

    Collective: every rank measures the memory of steps with few snapshots.

    Args:
        context: inputs of the strategy.
        by_rows: ranks that share the rows of a snapshot.
        make: makes the strategy of a plan.

    Raises:
        PlanError: there are more blocks than snapshots, more ranks than nodes, or ranks that cannot be grouped.
        DataError: no number of blocks fits the configured memory.
        StepFailedError: a step failed on this rank; the others wait in it.
    """
    config, nodes, group = context.config, context.sequence.graph.num_nodes, context.group

    def plan(snapshots: range, blocks: int) -> SnapshotBlocks:
        return SnapshotBlocks(snapshots, blocks, group.size, nodes, by_rows)

    if config["blocks"] > 0:
        return plan(context.train, config["blocks"]), None
    memory = _measure_blocks(context.model, context.train, group, plan=plan, make=make)
    return plan(context.train, memory.fewest(config["memory_gib"] * GIB)), memory


def _measure_blocks(
    model: DynamicModel, train: range, group: Group, *, plan: Callable[[range, int], SnapshotBlocks], make: MakeStrategy
) -> BlockMemory:
    """Fit a line to the peaks of steps with two short blocks each, over the last snapshots, which have most edges."""
    one_block = plan(train, 1)
    half = len(train) // 2
    lengths = [length * one_block.groups for length in LENGTHS]
    if model.memory not in ALL_AT_ONCE:  # memory hardly depends on the block length: long blocks can be measured
        lengths = [half // 2, half]
    lengths = sorted({max(1, min(half, length)) for length in lengths})
    device = str(next(model.parameters()).device)
    with _without_gradients(model):
        peaks = [_peak(make(plan(train[-2 * length :], min(2, len(train)))), device) for length in lengths]
    texts = gather_texts(group, " ".join(str(peak) for peak in peaks), device=device)
    largest = [max(peaks) for peaks in zip(*(map(int, text.split()) for text in texts), strict=True)]
    state = model.initial_state(len(one_block.chunk(0)))
    state_bytes = sum(tensor.nbytes for tensor in state.tensors)
    slope = (largest[-1] - largest[0]) / (lengths[-1] - lengths[0]) if len(lengths) > 1 else largest[0] / lengths[0]
    fixed = max(0.0, largest[0] - slope * lengths[0] - state_bytes)
    return BlockMemory(fixed, slope, state_bytes, len(train))


@contextmanager
def _without_gradients(model: DynamicModel) -> Iterator[None]:
    """Remove the parameters' gradients, and restore them at the end."""
    gradients = [parameter.grad for parameter in model.parameters()]
    try:
        for parameter in model.parameters():
            parameter.grad = None
        yield
    finally:
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient


def _peak(strategy: Strategy, device: str) -> int:
    """Return the peak of the second step, since the first one also fills caches."""
    (step,) = strategy.epoch(0)
    gc.collect()  # earlier strategies are in reference cycles
    allocated = torch.cuda.memory_allocated(device) if device.startswith("cuda") else 0
    compute = partial(strategy.compute, step)
    try:
        trace_memory(compute, device=device)
        return trace_memory(compute, device=device).peak_bytes - allocated
    except Exception as error:
        raise StepFailedError(
            f"a step of few snapshots, which blocks=0 runs to measure memory, failed: {type(error).__name__}: {error}. "
            "Set blocks to a number, or choose more ranks or a smaller hidden."
        ) from error


@dataclass(frozen=True, slots=True, eq=False)
class BlockCost:
    """Measurement of a step with a number of blocks.

    Attributes:
        blocks: number of blocks, nb.
        peak_bytes: peak memory of tensors made in the step.
        step_s: median seconds of forward, reruns and backward.
        loss: loss of the step.
        gradient: gradient of all parameters, flat.
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
        config: settings with one rank and the option ``blocks``.
        graph: the data.
        steps: number of timed steps, after one warm-up step.

    Raises:
        LabError: the config cannot be built on this graph, for example with more blocks than snapshots.
    """
    with torch_defaults(config.threads):
        return _cost(config, graph, steps)


def _cost(config: RunConfig, graph: DynamicGraph, steps: int) -> BlockCost:
    on_gpu = config.device.startswith("cuda") or (config.device == "auto" and torch.cuda.is_available())
    device = "cuda:0" if on_gpu else "cpu"
    components = build(config, graph, SoloGroup(), device=device)
    loss = _step(components, StepMarks())
    seconds = []
    for _ in range(steps):
        began_s = _now_s(device)
        _step(components, StepMarks())
        seconds.append(_now_s(device) - began_s)
    gradients = [parameter.grad for parameter in components.model.parameters() if parameter.grad is not None]
    gradient = torch.cat([gradient.flatten() for gradient in gradients]).clone()
    trace = trace_memory(partial(_step, components), device=device)
    components.strategy.rows()  # drop the rows of the measured steps
    return BlockCost(config["blocks"], trace.peak_bytes, statistics.median(seconds), loss, gradient, trace)


def _step(components: RunComponents, marks: StepMarks) -> float:
    components.gradients.zero()
    result = components.strategy.compute(components.strategy.epoch(0)[0], marks)
    return float(result.loss_sum) / max(result.groups, 1)


def _now_s(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()
