import fcntl
import signal
import subprocess
import sys

import pytest

from dtdg_lab.cluster.session_files import list_sessions
from dtdg_lab.core.errors import ClusterError, ConfigError, UnknownNameError
from dtdg_lab.reproduction import runner, timing_lock
from dtdg_lab.reproduction.experiment import read_experiment
from dtdg_lab.reproduction.rows import locked, read_rows
from dtdg_lab.reproduction.runner import list_work, run_experiments
from dtdg_lab.reproduction.verdict import judge

TRAINING = """
title = "Errors"
source = "Table 1"
question = "Is it better?"
protocol = "Paper: GPUs. Here: CPUs."
cell_s = 3
seeds = [0, 1]
[settings]
dataset = "growing"
generated_nodes = 24
generated_edges = 80
generated_snapshots = 40
hidden = 4
threads = 1
[stop]
epochs = 2
[over]
system = ["psg", "single"]
[[claims]]
name = "less-error"
text = "PSG has less error than one rank"
rule = "less"
value = "test_loss"
ours = { system = "psg" }
rival = { system = "single" }
paper = { size = 0.9, text = "90 % less" }
"""
FUNCTION = """
title = "Costs"
source = "Table 2"
question = "Is it cheaper?"
protocol = "Paper: GPUs. Here: CPUs."
procedure = "measure"
cell_s = 100
seeds = [0, 1]
[settings]
base = 10
[over]
side = { ours = { factor = 1 }, theirs = { factor = 2 } }
[[claims]]
name = "cheaper"
text = "half the cost"
rule = "less"
value = "cost"
ours = { side = "ours" }
rival = { side = "theirs" }
paper = { size = 0.5, text = "50 % less" }
"""
MEASURES = """
from dtdg_lab.core.errors import DataError

def measure(settings, seed):
    if seed and settings["factor"] == 2:
        raise DataError("no data for this seed")
    return {"cost": settings["base"] * settings["factor"] + seed}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "clean_commit", lambda: "0123456789ab")
    monkeypatch.setattr(timing_lock, "FILE", tmp_path / "lock")
    paper = tmp_path / "reproduce" / f"paper_{tmp_path.name}"
    paper.mkdir(parents=True)
    (paper / "table1.toml").write_text(TRAINING)
    (paper / "table2.toml").write_text(FUNCTION)
    (paper / "measures.py").write_text(MEASURES)
    return paper


KILLED = """
import sys
from pathlib import Path
from dtdg_lab.__main__ import main
from dtdg_lab.reproduction import runner, timing_lock

