"""The schedule's charts: what is drawn is what ranks recorded, and the numbers in words are those of the rows."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from schedules_synthetic import EXCHANGE_S, REST_S, epoch_lines, event, schedule_data
from synthetic_lines import START_NS, line
from thinning import thinned

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.systems.snapshot_groups import charts as gantt
from dtdg_lab.systems.snapshot_groups.charts import WATCHED_S, balance_of, times_figure
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s
from dtdg_lab.visualization.run_window import CHARTS, RunWindow

# two ranks, two iterations: 0.3 against 0.2 s, then 0.1 against 0.4 s
TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def window(ranks: int = 2, *, epochs: int = 1, data: dict[str, Any] | None = None, **more: Any) -> RunWindow:
    shown = RunWindow(RunConfig(dataset="sbm", ranks=ranks, epochs=50))
    shown.add(event(schedule_data(TIMES, ASSIGNMENT) if data is None else data))
    for epoch in range(epochs):
        for each in epoch_lines(ASSIGNMENT, TIMES, epoch=epoch, **more):
            shown.add(each)
    return shown


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    layout = figure["layout"]
    axes = {name[0] + name[5:] for name in layout if re.fullmatch(r"[xy]axis\d*", name)}
    drawn = {trace[f"{letter}axis"] for trace in figure["data"] for letter in "xy"}
    assert drawn == axes, "an axis without a trace is not drawn, and its notes lie on another panel"
    for name in layout:
        if re.fullmatch(r"[xy]axis\d*", name):
            assert layout[name]["title"]["text"] or name[0] == "y"


def traces(panel: tuple[dict[str, Any], str]) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in panel[0]["data"]}


def panel(shown: RunWindow, title: str) -> tuple[dict[str, Any], str]:
    return next(
        each for each in shown.view("schedule").panels() if each[0]["layout"]["title"]["text"].startswith(title)
    )


def test_only_a_run_with_a_schedule_has_its_chart() -> None:
    shown = RunWindow(RunConfig(dataset="sbm", ranks=2, epochs=50))
    for each in epoch_lines(ASSIGNMENT, TIMES):
        shown.add(each)
    assert list(shown.figures()) == list(shown.captions()) == list(CHARTS)
    assert shown.view("schedule").panels() == [] and shown.view("schedule").caption() == ""
    with pytest.raises(LookupError, match="no schedule"):
        shown.view("schedule").figure()
    shown.add(event(schedule_data(TIMES, ASSIGNMENT)))
    assert list(shown.figures()) == list(shown.captions()) == [*CHARTS, "schedule"]
    check(shown.figures()["schedule"])


@pytest.mark.parametrize("source", thinned(["size", "profile", "linear"]))
def test_every_state_of_a_run_has_a_valid_picture(source: str) -> None:
    for epochs in (0, 1, 3):
        shown = window(epochs=epochs, data=schedule_data(TIMES, ASSIGNMENT, source=source))
        check(shown.figures()["schedule"])
    part = RunWindow(RunConfig(dataset="sbm", ranks=2, epochs=50))
    part.add(event(schedule_data(TIMES, ASSIGNMENT, source=source)))
    for each in list(epoch_lines(ASSIGNMENT, TIMES))[:5]:
        part.add(each)
        check(part.figures()["schedule"])


def test_gantt_draws_every_group_where_and_when_it_was_computed() -> None:
    found = traces(panel(window(), "Gantt chart of epoch 1"))
    blocks = {
        custom[0]: (rank, base, length)
        for name in ("group", "group that sets the pace")
        for custom, rank, base, length in zip(
            *(found[name][key] for key in ("customdata", "y", "base", "x")), strict=True
        )
    }
    second = 0.3 + EXCHANGE_S + REST_S
    expected = {0: (0, 0.0, 0.1), 1: (0, 0.1, 0.2), 2: (1, 0.0, 0.2), 3: (0, second, 0.1), 4: (1, second, 0.4)}
    assert {group: pytest.approx(block, abs=2e-4) for group, block in expected.items()} == {
        group: tuple(value * (1 if place == 0 else 1e-3) for place, value in enumerate(block))
        for group, block in blocks.items()
    }
    paced = found["group that sets the pace"]
    assert sorted(custom[0] for custom in paced["customdata"]) == [0, 1, 4]  # rank 0 first, then rank 1
    waits = found["waiting"]
    assert sorted(zip(waits["y"], waits["x"], strict=True)) == [
        (0, pytest.approx(300, abs=0.1)), (1, pytest.approx(100, abs=0.1))
    ]  # fmt: skip
    assert waits["marker"]["pattern"]["shape"]


def test_gantt_draws_the_bound_of_what_was_measured_and_the_predicted_end() -> None:
    data = schedule_data([2 * each for each in TIMES], ASSIGNMENT)  # the scheduler was told twice the times
    found = traces(panel(window(data=data), "Gantt"))
    bound = lower_bound_s(TIMES, 2, per_rank=2)
    line_of = {name.split(" ends")[0]: trace["x"] for name, trace in found.items() if trace["type"] == "scatter"}
    assert line_of["no schedule of these groups"] == pytest.approx([bound] * 2)
    assert any(name.startswith("predicted end 1.4 s") for name in found)
    end = max(
        base + x
        for trace in found.values()
        if trace["type"] == "bar"
        for base, x in zip(trace["base"], trace["x"], strict=True)
    )
    assert end >= bound


def test_sizes_are_made_seconds_by_what_was_measured() -> None:
    data = schedule_data([1e6 * each for each in TIMES], ASSIGNMENT, source="size")
    shown = window(data=data)
    predicted = next(name for name in traces(panel(shown, "Gantt")) if name.startswith("predicted end"))
    assert predicted == "predicted end 700 ms"
    assert "off by 0.0 % on average" in panel(shown, "Group times")[1]


def test_a_short_epoch_is_shown_when_it_is_over_and_a_long_one_while_it_runs() -> None:
    def title(factor: float) -> str:
        times = [factor * each for each in TIMES]
        shown = RunWindow(RunConfig(dataset="sbm", ranks=2, epochs=50))
        shown.add(event(schedule_data(times, ASSIGNMENT)))
        for each in [*epoch_lines(ASSIGNMENT, times), *list(epoch_lines(ASSIGNMENT, times, epoch=1))[:3]]:
            shown.add(each)
        return panel(shown, "Gantt")[0]["layout"]["title"]["text"]

    assert "epoch 1" in title(1.0)
    assert "epoch 2" in title(2 * WATCHED_S)


def test_many_groups_are_drawn_in_part_and_kept_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gantt, "KEPT", 300)
    groups = 400
    times = np.linspace(0.001, 0.002, groups).tolist()
    assignment = [[[2 * i], [2 * i + 1]] for i in range(groups // 2)]
    shown = RunWindow(RunConfig(dataset="sbm", ranks=2, epochs=50))
    shown.add(event(schedule_data(times, assignment)))
    sizes = []
    for epoch in range(16):
        for each in epoch_lines(assignment, times, epoch=epoch):
            shown.add(each)
        sizes.append(_size(shown.view("schedule")))
    assert sizes[15] <= 1.02 * sizes[7]  # of a group the newest five epochs are kept
    figure, _ = panel(shown, "Gantt chart of epoch 16")
    assert "last 60 iterations" in figure["layout"]["title"]["text"]
    assert sum(len(trace["x"]) for trace in figure["data"] if "group" in trace["name"]) == 120
    assert not any("no schedule" in trace["name"] for trace in figure["data"])  # of an epoch that is not all there


def test_of_many_groups_a_part_is_drawn_over_all_sizes() -> None:
    times = np.linspace(1.0, 2.0, 4_000)
    facts = ScheduleFacts.read(schedule_data(times, [[[group for group in range(4_000)]]]))
    figure = times_figure(facts, 1.01 * times, np.zeros(4_000, np.int64))
    dots = next(trace for trace in figure["data"] if trace["mode"] == "markers")
    assert 1_000 <= len(dots["x"]) <= 1_500
    assert min(dots["x"]) == pytest.approx(1.0, abs=0.01) and max(dots["x"]) == pytest.approx(2.0, abs=0.01)


def _size(thing: Any) -> int:
    """Containers and their members."""
    seen: set[int] = set()
    found, todo = 0, [thing]
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        found += sys.getsizeof(each)
        if isinstance(each, dict):
            todo += [*each, *each.values()]
        elif isinstance(each, list | tuple | set):
            todo += list(each)
        elif hasattr(each, "__dict__"):
            todo.append(vars(each))
        elif hasattr(each, "__slots__"):
            todo += [getattr(each, name) for name in each.__slots__]
    return found


def test_balance_of_an_epoch_by_hand() -> None:
    found = balance_of(3, np.array([[0.3, 0.2], [0.1, 0.4]]), np.array([[0.35, 0.35], [0.45, 0.45]]))
    assert found.most_over_least == pytest.approx(0.6 / 0.4)
    assert found.critical_s == pytest.approx(0.7)
    assert found.max_over_mean == pytest.approx(0.7 / 0.5)
    assert found.paced_s == pytest.approx([0.3, 0.4])
    assert found.slowest == 1
    assert found.waste == pytest.approx((2 * 0.7 - 1.0) / (2 * 0.8))
    assert found.own + found.waste == pytest.approx(found.critical) == pytest.approx(0.7 / 0.8)


def test_a_rank_without_any_group_has_no_finite_ratio() -> None:
    found = balance_of(0, np.array([[0.3, 0.0]]), np.array([[0.3, 0.3]]))
    assert found.most_over_least is None
    assert found.max_over_mean == pytest.approx(2.0)


def test_imbalance_and_waste_over_epochs_name_the_slowest_rank() -> None:
    shown = window(epochs=6)
    ratios = traces(panel(shown, "Imbalance"))
    assert ratios["most over least loaded rank"]["x"] == [1, 2, 3, 4, 5, 6]
    assert ratios["most over least loaded rank"]["y"] == [pytest.approx(1.5, abs=1e-4)] * 6  # 0.6 s against 0.4 s
    assert ratios["slowest over mean of an iteration"]["y"] == [pytest.approx(1.4, abs=1e-4)] * 6
    shares = panel(shown, "Where the ranks' time goes")
    whole = [sum(values) for values in zip(*(trace["y"] for trace in shares[0]["data"]), strict=True)]
    assert whole == [pytest.approx(100, abs=0.01)] * 6
    assert "Rank 1 is slowest: it is 57 % of the critical path of 700 ms (even: 50 %)" in shares[1]
    assert (
        "Rank 1 is slowest" in shown.view("schedule").caption()
        and "of the ranks' time is waste" in shown.view("schedule").caption()
    )


def test_a_line_twice_or_late_changes_nothing() -> None:
    shown, lines = (
        window(epochs=0),
        [each for epoch in range(3) for each in epoch_lines(ASSIGNMENT, TIMES, epoch=epoch)],
    )
    for each in lines:
        shown.add(each)
    before = json.dumps(shown.figures()["schedule"])
    for each in lines:
        shown.add(each)
    assert json.dumps(shown.figures()["schedule"]) == before


@pytest.mark.parametrize("back", [3, 1])  # to an epoch whose steps are still known, and to one long over
def test_a_resume_replaces_what_came_after_it(back: int) -> None:
    shown = window(epochs=5)
    for epoch in range(back, 5):  # attempt 2 begins with the first step of the epoch
        for each in epoch_lines(ASSIGNMENT, TIMES, epoch=epoch, slow=(1.0, 3.0), attempt=2):
            shown.add(each)
    ratios = traces(panel(shown, "Imbalance"))["slowest over mean of an iteration"]
    assert ratios["x"] == [1, 2, 3, 4, 5]
    even, slow = 0.7 / 0.5, (0.6 + 1.2) / (0.5 * (0.3 + 0.6 + 0.1 + 1.2))
    expected = [even] * back + [slow] * (5 - back)
    assert ratios["y"] == [pytest.approx(value, abs=1e-4) for value in expected]
    assert panel(shown, "Gantt")[0]["layout"]["title"]["text"].startswith("Gantt chart of epoch 5")


def test_a_new_schedule_is_marked_and_takes_over() -> None:
    shown = window(epochs=2)
    other = [[[4], [0, 1]], [[2], [3]]]
    shown.add(event(schedule_data(TIMES, other, scheduler="dygnex_greedy"), step=4, epoch=2))
    gantt = panel(shown, "Gantt chart of epoch 2")
    assert "dygnex_greedy" not in gantt[0]["layout"]["title"]["text"]  # that epoch was of the schedule before
    assert not any(name.startswith("predicted") for name in traces(gantt))
    for each in epoch_lines(other, TIMES, epoch=2):
        shown.add(each)
    assert "dygnex_greedy" in panel(shown, "Gantt chart of epoch 3")[0]["layout"]["title"]["text"]
    notes = panel(shown, "Imbalance")[0]["layout"]["annotations"]
    assert [(note["x"], note["text"]) for note in notes] == [(3, "dygnex_greedy")]
    ratio = traces(panel(shown, "Imbalance"))["slowest over mean of an iteration"]["y"]
    assert ratio[-1] == pytest.approx((0.4 + 0.2) / 0.5, abs=1e-4)


def test_a_run_that_leaves_snapshot_groups_has_no_schedule_any_more() -> None:
    shown = window(epochs=2)
    shown.add(event({"layout": None}, step=4, epoch=2))
    assert list(shown.figures()) == list(shown.captions()) == list(CHARTS)
    shown.add(event(schedule_data(TIMES, ASSIGNMENT, scheduler="best_of"), step=8, epoch=4))
    assert shown.view("schedule").facts.scheduler == "best_of"
    check(shown.figures()["schedule"])


def test_group_times_are_medians_without_the_first_epoch() -> None:
    shown = window(epochs=0)
    for epoch, factor in enumerate((9.0, 1.0, 1.2, 1.1)):
        for each in epoch_lines(ASSIGNMENT, [factor * t for t in TIMES], epoch=epoch):
            shown.add(each)
    assert shown.view("schedule").times.seconds(5) == pytest.approx(1.1 * np.array(TIMES), rel=1e-6)
    assert shown.view("schedule").times_s() == pytest.approx(1.1 * np.array(TIMES), rel=1e-6)
    words = panel(shown, "Group times")[1]
    assert words.startswith("Predicted times are off by 9.1 % on average, 9.1 % at most.")
    dots = [trace for trace in panel(shown, "Group times")[0]["data"] if trace["mode"] == "markers"]
    assert [trace["name"] for trace in dots] == ["rank 0", "rank 1"]
    assert sorted(group for trace in dots for group in trace["customdata"]) == [0, 1, 2, 3, 4]


def test_group_times_name_a_slow_rank_and_shared_processors() -> None:
    shown = window(epochs=3, slow=(1.0, 2.0), cpu_share=0.5)
    words = panel(shown, "Group times")[1]
    assert re.search(r"Rank 1's dots are high: it needs 1\.\d\d times as long", words)
    assert "Processors worked 50 % of it" in words
    assert "Rank 1" not in panel(window(epochs=3), "Group times")[1]


def test_what_if_is_what_the_run_told_until_it_is_replayed() -> None:
    shown = window(epochs=2)
    bars = traces(panel(shown, "What would"))["predicted epoch"]
    assert bars["y"] == ["psg", "fold<br>(in use)"]
    described = schedule_data(TIMES, ASSIGNMENT)
    assert bars["x"] == pytest.approx([1e3 * described["psg_makespan_s"], 700])
    rows = [
        {"scheduler": name, "makespan_s": seconds, "bound_s": 0.5, "imbalance": None, "solve_s": 0.01, "notes": "so"}
        for name, seconds in (("psg", 0.9), ("fold", 0.7), ("best_of", 0.56))
    ]
    shown.view("schedule").replayed(rows)
    figure, words = panel(shown, "What would")
    assert traces((figure, words))["predicted epoch"]["x"] == [900, 700, 560]
    assert "best_of would need 20 % less than fold" in words
    assert "best_of needs 38 % less than round robin (psg)" in words
    assert "save more than 11 % of what it needs" in words
    check(shown.view("schedule").figure())
    shown.add(event(schedule_data(TIMES, ASSIGNMENT), step=4, epoch=2))
    assert "psg" in traces(panel(shown, "What would"))["predicted epoch"]["y"][0]
    assert len(traces(panel(shown, "What would"))["predicted epoch"]["y"]) == 2


def test_one_rank_waits_for_nobody() -> None:
    times, assignment = [0.1, 0.3], [[[0, 1]]]
    shown = RunWindow(RunConfig(dataset="sbm", ranks=1, epochs=5))
    shown.add(event(schedule_data(times, assignment)))
    for each in epoch_lines(assignment, times):
        shown.add(each)
    titles = [each[0]["layout"]["title"]["text"] for each in shown.view("schedule").panels()]
    assert len(titles) == 3 and not any("mbalance" in title for title in titles)
    assert "nothing waits" in panel(shown, "Gantt")[1]
    check(shown.figures()["schedule"])


@pytest.mark.parametrize("lost", ["times_s", "assignment", "bound_s", "scheduler"])
def test_a_damaged_event_is_refused(lost: str) -> None:
    data = schedule_data(TIMES, ASSIGNMENT)
    del data[lost]
    shown = RunWindow(RunConfig(dataset="sbm", ranks=2, epochs=5))
    with pytest.raises(DataError, match=lost):
        shown.add(line("events", [[0, 0, START_NS, "schedule", data]]))
