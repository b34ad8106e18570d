"""The energy view: joules by rank since the start, each with its source; unknown is never 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.records import BETWEEN_STEPS, PHASES
from dtdg_lab.core.units import format_joules
from dtdg_lab.energy.phases import IDLE, STALL, STALLED
from dtdg_lab.energy.total import MEASURED, STEPS, EnergyTotal, Stream
from dtdg_lab.visualization.charts import FROM_ZERO, Drawn, chart, level_bars
from dtdg_lab.visualization.charts import NAMES as CHART_NAMES
from dtdg_lab.visualization.layout import WAITING, Figure, frame, join_words, share, with_note
from dtdg_lab.visualization.palette import PHASE_COLOURS, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.run_view import Row, RunView, SharedViews
from dtdg_lab.visualization.series import Line, Series

if TYPE_CHECKING:
    pass


_KILO = 1e4  # joules from which charts are in kJ
_GAP = 0.05  # share of the time without a reading from which it is said
_SETTLED_S = 20.0
Key = tuple[str, int, str]  # scope, rank, source


def sum_known(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


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
        return sum_known(self._watts.values())

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


class EnergyView(RunView):
    """Energy of one run. Joules of steps that were lost and computed again stay counted: they were spent.

    What the run took together is the sum of :mod:`dtdg_lab.energy.total`: every device once. The lines show who read
    what, so that a rank's share may stand beside its node's line.
    """

    name = "energy"

    def __init__(self, shared: SharedViews) -> None:
        self.tables_kept = {"steps": shared.timed(self.step), "energy": shared.timed(self.reading)}
        self._points, self._marks = shared.points, shared.marks
        self._total = EnergyTotal()
        self._streams: dict[Stream, _Meter] = {}
        self._meters: dict[Key, _Meter] = {}
        self._from_steps: dict[Key, _Meter] = {}
        self._ranks: set[int] = set()

    def reading(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int = 1) -> None:
        """Add one row of the table ``energy``; joules that are unknown add nothing, not zero."""
        stream = self._total.add(rank, attempt, row)
        if stream is not None:
            for meter in self._meters_of(self._meters, stream):
                meter.add(stream.reader, row, joules=row["joules"], lasted_s=row["interval_s"], seconds=seconds)

    def step(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int = 1) -> None:
        """Add the joules of a row of ``steps``: shown where a rank has no rows in the table ``energy``."""
        self._ranks.add(rank)
        stream = self._total.step(rank, attempt, row)
        if stream is not None:
            for meter in self._meters_of(self._from_steps, stream):
                meter.add(stream.reader, row, joules=row["energy_j"], lasted_s=row.get("time_s"), seconds=seconds)

    def _meters_of(self, drawn: dict[Key, _Meter], stream: Stream) -> tuple[_Meter, _Meter]:
        """The meter of the line that a stream adds to, and its own."""
        line = drawn.setdefault((stream.scope, stream.rank, stream.source), _Meter(self._points))
        return line, self._streams.setdefault(stream, _Meter(self._points))

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
        return sum_known(meter.watts for stream, meter in meters.items() if stream.attempt == newest)

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
        titles = (_titled("Energy by rank", sources), "time since the start (s)", "energy since the start (J)")
        looks: Drawn = {"yaxis": FROM_ZERO, "showlegend": True, **self._marks.layout("seconds", self._end())}
        layout = frame(*titles, **looks)
        if sources:
            return layout
        return with_note(layout, "energy is unknown on this machine" if self._ranks else "waiting for the first step")

    def figure(self) -> Figure:
        """The chart as a plotly figure dict."""
        return {"data": [line.trace() for line in self.lines()], "layout": self.layout()}

    def caption(self) -> str:
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


def _titled(title: str, sources: Iterable[str]) -> str:
    """A title that ends with how the energy is known."""
    kinds = sorted({"measured" if source in MEASURED else source for source in sources})
    return title + (f" · {join_words(kinds)}" if kinds else "")


def _how(source: str) -> str:
    return f"measured ({source})" if source in MEASURED else source


# The view of joules by phase and rank: what was spent on computing, what on waiting, and what is not known.


ORDER = (*(phase for phase in PHASES if phase not in STALLED), *BETWEEN_STEPS, IDLE, *STALLED)
ENERGY_COLOURS: Mapping[str, str] = MappingProxyType({**PHASE_COLOURS, IDLE: "#FFFFFF", STALL: WARNING_COLOUR})
NAMES: Mapping[str, str] = MappingProxyType({"wait": "wait for ranks", STALL: "wait for features"})
NAMED = 0.02  # share of the joules from which a phase is named in the legend
WHOLE = 0.995  # coverage from which nothing is said of it


class PhaseEnergyView(RunView):
    """Joules of one run by rank and phase. Those of steps that were computed again stay counted: they were spent."""

    name = "phase_energy"
    title = "Where the energy went"
    order = 1

    def __init__(self) -> None:
        self.tables_kept = {"steps": self.step, "phase_energy": self.row}
        self._joules: dict[int, Counter[str]] = {}
        self._sources: Counter[str] = Counter()
        # rank -> newest time and what was logged then
        self._described: dict[int, tuple[int, set[tuple[str, Any]]]] = {}
        self._seconds = self._covered_s = 0.0
        self._ranks: set[int] = set()

    def step(self, rank: int, row: Row, attempt: int) -> None:
        """Note by a row of ``steps`` that a rank takes part, whether or not its energy is known."""
        self._ranks.add(rank)

    def row(self, rank: int, row: Row, attempt: int = 1) -> None:
        """Add one row of the table ``phase_energy``; joules that are unknown add nothing, not zero."""
        time_ns, what = int(row["time_ns"]), (str(row["phase"]), row["source"])
        newest, described = self._described.get(rank, (-1, set()))
        if time_ns < newest or (time_ns == newest and what in described):  # logged before
            return
        self._described[rank] = (time_ns, {what} if time_ns > newest else described | {what})
        self._ranks.add(rank)
        seconds, joules = float(row["seconds"]), row["joules"]
        self._seconds += seconds
        self._covered_s += seconds * float(row["coverage"])
        if joules is None:
            return
        self._joules.setdefault(rank, Counter())[what[0]] += joules
        self._sources[str(row["source"])] += joules

    @property
    def shown(self) -> bool:
        """Whether any joules are known by phase."""
        return bool(self._joules)

    def joules(self) -> dict[int, dict[str, float]]:
        """Joules so far by rank and phase; ranks and phases without known energy are left out."""
        return {rank: dict(phases) for rank, phases in sorted(self._joules.items())}

    def by_phase(self) -> Counter[str]:
        """Joules so far by phase, of all ranks together."""
        return sum(self._joules.values(), Counter())

    def stall_share(self) -> float | None:
        """Share of the joules that were spent standing still, for other ranks or for features; None without any."""
        found = self.by_phase()
        return sum(found[phase] for phase in STALLED) / found.total() if found.total() else None

    def unknown_ranks(self) -> list[int]:
        """Participating ranks whose energy by phase is unknown."""
        return sorted(self._ranks - self._joules.keys())

    @property
    def coverage(self) -> float:
        """Share of the ranks' time for which energy is known."""
        return self._covered_s / self._seconds if self._seconds else 0.0

    def figure(self) -> Figure:
        """Stacked bars, one per rank, joules; waiting is hatched."""
        whole = self.by_phase().total()
        unit, scale = ("kJ", 1e-3) if whole >= _KILO else ("J", 1.0)
        titles = (_titled("Energy by rank and phase", self._sources), f"energy since the start ({unit})", "")
        looks: Drawn = {"barmode": "stack", "bargap": 0.35, "xaxis": FROM_ZERO, "yaxis": CHART_NAMES}
        looks["empty"] = "energy by phase is unknown on this machine" if self._ranks else WAITING
        data = [self._bar(phase, whole, scale, unit) for phase in self._phases()] if whole else []
        return chart(*titles, data, **looks)

    def caption(self) -> str:
        """What most joules went into, what was spent standing still, and what is not known, in words."""
        found, still = self.by_phase(), self.stall_share()
        whole = found.total()
        if not whole or still is None:
            return "Energy by phase is unknown: nothing here reads or models it." if self._ranks else "No reading yet."
        described = [f"{format_joules(joules)} {_how(source)}" for source, joules in sorted(self._sources.items())]
        most = max(self._phases(), key=found.__getitem__)
        text = f"{join_words(described)}: most in {most} ({share(found[most] / whole)}); {share(still)} waiting"
        waits = [f"{share(found[phase] / whole)} {why}" for phase, why in _WHY.items() if found[phase] > 0]
        text += f" ({join_words(waits)})" if waits else ""
        if self.coverage < WHOLE:
            text += f"; energy is known for {share(self.coverage)} of the time"
        if unknown := self.unknown_ranks():
            text += f"; unknown for {join_words([f'rank {rank}' for rank in unknown])}"
        return text + "."

    def _bar(self, phase: str, whole: float, scale: float, unit: str) -> dict[str, Any]:
        ranks, name = sorted(self._joules), NAMES.get(phase, phase)
        marker: dict[str, Any] = {"color": ENERGY_COLOURS.get(phase, "#8A9099")}
        if phase in STALLED:
            marker["pattern"] = {"shape": "/", "size": 6, "solidity": 0.35}
        if phase == IDLE:
            marker["line"] = {"color": "#8A9099", "width": 1}
        names, joules = [f"rank {rank}" for rank in ranks], [self._joules[rank][phase] * scale for rank in ranks]
        shown = self.by_phase()[phase] >= NAMED * whole
        return level_bars(name, names, joules, None, f"%{{y}}: %{{x:.4g}} {unit}", marker=marker, showlegend=shown)

    def _phases(self) -> list[str]:
        """Phases with joules, those of waiting last; ones that this version does not know before them."""
        known = {phase for phases in self._joules.values() for phase in phases}
        return [phase for phase in (*sorted(known - set(ORDER)), *ORDER) if phase in known]


_WHY = {"wait": "for other ranks", STALL: "for features"}
