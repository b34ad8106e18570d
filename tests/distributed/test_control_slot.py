"""The control word: one slot of the gradient exchange brings every change to all ranks at one step."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import threading
import time
from typing import Any

import pytest
import torch
from torch import nn

from dtdg_lab.config.record_tables import MAX_CONTROL_VERSION
from dtdg_lab.core.errors import ControlError
from dtdg_lab.distributed.gradients import FlatGradients
from dtdg_lab.distributed.group import Group
from tests.distributed.groups import in_groups

CHANGES = 1000
DTYPES = (torch.float32, torch.float64)
VERSIONS = [0, 1, 2**20 + 1, 2**23 + 1, 2**24 - 3, 2**24 - 2, 2**24 - 1]
MEETING_S = 0.05  # between two control rounds of a paused job; half a second in a real one


class _Asker(threading.Thread):
    """On rank 0: puts payloads into the store at random moments, then raises the version."""

    def __init__(self, store: Any, changes: list[dict[str, Any]], pause_s: float) -> None:
        super().__init__(daemon=True)
        self.version = 0
        self._store, self._changes, self._pause_s = store, changes, pause_s

    def run(self) -> None:
        moments = random.Random(5)
        for number, change in enumerate(self._changes, start=1):
            time.sleep(moments.expovariate(1 / self._pause_s))
            self._store.set(f"control/{number}", json.dumps(change))
            self.version = number  # after the payload: a rank that reads the version finds it


def _apply(store: Any, settings: dict[str, Any], applied: int, version: int) -> int:
    for number in range(applied + 1, version + 1):
        settings.update(json.loads(store.get(f"control/{number}")))
    return version


def _train_under_changes(group: Group, changes: list[dict[str, Any]]) -> dict[str, Any]:
    """Steps with a new version applied before each next one; ends when ``stop`` is applied."""
    parameter = nn.Parameter(torch.zeros(50))
    gradients = FlatGradients([parameter], group)
    asker = _Asker(group.store, changes, 0.001)
    settings: dict[str, Any] = {"learning_rate": 0.0, "paused": False, "stop": False}
    applied, step, history, meetings = 0, 0, [], []
    group.barrier()
    if group.rank == 0:
        asker.start()
    while not settings["stop"]:
        gradients.zero()
        gradients.gradients.fill_(float(group.rank + 1))
        agreed = gradients.exchange(version=asker.version, loss_sum=0.0, groups=1).agreed
        with torch.no_grad():
            parameter.sub_(settings["learning_rate"] * gradients.gradients)
        history.append((step, applied, settings["learning_rate"]))
        step += 1
        applied = _apply(group.store, settings, applied, agreed.version)
        while settings["paused"] and not settings["stop"]:
            time.sleep(MEETING_S)
            applied = _apply(group.store, settings, applied, gradients.agree(asker.version))
            meetings.append((step, applied, time.monotonic()))
    return {"history": history, "meetings": meetings, "parameter": parameter.detach(), "applied": applied}


@pytest.fixture(scope="module")
def thousand() -> list[dict[str, Any]]:
    """Four ranks, a thousand changes of the learning rate, then stop."""
    changes: list[dict[str, Any]] = [{"learning_rate": number * 1e-6} for number in range(1, CHANGES)]
    return in_groups(_train_under_changes, 4, [*changes, {"stop": True}])


def test_a_thousand_changes_and_no_step_of_disagreement(thousand: list[dict[str, Any]]) -> None:
    history = thousand[0]["history"]
    assert all(seen["history"] == history for seen in thousand)
    versions = [applied for _, applied, _ in history]
    assert versions == sorted(versions)
    assert len(set(versions)) > 5  # they came while it trained, not all at once
    assert all(seen["applied"] == CHANGES for seen in thousand)
    assert all(rate == applied * 1e-6 for _, applied, rate in history)


def test_stop_takes_effect_at_one_step(thousand: list[dict[str, Any]]) -> None:
    assert len({len(seen["history"]) for seen in thousand}) == 1


def test_changes_at_one_step_leave_the_same_bits(thousand: list[dict[str, Any]]) -> None:
    for seen in thousand[1:]:
        assert torch.equal(seen["parameter"], thousand[0]["parameter"])


def _stop_known_by_the_last(group: Group, dtype: torch.dtype) -> list[tuple[bool, int, float]]:
    """The last rank comes 0.4 s after the others, and hears of a stop before its third step."""
    gradients = FlatGradients([nn.Parameter(torch.zeros(8, dtype=dtype))], group)
    seen = []
    for step in range(4):
        group.barrier()
        time.sleep(0.4 * (group.rank == group.size - 1))
        exchanged = gradients.exchange(
            version=step, loss_sum=0.0, groups=1, stops=group.rank == group.size - 1 and step == 2
        )
        seen.append((exchanged.agreed.stops, exchanged.agreed.version, exchanged.times().wait_s))
    return seen


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_stop_that_any_rank_knows_reaches_all_with_that_step(dtype: torch.dtype) -> None:
    for rank, seen in enumerate(in_groups(_stop_known_by_the_last, 3, dtype)):
        assert [stops for stops, _, _ in seen] == [False, False, True, False]
        assert [version for _, version, _ in seen] == [0, 1, 2, 3]
        wait_s = statistics.median(wait_s for _, _, wait_s in seen)
        assert (0.2 < wait_s < 2) == (rank < 2), "arrival times say what they said"


def test_paused_ranks_meet_leave_together_and_can_be_stopped() -> None:
    asked: list[dict[str, Any]] = []
    for number in range(40):
        asked += [{"paused": True}, {"learning_rate": number * 1e-3}, {"paused": False}, {"learning_rate": 0.5}]
    # the pauses come 1 ms after each other: some are over before a meeting, so a long one follows
    asked += [{"paused": True}, *[{"learning_rate": float(number)} for number in range(400)]]
    results = in_groups(_train_under_changes, 4, [*asked, {"stop": True}])
    rounds = [[(step, applied) for step, applied, _ in seen["meetings"]] for seen in results]
    assert len(rounds[0]) >= 3
    assert all(own == rounds[0] for own in rounds)
    assert all(seen["history"] == results[0]["history"] for seen in results)
    assert rounds[0][-1] == (len(results[0]["history"]), len(asked) + 1)  # stopped in the pause, without another step
    for seen in results:
        moments = [(step, moment) for step, _, moment in seen["meetings"]]
        apart_s = [after[1] - before[1] for before, after in itertools.pairwise(moments) if before[0] == after[0]]
        assert apart_s
        assert max(apart_s) < 2.0
    for met in zip(*(seen["meetings"] for seen in results), strict=True):
        left_s = [moment for _, _, moment in met]
        assert max(left_s) - min(left_s) < 2.0


def _send_versions(group: Group) -> list[tuple[list[int], str]]:
    results = [_send(FlatGradients([nn.Parameter(torch.zeros(10, dtype=dtype))], group)) for dtype in DTYPES]
    return results


def _send(gradients: FlatGradients) -> tuple[list[int], str]:
    received = []
    for version in VERSIONS:
        gradients.zero()
        gradients.gradients.fill_(1e30)  # neighbours in the buffer do not disturb the slot
        received.append(gradients.exchange(version=version, loss_sum=0.5, groups=1).agreed.version)
    validate_settings = ""
    try:
        gradients.exchange(version=2**24, loss_sum=0.0, groups=1)
    except ControlError as error:
        validate_settings = str(error)
    return received, validate_settings


def test_the_slot_is_exact_to_the_last_version_and_refuses_the_next() -> None:
    assert VERSIONS[-1] == MAX_CONTROL_VERSION
    for rank in in_groups(_send_versions, 2):
        for received, validate_settings in rank:
            assert received == VERSIONS
            assert "16777216" in validate_settings
            assert "16777215" in validate_settings
