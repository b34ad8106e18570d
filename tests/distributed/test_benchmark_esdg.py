"""What benchmarks/esdg.py tells follows from what ranks did, and its parts run alone."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from dtdg_lab.engine.capabilities import ObservesSteps, Replannable, StepOutcome

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CORES = tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture
def esdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The benchmark as a module, with a fresh cache."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path))
    yield importlib.import_module("esdg")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("contenders", "esdg")]:
        del sys.modules[name]


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


@pytest.mark.slow
def test_volumes_on_the_links_are_those_computed(esdg: ModuleType, plan: Any) -> None:
    pytest.importorskip("mtkahypar")
    two, four = esdg.esdg_rows.volume_rows(plan, "cdgcn", CORES)
    assert two["links_equal"] is True and two["counted"] == [two["snapshot"], two["hypergraph"]]
    assert len(two["time_ratio"]) == 3 and two["time_ratio"][0] > 0
    assert two["clock"] == ("wall" if len(CORES) >= 2 else "cpu")
    assert (four["links_equal"], four["time_ratio"]) == (None, None)
    assert four["paper_ratio"] == pytest.approx(0.4 / 13.8) and four["paper_time_ratio"] == pytest.approx(6252 / 3867)
    assert "equal" in esdg.words.volume_text(two) and "not run" in esdg.words.volume_text(four)
    json.dumps([two, four])


@pytest.mark.slow
def test_scaling_is_fitted_to_what_ranks_did(
    esdg: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exchanges, bytes sent and graphs brought are those counted before; seconds of steps held out judge."""
    if len(CORES) < 2:
        pytest.skip("exchanges are timed where two ranks have cores of their own")
    scaling = esdg.esdg_scaling
    cases = [scaling.Case(1, 2, fitted=True), scaling.Case(2, 1, fitted=True), scaling.Case(2, 2, fitted=False)]
    monkeypatch.setattr(scaling, "CASES", cases)
    seen: list[Any] = []
    real = scaling.step_of

    def step_of(*args: Any, **kwargs: Any) -> Any:
        made = real(*args, **kwargs)
        seen.append((made.work, args[3]))
        return made

    monkeypatch.setattr(scaling, "step_of", step_of)
    described = esdg.DO["weak"](plan)["weak"]
    assert [work.ranks for work, _ in seen] == [1, 2, 2] and seen[2][0].edges == 2 * seen[1][0].edges
    for work, by_rank in seen:
        sent = np.zeros_like(work.sent)
        for rank, (step,) in enumerate(by_rank):
            for _, _, to, _, moved in step["links"]:
                sent[rank, to] += moved
            assert step["exchanges"] == max(0, work.exchanges - 1)  # that of gradients is no leg
            assert step["brought"][0] == work.brought[rank, 0] and step["brought"][2] == work.brought[rank, 2]
            assert work.brought[rank, 1] <= step["brought"][1] <= work.brought[rank, 1] / 0.95
        assert sent.tolist() == work.sent.tolist()
    predicted = [row for row in described["rows"] if row["source"] == "predicted"]
    assert [row["nodes"] for row in predicted][:3] == [32, 64, 512]
    assert predicted[-1]["nodes"] == 16 * esdg.paper.WEAK_NODES
    assert {error["fitted"] for error in described["errors"]} == {True, False}
    assert described["rates"]["cdgcn"]["message_s"] >= 0
    said = capsys.readouterr().out
    assert "1 held-out step" in said and "not within what was measured" in said
    json.dumps(described)


@pytest.mark.slow
def test_overlap_and_blocks_change_times_not_losses(esdg: ModuleType, plan: Any) -> None:
    quick, *_, slow = esdg.esdg_rows.overlap_rows(plan, "cdgcn", 2, CORES)
    assert (quick["links"], slow["links"]) == ("native", "50 MB/s")
    assert quick["losses_apart"] == slow["losses_apart"] == 0
    assert slow["hidden_on"] > slow["hidden_off"]  # pieces leave while others are computed
    assert "50 MB/s" in esdg.words.overlap_text(slow)
    one, two, streamed = esdg.esdg_rows.block_rows(plan, "cdgcn", CORES)
    assert (one["peak_share"], one["time_ratio"]) == (1, (1, 1, 1))
    assert two["peak_share"] > 0 and two["gradient_difference"] < 1e-5
    assert (two["kept_bytes"] > 0, streamed["kept_bytes"], streamed["graphs"]) == (True, 0, "streamed")
    assert f"{two['peak_share']:.1%}" in esdg.words.block_text(two)


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


def test_curves_coincide(esdg: ModuleType, plan: Any) -> None:
    pytest.importorskip("mtkahypar")
    rows = esdg.esdg_rows.curve_rows(plan, plan.linked[0], CORES)
    assert [(row["system"], row["ranks"]) for row in rows] == [
        (system, ranks) for ranks in (1, 2) for system in ("esdg", "hypergraph-vertex")
    ]
    assert all(row["apart"] <= 1e-5 for row in rows) and rows[0]["apart"] == 0
    assert all(0 <= row["accuracy"] <= 1 and len(row["losses"]) == 2 for row in rows)
    assert rows[0]["losses"][0] != rows[0]["losses"][1]


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


@pytest.mark.parametrize(
    ("given", "known"), [(["table"], "transfers"), (["--models", "gru"], "tmgcn"), (["--ranks", "0"], "from 1")]
)
def test_wrong_arguments_are_named(
    esdg: ModuleType, capsys: pytest.CaptureFixture[str], given: list[str], known: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        esdg.arguments(given)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert given[-1] in said
    assert known in said


def test_data_that_is_not_here_is_left_out(
    esdg: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = [
        dataclasses.replace(known, on_this_machine=known.name in ("powerlaw", "transactions", "uniform"))
        for known in esdg.list_datasets()
    ]
    monkeypatch.setattr(esdg, "list_datasets", lambda: nowhere)
    chosen = esdg.planned(esdg.arguments(["links", "--ranks", "2"]))
    assert [each.name for each in chosen.linked] == ["transactions"]
    assert [each.name for each in chosen.transfers] == ["powerlaw"] and chosen.ranks == (2,)
    assert "collegemsg: not here" in capsys.readouterr().out
