"""The partition microscope: what a partition of the nodes makes of work, memory and traffic, as one figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.model_facts import PASSES
from dtdg_lab.core.units import format_bytes, join_words, share
from dtdg_lab.partition.events import Matrix, PartitionFacts
from dtdg_lab.visualization import charts
from dtdg_lab.visualization.charts import Drawn, Panel
from dtdg_lab.visualization.layout import Figure, grid
from dtdg_lab.visualization.palette import HEAT_SCALES, TEXT_COLOUR, series_colour

# Heat maps of a partition: parts down, snapshots across; edges into own nodes, halo rows, replicated rows.


_FEW = 8  # snapshots up to which each has its number written
SNAPSHOT = "snapshot (number)"


@dataclass(frozen=True, slots=True)
class Map:
    """What one heat map shows.

    Attributes:
        title: of its panel.
        unit: of a cell.
        scale: name of its colours.
    """

    title: str
    unit: str
    scale: str


MAPS = {
    "edges": Map("Edges into a part's own nodes", "edges a snapshot", "owned"),
    "halo": Map("Halo rows a part receives", "rows a snapshot", "halo"),
    "replicated": Map("Rows replicated in a part", "rows a snapshot", "replicated"),
}


def map_figure(
    name: str, values: NDArray[np.float64], bounds: NDArray[np.int64], *, top: float | None = None, note: str = ""
) -> Figure:
    """One heat map.

    Args:
        name: a key of ``MAPS``.
        values: (P, K), means of a snapshot.
        bounds: (K + 1,) snapshots at which columns begin; the last is where they end.
        top: the value of the darkest colour, so that several maps can be compared; the largest one when not given.
        note: what the title ends with.
    """
    shown = MAPS[name]
    highest = float(values.max(initial=0.0)) if top is None else top
    hover = "part %{y}, snapshot %{x:.0f}: %{z:,.4~g} " + shown.unit + "<extra></extra>"
    cells, x, y = np.round(values, 2).tolist(), (bounds - 0.5).tolist(), range(len(values))
    looks: Drawn = {"span": (0, highest or 1.0), "hover": hover, "colorbar": charts.colour_bar(shown.unit)}
    trace = charts.heat(shown.title, cells, x, y, HEAT_SCALES[shown.scale], **looks)
    axes: Drawn = {"xaxis": _snapshot_axis(int(bounds[0]), int(bounds[-1])), "yaxis": part_axis(len(values))}
    return charts.chart(shown.title + (f" · {note}" if note else ""), SNAPSHOT, "part", [trace], **axes)


def _snapshot_axis(first: int, end: int) -> dict[str, Any]:
    """An axis over snapshots first to end - 1, with whole numbers only."""
    few = {"dtick": 1} if end - first <= _FEW else {}
    return {"showgrid": False, "range": [first - 0.5, end - 0.5], **few}


def part_axis(parts: int) -> dict[str, Any]:
    """An axis of part numbers, the first one on top."""
    return {"range": [parts - 0.5, -0.5], "dtick": max(1, -(-parts // 8)), "showgrid": False}


# Matrices of bytes from rank to rank in a step: what a plan predicts beside what the ranks counted.


MOST_LAYERS = 3  # a model of more is shown by the sum of its layers
_WRITTEN = 8  # parts up to which every cell has room for its number
_DARK = 0.55  # share of the largest value from which writing is white


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Bytes that ranks sent each other in one step: pass -> (L, R, R), [l, q, p] from q to p in layer l."""

    step: int
    bytes: Mapping[str, Matrix]

    @property
    def total(self) -> float:
        """Bytes of all layers, all passes."""
        return float(sum(each.sum() for each in self.bytes.values()))


def layers_of(predicted: Mapping[str, Matrix]) -> list[tuple[str, slice]]:
    """The layers that get a matrix of their own, each with its name; all in one where there are many."""
    count = max((len(each) for each in predicted.values()), default=0)
    if count > MOST_LAYERS:
        return [(f"all {count} layers", slice(None))]
    return [(f"layer {layer}", slice(layer, layer + 1)) for layer in range(count)]


def in_layers(sent: Mapping[str, Matrix], layers: slice) -> dict[str, Matrix]:
    """Way -> (R, R) bytes of the layers asked for."""
    return {pass_name: sent[pass_name][layers].sum(axis=0) for pass_name in PASSES if pass_name in sent}


