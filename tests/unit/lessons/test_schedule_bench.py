"""The bench of a lesson: what a drag does is scheduled, drawn and told."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.core.errors import ConfigError, LabError, PlanError, UnknownNameError
from dtdg_lab.lessons.widgets import MOST_GROUPS, ScheduleBench
from dtdg_lab.systems.snapshot_groups.gantt import GROUP, PACE, WAITING

TIMES = [1, 2, 5, 7, 9, 14, 15, 17]


def _picture(bench: ScheduleBench) -> dict[str, Any]:
    return next(value for name, value in bench._picture.outputs[0]["data"].items() if "plotly" in name)


def _bars(figure: dict[str, Any], *names: str) -> float:
    return sum(sum(trace["x"]) for trace in figure["data"] if trace["name"] in names)


def test_a_bench_tells_and_draws_what_its_sliders_say() -> None:
    bench = ScheduleBench(TIMES, 2, chosen="psg")
    assert bench.makespan_s() == 40 and bench.makespan_s("fold") == 36 and bench.bound_s == pytest.approx(35)
    assert "psg ends after 40.0 s, 14% above the bound of 35.0 s" in repr(bench)
    assert _bars(_picture(bench), GROUP, PACE) == sum(TIMES) and _bars(_picture(bench), WAITING) == 2 * 40 - sum(TIMES)


def test_a_drag_schedules_anew() -> None:
    bench = ScheduleBench(TIMES, 2, chosen="fold")
    before = _picture(bench)
    bench._sliders[0].value = 10.0
    assert bench.times_s[0] == 10.0 and bench.words in bench._described.value
    assert _bars(_picture(bench), GROUP, PACE) == sum(TIMES) + 9 != _bars(before, "group")
    bench._choice.value = "psg"
    assert "<b>Planned epoch · psg</b>" in _picture(bench)["layout"]["annotations"][0]["text"]


def test_set_does_what_a_drag_does() -> None:
    bench = ScheduleBench(TIMES, 2)
    bench.set([2, 4, 5, 6, 7, 11, 12, 17], scheduler="longest_first")
    assert bench.scheduler == "longest_first" and bench.makespan_s() < bench.makespan_s("fold")
    assert _bars(_picture(bench), GROUP, PACE) == 64


@pytest.mark.parametrize(
    ("times", "knobs", "error"),
    [
        ([], {}, PlanError),
        ([1, float("nan")], {}, PlanError),
        ([1, 0], {}, ConfigError),
        ([1] * (MOST_GROUPS + 1), {}, ConfigError),
        (TIMES, {"schedulers": ()}, ConfigError),
        (TIMES, {"schedulers": ("folded",)}, UnknownNameError),
        (TIMES, {"chosen": "folded"}, UnknownNameError),
    ],
)
def test_what_makes_no_bench_is_refused(times: list[float], knobs: dict[str, Any], error: type[LabError]) -> None:
    with pytest.raises(error):
        ScheduleBench(times, 2, **knobs)


def test_what_the_sliders_cannot_show_is_refused_and_leaves_them() -> None:
    bench = ScheduleBench(TIMES, 2)
    for wrong in ([1, 2], [0, *TIMES[1:]], [1000, *TIMES[1:]]):
        with pytest.raises(ConfigError):
            bench.set(wrong)
    with pytest.raises(UnknownNameError):
        bench.set(scheduler="folded")
    assert bench.times_s == TIMES
    data = bench._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in (data[0] if isinstance(data, tuple) else data)


@pytest.mark.parametrize("times", [TIMES, [0.0123, 0.0301], [1e-6, 3e-6], [777.7, 1000.0]])
def test_sliders_stand_on_their_steps_near_the_times_given(times: list[float]) -> None:
    bench = ScheduleBench(times, 2)
    slider = bench._sliders[0]
    for given, shown in zip(times, bench.times_s, strict=True):
        steps = shown / slider.step
        assert steps == pytest.approx(round(steps)) and abs(shown - given) <= 0.51 * slider.step
    assert 100 <= slider.max / slider.step <= 251 and slider.min == slider.step
