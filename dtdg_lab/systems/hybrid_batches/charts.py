"""Charts of hybrid batches: targets, sources, reservoir and staleness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.records import read_fields
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.systems.hybrid_batches.batches import FEW, SHARES
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, given_words, numbers
from dtdg_lab.visualization.charts import Drawn, Panel, bars, box, chart, colour_bar, heat, label, line
from dtdg_lab.visualization.layout import Figure, join_words, percent, share
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.series import PartLog, RankSteps
from dtdg_lab.visualization.style import Marks

if TYPE_CHECKING:
    import pandas as pd

# How lines and points of the batch sizes are distinguished.


_DASHES = ("solid", "dash", "dot", "dashdot")


_SIZE_STYLE_WORDS = ("solid", "dashed", "dotted", "dash-dotted")


def size_style(facts: HybridFacts, action: int) -> dict[str, Any]:
    """How a size's line is drawn: a colour for its snapshots, dashes for its nodes; the one in use is thicker."""
    given = facts.sizes[action].given if 0 <= action < len(facts.sizes) else (0.0, 0.0)
    snapshots, vertices = _given_sizes(facts)
    colour = series_colour(snapshots.index(given[0]) if given[0] in snapshots else action)
    dash = _DASHES[vertices.index(given[1]) % len(_DASHES)] if given[1] in vertices else "solid"
    marker = {"color": colour, "size": 6}
    return {"colour": colour, "dash": dash, "width": 3 if action == facts.choice else 1.5, "marker": marker}


def size_key(facts: HybridFacts) -> Drawn:
    """A line over the chart that says which colour and dashes are which; a legend of nine sizes would not fit."""
    snapshots, vertices = _given_sizes(facts)
    colours = ", ".join(
        f"<span style='color:{series_colour(at)}'><b>{given_words(value)}</b></span>"
        for at, value in enumerate(snapshots)
    )
    dashes = ", ".join(
        f"{_SIZE_STYLE_WORDS[at % len(_SIZE_STYLE_WORDS)]} {given_words(value)}" for at, value in enumerate(vertices)
    )
    above: Drawn = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "font": {"size": 10}}
    return label(f"{colours} of snapshots; {dashes} of nodes", 0, 1, **above)


def _given_sizes(facts: HybridFacts) -> list[list[float]]:
    """The values of N_S and N_V among the sizes, each once."""
    return [list(dict.fromkeys(size.given[place] for size in facts.sizes)) for place in (0, 1)]


# The reservoir: how many batches of each size it holds, and what its generators have made.


RESERVOIR_LEVELS_KEPT = 240  # times at which levels were logged
NO_LEVEL = "no reservoir levels recorded yet"
_SLOT_S = 0.5  # parts log their levels about so often, each at its own moment


@dataclass(frozen=True, slots=True)
class PartLevel:
    """What one part's reservoir held of one size.

    Attributes:
        seconds: of the run.
        step: updates of the rank's model by then.
        held: batches.
        capacity: most of them.
        bytes: that they take.
        made: batches generated so far.
        busy_s: processor seconds of the generator so far.
        distinct: batches of different content; those held where it was not recorded.
    """

    seconds: float
    step: int
    held: int
    capacity: int
    bytes: float
    made: int
    busy_s: float
    distinct: int


class ReservoirLog(PartLog[PartLevel]):
    """Rows of the table ``reservoir`` by part and size."""

    kept = RESERVOIR_LEVELS_KEPT

    def row(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int) -> None:
        """Add one row; ``seconds`` of the run, when it was logged."""
        known: Drawn = {name: row[name] or 0 for name in ("step", "bytes", "made", "busy_s")}
        level = read_fields(PartLevel, {"distinct": row["held"], **row, **known}, seconds=seconds)
        self.add((int(row["part"]), int(row["action"])), level.step, attempt, level, int(row["time_ns"]))


