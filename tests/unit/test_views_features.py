"""Fetched features in pictures: caches, hits, latencies, links, decisions, bytes, and the run as a whole."""

from __future__ import annotations

import json
import random
from typing import Any

import plotly.graph_objects as go
import pytest
from features_synthetic import (
    CAPACITY,
    FROM,
    PARTS,
    PER_EPOCH,
    REMOTE,
    ROW_BYTES,
    SLOW_MS,
    SLOW_OWNER,
    TO,
    congestion_data,
    congestion_lines,
    decision_row,
    event,
    feature_lines,
    features_data,
    fetch_row,
    resolved_row,
    window_row,
)
from hybrid_windows import check, traces
from runs_synthetic import finished_run
from synthetic_lines import START_NS, line

import dtdg_lab as lab
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.records import TABLES
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.records import RecordWriter
from dtdg_lab.runs.report import event_rows
from dtdg_lab.runs.run import open_run
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.charts import CongestionLog
from dtdg_lab.systems.feature_cache.events import FeatureFacts, links_of
from dtdg_lab.systems.feature_cache.log import FeatureLog
from dtdg_lab.visualization.run_window import CHARTS, RunWindow
from dtdg_lab.visualization.series import PartLog
from dtdg_lab.visualization.style import Marks

ALL = [
    "windows", "hits", "latency", "estimates", "links", "contents", "shares", "owners", "traffic", "actions", "values",
]  # fmt: skip


def window(data: dict[str, Any] | None = None, steps: int = 0, **more: Any) -> RunWindow:
    shown = RunWindow(RunConfig(system="greendygnn", dataset="growing", ranks=PARTS, epochs=20))
    if data is not None:
        shown.add(event("features", data))
    for each in feature_lines(range(steps), **more) if steps else ():
        shown.add(each)
    return shown


@pytest.fixture(scope="module")
def run() -> RunWindow:
    """120 steps, six epochs, in the third and fourth of which one owner is slow."""
    shown = window(features_data())
    for each in (*congestion_lines(), *feature_lines(range(120))):
        shown.add(each)
    return shown


# facts


def test_rows_are_those_of_the_record_tables() -> None:
    rows = {
        "resolved": resolved_row(0, 0), "fetches": fetch_row(0, 0, 1), "windows": window_row(0, 0, 0, 16),
        "cache_decisions": decision_row(0, 0, 16),
    }  # fmt: skip
    assert {name: len(row) for name, row in rows.items()} == {name: len(TABLES[name]) for name in rows}


def test_the_feature_path_in_words() -> None:
    assert FeatureFacts.read(features_data()).words == (
        "4 parts with batches of 512 seeds, at most 10 and 25 neighbours by layer. Features are fetched ahead, with a "
        "cache whose window and allocation a Double DQN chooses; a part holds at most 900 rows (351.6 KiB). 62 % of "
        "what a batch reads belongs to other parts."
    )
    words = FeatureFacts.read(features_data(policy="on_demand", batch_length=4, remote_share=None)).words
    assert words.endswith("Features are sampled and fetched in the step, without a cache.")
    assert "512 seeds in each of 4 snapshots" in words


@pytest.mark.parametrize("lost", ["parts", "row_bytes", "policy", "steps_per_epoch", "fanouts"])
def test_a_damaged_event_is_refused(lost: str) -> None:
    data = features_data()
    del data[lost]
    with pytest.raises(DataError, match=f"'{lost}'"):
        FeatureFacts.read(data)


@pytest.mark.parametrize("wrong", [{"parts": 0}, {"row_bytes": 0}, {"steps_per_epoch": 0}])
def test_facts_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="at least 1"):
        FeatureFacts.read(features_data(**wrong))


def test_links_in_words_and_damaged_ones() -> None:
    links = links_of(congestion_data({1: 20.0, 2: 5.0}, {2: 25.0}), 7)
    assert links.words == "part 1 +20 ms, part 2 +5 ms at 25 Mbit/s"
    assert links.congested == [1, 2] and (links.delay_of(1), links.rate_of(1), links.rate_of(2)) == (20.0, None, 25.0)
    assert links.delay_of(9) == 0.0 and links.rate_of(9) is None, "of a part that these links do not have"
    with pytest.raises(DataError, match="'mbit'"):
        links_of({"pattern": "none", "delay_ms": [[0.0]]}, 0)
    with pytest.raises(DataError, match="square"):
        links_of({"pattern": "none", "delay_ms": [[0.0, 1.0]], "mbit": [[None]]}, 0)


# windows and hits


