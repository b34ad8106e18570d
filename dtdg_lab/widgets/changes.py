"""The log of changes in the left column, and the table of changes and their effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from dtdg_lab.widgets.component import TextComponent, component_script

HINT = "Numbers mark the same changes in the charts, which show the newest 20."
NO_CHANGE = "No change yet. Move a slider, or click a suggestion under the picture."
EFFECTS_HINT = "Means of up to 50 steps before and after each change, shown only if their 10-step means don't overlap."


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """One request of a person or program, as the log shows it.

    Attributes:
        number: the request's number, which is also in the charts.
        changes: settings, each with ``old → new``.
        meta: time, step, and who made the request.
        note: what happened instead, if it was not applied.
        state: ``asked``, ``waiting``, ``applied``, ``refused`` or ``not applied``.
        undo: whether the old values can be requested.
    """

    number: int
    changes: tuple[tuple[str, str], ...]
    meta: str
    note: str
    state: str
    undo: bool


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One row of the table: its cells, and whether the change can be undone."""

    number: int
    state: str
    cells: tuple[str, ...]
    undo: bool


class ChangeLog(TextComponent):
    """The log, with the newest entry first. A message has ``undo`` with the number of an entry."""

    _esm: ClassVar[str] = component_script("changes")

    def draw(self, entries: Sequence[ChangeEntry]) -> None:
        """Show entries, newest first."""
        is_whole = bool(entries) and entries[-1].number == 1
        which = f"all {len(entries)}" if is_whole else f"the newest {len(entries)}"
        button_text = f"Show {which} with their effects" if len(entries) > 1 else "Show its effect" if entries else ""
        self.set_content(
            {
                "entries": [asdict(entry) for entry in entries],
                "hint": HINT if entries else NO_CHANGE,
                "more": button_text,
            }
        )


class EffectsTable(TextComponent):
    """A table of all changes, folded at first. A message has ``undo`` with a number, or ``open`` after opening it."""

    _esm: ClassVar[str] = component_script("effects")

    def draw(self, heads: Sequence[str], rows: Sequence[EffectRow]) -> None:
        """Show rows, newest first, below these heads."""
        self.set_content({"heads": list(heads), "rows": [asdict(row) for row in rows], "hint": EFFECTS_HINT})