def reservoir_panels(log: ReservoirLog, facts: HybridFacts, *, since: int = 0) -> dict[str, Panel]:
    """``reservoir``: share of the capacity that is held, by size; ``made``: batches generated so far."""
    table = _levels_by_size(log, since)
    table["share"] = 100 * table["held"] / table["capacity"].where(table["capacity"] > 0)
    return {
        "reservoir": (
            _levels_figure("Reservoir", "held of the most (%)", table["share"], facts, {"range": [0, 103.0]}),
            reservoir_words(log, facts, since=since),
        ),
        "made": (
            _levels_figure("Batches generated", "batches, all parts", table["made"], facts, {"rangemode": "tozero"}),
            "Sizes take turns by time: large batches take longer to make, and a line that is flat is full.",
        ),
    }


def reservoir_words(log: ReservoirLog, facts: HybridFacts, *, since: int = 0) -> str:
    """What is held, the bytes it takes, and the processor time it cost, in words."""
    levels = log.all(since=since)
    look = "The fuller a size is, the more steps take their batch from here: half full, every second one."
    if not levels:
        return look
    last = [each[-1] for each in levels.values()]
    size = [each[-1] for (_, action), each in levels.items() if action == facts.choice]
    held, most = sum(level.held for level in size), sum(level.capacity for level in size)
    text = f"{look} Of {facts.label(facts.choice)}, in use, {held:,} of {most:,} are held"
    text += f" ({percent(held / most)})" if most else ""
    text += f", {sum(level.distinct for level in size):,} of them distinct" if held else ""
    bytes_, made, busy_s = (sum(getattr(level, name) for level in last) for name in ("bytes", "made", "busy_s"))
    text += f"; all sizes take {format_bytes(bytes_)}. {made:,} were made"
    text += f" in {format_seconds(busy_s)} of processor time" if busy_s else ""
    # processors that the generators keep busy, over their last ten rows
    ends = [(each[-10:][0], each[-1]) for each in levels.values() if each[-1].seconds > each[-10:][0].seconds]
    recent = [max(0.0, new.busy_s - old.busy_s) / (new.seconds - old.seconds) for old, new in ends]
    return f"{text}, now {share(sum(recent))} of a processor." if recent else f"{text}."


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


def _levels_by_size(log: ReservoirLog, since: int) -> pd.DataFrame:
    """Held, capacity and made of the parts together, by size and second, where all parts had logged theirs."""
    import pandas as pd

    columns = ["held", "capacity", "made"]
    rows = [
        (action, _SLOT_S * int(level.seconds / _SLOT_S), part, level.held, level.capacity, level.made)
        for (part, action), levels in log.all(since=since).items()
        for level in levels
    ]
    index = ["action", "seconds", "part"]
    logged = pd.DataFrame(rows, columns=[*index, *columns]).astype(float).drop_duplicates(index, keep="last")
    tables = [
        of_size.pivot(index="seconds", columns="part", values=columns).ffill().dropna().T.groupby(level=0).sum().T
        for _, of_size in logged.groupby("action")
    ]
    if not tables:
        return logged.set_index(index[:2])[columns]
    return pd.concat(tables, keys=sorted(logged["action"].unique()))