def test_every_panel_is_a_picture_with_a_sentence(run: RunWindow) -> None:
    panels = run.view("features").named_panels()
    assert list(panels) == ALL
    for figure, words in panels.values():
        check(figure)
        assert figure["data"] and len(words) < 300
    check(run.view("features").figure())


def test_w_follows_the_congestion_behind_it(run: RunWindow) -> None:
    figure, words = run.view("features").named_panels()["windows"]
    first = traces(figure)["part 0"]
    at = dict(zip(first["x"], first["y"], strict=True))
    assert (at[32], at[48], at[72], at[80], at[119]) == (16, 8, 8, 16, 16), "the last one goes on to the newest step"
    (band,) = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert (band["x0"], band["x1"], band["layer"]) == (FROM, TO, "below")
    assert "40 caches were swapped in, 8 of them late" in words
    assert "W is 16 in the mean where links are free and 8 where they are not" in words
    late = traces(figure)["came late"]
    assert set(late["x"]) == {56, 80}, "steps of the made-up windows that came late"


def test_hit_rates_are_those_of_all_rows_of_an_epoch() -> None:
    shown = window(features_data())
    for step, rate in ((0, 1.0), (1, 0.5), (PER_EPOCH, 0.25)):
        for part in range(PARTS):
            shown.add(line("resolved", [resolved_row(step, part, rate=rate)], rank=part))
    figure, words = shown.view("features").named_panels()["hits"]
    epochs = traces(figure)["epochs"]
    assert epochs["y"] == [75.0, 25.0] and epochs["x"] == [0.5, PER_EPOCH]
    assert traces(figure)["newest steps"]["y"] == [100.0, 50.0, 25.0]
    assert words.startswith(f"Epoch 1: 25 % of {PARTS * REMOTE:,} remote rows") and "75 %, in epoch 0" in words


def test_lines_told_twice_count_once_and_a_resumed_run_counts_its_own() -> None:
    lines = list(feature_lines(range(30), rate=0.5))
    shown = window(features_data())
    for each in (*lines, *lines):
        shown.add(each)
    assert [sums.rate for sums in shown.view("features").sums.epochs().values()] == [0.5, 0.5]
    before = shown.view("features").sums.epochs()
    assert (before[0].remote, before[1].remote) == (20 * PARTS * REMOTE, 10 * PARTS * REMOTE)
    for each in feature_lines(range(25, 50), attempt=2, rate=1.0):
        shown.add(each)
    now = shown.view("features").sums.epochs()
    assert now[1].remote == 20 * PARTS * REMOTE, "5 steps of the first attempt, 15 of the second"
    assert now[1].hit == (5 * 0.5 + 15) * PARTS * REMOTE and now[0].rate == 0.5
    assert [row.step for row in shown.view("features").log.resolved.of(0)] == list(range(50))


def test_a_policy_without_a_cache_says_so() -> None:
    shown = window(features_data(policy="prefetch", window=0, cache_rows=0))
    for step in range(3):
        shown.add(line("resolved", [resolved_row(step, 0, rate=0.0, window=-1)]))
        shown.add(line("fetches", [fetch_row(step, 0, 1)]))
    panels = shown.view("features").named_panels()
    assert list(panels) == ["windows", "hits", "latency", "links", "owners", "traffic"]
    for figure, _ in panels.values():
        check(figure)
    assert "this policy keeps no cache" in json.dumps(panels["windows"][0])
    assert panels["hits"][1].startswith("Without a cache every remote row is fetched")
    assert traces(panels["hits"][0])["epochs"]["y"] == [0.0]


# latencies and links


def test_round_trips_by_owner_with_what_is_added(run: RunWindow) -> None:
    figure, words = run.view("features").named_panels()["latency"]
    drawn = traces(figure)
    slow = dict(zip(drawn["part 2"]["x"], drawn["part 2"]["y"], strict=True))
    assert slow[10] == 1.2 and slow[60] == pytest.approx(1.2 + SLOW_MS)
    added = drawn["part 2, added"]
    assert added["line"]["dash"] == "dash"
    assert list(zip(added["x"], added["y"], strict=True)) == [
        (0, 0.0), (FROM, SLOW_MS), (TO, 0.0), (120, 0.0),
    ]  # fmt: skip
    assert added["line"]["shape"] == "hv"
    assert "part 1, added" not in drawn, "nothing was ever added to it"
    assert drawn["part 2, for caches"]["customdata"][0] == "300"
    assert words.startswith("Replies take now: part 0 1.2 ms, part 1 1.2 ms")


