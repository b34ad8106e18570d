"""The choice of a system, one card for each way of training, and of a view of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from dtdg_lab.config import catalogue
from dtdg_lab.widgets.component import Defer, Message, TextComponent, component_script


@dataclass(frozen=True, slots=True)
class SystemCard:
    """A card as it is shown.

    Attributes:
        name: its title.
        idea: one sentence.
        sketch: see ``SystemFamily.sketch``.
        systems: that it offers, in the catalogue's order.
        chosen: whether one of them is chosen.
        refused: why none of them can be chosen; empty where one can.
    """

    name: str
    idea: str
    sketch: tuple[str, ...]
    systems: tuple[str, ...]
    chosen: bool = False
    refused: str = ""


def cards_of_families() -> list[SystemCard]:
    """Return the cards of all families, in the catalogue's order; families of one title share a card."""
    cards: dict[str, SystemCard] = {}
    for family in catalogue.families():
        mine = [system for system in catalogue.SYSTEMS if system.family == family.name]
        if not mine:  # it adds other things
            continue
        title = family.card or family.name.replace("_", " ").capitalize()
        card = cards.get(title, SystemCard(title, "", (), ()))
        idea = card.idea or family.idea or ("" if family.card else mine[0].summary)
        systems = (*card.systems, *(system.name for system in mine))
        cards[title] = SystemCard(title, idea, card.sketch or tuple(family.sketch), systems)
    return list(cards.values())


class Navigation(TextComponent):
    """The systems, with the chosen one, and the views of the page, with the open one.

    Args:
        on_choose: gets the title of a card that was clicked.
        on_open: gets the title of a view that was clicked.
        views: their titles.
        defer: has a call made by the event loop.
    """

    _esm: ClassVar[str] = component_script("navigation")

    def __init__(
        self,
        on_choose: Callable[[str], None],
        on_open: Callable[[str], None],
        views: Sequence[str],
        *,
        defer: Defer = lambda call: call(),
        **params: Any,
    ) -> None:
        super().__init__(self._clicked, defer=defer, **params)
        self._on_choose, self._on_open, self._views = on_choose, on_open, list(views)
        self._cards: Sequence[SystemCard] = ()
        self.view, self._is_idle = self._views[0], True

    def draw(self, cards: Sequence[SystemCard]) -> None:
        """Show these systems."""
        self._cards = cards
        self._show()

    def be_idle(self, is_idle: bool) -> None:
        """Show systems as cards with a sentence while there is no run, as chips otherwise."""
        self._is_idle = is_idle
        self._show()

    def open(self, view: str) -> None:
        """Mark a view as the open one."""
        self.view = view
        self._show()

    def _show(self) -> None:
        cards = [asdict(card) for card in self._cards]
        self.set_content({"cards": cards, "views": self._views, "view": self.view, "idle": self._is_idle})

    def _clicked(self, message: Message) -> None:
        if "view" in message:
            self._on_open(message["view"])
        else:
            self._on_choose(message["chosen"])
