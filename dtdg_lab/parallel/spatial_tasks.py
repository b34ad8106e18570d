"""Snapshots' spatial parts as coroutines that wait for their exchanges while others compute.

Parameters are lent to each snapshot as leaves of its own, so that gradients are summed in the order of snapshots,
whatever the order in which they were computed: overlap changes no bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.flights import Flight
from dtdg_lab.parallel.learned import Gradients

T = TypeVar("T")
Spatial = Coroutine[Flight, None, Tensor]


def run_awaiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a model's coroutine to its end, waiting at once for each exchange that it starts."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result


@dataclass(slots=True)
class SpatialTask:
    """One snapshot's spatial part, as far as it has come.

    Attributes:
        coroutine: what is left of it.
        lent: the parameters that it uses, by name.
        result: its rows, (n, C), once it is done.
        compute_s: seconds of each stretch between pulls.
        flights: its pulls.
    """

    coroutine: Spatial
    lent: dict[str, Tensor]
    result: Tensor | None = None
    compute_s: list[float] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)

    @property
    def communicate_s(self) -> list[float]:
        """Seconds in flight of each pull that has been waited for."""
        return [flight.in_flight_s for flight in self.flights if flight.in_flight_s is not None]


class SpatialTasks:
    """Runs coroutines in an order that all ranks share.

    Args:
        model: whose spatial parts they are.
    """

    def __init__(self, model: DynamicModel) -> None:
        self._step = _Step(model)
        self._learned = {name: of for name, of in model.named_parameters() if of.requires_grad}

    def run(
        self, makers: Sequence[Callable[[], Spatial]], order: Sequence[int], *, learning: bool
    ) -> list[SpatialTask]:  # fmt: skip
        """Every snapshot's task, done.

        Args:
            makers: make the coroutines of S snapshots.
            order: whose turn it is, again and again; a task with more turns than it needs is passed over, one with
                fewer goes on afterwards, by number. Exchanges are started in this order, which must be every rank's.
            learning: whether there will be a backward.
        """
        tasks = [SpatialTask(make(), self._lend(learning=learning)) for make in makers]
        with torch.set_grad_enabled(learning):
            for number in order:
                self._turn(tasks[number])
            for task in tasks:
                while task.result is None:
                    self._turn(task)
        return tasks

    def gradients(
        self, tasks: Sequence[SpatialTask], seeds: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[list[Gradients], list[Tensor | None]]:
        """Backward through all tasks at once: each one's gradients of the parameters, and those of the inputs.

        Args:
            tasks: S of them, done.
            seeds: the gradient of each result.
            inputs: what each was fed; those that need no gradient get None.
        """
        learning = [
            (task.result, seed)
            for task, seed in zip(tasks, seeds, strict=True)
            if task.result is not None and task.result.requires_grad
        ]
        lent = [leaf for task in tasks for leaf in task.lent.values()]
        wanted = [*lent, *(x for x in inputs if x.requires_grad)]
        if not learning:
            return [(None,) * len(self._learned) for _ in tasks], [None] * len(inputs)
        ends, of_ends = [end for end, _ in learning], [seed for _, seed in learning]
        found = iter(torch.autograd.grad(ends, wanted, of_ends, allow_unused=True))
        of_tasks: list[Gradients] = [tuple(next(found) for _ in self._learned) for _ in tasks]
        return of_tasks, [next(found) if x.requires_grad else None for x in inputs]

    def _lend(self, *, learning: bool) -> dict[str, Tensor]:
        return {name: of.detach().requires_grad_(learning) for name, of in self._learned.items()}

    def _turn(self, task: SpatialTask) -> None:
        """One stretch: wait for the pull before it where it is still on its way, and start the one after it."""
        if task.result is not None:
            return
        waiting = task.flights[-1] if task.flights else None
        began_s = time.perf_counter()
        lent = {f"model.{name}": leaf for name, leaf in task.lent.items()}
        flight, task.result = torch.func.functional_call(self._step, lent, (task.coroutine,))
        exposed_s = 0.0 if waiting is None else waiting.exposed_s
        # a network that is told to be slow may be stood still for a little longer than this clock saw
        task.compute_s.append(max(0.0, time.perf_counter() - began_s - exposed_s))
        if flight is not None:
            task.flights.append(flight)


class _Step(nn.Module):
    """Lets a coroutine of a model go on, as a module of which parameters can be replaced for the time being."""

    def __init__(self, model: DynamicModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, coroutine: Spatial) -> tuple[Flight | None, Tensor | None]:
        """Where it waits next, or what it gave."""
        try:
            return coroutine.send(None), None
        except StopIteration as done:
            return None, done.value
