"""What every layout promises about its steps and gradients: a checker for one's own, and a pytest suite to inherit.

Layouts of this kind exchange nothing inside ``compute``: ranks are played one after another in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.layout import Layout, Unmarked, Work
from dtdg_lab.testing.recorders import RecordingMarks
from dtdg_lab.testing.requirements import require

MakeLayout = Callable[[int, int], tuple[Layout, DynamicModel]]
EPOCHS = 3


@dataclass(frozen=True, slots=True)
class SummedStep:
    """A step of all ranks: mean loss of its groups, gradients over their number, and the work done."""

    loss: float
    gradients: dict[str, Tensor]
    groups: int
    vertex_snapshots: int


def check_steps(make: MakeLayout, sizes: Sequence[int]) -> None:
    """Every rank has the same number of steps, every group has one rank, and epochs are pure functions.

    Raises:
        ContractError: they are not.
    """
    plans: dict[int, list[list[tuple[int, ...]]]] = {}
    for size in sizes:
        ranks, again = (
            [[list(layout.epoch(epoch)) for epoch in range(EPOCHS)] for layout in _layouts(make, size)] for _ in "ab"
        )
        require(ranks == again, f"R={size}: an epoch's steps are not a pure function of config and epoch")
        plans[size] = [_joined([rank[epoch] for rank in ranks], size) for epoch in range(EPOCHS)]
    for size in sizes[1:]:
        require(plans[size] == plans[sizes[0]], f"R={size} has other groups in its steps than R={sizes[0]}")


def _layouts(make: MakeLayout, size: int) -> list[Layout]:
    return [make(rank, size)[0] for rank in range(size)]


def _joined(ranks: list[list[Work]], size: int) -> list[tuple[int, ...]]:
    """The groups of each step of all ranks, sorted."""
    require(len({len(works) for works in ranks}) == 1, f"R={size}: ranks have different numbers of steps")
    steps = []
    for number, works in enumerate(zip(*ranks, strict=True)):
        where = f"R={size}, step {number}"
        require({work.iteration for work in works} == {number}, f"{where}: iterations are not numbered from 0")
        groups = sorted(group for work in works for group in work.groups)
        require(len(set(groups)) == len(groups), f"{where}: a group is computed twice")
        totals = {work.total_groups for work in works}
        require(totals == {len(groups)}, f"{where}: total_groups is {totals}, but {len(groups)} groups are computed")
        steps.append(tuple(groups))
    return steps


def summed_steps(make: MakeLayout, size: int, *, epoch: int = 0) -> list[SummedStep]:
    """All steps of an epoch with the parameters as made: what a sum over ``size`` ranks would give."""
    ranks = [make(rank, size) for rank in range(size)]
    steps = []
    for works in zip(*(layout.epoch(epoch) for layout, _ in ranks), strict=True):
        loss_sum, groups, vertex_snapshots = 0.0, 0, 0
        sums: dict[str, Tensor] = {}
        for (layout, model), work in zip(ranks, works, strict=True):
            model.zero_grad(set_to_none=False)
            marks = RecordingMarks()
            computed = layout.compute(work, marks)
            _check_marks(marks.phases)
            require(computed.groups == len(work.groups), f"{computed.groups} groups counted, {len(work.groups)} given")
            loss_sum += computed.loss_sum
            groups += computed.groups
            vertex_snapshots += computed.vertex_snapshots
            for name, parameter in model.named_parameters():
                own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
                sums[name] = sums.get(name, torch.zeros_like(own)) + own
        total = max(works[0].total_groups, 1)
        gradients = {name: gradient / total for name, gradient in sums.items()}
        steps.append(SummedStep(loss_sum / total, gradients, groups, vertex_snapshots))
    return steps


def _check_marks(phases: list[str]) -> None:
    """Making the batch comes first, and data are brought; a layout may do so block by block, between computing."""
    fine = phases[:1] == ["batch"] and "transfer" in phases and set(phases[1:]) <= {"transfer", "compute", "exchange"}
    require(fine, f"compute marks {phases}, not 'batch' and then 'transfer', with 'compute' between where in blocks")


def check_sums(make: MakeLayout, sizes: Sequence[int], *, tolerance: float = 1e-10) -> None:
    """Losses, gradients and counted work, summed over ranks, are those of one rank.

    Args:
        make: gives rank r of R its layout and a float64 model; all with the same parameters.
        sizes: numbers of ranks R; the first is what the others are compared with.
        tolerance: allowed difference, relative to the largest gradient of the step.

    Raises:
        ContractError: they are not.
    """
    wanted = summed_steps(make, sizes[0])
    for size in sizes[1:]:
        for number, (one, step) in enumerate(zip(wanted, summed_steps(make, size), strict=True)):
            where = f"R={size}, step {number}"
            require(abs(step.loss - one.loss) <= tolerance * abs(one.loss), f"{where}: loss {step.loss} for {one.loss}")
            work = (step.groups, step.vertex_snapshots)
            require(work == (one.groups, one.vertex_snapshots), f"{where}: work {work} is not that of one rank")
            largest = max(float(gradient.abs().max()) for gradient in one.gradients.values())
            for name, gradient in one.gradients.items():
                apart = float((gradient - step.gradients[name]).abs().max())
                require(apart <= tolerance * largest, f"{where}: gradient of {name} is {apart:.2e} apart")


def check_accumulation(make: MakeLayout) -> None:
    """``compute`` adds to gradients that are there, so that they can be views of one buffer.

    Raises:
        ContractError: it replaces them, or moves them elsewhere.
    """
    layout, model = make(0, 1)
    work = layout.epoch(0)[0]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    places = [parameter.grad.data_ptr() for parameter in model.parameters() if parameter.grad is not None]
    layout.compute(work, Unmarked())
    once = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    layout.compute(work, Unmarked())
    twice = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    require([gradient.data_ptr() for gradient in twice] == places, "compute puts gradients into other memory")
    doubled = all(torch.allclose(two, 2 * one, rtol=1e-9) for one, two in zip(once, twice, strict=True))
    require(doubled, "compute replaces gradients instead of adding to them")


def check_layout(make: MakeLayout, *, sizes: Sequence[int] = (1, 2, 4)) -> None:
    """Check a layout on some numbers of ranks (see the functions of this module).

    Args:
        make: gives rank r of R its layout and a new float64 model, with the same parameters on every call.
        sizes: numbers of ranks, 1 first.

    Raises:
        ContractError: a promise is broken; the message names the rank count and the step.
    """
    check_steps(make, sizes)
    check_sums(make, sizes)
    check_accumulation(make)


class LayoutContract:
    """Pytest suite of layouts: inherit it and define fixtures ``make_layout`` and ``sizes``."""

    def test_every_group_has_one_rank_and_epochs_are_pure(self, make_layout: MakeLayout, sizes: Sequence[int]) -> None:
        """:func:`check_steps` holds."""
        check_steps(make_layout, sizes)

    def test_ranks_sum_to_one_rank(self, make_layout: MakeLayout, sizes: Sequence[int]) -> None:
        """:func:`check_sums` holds."""
        check_sums(make_layout, sizes)

    def test_gradients_are_added(self, make_layout: MakeLayout) -> None:
        """:func:`check_accumulation` holds."""
        check_accumulation(make_layout)
