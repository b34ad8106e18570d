"""Charts of hybrid batches: targets, sources, reservoir and staleness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.systems.hybrid_batches.batches import FEW, SHARES
from dtdg_lab.visualization.layout import Figure, frame, join_words, percent, share, with_note
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.series import RankSteps
from dtdg_lab.visualization.style import Marks

# What pictures of hybrid batches are made of: the facts of an event ``hybrid``, and what they are in words.


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """One size of batches: consecutive snapshots, and targets of a part.

    Attributes:
        snapshots: N_S.
        least_targets: N_V of the smallest part.
        most_targets: N_V of the largest part.
        given: N_S and N_V as they were set: shares up to 1, whole numbers above.
    """

    snapshots: int
    least_targets: int
    most_targets: int
    given: tuple[float, float]

    @property
    def label(self) -> str:
        """As a legend has it, such as ``20 % x 5 %``: snapshots first."""
        return " x ".join(given_words(value) for value in self.given)

    @property
    def targets(self) -> str:
        """Targets of a part, from the smallest to the largest where they differ."""
        return numbers(self.least_targets, self.most_targets)


@dataclass(frozen=True, slots=True)
class HybridFacts:
    """Batches of N_S snapshots and N_V targets a part.

    Attributes:
        sizes: of every action; one where nothing adjusts them.
        snapshots: T, of the training split.
        first: number of its first snapshot.
        nodes: N.
        candidates: of every part, nodes that may be targets.
        choice: the action in use.
        adjuster: what chooses it; ``none`` where nothing does.
        reservoir: whether batches are generated beside training.
        exchange: ``gradients`` or ``models``.
        average_every_s: seconds between two rounds of averaging models; T_mu.
        capacities: of every action and part, the most batches in the reservoir.
        load_groups: groups by load that targets are drawn from.
        cache_bytes: of all parts with their copies of neighbours; None where unknown.
        stands_in: whether all nodes of its snapshots stand in for a batch that the reservoir does not give.
    """

    sizes: tuple[SizeFacts, ...]
    snapshots: int
    first: int
    nodes: int
    candidates: tuple[int, ...]
    choice: int
    adjuster: str
    reservoir: bool
    exchange: str
    average_every_s: float
    capacities: tuple[tuple[int, ...], ...]
    load_groups: int
    cache_bytes: float | None
    stands_in: bool = False

    @property
    def size(self) -> SizeFacts:
        """The size in use."""
        return self.sizes[self.choice]

    @property
    def adjusted(self) -> bool:
        """Whether something chooses the size."""
        return self.adjuster != "none"

    def label(self, action: int) -> str:
        """The size of an action; its number where that is not of these facts."""
        return self.sizes[action].label if 0 <= action < len(self.sizes) else f"size {action}"


def hybrid_facts(data: Mapping[str, Any]) -> HybridFacts:
    """The facts in the data of an event ``hybrid``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        sizes = [
            SizeFacts(int(size[0]), int(size[1]), int(size[2]), (float(given[0]), float(given[1])))
            for size, given in zip(data["sizes"], data["shares"], strict=True)
        ]
        described = data.get("cache_bytes")
        facts = HybridFacts(
            sizes=tuple(sizes),
            snapshots=int(data["snapshots"]),
            first=int(data["first"]),
            nodes=int(data["nodes"]),
            candidates=_whole(data["candidates"]),
            choice=int(data["choice"]),
            adjuster=str(data["adjuster"]),
            reservoir=bool(data["reservoir"]),
            exchange=str(data["exchange"]),
            average_every_s=float(data["average_every_s"] or 0.0),
            capacities=tuple(_whole(parts) for parts in data.get("capacities") or ()),
            load_groups=int(data["load_groups"]),
            cache_bytes=None if described is None else float(described),
            stands_in=bool(data.get("stands_in", False)),
        )
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the event of hybrid batches cannot be drawn ({error!r}): were they recorded by another version?"
        ) from error
    _check(facts)
    return facts