def test_a_link_s_line_is_the_median_of_who_asks() -> None:
    shown = window(features_data())
    for part, rtt_s in ((0, 0.001), (2, 0.003), (3, 0.1)):
        shown.add(line("fetches", [fetch_row(5, part, 1, rtt_s=rtt_s)], rank=part))
    assert traces(shown.view("features").named_panels()["latency"][0])["part 1"]["y"] == [3.0]


def test_a_call_that_hung_does_not_flatten_the_others() -> None:
    shown = window(features_data())
    for step in range(100):
        shown.add(line("fetches", [fetch_row(step, 0, 1, rtt_s=0.9 if step == 50 else 0.002)]))
    figure, words = shown.view("features").named_panels()["latency"]
    assert figure["layout"]["yaxis"]["range"] == [0, pytest.approx(2.3)]
    assert words.endswith("1 of the points are above the picture.")
    assert max(traces(figure)["part 1"]["y"]) == 900.0, "it is there for who looks"


def test_estimates_stand_beside_what_is_added(run: RunWindow) -> None:
    figure, words = run.view("features").named_panels()["estimates"]
    drawn = traces(figure)
    late = dict(zip(drawn["part 2"]["x"], drawn["part 2"]["y"], strict=True))
    assert late[48] == 19.0 and late[96] == 0.0, "estimates of the other three parts agree"
    assert words.startswith("At last: no part is late or estimated to be.")
    shown = window(features_data())
    shown.add(event("congestion", congestion_data({SLOW_OWNER: SLOW_MS})))
    shown.add(line("cache_decisions", [decision_row(3, 0, 16, delays_ms=[0.0, 12.0, 0.0])]))
    words = shown.view("features").named_panels()["estimates"][1]
    assert words.startswith("At last: part 2 12 ms where 20 ms are added."), "of part 0 the second other one is part 2"


def test_links_now_are_owner_by_requester() -> None:
    shown = window(features_data())
    data = congestion_data({1: 20.0}, {1: 25.0, 3: 100.0})
    data["delay_ms"][1][0] = 8.0
    shown.add(event("congestion", data))
    figure, words = shown.view("features").named_panels()["links"]
    (trace,) = figure["data"]
    assert trace["z"][1] == [8.0, None, 20.0, 20.0] and trace["z"][0] == [None, 0.0, 0.0, 0.0]
    texts = {(note["y"], note["x"]): note["text"] for note in figure["layout"]["annotations"]}
    assert texts[1, 2] == "20 ms<br>25 Mbit/s" and texts[3, 0] == "100 Mbit/s" and texts[0, 1] == "free"
    assert (1, 1) not in texts
    assert "part 1 +20 ms at 25 Mbit/s, part 3 at 100 Mbit/s" in words


def test_slow_links_are_shown_where_features_are_at_hand() -> None:
    """The halo exchange has slow links too."""
    shown = RunWindow(RunConfig(system="adgnn-t", dataset="growing", ranks=PARTS))
    shown.add(event("congestion", congestion_data()))
    assert not shown.view("features").shown and "features" not in shown.figures()
    shown.add(event("congestion", congestion_data({0: 5.0}), step=3))
    assert shown.view("features").shown and list(shown.view("features").named_panels()) == ["links"]
    check(shown.figures()["features"])
    assert shown.captions()["features"] == "Links: part 0 +5 ms."


def test_worse_congestion_is_drawn_darker() -> None:
    shown = window(features_data())
    for step, delay, rate in ((0, {0: 5.0}, None), (10, {0: 20.0}, None), (20, None, {1: 25.0}), (30, None, None)):
        shown.add(event("congestion", congestion_data(delay, rate), step=step))
    bands = shown.view("features").congestion.bands(-0.5, 40)
    assert [(band["x0"], band["x1"]) for band in bands] == [(0, 10), (10, 20), (20, 30)]
    depth = [float(band["fillcolor"].rsplit(",", 1)[1][:-1]) for band in bands]
    assert depth[0] < depth[1] < depth[2], "a megabit takes 40 ms at 25 Mbit/s"


def test_links_that_change_all_the_time_stay_small_pictures() -> None:
    shown = window(features_data(), steps=30)
    for step in range(3000):
        shown.add(event("congestion", congestion_data({step % 4: 5.0 + step % 7}), step=step))
    log = shown.view("features").congestion
    assert log.at(-1) is None and log.at(1234).delay_of(1234 % 4) == 5.0 + 1234 % 7
    x, y = log.injected(0, 0, 3000)
    assert len(x) == len(y) <= 410 and max(y) == 11.0, "peaks stay"
    assert len(log.bands(0, 3000)) <= 200
    check(shown.view("features").figure())


# contents, owners, bytes


