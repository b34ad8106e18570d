"""The energy view: joules by rank since the start, each with its source; unknown is never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.units import format_joules
from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import series_colour
from dtdg_lab.views.series import Line, Series

MEASURED = ("counter", "polled")
Key = tuple[str, int, str]  # scope, rank, source


class _Meter:
    """Joules so far of the readers of one rank and source, such as its modelled processors and its modelled GPU.

    The points are numbered, so that they stay when a step is computed again.
    """

    def __init__(self, points: int) -> None:
        self.series = Series(points)
        self.joules = 0.0
        self._count = 0
        self._newest: dict[str, tuple[int, float | None]] = {}  # reader -> when it told what power

    @property
    def watts(self) -> float | None:
        """The newest power of its readers together; None where it is not known."""
        known = [watts for _, watts in self._newest.values() if watts is not None]
        return sum(known) if known else None

    def add(self, row: Mapping[str, Any], seconds: float, joules: float, watts: float | None) -> None:
        reader, time_ns = str(row.get("reader")), row["time_ns"]
        if time_ns <= self._newest.get(reader, (-1, None))[0]:  # told before
            return
        self._newest[reader] = (time_ns, watts)
        self.joules += joules
        self.series.add(self._count, seconds, self.joules)
        self._count += 1

    def at(self, seconds: ArrayLike) -> NDArray[np.float64]:
        """Joules until these seconds, from 0 at the start; after the newest reading as much as there."""
        points = self.series.points
        known = ([0.0, *(point.seconds for point in points)], [0.0, *(point.value or 0.0 for point in points)])
        return np.interp(np.asarray(seconds, np.float64), *known)


class EnergyView:
    """Energy of one run. Joules of steps that were lost and computed again stay counted: they were spent."""

    def __init__(self, points: int, marks: Marks) -> None:
        self._points = points
        self._marks = marks
        self._meters: dict[Key, _Meter] = {}
        self._from_steps: dict[Key, _Meter] = {}
        self._ranks: set[int] = set()

    def rank_seen(self, rank: int) -> None:
        """Note that a rank takes part, whether or not its energy is known."""
        self._ranks.add(rank)

    def reading(self, rank: int, row: Mapping[str, Any], seconds: float) -> None:
        """Add one row of the table ``energy``; joules that are unknown add nothing, not zero."""
        joules, interval = row.get("joules"), row.get("interval_s")
        if joules is None:
            return
        watts = row.get("watts")
        if watts is None and interval:
            watts = joules / interval
        key = (str(row.get("scope") or "rank"), rank, str(row.get("source") or "unknown source"))
        self._meters.setdefault(key, _Meter(self._points)).add(row, seconds, joules, watts)

    def step(self, rank: int, row: Mapping[str, Any], seconds: float) -> None:
        """Add the joules of a row of ``steps``: shown where a rank has no rows in the table ``energy``."""
        joules = row.get("energy_j")
        if joules is None:
            return
        time_s = row.get("time_s")
        key = ("rank", rank, str(row.get("energy_source") or "unknown source"))
        watts = joules / time_s if time_s else None
        self._from_steps.setdefault(key, _Meter(self._points)).add(row, seconds, joules, watts)

    def _shown(self) -> dict[Key, _Meter]:
        metered = {rank for scope, rank, _ in self._meters if scope == "rank"}
        extra = {key: meter for key, meter in self._from_steps.items() if key[1] not in metered}
        return dict(sorted({**self._meters, **extra}.items(), key=lambda item: (item[0][0] != "rank", item[0])))

    def joules(self) -> dict[str, float]:
        """Joules so far by source, of the ranks; of the nodes where no rank's are known."""
        shown = self._shown()
        scope = "rank" if any(key[0] == "rank" for key in shown) else "node"
        found: dict[str, float] = {}
        for (its_scope, _, source), meter in shown.items():
            if its_scope == scope:
                found[source] = found.get(source, 0.0) + meter.joules
        return found

    def joules_at(self, seconds: ArrayLike) -> NDArray[np.float64] | None:
        """Joules of what ``joules`` sums until these seconds, between two readings too; None where none are known."""
        shown = self._shown()
        scope = "rank" if any(key[0] == "rank" for key in shown) else "node"
        meters = [meter for key, meter in shown.items() if key[0] == scope]
        return np.sum([meter.at(seconds) for meter in meters], axis=0) if meters else None

    def watts(self) -> float | None:
        """The newest power of the ranks together; None where it is not known."""
        shown = self._shown()
        scope = "rank" if any(key[0] == "rank" for key in shown) else "node"
        found = [meter.watts for key, meter in shown.items() if key[0] == scope and meter.watts is not None]
        return sum(found) if found else None

    def unknown_ranks(self) -> list[int]:
        """Ranks that take part and whose energy nobody reads or models."""
        known = {rank for scope, rank, _ in self._shown() if scope == "rank"}
        return sorted(self._ranks - known)

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
        joules, watts, unknown = self.joules(), self.watts(), self.unknown_ranks()
        if not joules:
            return "Energy is unknown: nothing here reads or models it." if self._ranks else "No reading yet."
        parts = [f"{format_joules(value)} {_how(source)}" for source, value in sorted(joules.items())]
        text = f"{join_words(parts)} so far"
        if watts is not None:
            text += f", {watts:.3g} W now"
        nodes_only = not any(scope == "rank" for scope, _, _ in self._shown())
        if nodes_only:
            return text + ", of the whole machine."
        if unknown:
            text += f"; unknown for {join_words([f'rank {rank}' for rank in unknown])}"
        return text + "."


def _how(source: str) -> str:
    return f"measured ({source})" if source in MEASURED else source