def matrix_figure(title: str, sent: Mapping[str, Matrix], *, who: str, top: float) -> Figure:
    """One matrix, senders down and receivers across; all passes together, apart where one points at a cell.

    Args:
        title: of the panel.
        sent: pass -> (R, R) bytes.
        who: ``rank`` or ``part``.
        top: bytes of the darkest colour.
    """
    whole = np.sum(list(sent.values()), axis=0)
    count = len(whole)
    # plotly's prefixes for bytes would be decimal: the largest value's binary unit is chosen instead
    unit, factor = charts.byte_unit(top)
    cells = np.round(whole / factor, 4).tolist()
    looks: Drawn = {
        "span": (0, top / factor or 1.0),
        "colorbar": charts.colour_bar(f"{unit} a step", tickformat=",.3~g"),
        "customdata": [[_to_dict(sent, q, p) for p in range(count)] for q in range(count)],
        "hover": f"{who} %{{y}} to {who} %{{x}}: %{{customdata}}<extra></extra>",
    }
    trace = charts.heat(title, cells, range(count), range(count), HEAT_SCALES["bytes"], **looks)
    size = 10 if count <= _WRITTEN // 2 else 8
    notes = []
    for q, p in zip(*(at.tolist() for at in whole.nonzero()), strict=True) if count <= _WRITTEN else ():
        colour = "white" if whole[q, p] > _DARK * top else TEXT_COLOUR
        notes.append(charts.label(format_bytes(float(whole[q, p])), p, q, colour, size))
    axes: Drawn = {"xaxis": {**part_axis(count), "range": [-0.5, count - 0.5]}, "yaxis": part_axis(count)}
    return charts.chart(title, f"to {who} (number)", f"from {who}", [trace], annotations=notes, **axes)


def _to_dict(sent: Mapping[str, Matrix], q: int, p: int) -> str:
    return ", ".join(f"{format_bytes(float(each[q, p]))} {pass_name}" for pass_name, each in sent.items())


# Panels of bytes from rank to rank: what was predicted of each layer beside what the last complete step sent.


READING = (
    "Rows send, columns receive; the diagonal is empty. A strong row or column is a rank that many need: the exchange "
    "ends when it is done. Beside it, in the same colours, is what was predicted."
)


NO_STEP = "No step is complete yet."
FETCHED = "A halo exchange would send this; this run fetches features instead."


def link_panels(
    predicted: Mapping[str, Matrix], sent: Sent | None, *, who: str = "rank", unmeasured: str = NO_STEP
) -> list[Panel]:
    """Predicted on the left, measured on the right, in the same colours, for each layer.

    Args:
        predicted: pass -> (L, R, R) bytes of a step.
        sent: the step that was counted, where there is one.
        who: ``rank``, or ``part`` where nothing runs.
        unmeasured: why no bytes were counted, where none were.
    """
    found: list[Panel] = []
    for name, layers in layers_of(predicted):
        described = in_layers(predicted, layers)
        counted = None if sent is None else in_layers(sent.bytes, layers)
        total, top = _sum_and_top(described)
        said, highest = (None, 0.0) if counted is None else _sum_and_top(counted)
        top, words = max(top, highest), sent_words(total, sent, said, unmeasured=unmeasured)
        found.append((matrix_figure(f"Bytes predicted, {name}", described, who=who, top=top), words))
        if counted is not None and sent is not None:
            title = f"Bytes measured in step {sent.step}, {name}"
            found.append((matrix_figure(title, counted, who=who, top=top), READING))
    return found


def sent_words(predicted: float, measured: Sent | None, said: float | None, *, unmeasured: str = NO_STEP) -> str:
    """Bytes predicted beside those counted, with the difference in words.

    Args:
        predicted: bytes in a step.
        measured: the step that was counted, where there is one.
        said: its bytes.
        unmeasured: why no bytes were counted, where none were.
    """
    if measured is None or said is None:
        return f"Predicted: {format_bytes(predicted)} in a step. {unmeasured}"
    text = f"Step {measured.step} sent {format_bytes(said)}; predicted were {format_bytes(predicted)}"
    if said == predicted:
        return f"{text}: equal to the byte."
    if not predicted:
        return f"{text}. More is sent than was predicted: look at what the model pulls."
    more = "more" if said > predicted else "less"
    return f"{text}: {format_bytes(abs(said - predicted))} ({share(abs(said / predicted - 1))}) {more}."


def _sum_and_top(sent: Mapping[str, Matrix]) -> tuple[float, float]:
    """All bytes, and the most from one rank to another, all passes together."""
    whole = np.sum(list(sent.values()), axis=0)
    return float(whole.sum()), float(whole.max(initial=0.0))


# The bytes of rows that ranks sent each other in the last step that is complete, from the record table ``links``.


# How evenly a partition shares the work: nodes, edges, load and memory of every part, over the mean.


