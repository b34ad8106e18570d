"""What happens in fewer than half of the epochs counts: means and totals lead, medians stand beside them."""

from __future__ import annotations

import html
from pathlib import Path
from types import SimpleNamespace

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.comparison import compare
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.studies import race_table
from dtdg_lab.studies.race_result import race_words
from tests.stored_runs import START_NS, row

EPOCHS, STEPS = 10, 4
SLOW = range(3, 6)  # congested epochs, fewer than half
WATTS = 50.0
DELAY = [[0.0, 0.0], [20.0, 0.0]]
CLEAN = [[0.0, 0.0], [0.0, 0.0]]
NO_LIMIT = [[None, None], [None, None]]
S = 1_000_000_000


def trained(root: Path, system: str, seed: int, seconds: list[float], *, congested: bool = True) -> StoredRun:
    """A run of one rank whose epochs took these seconds, and energy in proportion; its links were slow in ``SLOW``."""
    run = RunDirectory.create(RunConfig(system=system, dataset="growing", seed=seed, epochs=EPOCHS), root=root)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        now_s = 0.0
        for epoch, took_s in enumerate(seconds):
            slow, step = congested and epoch in SLOW, epoch * STEPS
            if congested and (epoch == 0 or slow != (epoch - 1 in SLOW)):
                data = {"pattern": "cycle", "delay_ms": DELAY if slow else CLEAN, "mbit": NO_LIMIT, "by": "emulated"}
                writer.row("events", (step, epoch, START_NS + int(now_s * S), "congestion", data))
            for iteration in range(STEPS):
                now_s += took_s / STEPS
                each = {"step": step + iteration, "epoch": epoch, "iteration": iteration, "time_s": took_s / STEPS}
                ends_ns = START_NS + int(now_s * S)
                writer.row("steps", row("steps", **each, time_ns=ends_ns, loss=1.0, global_loss=1.0, compute_s=0.01))
            writer.row(
                "phase_energy", (step + STEPS - 1, epoch, ends_ns, "compute", WATTS * took_s, took_s, "modelled", 1.0)
            )
            writer.row("events", (step + STEPS, epoch, ends_ns, "epoch", {"epoch": epoch, "time_s": took_s}))
    finish(run, "finished")
    return open_run(run.path)


def steady(root: Path, seed: int) -> StoredRun:
    return trained(root, "psg", seed, [1.0 + 0.01 * seed] * EPOCHS)


def upset(root: Path, seed: int) -> StoredRun:
    """Quicker in most epochs, and much slower while links are."""
    return trained(root, "single", seed, [2.5 if epoch in SLOW else 0.9 + 0.01 * seed for epoch in range(EPOCHS)])


@pytest.mark.slow
def test_congestion_in_fewer_than_half_of_the_epochs_turns_the_order_by_mean_and_not_by_median(tmp_path: Path) -> None:
    calm, late = steady(tmp_path, 0).summary, upset(tmp_path, 0).summary
    assert late["epoch_time_median_s"] < calm["epoch_time_median_s"]
    assert late["epoch_time_s"] == pytest.approx((3 * 2.5 + 7 * 0.9) / 10) and calm["epoch_time_s"] == pytest.approx(
        1.0
    )
    assert (late["epoch_time_clean_s"], late["epoch_time_congested_s"]) == pytest.approx((0.9, 2.5))
    assert late["congested_epochs"] == len(SLOW)
    assert late["epoch_time_spread_s"] == pytest.approx(0.773, abs=1e-3) and calm["epoch_time_spread_s"] < 1e-9
    assert (late["total_time_s"], calm["total_time_s"]) == pytest.approx((13.8, 10.0))
    assert late["epoch_j_median"] < calm["epoch_j_median"] and late["epoch_j"] > calm["epoch_j"]
    assert late["epoch_j"] == pytest.approx(WATTS * 1.38)
    assert (late["epoch_j_clean"], late["epoch_j_congested"]) == pytest.approx((WATTS * 0.9, WATTS * 2.5))


def table_row(label: str, runs: list[StoredRun]) -> race_table.Row:
    spreads = race_table.spreads_of(runs, [None] * len(runs))
    return race_table.Row(label, runs[0].config, {}, tuple(runs), (), len(runs), spreads, (), None)


def test_race_table_sentence_and_comparison_follow_the_mean(tmp_path: Path) -> None:
    makers = {"calm": steady, "late": upset}
    rows = [table_row(label, [make(tmp_path, seed) for seed in (0, 1, 2)]) for label, make in makers.items()]
    won = race_table.winners(rows)
    assert won["epoch_time_s"] == won["total_time_s"] == "calm"
    table = race_table.frame(rows)
    assert table["epoch_time_s"].idxmin() == "calm" and table["epoch_time_median_s"].idxmin() == "late"
    assert "congested epochs" in race_table.page(rows)
    plan = SimpleNamespace(
        configs={row.label: row.config for row in rows}, seeds=(0, 1, 2), stop=None, parallel=False, data={}
    )
    said = " ".join(race_words(plan, [], rows, []))  # type: ignore[arg-type]
    assert "calm in training time and epoch time, mean" in said and "late in" not in said
    compared = compare([rows[0].runs[0], rows[1].runs[0]]).table
    assert compared["epoch_time_s"].tolist() == pytest.approx([1.0, 1.38])
    report = rows[1].runs[0].report().read_text()
    assert "1.4 s ± 773 ms (median 900 ms); clean 900 ms; congested 2.5 s" in report
    assert "69 J ± 38.6 J" in report


def test_epochs_are_parted_by_the_links_of_their_steps_and_not_at_all_without_slow_ones(tmp_path: Path) -> None:
    quiet = trained(tmp_path, "psg", 0, [1.0] * EPOCHS, congested=False)
    parts = ("epoch_time_clean_s", "epoch_time_congested_s", "congested_epochs", "epoch_j_clean", "epoch_j_congested")
    assert {quiet.summary[name] for name in parts} == {None}
    rows = [table_row("quiet", [quiet])]
    assert "congested epochs" not in race_table.page(rows)


def test_the_first_epoch_counts_in_the_mean_and_a_broken_one_in_the_total_alone(tmp_path: Path) -> None:
    run = trained(tmp_path, "psg", 0, [3.0, 1.0, 1.0], congested=False).path
    directory = RunDirectory.open(run)
    with RecordWriter(directory.record_file(0), 0, 1) as writer:
        writer.row("steps", row("steps", step=12, epoch=3, iteration=0, time_ns=START_NS + 6 * S, time_s=0.5, loss=1.0))
    summary = finish(directory, "stopped")
    assert (summary["epochs"], summary["epoch_time_s"]) == (3, pytest.approx(5 / 3))
    assert summary["total_time_s"] == pytest.approx(5.5)


def test_each_column_of_a_race_shows_its_meaning():
    heads = race_table.page([]).split("<th")[3:]  # after contestant and seeds
    shown = [each.name for each in race_table.MEASURES if not each.where_known] + ["coincides"]
    assert len(heads) == len(shown) + 3  # protocol, purge and data
    for name, head in zip(shown, heads, strict=False):
        assert html.escape(race_table.MEANINGS[name]).replace("&#x27;", "&#39;") in head
