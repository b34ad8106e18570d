"""The reservoir: how many batches of each size it holds, and what its generators have made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.batching.reservoir import FEW
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.hybrid_facts import HybridFacts
from dtdg_lab.views.layout import Figure, frame, join_words, percent, share, with_note
from dtdg_lab.views.size_style import size_key, size_style

Panel = tuple[Figure, str]
KEPT = 240  # times at which levels were told
NO_LEVEL = "the reservoir has not told its levels yet"
_SLOT_S = 0.5  # parts tell their levels about so often, each at its own moment


@dataclass(frozen=True, slots=True)
class PartLevel:
    """What one part's reservoir held of one size.

    Attributes:
        seconds: of the run.
        step: updates of the rank's model by then.
        attempt: of the run.
        held: batches.
        capacity: most of them.
        bytes: that they take.
        made: batches generated so far.
        busy_s: processor seconds of the generator so far.
        distinct: batches of different content; those held where it was not recorded.
    """

    seconds: float
    step: int
    attempt: int
    held: int
    capacity: int
    bytes: float
    made: int
    busy_s: float
    distinct: int


class ReservoirLog:
    """Rows of the table ``reservoir``: of every part and size, the newest ``kept``."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._levels: dict[tuple[int, int], dict[int, PartLevel]] = {}  # part, action -> time_ns

    def row(self, row: Mapping[str, Any], seconds: float, attempt: int) -> None:
        """Add one row; ``seconds`` of the run, when it was told."""
        levels = self._levels.setdefault((int(row["part"]), int(row["action"])), {})
        levels[int(row["time_ns"])] = PartLevel(
            seconds, int(row["step"] or 0), attempt, int(row["held"]), int(row["capacity"]), float(row["bytes"] or 0),
            int(row["made"] or 0), float(row["busy_s"] or 0.0), int(row.get("distinct", row["held"])),
        )  # fmt: skip
        while len(levels) > self._kept:
            del levels[min(levels)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt held from ``step`` on."""
        for key, levels in self._levels.items():
            kept = {at: each for at, each in levels.items() if each.step < step or each.attempt >= attempt}
            self._levels[key] = kept

    def levels(self, *, since: int = 0) -> dict[tuple[int, int], list[PartLevel]]:
        """By part and action, what was told from step ``since`` on, in order of time."""
        found = {
            key: [levels[at] for at in sorted(levels) if levels[at].step >= since]
            for key, levels in sorted(self._levels.items())
        }
        return {key: told for key, told in found.items() if told}


def reservoir_panels(log: ReservoirLog, facts: HybridFacts, *, since: int = 0) -> dict[str, Panel]:
    """``reservoir``: share of the capacity that is held, by size; ``made``: batches generated so far."""
    levels = log.levels(since=since)
    held = _by_size(levels, lambda level: float(level.held))
    capacity = _by_size(levels, lambda level: float(level.capacity))
    shares = {
        action: [(at, 100 * now / most) for (at, now), (_, most) in zip(told, capacity[action], strict=True) if most]
        for action, told in held.items()
    }
    made = _by_size(levels, lambda level: float(level.made))
    return {
        "reservoir": (
            _figure("Reservoir", "held of the most (%)", shares, facts, top=100.0),
            reservoir_words(log, facts, since=since),
        ),
        "made": (
            _figure("Batches generated", "batches, all parts", made, facts),
            "Sizes take turns by time: large batches take longer to make, and a line that is flat is full.",
        ),
    }  # fmt: skip


def reservoir_words(log: ReservoirLog, facts: HybridFacts, *, since: int = 0) -> str:
    """What is held, the bytes it takes, and the processor time it cost, in words."""
    levels = log.levels(since=since)
    look = "The fuller a size is, the more steps take their batch from here: half full, every second one."
    if not levels:
        return look
    last = {key: told[-1] for key, told in levels.items()}
    size = [level for (_, action), level in last.items() if action == facts.choice]
    held, most = sum(level.held for level in size), sum(level.capacity for level in size)
    text = f"{look} Of {facts.label(facts.choice)}, in use, {held:,} of {most:,} are held"
    text += f" ({percent(held / most)})" if most else ""
    text += f", {sum(level.distinct for level in size):,} of them distinct" if held else ""
    bytes_, made = sum(level.bytes for level in last.values()), sum(level.made for level in last.values())
    text += f"; all sizes take {format_bytes(bytes_)}. {made:,} were made"
    busy_s, recent = sum(level.busy_s for level in last.values()), _recent_share(levels)
    text += f" in {format_seconds(busy_s)} of processor time" if busy_s else ""
    return f"{text}." if recent is None else f"{text}, now {share(recent)} of a processor."


def few_words(facts: HybridFacts) -> str:
    """A warning where a part's reservoir holds fewer than ten distinct batches of a size; empty where it does not."""
    least = {action: min(of_parts) for action, of_parts in enumerate(facts.capacities)} if facts.reservoir else {}
    few = {facts.label(action): number for action, number in least.items() if number < FEW}
    if not few:
        return ""
    told = join_words([f"{number} of {label}" for label, number in few.items()])
    sizes = f", {len(facts.sizes)} sizes share it" if len(facts.sizes) > 1 else ""
    return (
        f"Warning: a part's reservoir holds at most {told} (fewer than {FEW} distinct batches{sizes}): training "
        "repeats them. Give smaller or fewer sizes, or set reservoir_uses so that batches are replaced."
    )


def _recent_share(levels: Mapping[tuple[int, int], Sequence[PartLevel]]) -> float | None:
    """Processors that the generators keep busy, over the last ten times they were told."""
    total, seen = 0.0, False
    for told in levels.values():
        recent = told[-10:]
        seconds = recent[-1].seconds - recent[0].seconds
        if seconds > 0:
            total += max(0.0, recent[-1].busy_s - recent[0].busy_s) / seconds
            seen = True
    return total if seen else None


def _by_size(
    levels: Mapping[tuple[int, int], Sequence[PartLevel]], value: Callable[[PartLevel], float]
) -> dict[int, list[tuple[float, float]]]:  # fmt: skip
    """Sums over the parts by size, at the seconds at which all parts had told theirs."""
    slots: dict[int, dict[int, dict[int, float]]] = {}  # action -> slot of time -> part
    parts: dict[int, set[int]] = {}
    for (part, action), told in levels.items():
        parts.setdefault(action, set()).add(part)
        for level in told:
            slots.setdefault(action, {}).setdefault(int(level.seconds / _SLOT_S), {})[part] = value(level)
    found: dict[int, list[tuple[float, float]]] = {}
    for action, by_slot in sorted(slots.items()):
        newest: dict[int, float] = {}
        found[action] = []
        for slot in sorted(by_slot):
            newest |= by_slot[slot]
            if len(newest) == len(parts[action]):
                found[action].append((_SLOT_S * slot, sum(newest.values())))
    return found


def _figure(
    title: str, y_title: str, lines: Mapping[int, Sequence[tuple[float, float]]], facts: HybridFacts,
    *, top: float | None = None,
) -> Figure:  # fmt: skip
    yaxis: dict[str, Any] = {"rangemode": "tozero"} if top is None else {"range": [0, 1.03 * top]}
    layout = frame(title, "time since the start (s)", y_title, yaxis=yaxis, showlegend=False)
    if not any(lines.values()):
        return {"data": [], "layout": with_note(layout, NO_LEVEL)}
    layout["annotations"] = [size_key(facts)]
    data = [
        {
            "type": "scatter", "mode": "lines" if len(points) > 1 else "markers", "name": facts.label(action),
            "showlegend": False,
            "x": [round(at, 3) for at, _ in points], "y": [round(value, 2) for _, value in points],
            **size_style(facts, action), "hovertemplate": "%{x:.1f} s: %{y:.4~g}<extra>%{fullData.name}</extra>",
        }
        for action, points in lines.items() if points
    ]  # fmt: skip
    return {"data": data, "layout": layout}
