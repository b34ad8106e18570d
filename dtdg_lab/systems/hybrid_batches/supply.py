"""The supply of a rank's batches: its parts, their reservoirs, and the generators that fill them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.engine.strategy import RecordRows
from dtdg_lab.systems.hybrid_batches.generators import Generators
from dtdg_lab.systems.hybrid_batches.part_batches import Draw, PartBatches, Prepared
from dtdg_lab.systems.hybrid_batches.reservoir import ReservoirSettings
from dtdg_lab.systems.hybrid_batches.sizes import SizeChoices

MAP_EVERY_S, LEVELS_EVERY_S = 0.2, 0.5  # minimum seconds between rows that only serve charts


class TargetRow(NamedTuple):
    """A batch of one part: a row of the table ``targets``."""

    part: int
    action: int
    number: int
    source: str
    first: int
    snapshots: int
    targets: int
    rows: int
    edges: int
    built_s: float | None
    map: list[int] | None


class ReservoirRow(NamedTuple):
    """The level of a part's reservoir for one size: a row of the table ``reservoir``."""

    time_ns: int
    part: int
    action: int
    held: int
    capacity: int
    bytes: int
    made: int
    busy_s: float
    distinct: int


class BatchSupply:
    """Draws a batch of each part in each step, and keeps batches if there is a reservoir.

    Args:
        parts: the parts of this rank.
        sizes: the possible sizes.
        settings: of the reservoirs.

    Attributes:
        stands_in: True if a snapshot batch may replace one that the reservoir lacks.
        replay: draws of each step and part of a replayed run; None if batches are drawn.

    Raises:
        ConfigError: a batch of some part is larger than its reservoir.
    """

    def __init__(self, parts: Sequence[PartBatches], sizes: SizeChoices, settings: ReservoirSettings) -> None:
        self.parts, self.sizes, self.settings = tuple(parts), sizes, settings
        self.stands_in = False
        self.replay: Mapping[tuple[int, int], tuple[str, int, int]] | None = None
        self._is_open = False
        self._generators: Generators | None = None
        self._rows: list[TargetRow] = []
        self._map_s = self._levels_s = 0.0
        self._apply()
        self.check_fits()

    def use(self, sizes: SizeChoices, settings: ReservoirSettings) -> None:
        """Draw batches of these sizes from these reservoirs, from the next step on."""
        is_same = (sizes.sizes, settings) == (self.sizes.sizes, self.settings)
        self.sizes, self.settings = sizes, settings
        if not is_same:
            self._stop()
            self._apply()
            self._start()

    def _apply(self) -> None:
        for part in self.parts:
            limit_bytes = self._part_bytes if self.settings.on else None
            part.use(self.sizes.sizes[part.number], limit_bytes, self.settings.max_uses)

    @property
    def _part_bytes(self) -> int:
        return max(1, self.settings.limit_bytes // len(self.parts))

    def check_fits(self) -> None:
        """Raise unless the reservoirs can hold one batch of each size.

        Raises:
            ConfigError: a batch of some part is larger.
        """
        for part in self.parts if self.settings.on else ():
            part.check_fits(self._part_bytes)

    def open(self) -> None:
        """Start the generators if there is a reservoir."""
        self._is_open = True
        self._start()

    def close(self) -> None:
        """Stop the generators; idempotent."""
        self._is_open = False
        self._stop()

    def _start(self) -> None:
        if self.settings.on and self._is_open and self.replay is None:
            self._generators = Generators([part.source() for part in self.parts], kind=self.settings.generators)

    def _stop(self) -> None:
        if self._generators is not None:
            self._generators.close()
            self._generators = None

    def next(self, step: int, action: int) -> list[Prepared]:
        """Draw the batch of each part in a step, and record it.

        Args:
            step: step of the run; determines all draws.
            action: index of the size.

        Raises:
            RunFailedError: a generator has failed.
            ConfigError: the replayed run has no batch of this step.
        """
        if self._generators is not None:
            self._generators.check()
        batches = [self._next(part, step, action) for part in self.parts]
        now_s = time.monotonic()
        maps = now_s - self._map_s >= MAP_EVERY_S
        self._map_s = now_s if maps else self._map_s
        self._rows += [_target_row(part, batch, maps=maps) for part, batch in zip(self.parts, batches, strict=True)]
        return batches

    def _next(self, part: PartBatches, step: int, action: int) -> Prepared:
        if self.replay is None:
            return part.next(step, action, stands_in=self.stands_in)
        try:
            return part.again(Draw(*self.replay[step, part.number]))
        except KeyError as error:
            raise ConfigError(
                f"the replayed run has no batch of step {step} and part {part.number}. Replay the records of one rank, "
                "with the settings, data and ranks of their run."
            ) from error

    def largest(self, source: str) -> list[Prepared]:
        """Return the largest batch of each part from ``new`` or ``snapshot``, without keeping them."""
        batches = []
        for part in self.parts:
            targets = [size.targets for size in part.sizes]
            batches.append(part.again(Draw(source, targets.index(max(targets)), 0)))
        return batches

    def rows(self) -> RecordRows:
        """Return the new rows of ``targets``, and twice a second of ``reservoir``; forget them."""
        rows, self._rows = self._rows, []
        now_s = time.monotonic()
        if self._generators is None or now_s - self._levels_s < LEVELS_EVERY_S:
            return {"targets": rows}
        self._levels_s = now_s
        return {"targets": rows, "reservoir": self._levels(self._generators)}

    def _levels(self, generators: Generators) -> list[ReservoirRow]:
        now_ns, rows = time.time_ns(), list[ReservoirRow]()
        for part, made, busy_s in zip(self.parts, generators.made, generators.busy_s, strict=True):
            assert part.reservoir is not None
            for action, level in enumerate(part.reservoir.levels()):
                contents = (level.held, level.capacity, level.nbytes, made[action], busy_s[action], level.distinct)
                rows.append(ReservoirRow(now_ns, part.number, action, *contents))
        return rows


def _target_row(part: PartBatches, prepared: Prepared, *, maps: bool) -> TargetRow:
    batch, draw = prepared.batch, prepared.draw
    snapshots, sixtieths = batch.snapshots, part.groups.sixtieths(batch.targets) if maps else None
    identity = (part.number, draw.action, draw.index, draw.source, snapshots.start, len(snapshots), len(batch.targets))
    return TargetRow(*identity, prepared.rows, prepared.edges, prepared.built_s, sixtieths)