def test_caches_hold_rows_of_others(run: RunWindow) -> None:
    figure, words = run.view("features").named_panels()["contents"]
    drawn = traces(figure)
    assert drawn["rows of part 0"]["x"] == [0, 300, 300, 300] and drawn["at most"]["x"] == [CAPACITY] * PARTS
    assert figure["layout"]["barmode"] == "stack" and "3,600 of 3,600 rows are held, 50 % of them kept" in words


def test_shares_follow_the_allocation(run: RunWindow) -> None:
    figure, _ = run.view("features").named_panels()["shares"]
    drawn = traces(figure)
    share = dict(zip(drawn["part 2"]["x"], drawn["part 2"]["y"], strict=True))
    assert share[0] == 25.0 and share[48] == 45.0, "three of four parts give it 60 %"
    assert set(drawn["preferred"]["x"]) == {48, 56, 64, 72} and set(drawn["preferred"]["y"]) == {45.0}


def test_rows_asked_for_by_owner() -> None:
    shown = window(features_data())
    row = resolved_row(0, 0)
    row[5], row[6] = [0, 30, 0, 10], [0, 10, 40, 10]
    shown.add(line("resolved", [row]))
    figure, words = shown.view("features").named_panels()["owners"]
    assert [trace["y"] for trace in figure["data"]] == [[0, 30, 0, 10], [0, 10, 40, 10]]
    assert words.startswith("In the cache, of the last 1 steps: part 1 75 %, part 2 0 % and part 3 50 %.")


