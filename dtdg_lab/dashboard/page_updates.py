"""PageUpdates: the periodic updates of a page, while somebody may look at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn

PERIOD_MS = 125
GONE_TICKS = 480  # a minute without any display ends the updates


class PageUpdates:
    """Calls a function eight times a second on the event loop.

    Args:
        tick: is called.
        layout: the Panel object that is displayed.
    """

    def __init__(self, tick: Callable[[], None], layout: pn.viewable.Viewable) -> None:
        self._tick, self._layout = tick, layout
        self._callback: Any = None
        self._gone_ticks = 0

    def start(self) -> None:
        """Start the updates, unless they run."""
        if self._callback is None:
            self._gone_ticks = 0
            self._callback = pn.state.add_periodic_callback(self._tick, period=PERIOD_MS)

    def stop_where_nobody_looks(self) -> None:
        """Stop the updates where no display is left, as after a cell was run again; called with every tick."""
        self._gone_ticks = 0 if self._layout._models else self._gone_ticks + 1
        if self._gone_ticks > GONE_TICKS:
            self.stop()

    def stop(self) -> None:
        """Stop the updates."""
        if self._callback is not None:
            self._callback.stop()
            self._callback = None