def _check(facts: HybridFacts) -> None:
    fit = all(1 <= size.snapshots <= facts.snapshots for size in facts.sizes) and all(
        1 <= size.least_targets <= size.most_targets <= max(facts.candidates, default=0) for size in facts.sizes
    )
    if not fit or not 0 <= facts.choice < len(facts.sizes):
        raise DataError(
            f"an event has batches of {len(facts.sizes)} sizes, number {facts.choice} in use, of {facts.snapshots} "
            f"snapshots and parts of {facts.candidates} candidates, which do not fit each other: was it recorded by "
            "another version?"
        )


def hybrid_left(data: Mapping[str, Any]) -> bool:
    """Whether an event ``hybrid`` says that the run went on with steps of another kind."""
    return "layout" in data and data["layout"] is None


def hybrid_words(facts: HybridFacts) -> str:
    """The batches in a few sentences, as a row of a table of events."""
    size, parts = facts.size, len(facts.candidates)
    least, most = min(facts.candidates), max(facts.candidates)
    text = (
        f"Batches of {size.snapshots} of {facts.snapshots} snapshots and {size.targets} of {numbers(least, most)} "
        f"nodes in each of {parts} part{'s' * (parts > 1)}"
    )
    if facts.adjusted:
        text += f", chosen by {facts.adjuster} among {len(facts.sizes)} sizes"
    if facts.reservoir:
        other = "all nodes of the same snapshots stand in" if facts.stands_in else "they are built in the step"
        text += f"; from a reservoir, and where it gives none {other}"
    else:
        text += "; built in the step"
    text += (
        f". Models are averaged every {facts.average_every_s:g} s."
        if facts.exchange == "models"
        else ". Gradients are summed in every step."
    )
    if facts.cache_bytes is not None:
        text += f" Parts with their copies of neighbours take {format_bytes(facts.cache_bytes)}."
    return text