def test_bytes_of_misses_and_rebuilds_and_waiting() -> None:
    shown = window(features_data())
    for step in range(4):
        for part in range(2):
            row = resolved_row(step, part, rate=0.5, wait_s=0.001 * (1 + part))
            shown.add(line("resolved", [row], rank=part))
    shown.add(line("windows", [window_row(2, 0, 0, 16)]))
    figure, words = shown.view("features").named_panels()["traffic"]
    drawn = traces(figure)
    missed = 2 * (REMOTE // 2) * ROW_BYTES / 1024
    assert drawn["missed by batches"]["y"] == [pytest.approx(missed, abs=1e-3)] * 4
    assert drawn["for caches"]["y"] == [0, 0, pytest.approx(450 * ROW_BYTES / 1024, abs=1e-3), 0]
    assert drawn["waiting (right)"]["y"] == [1.5] * 4 and drawn["waiting (right)"]["yaxis"] == "y2"
    assert "all parts asked for 2,400 remote rows a step, 50 % of them in a cache; 6 calls moved 468.8 KiB" in words
    assert "a part waited 1.5 ms" in words


# decisions


def test_values_are_a_map_of_windows_and_allocations() -> None:
    shown = window(features_data())
    rows = [decision_row(16, 1, 4, biased=3, greedy=False), decision_row(0, 0, 16)]
    for row in rows:
        shown.add(line("cache_decisions", [row], rank=row[2]))
    figure, words = shown.view("features").named_panels()["values"]
    (trace,) = figure["data"]
    assert (len(trace["z"]), len(trace["z"][0])) == (PARTS, len(WINDOWS))
    assert figure["layout"]["yaxis"]["ticktext"] == ["even", "most for part 0", "most for part 2", "most for part 3"]
    row, column = 3, WINDOWS.index(4)
    assert trace["z"][row][column] == max(max(each) for each in trace["z"])
    (frame,) = figure["layout"]["shapes"]
    assert (frame["x0"], frame["y0"]) == (column - 0.47, row - 0.47)
    assert words.startswith("At step 16 double_dqn chose W 4, most for part 3 (drawn at random); values reach from")


def test_a_policy_without_values_has_no_map() -> None:
    shown = window(features_data(policy="threshold"))
    shown.add(line("cache_decisions", [decision_row(0, 0, 16, policy="threshold", values=False, reward=None)]))
    assert "values" not in shown.view("features").named_panels()
    figure, words = shown.view("features").named_panels()["actions"]
    check(figure)
    assert words.startswith("Of 1 decisions 100 % were W 16 with an even cache.") and "reward" not in words


def test_actions_are_told_apart_by_whom_they_prefer(run: RunWindow) -> None:
    figure, words = run.view("features").named_panels()["actions"]
    drawn = traces(figure)
    assert set(drawn) == {"even", "most for part 2"}
    assert {round(y) for y in drawn["most for part 2"]["y"]} == {WINDOWS.index(8)}
    assert len(drawn["even"]["x"]) + len(drawn["most for part 2"]["x"]) == 40
    assert "x-thin-open" in drawn["even"]["marker"]["symbol"], "steps 0 and 80 were drawn"
    assert words.startswith("Of 40 decisions 60 % were W 16 with an even cache. 20 % were drawn.")


def test_a_window_that_is_no_action_is_drawn_between_two() -> None:
    shown = window(features_data(policy="epoch_hot", window=20))
    row = decision_row(0, 0, 16, values=False)
    row[7] = 20
    shown.add(line("cache_decisions", [row]))
    (trace,) = shown.view("features").named_panels()["actions"][0]["data"]
    assert WINDOWS.index(16) < trace["y"][0] < WINDOWS.index(32)


# memory, and runs as a whole


def test_a_log_is_as_long_as_it_keeps_whatever_comes_and_in_whichever_order() -> None:
    """Rows beyond what is kept are dropped several at a time: readers never see them, and memory stays bounded."""
    log: PartLog[int] = PartLog(kept=40)
    order = random.Random(0).sample(range(1000), 1000)
    for count, step in enumerate(order, start=1):
        log.add(0, step, 1, step)
        assert len(log._rows[0,]) <= 45
        if count > 40:
            assert len(log.of(0)) == len(log.steps()) == 40
    assert log.of(0) == list(range(960, 1000)) == sorted(log.steps())


def test_logs_are_bounded() -> None:
    log: PartLog[int] = PartLog(kept=5)
    for step in range(20):
        log.add(0, step, 1, step)
    assert log.of(0) == [15, 16, 17, 18, 19] and log.steps(since=18) == {18: [18], 19: [19]}
    log.add(0, 17, 2, -1)
    log.truncate(16, 2)
    assert log.of(0) == [15, -1], "what the second attempt told stays"
    fetches = FeatureLog()
    for owner in range(1, 200):
        for step in range(100):
            row = dict(zip(TABLES["fetches"], fetch_row(step, 0, owner), strict=True))
            fetches.fetch(0, row, 1)
    assert len(fetches.fetches("miss")) == 199 * 60 and fetches.fetches("bulk") == []


def test_another_number_of_parts_leaves_old_rows_behind() -> None:
    shown = window(features_data(), steps=10)
    assert shown.view("features").since == 0
    shown.add(event("features", features_data(policy="planner"), step=10))
    assert shown.view("features").since == 0 and shown.view("features").facts.policy == "planner", (
        "the same parts go on"
    )
    shown.add(event("features", features_data(parts=2), step=10))
    assert shown.view("features").since == 10 and "no batch was resolved" in json.dumps(
        shown.view("features").named_panels()["hits"]
    )
    shown.add(event("features", {"layout": None}, step=12))
    assert (
        shown.view("features").facts is None
        and not shown.view("features").shown
        and shown.view("features").caption() == ""
    )


def test_a_run_is_reported_and_plotted(tmp_path) -> None:
    directory = finished_run(tmp_path)
    with RecordWriter(directory.record_file(0), 0, 1) as writer:
        writer.row("events", (0, 0, START_NS, "features", features_data()))
        writer.row("events", (0, 0, START_NS, "congestion", congestion_data({1: 5.0})))
        for step in range(3):
            for part in range(PARTS):
                writer.row("resolved", tuple(resolved_row(step, part)))
        for at, phase in enumerate(("compute", "wait")):
            writer.row("phase_energy", (0, 0, START_NS + at, phase, 2.0, 0.1, "modelled", 1.0))
    finish(directory, "finished")
    page = open_run(directory.path).report().read_text(encoding="utf-8")
    assert "<h2>Features that are fetched</h2>" in page and "id='plot-features'" in page
    assert "<h2>Where the energy went</h2>" in page and "id='plot-phase_energy'" in page
    run = open_run(directory.path)
    assert {*CHARTS, "features", "phase_energy"} <= set(run.figures())
    figure = lab.plot(run)
    assert isinstance(figure, go.Figure)
    titles = [note.text for note in figure.layout.annotations]
    assert "<b>Hit rate</b>" in titles and any("Energy by rank and phase" in text for text in titles)
    described = {row[3]: row[4] for row in event_rows(run.events)}
    assert described["features"].startswith("4 parts with batches of 512 seeds")
    assert described["congestion"] == "one_slow: part 1 +5 ms"


def test_a_change_after_the_log_was_made_is_marked_over_the_congestion() -> None:
    marks = Marks()
    log = CongestionLog(marks)
    marks.settings_changed({"version": 1, "changes": {"cache_window": 8}}, 0, 5, 1.0, 1)
    figure = log.chart("Window of the cache", "W", [{"type": "scatter", "x": [0, 9], "y": [1, 1]}], [0, 9])
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [5]
