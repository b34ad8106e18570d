"""What a step of a window leaves to the next one: which row every node starts from, on any ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.models.base import State
from dtdg_lab.models.gcn_lstm import MPNNLSTM
from dtdg_lab.systems.decayed_windows import carried_state
from dtdg_lab.systems.decayed_windows.backprop import SurvivalRows
from dtdg_lab.systems.decayed_windows.carried_state import CARRIED, CarriedState
from dtdg_lab.systems.decayed_windows.chunks import Chunking
from dtdg_lab.systems.decayed_windows.shrinking import survival_order

NODES, PARTS = 12, 2
OWNER = np.arange(NODES, dtype=np.int32) % PARTS
CHUNKING = Chunking(np.arange(NODES) // PARTS % 3, 3, PARTS)
WINDOW = [(4, 5), (8, 6), (12, 7)]  # rows, snapshot


def rows_of(parts: range, epoch: int = 0) -> SurvivalRows:
    return SurvivalRows.of(survival_order(OWNER, CHUNKING, parts, seed=1, epoch=epoch), "cpu")


def named(rows: SurvivalRows) -> State:
    """A state that says whose it is: its node, in both LSTMs' states and cells."""
    numbers = rows.vertices.float().unsqueeze(1).expand(-1, 2)
    return State(((numbers, numbers + 100, numbers + 200, numbers + 300),))


def model() -> MPNNLSTM:
    return MPNNLSTM(2, 2)


def test_every_vertex_starts_one_snapshot_later_from_its_own_row() -> None:
    carried, rows = CarriedState(model()), rows_of(range(PARTS))
    carried.keep(WINDOW, named(rows))
    begin = carried.before([(height, snapshot + 1) for height, snapshot in WINDOW])
    assert torch.equal(begin.layers[0][3], named(rows).layers[0][3])


@pytest.mark.parametrize(
    ("window", "kept"),
    [
        ([(4, 7), (8, 8), (12, 9)], []),  # the step between is lacking
        ([(4, 5), (8, 6), (12, 7)], []),  # the segment begins
        ([(4, 6), (12, 7)], range(8)),  # more is full: the last rows were not in the snapshot before
        ([(2, 6), (8, 7), (12, 8)], [0, 1, *range(4, 12)]),  # fewer rows: those cut out start from zero
    ],
)
def test_a_vertex_that_enters_anywhere_else_starts_from_zero(window: list[tuple[int, int]], kept: list[int]) -> None:
    carried, rows = CarriedState(model()), rows_of(range(PARTS))
    carried.keep(WINDOW, named(rows))
    begin = carried.before(window).layers[0][1]
    expected = torch.zeros(12, 2)
    expected[list(kept)] = named(rows).layers[0][1][list(kept)]
    assert torch.equal(begin, expected[: len(begin)]) and not expected[len(begin) :].any()


def test_the_rows_that_keep_a_state_are_copied_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    carried, rows, uploads = CarriedState(model()), rows_of(range(PARTS)), list[Any]()
    carried.keep(WINDOW, named(rows))
    monkeypatch.setattr(carried_state, "upload", lambda values, device: uploads.append(values) or values)
    assert len(carried.before([(4, 6), (12, 7)]).tensors) == 4
    assert len(uploads) == 1


def restored(data: dict[str, Any], rows: SurvivalRows) -> CarriedState:
    """Return the state of a checkpoint in the order of an epoch."""
    carried = CarriedState(model())
    carried.load_state_dict(data, "cpu")
    carried.begin_epoch(rows)
    return carried


def test_rows_find_their_vertices_on_other_ranks_and_in_another_order() -> None:
    carried, rows = CarriedState(model()), rows_of(range(PARTS))
    carried.keep(WINDOW, named(rows))
    data = carried.state_dict(rows, SoloGroup())
    when = dict(zip(data[CARRIED]["vertices"].tolist(), data[CARRIED]["after"].tolist(), strict=True))
    for part in range(PARTS):
        own = rows_of(range(part, part + 1), epoch=3)
        again = restored(data, own).state_dict(own, SoloGroup())[CARRIED]
        assert torch.equal(again["vertices"], own.vertices)
        assert torch.equal(again["tensors"][0][2][:, 0], own.vertices + 200.0)
        assert again["after"].tolist() == [when[v] for v in own.vertices.tolist()]


def test_vertices_without_a_row_start_from_zero_wherever_they_come_from() -> None:
    carried, rows = CarriedState(model()), rows_of(range(1))
    carried.keep([(2, 5), (6, 6)], named(rows))
    both = rows_of(range(PARTS))
    other = restored(carried.state_dict(rows, SoloGroup()), both)
    assert other.after is not None
    owner = torch.from_numpy(OWNER)[both.vertices]
    assert torch.equal(other.after == -1, owner == 1)


def test_a_new_epoch_carries_nothing() -> None:
    carried, rows = CarriedState(model()), rows_of(range(PARTS))
    carried.keep(WINDOW, named(rows))
    carried.begin_epoch(rows_of(range(PARTS), epoch=1))
    assert carried.after is None and carried.state_dict(rows, SoloGroup()) == {}
    assert not carried.before(WINDOW).layers[0][0].any()
