"""Plans: what is scheduled is what there is, and a broken plan is refused when it is made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Schedule, SnapshotGroups


@st.composite
def assignments(draw: st.DrawFn) -> tuple[tuple[tuple[tuple[int, ...], ...], ...], int]:
    """A valid assignment and its number of groups: a shuffled deal into iterations and parts."""
    groups = draw(st.integers(1, 30))
    parts = draw(st.integers(1, 5))
    order = draw(st.permutations(range(groups)))
    sizes = draw(st.lists(st.integers(1, 6), min_size=groups, max_size=groups))
    rows: list[tuple[tuple[int, ...], ...]] = []
    at = 0
    for size in sizes:
        taken = order[at : at + size]
        at += size
        if taken:
            seats = draw(st.lists(st.integers(0, parts - 1), min_size=len(taken), max_size=len(taken)))
            rows.append(tuple(tuple(g for g, s in zip(taken, seats, strict=True) if s == p) for p in range(parts)))
    return tuple(rows), groups


@given(assignments(), st.data())
def test_time_is_conserved(plan: tuple, data: st.DataObject) -> None:
    assignment, groups = plan
    schedule = Schedule(assignment, groups)
    times_s = np.array(data.draw(st.lists(st.floats(0.001, 100.0), min_size=groups, max_size=groups)))
    loads = schedule.loads(times_s)
    assert loads.shape == (len(assignment), schedule.parts)
    assert loads.sum() == pytest.approx(times_s.sum())
    makespan_s = schedule.makespan_s(times_s)
    assert makespan_s >= times_s.max() * (1 - 1e-12)
    assert makespan_s >= times_s.sum() / schedule.parts * (1 - 1e-12)
    assert makespan_s <= times_s.sum() * (1 + 1e-12)
    assert schedule.makespan_s(times_s, allreduce_s=2.0) == pytest.approx(makespan_s + 2.0 * len(assignment))


@given(assignments(), st.data())
def test_a_lost_group_is_refused(plan: tuple, data: st.DataObject) -> None:
    assignment, groups = plan
    lost = data.draw(st.integers(0, groups - 1))
    holed = tuple(tuple(tuple(g for g in part if g != lost) for part in row) for row in assignment)
    with pytest.raises(PlanError):
        Schedule(holed, groups)


@given(assignments(), st.data())
def test_a_group_twice_is_refused(plan: tuple, data: st.DataObject) -> None:
    assignment, groups = plan
    again = data.draw(st.integers(0, groups - 1))
    extra = (((again,),) + ((),) * (len(assignment[0]) - 1),)
    with pytest.raises(PlanError, match="once"):
        Schedule((*assignment, *extra), groups)


@pytest.mark.parametrize(
    ("assignment", "groups", "why"),
    [
        ((), 0, "at least one"),
        ((((0,),), ((1,), ())), 2, "same number of parts"),
        ((((0,), (1,)), ((), ())), 2, "without any group"),
        ((((0,), (2,)),), 2, "missing"),
        ((((0,), (-1,)),), 2, "once"),
        ((((0,),),), 2, r"missing \[1\]"),
    ],
)
def test_what_is_no_schedule_is_refused(assignment: tuple, groups: int, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        Schedule(assignment, groups)


def test_makespan_by_hand() -> None:
    schedule = Schedule((((0,), (1,)), ((2, 3), ())), 4)
    times_s = np.array([1.0, 2.0, 3.0, 4.0])
    assert schedule.parts == 2
    assert schedule.loads(times_s).tolist() == [[1.0, 2.0], [7.0, 0.0]]
    assert schedule.makespan_s(times_s, allreduce_s=0.5) == 10.0


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 20)), min_size=1, max_size=30))
def test_groups_keep_what_they_are_given(spans: list[tuple[int, int]]) -> None:
    start = np.array([first for first, _ in spans])
    stop = np.array([first + length for first, length in spans])
    groups = SnapshotGroups(start, stop)
    assert len(groups) == len(spans)
    assert (groups.stop - groups.start).tolist() == [length for _, length in spans]
    assert groups == SnapshotGroups(start.astype(np.int32), stop.astype(np.int32))
    assert hash(groups) == hash(SnapshotGroups(start, stop))
    assert groups != SnapshotGroups(start, stop + 1)


def test_groups_are_frozen_and_leave_the_callers_arrays_alone() -> None:
    start, stop = np.array([0, 2]), np.array([2, 4])
    groups = SnapshotGroups(start, stop)
    start[0] = 1
    assert groups.start.tolist() == [0, 2]
    for array in (groups.start, groups.stop):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
    with pytest.raises(AttributeError):
        groups.start = stop


BROKEN = [np.array([], int), np.array([[0]]), np.array([-1]), np.array([5]), np.array([0.5]), np.array([0, 1])]


@pytest.mark.parametrize("start", BROKEN, ids=str)
def test_broken_groups_are_refused(start: np.ndarray) -> None:
    with pytest.raises(PlanError):
        SnapshotGroups(start, np.array([5]))
