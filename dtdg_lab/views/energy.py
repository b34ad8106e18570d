"""The energy view: joules by rank since the start, each with its source; unknown is never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.units import format_joules
from dtdg_lab.energy.total import MEASURED, STEPS, EnergyTotal, Stream
from dtdg_lab.views.layout import Figure, frame, join_words, share, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import series_colour
from dtdg_lab.views.series import Line, Series

_GAP = 0.05  # share of the time without a reading from which it is said
_SETTLED_S = 20.0
Key = tuple[str, int, str]  # scope, rank, source


class _Meter:
    """Joules so far of some readers, such as a rank's modelled processors and its modelled GPU.

    The points are numbered, so that they stay when a step is computed again.
    """

    def __init__(self, points: int) -> None:
        self.series = Series(points)
        self.joules = 0.0
        self._count = 0
        self._began_s: float | None = None
        self._watts: dict[str, float | None] = {}  # by reader, the newest

    @property
    def watts(self) -> float | None:
        """The newest power of its readers together; None where it is not known."""
        known = [watts for watts in self._watts.values() if watts is not None]
        return sum(known) if known else None

    def add(
        self, reader: str, row: Mapping[str, Any], *, joules: float, lasted_s: float | None, seconds: float
    ) -> None:
        watts = row.get("watts")
        self._watts[reader] = joules / lasted_s if watts is None and lasted_s else watts
        if self._began_s is None:
            self._began_s = max(seconds - (lasted_s or 0.0), 0.0)
        self.joules += joules
        self.series.add(self._count, seconds, self.joules)
        self._count += 1

    def at(self, seconds: ArrayLike) -> NDArray[np.float64]:
        """Joules until these seconds, from 0 where its first reading began; after the newest as much as there."""
        points = self.series.points
        began_s = min([self._began_s or 0.0, *(point.seconds for point in points[:1])])
        known = ([began_s, *(point.seconds for point in points)], [0.0, *(point.value or 0.0 for point in points)])
        return np.interp(np.asarray(seconds, np.float64), *known)


class EnergyView:
    """Energy of one run. Joules of steps that were lost and computed again stay counted: they were spent.

    What the run took together is the sum of :mod:`dtdg_lab.energy.total`: every device once. The lines show who read
    what, so that a rank's share may stand beside its node's line.
    """

    def __init__(self, points: int, marks: Marks) -> None:
        self._points = points
        self._marks = marks
        self._total = EnergyTotal()
        self._streams: dict[Stream, _Meter] = {}
        self._meters: dict[Key, _Meter] = {}
        self._from_steps: dict[Key, _Meter] = {}
        self._ranks: set[int] = set()

    def rank_seen(self, rank: int) -> None:
        """Note that a rank takes part, whether or not its energy is known."""
        self._ranks.add(rank)

    def reading(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int = 1) -> None:
        """Add one row of the table ``energy``; joules that are unknown add nothing, not zero."""
        stream = self._total.add(rank, attempt, row)
        if stream is not None:
            self._take(self._meters, stream, row, joules=row["joules"], lasted_s=row["interval_s"], seconds=seconds)

    def step(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int = 1) -> None:
        """Add the joules of a row of ``steps``: shown where a rank has no rows in the table ``energy``."""
        stream = self._total.step(rank, attempt, row)
        if stream is not None:
            joules, lasted_s = row["energy_j"], row.get("time_s")
            self._take(self._from_steps, stream, row, joules=joules, lasted_s=lasted_s, seconds=seconds)

    def _take(
        self,
        drawn: dict[Key, _Meter],
        stream: Stream,
        row: Mapping[str, Any],
        *,
        joules: float,
        lasted_s: float | None,
        seconds: float,
    ) -> None:
        key = (stream.scope, stream.rank, stream.source)
        for meter in (
            drawn.setdefault(key, _Meter(self._points)),
            self._streams.setdefault(stream, _Meter(self._points)),
        ):
            meter.add(stream.reader, row, joules=joules, lasted_s=lasted_s, seconds=seconds)

    def _counted(self) -> dict[Stream, _Meter]:
        """The meters whose joules add up to the run's."""
        return {
            stream: self._streams[stream._replace(node="") if stream.reader == STEPS else stream]
            for stream in self._total.streams()
        }

    def _shown(self) -> dict[Key, _Meter]:
        metered = {rank for scope, rank, _ in self._meters if scope == "rank"}
        extra = {key: meter for key, meter in self._from_steps.items() if key[1] not in metered}
        return dict(sorted({**self._meters, **extra}.items(), key=lambda item: (item[0][0] != "rank", item[0])))

    def joules(self) -> dict[str, float]:
        """Joules so far by source, summed over nodes and devices, each once."""
        return self._total.joules()

    def joules_at(self, seconds: ArrayLike) -> NDArray[np.float64] | None:
        """Joules of what ``joules`` sums until these seconds, between two readings too; None where none are known."""
        meters = self._counted().values()
        return np.sum([meter.at(seconds) for meter in meters], axis=0) if meters else None

    def watts(self) -> float | None:
        """The newest power of all devices together; None where it is not known."""
        meters = self._counted()
        newest = max((stream.attempt for stream in meters), default=0)
        found = [meter.watts for stream, meter in meters.items() if stream.attempt == newest]
        known = [watts for watts in found if watts is not None]
        return sum(known) if known else None

    def coverage(self) -> dict[str, float] | None:
        """Shares of the devices' time whose energy is read, modelled and unknown; None before the first row."""
        return self._total.coverage()

    def lines(self) -> list[Line]:
        """One line per rank and source, nodes last."""
        lines = []
        for (scope, rank, source), meter in self._shown().items():
            name = f"rank {rank} · {source}" if scope == "rank" else f"node of rank {rank} · {source}"
            dash = "solid" if scope == "rank" else "dashdot"
            style = {"mode": "lines", "line": {"color": series_colour(rank), "width": 2, "dash": dash}}
            line = meter.series.line(name, "seconds", style)
            # joules of steps and of readers are different points, though the line is called the same
            origin = "readers" if (scope, rank, source) in self._meters else "steps"
            lines.append(replace(line, key=f"{origin}/{line.key}"))
        return lines

    def _end(self) -> float:
        newest = [meter.series.last for meter in self._shown().values()]
        return max((point.seconds for point in newest if point is not None), default=0.0)

    def layout(self) -> dict[str, Any]:
        """Title with how the energy is known, axes and marks."""
        sources = {source for _, _, source in self._shown()}
        kinds = sorted({"measured" if source in MEASURED else source for source in sources})
        title = "Energy by rank" + (f" · {join_words(kinds)}" if kinds else "")
        layout = frame(
            title,
            "time since the start (s)",
            "energy since the start (J)",
            yaxis={"rangemode": "tozero"},
            showlegend=True,
            **self._marks.layout("seconds", self._end()),
        )
        if sources:
            return layout
        return with_note(layout, "energy is unknown on this machine" if self._ranks else "waiting for the first step")

    def figure(self) -> Figure:
        """The chart as a plotly figure dict."""
        return {"data": [line.trace() for line in self.lines()], "layout": self.layout()}

    def sentence(self) -> str:
        """Joules so far and watts now, with what is not known, in words."""
        joules, watts, unknown = self.joules(), self.watts(), self._total.unknown()
        if not joules:
            return "Energy is unknown: nothing here reads or models it." if self._ranks else "No reading yet."
        parts = [f"{format_joules(value)} {_how(source)}" for source, value in sorted(joules.items())]
        text = f"{join_words(parts)} so far"
        if watts is not None:
            text += f", {watts:.3g} W now"
        missing = (self.coverage() or {}).get("unknown", 0.0)
        if unknown:
            return f"{text}; unknown for {join_words(unknown)}."
        if missing >= _GAP and self._end() >= _SETTLED_S:  # earlier, the first readings are still to come
            return f"{text}; unknown for {share(missing)} of the devices' time."
        if all(stream.scope == "node" for stream in self._total.streams()):
            text += ", of the whole machine"
        return text + "."


def _how(source: str) -> str:
    return f"measured ({source})" if source in MEASURED else source
