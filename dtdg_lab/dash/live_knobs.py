"""A row of a run's live knobs beside the charts that show what they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.core.options import option
from dtdg_lab.dash.changes import ACTIVE
from dtdg_lab.dash.control import make_control

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

PATIENCE_S = 3.0  # for a change to be made before the knob shows what the run has


class LiveKnobs:
    """A row of live knobs of the run that is shown; hidden where it has none, disabled where it does not go on.

    Each is the same setting as the one beside the dashboard: whatever was turned last counts.

    Args:
        names: of the settings.
        apply: asks the run for changes.
    """

    def __init__(self, names: Sequence[str], apply: Callable[[dict[str, Any]], None]) -> None:
        self._apply = apply
        self._turned: dict[str, tuple[Any, float]] = {}  # what was asked for here, and until when it is waited for
        self.controls = {name: make_control(option(name)) for name in names}
        for control in self.controls.values():
            control.on_change(self._changed)
        widgets = [control.widget for control in self.controls.values()]
        self.panel = pn.Row(*widgets, sizing_mode="stretch_width", margin=0, visible=False)

    def _changed(self, name: str, value: Any) -> None:
        self._turned[name] = (value, time.monotonic() + PATIENCE_S)
        self._apply({name: value})

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._turned.clear()
        self.update(run)

    def update(self, run: Run | None) -> None:
        """Put the knobs where the run has them, but not over what was just asked for here."""
        read = () if run is None else [name for name in self.controls if name in run.config.flat]
        self.panel.visible = bool(read)
        if run is None:
            return
        for name, control in self.controls.items():
            control.widget.visible = name in read
            control.widget.disabled = run.status not in ACTIVE
            if name not in read:
                continue
            asked, until = self._turned.get(name, (None, 0.0))
            if run.config[name] == asked or time.monotonic() >= until:
                self._turned.pop(name, None)
                control.show(run.config[name])
