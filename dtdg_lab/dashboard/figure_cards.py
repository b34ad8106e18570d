"""Cards of figures that a page makes by itself, sent one at a time to the displays that show them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.widgets.chart_cards import CardActions, CardSpec, ChartCards, encoded
from dtdg_lab.widgets.component import Defer
from dtdg_lab.widgets.drawing import DrawingOrder
from dtdg_lab.widgets.run_page import STRETCH


class FigureCards:
    """Several rows of cards, each a component of its own, so that other things may stand between them.

    Args:
        rows: the cards.
        actions: what is called for what a person does with them.
        defer: has a call made by the event loop.
    """

    def __init__(self, rows: Sequence[Sequence[CardSpec]], actions: CardActions, defer: Defer) -> None:
        self.order = DrawingOrder()
        self.components = tuple(ChartCards(self.order, actions, defer=defer, **STRETCH) for _ in rows)
        self._of: dict[str, ChartCards] = {}
        self._shown: dict[str, tuple[str, str]] = {}
        self._sent: dict[str, tuple[str, str]] = {}
        for component, specs in zip(self.components, rows, strict=True):
            component.lay_out(specs)
            self._of |= dict.fromkeys((spec.name for spec in specs), component)
        self.order.place(list(self._of))

    def show(self, name: str, figure: Mapping[str, Any], caption: str, *, urgent: bool = False) -> None:
        """Show a figure once its turn comes, or at once where it is urgent."""
        self._shown[name] = encoded(figure), caption
        if urgent and name in self.order.in_view():
            self._send(name, urgent=True)

    def tick(self) -> None:
        """Send the figure whose turn it is, where it has changed."""
        now_s = time.monotonic()
        if not self.order.is_free(now_s):
            return
        for name, is_forced in self.order.due(now_s):
            if name in self._shown and (is_forced or self._sent.get(name) != self._shown[name]):
                self._send(name)
                return

    def _send(self, name: str, *, urgent: bool = False) -> None:
        self._sent[name] = self._shown[name]
        number = self.order.sent(name, time.monotonic())
        self._of[name].send(name, *self._shown[name], number, urgent=urgent)