MEMORY = {"halo_vertex": "halo memory", "cached_vertex": "cache memory"}
_EVEN_LINE = charts.rule(y=1, width=1)
_SPREAD = 0.5  # of the room of a part, over which its marks stand beside each other


def load_figure(facts: PartitionFacts, *, top: float | None = None, note: str = "") -> Figure:
    """Marks beside each other for each part; 1 is the mean of all parts.

    Args:
        facts: of the partition.
        top: where the axis ends, so that several can be compared; a little above the largest mark when not given.
        note: what the title ends with.
    """
    kinds = measured_of(facts)
    data = [_marks(index, name, values, len(kinds)) for index, (name, values) in enumerate(kinds.items())]
    titles = ("Load of the parts" + (f" · {note}" if note else ""), "part (number)", "over the mean of the parts (1)")
    x_axis = {"dtick": max(1, -(-facts.parts // 16)), "range": [-0.6, facts.parts - 0.4], "showgrid": False}
    y_axis = {"range": [0, 1.08 * (largest(facts) if top is None else top)]}
    return charts.chart(*titles, data, xaxis=x_axis, yaxis=y_axis, showlegend=True, shapes=[_EVEN_LINE])


def measured_of(facts: PartitionFacts) -> Mapping[str, NDArray[np.float64]]:
    """What is drawn of every part by name, (P,) each; memory of the layout in use, of both where there is none."""
    edges = facts.maps["edges"] @ np.diff(facts.bounds)
    return {"nodes": facts.vertices, "edges": edges, "load": facts.load, **memory_of(facts)}


def memory_of(facts: PartitionFacts) -> Mapping[str, NDArray[np.float64]]:
    """Name -> (P,) bytes of every part."""
    if facts.layout in facts.memory:
        return {"memory": facts.memory[facts.layout]}
    return {name: facts.memory[layout] for layout, name in MEMORY.items()}


def largest(facts: PartitionFacts) -> float:
    """The largest mark of the picture."""
    return max(float(over_mean(values).max()) for values in measured_of(facts).values())


def over_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values over their mean; all 1 where they are all 0."""
    mean = values.mean()
    return values / mean if mean > 0 else np.ones_like(values)


def _marks(index: int, name: str, values: NDArray[np.float64], kinds: int) -> Drawn:
    shift = _SPREAD * (index / max(kinds - 1, 1) - 0.5)
    said = [format_bytes(value) if "memory" in name else f"{value:,.0f}" for value in values.tolist()]
    x, y = [part + shift for part in range(len(values))], np.round(over_mean(values), 4).tolist()
    size, marker = 7 if len(values) <= 16 else 5, {"symbol": charts.SYMBOLS[index]}
    looks: Drawn = {"size": size, "marker": marker, "customdata": [[part, text] for part, text in enumerate(said)]}
    hover = "part %{customdata[0]}: %{customdata[1]}, %{y:.2f} times the mean"
    return charts.points(name, x, y, series_colour(index), hover, **looks)


# What to look for in the pictures of a partition, in a sentence or two for each.


_EVEN = 1.05  # largest part over the mean up to which a share of the work is called even
_SHARES = {"halo": "Halo rows", "replicated": "Replicated rows"}


def map_words(name: str, facts: PartitionFacts, before: PartitionFacts | None = None) -> str:
    """What a heat map shows, and against the partition before."""
    said = {"edges": _edges, "halo": _halo, "replicated": _replicated}[name](facts)
    if before is None:
        return said
    key, what = ("cut_edges", "Cut edges") if name == "edges" else (name, _SHARES[name])
    return f"{what}: {_change(before.totals[key], facts.totals[key])}. {said}"


def load_words(facts: PartitionFacts) -> str:
    """Which part does most, and what a part holds."""
    kinds = measured_of(facts)
    name, values = max(kinds.items(), key=lambda item: over_mean(item[1]).max())
    if largest(facts) < _EVEN:
        text = "Marks at 1 are an even share, as they are here."
    else:
        text = "Marks at 1 are an even share. "
        text += f"Part {int(values.argmax())} has {over_mean(values).max():.2f} times the mean in {name}."
        if facts.imbalance["edges"] >= _EVEN:
            text += " A step ends when the slowest part is done."
    held = join_words([f"{_range(values)} of {name}" for name, values in memory_of(facts).items()])
    return f"{text} A part holds {held}."


def title_words(facts: PartitionFacts, of: str = "") -> str:
    """The partition in a title: what of, by which partitioner, how many parts, and what making it took."""
    used = [f"{facts.ranks} rank{'s' if facts.ranks > 1 else ''}, {facts.layout}"] if facts.ranks else []
    return " · ".join([*([of] if of else []), facts.label, *used, facts.making_words])


def _edges(facts: PartitionFacts) -> str:
    sums = facts.maps["edges"] @ np.diff(facts.bounds)
    text = f"{share(facts.shares['cut'])} of the edges come from another part. Each column should have one colour: "
    ratio = facts.imbalance["edges"]
    if ratio < _EVEN:
        return text + "over all snapshots the parts share the edges evenly."
    return text + f"part {int(sums.argmax())} has {ratio:.2f} times the mean, and the others wait for it."


def _halo(facts: PartitionFacts) -> str:
    rows = facts.maps["halo"]
    if not facts.totals["halo"]:
        return "No part reads rows of another: nothing is exchanged."
    column = int(rows.sum(axis=0).argmax())
    come = "are received" if facts.exchanges else "would be received"
    return (
        f"{share(facts.shares['halo'])} of the rows that parts read {come}. Strong columns are snapshots that cost "
        f"most, here {_span(facts.bounds, column)}; strong rows are parts that read most from others."
    )


def _replicated(facts: PartitionFacts) -> str:
    if not facts.totals["replicated"]:
        return "No part would copy rows of another."
    held = "would hold without any exchange" if facts.exchanges else "holds"
    text = f"Of the rows a part {held}, {share(facts.shares['replicated'])} are copies"
    if facts.shares["replicated"] >= 0.5:
        return f"{text}: over half. Parts {'would ' if facts.exchanges else ''}repeat the work more than they share it."
    return f"{text}. What is copied {'would be' if facts.exchanges else 'is'} computed several times."


def _change(before: float, after: float) -> str:
    if before == after:
        return f"{after:,.0f}, as before"
    text = f"{before:,.0f} before, {after:,.0f} now"
    if not before:
        return text
    return f"{text} ({share(abs(after / before - 1))} {'more' if after > before else 'less'})"


def _span(bounds: NDArray[np.int64], column: int) -> str:
    first, last = int(bounds[column]), int(bounds[column + 1]) - 1
    return f"snapshot {first}" if first == last else f"snapshots {first} to {last}"


def _range(values: NDArray[np.float64]) -> str:
    low, high = format_bytes(float(values.min())), format_bytes(float(values.max()))
    return low if low == high else f"{low} to {high}"


def microscope(
    facts: PartitionFacts, *, before: PartitionFacts | None = None, sent: Sent | None = None, title: str = ""
) -> Figure:
    """Maps of owned, halo and replicated rows, load of the parts, and bytes between them, as one figure of panels.

    Args:
        facts: of the partition.
        before: of the one it replaced: then every map and the load stand beside how they were.
        sent: bytes of a step that were counted, beside the predicted ones.
        title: of the figure; the partition's name when not given.
    """
    return grid(panels(facts, before=before, sent=sent), title=title or title_words(facts))


def panels(facts: PartitionFacts, *, before: PartitionFacts | None = None, sent: Sent | None = None) -> list[Panel]:
    """The panels of the microscope, each with the sentence that stands under it, for two columns."""
    if before is not None:
        return [*_beside(before, facts), *_matrices(facts, sent)]
    maps = [(map_figure(name, facts.maps[name], facts.bounds), map_words(name, facts)) for name in MAPS]
    return [*maps, (load_figure(facts), load_words(facts)), *_matrices(facts, sent)]


def _unmeasured(facts: PartitionFacts) -> str:
    """Return why no bytes are counted beside those predicted, where none are."""
    if not facts.ranks:
        return "A run counts what it sends beside this."
    return FETCHED if facts.layout == "remote_feature" else NO_STEP


def _beside(before: PartitionFacts, after: PartitionFacts) -> list[Panel]:
    found: list[Panel] = []
    old, new = f"before: {before.label}", f"now: {after.label}"
    for name in MAPS:
        top = max(float(facts.maps[name].max(initial=0.0)) for facts in (before, after))
        found += [
            (map_figure(name, before.maps[name], before.bounds, top=top, note=old), map_words(name, before)),
            (map_figure(name, after.maps[name], after.bounds, top=top, note=new), map_words(name, after, before)),
        ]
    top = max(largest(before), largest(after))
    found.append((load_figure(before, top=top, note=old), load_words(before)))
    return [*found, (load_figure(after, top=top, note=new), load_words(after))]


def _matrices(facts: PartitionFacts, sent: Sent | None) -> list[Panel]:
    """Bytes between ranks, or parts; none where nothing is sent."""
    if not facts.exchanges or not facts.predicted or facts.ranks == 1:
        return []
    who = "rank" if facts.ranks else "part"
    return link_panels(facts.predicted, sent, who=who, unmeasured=_unmeasured(facts))
