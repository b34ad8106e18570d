"""Time blocks of a run: as many as the config asks for, or the fewest that fit its memory; and their cost."""

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
LENGTHS = (4, 8)  # snapshots of a group of ranks in the blocks that memory is measured of
ALL_AT_ONCE = ("per_vertex", "neighbourhood", "weights_from_data")  # memories that keep all snapshots of a block

MakeStrategy = Callable[[SnapshotBlocks], Strategy]


@dataclass(frozen=True, slots=True)
class BlockMemory:
    """Peak memory of a step by the number of blocks, on the rank that needs most.

    Attributes:
        fixed_bytes: whatever the blocks.
        snapshot_bytes: for each snapshot of a block.
        state_bytes: for each block but the last: the state after it.
        snapshots: S, of the run.
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
            DataError: there are none; the message says what the least peak is.
        """
        fitting = [nb for nb in range(1, self.snapshots + 1) if self.peak_bytes(nb) <= budget_bytes]
        if fitting:
            return fitting[0]
        best = min(range(1, self.snapshots + 1), key=self.peak_bytes)
        raise DataError(
            f"memory_gib={budget_bytes / GIB:.3g} is less than any number of blocks of these {self.snapshots} "
            f"snapshots needs: the least is {self.peak_bytes(best) / GIB:.3g} GiB, with blocks={best}. Set memory_gib "
            "to that or more, take more ranks, or a smaller hidden."
        )


def planned_blocks(
    context: BuildContext, *, by_rows: int, make: MakeStrategy
) -> tuple[SnapshotBlocks, BlockMemory | None]:
    """Return the plan of a strategy with time blocks, and the measured memory where that decides their number.

    Collective: memory is measured on every rank, in steps of few snapshots.

    Args:
        context: what the strategy is built from.
        by_rows: ranks that share the rows of a snapshot.
        make: makes the strategy of a plan.

    Raises:
        PlanError: there are more blocks than snapshots, more ranks than nodes, or ranks that cannot be grouped.
        DataError: however many blocks there are, the memory that the config allows is too small.
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
    """Fit a line to the peaks of steps with two short blocks each, of the last snapshots, which have most edges."""
    one_block = plan(train, 1)
    half = len(train) // 2
    lengths = [length * one_block.groups for length in LENGTHS]
    if model.memory not in ALL_AT_ONCE:  # little is alive at once, whatever the block: long ones can be measured
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
    """Take the parameters' gradients away, and give them back unchanged."""
    gradients = [parameter.grad for parameter in model.parameters()]
    try:
        for parameter in model.parameters():
            parameter.grad = None
        yield
    finally:
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient


def _peak(strategy: Strategy, device: str) -> int:
    """Return the peak of the second step, after everything that is made once."""
    (step,) = strategy.epoch(0)
    gc.collect()  # strategies measured before hold their graphs in cycles
    allocated = torch.cuda.memory_allocated(device) if device.startswith("cuda") else 0
    compute = partial(strategy.compute, step)
    try:
        trace_memory(compute, device=device)
        return trace_memory(compute, device=device).peak_bytes - allocated
    except Exception as error:
        raise StepFailedError(
            f"a step of few snapshots, in which blocks=0 measures memory, failed: {type(error).__name__}: {error}. "
            "Set blocks to a number, or take more ranks or a smaller hidden."
        ) from error


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
    with torch_defaults(config.threads):
        return _cost(config, graph, steps)


def _cost(config: RunConfig, graph: DynamicGraph, steps: int) -> BlockCost:
    on_gpu = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
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
    components.strategy.rows()  # drop the rows of the probing steps: they are not recorded
    return BlockCost(config["blocks"], trace.peak_bytes, statistics.median(seconds), loss, gradient, trace)


def _step(components: RunComponents, marks: StepMarks) -> float:
    components.gradients.zero()
    result = components.strategy.compute(components.strategy.epoch(0)[0], marks)
    return result.loss_sum / max(result.groups, 1)


def _now_s(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()
