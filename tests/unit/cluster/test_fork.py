"""Runs that branch from checkpoints of other runs: the same settings go on bit for bit, others where they fit."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from dtdg_lab.cluster.fork import fork
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.runs import directory as directories
from dtdg_lab.runs.checkpoints import read_checkpoint
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.training.checkpoint import Checkpoint
from tests.steered_here import events, losses, scores, small, steered, trained
from tests.thinning import thinned

EVERY: list[tuple[str, dict[str, Any]]] = [
    ("single", {"epochs": 6, "optimizer": "adam"}),
    ("psg", {"model": "evolvegcn-o"}),
    ("dygnex-g", {"profile_epochs": 1}),
    ("esdg", {"epochs": 6, "blocks": 3}),
    ("adgnn-t", {"epochs": 6, "partitioner": "load_aware"}),
    ("pygt-dist", {"epochs": 6}),
    ("dbov", {"epoch_batches": 5, "batch_nodes": 0.2, "partitioner": "round_robin"}),
    ("flaredtdg", {"model": "mpnn-lstm", "tune": True, "tune_every": 2, "generated_snapshots": 28, "window": 4}),
    ("dynagraph", {}),
    (
        "greendygnn",
        {"task": "classification", "dataset": "sbm", "communities": 2, "generated_edges": 60, "batch_size": 8},
    ),
]


@pytest.fixture(scope="module")
def psg(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A run with checkpoints after each epoch and one within an epoch."""
    return steered(small("psg", keep_every=1), tmp_path_factory.mktemp("runs"), {6: {"keep": True}})


def last_parameters(run: StoredRun) -> dict[str, Any]:
    return Checkpoint.load(run.directory.checkpoint_file).model


def check_goes_on(run: StoredRun, again: StoredRun, step: int) -> None:
    """All that came after a step came again."""
    whole, rest = losses(run), losses(again)
    assert rest == {key: value for key, value in whole.items() if key[1] >= step} and rest
    described = scores(run)
    assert scores(again).items() <= described.items()
    assert {at for at in described if at[0] > step} <= scores(again).keys()
    first, last = last_parameters(run), last_parameters(again)
    assert all(torch.equal(first[name], last[name]) for name in first)
    assert again.status == run.status == "finished"


