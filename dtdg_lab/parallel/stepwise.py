"""A run with few snapshots' activations alive at a time: states are kept, snapshots computed again on the way back.

Serves every model. With a snapshot at a time it takes a third more time than :mod:`dtdg_lab.parallel.plain`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.models.state import State
from dtdg_lab.parallel import checkpointed
from dtdg_lab.parallel.run import Run


def add_gradients(run: Run, blocks: Sequence[range] = (), turn: Callable[[int, str], None] | None = None) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    Args:
        run: what is differentiated.
        blocks: of its snapshots, of which one is alive at a time; each snapshot by itself where there are none.
        turn: told when a block begins, and whether it is ``forward``, ``rerun`` or ``backward``.
    """
    cut = blocks or [range(t, t + 1) for t in run.snapshots]
    return checkpointed.add_gradients(
        _Snapshots(run, cut, turn), run.initial_state(), device=run.sequence.device
    )  # fmt: skip


class _Snapshots:
    """Blocks computed snapshot after snapshot (see :class:`dtdg_lab.parallel.checkpointed.Blocks`)."""

    def __init__(self, run: Run, blocks: Sequence[range], turn: Callable[[int, str], None] | None) -> None:
        self._run, self._blocks = run, blocks
        self._turn = turn or (lambda number, way: None)

    def __len__(self) -> int:
        return len(self._blocks)

    def advance(self, number: int, state: State) -> State:
        self._turn(number, "forward")
        for t in self._blocks[number]:
            state = self._snapshot(t, state)[1]
        return state

    def compute(self, number: int, state: State) -> tuple[Tensor | None, State]:
        self._turn(number, "forward" if number == len(self) - 1 else "rerun")
        run, losses = self._run, []
        own = slice(0, run.own)
        for t in self._blocks[number]:
            h, state = self._snapshot(t, state)
            if t in run.at:
                losses.append(run.loss(run.model.readout(h[own]).unsqueeze(0), range(t, t + 1), own))
        self._turn(number, "backward")
        return torch.stack(losses).sum() if losses else None, state

    def _snapshot(self, t: int, state: State) -> tuple[Tensor, State]:
        space = self._run.sequence.space(t)
        return run_straight(self._run.model.snapshot(space, space.inputs, state))
