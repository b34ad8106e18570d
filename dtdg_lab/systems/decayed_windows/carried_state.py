"""The state that each node carries from one step's window to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from dtdg_lab.distributed.group import Group
from dtdg_lab.kernels.uploads import upload
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.systems.decayed_windows.shrinking import SurvivalRows

CARRIED = "carried"  # in the state of a checkpoint
Entering = Sequence[tuple[int, int]]  # (rows, snapshot) of a window's snapshots, oldest first


class CarriedState:
    """The states that a step leaves to the next one, without history.

    The next window begins one snapshot later, and each node enters it one snapshot later. A node's initial state there
    is its state after the first snapshot that contains it now. So one row per node is kept, not the states of all
    snapshots. A node that enters elsewhere (the shape of the window changed) starts from the model's initial state.

    Args:
        model: the model whose states are carried.

    Attributes:
        after: (n',) int64 on the host: the snapshot after which each row's state was taken, -1 without a state. A
            scalar if rows are not nodes; None if nothing is carried.

    References: FlareDTDG sections 3.1 and 3.2, algorithm 1 line 7. Its released code keeps all states of all snapshots
        and hands over the same rows.
    """

    def __init__(self, model: DynamicModel) -> None:
        self._model = model
        self.after: Tensor | None = None
        self._state: State | None = None
        self._restored: tuple[Tensor, Tensor, State] | None = None  # not yet in the order of an epoch

    def before(self, entering: Entering) -> State:
        """Return the initial states of the first rows of a window; later rows start from zero.

        Args:
            entering: nodes up to ``rows`` that no earlier snapshot contains enter at ``snapshot``. Only the oldest
                snapshot if late nodes start from zero.
        """
        first, oldest = entering[0]
        if self._state is None or self.after is None:
            return self._zeros(first)
        if not self._state.per_vertex:
            return self._state if int(self.after) == oldest - 1 else self._model.initial_state(first)
        needed = _by_row(entering) - 1
        count = min(len(needed), len(self.after))
        fits = self.after[:count] == needed[:count]
        if not bool(fits.any()):
            return self._zeros(first)
        if bool(fits.all()) and count == len(needed):
            return self._state.slice(slice(0, count))

        initial = self._model.initial_state(len(needed))
        fits = upload(fits, str(initial.tensors[0].device))

        def merge(zeros: Tensor, x: Tensor) -> Tensor:
            mask = fits.view(-1, *[1] * (x.ndim - 1))
            return torch.cat([torch.where(mask, x[:count], zeros[:count]), zeros[count:]])

        layers = zip(initial.layers, self._state.layers, strict=True)
        return State(tuple(tuple(map(merge, *pair)) for pair in layers))

    def _zeros(self, height: int) -> State:
        """Return the initial state; its rows share memory, which would dominate a segment's first steps."""
        if self._model.memory != "per_vertex":
            return self._model.initial_state(height)
        single_row = self._model.initial_state(1)
        return State(tuple(tuple(x.expand(height, *x.shape[1:]) for x in layer) for layer in single_row.layers))

    def keep(self, entering: Entering, state: State | None) -> None:
        """Carry the state of each node after the snapshot at which it entered; nothing if there is no state."""
        if state is None or (state.per_vertex and not any(state.layers)):
            self.after = self._state = None
            return
        self._state = state
        self.after = _by_row(entering) if state.per_vertex else torch.tensor(entering[0][1])

    def drop(self) -> None:
        """Carry nothing: a segment ends, or another run begins."""
        self.after = self._state = None

    def begin_epoch(self, rows: SurvivalRows) -> None:
        """Drop the carried state, or put a restored one into the order of the new epoch."""
        if self._restored is None:
            self.drop()
            return
        (vertices, after, state), self._restored = self._restored, None
        self._state, self.after = (state, after) if not state.per_vertex else _ordered(state, after, vertices, rows)

    def state_dict(self, rows: SurvivalRows, group: Group) -> dict[str, Any]:
        """Return the carried state of all ranks; collective."""
        if self._state is None or self.after is None:
            return {}
        after, layers, per_vertex = self.after, self._state.layers, self._state.per_vertex
        vertices = rows.vertices[: len(after) if per_vertex else 0]
        if per_vertex:
            own_count = vertices.new_tensor([[len(vertices)]])
            counts = [int(number) for number in group.gather_rows(own_count, [1] * group.size)[:, 0]]
            pairs = group.gather_rows(torch.stack([vertices, after.to(vertices)], dim=1), counts)
            vertices, after = pairs[:, 0], pairs[:, 1]
            layers = tuple(tuple(group.gather_rows(x, counts) for x in layer) for layer in layers)
        tensors = [[x.cpu() for x in layer] for layer in layers]
        state = {"after": after.cpu(), "vertices": vertices.cpu(), "tensors": tensors, "per_vertex": per_vertex}
        return {CARRIED: state}

    def load_state_dict(self, data: Mapping[str, Any], device: str) -> None:
        """Restore a state dict of :meth:`state_dict`; rows are put into order when the epoch begins."""
        if CARRIED not in data:
            return
        stored = data[CARRIED]
        layers = tuple(tuple(x.to(device) for x in layer) for layer in stored["tensors"])
        self.after = torch.as_tensor(stored["after"]).cpu()
        if stored["per_vertex"] and not self.after.ndim:  # in checkpoints of schema 1, one number for all nodes
            self.after = self.after.repeat(len(stored["vertices"]))
        self._restored = (stored["vertices"].to(device), self.after, State(layers, stored["per_vertex"]))


def _by_row(entering: Entering) -> Tensor:
    """Return the (n,) snapshots at which each row enters."""
    heights = [0, *(rows for rows, _ in entering)]
    counts = torch.tensor([newer - older for older, newer in pairwise(heights)])
    return torch.repeat_interleave(torch.tensor([snapshot for _, snapshot in entering]), counts)


def _ordered(state: State, after: Tensor, vertices: Tensor, rows: SurvivalRows) -> tuple[State, Tensor]:
    """Return the own nodes' rows in the order of survival; ``after`` is -1 for nodes without a state."""
    stored_row = rows.vertices.new_full((int(max(vertices.max(), rows.vertices.max())) + 1,), -1)
    stored_row[vertices] = torch.arange(len(vertices), device=vertices.device)
    sources = stored_row[rows.vertices]
    clamped = sources.clamp(min=0)
    ordered_after = torch.where(sources.cpu() >= 0, after[clamped.cpu()], -1)
    layers = tuple(tuple(x.index_select(0, clamped) for x in layer) for layer in state.layers)
    return State(layers), ordered_after
