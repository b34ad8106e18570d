"""What the newest steps took as their hybrid batches, part by part, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEPT = 400  # steps


@dataclass(frozen=True, slots=True)
class PartBatch:
    """The batch of one part in one step.

    Attributes:
        step: updates of its rank's model before it.
        part: number of the part.
        action: number of its size.
        index: of the batch among those of its part and size.
        source: ``reservoir``, ``new`` or ``snapshot``.
        snapshots: of the graph.
        targets: vertices whose loss is taken in each of them.
        rows: of its blocks.
        edges: of its blocks.
        built_s: seconds that building it took.
        map: targets in each sixtieth of the part's candidates, heaviest first; None where it was left out.
    """

    step: int
    part: int
    action: int
    index: int
    source: str
    snapshots: range
    targets: int
    rows: int
    edges: int
    built_s: float
    map: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Targets of all its snapshots."""
        return self.targets * len(self.snapshots)


class TargetLog:
    """Rows of the table ``targets`` of the newest steps.

    Args:
        kept: steps.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._rows: dict[int, dict[int, tuple[int, PartBatch]]] = {}  # step -> part -> attempt, batch

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row."""
        batch = _batch(row)
        self._rows.setdefault(batch.step, {})[batch.part] = (attempt, batch)
        while len(self._rows) > self._kept:
            del self._rows[min(self._rows)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        found = {
            at: {part: kept for part, kept in parts.items() if at < step or kept[0] >= attempt}
            for at, parts in self._rows.items()
        }
        self._rows = {at: parts for at, parts in found.items() if parts}

    def steps(self, *, since: int = 0) -> list[tuple[int, list[PartBatch]]]:
        """Steps from ``since`` on in order, with the batches of the parts that have told them."""
        return [
            (at, [batch for _, batch in self._rows[at].values()]) for at in sorted(self._rows) if at >= since
        ]  # fmt: skip

    def newest(self, *, since: int = 0) -> dict[int, PartBatch]:
        """The newest batch of every part that has a map, by part: ranks need not be in the same step."""
        found: dict[int, PartBatch] = {}
        for _, batches in self.steps(since=since):
            found |= {batch.part: batch for batch in batches if batch.map is not None}
        return dict(sorted(found.items()))


def _batch(row: Mapping[str, Any]) -> PartBatch:
    first, drawn = int(row["first"]), row["map"]
    return PartBatch(
        int(row["step"]), int(row["part"]), int(row["action"]), int(row["index"]), str(row["source"]),
        range(first, first + int(row["snapshots"])), int(row["targets"]), int(row["rows"]), int(row["edges"]),
        float(row["built_s"] or 0.0), None if drawn is None else tuple(int(count) for count in drawn),
    )  # fmt: skip