def numbers(least: int, most: int) -> str:
    """One number, or the span of several."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _whole(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def given_words(value: float) -> str:
    """N_S or N_V as it was set: a share in percent, or a number."""
    if value > 1:
        return f"{value:g}"
    return percent(value) if value >= 0.1 else share(value).replace(".0 %", " %")


# How lines and points of the batch sizes are distinguished.


_DASHES = ("solid", "dash", "dot", "dashdot")


_SIZE_STYLE_WORDS = ("solid", "dashed", "dotted", "dash-dotted")


def size_style(facts: HybridFacts, action: int) -> dict[str, Any]:
    """Line and marker of a size: a colour for its snapshots, dashes for its nodes; the one in use is thicker."""
    given = facts.sizes[action].given if 0 <= action < len(facts.sizes) else (0.0, 0.0)
    snapshots, vertices = _given(facts)
    colour = series_colour(snapshots.index(given[0]) if given[0] in snapshots else action)
    dash = _DASHES[vertices.index(given[1]) % len(_DASHES)] if given[1] in vertices else "solid"
    width = 3 if action == facts.choice else 1.5
    return {"line": {"color": colour, "dash": dash, "width": width}, "marker": {"color": colour, "size": 6}}


def size_key(facts: HybridFacts) -> dict[str, Any]:
    """A line over the chart that says which colour and dashes are which; a legend of nine sizes would not fit."""
    snapshots, vertices = _given(facts)
    colours = ", ".join(
        f"<span style='color:{series_colour(at)}'><b>{given_words(value)}</b></span>"
        for at, value in enumerate(snapshots)
    )
    dashes = ", ".join(
        f"{_SIZE_STYLE_WORDS[at % len(_SIZE_STYLE_WORDS)]} {given_words(value)}" for at, value in enumerate(vertices)
    )
    return {
        "text": f"{colours} of snapshots; {dashes} of nodes",
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 10},
    }


def _given(facts: HybridFacts) -> tuple[list[float], list[float]]:
    """The values of N_S and N_V among the sizes, each once."""
    return (
        list(dict.fromkeys(size.given[0] for size in facts.sizes)),
        list(dict.fromkeys(size.given[1] for size in facts.sizes)),
    )


# The reservoir: how many batches of each size it holds, and what its generators have made.


Panel = tuple[Figure, str]
RESERVOIR_LEVELS_KEPT = 240  # times at which levels were logged
NO_LEVEL = "no reservoir levels recorded yet"
_SLOT_S = 0.5  # parts log their levels about so often, each at its own moment


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

    def __init__(self, kept: int = RESERVOIR_LEVELS_KEPT) -> None:
        self._kept = kept
        self._levels: dict[tuple[int, int], dict[int, PartLevel]] = {}  # part, action -> time_ns

    def row(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int) -> None:
        """Add one row; ``seconds`` of the run, when it was logged."""
        levels = self._levels.setdefault((int(row["part"]), int(row["action"])), {})
        levels[int(row["time_ns"])] = PartLevel(
            seconds,
            int(row["step"] or 0),
            attempt,
            int(row["held"]),
            int(row["capacity"]),
            float(row["bytes"] or 0),
            int(row["made"] or 0),
            float(row["busy_s"] or 0.0),
            int(row.get("distinct", row["held"])),
        )
        while len(levels) > self._kept:
            del levels[min(levels)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt held from ``step`` on."""
        for key, levels in self._levels.items():
            kept = {at: each for at, each in levels.items() if each.step < step or each.attempt >= attempt}
            self._levels[key] = kept

    def levels(self, *, since: int = 0) -> dict[tuple[int, int], list[PartLevel]]:
        """By part and action, rows logged from step ``since`` on, in order of time."""
        found = {
            key: [levels[at] for at in sorted(levels) if levels[at].step >= since]
            for key, levels in sorted(self._levels.items())
        }
        return {key: described for key, described in found.items() if described}


def reservoir_panels(log: ReservoirLog, facts: HybridFacts, *, since: int = 0) -> dict[str, Panel]:
    """``reservoir``: share of the capacity that is held, by size; ``made``: batches generated so far."""
    levels = log.levels(since=since)
    held = _by_size(levels, lambda level: float(level.held))
    capacity = _by_size(levels, lambda level: float(level.capacity))
    shares = {
        action: [
            (at, 100 * now / most) for (at, now), (_, most) in zip(described, capacity[action], strict=True) if most
        ]
        for action, described in held.items()
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
    }


def reservoir_words(log: ReservoirLog, facts: HybridFacts, *, since: int = 0) -> str:
    """What is held, the bytes it takes, and the processor time it cost, in words."""
    levels = log.levels(since=since)
    look = "The fuller a size is, the more steps take their batch from here: half full, every second one."
    if not levels:
        return look
    last = {key: described[-1] for key, described in levels.items()}
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
    described = join_words([f"{number} of {label}" for label, number in few.items()])
    sizes = f", {len(facts.sizes)} sizes share it" if len(facts.sizes) > 1 else ""
    return (
        f"Warning: a part's reservoir holds at most {described} (fewer than {FEW} distinct batches{sizes}): training "
        "repeats them. Give smaller or fewer sizes, or set reservoir_uses so that batches are replaced."
    )


def _recent_share(levels: Mapping[tuple[int, int], Sequence[PartLevel]]) -> float | None:
    """Processors that the generators keep busy, over their last ten rows."""
    total, seen = 0.0, False
    for described in levels.values():
        recent = described[-10:]
        seconds = recent[-1].seconds - recent[0].seconds
        if seconds > 0:
            total += max(0.0, recent[-1].busy_s - recent[0].busy_s) / seconds
            seen = True
    return total if seen else None


