"""The tiles of a run: numbers in large type, each with its line over the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import ClassVar

from dtdg_lab.visualization.tiles import Tile
from dtdg_lab.widgets.component import TextComponent
from dtdg_lab.widgets.scripts import component_script


class Tiles(TextComponent):
    """Up to five tiles in a row."""

    _esm: ClassVar[str] = component_script("tiles")

    def draw(self, tiles: Sequence[Tile]) -> None:
        """Show these."""
        self.set_content([asdict(tile) for tile in tiles])
