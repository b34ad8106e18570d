"""The head of the page: the run's name, its state and progress, buttons, a notice, and the menu with the theme."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from dtdg_lab.widgets.component import TextComponent, component_script

Tone = Literal["", "good", "info", "care", "bad"]
Words = tuple[tuple[str, bool], ...]  # texts, each with whether it is bold


@dataclass(frozen=True, slots=True)
class Button:
    """A button that requests an action.

    Attributes:
        action: the action's name.
        label: the button's text.
        kind: ``go``, ``act``, ``halt``, ``link``, or empty for a plain button.
        tip: what it does.
        disabled: whether it cannot be clicked now.
    """

    action: str
    label: str
    kind: Literal["", "go", "act", "halt", "link"] = ""
    tip: str = ""
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """A line below the head: a first sentence in bold, the rest, and buttons for what can be done."""

    tone: Tone
    first: str
    rest: str = ""
    buttons: tuple[Button, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """The content of the head.

    Attributes:
        name: the run's name.
        sub: model, ranks and start.
        renamable: whether a person can change the name.
        state: the word that shows the state.
        tone: the colour of the state.
        share: completed share of the run; None if it is unknown, below 0 for no bar.
        left, right: texts below the bar.
        buttons: buttons on the right.
        notice: the notice below the head.
        menu: entries of the menu besides the theme, as (label, action).
    """

    name: str
    sub: str
    renamable: bool
    state: str
    tone: Tone
    share: float | None
    left: Words
    right: str
    buttons: tuple[Button, ...]
    notice: Notice | None = None
    menu: tuple[tuple[str, str], ...] = ()


class Header(TextComponent):
    """The head. A message has ``action`` with its name, or ``name`` with a new name for the run.

    The outermost layout around it takes the theme that is chosen in its menu. Widgets in that layout get accessible
    names and keyboard control if they have none. The browser remembers the choice; the kernel does not know it.
    """

    _esm: ClassVar[str] = component_script("header")

    def draw(self, head: Head) -> None:
        """Show the content."""
        self.set_content(asdict(head))

    def show_again(self) -> None:
        """Let displays show their content again, since a click on Stop changes the state before the kernel answers."""
        self._send_msg(json.dumps({"kind": "again"}))

    def open_page(self, html: str) -> None:
        """Show a page in the window that the display has opened for it."""
        self._send_msg(json.dumps({"kind": "page", "html": html}))

    def close_page(self) -> None:
        """Close the window that the display has opened for a page."""
        self._send_msg(json.dumps({"kind": "no page"}))

    def copy(self, text: str) -> None:
        """Put a text on the clipboard of the display that requested it, or show it there."""
        self._send_msg(json.dumps({"kind": "copy", "text": text}))

    def tell_details(self, title: str, text: str) -> None:
        """Show a long text in a dialog."""
        self._send_msg(json.dumps({"kind": "details", "title": title, "text": text}))