def _by_size(
    levels: Mapping[tuple[int, int], Sequence[PartLevel]], value: Callable[[PartLevel], float]
) -> dict[int, list[tuple[float, float]]]:
    """Sums over the parts by size, at the seconds at which all parts had logged theirs."""
    slots: dict[int, dict[int, dict[int, float]]] = {}  # action -> slot of time -> part
    parts: dict[int, set[int]] = {}
    for (part, action), described in levels.items():
        parts.setdefault(action, set()).add(part)
        for level in described:
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
    title: str,
    y_title: str,
    lines: Mapping[int, Sequence[tuple[float, float]]],
    facts: HybridFacts,
    *,
    top: float | None = None,
) -> Figure:
    yaxis: dict[str, Any] = {"rangemode": "tozero"} if top is None else {"range": [0, 1.03 * top]}
    layout = frame(title, "time since the start (s)", y_title, yaxis=yaxis, showlegend=False)
    if not any(lines.values()):
        return {"data": [], "layout": with_note(layout, NO_LEVEL)}
    layout["annotations"] = [size_key(facts)]
    data = [
        {
            "type": "scatter",
            "mode": "lines" if len(points) > 1 else "markers",
            "name": facts.label(action),
            "showlegend": False,
            "x": [round(at, 3) for at, _ in points],
            "y": [round(value, 2) for _, value in points],
            **size_style(facts, action),
            "hovertemplate": "%{x:.1f} s: %{y:.4~g}<extra>%{fullData.name}</extra>",
        }
        for action, points in lines.items()
        if points
    ]
    return {"data": data, "layout": layout}


# Averaging of models: how many steps a rank had made since it gave the model that a mean is of, and how often.


STALENESS_KEPT = 400  # rounds of a rank
_NAMED = 5  # ranks that a legend has room for
_OF_ALL = 1 << 40  # in the order of a step's rounds: the one that ends all has number 0
NO_ROUND = "no round of averaging was applied yet"


@dataclass(frozen=True, slots=True)
class RankRound:
    """One round of averaging as one rank saw it.

    Attributes:
        number: of the round.
        joined: steps the rank had made when it gave its model.
        applied: steps it had made when it took the mean.
        weight: of the rank in the mean.
        gathered: whether the rank waited for the others to finish.
        attempt: of the run.
    """

    number: int
    joined: int
    applied: int
    weight: float
    gathered: bool
    attempt: int

    @property
    def staleness(self) -> int:
        """Steps in between, which the mean knows nothing of."""
        return self.applied - self.joined


