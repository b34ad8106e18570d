"""The view of joules by phase and rank: what was spent on computing, what on waiting, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.records import BETWEEN_STEPS, PHASES
from dtdg_lab.core.units import format_joules
from dtdg_lab.energy.phase_energy import IDLE, STALL, STALLED
from dtdg_lab.views.energy import MEASURED
from dtdg_lab.views.layout import Figure, frame, join_words, share, with_note
from dtdg_lab.views.palette import PHASE_COLOURS, WARNING_COLOUR

ORDER = (*(phase for phase in PHASES if phase not in STALLED), *BETWEEN_STEPS, IDLE, *STALLED)
ENERGY_COLOURS: Mapping[str, str] = MappingProxyType({**PHASE_COLOURS, IDLE: "#FFFFFF", STALL: WARNING_COLOUR})
NAMES: Mapping[str, str] = MappingProxyType({"wait": "wait for ranks", STALL: "wait for features"})
NAMED = 0.02  # share of the joules from which a phase is named in the legend
WHOLE = 0.995  # coverage from which nothing is said of it


class PhaseEnergyView:
    """Joules of one run by rank and phase. Those of steps that were computed again stay counted: they were spent."""

    def __init__(self) -> None:
        self._joules: dict[int, dict[str, float]] = {}
        self._sources: dict[str, float] = {}
        self._told: dict[int, tuple[int, set[tuple[str, Any]]]] = {}  # rank -> newest time and what was told of it
        self._seconds = self._covered_s = 0.0
        self._ranks: set[int] = set()

    def rank_seen(self, rank: int) -> None:
        """Note that a rank takes part, whether or not its energy is known."""
        self._ranks.add(rank)

    def row(self, rank: int, row: Mapping[str, Any]) -> None:
        """Add one row of the table ``phase_energy``; joules that are unknown add nothing, not zero."""
        time_ns, what = int(row["time_ns"]), (str(row["phase"]), row["source"])
        newest, told = self._told.get(rank, (-1, set()))
        if time_ns < newest or (time_ns == newest and what in told):  # told before
            return
        self._told[rank] = (time_ns, {what} if time_ns > newest else told | {what})
        self._ranks.add(rank)
        seconds, joules = float(row["seconds"]), row["joules"]
        self._seconds += seconds
        self._covered_s += seconds * float(row["coverage"])
        if joules is None:
            return
        phases = self._joules.setdefault(rank, {})
        phases[what[0]] = phases.get(what[0], 0.0) + float(joules)
        source = str(row["source"])
        self._sources[source] = self._sources.get(source, 0.0) + float(joules)

    def joules(self) -> dict[int, dict[str, float]]:
        """Joules so far by rank and phase; ranks and phases of which nothing is known are not in it."""
        return {rank: dict(phases) for rank, phases in sorted(self._joules.items())}

    def stall_share(self) -> float | None:
        """Share of the joules that were spent standing still, for other ranks or for features; None without any."""
        whole = self._whole()
        return sum(self._of(phase) for phase in STALLED) / whole if whole else None

    def unknown_ranks(self) -> list[int]:
        """Ranks that take part and whose energy by phase nobody knows."""
        return sorted(self._ranks - self._joules.keys())

    @property
    def coverage(self) -> float:
        """Share of the ranks' time for which energy is known."""
        return self._covered_s / self._seconds if self._seconds else 0.0

    def figure(self) -> Figure:
        """Stacked bars, one per rank, joules; waiting is hatched."""
        whole = self._whole()
        unit, scale = ("kJ", 1e-3) if whole >= 1e4 else ("J", 1.0)
        kinds = sorted({"measured" if source in MEASURED else source for source in self._sources})
        layout = frame(
            "Energy by rank and phase" + (f" · {join_words(kinds)}" if kinds else ""),
            f"energy since the start ({unit})", "", barmode="stack", bargap=0.35, xaxis={"rangemode": "tozero"},
            yaxis={"autorange": "reversed", "type": "category", "showgrid": False, "ticksuffix": " "},
        )  # fmt: skip
        if not whole:
            unknown = "energy by phase is unknown on this machine"
            return {"data": [], "layout": with_note(layout, unknown) if self._ranks else with_note(layout)}
        return {"data": [self._bar(phase, whole, scale, unit) for phase in self._phases()], "layout": layout}

    def sentence(self) -> str:
        """What most joules went into, what was spent standing still, and what is not known, in words."""
        whole, still = self._whole(), self.stall_share()
        if not whole or still is None:
            return "Energy by phase is unknown: nothing here reads or models it." if self._ranks else "No reading yet."
        told = [f"{format_joules(joules)} {_how(source)}" for source, joules in sorted(self._sources.items())]
        most = max(self._phases(), key=self._of)
        text = f"{join_words(told)}: most in {most} ({share(self._of(most) / whole)}); {share(still)} standing still"
        waits = [f"{share(self._of(phase) / whole)} {why}" for phase, why in _WHY.items() if self._of(phase) > 0]
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
        return {
            "type": "bar", "orientation": "h", "name": name, "y": [f"rank {rank}" for rank in ranks],
            "x": [self._joules[rank].get(phase, 0.0) * scale for rank in ranks], "marker": marker,
            "showlegend": self._of(phase) >= NAMED * whole,
            "hovertemplate": f"%{{y}}: %{{x:.4g}} {unit}<extra>{name}</extra>",
        }  # fmt: skip

    def _phases(self) -> list[str]:
        """Phases with joules, those of waiting last; ones that this version does not know before them."""
        known = {phase for phases in self._joules.values() for phase in phases}
        others = sorted(known - set(ORDER))
        return [phase for phase in (*others, *ORDER) if phase in known]

    def _of(self, phase: str) -> float:
        return sum(phases.get(phase, 0.0) for phases in self._joules.values())

    def _whole(self) -> float:
        return sum(sum(phases.values()) for phases in self._joules.values())


_WHY = {"wait": "for other ranks", STALL: "for features"}


def _how(source: str) -> str:
    return f"measured ({source})" if source in MEASURED else source
