"""State that a step leaves to the next one, vertex by vertex, and what each vertex starts the next window from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from dtdg_lab.models.base import DynamicModel
from dtdg_lab.models.state import State
from dtdg_lab.parallel.survival_rows import SurvivalRows

Entering = Sequence[tuple[int, int]]


class Carried:
    """What a step leaves to the next one; without history.

    The next window is one snapshot later, and a vertex enters it one snapshot later as well. What it starts from there,
    the state after the snapshot before, is the state after the first snapshot that it is in now. So one row of each
    vertex is kept, after its own first snapshot, rather than the states of all snapshots. A vertex that the next window
    takes up anywhere else, as after a change of its shape, starts from the initial state.

    Args:
        model: whose state it is.

    Attributes:
        after: (n',) int64 on the host: the snapshot that each row is the state after, -1 where it is of none; one
            number where rows are not vertices; None where nothing is carried.

    References: FlareDTDG sections 3.1 and 3.2, algorithm 1 line 7. Its released code keeps all states of all snapshots
        and hands over the same rows.
    """

    def __init__(self, model: DynamicModel) -> None:
        self._model = model
        self.after: Tensor | None = None
        self._state: State | None = None
        self._waiting: tuple[Tensor, Tensor, State] | None = None

    def before(self, entering: Entering) -> State:
        """What vertices start a window from: rows of the first ones; those beyond start from zero.

        Args:
            entering: (rows, snapshot) of the window's snapshots, oldest first: the vertices up to ``rows`` that no
                earlier one has enter at this snapshot. Those of the oldest alone where late ones start from zero.
        """
        first, oldest = entering[0]
        if self._state is None or self.after is None:
            return self._zeros(first)
        if not self._state.per_vertex:
            return self._state if int(self.after) == oldest - 1 else self._model.initial_state(first)
        wanted = _by_row(entering) - 1
        held = min(len(wanted), len(self.after))
        fits = self.after[:held] == wanted[:held]
        if not bool(fits.any()):
            return self._zeros(first)
        if bool(fits.all()) and held == len(wanted):
            return self._state.slice(slice(0, held))
        begin = self._model.initial_state(len(wanted))

        def put(new: Tensor, x: Tensor) -> Tensor:
            mask = fits.to(x.device).view(-1, *[1] * (x.ndim - 1))
            return torch.cat([torch.where(mask, x[:held], new[:held]), new[held:]])

        return State(
            tuple(
                tuple(put(n, x) for n, x in zip(new, of, strict=True))
                for new, of in zip(begin.layers, self._state.layers, strict=True)
            )
        )

    def _zeros(self, height: int) -> State:
        """The initial state; rows of zeros share the memory of one, else a segment's first steps take the most."""
        if self._model.memory != "per_vertex":
            return self._model.initial_state(height)
        one = self._model.initial_state(1)
        return State(tuple(tuple(x.expand(height, *x.shape[1:]) for x in layer) for layer in one.layers))

    def keep(self, entering: Entering, state: State | None) -> None:
        """Carry the state of each vertex after the snapshot at which it entered; nothing where there is none."""
        if state is None or (state.per_vertex and not any(state.layers)):
            self.after = self._state = None
            return
        self._state = state
        self.after = _by_row(entering) if state.per_vertex else torch.tensor(entering[0][1])

    def drop(self) -> None:
        """Carry nothing: a segment ends, or another run begins."""
        self.keep((), None)

    def taken_out(self, rows: SurvivalRows) -> tuple[Tensor, Tensor, State] | None:
        """Numbers of the vertices that have state, (n',), after which snapshot, and their state."""
        if self._state is None or self.after is None:
            return None
        held = len(self.after) if self._state.per_vertex else 0
        return rows.vertices[:held], self.after, self._state

    def put_back(self, vertices: Tensor, after: Tensor, state: State) -> None:
        """State of a run that is resumed; its rows are put in order once the epoch's order is known."""
        self.after, self._waiting = after, (vertices, after, state)

    def take(self, rows: SurvivalRows) -> None:
        """A new epoch begins, or one is resumed."""
        if self._waiting is None:
            self.drop()
            return
        (vertices, after, state), self._waiting = self._waiting, None
        self._state, self.after = (state, after) if not state.per_vertex else _ordered(state, after, vertices, rows)


def _by_row(entering: Entering) -> Tensor:
    """(n,): the snapshot at which each row enters."""
    heights = [0, *(rows for rows, _ in entering)]
    counts = torch.tensor([newer - older for older, newer in pairwise(heights)])
    return torch.repeat_interleave(torch.tensor([snapshot for _, snapshot in entering]), counts)


def _ordered(state: State, after: Tensor, vertices: Tensor, rows: SurvivalRows) -> tuple[State, Tensor]:
    """The rows of own vertices among some, in the order of survival; -1 for those that are not among them."""
    place = rows.vertices.new_full((int(max(vertices.max(), rows.vertices.max())) + 1,), -1)
    place[vertices] = torch.arange(len(vertices), device=vertices.device)
    found = place[rows.vertices]
    at = found.clamp(min=0)
    own = torch.where(found.cpu() >= 0, after[at.cpu()], -1)
    return State(tuple(tuple(x.index_select(0, at) for x in layer) for layer in state.layers)), own
