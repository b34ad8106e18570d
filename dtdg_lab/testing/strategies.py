"""The contract of strategies about their steps and gradients.

It applies to strategies that exchange nothing in ``compute``: ranks are simulated one after another in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dtdg_lab.core.errors import require
from dtdg_lab.distributed.all_to_all import ReadTimes
from dtdg_lab.engine.strategy import Step, StepMarks, Strategy
from dtdg_lab.models.base import DynamicModel

MakeStrategy = Callable[[int, int], tuple[Strategy, DynamicModel]]
EPOCHS = 3


class RecordingMarks(StepMarks):
    """The phases, exchanges and time blocks of a step, in order; an exchange is recorded as ``exchange``."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.blocks: list[tuple[int, str]] = []

    def __call__(self, phase: str) -> None:
        """Record the end of a phase."""
        self.phases.append(phase)

    def exchange(self, times: ReadTimes) -> None:
        """Record the end of an exchange."""
        self.phases.append("exchange")

    def block(self, number: int, pass_name: str) -> None:
        """Record the start of a time block."""
        self.blocks.append((number, pass_name))


@dataclass(frozen=True, slots=True)
class SummedStep:
    """A step of all ranks: the mean loss of its groups, gradients divided by their number, and the work done."""

    loss: float
    gradients: dict[str, Tensor]
    groups: int
    vertex_snapshots: int


def check_steps(make: MakeStrategy, sizes: Sequence[int]) -> None:
    """Check that all ranks have the same number of steps, that one rank has each group, and that epochs repeat exactly.

    Raises:
        ContractError: one of these rules is broken.
    """
    plans: dict[int, list[list[tuple[int, ...]]]] = {}
    for size in sizes:
        ranks, repeated = (
            [[list(make(rank, size)[0].epoch(epoch)) for epoch in range(EPOCHS)] for rank in range(size)] for _ in "ab"
        )
        require(ranks == repeated, f"R={size}: an epoch's steps are not a pure function of config and epoch")
        plans[size] = [_groups_by_step([rank[epoch] for rank in ranks], size) for epoch in range(EPOCHS)]
    for size in sizes[1:]:
        require(plans[size] == plans[sizes[0]], f"R={size} has other groups in its steps than R={sizes[0]}")


def _groups_by_step(ranks: list[list[Step]], size: int) -> list[tuple[int, ...]]:
    """Return the sorted groups of each step over all ranks."""
    require(len({len(steps) for steps in ranks}) == 1, f"R={size}: ranks have different numbers of steps")
    groups_by_step = []
    for number, steps in enumerate(zip(*ranks, strict=True)):
        case = f"R={size}, step {number}"
        require({step.iteration for step in steps} == {number}, f"{case}: iterations are not numbered from 0")
        groups = sorted(group for step in steps for group in step.groups)
        require(len(set(groups)) == len(groups), f"{case}: a group is computed twice")
        totals = {step.total_groups for step in steps}
        require(totals == {len(groups)}, f"{case}: total_groups is {totals}, but {len(groups)} groups are computed")
        groups_by_step.append(tuple(groups))
    return groups_by_step


def summed_steps(make: MakeStrategy, size: int, *, epoch: int = 0) -> list[SummedStep]:
    """Return all steps of an epoch with the initial parameters, summed over ``size`` ranks."""
    ranks = [make(rank, size) for rank in range(size)]
    summed = []
    for steps in zip(*(strategy.epoch(epoch) for strategy, _ in ranks), strict=True):
        loss_sum, groups, vertex_snapshots = 0.0, 0, 0
        sums: dict[str, Tensor] = {}
        for (strategy, model), step in zip(ranks, steps, strict=True):
            model.zero_grad(set_to_none=False)
            marks = RecordingMarks()
            result = strategy.compute(step, marks)
            _check_marks(marks.phases)
            require(result.groups == len(step.groups), f"{result.groups} groups counted, {len(step.groups)} given")
            loss_sum += float(result.loss_sum)
            groups += result.groups
            vertex_snapshots += result.vertex_snapshots
            for name, parameter in model.named_parameters():
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
                sums[name] = sums.get(name, torch.zeros_like(gradient)) + gradient
        total = max(steps[0].total_groups, 1)
        gradients = {name: gradient / total for name, gradient in sums.items()}
        summed.append(SummedStep(loss_sum / total, gradients, groups, vertex_snapshots))
    return summed


def _check_marks(phases: list[str]) -> None:
    """Check that batch and transfer come first; strategies may also transfer in blocks, between computing."""
    holds = phases[:1] == ["batch"] and "transfer" in phases and set(phases[1:]) <= {"transfer", "compute", "exchange"}
    require(holds, f"compute marks {phases}, but 'batch' and then 'transfer' must come first")


def check_sums(make: MakeStrategy, sizes: Sequence[int], *, tolerance: float = 1e-10) -> None:
    """Check that the sum over ranks has the losses, gradients and work of one rank.

    Args:
        make: returns the strategy of rank r of R and a float64 model, with the same parameters on every call.
        sizes: numbers of ranks R; the others are compared with the first.
        tolerance: allowed difference, relative to the largest gradient of the step.

    Raises:
        ContractError: they differ.
    """
    reference = summed_steps(make, sizes[0])
    for size in sizes[1:]:
        for number, (one, step) in enumerate(zip(reference, summed_steps(make, size), strict=True)):
            case = f"R={size}, step {number}"
            require(
                abs(step.loss - one.loss) <= tolerance * abs(one.loss),
                f"{case}: loss {step.loss} instead of {one.loss}",
            )
            work = (step.groups, step.vertex_snapshots)
            require(work == (one.groups, one.vertex_snapshots), f"{case}: work {work} is not that of one rank")
            largest = max(float(gradient.abs().max()) for gradient in one.gradients.values())
            for name, gradient in one.gradients.items():
                difference = float((gradient - step.gradients[name]).abs().max())
                require(
                    difference <= tolerance * largest, f"{case}: the gradient of {name} differs by {difference:.2e}"
                )


def check_accumulation(make: MakeStrategy) -> None:
    """Check that ``compute`` adds to existing gradients, so that these can be views of one buffer.

    Raises:
        ContractError: it replaces them, or moves them to other memory.
    """
    strategy, model = make(0, 1)
    step = strategy.epoch(0)[0]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    addresses = [parameter.grad.data_ptr() for parameter in model.parameters() if parameter.grad is not None]
    strategy.compute(step, StepMarks())
    once = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    strategy.compute(step, StepMarks())
    twice = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    require([gradient.data_ptr() for gradient in twice] == addresses, "compute puts gradients into other memory")
    doubled = all(torch.allclose(two, 2 * one, rtol=1e-9) for one, two in zip(once, twice, strict=True))
    require(doubled, "compute replaces gradients instead of adding to them")


def check_strategy(make: MakeStrategy, *, sizes: Sequence[int] = (1, 2, 4)) -> None:
    """Check a strategy on some numbers of ranks (see the functions of this module).

    Args:
        make: returns the strategy of rank r of R and a new float64 model, with the same parameters on every call.
        sizes: numbers of ranks, starting with 1.

    Raises:
        ContractError: a rule is broken; the message has the number of ranks and the step.
    """
    check_steps(make, sizes)
    check_sums(make, sizes)
    check_accumulation(make)
