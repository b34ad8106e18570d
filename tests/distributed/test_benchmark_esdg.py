"""What benchmarks/esdg.py tells follows from what ranks did, and its parts run alone."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from dtdg_lab.engine.capabilities import ObservesSteps, Replannable, StepOutcome
from tests.distributed.benchmark_modules import benchmark

CORES = tuple(sorted(os.sched_getaffinity(0)))


esdg = benchmark("esdg")


@pytest.fixture
def plan(esdg: ModuleType) -> Any:
    """Eighty accounts, ten snapshots, one timed turn, one model, two ranks."""
    sizes = importlib.import_module("contenders.esdg_plan")
    tiny = sizes.generated("tiny", "transactions", 80, 160, 12)
    small = sizes.Scaling("uniform", 32, 8)
    return dataclasses.replace(
        esdg.QUICK_PLAN,
        models=("cdgcn",),
        workload=tiny,
        linked=(tiny,),
        transfers=(tiny,),
        ranks=(1, 2),
        turns=1,
        overlapped=sizes.generated("rows", "powerlaw", 3_000, 6_000, 24),
        repeats=1,
        blocks=(1, 2),
        counted=(2, 4),
        strong=small,
        weak=small,
        predicted=(1, 2, 16),
        epochs=2,
    )


def test_an_automatic_choice_ends(esdg: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy asks for its trial as long as it lives; what ends the trial is what it returns from an epoch."""
    steps = importlib.import_module("contenders.esdg_steps")
    ends: list[tuple[str, ...]] = [(), (), ("overlap",)]
    seconds: list[float] = []

    class Trial(Replannable, ObservesSteps):
        epoch_changes: ClassVar = {"overlap": "auto"}

        def on_step_end(self, outcome: StepOutcome) -> None:
            seconds.append(outcome.seconds)

        def on_epoch_end(self) -> tuple[str, ...]:
            return ends.pop(0)

        def adopt_plan(self, recorded: Any) -> tuple[str, ...]:
            raise NotImplementedError

    strategy = Trial()
    monkeypatch.setattr(steps, "one_step", lambda built, epoch: {"seconds": 0.5, "communicate": 0.25})
    steps._chosen(SimpleNamespace(strategy=strategy), SimpleNamespace(barrier=lambda: None))
    assert seconds == [0.5] * 3 and not ends


def test_steps_are_joined_over_ranks(esdg: ModuleType) -> None:
    joined = importlib.import_module("contenders.esdg_steps").joined
    ranks = [
        [
            {
                "seconds": 10.0 + rank,
                "own": {"wall": 4.0, "cpu": 3.0 - rank},
                "transfer": {"wall": 1.0, "cpu": 0.5},
                "communicate": 2.0 + rank,
                "wait": 1.0,
                "links": [(0, "forward", 1, 5, 20)],
                "exchanges": 2,
                "in_flight_s": 4.0,
                "exposed_s": 1.0 + rank,
                "brought": [1, 2, 3],
                "loss": 0.5,
            }
        ]
        for rank in range(2)
    ]
    (wall,), (cpu,) = joined(ranks, clock="wall"), joined(ranks, clock="cpu")
    assert (wall["seconds"], cpu["seconds"]) == (11.0, 3.5)  # the slowest rank's, and its own work alone
    assert wall["hidden"] == pytest.approx(1 - 3 / 8) and wall["bytes"] == 40
    assert (wall["communicate_s"], wall["transfer_s"], cpu["transfer_s"]) == (3.0, 1.0, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["transfers", "blocks", "overlap", "volumes", "weak", "links"])
def test_a_part_runs(esdg: ModuleType, plan: Any, part: str) -> None:
    pytest.importorskip("mtkahypar")
    measured = esdg.DO[part](plan)
    json.dumps(measured)
    assert all(measured.values())
