"""The choice of a system, with a card for each way of training, and of a view of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from dtdg_lab.config import catalogue
from dtdg_lab.widgets.component import Defer, Message, TextComponent, component_script


@dataclass(frozen=True, slots=True)
class SystemCard:
    """A card with the systems of one way of training.

    Attributes:
        name: the card's title.
        idea: one sentence.
        sketch: a small picture (see ``SystemFamily.sketch``).
        systems: the systems that it offers, in the catalogue's order.
        chosen: whether one of them is chosen.
        refused: why none of them can be chosen; empty if one can.
    """

    name: str
    idea: str
    sketch: tuple[str, ...]
    systems: tuple[str, ...]
    chosen: bool = False
    refused: str = ""


def cards_of_families() -> list[SystemCard]:
    """Return the cards of all families in the catalogue's order; families with the same title share a card."""
    cards: dict[str, SystemCard] = {}
    for family in catalogue.families():
        own_systems = [system for system in catalogue.SYSTEMS if system.family == family.name]
        if not own_systems:  # the family adds other things
            continue
        title = family.card or family.name.replace("_", " ").capitalize()
        card = cards.get(title, SystemCard(title, "", (), ()))
        idea = card.idea or family.idea or ("" if family.card else own_systems[0].summary)
        systems = (*card.systems, *(system.name for system in own_systems))
        cards[title] = SystemCard(title, idea, card.sketch or tuple(family.sketch), systems)
    return list(cards.values())


class Navigation(TextComponent):
    """The systems, one of them chosen, and the views of the page, one of them open.

    Args:
        on_choose: function called with the title of a card that was clicked.
        on_open: function called with the title of a view that was clicked.
        views: titles of the views.
        defer: lets the event loop make a call.
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
        """Show systems."""
        self._cards = cards
        self._show()

    def be_idle(self, is_idle: bool) -> None:
        """Show systems as cards with a sentence while there is no run, otherwise as small buttons."""
        self._is_idle = is_idle
        self._show()

    def open(self, view: str) -> None:
        """Mark a view as open."""
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
