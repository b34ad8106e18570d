"""One run from its config to its end, judged by its validation split and by nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.cluster.stopping_rule import Bench, Evaluated, Verdict
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.records.requests import Stop
from tests.factories import small_config

CONFIG = small_config(epochs=6, threads=1)


def after(evaluations: int, what: Any) -> Any:
    """A judge that has seen enough after some evaluations, and remembers what it saw."""

    def judge(seen: tuple[Evaluated, ...]) -> Verdict | None:
        judge.seen = seen  # type: ignore[attr-defined]
        return Verdict(what, "enough") if len(seen) >= evaluations else None

    return judge


def test_finishing_ends_with_the_epoch_and_judges_the_test_part_once(tmp_path: Path) -> None:
    done = run_config(CONFIG, runs_dir=tmp_path, judge=after(2, "finish"))
    assert done.verdict == Verdict("finish", "enough") and done.run.status == "finished"
    (request,) = done.run.requests().itertuples()
    assert (request.who, request.setting, request.outcome) == ("stopping rule", "epochs", "applied")
    assert done.run.summary["epochs"] == 3, "the third had begun"
    assert done.run.summary["test_loss"] is not None
    again = run_config(CONFIG, runs_dir=tmp_path, judge=after(2, "finish"))
    assert [again.run.summary[name] for name in ("steps", "test_loss", "validation_loss")] == [
        done.run.summary[name] for name in ("steps", "test_loss", "validation_loss")
    ]


def test_stopping_ends_at_once_and_never_looks_at_the_test_part(tmp_path: Path) -> None:
    done = run_config(CONFIG, runs_dir=tmp_path, judge=after(2, "stop"))
    assert done.run.status == "stopped" and done.run.summary["test_loss"] is None
    assert done.run.directory.checkpoint_file.is_file()


@pytest.mark.slow
def test_a_judge_sees_every_evaluation_of_validation_and_no_other_part(tmp_path: Path) -> None:
    judge = after(99, "stop")
    done = run_config(CONFIG.replace(epochs=4), runs_dir=tmp_path, judge=judge)
    described = done.run.table("evaluations")
    described = described[described["split"] == "validation"].drop_duplicates("step")
    assert [each.loss for each in judge.seen] == list(described["loss"])
    assert [each.epoch for each in judge.seen] == [1, 2, 3, 4]
    assert all(a.seconds < b.seconds for a, b in zip(judge.seen, judge.seen[1:], strict=False))


def test_the_test_part_is_no_evidence() -> None:
    bench = Bench(after(1, "stop"), epochs=5)
    row = {"step": 3, "epoch": 1, "time_ns": 10, "split": "test", "loss": 0.1}
    assert bench.evaluated(row) is None and bench.evaluated({**row, "split": "train"}) is None
    assert bench.evaluated({**row, "split": "validation"}) == Stop()


def test_a_run_that_is_in_its_last_epoch_is_left_alone() -> None:
    bench = Bench(after(1, "finish"), epochs=2)
    row = {"step": 3, "epoch": 1, "time_ns": 10, "split": "validation", "loss": 0.1}
    assert bench.evaluated(row) is None and bench.verdict is None


def test_what_is_seen_of_a_run_in_this_process_is_all_of_it(tmp_path: Path) -> None:
    seen: list[Any] = []
    done = run_config(CONFIG.replace(epochs=2), runs_dir=tmp_path, on_start=seen.append)
    (local,) = seen
    assert local.id == done.run.id and local.status == "finished" and local.version > 0
    assert local.live.progress.step == done.run.live.progress.step
    evaluations, of_done = (each.live.rows("evaluations") for each in (local, done.run))
    assert evaluations["loss"].tolist() == of_done["loss"].tolist() != []


def test_wrong_verdicts_and_engines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'finish' or 'stop'"):
        Verdict("pause", "")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="need a session"):
        run_config(CONFIG, engines=(0,), runs_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"replace\(ranks=1\)"):
        run_config(CONFIG.replace(ranks=2, parts=2), runs_dir=tmp_path)
    assert not list(tmp_path.iterdir())
