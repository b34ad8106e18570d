"""Requests of a user and their form in messages."""

from __future__ import annotations

import json

import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.records.requests import (
    Keep,
    Pause,
    Request,
    Resume,
    SetLive,
    Stop,
    first_stop,
    read_request,
    write_request,
)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (SetLive({"alpha": 0.5}, "tuner"), {"set": {"alpha": 0.5}, "by": "tuner"}),
        (SetLive({"alpha": 0.5}), {"set": {"alpha": 0.5}}),
        (Pause(), {"pause": True}),
        (Resume(), {"pause": False}),
        (Stop(), {"stop": True}),
        (Stop("SIGTERM", 1), {"stop": True, "signal": "SIGTERM", "rank": 1}),
        (Keep(), {"keep": True}),
    ],
)
def test_a_request_survives_a_message(request_: Request, message: dict[str, object]) -> None:
    assert write_request(request_) == message
    assert read_request(json.loads(json.dumps(message))) == request_


@pytest.mark.parametrize("message", [{}, {"set": 3}, {"stop": False}])
def test_a_message_without_an_action_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="control request"):
        read_request(message)


def test_the_first_stop_counts() -> None:
    assert first_stop([Pause(), Stop("SIGTERM"), Stop()]) == (2, Stop("SIGTERM"))
    assert first_stop([Pause()]) == (0, None)
