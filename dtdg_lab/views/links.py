"""The bytes of rows that ranks sent each other in the last step that is complete, from the record table ``links``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtdg_lab.views.partition_matrix import Sent
from dtdg_lab.views.ways import ALWAYS, WAYS

_KEPT = 256  # steps kept of a rank that the others have not told yet
Key = tuple[str, int, int]  # way, layer, to


class LinkLog:
    """Links of the newest steps by rank, in bounded memory."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, dict[Key, float]]] = {}  # rank -> step -> bytes
        self._attempts: dict[tuple[int, int], int] = {}
        self._steps: dict[int, int] = {}  # rank -> newest step recorded

    def link(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``links``."""
        steps = self._rows.setdefault(rank, {})
        step = int(row["step"])
        if self._attempts.setdefault((rank, step), attempt) < attempt:  # computed again
            steps[step], self._attempts[rank, step] = {}, attempt
        steps.setdefault(step, {})[str(row["way"]), int(row["layer"]), int(row["to"])] = float(row["bytes"])
        while len(steps) > _KEPT:
            oldest = min(steps)
            del steps[oldest], self._attempts[rank, oldest]

    def step(self, rank: int, step: int) -> None:
        """Note that a rank has recorded a step."""
        self._steps[rank] = max(step, self._steps.get(rank, -1))

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for rank, steps in self._rows.items():
            for known in [each for each in steps if each >= step and self._attempts[rank, each] < attempt]:
                del steps[known], self._attempts[rank, known]
        self._steps = {rank: min(newest, step - 1) for rank, newest in self._steps.items()}

    def last(self, ranks: int, *, layers: int, first: int) -> Sent | None:
        """The newest complete step: the last that a later one followed on every rank.

        Where none was followed yet, it is the newest that every rank has recorded. A rank without rows sent none.

        Args:
            ranks: R.
            layers: L, at least so many are given.
            first: earlier steps do not count.

        Returns:
            Bytes of that step; None before there is one.
        """
        newest = min(self._steps.get(rank, -1) for rank in range(ranks))
        told = {step for steps in self._rows.values() for step in steps if first <= step <= newest}
        step = max((step for step in told if step < newest), default=max(told, default=None))
        if step is None:
            return None
        rows = {rank: self._rows.get(rank, {}).get(step, {}) for rank in range(ranks)}
        keys = [key for links in rows.values() for key in links]
        told_layers, told_ways = 1 + max((layer for _, layer, _ in keys), default=-1), {way for way, _, _ in keys}
        shape = (max(layers, told_layers), ranks, ranks)
        found = {way: np.zeros(shape) for way in WAYS if way in ALWAYS or way in told_ways}
        for rank, links in rows.items():
            for (way, layer, to), count in links.items():
                found[way][layer, rank, to] = count
        return Sent(step, found)