runner.clean_commit = lambda: "0123456789ab"
timing_lock.FILE = Path("lock")
raise SystemExit(main(["reproduce", "--all", "--folder", "reproduce"]))
"""


def works_of(folder, *names):
    return list_work([read_experiment(folder / f"{name}.toml") for name in names])


def test_trainings_leave_a_row_of_every_seed(folder):
    (work,) = works_of(folder, "table1")
    assert (len(work.missing), work.seconds) == (4, 12.0)
    assert run_experiments([work]) == 4
    rows = read_rows(work.experiment.rows_file)
    assert [(row.labels["system"], row.seed) for row in rows] == [("psg", 0), ("single", 0), ("psg", 1), ("single", 1)]
    assert {(row.commit, row.device, row.values["epochs"], len(row.curve)) for row in rows} == {
        ("0123456789ab", "cpu", 2, 2)
    }
    assert all(row.curve[-1][0] == pytest.approx(row.values["total_time_s"], rel=1e-4) for row in rows)
    assert judge(work.experiment, rows)[0].seeds == 2
    assert works_of(folder, "table1")[0].missing == ()


def test_engines_end_with_a_terminated_runner(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    (folder / "table2.toml").unlink()
    (folder / "table1.toml").write_text(TRAINING.replace('"single"', '"esdg"').replace("threads = 1", "ranks = 2"))
    command = [sys.executable, "-u", "-c", KILLED]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        next(line for line in process.stdout if "system psg" in line)
        assert len(list_sessions()) == 1
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert list_sessions() == []


def test_a_killed_runner_goes_on_with_the_next_cell(folder):
    (work,) = works_of(folder, "table2")

    def kill(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiments([work], say=kill)
    (rest,) = works_of(folder, "table2")
    assert [str(cell) for cell in rest.missing] == ["side theirs, seed 0", "side ours, seed 1", "side theirs, seed 1"]
    run_experiments([rest])
    rows = read_rows(work.experiment.rows_file)
    assert [row.values.get("cost") for row in rows] == [10, 20, 11, None]
    assert rows[-1].failed.endswith("no data for this seed")


def test_rows_of_another_rule_are_measured_again(folder):
    run_experiments(works_of(folder, "table2"))
    (folder / "table2.toml").write_text(FUNCTION.replace("size = 0.5", "size = 0.1"))
    (work,) = works_of(folder, "table2")
    assert len(work.missing) == 4


def test_rows_of_another_rule_stay_until_their_cells_are_measured(folder):
    run_experiments(works_of(folder, "table2"))
    more = FUNCTION + FUNCTION[FUNCTION.index("[[claims]]") :].replace("cheaper", "half").replace(
        "size = 0.5", "size = 0.2"
    )
    (folder / "table2.toml").write_text(more)
    (work,) = works_of(folder, "table2")
    before = {
        verdict.claim.name: verdict.decision for verdict in judge(work.experiment, read_rows(work.experiment.rows_file))
    }

    def kill(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiments([work], say=kill)
    rows = read_rows(work.experiment.rows_file)
    after = {verdict.claim.name: verdict.decision for verdict in judge(work.experiment, rows)}
    assert len(rows) == 4 and after == before and before["half"] == "not run" != before["cheaper"]
    assert len(works_of(folder, "table2")[0].missing) == 3


def test_a_second_runner_keeps_the_rows_of_the_first(folder):
    (work,), (same,) = works_of(folder, "table2"), works_of(folder, "table2")
    run_experiments([work])
    assert run_experiments([same]) == 0
    assert len(read_rows(work.experiment.rows_file)) == 4


def test_what_another_process_measures_is_left_out(folder):
    (work,) = works_of(folder, "table2")
    lines = []
    with locked(work.experiment.file):
        assert run_experiments([work], say=lines.append) == 0
    assert lines == [f"{work.experiment.id}: left out, since another process measures it in this checkout"]
    assert run_experiments([work], say=lines.append) == len(work.missing)


def test_failed_cells_are_measured_again_on_request(folder):
    run_experiments(works_of(folder, "table2"))
    experiment = read_experiment(folder / "table2.toml")
    assert list_work([experiment])[0].missing == ()
    (work,) = list_work([experiment], again=True)
    assert [str(cell) for cell in work.missing] == ["side theirs, seed 1"]


def test_another_commit_in_between_is_refused(folder, monkeypatch):
    commits = iter(["0123456789ab", "0123456789ab", "ba9876543210"])
    monkeypatch.setattr(runner, "clean_commit", lambda: next(commits))
    (work,) = works_of(folder, "table2")
    with pytest.raises(ConfigError, match="0123456789ab to ba9876543210"):
        run_experiments([work])
    assert len(read_rows(work.experiment.rows_file)) == 1


def test_the_experiment_with_most_claims_a_second_is_first(folder):
    assert [work.experiment.name for work in works_of(folder, "table2", "table1")] == ["table1", "table2"]


def test_what_a_paper_stands_on_comes_first(folder):
    (folder / "table2.toml").write_text(FUNCTION.replace("cell_s = 100", "cell_s = 100\ncore = true"))
    assert [work.experiment.name for work in works_of(folder, "table1", "table2")] == ["table2", "table1"]


def test_nothing_starts_that_would_end_too_late(folder):
    lines = []
    assert run_experiments(works_of(folder, "table2"), hours=0.02, say=lines.append) == 0
    assert lines == [
        f"paper_{folder.parent.parent.name}/table2: side ours, seed 0 does not fit into the rest of 0.02 hours. "
        "The same command continues there."
    ]


def test_a_timed_cell_waits_for_others_and_says_so(folder):
    with timing_lock.FILE.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        lines = []
        with (
            pytest.raises(ClusterError, match="holds"),
            timing_lock.timing_lock(timed=True, patience_s=0.0, waiting=lines.append),
        ):
            pass
        with timing_lock.timing_lock(timed=False):  # shares it with others that time nothing
            pass
    assert len(lines) == 1


def test_a_busy_machine_is_refused(monkeypatch):
    monkeypatch.setattr(timing_lock.psutil, "cpu_percent", lambda interval: 90.0)
    with pytest.raises(ClusterError, match="90%"):
        timing_lock.wait_until_idle(patience_s=0.0)
    monkeypatch.setattr(timing_lock.psutil, "cpu_percent", lambda interval: 3.0)
    assert timing_lock.wait_until_idle() == pytest.approx(0.03)


def test_a_function_that_is_missing_is_named(folder):
    (folder / "table2.toml").write_text(FUNCTION.replace('"measure"', '"count"'))
    with pytest.raises(ConfigError, match="count"):
        run_experiments(works_of(folder, "table2"))


def test_a_misspelt_value_is_named_after_the_first_cell(folder):
    (folder / "table2.toml").write_text(FUNCTION.replace('value = "cost"', 'value = "costs"'))
    for _ in range(2):  # the second time it is named before any cell
        (work,) = works_of(folder, "table2")
        with pytest.raises(UnknownNameError, match=r"'costs'.*'cost'"):
            run_experiments([work])
        assert len(read_rows(work.experiment.rows_file)) == 1


def test_a_function_that_trains_may_leave_a_curve(folder):
    points = "[(1.0, None, 0.5), (2.0, None, 0.25)]"
    (folder / "measures.py").write_text(f"def measure(settings, seed):\n    return {{'cost': 1, 'curve': {points}}}\n")
    (work,) = works_of(folder, "table2")
    run_experiments([work])
    row = read_rows(work.experiment.rows_file)[0]
    assert (row.values, row.curve) == ({"cost": 1}, ((1.0, None, 0.5), (2.0, None, 0.25)))


def test_stored_rows_are_no_uncommitted_change(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "__file__", str(tmp_path / "dtdg_lab" / "reproduction" / "runner.py"))
    rows = tmp_path / "reproduce" / "paper" / "results" / "table1.json"
    rows.parent.mkdir(parents=True)
    rows.write_text("{}")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Store rows"]):
        subprocess.run([*git, *command], check=True)
    commit = runner.clean_commit()
    rows.write_text("{ }")
    rows.with_name("table2.json").write_text("{}")
    assert runner.clean_commit() == commit
    (tmp_path / "reproduce" / "paper" / "table1.toml").write_text("")
    with pytest.raises(ConfigError, match=r"table1\.toml"):
        runner.clean_commit()
