"""Controls of settings: values, groups, and what a run does to them."""

from __future__ import annotations

from dataclasses import replace

import param
import pytest

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.dashboard.settings_panel import FIXED, HEADINGS, NEXT, NEXT_RUN
from dtdg_lab.widgets.controls import make_control


def settings_of(system: str) -> Settings:
    return Settings(2, RunConfig(system=system, dataset="growing", ranks=2), on_change=lambda name, value: None)


def placed(settings: Settings, group: str) -> list[str]:
    """Names of the settings of a group that are shown, in order."""
    return [name for name in settings.layout.groups[group] if settings.controls[name].widget.visible]


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_control_stands_at_what_it_is_shown_and_does_not_call_back(name):
    option = OPTIONS[name]
    control, received = make_control(option), []
    control.on_change(lambda name, value: received.append((name, value)))
    if option.kind is bool:
        value = not option.default
    elif option.choices:
        value = option.choices[-1]
    elif option.kind is str:
        value = "~/a file.npz"
    else:
        value = option.check(option.kind(min(max(option.low or 0, 7), option.high)))
    control.show(value)
    assert control.value == value and received == []
    assert isinstance(control.value, option.kind)


def test_the_learning_rate_slider_keeps_values_it_has_no_tick_for():
    control = make_control(OPTIONS["learning_rate"])
    for value in (0.0042, 1e-7, 5.0):
        control.show(value)
        assert control.value == value
        assert control.widget.start <= control.widget.value <= control.widget.end


def test_a_slider_that_is_dragged_is_left_alone_until_the_run_changes():
    config = RunConfig(system="psg", dataset="growing", learning_rate=0.01)
    settings = Settings(2, config, on_change=lambda name, value: None)
    settings.run_is_on(True)
    control = settings.controls["learning_rate"]
    settings.follow(config)
    control.widget.value += 20 * control.widget.step  # of a drag: the browser sends `value_throttled` at its end
    dragged = control.value
    settings.follow(config)
    assert control.value == dragged != 0.01
    settings.follow(config.replace(learning_rate=0.03))  # from a cell
    assert control.value == 0.03
    control.widget.value += 20 * control.widget.step
    settings.refused("learning_rate", config)
    assert control.value == 0.01


def test_a_slider_that_is_given_back_is_at_the_value_of_the_run_though_it_has_no_step_there():
    changed, previews = [], []
    control = make_control(OPTIONS["alpha"])
    control.on_change(lambda name, value: changed.append(value))
    control.on_preview(lambda name, value: previews.append(value))
    control.follow(0.6)
    near = round(control.widget.value / 0.05) * 0.05
    for position in (near - 0.2, near):
        control.widget.value = position
    with param.edit_constant(control.widget):
        control.widget.value_throttled = near
    assert previews == [0.398, 0.6] and changed == [] and control.is_stale
    control.follow(0.6)
    assert control.value == 0.6


def test_sliders_have_an_accessible_name_and_about_a_hundred_steps():
    rate = OPTIONS["learning_rate"]
    for option in (rate, replace(rate, slider=(0.0, 1.0), logarithmic=False)):
        slider = make_control(replace(option, spoken="Rate of learning")).widget
        assert any("Rate of learning" in sheet for sheet in slider.stylesheets)
        assert 50 <= (slider.end - slider.start) / slider.step <= 1000


def test_full_snapshots_are_dragged_in_whole_numbers_up_to_the_window():
    requested = []
    config = RunConfig(system="flaredtdg", dataset="growing", window=6, full_snapshots=3)
    settings = Settings(2, config, on_change=lambda name, value: requested.append((name, value)))
    slider = settings.controls["full_snapshots"].widget
    assert (slider.start, slider.end, slider.step, slider.value) == (1, 6, 1, 3)
    settings.run_is_on(True)
    settings.follow(config)
    with param.edit_constant(slider):
        slider.param.update(value=4, value_throttled=4)
    assert requested == [("full_snapshots", 4)] and type(requested[0][1]) is int
    settings.follow(config.replace(window=5, full_snapshots=4))
    assert slider.end == 5


