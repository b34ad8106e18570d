"""A run in blocks of time of which one is alive: states are kept, blocks computed again on the way back.

What a block computes is the caller's: this holds for every memory whose state is handed from block to block.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from dtdg_lab.models.state import State


class Blocks(Protocol):
    """The blocks of a run, and what one of them computes."""

    def __len__(self) -> int:
        """nb, the blocks."""
        ...

    def advance(self, number: int, state: State) -> State:
        """The state after a block; without history."""
        ...

    def compute(self, number: int, state: State) -> tuple[Tensor | None, State]:
        """A block's share of the loss, None where it takes none, and the state after it, with their history."""
        ...


def add_gradients(blocks: Blocks, begin: State, *, device: str) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    Args:
        blocks: of the run.
        begin: the state before it, with its history where it is learned.
        device: where the loss is summed.

    References: ESDG section 3.1 (gradient checkpoint). The last block is not computed twice.
    """
    states = [begin.detach()]
    with torch.no_grad():
        for number in range(len(blocks) - 1):
            states.append(blocks.advance(number, states[-1]))
    total = torch.zeros((), dtype=torch.float64, device=device)
    gradients: list[Tensor | None] = []  # of the state after the block
    for number in reversed(range(len(blocks))):
        loss, gradients = _back(blocks, number, states.pop(), gradients)
        total += 0 if loss is None else loss
    _backward(_tensors(begin), gradients)
    return total


def _back(
    blocks: Blocks, number: int, state: State, after: list[Tensor | None]
) -> tuple[Tensor | None, list[Tensor | None]]:
    """One block forward and backward: its loss, and the gradient of the state before it."""
    leaves = State(tuple(tuple(x.requires_grad_() for x in layer) for layer in state.layers), state.per_vertex)
    loss, end = blocks.compute(number, leaves)
    ends, seeds = _tensors(end), after
    if loss is not None:
        ends, seeds = [*ends, loss], [*(seeds or [None] * len(ends)), torch.ones_like(loss)]
    _backward(ends, seeds)
    return None if loss is None else loss.detach(), [x.grad for x in _tensors(leaves)]


def _backward(ends: list[Tensor], seeds: list[Tensor | None]) -> None:
    """Backward from those ends that have a gradient and a history."""
    found = [(end, seed) for end, seed in zip(ends, seeds, strict=False) if seed is not None and end.requires_grad]
    if found:
        torch.autograd.backward([end for end, _ in found], [seed for _, seed in found])


def _tensors(state: State) -> list[Tensor]:
    return [tensor for layer in state.layers for tensor in layer]