def _levels_figure(title: str, y_title: str, lines: pd.Series, facts: HybridFacts, y_axis: Drawn) -> Figure:
    data = []
    for action, values in lines.dropna().groupby(level=0):
        seconds = [round(at, 3) for _, at in values.index]
        looks = size_style(facts, int(action)) | {"showlegend": False}
        name = facts.label(int(action))
        data.append(line(name, seconds, values.round(2).tolist(), hover="%{x:.1f} s: %{y:.4~g}", **looks))
    key = {"annotations": [size_key(facts)]} if data else {}
    looks = {"empty": NO_LEVEL, "yaxis": y_axis, "showlegend": False, **key}
    return chart(title, "time since the start (s)", y_title, data, **looks)


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
    """

    number: int
    joined: int
    applied: int
    weight: float
    gathered: bool

    @property
    def staleness(self) -> int:
        """Steps in between, which the mean knows nothing of."""
        return self.applied - self.joined


class RoundLog(PartLog[RankRound]):
    """Rows of the table ``rounds`` by rank."""

    kept = STALENESS_KEPT

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row; numbers of rounds restart where a run is rebuilt."""
        number, weight = int(row["number"]), 1.0 if row["weight"] is None else float(row["weight"])
        gathered = bool(row.get("gathered", weight == 0))  # older records do not say: a rank had weight 0 then
        applied = int(row["applied_step"])
        known = RankRound(number, int(row["joined_step"]), applied, weight, gathered)
        self.add(rank, applied, attempt, known, (attempt, applied, number or _OF_ALL))

    def rounds(self, *, since: int = 0) -> dict[int, list[RankRound]]:
        """By rank, the rounds applied from step ``since`` on, in order; ranks that have none are left out."""
        return {rank: rounds for (rank, *_), rounds in self.all(since=since).items()}


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
    data = []
    for rank, found in rounds.items():
        x, y = [each.applied for each in found], [each.staleness for each in found]
        marker = {"color": series_colour(rank), "size": 4}
        looks: Drawn = {"width": 1.5, "mode": "lines+markers", "marker": marker, "showlegend": len(rounds) <= _NAMED}
        told: Drawn = {"hover": "round %{customdata}, step %{x}: %{y}", "customdata": [each.number for each in found]}
        data.append(line(f"rank {rank}", x, y, series_colour(rank), **looks, **told))
    titles, x_title = (
        ("Staleness of averaged models", "steps since it gave its model"),
        "step of the rank (model updates)",
    )
    looks = {"x_title": x_title, "empty": NO_ROUND, "yaxis": {"rangemode": "tozero"}, "showlegend": True}
    return marks.chart(*titles, data, applied, **looks), staleness_words(log, steps, since=since)


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
        self._rows: PartLog[PartBatch] = PartLog(kept)

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row."""
        first, drawn = int(row["first"]), row["map"]
        counts = None if drawn is None else tuple(int(count) for count in drawn)
        snapshots = range(first, first + int(row["snapshots"]))
        batch = read_fields(PartBatch, {**row, "built_s": row["built_s"] or 0}, snapshots=snapshots, map=counts)
        self._rows.add(batch.part, batch.step, attempt, batch)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        self._rows.truncate(step, attempt)

    def steps(self, *, since: int = 0) -> list[tuple[int, list[PartBatch]]]:
        """Steps from ``since`` on in order, with the batches of the parts that have logged them."""
        return [*self._rows.steps(since=since).items()][-self._kept :]

    def newest(self, *, since: int = 0) -> dict[int, PartBatch]:
        """The newest batch of every part that has a map, by part: ranks need not be in the same step."""
        mapped = {
            part: [b for b in batches if b.map is not None] for (part,), batches in self._rows.all(since=since).items()
        }
        return {part: batches[-1] for part, batches in mapped.items() if batches}


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
    titles, margin = (title, "", "nodes by load, heaviest on top"), {"l": 56, "r": 14, "t": 34, "b": 58}
    if not batches:
        return chart(*titles, [], empty=NO_BATCH, margin=margin)
    width, last = facts.snapshots, facts.first + facts.snapshots - 1
    starts = [round(place * (1 + _GAP) * width) for place in range(len(KINDS))]
    places: list[float] = []
    words: list[str] = []
    for start, kind, count in zip(starts, KINDS, target_counts(facts, batches), strict=True):
        places += [start, start + (width - 1) / 2, start + width - 1]  # its first and last snapshot, and what it is
        words += [str(facts.first), f"snapshot<br><b>{kind}</b><br>{count:,} targets", str(last)]
    tops = [place * (SHARES + _SPACE) for place in range(len(batches))]
    looks: Drawn = {"layer": "below", "line": {"color": "#B8BEC6", "width": 1}, "fillcolor": "#F6F8FA"}
    data, fields = [], []
    for top, batch in zip(tops, batches.values(), strict=True):
        edges = (top - 0.5, top + SHARES - 0.5)
        fields += [box((start - 0.5, start + width - 0.5), edges, **looks) for start in starts]
        data += _part_traces(facts, batch, top, starts)
    ticks = {"tickvals": [0.0, 0.1, 0.4, 1.0], "ticktext": ["0", "10 %", "40 %", "all"]}
    data[0] |= {"showscale": True, "colorbar": colour_bar("share that are targets", **ticks)}
    plain = {"showgrid": False, "showline": False}
    across = {"tickvals": places, "ticktext": words, "tickangle": 0, **plain}
    down = {"tickvals": [top + (SHARES - 1) / 2 for top in tops], "ticktext": [f"part {part}" for part in batches]}
    across["range"] = [-0.5 - 0.02 * width, starts[-1] + width - 0.5 + 0.02 * width]
    axes: Drawn = {"xaxis": across, "yaxis": {**down, **plain, "range": [tops[-1] + SHARES + 0.5, -1.5]}}
    return chart(*titles, data, margin=margin, shapes=fields, **axes)


def target_map_words(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> str:
    """How large the batch is, and the two that it replaces."""
    look = "Look how little of the nodes and snapshots a step takes, and that every load has its targets."
    if not batches:
        return f"Coloured is what a step takes of nodes and snapshots. {look}"
    each = list(batches.values())
    whole = [f"part {batch.part}" for batch in each if batch.source == "snapshot"]
    if whole:
        look = f"The reservoir had no batch for {join_words(whole)}: all its nodes are used instead."
    hybrid, vertex, snapshot = target_counts(facts, batches)
    spans = numbers(min(len(batch.snapshots) for batch in each), max(len(batch.snapshots) for batch in each))
    targets = numbers(min(batch.targets for batch in each), max(batch.targets for batch in each))
    return (
        f"{spans} of {facts.snapshots} snapshots x {targets} nodes a part: {hybrid:,} targets, in blocks of "
        f"{sum(batch.rows for batch in each):,} rows and {sum(batch.edges for batch in each):,} edges. The same nodes "
        f"in all snapshots are {vertex:,} targets, all nodes in the same snapshots {snapshot:,}. {look}"
    )


def _part_traces(facts: HybridFacts, batch: PartBatch, top: int, starts: list[int]) -> list[Drawn]:
    """The three fields of one part, each one column of colour over the snapshots it takes."""
    candidates = facts.candidates[batch.part]
    within = np.bincount(np.arange(candidates) * SHARES // candidates, minlength=SHARES)  # nodes of each sixtieth
    taken = np.asarray(batch.map, np.float64)
    own = (batch.snapshots.start - facts.first, batch.snapshots.stop - facts.first)
    found = []
    for start, span, counts in zip(starts, (own, (0, facts.snapshots), own), (taken, taken, within), strict=True):
        runs = [(count, n) for count, n in zip(counts, within, strict=True) if n]  # a small part has fewer than sixty
        z = [[round(float(min(count / n, 1.0)), 4)] for count, n in runs]
        said = [[f"{int(count):,} of {int(n):,} nodes"] for count, n in runs]
        x = [start + span[0] - 0.5, start + span[1] - 0.5]
        y = [round(top - 0.5 + row * SHARES / len(runs), 3) for row in range(len(runs) + 1)]
        where = f"part {batch.part}, snapshots {facts.first + span[0]} to {facts.first + span[1] - 1}"
        told = {"customdata": said, "hover": where + ": %{customdata}<extra></extra>"}
        found.append(heat("", z, x, y, _SCALE, span=(0, 1), showscale=False, **told))
    return found


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
    """Shares of the parts' batches by source, in bars of as many steps each, and what they mean.

    Args:
        steps: from ``TargetLog.steps``.
        marks: of the run's changes.
        batch_share: of the ranks' time that went into batches; None where it is not known.
        reservoir: whether there is one.
    """
    at = [step for step, _ in steps]
    span = max(1, -(-(at[-1] - at[0] + 1) // _BARS)) if at else 1
    groups: dict[int, list[str]] = {}
    for step, batches in steps:
        groups.setdefault((step - at[0]) // span, []).extend(batch.source for batch in batches)
    x = [at[0] + group * span + (span - 1) / 2 for group in groups]
    data = []
    for name, (words, _, colour) in SOURCES.items():
        y = [round(100 * found.count(name) / len(found), 2) for found in groups.values()]
        if any(y):
            data.append(bars(words, x, y, colour, "about step %{x:.0f}: %{y:.0f} %", width=span))
    looks: Drawn = {"barmode": "stack", "bargap": 0, "yaxis": {"range": [0, 100]}, "empty": NO_BATCH}
    figure = marks.chart("Where batches came from", "share of batches (%)", data, at, **looks)
    return figure, target_sources_words(steps, batch_share, reservoir=reservoir)


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
        text += f". Ranks recently spent {share(batch_share)} of their time on batches"
        text += "; once the reservoir is warm, look for under 1 %" if reservoir else ""
    return f"{text}."