def test_settings_stand_in_groups_by_when_a_change_takes_effect():
    settings = settings_of("flaredtdg")
    assert placed(settings, "step")[:3] == ["full_snapshots", "alpha", "decay"]
    assert "window" in placed(settings, "epoch") and "dataset" in placed(settings, "no")
    everywhere = [name for names in settings.layout.groups.values() for name in names]
    assert sorted(everywhere) == sorted(settings.controls)


def test_delay_and_rate_of_links_are_shown_with_a_pattern_of_congestion():
    settings = settings_of("greendygnn")
    assert not settings.controls["congestion_ms"].widget.visible
    settings.controls["congestion"].show(settings.controls["congestion"].widget.values[1])
    settings._changed("congestion", settings.controls["congestion"].value)
    assert settings.controls["congestion_ms"].widget.visible


def test_what_is_fixed_during_a_run_is_folded_as_the_next_run_and_headings_say_it_after_the_end():
    settings = settings_of("flaredtdg")
    assert (settings.layout.fixed.header.value, settings.layout.fixed.collapsed) == (FIXED, False)
    settings.run_is_on(True)
    assert (settings.layout.fixed.header.value, settings.layout.fixed.collapsed) == (NEXT, True)
    settings.run_is_on(False)
    settings.layout.say_next_run(True)
    assert {heading.value for heading in settings.layout.headings.values()} == {NEXT_RUN}
    settings.layout.say_next_run(False)
    assert settings.layout.headings["step"].value == HEADINGS["step"]


def test_a_change_that_waits_for_the_epoch_is_tagged_with_both_values():
    settings = settings_of("flaredtdg")
    settings.run_is_on(True)
    settings._changed("window", 6)
    assert settings.controls["window"].widget.label.endswith(" · 8 → 6")
    assert settings.is_waiting("window")
    settings.settled("window")
    assert "→" not in settings.controls["window"].widget.label


def test_what_a_page_sends_back_late_is_no_request():
    """A notebook's page sends back what it was told to show; by then the run may have another value."""
    config, asked = RunConfig(system="psg", dataset="growing", ranks=2, slow_rank=-1), []
    settings = Settings(2, config, on_change=lambda name, value: asked.append((name, value)))
    settings.run_is_on(True)
    control = settings.controls["slow_rank"]
    for slow_rank in (-1, 1, -1):  # from a cell
        settings.follow(config.replace(slow_rank=slow_rank))
    control.widget.value = 1  # sent back
    assert asked == []
    settings.follow(config)
    assert control.value == -1, "as the run has it"
    control.widget.value = 1  # chosen
    assert asked == [("slow_rank", 1)]


def test_a_number_with_a_long_label_has_a_row_to_itself():
    controls = settings_of("dynahb").controls

    def takes_half(name: str) -> bool:
        return any("flex: 1 1 40%" in sheet for sheet in controls[name].widget.stylesheets)

    assert takes_half("epochs") and not takes_half("memory_gib") and not takes_half("epoch_batches")


def test_a_slowed_rank_that_the_next_run_does_not_have_becomes_none():
    config = RunConfig(system="flaredtdg", dataset="growing", ranks=2, slow_rank=1, slow_ms=20.0)
    settings = Settings(2, config, on_change=lambda name, value: None)
    slow_rank = settings.controls["slow_rank"]
    assert slow_rank.value == 1
    settings.take({"ranks": 1})
    assert (slow_rank.value, slow_rank.widget.options) == (-1, {"none": -1, "rank 0": 0})
    assert settings.config()["slow_rank"] == -1
    settings.take({"ranks": 2})
    assert slow_rank.widget.values == [-1, 0, 1]


def test_a_system_that_takes_more_ranks_gets_those_of_the_session_again():
    settings = settings_of("flaredtdg")
    settings.take({"system": "single"})
    assert settings.config().ranks == 1
    settings.take({"system": "esdg"})
    assert (settings.config().ranks, settings.controls["ranks"].widget.options) == (2, [1, 2])
    settings.take({"ranks": 1})
    settings.take({"system": "flaredtdg"})
    assert settings.config().ranks == 1, "a person's choice stays"