@pytest.mark.parametrize(("system", "settings"), thinned(EVERY, [3]), ids=[system for system, _ in EVERY])
def test_a_fork_with_equal_settings_goes_on_bit_for_bit(system: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """From the end of an epoch, and from the middle of one where epochs have several steps."""
    config = small(system, keep_every=2, **settings)
    whole = trained(config, tmp_path / "last.pt", script={3: {"keep": True}})
    described = whole.recorder.tables
    between, within = (read_checkpoint(tmp_path / f"{name}.pt") for name in ("epoch-00002", "step-00004"))
    assert (between.epoch, between.iteration, within.step) == (2, 0, 4)
    assert (within.iteration > 0) == (len(whole.losses) > config.epochs), "an epoch is one step, or several"
    for kept in (between, within):
        again = trained(kept.config, tmp_path / "again.pt", begin=kept.path)
        assert again.losses == whole.losses[kept.step :] and again.losses
        late = [
            [row[name] for name in ("step", "split", "loss", "metrics")]
            for row in described["evaluations"]
            if row["step"] > kept.step
        ]
        assert late == [
            [row[name] for name in ("step", "split", "loss", "metrics")]
            for row in again.recorder.tables["evaluations"]
            if row["step"] > kept.step
        ]
        assert all(torch.equal(of, whole.parameters[name]) for name, of in again.parameters.items())
        assert again.config == whole.config


@pytest.mark.slow
def test_a_fork_says_where_it_comes_from(psg: StoredRun, tmp_path: Path) -> None:
    begun = read_checkpoint(psg.path / "checkpoints" / "epoch-00001.pt")
    again = fork(psg, at=1, runs_dir=tmp_path, learning_rate=0.5)
    assert isinstance(again, StoredRun) and again.path.parent == tmp_path
    described = again.environment["forked"]
    assert (described["run"], described["checkpoint"], described["step"]) == (psg.id, "epoch-00001", begun.step)
    assert described["changes"] == {"learning_rate": 0.5} == dict(again.config.flat.items() - psg.config.flat.items())
    assert events(again, "forked") == [(begun.step, described)]
    (request,) = again.requests().itertuples()
    assert (request.who, request.step, request.outcome) == (f"fork of {psg.id}", begun.step, "applied")
    assert (request.setting, request.old, request.new) == ("learning_rate", psg.config.learning_rate, 0.5)
    assert min(step for _, step in losses(again)) == begun.step
    before, after = losses(psg)[0, begun.step], losses(again)[0, begun.step]
    assert before == after, "the first loss is of the old parameters"
    assert losses(psg)[0, begun.step + 1] != losses(again)[0, begun.step + 1]


@pytest.mark.slow
def test_a_fork_can_be_forked_and_needs_its_source_no_more(psg: StoredRun, tmp_path: Path) -> None:
    once = fork(psg, at=1, runs_dir=tmp_path)
    again = fork(once, at="begun", runs_dir=tmp_path)
    check_goes_on(psg, again, once.environment["forked"]["step"])


OTHERS: list[dict[str, Any]] = [
    {"system": "flaredtdg", "parts": 3, "epochs": 2},
    {"system": "single", "parts": 1, "epochs": 2},
    {"optimizer": "sgd", "dtype": "float64"},
    {"group_window": 2, "loss_at": "all"},
]


@pytest.mark.parametrize("changes", thinned(OTHERS, [1]), ids=str)
def test_whatever_the_parameters_fit_may_change(psg: StoredRun, changes: dict[str, Any], tmp_path: Path) -> None:
    again = fork(psg, at=1, runs_dir=tmp_path, **changes)
    assert again.status == "finished" and {name: again.config[name] for name in changes} == changes
    start = read_checkpoint(psg.path / "checkpoints" / "epoch-00001.pt").step
    assert min(step for _, step in losses(again)) == start
    before = scores(psg)[start, "validation"]
    assert scores(again)[max(scores(again))[0], "test"] > 0
    assert scores(again)[max(scores(again))[0], "validation"] < 1.2 * before, "it goes on from what was learned"


def test_what_waited_for_the_next_epoch_waits_in_the_fork_unless_it_is_set(tmp_path: Path) -> None:
    script = {2: {"set": {"group_window": 2}}, 3: {"keep": True}}
    run = steered(small("psg", epochs=2), tmp_path, script)
    again = fork(run, at="step-00004")
    check_goes_on(run, again, 4)
    assert [data["changes"] for _, data in events(again, "settings")] == [{"group_window": 2}]


def test_within_an_epoch_only_what_keeps_its_plan_may_change(psg: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"group_window .*step-00007.*iteration \d.*nearest .*'epoch-0000[12]'"):
        fork(psg, at="step-00007", runs_dir=tmp_path, group_window=2, learning_rate=0.1)
    again = fork(psg, at="step-00007", runs_dir=tmp_path, learning_rate=0.1, epochs=4)
    assert max(step for _, step in losses(again)) > max(step for _, step in losses(psg))


def test_a_finished_run_is_trained_on_for_as_many_epochs_again(psg: StoredRun, tmp_path: Path) -> None:
    last = psg.directory.checkpoints[-1]
    again = fork(psg, at="last", runs_dir=tmp_path, learning_rate=0.1)
    assert again.config.epochs == 2 * psg.config.epochs and again.summary["status"] == "finished"
    assert min(step for _, step in losses(again)) == last.step == max(step for _, step in losses(psg)) + 1


FIXED = {"hidden": 6, "model": "dcrnn", "layers": 2, "dataset": "sbm", "generated_nodes": 31, "task": "link"}
FIXED |= {"protocol": "dynahb"}


@pytest.mark.parametrize(
    ("at", "changes", "words"),
    [
        *((1, {name: value}, f"'{name}' cannot change in a fork") for name, value in FIXED.items()),
        (1, {"learning_rte": 0.1}, "learning_rate"),
        (1, {"learning_rate": -1.0}, "learning_rate"),
        (1, {"epochs": 1}, "has 1 epochs. Give epochs=2 or more"),
        (1, {"seed": 7}, "because its data depend on the seed"),
        ("last", {"epochs": 3}, "Give epochs=4 or more"),
        (9, {}, "has no such checkpoint.*epoch-00001 .*nearest .*'epoch-00003'"),
        ("epoch-00009", {}, "no such checkpoint"),
        ("../config.json", {}, "no such checkpoint"),
        (1, {"ranks": 2}, r"ranks=2.*session="),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    psg: StoredRun, at: str | int, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        fork(psg, at=at, runs_dir=tmp_path / "runs", **changes)
    assert not (tmp_path / "runs").exists()


# checkpoints that are kept


def test_checkpoints_are_kept_and_told(psg: StoredRun) -> None:
    names = [kept.name for kept in psg.directory.checkpoints]
    assert names == ["epoch-00001", "step-00007", "epoch-00002", "epoch-00003", "last"]
    assert [data["file"] for _, data in events(psg, "kept")] == [f"{name}.pt" for name in names[:-1]]
    for (step, data), kept in zip(events(psg, "kept"), psg.directory.checkpoints[:-1], strict=True):
        assert (step, data["epoch"], data["iteration"]) == (kept.step, kept.epoch, kept.iteration)
        held = Checkpoint.load(kept.path)
        assert (held.position.step, held.config_json) == (kept.step, kept.config.to_json())
        assert kept.data_hash == psg.environment["data"]["sha256"]


@pytest.mark.slow
def test_one_can_be_kept_in_a_pause_and_after_the_last_step(tmp_path: Path) -> None:
    run = steered(small("psg", epochs=1), tmp_path, {3: ({"pause": True}, {"keep": True}, {"pause": False})})
    assert [kept.name for kept in run.directory.checkpoints] == ["step-00004", "last"]
    last = run.summary["steps"]
    run = steered(small("psg", epochs=1), tmp_path, {last: {"keep": True}})
    assert [kept.name for kept in run.directory.checkpoints] == [f"step-{last:05d}", "last"]


def test_a_full_disk_ends_the_run_and_leaves_no_half_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = torch.save

    def full(held: Any, file: Any) -> None:
        if "epoch-00002" in file.name:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(held, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RunStoreError, match=r"epoch-00002.pt cannot be written.*No space left"):
        steered(small("psg", keep_every=1), tmp_path, {})
    (folder,) = tmp_path.iterdir()
    run = open_run(folder)
    assert run.status == "failed" and "epoch-00002" in run.reason
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["epoch-00001.pt", "last.pt"]
    monkeypatch.undo()
    assert fork(run, at=1).status == "finished"


def test_a_fork_that_fails_leaves_nothing(psg: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(directories.shutil, "copyfile", full)
    with pytest.raises(RunStoreError, match="disk is full"):
        fork(psg, at=1, runs_dir=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_damaged_checkpoint_is_left_out_and_named(psg: StoredRun, tmp_path: Path) -> None:
    run = fork(psg, at=2, runs_dir=tmp_path)
    whole = run.directory.checkpoint_file.read_bytes()
    for content in (b"", b"PK\x03\x04", whole[: len(whole) // 2], b"garbage" * 99):
        (run.path / "checkpoints" / "epoch-00009.pt").write_bytes(content)
        assert [kept.name for kept in run.directory.checkpoints] == ["begun", "epoch-00003", "last"]
        with pytest.raises(RunStoreError, match=r"epoch-00009.pt is not a readable checkpoint"):
            fork(run, at="epoch-00009")


def test_reading_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "touched",))

    torch.save({"position": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(RunStoreError, match=r"it names .*getattr"):
        read_checkpoint(tmp_path / "evil.pt")
    with pytest.raises(RunStoreError, match="not a readable checkpoint"):
        Checkpoint.load(tmp_path / "evil.pt")
    assert not (tmp_path / "touched").exists()
