"""Races, studies and windows where things go wrong: gone folders, late verdicts, callbacks that raise, lost seeds."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtdg_lab.cluster.one_run import EndedRun, run_config
from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.stopping_rule import Evaluated, Verdict
from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, DataError, RunFailedError, RunStoreError
from dtdg_lab.dashboard.pages import race as race_page
from dtdg_lab.dashboard.pages.race import RacePage
from dtdg_lab.forecast.measured_runs import check_usable
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.studies import near_best
from dtdg_lab.studies import race as race_module
from dtdg_lab.studies import trial_runner as race_runner
from dtdg_lab.studies.near_best import near_best_bars
from dtdg_lab.studies.race import RaceRunner
from dtdg_lab.studies.race_plan import RacePlan, check_alike, find_race, new_race
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.race_table import Row, spread, spreads_of, winners
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.sweep import Axis, Sweep
from dtdg_lab.studies.trials import FAILED, FILE, FINISHED, Trial, TrialJournal, planned
from dtdg_lab.visualization.studies.race import Curve, near_losses
from tests.pretend_studies import BASE, pretend_training
from tests.stored_runs import finished_run
from tests.synthetic_lines import START_NS, evaluation_row, line, step_row

CONFIG = RunConfig(system="psg", dataset="growing", ranks=2, epochs=3)
PLAN = RacePlan("one", {"psg": CONFIG, "single": CONFIG.replace(system="single", ranks=1, parts=1)}, (0, 1))


def finished(root: Path, **settings: Any) -> Path:
    run = finished_run(root, **settings)
    finish(run, "finished")
    return run.path


def trial(label: str, seed: int, path: Path, status: str = FINISHED, **more: Any) -> Trial:
    cell = next(cell for cell in PLAN.cells if (cell.settings["contestant"], cell.seed) == (label, seed))
    return planned(cell, status=status, run=path, asked_ns=1, **more)


# folders and files


def test_a_run_whose_folder_is_gone_is_made_again_and_not_drawn(tmp_path: Path) -> None:
    folder = new_race(PLAN, tmp_path)
    gone, there = (RunDirectory.create(CONFIG, root=tmp_path, environment={}).path for _ in range(2))
    for seed, path in enumerate((gone, there)):
        TrialJournal(folder).put(trial("psg", seed, path))
    shutil.rmtree(gone)
    RaceRunner(folder, PLAN, None, tmp_path).close()
    assert [run.state for run in Race(folder).runs] == ["left", "finished"]
    assert f"its run {gone.name} is gone, so it starts again" in TrialJournal(folder).read()[0].notes
    shutil.rmtree(there)
    RaceRunner(folder, PLAN, None, tmp_path).close()
    assert Race(folder).curves() == [], "whoever draws it meanwhile opens no folder that is gone"


def test_the_eleventh_race_of_a_day_is_newer_than_the_second(tmp_path: Path) -> None:
    folders = [new_race(PLAN, tmp_path) for _ in range(11)]
    assert find_race("one", tmp_path) == folders[-1]


def test_what_another_process_wrote_until_it_let_go_is_kept(tmp_path: Path) -> None:
    folder = new_race(PLAN, tmp_path)
    more = replace(PLAN, seeds=(0, 1, 2))
    more.save(folder)  # by another process, since this one read it
    path = RunDirectory.create(CONFIG, root=tmp_path, environment={}).path
    TrialJournal(folder).put(trial("psg", 0, path))
    made = RaceRunner(folder, PLAN, None, tmp_path)
    made.close()
    assert made.race.seeds == (0, 1, 2) and [run.state for run in made.race.runs] == ["finished"]


def test_a_contestant_keeps_its_name_where_another_of_its_system_joins(tmp_path: Path) -> None:
    folder = new_race(PLAN, tmp_path)
    more = {"psg, learning_rate 0.01": CONFIG, "psg, learning_rate 0.5": CONFIG.replace(learning_rate=0.5)}
    RaceRunner(folder, replace(PLAN, configs={**more, "single": PLAN.configs["single"]}), None, tmp_path).close()
    assert list(RacePlan.load(folder).configs) == ["psg", "psg, learning_rate 0.5", "single"]


def test_a_removed_line_leaves_its_trial_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = pretend_training(monkeypatch)
    sweep = Sweep(BASE, {"full_snapshots": (1, 2)}, (0,))
    study = run_study(sweep, name="s", runs_dir=tmp_path, progress=False)
    file = study.path / FILE
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-2]))  # the last two are how its trial ended
    again = run_study(sweep, name="s", runs_dir=tmp_path, progress=False)
    assert again.is_complete and len(training.made) == 2, "its run is found"
    file.write_bytes(b"".join(lines[: len(lines) // 2]))
    again = run_study(sweep, name="s", runs_dir=tmp_path, progress=False)
    assert again.is_complete and len(training.made) == 3
    file.write_bytes(file.read_bytes() + b"{}\n")
    with pytest.raises(RunStoreError, match=r"is damaged"):
        TrialJournal(study.path).read()


def test_the_advisor_learns_from_no_run_that_was_steered_but_from_one_that_ended_early(tmp_path: Path) -> None:
    run = finished_run(tmp_path)  # its learning rate was changed at step 7
    finish(run, "finished")
    with pytest.raises(DataError, match="settings changed during training"):
        check_usable(open_run(run.path))
    for file in run.record_files().values():
        file.write_text(file.read_text().replace('"learning_rate":', '"epochs":').replace("0.003", "3"))
    finish(run, "finished")
    check_usable(open_run(run.path))


# runs on engines


def test_engines_that_moved_up_are_not_taken_from_the_run_that_uses_them(tmp_path: Path) -> None:
    other = finished_run(tmp_path).path
    handle = SimpleNamespace(id="other", path=other, status="running", is_outdated=False)
    session = Session.__new__(Session)
    session._closed, session._lock, session._handles = False, threading.RLock(), {other: handle}  # type: ignore[dict-item]
    session._files = SimpleNamespace(ranks=4, runs=lambda: [other], engines_of=lambda path: (2, 3))  # type: ignore[assignment]
    session._engines = SimpleNamespace(alive=lambda: [0, 1, 2, 3], controller_is_gone=False)  # type: ignore[assignment]
    session._check_free(2, (0, 1))
    session._engines = SimpleNamespace(alive=lambda: [1, 2, 3], controller_is_gone=False)  # type: ignore[assignment]
    with pytest.raises(ClusterError, match=r"3 of 4 engines are alive.*Wait for run other, then call session.repair"):
        session._check_free(2, (0, 1))


class Handle:
    """Of a run on engines; whoever stops it is counted."""

    def __init__(self, path: Path, status: str = "running") -> None:
        self.path, self.status, self.id, self.stopped, self.version = path, status, path.name, 0, 0
        self.config = RunDirectory.open(path).config()
        self.live = SimpleNamespace(progress=SimpleNamespace(epoch=1))

    def stop(self) -> None:
        self.stopped += 1
        self.status = "stopped"

    def wait(self) -> Handle:
        return self


def session_of(handle: Handle) -> Any:
    return SimpleNamespace(train=lambda config, engines=None: handle)


def raising(*args: Any) -> Any:
    raise ConfigError("told by whoever watches")


@pytest.mark.parametrize("where", ["on_start", "judge"])
def test_a_run_whose_watcher_fails_does_not_go_on_alone(tmp_path: Path, where: str) -> None:
    handle = Handle(finished_run(tmp_path).path)
    with pytest.raises(ConfigError, match="whoever watches"):
        run_config(CONFIG, session=session_of(handle), **{where: raising})
    assert handle.stopped == 1


@pytest.mark.parametrize("what", ["stop", "finish"])
def test_a_verdict_that_came_when_the_run_was_over_is_none(tmp_path: Path, what: Any) -> None:
    handle = Handle(finished(tmp_path), "finished")
    done = run_config(CONFIG, session=session_of(handle), judge=lambda seen: Verdict(what, "enough"))
    assert done.run.status == "finished" and done.verdict is None and handle.stopped == 0


# who races


class Races:
    """Stands for ``run_config`` in a race."""

    def __init__(self) -> None:
        self.handles, self.verdicts, self.while_running = [], [], lambda: None

    def __call__(self, config: RunConfig, *, runs_dir: Path, judge: Any, on_start: Any, **more: Any) -> EndedRun:
        run = finished_run(runs_dir, **{name: config.flat[name] for name in ("seed", "system", "ranks", "parts")})
        handle = Handle(run.path)
        self.handles.append(handle)
        on_start(handle)
        self.while_running()
        self.verdicts.append(None if judge is None else judge((Evaluated(5, 1, 1.0, 0.5),)))
        if self.verdicts[-1] is not None:
            handle.status = self.verdicts[-1].what.replace("stop", "stopped")
        finish(run, handle.status if handle.status == "stopped" else "finished")
        return EndedRun(open_run(run.path), self.verdicts[-1])


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> Races:
    made = Races()
    monkeypatch.setattr(race_runner, "run_config", made)
    monkeypatch.setattr(race_module, "rehearse", lambda: None)
    return made


def runner(tmp_path: Path, **more: Any) -> RaceRunner:
    return RaceRunner(new_race(PLAN, tmp_path), PLAN, None, tmp_path, **more)


def test_an_error_of_whoever_watches_is_not_a_failed_run(tmp_path: Path, races: Races) -> None:
    def changed(race: Race) -> None:
        if any(run.state == "under way" for run in race.runs):
            raising()

    made = runner(tmp_path, on_change=changed)
    with pytest.raises(ConfigError, match="whoever watches"):
        made.run()
    assert [run.state for run in made.race.runs] == ["left"] and len(races.handles) == 1


def test_a_race_in_this_process_stops_at_the_next_evaluation(tmp_path: Path, races: Races) -> None:
    made = runner(tmp_path, on_change=lambda race: None)
    races.while_running = made.stop
    with pytest.raises(RunFailedError, match="and the race with it"):
        made.run()
    assert races.verdicts == [Verdict("stop", "the race was stopped")] and len(races.handles) == 1


def test_a_run_that_begins_while_the_race_is_being_stopped_is_stopped_too(tmp_path: Path, races: Races) -> None:
    def changed(race: Race) -> None:
        if not race.runs:
            made.stop()  # before its handle is known

    made = runner(tmp_path, on_change=changed)
    made._runner._ending = threading.Event()  # as if the run was starting at that moment
    made._runner._ending.is_set = lambda: bool(races.handles)  # type: ignore[method-assign]
    with pytest.raises(RunFailedError):
        made.run()
    assert races.handles[0].stopped == 1 and len(races.handles) == 1


# who is best


def row(label: str, values: list[float | None], failed: tuple[str, ...] = ()) -> Row:
    spreads = {**spreads_of((), ()), "test_loss": spread(values)}
    return Row(label, CONFIG, {}, (), failed, len(values), spreads, (), None)


def test_whoever_lost_a_seed_is_not_the_best() -> None:
    rows = [row("good", [0.1, 0.2, 0.15]), row("bad", [0.3, 0.4, 0.5])]
    assert winners(rows) == {"test_loss": "good"}
    rows[0] = row("good", [0.1, 0.2], failed=("the loss became NaN at step 3",))
    assert winners(rows) == {}


@pytest.mark.slow
def test_a_test_loss_that_is_not_finite_never_got_there(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    file = run.record_file(0)
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    for each in lines:
        if each["table"] == "evaluations":
            for values in each["rows"]:
                if values[each["columns"].index("split")] == "test":
                    values[each["columns"].index("loss")] = None
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    finish(run, "finished")
    found = spreads_of([open_run(run.path), open_run(finished(tmp_path, seed=1))], [1.0, 1.0])
    assert found["test_loss"].missed == 1 and found["test_loss"].high == 0.75 and found["skill"].missed == 1
    assert found["validation_loss"].missed == 0


def curve(label: str, losses: tuple[float, ...], *, over: bool = True) -> Curve:
    at = tuple(float(place) for place, _ in enumerate(losses))
    return Curve(label, 0, losses, at, at, at, 1, "validation", "loss", ("model",), over)


def test_whoever_failed_or_has_no_finite_loss_takes_nothing_from_the_others() -> None:
    curves = [curve("good", (0.9, 0.2)), curve("bad", (0.9, 0.5))]
    assert near_losses(curves, ("good", "bad", "third")) == {}, "it may come yet"
    assert near_losses(curves, ("good", "bad", "third"), lost={("third", 0)}) == {0: pytest.approx(0.21)}
    assert near_losses([*curves, curve("third", ())], ("good", "bad", "third")) == {0: pytest.approx(0.21)}
    assert near_losses([*curves, curve("third", (), over=False)], ("good", "bad", "third")) == {}


@pytest.mark.slow
def test_a_failed_contestant_leaves_the_others_their_seconds(tmp_path: Path) -> None:
    folder = new_race(replace(PLAN, seeds=(0,)), tmp_path)
    facts = {"protocol": "warm", "leaky": False, "purge": 0, "data": "aa"}
    TrialJournal(folder).put(trial("psg", 0, finished(tmp_path), provenance=facts))
    other = finished(tmp_path, system="single", ranks=1, parts=1)
    TrialJournal(folder).put(trial("single", 0, other, FAILED, reason="NaN"))
    race = Race(folder)
    assert race.table.loc["psg", "near_best_s"] > 0
    assert "psg needs least time" in race.panels()["seconds"][1]


def test_contestants_are_compared_across_one_that_lacks_the_setting() -> None:
    esdg, adgnn = (
        RunConfig(system=name, dataset="growing", parts=2, links=links)
        for name, links in (("esdg", "0 delay=20"), ("adgnn-t", ""))
    )
    with pytest.raises(ConfigError, match="the same `links`, but 'esdg' has '0 delay=20', 'adgnn' has ''"):
        check_alike({"esdg": esdg, "psg": RunConfig(system="psg", dataset="growing", parts=2), "adgnn": adgnn})


# what is drawn while it goes on


def test_seconds_count_from_the_event_started_whoever_speaks_first() -> None:
    columns = TABLES["events"]
    described = {"step": 0, "epoch": 0, "time_ns": START_NS, "kind": "started", "data": {"attempt": 1}}
    started = line("events", [[described.get(column) for column in columns]])
    steps = line("steps", [step_row(step, 1.0) for step in range(50)], seq=1)
    evaluated = line("evaluations", [evaluation_row(50, "validation", 0.5)], seq=2)
    late, early = (
        line("energy", [[START_NS + shift, *[0.0] * (len(TABLES["energy"]) - 1)]], rank=1)
        for shift in (300_000_000, -300_000_000)
    )
    for first in ([], [late], [early]):
        tables = RunTables(CONFIG)
        tables.add_lines([*first, started, steps, evaluated])
        assert tables.rows("evaluations")["seconds"].tolist() == [pytest.approx(1.0)]


def test_a_study_reads_each_run_once_however_often_it_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [finished(tmp_path, seed=seed, epochs=epochs) for seed in (0, 1) for epochs in (2, 3)]
    axis = Axis("size", ("short", "long"), ())
    trials = [
        Trial(str(n), n, {"size": axis.values[n % 2]}, n // 2, status="finished", run=path)
        for n, path in enumerate(paths)
    ]
    opened: list[Path] = []
    monkeypatch.setattr(near_best, "open_run", lambda path: opened.append(path) or open_run(path))
    bars = near_best_bars(trials, axis, {})
    assert near_best_bars(trials, axis, {}) == bars and len(opened) == 4
    assert bars[1].values == pytest.approx((0.3, 0.3)) and bars[0].missed == 2, "1.8 / epoch, after 5 steps of 20 ms"
    diverged = RunDirectory.create(CONFIG.replace(seed=0, learning_rate=0.9), root=tmp_path, environment={})
    diverged.record_file(0).parent.mkdir(exist_ok=True)
    diverged.record_file(0).write_text("")
    trials.append(Trial("9", 9, {"size": "short"}, 0, status="finished", run=diverged.path))
    with_it = near_best_bars(trials, axis, {})
    assert with_it[1] == bars[1] and with_it[0].missed == 3, "a run without a loss takes nothing from the others"


def test_a_race_reads_what_has_ended_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_race(PLAN, tmp_path)
    facts = {"protocol": "warm", "leaky": False, "purge": 0, "data": "aa"}
    for seed in PLAN.seeds:
        TrialJournal(folder).put(trial("psg", seed, finished(tmp_path, seed=seed), provenance=facts))
    race = Race(folder)
    race.panels(), race.html()
    read: list[Path] = []
    real = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, *a, **k: read.append(self) or real(self, *a, **k))
    race.panels(), race.html()
    assert not read, "what has ended is read once"


def test_stop_is_heard_while_a_race_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = RacePage.__new__(RacePage)
    page._session, page._runs_dir, page._runner, page._thread = None, tmp_path, None, None  # type: ignore[assignment]
    page._to_stop, done = False, []

    def slowly(configs: Any, **more: Any) -> Any:
        page._stop()
        return SimpleNamespace(stop=lambda: done.append("stop"), run=lambda: done.append("run"))

    monkeypatch.setattr(race_page, "prepare", slowly)
    page._race([], {})
    assert done == ["stop", "run"], "a race that is stopped before it runs makes nothing"
