"""State that goes on from one window to the next: after the snapshot that left it, of the vertices it still had."""

from __future__ import annotations

from torch import Tensor

from dtdg_lab.core.batch_plans import HybridBatch
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.models.state import State
from dtdg_lab.parallel.survival_rows import SurvivalRows
from dtdg_lab.parallel.trapezoid_plain import fitted


class Carried:
    """What a step leaves to the next one; without history.

    Args:
        model: whose state it is.

    Attributes:
        after: the snapshot after which it is the state; None where nothing is carried.
    """

    def __init__(self, model: DynamicModel) -> None:
        self._model = model
        self.after: int | None = None
        self._state: State | None = None
        self._waiting: tuple[Tensor, State] | None = None

    def before(self, batch: HybridBatch, height: int) -> State:
        """The state before a window, of the ``height`` first survivors: zero for those that have none."""
        if self._state is None or not batch.carries or self.after != batch.snapshots.start - 1:
            if self._model.memory != "per_vertex":
                return self._model.initial_state(height)
            one = self._model.initial_state(1)  # rows of zeros in the memory of one: else a segment's first steps peak
            return State(tuple(tuple(x.expand(height, *x.shape[1:]) for x in layer) for layer in one.layers))
        return fitted(self._state, self._model, height)

    def keep(self, after: int | None, state: State | None) -> None:
        """Carry the state after a snapshot; nothing where there is none, or none to follow."""
        nothing = after is None or state is None
        self.after, self._state = (None, None) if nothing else (after, state)

    def taken_out(self, rows: SurvivalRows) -> tuple[Tensor, State] | None:
        """Numbers of the vertices that have state, (n',), and their state."""
        if self._state is None:
            return None
        held = next((x.shape[0] for layer in self._state.layers for x in layer), 0) if self._state.per_vertex else 0
        return rows.vertices[:held], self._state

    def put_back(self, after: int, vertices: Tensor, state: State) -> None:
        """State of a run that is gone on with; its rows are put in order once the epoch's order is known."""
        self.after, self._waiting = after, (vertices, state)

    def take(self, rows: SurvivalRows) -> None:
        """A new epoch begins, or one is gone on with."""
        if self._waiting is None:
            self.keep(None, None)
            return
        (vertices, state), self._waiting = self._waiting, None
        has_rows = state.per_vertex and any(state.layers)
        self._state = _ordered(state, vertices, rows) if has_rows else state


def _ordered(state: State, vertices: Tensor, rows: SurvivalRows) -> State:
    """The rows of own vertices among some, in the order of survival: a prefix of it."""
    place = rows.vertices.new_full((int(max(vertices.max(), rows.vertices.max())) + 1,), -1)
    place[vertices] = vertices.new_tensor(range(len(vertices)))
    found = place[rows.vertices]
    found = found[found >= 0]
    return State(tuple(tuple(x.index_select(0, found) for x in layer) for layer in state.layers))
