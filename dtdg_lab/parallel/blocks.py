"""Runs of models that remember something of each vertex: layer by layer, block of time after block of time.

Of one block everything that backward needs is kept, of the others only the state before them: forward goes through the
blocks and keeps these states, backward then takes the blocks from the last to the first and computes each again, the
last one excepted. Exact, whatever the blocks.

References: ESDG section 3.1 (gradient checkpoint).
"""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.models.state import State
from dtdg_lab.parallel.here import WholeRun
from dtdg_lab.parallel.layer import Crossing, Layer
from dtdg_lab.parallel.learned import Gradients
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.seam_width import seam_widths
from dtdg_lab.parallel.time_block import TimeBlock, Timeline


def add_gradients(run: Run, timeline: Timeline | None = None) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss. For ``per_vertex`` memory.

    Args:
        run: what is differentiated.
        timeline: the run in blocks; all of it at once where None.
    """
    timeline = WholeRun(run) if timeline is None else timeline
    return _Passes(run, timeline).loss()


class _Passes:
    """Forward and backward of a run through its blocks."""

    def __init__(self, run: Run, timeline: Timeline) -> None:
        self._run, self._timeline, self._seams = run, timeline, seam_widths(run.model)

    def loss(self) -> Tensor:
        begins: list[State | None] = [None]
        for number in range(len(self._timeline) - 1):
            begins.append(self._advance(number, begins[-1]))
        total = torch.zeros((), dtype=torch.float64, device=self._run.sequence.device)
        after: list[Gradients] = [()] * self._run.model.layers
        for number in reversed(range(len(self._timeline))):
            loss, after = self._back(number, begins.pop(), after)
            total += loss
        return total

    def _advance(self, number: int, begin: State | None) -> State:
        """Forward through a block, without history: the state after it."""
        block = self._timeline.open(number, "forward")
        crossings = self._crossings(block, begin)
        self._layers(block, crossings, learning=False)[-1].run_through()
        return State(tuple(crossing.end for crossing in crossings))

    def _back(self, number: int, begin: State | None, after: list[Gradients]) -> tuple[Tensor, list[Gradients]]:
        """Forward and backward of a block: its loss, and the gradient of the state before it, layer by layer."""
        last = number == len(self._timeline) - 1
        block = self._timeline.open(number, "forward" if last else "rerun")
        crossings = self._crossings(block, begin)
        for crossing, gradients in zip(crossings, after, strict=True):
            crossing.carries, crossing.after = number > 0, gradients
        layers = self._layers(block, crossings, learning=True)
        self._timeline.turn(number)
        loss = layers[-1].losses() if self._run.task.per_vertex else layers[-1].joint_loss()
        while layers:
            parts = layers.pop().backward()
            if layers:
                layers[-1].pull_back(parts)
        return loss, [crossing.before for crossing in crossings]

    def _crossings(self, block: TimeBlock, begin: State | None) -> list[Crossing]:
        if begin is not None:
            return [Crossing(begin) for _ in self._seams]
        return [Crossing(self._run.model.initial_state(rows)) for rows in block.vertices]

    def _layers(self, block: TimeBlock, crossings: list[Crossing], *, learning: bool) -> list[Layer]:
        """The layers up to the spatial part of the last."""
        layers: list[Layer] = []
        inputs = [space.inputs for space in block.stacks[0]]
        for number, (seam, crossing) in enumerate(zip(self._seams, crossings, strict=True)):
            if number:
                inputs = layers[-1].hidden()
            layers.append(Layer(self._run, number, block, inputs, crossing, learning=learning, seam=seam))
        return layers
