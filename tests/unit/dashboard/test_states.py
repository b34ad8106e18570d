"""The head of the page in every state, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.dashboard.states import PageFacts, about_text, head_of
from dtdg_lab.widgets.header import Head

RUN = {
    "system": "FlareDTDG",
    "name": "FlareDTDG on collegemsg",
    "engines": 2,
    "engines_ready": 2,
    "step": 364,
    "epoch": 14,
    "epochs": 60,
    "seconds": 34.0,
    "seconds_left": 120.0,
}


def head(**facts: Any) -> Head:
    return head_of(PageFacts(**{**RUN, **facts}))


def left(shown: Head) -> str:
    return "".join(text for text, _ in shown.left)


def notice(shown: Head) -> str:
    said = shown.notice
    return "" if said is None else f"{said.first} {said.rest}".strip()


STATES = [  # facts, chip, words under the bar, buttons, notice
    (
        {"status": "", "ready": True, "newcomer": True},
        "No run yet",
        ("Choose a system, press Run, then change a setting while it trains.", ""),
        ["▶ Run FlareDTDG"],
        "New here? Suggestions under the picture tell you what to change first.",
    ),
    (
        {"status": "", "ready": False, "engines_ready": 1},
        "No run yet",
        ("Engines are starting: 1 of 2 ready", ""),
        ["▶ Run FlareDTDG"],
        "",
    ),
    (
        {"status": "starting", "preparing": "Making 128 chunks with METIS", "left_words": "about 4 s left"},
        "Preparing",
        ("Making 128 chunks with METIS", "about 4 s left"),
        ["Cancel"],
        "",
    ),
    ({"status": "running", "epoch": 0}, "Preparing", ("Starting the ranks", ""), ["Cancel"], ""),
    (
        {"status": "running"},
        "Running",
        ("Epoch 14 of 60 · step 364", "0:34 elapsed, about 2 min left"),
        ["Pause", "Stop"],
        "",
    ),
    (
        {"status": "running", "between_steps": "Evaluating, about 3 s left"},
        "Running",
        ("Epoch 14 of 60 · step 364 · evaluating, about 3 s left", "0:34 elapsed, about 2 min left"),
        ["Pause", "Stop"],
        "",
    ),
    (
        {"status": "running", "silent": {1: 8}},
        "Running",
        ("Epoch 14 of 60 · step 364", "0:34 elapsed, time left unknown"),
        ["Pause", "Stop"],
        "Rank 1 has been silent for 8 s. The other ranks are waiting for it.",
    ),
    (
        {"status": "running", "page_is_busy": True},
        "Running",
        ("Epoch 14 of 60 · step 364", "0:34 elapsed, about 2 min left"),
        ["Pause", "Stop"],
        "This page is busy, so charts are drawn every 2 s. Training isn't slowed down.",
    ),
    (
        {"status": "paused", "paused_s": 12.4},
        "Paused",
        ("Epoch 14 of 60 · step 364", "paused for 0:12"),
        ["Continue", "Stop"],
        "Paused. Change settings now: they apply when you continue.",
    ),
    ({"status": "stopping"}, "Stopping", ("Epoch 14 of 60 · step 364", "0:34 elapsed, about 2 min left"), ["Stop"], ""),
    (
        {"status": "finished", "seconds": 161.0, "step": 1620, "ended": "13:37", "test_loss": 0.0262, "below": 0.35},
        "Finished",
        ("60 epochs · 1,620 steps", "finished 13:37, took 2:41"),
        ["▶ Run again"],
        "Test loss 0.0262, 35% below persistence. It was measured once, at the end.",
    ),
    (
        {"status": "stopped"},
        "Stopped",
        ("Stopped in epoch 14 of 60 · step 364", "0:34"),
        ["Resume", "▶ New run"],
        "Stopped by you. The test loss is measured only when a run finishes.",
    ),
    (
        {"status": "failed", "reason": "rank 1 ran out of memory. Choose a smaller alpha.", "checkpoint_step": 351},
        "Failed",
        ("Failed in epoch 14 of 60 · step 364", ""),
        ["Resume from step 351", "▶ New run"],
        "Rank 1 ran out of memory. Choose a smaller alpha.",
    ),
    (
        {"status": "interrupted", "ended": "13:35", "checkpoint_step": 351},
        "Interrupted",
        ("Interrupted in epoch 14 of 60 · step 364", "last seen at 13:35"),
        ["Resume from step 351", "▶ New run"],
        "The engines stopped answering. Their machine may have restarted. Nothing before step 351 is lost.",
    ),
    (
        {"status": "interrupted", "reason": "interrupted by SIGTERM at step 364: rank 1 was asked to leave."},
        "Interrupted",
        ("Interrupted in epoch 14 of 60 · step 364", ""),
        ["Resume", "▶ New run"],
        "Interrupted by SIGTERM at step 364.",
    ),
    (
        {"status": "", "left_behind": True},
        "No run yet",
        ("Choose a system, press Run, then change a setting while it trains.", ""),
        ["Resume", "▶ Run FlareDTDG"],
        "An earlier run was interrupted. It can be resumed from its last checkpoint.",
    ),
]


@pytest.mark.parametrize(("facts", "chip", "words", "buttons", "said"), STATES)
def test_each_state_has_its_chip_words_buttons_and_notice(facts, chip, words, buttons, said):
    shown = head(**facts)
    assert (shown.state, (left(shown), shown.right)) == (chip, words)
    assert [button.label for button in shown.buttons] == buttons
    assert notice(shown) == said


def test_the_bar_is_striped_while_its_length_is_unknown_and_hidden_without_a_run():
    assert head(status="starting").share is None
    assert head(status="").share < 0
    assert head(status="running").share == pytest.approx(34 / 154)
    assert head(status="running", seconds_left=None).share == pytest.approx(13 / 60)
    assert head(status="finished").share == 1.0


def test_a_missing_engine_is_said_and_neither_run_nor_resume_is_possible():
    shown = head(status="stopped", engines_ready=1)
    assert notice(shown) == "1 of 2 engines is missing. No run can start until all engines are ready."
    assert [button.action for button in shown.notice.buttons] == ["repair"]
    assert all(button.disabled for button in shown.buttons)


def test_a_problem_comes_before_everything_else():
    shown = head(status="failed", reason="rank 1 died", problem="Set alpha: alpha=5 is out of range. Choose 1 or less.")
    assert notice(shown) == "Set alpha: alpha=5 is out of range. Choose 1 or less."
    assert (shown.notice.tone, shown.notice.buttons[0].action) == ("bad", "dismiss")


def test_records_that_cannot_be_read_are_said():
    shown = head(status="running", damaged="Line 3 of rank0.jsonl is damaged.")
    assert notice(shown) == "Some records can't be read. Line 3 of rank0.jsonl is damaged."
    assert shown.notice.tone == "bad"


def test_a_request_on_its_way_disables_what_would_be_asked_twice():
    assert [button.disabled for button in head(status="running", busy=True).buttons] == [True, False]
    assert [button.disabled for button in head(status="stopped", busy=True).buttons] == [True, True]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "about 1 s"), (42, "about 42 s"), (100, "about 2 min"), (9000, "about 2.5 h")]
)
def test_estimates_are_rounded(seconds, text):
    assert about_text(seconds) == text