class RoundLog:
    """Rows of the table ``rounds``: of every rank, the newest ``kept``."""

    def __init__(self, kept: int = STALENESS_KEPT) -> None:
        self._kept = kept
        # rank -> attempt, step at which it was applied, number: numbers restart where a run is rebuilt
        self._rounds: dict[int, dict[tuple[int, int, int], RankRound]] = {}

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row."""
        rounds = self._rounds.setdefault(rank, {})
        number, weight = int(row["number"]), 1.0 if row["weight"] is None else float(row["weight"])
        gathered = bool(row.get("gathered", weight == 0))  # older records do not say: a rank had weight 0 then
        applied = int(row["applied_step"])
        rounds[attempt, applied, number or _OF_ALL] = RankRound(
            number, int(row["joined_step"]), applied, weight, gathered, attempt
        )
        while len(rounds) > self._kept:
            del rounds[min(rounds)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for rank, rounds in self._rounds.items():
            kept = {key: each for key, each in rounds.items() if each.applied < step or each.attempt >= attempt}
            self._rounds[rank] = kept

    def rounds(self, *, since: int = 0) -> dict[int, list[RankRound]]:
        """By rank, the rounds applied from step ``since`` on, in order; ranks that have none are left out."""
        found = {
            rank: [rounds[key] for key in sorted(rounds) if rounds[key].applied >= since]
            for rank, rounds in sorted(self._rounds.items())
        }
        return {rank: rounds for rank, rounds in found.items() if rounds}


def rounds_per_s(log: RoundLog, steps: RankSteps, *, since: int = 0) -> dict[int, float]:
    """Rounds a second that each rank applied, over the newest steps that are kept of it."""
    found = {}
    for rank, rounds in log.rounds(since=since).items():
        at = [taken.seconds for each in rounds if (taken := steps.at(rank, each.applied)) is not None]
        if len(at) > 1 and at[-1] > at[0]:
            found[rank] = (len(at) - 1) / (at[-1] - at[0])
    return found


def staleness_panel(log: RoundLog, steps: RankSteps, marks: Marks, *, since: int = 0) -> Panel:
    """Staleness of every rank over its steps, and what it is in words."""
    rounds = log.rounds(since=since)
    applied = sorted({each.applied for found in rounds.values() for each in found})
    layout = frame(
        "Staleness of averaged models",
        "step of the rank (model updates)",
        "steps since it gave its model",
        **{"yaxis": {"rangemode": "tozero"}, "showlegend": True, **marks.over_steps(applied)},
    )
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"rank {rank}",
            "x": [each.applied for each in found],
            "y": [each.staleness for each in found],
            "line": {"color": series_colour(rank), "width": 1.5},
            "marker": {"color": series_colour(rank), "size": 4},
            "customdata": [each.number for each in found],
            "showlegend": len(rounds) <= _NAMED,
            "hovertemplate": "round %{customdata}, step %{x}: %{y}<extra>%{fullData.name}</extra>",
        }
        for rank, found in rounds.items()
    ]
    figure = {"data": data, "layout": layout if data else with_note(layout, NO_ROUND)}
    return figure, staleness_words(log, steps, since=since)


def staleness_words(log: RoundLog, steps: RankSteps, *, since: int = 0) -> str:
    """How stale the means were that ranks took, and how often they did."""
    look = "A slow rank should lag by few steps of its own, and must not slow the others: look whether lines stay flat."
    rounds = log.rounds(since=since)
    if not rounds:
        return f"No rank waits for a round: a mean comes some steps after a rank gave its model. {look}"
    stale = {rank: [each.staleness for each in found if each.weight > 0] for rank, found in rounds.items()}
    described = [f"{sum(found) / len(found):.1f} on rank {rank}" for rank, found in stale.items() if found]
    most = max((each for found in stale.values() for each in found), default=0)
    text = (
        f"Means were stale by {join_words(described)} steps on average, {most} at most"
        if described
        else "Ranks have finished"
    )
    rates = rounds_per_s(log, steps, since=since)
    text += f"; {min(rates.values()):.2g} rounds a second" if rates else ""
    return f"{text}{_finished_words(rounds)}. {look}"


def _finished_words(rounds: Mapping[int, list[RankRound]]) -> str:
    """Which ranks have made their last step while others go on."""
    done = [str(rank) for rank, found in rounds.items() if found[-1].gathered and found[-1].weight == 0]
    if not done:
        return ""
    if len(done) == 1:
        return f". Rank {done[0]} has finished and no longer contributes to the average"
    return f". Ranks {join_words(done)} have finished and no longer contribute to the average"


# What the newest steps took as their hybrid batches, part by part, in bounded memory.


TARGET_LOG_KEPT = 400  # steps


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
        targets: nodes whose loss is taken in each of them.
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

    def __init__(self, kept: int = TARGET_LOG_KEPT) -> None:
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
        """Steps from ``since`` on in order, with the batches of the parts that have logged them."""
        return [(at, [batch for _, batch in self._rows[at].values()]) for at in sorted(self._rows) if at >= since]

    def newest(self, *, since: int = 0) -> dict[int, PartBatch]:
        """The newest batch of every part that has a map, by part: ranks need not be in the same step."""
        found: dict[int, PartBatch] = {}
        for _, batches in self.steps(since=since):
            found |= {batch.part: batch for batch in batches if batch.map is not None}
        return dict(sorted(found.items()))


def _batch(row: Mapping[str, Any]) -> PartBatch:
    first, drawn = int(row["first"]), row["map"]
    return PartBatch(
        int(row["step"]),
        int(row["part"]),
        int(row["action"]),
        int(row["index"]),
        str(row["source"]),
        range(first, first + int(row["snapshots"])),
        int(row["targets"]),
        int(row["rows"]),
        int(row["edges"]),
        float(row["built_s"] or 0.0),
        None if drawn is None else tuple(int(count) for count in drawn),
    )


# Nodes x snapshots: the batch now in training, beside the node batch and the snapshot batch it replaces.


NO_BATCH = "no batch recorded yet"
KINDS = ("hybrid batch", "node batch", "snapshot batch")
_GAP = 0.12  # between the three, share of their width
_SPACE = 4  # between parts, in sixtieths
# by share of a sixtieth's candidates: one in a thousand is visible, and one in ten differs from all
_SCALE = [
    [0.0, "#FFFFFF"],
    [0.0005, "#DCEAF5"],
    [0.02, "#A9CCE6"],
    [0.1, "#5BA3D0"],
    [0.4, "#2F6FA8"],
    [1.0, "#08306B"],
]


def target_counts(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> tuple[int, int, int]:
    """Target nodes (nodes x snapshots) of the batch, and of the two that it replaces.

    Args:
        facts: of the run.
        batches: by part.

    Returns:
        of the hybrid batch; of the node batch: the same nodes in all T snapshots; of the snapshot batch: all
        candidates in the same snapshots.

    References: DynaHB figure 2 and example 1.
    """
    each = batches.values()
    return (
        sum(batch.size for batch in each),
        sum(batch.targets * facts.snapshots for batch in each),
        sum(facts.candidates[batch.part] * len(batch.snapshots) for batch in each),
    )


def target_map_panel(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> Panel:
    """The map with its sentence; ``batches`` by part, each with a map."""
    return target_map_figure(facts, batches), target_map_words(facts, batches)


def target_map_figure(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> Figure:
    """Three fields side by side: snapshots across, candidates of each part by load down, heaviest first."""
    steps = sorted({batch.step for batch in batches.values()})
    title = f"Batch of step {numbers(steps[0], steps[-1])}" if steps else "Batch"
    layout = frame(title, "", "nodes by load, heaviest on top", margin={"l": 56, "r": 14, "t": 34, "b": 58})
    if not batches:
        return {"data": [], "layout": with_note(layout, NO_BATCH)}
    counts, width = target_counts(facts, batches), facts.snapshots
    starts = [round(place * (1 + _GAP) * width) for place in range(len(KINDS))]
    layout["xaxis"] |= _snapshot_axis(facts, starts, counts)
    layout["yaxis"] |= _part_axis(list(batches))
    data: list[dict[str, Any]] = []
    for place, batch in enumerate(batches.values()):
        top = place * (SHARES + _SPACE)
        layout["shapes"] += [_field(start, width, top) for start in starts]
        data += _part_traces(facts, batch, top, starts)
    data[0] |= {"showscale": True, "colorbar": _COLOURS}
    return {"data": data, "layout": layout}


_COLOURS = {
    "title": {"text": "share that are targets", "side": "right", "font": {"size": 10}},
    "thickness": 9,
    "outlinewidth": 0.5,
    "tickfont": {"size": 10},
    "tickvals": [0.0, 0.1, 0.4, 1.0],
    "ticktext": ["0", "10 %", "40 %", "all"],
}


def target_map_words(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> str:
    """How large the batch is, and the two that it replaces."""
    look = "Look how little of the nodes and snapshots a step takes, and that every load has its targets."
    if not batches:
        return f"Coloured is what a step takes of nodes and snapshots. {look}"
    each = list(batches.values())
    whole = [f"part {batch.part}" for batch in each if batch.source == "snapshot"]
    if whole:
        look = f"The reservoir gave {join_words(whole)} none: all its nodes stand in."
    hybrid, vertex, snapshot = target_counts(facts, batches)
    spans = numbers(min(len(batch.snapshots) for batch in each), max(len(batch.snapshots) for batch in each))
    targets = numbers(min(batch.targets for batch in each), max(batch.targets for batch in each))
    return (
        f"{spans} of {facts.snapshots} snapshots x {targets} nodes a part: {hybrid:,} targets, in blocks of "
        f"{sum(batch.rows for batch in each):,} rows and {sum(batch.edges for batch in each):,} edges. The "
        f"same nodes in all snapshots are {vertex:,} targets, all nodes in the same snapshots {snapshot:,}. "
        f"{look}"
    )


def _part_traces(facts: HybridFacts, batch: PartBatch, top: int, starts: list[int]) -> list[dict[str, Any]]:
    """The three fields of one part, each one column of colour over the snapshots it takes."""
    within = _sixtieth_sizes(facts.candidates[batch.part])
    taken = np.asarray(batch.map, np.float64)
    own = (batch.snapshots.start - facts.first, batch.snapshots.stop - facts.first)
    whole = (0, facts.snapshots)
    return [
        {
            **_column(start, span, top, counts, within),
            "hovertemplate": f"part {batch.part}, snapshots {facts.first + span[0]} to {facts.first + span[1] - 1}: "
            "%{customdata}<extra></extra>",
        }
        for start, span, counts in zip(starts, (own, whole, own), (taken, taken, within), strict=True)
    ]


def _column(start: int, span: tuple[int, int], top: int, counts: NDArray[Any], within: NDArray[Any]) -> dict[str, Any]:
    runs = [(count, n) for count, n in zip(counts, within, strict=True) if n]  # a small part has fewer than sixty
    z = [[round(float(min(count / n, 1.0)), 4)] for count, n in runs]
    said = [[f"{int(count):,} of {int(n):,} nodes"] for count, n in runs]
    edges = [round(top - 0.5 + row * SHARES / len(runs), 3) for row in range(len(runs) + 1)]
    return {
        "type": "heatmap",
        "z": z,
        "x": [start + span[0] - 0.5, start + span[1] - 0.5],
        "y": edges,
        "zmin": 0,
        "zmax": 1,
        "colorscale": _SCALE,
        "showscale": False,
        "customdata": said,
    }


def _sixtieth_sizes(candidates: int) -> NDArray[np.int64]:
    """How many candidates are in each run of the load order: ``LoadGroups.sixtieths`` counts targets in these."""
    return np.bincount(np.arange(candidates) * SHARES // candidates, minlength=SHARES)


def _field(start: int, width: int, top: int) -> dict[str, Any]:
    """All that a part has."""
    return {
        "type": "rect",
        "xref": "x",
        "yref": "y",
        "layer": "below",
        "x0": start - 0.5,
        "x1": start + width - 0.5,
        "y0": top - 0.5,
        "y1": top + SHARES - 0.5,
        "line": {"color": "#B8BEC6", "width": 1},
        "fillcolor": "#F6F8FA",
    }


def _snapshot_axis(facts: HybridFacts, starts: list[int], counts: tuple[int, int, int]) -> dict[str, Any]:
    """Under each field its first and last snapshot, and in the middle what it is."""
    width, places, words = facts.snapshots, [], []
    for start, kind, count in zip(starts, KINDS, counts, strict=True):
        places += [start, start + (width - 1) / 2, start + width - 1]
        words += [str(facts.first), f"snapshot<br><b>{kind}</b><br>{count:,} targets", str(facts.first + width - 1)]
    return {
        "tickvals": places,
        "ticktext": words,
        "tickangle": 0,
        "showgrid": False,
        "showline": False,
        "range": [-0.5 - 0.02 * width, starts[-1] + width - 0.5 + 0.02 * width],
    }


def _part_axis(parts: list[int]) -> dict[str, Any]:
    stride = SHARES + _SPACE
    return {
        "tickvals": [place * stride + (SHARES - 1) / 2 for place in range(len(parts))],
        "ticktext": [f"part {part}" for part in parts],
        "showgrid": False,
        "showline": False,
        "range": [len(parts) * stride - _SPACE + 0.5, -1.5],
    }


# Where batches came from, step by step, and what waiting for them took.


Steps = Sequence[tuple[int, Sequence[PartBatch]]]
# name in a legend, in a sentence, colour
SOURCES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "reservoir": ("from the reservoir", "came from the reservoir", "#0072B2"),
        "snapshot": ("all nodes of its snapshots", "took all nodes of their snapshots", "#56B4E9"),
        "new": ("built in the step", "were built in the step", "#E69F00"),
    }
)
_BARS = 80


def target_sources_panel(steps: Steps, marks: Marks, batch_share: float | None, *, reservoir: bool) -> Panel:
    """Shares of the parts' batches by source, and what they mean.

    Args:
        steps: from ``TargetLog.steps``.
        marks: of the run's changes.
        batch_share: of the ranks' time that went into batches; None where it is not known.
        reservoir: whether there is one.
    """
    return _figure_target_sources(steps, marks), target_sources_words(steps, batch_share, reservoir=reservoir)


def target_sources_words(steps: Steps, batch_share: float | None, *, reservoir: bool) -> str:
    """What share came from where, what building one takes, and what training waited for it."""
    batches = [batch for _, each in steps for batch in each]
    if not batches:
        return "Batches from the reservoir cost a step nothing; those built in the step are what it waits for."
    counts = {name: sum(batch.source == name for batch in batches) for name in SOURCES}
    shares = {name: percent(count / len(batches)) for name, count in counts.items() if count}
    described = [f"{shares[name]} {words}" for name, (_, words, _) in SOURCES.items() if name in shares]
    text = f"Of the last {len(batches):,} batches {join_words(described)}"
    built = [batch.built_s for batch in batches if batch.built_s > 0]
    if built:
        text += f"; building one takes {format_seconds(sum(built) / len(built))}"
    if batch_share is not None:
        text += f". Lately ranks spent {share(batch_share)} of their time on batches"
        text += "; once the reservoir is warm, look for under 1 %" if reservoir else ""
    return f"{text}."


def _figure_target_sources(steps: Steps, marks: Marks) -> Figure:
    """Bars of as many steps each, so that there are not more than fit."""
    at = [step for step, _ in steps]
    layout = frame(
        "Where batches came from",
        "step (model updates)",
        "share of batches (%)",
        barmode="stack",
        bargap=0,
        yaxis={"range": [0, 100]},
        **marks.over_steps(at),
    )
    if not at:
        return {"data": [], "layout": with_note(layout, NO_BATCH)}
    span = max(1, -(-(at[-1] - at[0] + 1) // _BARS))
    bars: dict[int, list[PartBatch]] = {}
    for step, batches in steps:
        bars.setdefault((step - at[0]) // span, []).extend(batches)
    x = [at[0] + bar * span + (span - 1) / 2 for bar in bars]
    data: list[dict[str, Any]] = []
    for name, (words, _, colour) in SOURCES.items():
        y = [round(100 * sum(b.source == name for b in batches) / len(batches), 2) for batches in bars.values()]
        if any(y):
            data.append(
                {
                    "type": "bar",
                    "name": words,
                    "x": x,
                    "y": y,
                    "width": span,
                    "marker": {"color": colour, "line": {"width": 0}},
                    "hovertemplate": "about step %{x:.0f}: %{y:.0f} %<extra>" + words + "</extra>",
                }
            )
    return {"data": data, "layout": layout}
