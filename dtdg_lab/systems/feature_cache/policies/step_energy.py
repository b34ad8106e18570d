"""Power of a rank over the decision intervals of a cache policy, from readings that are coarser than steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dtdg_lab.energy.readers import Reading, joined


class StepEnergy:
    """Mean watts of a rank's devices over a decision interval, and on clean links.

    Counters move every 1 to 100 ms, so a single step has no energy of its own: the readings between two decisions are
    summed, and the joules of a step are their mean power times its seconds. An interval in which a device had no
    reading is unknown, and its readings count for the next one; so intervals shorter than the slowest counter's period
    share a value.

    Attributes:
        watts: of the last interval; None if a device had no reading, or has no power on clean links yet.
        clean_w: of the same devices on clean links; None if ``watts`` is.
        source: origin of the joules: ``counter``, ``polled`` or ``modelled``, or several joined by ``+``; None if
            unknown.

    References: GreenDyGNN equation 5 and section VI-A (it samples NVML and RAPL in every step).
    """

    def __init__(self) -> None:
        self.watts: float | None = None
        self.clean_w: float | None = None
        self.source: str | None = None
        self._unused: dict[str, Reading] = {}  # since the last known interval
        self._readers: set[str] = set()
        self._clean: dict[str, list[float]] = {}  # watts of clean intervals, by reader

    def end_interval(self, readings: Sequence[Reading], *, is_clean: bool) -> None:
        """Replace the values by those of an interval that ends.

        Args:
            readings: those that arrived in it.
            is_clean: whether links are known to be clean; a device's first interval counts as clean too.
        """
        for reading in readings:
            name = reading.reader
            self._unused[name] = joined(self._unused[name], reading) if name in self._unused else reading
            self._readers.add(name)
        self.watts = self.clean_w = self.source = None
        if not self._readers or self._unused.keys() != self._readers:
            return
        by_reader, self._unused = self._unused, {}
        for name, reading in by_reader.items():
            clean = self._clean.setdefault(name, [])
            if is_clean or not clean:
                clean.append(reading.watts)
        clean_w = sum(float(np.median(self._clean[name])) for name in by_reader)
        if clean_w > 0:  # a share of a node without idle power may be 0
            self.watts, self.clean_w = sum(reading.watts for reading in by_reader.values()), clean_w
            self.source = "+".join(sorted({reading.source for reading in by_reader.values()}))

    def state_dict(self) -> dict[str, float]:
        """Return the median watts on clean links by reader."""
        return {name: float(np.median(values)) for name, values in self._clean.items()}

    def load_state_dict(self, watts: Mapping[str, float]) -> None:
        """Restore the watts on clean links; those of readers that are gone are not used."""
        self._clean = {name: [float(value)] for name, value in watts.items()}
