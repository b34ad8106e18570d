"""Studies: every run once, gone on with after any break, failed ones told, pruned by validation, compared honestly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from optuna.pruners import BasePruner, MedianPruner, SuccessiveHalvingPruner, ThresholdPruner

from dtdg_lab.cluster.stopping_rule import Evaluated
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, NotFiniteError, RunFailedError, RunStoreError, UnknownNameError
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.search import pruning_judge
from dtdg_lab.studies.search_space import choice, integer, uniform
from dtdg_lab.studies.study import Study, open_study
from dtdg_lab.studies.sweep import Cell, Sweep
from dtdg_lab.studies.trial_runner import time_left
from dtdg_lab.studies.trials import FILE, Trial, one_writer
from tests.pretend_studies import BASE, PretendTraining, pretend_training
from tests.thinning import thinned

K, ALPHAS = (1, 2), (0.1, 0.6)
CELLS = [(k, alpha, seed) for seed in (0, 1) for k in K for alpha in ALPHAS]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> PretendTraining:
    return pretend_training(monkeypatch)


def grid(**changes: Any) -> Sweep:
    over = {"full_snapshots": K, "alpha": ALPHAS}
    return Sweep(**{"base": BASE, "over": over, "seeds": (0, 1), **changes})


def study_in(folder: Path, sweep: Sweep | None = None, **how: Any) -> Study:
    return run_study(sweep or grid(), name="s", runs_dir=folder, progress=False, **how)


def test_every_run_is_made_once_and_told_as_it_ends(tmp_path: Path, training: PretendTraining) -> None:
    seen: list[Study] = []
    study = study_in(tmp_path, on_trial=seen.append)
    assert training.made == CELLS and study.is_complete
    assert [each.counts.get("finished", 0) for each in seen] == list(range(9))
    assert [each.counts.get("waiting", 0) for each in seen] == list(range(8, -1, -1))
    again = study_in(tmp_path)
    assert training.made == CELLS, "a finished run was made again"
    opened = open_study(tmp_path / "studies" / "s")
    assert opened.trials == again.trials == study.trials and opened.sweep == grid()
    assert all((tmp_path / trial.run.name / "config.json").is_file() for trial in study.trials)


def test_its_table_says_what_losses_stand_on(tmp_path: Path, training: PretendTraining) -> None:
    study = study_in(tmp_path)
    table = study.table
    assert list(table["full_snapshots"]) == [cell[0] for cell in CELLS] and set(table["status"]) == {"finished"}
    for column, value in {"protocol": "warm", "purge": 0, "data": "aabbccddeeff", "persistence_loss": 3.0}.items():
        assert set(table[column]) == {value}
    assert table["objective"][3] == pytest.approx(0.1) and table["skill"][3] == pytest.approx(1 - 0.2 / 3)
    assert "<table" in study._repr_html_() and "Best validation_loss: 0.105" in repr(study)
    best = study.best
    assert best is not None and best.settings == {"full_snapshots": 2, "alpha": 0.6}
    assert best.values == pytest.approx((0.1, 0.11)) and best.middle == pytest.approx(0.105)
    shares = study.importance
    assert list(shares) == ["full_snapshots", "alpha"] and sum(shares.values()) == pytest.approx(1)
    assert shares["full_snapshots"] == pytest.approx(1 / 1.25), "means of K are 1 apart, of alpha 0.5"


def test_more_of_the_same_goes_on_and_anything_else_is_refused(tmp_path: Path, training: PretendTraining) -> None:
    study_in(tmp_path)
    wider = grid(over={"full_snapshots": (1, 2, 3), "alpha": ALPHAS}, seeds=(0, 1, 2))
    assert study_in(tmp_path, wider).is_complete
    assert len(training.made) == 18 and training.made[8:10] == [(3, 0.1, 0), (3, 0.6, 0)]
    for other, message in (
        (grid(), "it had the run .*not removed"),
        (grid(base=BASE.replace(hidden=8), over=wider.over, seeds=(0, 1, 2)), "hidden was 4 and is 8"),
        (grid(over=wider.over, seeds=(0, 1, 2), objective="peak_bytes"), "objective was 'validation_loss'"),
        (Sweep(BASE, space={"alpha": uniform(0.1, 1)}, trials=2), "one is a grid and the other a search"),
    ):
        with pytest.raises(ConfigError, match=message):
            study_in(tmp_path, other)
    assert open_study(tmp_path / "studies" / "s").sweep == wider, "a refused call changed the study"
    study_in(tmp_path, restart=True)
    assert len(training.made) == 26
    assert open_study(tmp_path / "studies" / "s" / "before-1").sweep == wider, "what was there is kept"


def test_failed_trials_keep_their_reason_and_are_tried_once_a_call(tmp_path: Path, training: PretendTraining) -> None:
    asked = []

    def fail(config: RunConfig) -> None:
        asked.append(config["full_snapshots"])
        if config["full_snapshots"] == 2:
            raise NotFiniteError("a loss is not finite") if config["alpha"] < 0.5 else RuntimeError("out of memory")

    training.before = fail
    study = study_in(tmp_path)
    assert study.counts == {"finished": 4, "failed": 4} and len(asked) == 8 and not study.is_complete
    reasons = {trial.reason for trial in study.trials if trial.status == "failed"}
    assert reasons == {"a loss is not finite", "RuntimeError: out of memory"}
    assert study.best.settings["full_snapshots"] == 1
    assert study_in(tmp_path).counts == {"finished": 4, "failed": 4} and len(asked) == 12
    training.before = lambda config: None
    assert study_in(tmp_path).counts == {"finished": 8}


@pytest.mark.parametrize("error", [RunStoreError("the disk is full"), KeyboardInterrupt()], ids=["disk", "interrupt"])
def test_a_study_that_broke_off_goes_on(tmp_path: Path, training: PretendTraining, error: BaseException) -> None:
    def break_off(config: RunConfig) -> None:
        if len(training.made) == 3:
            raise error

    training.before = break_off
    with pytest.raises(type(error)):
        study_in(tmp_path)
    assert open_study(tmp_path / "studies" / "s").counts == {"finished": 3, "interrupted": 1, "waiting": 4}
    training.before = lambda config: None
    assert study_in(tmp_path).is_complete and len(training.made) == 8


def test_a_run_that_somebody_stopped_ends_the_study(tmp_path: Path, training: PretendTraining) -> None:
    training.status = "stopped"
    with pytest.raises(RunFailedError, match="was stopped, and the study with it"):
        study_in(tmp_path)
    training.status = "finished"
    study = study_in(tmp_path)
    assert study.is_complete and "starts again" in study.trials[0].notes[0]


def test_killed_after_any_line_no_finished_run_is_repeated_or_lost(tmp_path: Path, training: PretendTraining) -> None:
    """The log is cut after every line, and in the middle of it; folders stay as they were, with one run half made."""
    sweep = grid(over={"full_snapshots": K, "alpha": (0.1,)}, seeds=(0,))
    study_in(tmp_path, sweep)
    log = tmp_path / "studies" / "s" / FILE
    lines, runs = log.read_bytes().splitlines(keepends=True), set(tmp_path.glob("*/config.json"))
    started = [
        number for number, line in enumerate(lines, start=1) if b'"status":"running","reason":"","run":null' in line
    ]
    assert len(started) == len(runs) == 2
    for count in range(1, len(lines)):
        for torn in (b"", lines[count][:20]):
            log.write_bytes(b"".join(lines[:count]) + torn)
            training.made.clear()
            study = study_in(tmp_path, sweep)
            assert len(training.made) == sum(count < line for line in started), (count, torn)
            assert study.counts == {"finished": 2} and study.trials[0].run.parent == tmp_path
            for path in set(tmp_path.glob("*/config.json")) - runs:
                [each.unlink() for each in path.parent.rglob("*") if each.is_file()]


def test_a_half_made_run_is_marked_and_begun_anew(tmp_path: Path, training: PretendTraining) -> None:
    sweep = grid(over={"full_snapshots": (1,), "alpha": (0.1,)}, seeds=(0,))
    study_in(tmp_path, sweep)
    log = tmp_path / "studies" / "s" / FILE
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b"finished" not in line)[: -len(lines[-1])])
    [half] = tmp_path.glob("*-flaredtdg-*")
    RunDirectory.open(half).write_status("running")
    study = study_in(tmp_path, sweep)
    assert study.is_complete and study.trials[0].run != half and len(training.made) == 2
    assert RunDirectory.open(half).status()["state"] == "failed"
    assert study.trials[0].notes == (
        f"its run {half.name} was failed when the study was called again, so it starts again",
    )


def test_there_is_one_writer_at_a_time(tmp_path: Path, training: PretendTraining) -> None:
    study_in(tmp_path)
    with (
        one_writer(tmp_path / "studies" / "s"),
        pytest.raises(RunStoreError, match=r"another call in this process.*one writer"),
    ):
        study_in(tmp_path)
    study_in(tmp_path)


def test_pruned_runs_are_those_that_validation_says_and_are_not_best(tmp_path: Path, training: PretendTraining) -> None:
    over = {"full_snapshots": (2, 1, 3, 4, 5), "alpha": (0.6,)}
    study = study_in(tmp_path, grid(over=over, seeds=(0,)), prune=MedianPruner(n_startup_trials=2, n_warmup_steps=2))
    assert [trial.status for trial in study.trials] == ["finished", "finished", "pruned", "pruned", "pruned"]
    assert "after 2 epochs, pruned by MedianPruner" in study.trials[2].reason and len(study.trials[2].curve) == 2
    assert study.best.settings["full_snapshots"] == 2 and study.is_complete
    assert study.combinations[2].values == (), "a pruned run's number is not compared"
    made = len(training.made)
    study_in(tmp_path, grid(over=over, seeds=(0,)), prune=MedianPruner(n_startup_trials=2, n_warmup_steps=2))
    assert len(training.made) == made, "a pruned run was made again"


def prunes(pruner: BasePruner, losses: list[float], earlier: list[list[float]]) -> bool:
    """Whether a run is stopped at its last evaluation, and not before."""
    trials = [Trial(str(n), n, {}, 0, status="finished", curve=tuple(enumerate(c, 1))) for n, c in enumerate(earlier)]
    judge, evaluated = pruning_judge(pruner, trials), [Evaluated(n, n, 1.0, loss) for n, loss in enumerate(losses, 1)]
    *before, last = [judge(tuple(evaluated[:count])) for count in range(1, len(evaluated) + 1)]
    assert not any(before)
    return last is not None


def test_optuna_s_pruners_compare_the_losses_at_an_epoch() -> None:
    earlier = [[1.0, 0.5, 0.1], [2.0, 0.7, 0.1], [3.0, 0.9, 0.1]]
    median = MedianPruner(n_startup_trials=3)
    assert prunes(median, [2.5], earlier) and not prunes(median, [1.5], earlier)
    assert not prunes(median, [2.0, 0.6], earlier), "a pruner sees no later epochs of other runs"
    assert not prunes(MedianPruner(n_startup_trials=4), [9.0], earlier)
    halving = SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    assert prunes(halving, [2.5], earlier) and not prunes(halving, [0.5], earlier)
    assert prunes(ThresholdPruner(upper=1.0), [1.5], []) and not prunes(ThresholdPruner(upper=2.0), [1.5], [])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sweep": grid(base=BASE.replace(protocol="flare-2026")), "prune": MedianPruner()}, "has no validation split"),
        (
            {"sweep": Sweep(BASE.replace(protocol="flare-2026"), space={"alpha": uniform(0.1, 1)}, trials=2)},
            "which is needed to compare runs",
        ),
        ({"sweep": grid(over={"edge_life": (1, 2)}), "prune": MedianPruner()}, "cannot be pruned"),
        ({"sweep": grid(base=BASE.replace(ranks=2, parts=2))}, "need engines"),
        ({"sweep": grid(), "prune": "median"}, r"Give a pruner of Optuna, such as optuna.pruners.MedianPruner\(\)"),
        ({"sweep": grid(), "quick": True}, "only to shipped studies"),
        ({"sweep": "figure9"}, "Did you mean 'figure8'"),
        ({"sweep": grid(), "name": "a/b"}, "needs a name"),
    ],
)
def test_what_can_be_known_before_is_said_before(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    given = {"name": "s", **how}
    with pytest.raises(ConfigError, match=message):
        run_study(given.pop("sweep"), runs_dir=tmp_path / "runs", progress=False, **given)
    assert not (tmp_path / "runs").exists()


def test_a_search_shares_runs_and_tells_what_no_config_allows(tmp_path: Path, training: PretendTraining) -> None:
    space = {"full_snapshots": choice(1, 2), "window": integer(1, 2)}
    sweep = Sweep(BASE, space=space, trials=12, sampler="random")
    study = study_in(tmp_path, sweep)
    assert study.is_complete and len(study.trials) == 12
    refused = [trial for trial in study.trials if trial.status == "refused"]
    assert refused and all(trial.settings == {"full_snapshots": 2, "window": 1} for trial in refused)
    assert "full_snapshots=2 exceeds window=1" in refused[0].reason
    assert len(training.made) == 3, "equal draws are one run"
    shared = [trial for trial in study.trials if trial.notes]
    assert len(shared) == 12 - 3 - len(refused) and "and shares its run" in shared[0].notes[0]
    more = study_in(tmp_path, Sweep(BASE, space=space, trials=14, sampler="random"))
    assert len(more.trials) == 14 and more.trials[:12] == study.trials
    with pytest.raises(ConfigError, match="14 trials, but now 3 are given"):
        study_in(tmp_path, Sweep(BASE, space=space, trials=3, sampler="random"))


def test_a_search_says_what_matters(tmp_path: Path, training: PretendTraining) -> None:
    space = {"alpha": uniform(0.5, 0.6), "full_snapshots": integer(1, 8)}
    study = study_in(tmp_path, Sweep(BASE, space=space, trials=20, sampler="random"))
    assert study.importance["full_snapshots"] > 0.8 and sum(study.importance.values()) == pytest.approx(1)


def test_a_tpe_search_draws_where_it_was_good(tmp_path: Path, training: PretendTraining) -> None:
    sweep = Sweep(BASE, space={"full_snapshots": integer(1, 8), "alpha": uniform(0.5, 0.6)}, trials=25)
    study = study_in(tmp_path, sweep)
    assert study.best.settings["full_snapshots"] == 2
    drawn = [trial.settings["full_snapshots"] for trial in study.trials]
    assert drawn[12:].count(2) > 4 >= drawn[:12].count(2), "it draws more where it was good"
    assert list(study.panels()) == ["history", "parallel"]


def test_losses_of_different_data_have_no_best(tmp_path: Path, training: PretendTraining) -> None:
    study = study_in(tmp_path, grid(over={"edge_life": (1, 2), "alpha": ALPHAS}, seeds=(0,)))
    assert study.best is None and study.best_where(edge_life=2).settings == {"edge_life": 2, "alpha": 0.6}
    with pytest.raises(UnknownNameError, match="setting of the study"):
        study.best_where(hidden=3)


def test_heat_maps_are_of_two_of_the_settings(tmp_path: Path, training: PretendTraining) -> None:
    study = study_in(tmp_path, grid(over={"full_snapshots": K, "alpha": ALPHAS, "hidden": (2, 4)}))
    figure = study.heat_map("hidden", "alpha", colour="peak_bytes")
    assert figure["data"][0]["z"] == [[1500.0, 1500.0], [1500.0, 1500.0]]
    assert "the median over full_snapshots too" in study.map_panel("hidden", "alpha")[1]
    assert list(study.panels()) == ["parallel"]
    for given in ({"x": "alpha", "y": "alpha"}, {"x": "epochs"}, {"colour": "speed"}):
        with pytest.raises(ConfigError):
            study.heat_map(**given)


def test_time_left_is_by_cost() -> None:
    done = [
        Trial(str(n), n, {"k": k}, 0, status="finished", seconds=s, values={"epochs": 2})
        for n, (k, s) in enumerate([(1, 4), (1, 6), (9, 50)])
    ]
    left = [Cell(n, {"k": k}, 0, BASE.replace(epochs=epochs)) for n, (k, epochs) in enumerate([(1, 2), (9, 4)])]
    assert time_left(done, left) == pytest.approx(5 + 100)
    assert time_left([], left) is None


@pytest.mark.parametrize("damage", thinned(["{", '{"base": {}, "over": {"alpha": []}}', '{"base": {}, "schema": 7}']))
def test_a_damaged_study_is_told_and_left_alone(tmp_path: Path, training: PretendTraining, damage: str) -> None:
    study = study_in(tmp_path)
    (study.path / "sweep.json").write_text(damage)
    before = {file: file.read_bytes() for file in study.path.iterdir() if file.is_file()}
    for call in (lambda: open_study(study.path), lambda: study_in(tmp_path)):
        with pytest.raises(RunStoreError, match=r"sweep\.json cannot be read"):
            call()
    assert {file: file.read_bytes() for file in study.path.iterdir() if file.is_file()} == before
    with pytest.raises(RunStoreError, match="is not a study"):
        open_study(tmp_path)
