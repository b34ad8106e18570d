"""A row of cards, one for each way of training: the choice of a system begins there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from dtdg_lab.core import catalogue
from dtdg_lab.widgets.live import Defer


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
    """The cards of all families of systems, in the catalogue's order; families of one title share a card."""
    found: dict[str, SystemCard] = {}
    for family in catalogue.families():
        mine = [system for system in catalogue.SYSTEMS if system.family == family.name]
        if not mine:  # it adds other things
            continue
        title = family.card or family.name.replace("_", " ").capitalize()
        known = found.get(title, SystemCard(title, "", (), ()))
        idea = known.idea or family.idea or ("" if family.card else mine[0].summary)
        systems = (*known.systems, *(system.name for system in mine))
        found[title] = SystemCard(title, idea, known.sketch or tuple(family.sketch), systems)
    return list(found.values())


class SystemCards(JSComponent):
    """Cards; one is chosen. ``on_choose(name)`` is called by the event loop when a person clicks another one.

    Args:
        on_choose: gets the title of the card.
        defer: has a call made by the event loop.
    """

    cards = param.String(default="[]", doc="The cards as JSON: a dict would reach the page as a JavaScript Map.")

    _esm: ClassVar[str] = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")

    def __init__(self, on_choose: Callable[[str], None], *, defer: Defer = lambda call: call(), **params: Any) -> None:
        super().__init__(**params)
        self._on_choose, self._defer = on_choose, defer

    def draw(self, cards: Sequence[SystemCard]) -> None:
        """Show these cards."""
        self.cards = json.dumps([asdict(card) for card in cards], ensure_ascii=False)

    def _handle_msg(self, data: Any) -> None:
        name = str(json.loads(data)["chosen"])
        self._defer(lambda: self._on_choose(name))
