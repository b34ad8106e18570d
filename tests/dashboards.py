"""A dashboard, used as a person uses it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import param

from dtdg_lab.dashboard.app import Dashboard


def settle(*dashboards: Dashboard) -> None:
    """Let the loop take what a person did, requests end, and every dashboard look at everything."""
    for shown in dashboards:
        shown.tick()
        until = time.monotonic() + 30
        while shown.actions.busy:
            assert time.monotonic() < until, "a request did not end"
            time.sleep(0.005)
            shown.tick()
    for _ in range(2):
        for shown in dashboards:
            shown.watch.look()
            look(shown)


def look(shown: Dashboard) -> None:
    """A second of ticks."""
    for _ in range(8):
        shown.tick()
        shown.watch.look()
    shown.tick()


def head(shown: Dashboard) -> dict[str, Any]:
    """What the head shows."""
    content: dict[str, Any] = json.loads(shown.header.content)
    return content


def left_words(shown: Dashboard) -> str:
    """The words under the bar, at its left."""
    return "".join(text for text, _ in head(shown)["left"])


def notice(shown: Dashboard) -> str:
    """The notice under the head; empty where there is none."""
    said = head(shown)["notice"]
    return "" if said is None else f"{said['first']} {said['rest']}".strip()


def buttons(shown: Dashboard) -> dict[str, bool]:
    """Action of each button of the head -> whether it can be pressed."""
    return {button["action"]: not button["disabled"] for button in head(shown)["buttons"]}


def click(shown: Dashboard, action: str) -> None:
    """Click a button of the head, or of its notice."""
    content = head(shown)
    offered = [*content["buttons"], *((content["notice"] or {}).get("buttons", ()))]
    assert any(button["action"] == action and not button["disabled"] for button in offered), f"{action}: {offered}"
    shown.header._handle_msg(json.dumps({"action": action}))
    settle(shown)


def press(shown: Dashboard, card: str) -> None:
    """Click a system."""
    shown.navigation._handle_msg(json.dumps({"chosen": card}))
    settle(shown)


def choose(shown: Dashboard, name: str, value: object) -> None:
    """What a browser does: the value, and for sliders and spinners its release."""
    control = shown.settings.controls[name]
    assert not control.widget.disabled and control.widget.visible, f"{name} cannot be changed"
    if "value_throttled" in control.widget.param:
        with param.edit_constant(control.widget):
            control.widget.param.update(value=value, value_throttled=value)
    else:
        control.widget.value = value
    settle(shown)


def systems(shown: Dashboard) -> dict[str, Mapping[str, Any]]:
    """The systems by their titles, as they are shown."""
    return {card["name"]: card for card in json.loads(shown.navigation.content)["cards"]}


def entries(shown: Dashboard) -> list[Mapping[str, Any]]:
    """The entries of the log, newest first."""
    found: list[Mapping[str, Any]] = json.loads(shown.live.log.content)["entries"]
    return found


def tiles(shown: Dashboard) -> dict[str, str]:
    """The tiles: label -> value."""
    return {tile["label"]: tile["value"] for tile in json.loads(shown.live.tiles.content)}


# A part of the dashboard by itself


def click_button(page: Any, button: Any) -> None:
    """Click a button of a part."""
    assert not button.disabled
    button.clicks += 1
    page._actions.poll()


def choose_in(page: Any, name: str, value: Any) -> None:
    """Choose a setting beside a part."""
    with param.edit_constant(widget := page._settings.controls[name].widget):
        throttled = {"value_throttled": value} if "value_throttled" in widget.param else {}
        widget.param.update(value=value, **throttled)
    page._actions.poll()


def page_until(page: Any, is_so: Callable[[], Any]) -> None:
    """Let a part follow its run until something is so."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it is not so within 60 s"
        time.sleep(0.02)
        page._actions.poll()
        page.update(slow=True)


class Loop:
    """Calls that wait until the event loop makes them."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def defer(self, call: Callable[[], None]) -> None:
        """Let a call wait."""
        with self._lock:
            self._calls.append(call)

    def until(self, is_so: Callable[[], Any], *, page: Any = None) -> None:
        """Make the calls, and let a part look at the disk, until something is so."""
        end = time.monotonic() + 30
        while not is_so():
            assert time.monotonic() < end, "it is not so within 30 s"
            if page is not None:
                page.update(slow=True)
            with self._lock:
                calls, self._calls = self._calls, []
            for call in calls:
                call()
            time.sleep(0.01)
