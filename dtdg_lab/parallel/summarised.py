"""Runs whose weights evolve from summaries of the snapshots: summaries of all ranks are gathered, layer by layer.

A rank summarises its own snapshots of a block, gathers the others' summaries, and evolves the weights of every snapshot
of the block; neighbours are then mixed in own snapshots. All ranks evolve the same weights, each back-propagates what
its own snapshots made of them, and gradients of summaries are summed where the summary was made.

References: ESDG section 5.5 (weights are evolved on every rank; there for EvolveGCN-O alone, which needs no summary).
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor

from dtdg_lab.models.base import Space, run_straight
from dtdg_lab.models.state import State
from dtdg_lab.parallel import checkpointed
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sequence import StackedSpace
from dtdg_lab.parallel.time_block import Timeline


class Summarising(Protocol):
    """A model whose weights evolve from a summary of the snapshot and the weights before."""

    async def summary(self, layer: int, space: Space, x: Tensor) -> Tensor:
        """Z_t of one snapshot, (width, H)."""
        ...

    def advance(self, layer: int, summary: Tensor, state: State) -> State:
        """W_t from Z_t and W_{t-1}."""
        ...


class Gather(Protocol):
    """Joins the summaries of a block."""

    def __call__(self, own: Tensor, block: int, layer: int, way: str) -> Tensor:
        """All S snapshots' summaries, (S, numbers), from those of own snapshots; differentiable, collective."""
        ...


def add_gradients(run: Run, timeline: Timeline, gather: Gather) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return this rank's share of the loss.

    Args:
        run: of a model with ``weights_from_data``; its sequence has the own rows of the own snapshots.
        timeline: the run in blocks.
        gather: joins summaries.
    """
    return checkpointed.add_gradients(
        _Weights(run, timeline, gather), run.model.initial_state(run.own), device=run.sequence.device
    )  # fmt: skip


class _Weights:
    """Blocks computed layer by layer (see :class:`dtdg_lab.parallel.checkpointed.Blocks`)."""

    def __init__(self, run: Run, timeline: Timeline, gather: Gather) -> None:
        self._run, self._timeline, self._gather = run, timeline, gather

    def __len__(self) -> int:
        return len(self._timeline)

    def advance(self, number: int, state: State) -> State:
        return self._through(number, state, "forward")[2]

    def compute(self, number: int, state: State) -> tuple[Tensor | None, State]:
        run, way = self._run, "forward" if number == len(self) - 1 else "rerun"
        spaces, found, end = self._through(number, state, way)
        # every rank must take part in backward, layer by layer, also without own snapshots
        loss = torch.stack([weights.sum() * 0 for (weights,) in end.layers]).sum()
        for space, h in zip(spaces, found, strict=True):
            snapshots = space.snapshots
            loss = loss + run.loss(run.model.readout(h).unsqueeze(0), snapshots, slice(0, run.own))
        self._timeline.turn(number)
        return loss, end

    def _through(self, number: int, state: State, way: str) -> tuple[list[StackedSpace], list[Tensor], State]:
        """Own spaces, what comes out of them, (n, H) each, and the state after the block."""
        run = self._run
        block = self._timeline.open(number, way)
        xs = [space.inputs for space in block.stacks[0]]
        ends = []
        for layer, spaces in enumerate(block.stacks):
            summaries = self._summaries(layer, list(spaces), xs)
            states = self._evolved(layer, self._gather(summaries, number, layer, way), state)
            ends.append(states[-1].layers[layer])
            seen = [states[space.snapshots[0] - block.snapshots.start] for space in spaces]
            xs = [
                run_straight(run.model.spatial(layer, space, x, of))
                for space, x, of in zip(spaces, xs, seen, strict=True)
            ]
        return list(block.stacks[0]), xs, State(tuple(ends), per_vertex=False)

    def _summaries(self, layer: int, spaces: list[StackedSpace], xs: list[Tensor]) -> Tensor:
        """Those of own snapshots, one in each row; where there are none, still with a history."""
        model, summarising = self._run.model, cast(Summarising, self._run.model)
        found = [
            run_straight(summarising.summary(layer, space, x)).flatten() for space, x in zip(spaces, xs, strict=True)
        ]
        if found:
            return torch.stack(found)
        return model.zeros(0, model.width(layer) * model.hidden).requires_grad_(torch.is_grad_enabled())

    def _evolved(self, layer: int, summaries: Tensor, state: State) -> list[State]:
        """The state of a layer at every snapshot of the block."""
        model, summarising = self._run.model, cast(Summarising, self._run.model)
        states = []
        for summary in summaries:
            state = summarising.advance(layer, summary.view(model.width(layer), -1), state)
            states.append(state)
        return states
