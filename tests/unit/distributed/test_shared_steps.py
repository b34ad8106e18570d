"""Ranks share the steps of an epoch: counted on a clock of the test's own, without processes."""

from __future__ import annotations

import heapq
import math

import pytest

from dtdg_lab.distributed.shared_steps import LEASE_S, SharedSteps

Taken = list[tuple[int, int, int]]  # rank, epoch, number of the step


class _Ranks:
    """Ranks of given speeds that take steps until all epochs are over, in the order of a virtual clock."""

    def __init__(self, step_s: list[float], steps: int, epochs: int, first: tuple[int, int] = (0, 0)) -> None:
        self.counters: dict[str, int] = {}
        self.asked = [0] * len(step_s)
        self.taken: Taken = []
        self.ends_s = [0.0] * len(step_s)
        now = [0.0] * len(step_s)

        def shared(rank: int) -> SharedSteps:
            def add(counter: str, amount: int) -> int:
                self.asked[rank] += 1
                self.counters[counter] = self.counters.get(counter, 0) + amount
                return self.counters[counter]

            return SharedSteps(add, ranks=len(step_s), first=first, clock=lambda: now[rank])

        ranks = [shared(rank) for rank in range(len(step_s))]
        epoch = [first[0]] * len(step_s)
        queue = [(0.0, rank) for rank in range(len(step_s))]
        while queue:
            at_s, rank = heapq.heappop(queue)
            now[rank] = at_s
            while epoch[rank] < epochs and (number := ranks[rank].take(epoch[rank], steps)) is None:
                epoch[rank] += 1
            if epoch[rank] == epochs:
                self.ends_s[rank] = at_s
                continue
            self.taken.append((rank, epoch[rank], number))
            heapq.heappush(queue, (at_s + step_s[rank], rank))

    def made(self, rank: int) -> int:
        return sum(of == rank for of, _, _ in self.taken)


@pytest.mark.parametrize("slow_s", [0.002, 0.02, 0.06, 0.6])
@pytest.mark.parametrize(("steps", "epochs"), [(40, 30), (40, 1), (4, 50), (1, 30), (2000, 2)])
def test_every_step_is_made_once_and_no_epoch_is_cut_short(slow_s: float, steps: int, epochs: int) -> None:
    ranks = _Ranks([0.002, slow_s, 0.002], steps, epochs)
    made = sorted((epoch, number) for _, epoch, number in ranks.taken)
    assert made == [(epoch, number) for epoch in range(epochs) for number in range(steps)]


def test_a_rank_ten_times_slower_makes_its_eleventh() -> None:
    ranks = _Ranks([0.006, 0.06], 40, 30)
    share = ranks.made(0) / len(ranks.taken)
    assert share == pytest.approx(10 / 11, abs=0.01)
    even_s = 40 * 30 / (1 / 0.006 + 1 / 0.06)
    assert max(ranks.ends_s) < 1.02 * even_s, "as soon as both can be together"
    assert abs(ranks.ends_s[0] - ranks.ends_s[1]) <= 0.06, "at most one step of the slow rank is waited for"


def test_ranks_of_one_speed_make_as_many_steps() -> None:
    ranks = _Ranks([0.005] * 4, 80, 10)
    assert max(abs(ranks.made(rank) - 200) for rank in range(4)) <= 4


def test_most_steps_ask_no_other() -> None:
    fast = _Ranks([0.001, 0.001], 400, 10)
    assert sum(fast.asked) < 0.12 * len(fast.taken)
    slow = _Ranks([0.1, 0.1], 40, 10)
    assert sum(slow.asked) <= 1.1 * len(slow.taken), "one ask a step is nothing where steps are that long"


def test_no_rank_takes_more_ahead_than_it_makes_in_a_moment() -> None:
    ranks = _Ranks([0.01, 0.01], 1000, 1)
    longest = run = 1
    for (_, _, before), (_, _, number) in zip(
        *(lambda own: (own, own[1:]))([t for t in ranks.taken if t[0] == 0]), strict=False
    ):
        run = run + 1 if number == before + 1 else 1
        longest = max(longest, run)
    assert 2 <= longest <= math.ceil(LEASE_S / 0.01) + 1


def test_an_epoch_under_way_is_ended() -> None:
    ranks = _Ranks([0.01, 0.05], 20, 4, first=(2, 15))
    made = sorted((epoch, number) for _, epoch, number in ranks.taken)
    assert made == [(2, number) for number in range(15, 20)] + [(3, number) for number in range(20)]


def test_one_rank_makes_all_in_order() -> None:
    ranks = _Ranks([0.01], 6, 2)
    assert ranks.taken == [(0, epoch, number) for epoch in range(2) for number in range(6)]


def test_steps_that_a_rank_has_taken_ahead_stay_with_it() -> None:
    """One that makes a step in 2 ms holds 50 ms of them: if it becomes slow then, others wait for all of these."""
    counters: dict[str, int] = {}
    now = [0.0]

    def add(counter: str, amount: int) -> int:
        counters[counter] = counters.get(counter, 0) + amount
        return counters[counter]

    early, late = (SharedSteps(add, ranks=2, clock=lambda: now[0]) for _ in range(2))
    assert early.take(0, 101) == 0
    now[0] = 0.002
    first = early.take(0, 101)
    taken = counters["steps/0"] - 1
    assert first == 1 and 2 <= taken <= LEASE_S / 0.002
    others = [number for number in iter(lambda: late.take(0, 101), None)]
    assert others == list(range(1 + taken, 101))
    own = [number for number in iter(lambda: early.take(0, 101), None)]
    assert own == list(range(2, 1 + taken)), "each was given once"
