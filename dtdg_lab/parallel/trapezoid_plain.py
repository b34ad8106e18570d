"""A window of snapshots one after another, for every model: the reference, and what models of weights are run by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

import torch
from torch import Tensor

from dtdg_lab.models.base import DynamicModel
from dtdg_lab.models.state import State
from dtdg_lab.parallel.one_vertex import OneVertex
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.space import SnapshotSpace
from dtdg_lab.parallel.spatial_tasks import run_awaiting
from dtdg_lab.parallel.survival_rows import SurvivalRows


def add_gradients(
    run: Run, spaces: Sequence[SnapshotSpace], full: int, rows: SurvivalRows, begin: State, *, late: bool
) -> tuple[Tensor, State]:
    """Add the gradients of a window's loss to the parameters'; returns the loss and what the window leaves.

    Args:
        run: the window, of own vertices by number.
        spaces: (S,) the snapshots, oldest first; decayed ones in the order of survival.
        full: how many of the newest ones are full.
        rows: that order.
        begin: the states that vertices start from, of the first rows in the order of survival; zero beyond.
        late: whether vertices that the oldest snapshot lacks leave a state as well.

    Returns:
        The loss, a scalar, and the state of each vertex after the first snapshot that it is in, in the order of
        survival; both without history.
    """
    model, state, left = run.model, begin, list[State]()
    decayed, held, losses = len(spaces) - full, 0, list[Tensor]()
    for place, space in enumerate(spaces):
        is_whole, height = place >= decayed, space.num_rows
        if held < height:
            state = _grown(state, held, height, begin)
        if place == decayed:
            state = _each(state, lambda x: x.index_select(0, rows.place))
        t = run.snapshots[place]
        if t in run.at:
            h, state = run_awaiting(model.snapshot(space, space.inputs, state))
            of = rows.own[:height] if not is_whole else slice(0, run.own)
            losses.append(run.loss(model.readout(h[: run.own]).unsqueeze(0), range(t, t + 1), of))
        else:
            state = _passed(model, space, state)
        if held < height and (late or place == 0):
            left.append(_each(state, itemgetter(rows.own[held:height] if is_whole else slice(held, height))).detach())
        held = height
    loss = torch.stack(losses).sum()
    loss.backward()  # on every rank, with labels or without: backward exchanges rows
    return loss.detach(), _joined(left)


def _passed(model: DynamicModel, space: SnapshotSpace, state: State) -> State:
    """The state after a snapshot at which no loss is taken: weights that look at no vertex need none."""
    if model.memory == "none":
        return state
    if model.memory != "weights":
        return run_awaiting(model.snapshot(space, space.inputs, state))[1]
    for layer in range(model.layers):
        state = run_awaiting(model.evolve(layer, OneVertex(), model.zeros(1, model.width(layer)), state))
    return state


def _grown(state: State, held: int, height: int, begin: State) -> State:
    """The first ``held`` rows, and those that enter now: as the window begins with them, or zero."""
    if not state.per_vertex:
        return state
    return State(
        tuple(
            tuple(with_late(x[:held], of[held:height], height) for x, of in zip(now, then, strict=True))
            for now, then in zip(state.layers, begin.layers, strict=True)
        )
    )


def with_late(x: Tensor, late: Tensor, height: int) -> Tensor:
    """Rows, below them those that enter late, and zeros up to ``height``."""
    parts = [part for part in (x, late) if len(part)]
    lacking = height - len(x) - len(late)
    if lacking:
        parts.append(x.new_zeros(lacking, *x.shape[1:]))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _joined(states: Sequence[State]) -> State:
    """Rows of several states, one after another."""
    if not states[0].per_vertex or len(states) == 1:
        return states[0]
    layers = zip(*(state.layers for state in states), strict=True)
    return State(tuple(tuple(torch.cat(parts) for parts in zip(*each, strict=True)) for each in layers))


def _each(state: State, change: Callable[[Tensor], Tensor]) -> State:
    if not state.per_vertex:
        return state
    return State(tuple(tuple(change(x) for x in layer) for layer in state.layers))
