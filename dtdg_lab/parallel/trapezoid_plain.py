"""A window of snapshots one after another, for every model: the reference, and what models of weights are run by."""

from __future__ import annotations

from collections.abc import Sequence

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
    run: Run, spaces: Sequence[SnapshotSpace], full: int, rows: SurvivalRows, begin: State
) -> tuple[Tensor, State]:
    """Add the gradients of a window's loss to the parameters'; returns the loss and the state after its first snapshot.

    Args:
        run: the window, of own vertices by number.
        spaces: (S,) the snapshots, oldest first; decayed ones in the order of survival.
        full: how many of the newest ones are full.
        rows: that order.
        begin: the state before the window, of the oldest snapshot's rows in the order of survival.
    """
    loss, after = window_loss(run, spaces, full, rows, begin)
    loss.backward()  # on every rank, with labels or without: backward exchanges rows
    return loss.detach(), after


def window_loss(
    run: Run, spaces: Sequence[SnapshotSpace], full: int, rows: SurvivalRows, begin: State
) -> tuple[Tensor, State]:
    """The loss of a window, a scalar with its history, and the state after its first snapshot, without."""
    model, state, after = run.model, begin, None
    decayed = len(spaces) - full
    for place, space in enumerate(spaces):
        is_whole = place >= decayed
        if place == decayed:
            state = _as_numbered(state, rows)
        elif not is_whole:
            state = _grown(state, space.num_rows)
        if place == len(spaces) - 1:
            h, state = run_awaiting(model.snapshot(space, space.inputs, state))
        else:
            state = _passed(model, space, state)
        if place == 0:
            after = _as_surviving(state, rows).detach() if is_whole else state.detach()
    assert after is not None
    z = model.readout(h[: run.own]).unsqueeze(0)
    return run.loss(z, run.at, slice(0, run.own)), after


def _passed(model: DynamicModel, space: SnapshotSpace, state: State) -> State:
    """The state after a snapshot at which no loss is taken: weights that look at no vertex need none."""
    if model.memory == "none":
        return state
    if model.memory != "weights":
        return run_awaiting(model.snapshot(space, space.inputs, state))[1]
    for layer in range(model.layers):
        state = run_awaiting(model.evolve(layer, OneVertex(), model.zeros(1, model.width(layer)), state))
    return state


def fitted(state: State, model: DynamicModel, height: int) -> State:
    """A state of some first rows as one of ``height``: the rest is left out, or begins as at the start."""
    if not state.per_vertex:
        return state
    held = next((tensor.shape[0] for layer in state.layers for tensor in layer), height)
    if height <= held:
        return state.slice(slice(0, height))
    more = model.initial_state(height - held)
    return State(
        tuple(
            tuple(torch.cat(pair) for pair in zip(of, new, strict=True))
            for of, new in zip(state.layers, more.layers, strict=True)
        )
    )


def _grown(state: State, height: int) -> State:
    """Rows of vertices that enter a decayed snapshot are zero before it."""
    return _each(state, lambda x: torch.cat([x, x.new_zeros(height - x.shape[0], *x.shape[1:])]))


def _as_numbered(state: State, rows: SurvivalRows) -> State:
    """Rows of the first survivors, put where a full snapshot has them; zero for all others."""

    def put(x: Tensor) -> Tensor:
        where = rows.own[: x.shape[0]]
        return x.new_zeros(len(rows.own), *x.shape[1:]).index_copy(0, where, x)

    return _each(state, put)


def _as_surviving(state: State, rows: SurvivalRows) -> State:
    """Rows of a full snapshot in the order of survival."""
    return _each(state, lambda x: x.index_select(0, rows.own))


def _each(state: State, change) -> State:  # type: ignore[no-untyped-def]
    if not state.per_vertex:
        return state
    return State(tuple(tuple(change(x) for x in layer) for layer in state.layers))
