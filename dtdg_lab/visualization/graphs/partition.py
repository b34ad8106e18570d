"""Cards, tiles and maps of a node partition: who owns what, how even the work is, and what is sent for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.axes import FROM_ZERO, byte_unit
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, Key, card, trace_keys
from dtdg_lab.visualization.numbers import bytes_text, percent_text, seconds_text, three_digits
from dtdg_lab.visualization.palette import HEAT_SCALES, series_colour
from dtdg_lab.visualization.runs.transfers import Traffic, traffic_card
from dtdg_lab.visualization.tiles import Tile
from dtdg_lab.visualization.traces import SYMBOLS, Attributes, bars, heat, points, rule

SNAPSHOTS = "snapshot, oldest to newest"
EVEN = 1.05  # largest part over the mean up to which a share of the work is called even
MOST_CELLS = 24_000
HEAT_HEIGHT = 220
SPREAD = 0.5  # of the room of a part, over which its marks stand beside each other
MEMORY = {"halo_vertex": "memory, exchanging", "cached_vertex": "memory, copying"}


@dataclass(frozen=True, slots=True)
class PartMap:
    """Content of one heat map.

    Attributes:
        title: of its card.
        unit: of a cell.
        scale: name of its colours.
    """

    title: str
    unit: str
    scale: str


PART_MAPS: Mapping[str, PartMap] = MappingProxyType(
    {
        "edges": PartMap("Edges into a part's own nodes", "edges per snapshot", "owned"),
        "halo": PartMap("Rows received", "rows per snapshot", "halo"),
        "replicated": PartMap("Rows copied", "rows per snapshot", "replicated"),
    }
)


def run_partitions(tables: RunTables) -> list[PartitionFacts]:
    """Return the partitions of a run in order, each once; none where it has no partition now."""
    plans = [facts for _, facts in tables.typed(PartitionFacts)]
    if not plans or plans[-1] is None:
        return []
    changed: list[PartitionFacts] = []
    for facts in plans:
        if facts is not None and (not changed or facts.layout_key != changed[-1].layout_key):
            changed.append(facts)
    return changed


def partition_cards(facts: PartitionFacts, previous: PartitionFacts | None = None) -> list[CaptionedFigure]:
    """Return maps of edges, rows received and rows copied, the load of the parts, and bytes between them.

    Args:
        facts: of the partition.
        previous: of the one that it replaced: then each map and the load stand beside how they were.
    """
    cards: list[CaptionedFigure] = []
    for name in PART_MAPS:
        partitions = [facts] if previous is None else [previous, facts]
        top = max(float(partition.maps[name].max(initial=0.0)) for partition in partitions)
        cards += [
            (part_map(name, partition, top=top, note=_note(partition, previous)), map_caption(name, partition))
            for partition in partitions
        ]
    for partition in [facts] if previous is None else [previous, facts]:
        cards.append((part_load(partition, note=_note(partition, previous)), load_caption(partition)))
    if facts.exchanges and facts.predicted and not facts.ranks:
        traffic = Traffic({name: layers.sum(axis=0) for name, layers in facts.predicted.items()})
        caption = f"A step would send {bytes_text(traffic.total)} between parts."
        cards.append((traffic_card(None, traffic, who="part"), caption))
    return cards


def part_map(name: str, facts: PartitionFacts, *, top: float | None = None, note: str = "") -> Figure:
    """Return a heat map: parts down, snapshots across.

    Args:
        name: a key of ``PART_MAPS``.
        facts: of the partition.
        top: the value of the darkest colour, so that several maps can be compared; its largest where not given.
        note: which partition, where several stand beside each other.
    """
    part_map_type = PART_MAPS[name]
    values, bounds = binned(facts.maps[name], facts.bounds)
    highest = float(values.max(initial=0.0)) if top is None else top
    hover = f"part %{{y}}, snapshot %{{x:.0f}}: %{{z:,.4~g}} {part_map_type.unit}<extra></extra>"
    style: Attributes = {"span": (0, highest or 1.0), "hover": hover, "showscale": False}
    x, y = (bounds - 0.5).tolist(), range(len(values))
    data = [heat(part_map_type.title, values.round(2).tolist(), x, y, HEAT_SCALES[part_map_type.scale], **style)]
    axes: Attributes = {
        "xaxis": {"showgrid": False, "range": [x[0], x[-1]], **({"dtick": 1} if len(x) <= 9 else {})},
        "yaxis": {
            "range": [len(values) - 0.5, -0.5],
            "dtick": max(1, -(-len(values) // 8)),
            "showgrid": False,
            "tickprefix": "part ",
        },
    }
    unit, margin = f"{part_map_type.unit}{f', {note}' if note else ''}", {"l": 72}
    keys = [darkest_key(highest, part_map_type.unit.split()[0], part_map_type.scale)]
    return card(
        data, part_map_type.title, unit=unit, keys=keys, x_title=SNAPSHOTS, height=HEAT_HEIGHT, margin=margin, **axes
    )


def darkest_key(largest: float, unit: str, scale: str) -> Key:
    """Return the key of a heat map without a scale: the value of its darkest colour."""
    return f"darkest: {largest:,.0f} {unit}", HEAT_SCALES[scale][-1][1], "box"


def map_caption(name: str, facts: PartitionFacts) -> str:
    """Return what a heat map shows, in a sentence."""
    if name == "edges":
        sums = facts.maps["edges"] @ np.diff(facts.bounds)
        if facts.imbalance["edges"] < EVEN:
            return "All parts have about the same number of edges."
        return f"Part {int(sums.argmax())} has {three_digits(facts.imbalance['edges'])} times the mean number of edges."
    if name == "halo":
        if not facts.totals["halo"]:
            return "No part reads rows of another."
        return f"{percent_text(facts.shares['halo'])} of the rows that parts read belong to other parts."
    if not facts.totals["replicated"]:
        return "No part would copy rows of another."
    hold = "would hold" if facts.exchanges else "hold"
    return f"{percent_text(facts.shares['replicated'])} of the rows that parts {hold} are copies."


def part_load(facts: PartitionFacts, *, note: str = "") -> Figure:
    """Return marks beside each other for each part; 1 is the mean of all parts."""
    kinds = part_work(facts)
    data, keys = list[Attributes](), list[Key]()
    size = 7 if facts.parts <= 16 else 4
    for index, (name, values) in enumerate(kinds.items()):
        shift = SPREAD * (index / max(len(kinds) - 1, 1) - 0.5)
        texts = [bytes_text(value) if "memory" in name else f"{value:,.0f}" for value in values.tolist()]
        style: Attributes = {
            "marker": {"symbol": SYMBOLS[index]},
            "customdata": [[*index_and_text] for index_and_text in enumerate(texts)],
        }
        hover = "part %{customdata[0]}: %{customdata[1]}, %{y:.2f} times the mean"
        x, y = [part + shift for part in range(len(values))], over_mean(values).round(4).tolist()
        data.append(points(name, x, y, series_colour(index), hover, size=size, **style))
        keys.append((name, series_colour(index), "dot"))
    top = max(float(over_mean(values).max()) for values in kinds.values())
    axes: Attributes = {
        "xaxis": {"dtick": max(1, -(-facts.parts // 16)), "range": [-0.6, facts.parts - 0.4], "showgrid": False},
        "yaxis": {"range": [0, 1.08 * top], "nticks": 5},
    }
    unit = f"over the mean{f', {note}' if note else ''}"
    style = {"shapes": [rule(y=1, width=1)], "height": HEAT_HEIGHT}
    return card(data, "Load of the parts", unit=unit, keys=keys, x_title="part", **axes, **style)


def load_caption(facts: PartitionFacts) -> str:
    """Return which part has most of anything."""
    kinds = {name: over_mean(values) for name, values in part_work(facts).items()}
    name = max(kinds, key=lambda kind: kinds[kind].max())
    largest = float(kinds[name].max())
    if largest < EVEN:
        return "The parts share nodes, edges, load and memory evenly."
    return f"Part {int(kinds[name].argmax())} has {three_digits(largest)} times the mean {name}."


def part_work(facts: PartitionFacts) -> dict[str, Array]:
    """Return what each part has by name, (P,) each; memory of the layout in use, of both where there is none."""
    edges = facts.maps["edges"] @ np.diff(facts.bounds)
    if facts.layout in facts.memory:
        memory = {"memory": facts.memory[facts.layout]}
    else:
        memory = {name: facts.memory[layout] for layout, name in MEMORY.items()}
    return {"nodes": facts.vertices, "edges": edges, "load": facts.load, **memory}


def over_mean(values: Array) -> Array:
    """Return values over their mean; all 1 where they are all 0."""
    mean = values.mean()
    return values / mean if mean > 0 else np.ones_like(values)


def partition_tiles(facts: PartitionFacts, sent_bytes: float | None = None) -> tuple[Tile, Tile, Tile, Tile]:
    """Return what a partition costs as tiles.

    Args:
        facts: of the partition.
        sent_bytes: of a step, where a run has counted them; else the predicted ones are shown.
    """
    predicted = sum(float(layers.sum()) for layers in facts.predicted.values()) if facts.predicted else None
    sent = predicted if sent_bytes is None else sent_bytes
    hold = "would hold" if facts.exchanges else "hold"
    return (
        Tile(
            label="Edges cut",
            value=percent_text(facts.shares["cut"]),
            note="join two parts",
            tooltip="Share of edges whose ends belong to different parts.",
        ),
        Tile(
            label="Rows received",
            value=f"{facts.totals['halo']:,.0f}",
            note=f"{percent_text(facts.shares['halo'])} of the rows read",
            tooltip="Rows of other parts that parts read, summed over all snapshots.",
        ),
        Tile(
            label="Copies",
            value=f"{facts.totals['replicated']:,.0f}",
            note=f"{percent_text(facts.shares['replicated'])} of the rows held",
            tooltip=f"Rows of other parts that parts {hold} so that nothing is exchanged, summed over all snapshots.",
        ),
        Tile(
            label="Sent per step",
            value=bytes_text(sent if facts.exchanges else 0.0),
            note="nothing is exchanged" if not facts.exchanges else "predicted" if sent_bytes is None else "measured",
            tooltip="Bytes that all ranks send each other in one step.",
        ),
    )


# Several partitions of one graph beside each other.


_SHARES = {
    "cut": ("Edges cut", "of all edges, %", "of the edges"),
    "halo": ("Rows received", "of the rows read, %", "of the rows read"),
    "replicated": ("Copies", "of the rows held, %", "of the rows held"),
}
_IMBALANCE = {"vertices": "nodes", "edges": "edges", "load": "load"}
Partitions = Mapping[str, PartitionFacts]


def comparison_cards(partitions: Partitions) -> list[CaptionedFigure]:
    """Return bars of shares, imbalance, bytes and seconds, a bar for each partition by its label; less is better."""
    cards = [_share_card(partitions, name) for name in _SHARES]
    return [*cards, _imbalance_card(partitions), _sent_card(partitions), _seconds_card(partitions)]


def _share_card(partitions: Partitions, name: str) -> CaptionedFigure:
    title, unit, denominator = _SHARES[name]
    shares = {label: facts.shares[name] for label, facts in partitions.items()}
    lowest = min(shares, key=lambda label: shares[label])
    figure = _bars(
        title, unit, [100 * share for share in shares.values()], list(shares), lambda v: percent_text(v / 100)
    )
    return figure, f"Least by {lowest}: {percent_text(shares[lowest])} {denominator}."


def _imbalance_card(partitions: Partitions) -> CaptionedFigure:
    data = []
    for index, (kind, name) in enumerate(_IMBALANCE.items()):
        ratios = [facts.imbalance[kind] for facts in partitions.values()]
        style: Attributes = {"size": 9, "marker": {"symbol": SYMBOLS[index]}}
        hover = "%{x}: %{y:.3f} times the mean"
        data.append(points(name, list(partitions), ratios, series_colour(index), hover, **style))
    top = max(max(trace["y"]) for trace in data)
    room = (top - 1) or 0.1
    axes: Attributes = {
        "xaxis": _label_axis(partitions),
        "yaxis": {"range": [1 - 0.06 * room, 1 + 1.1 * room], "nticks": 5},
    }
    texts: Attributes = {"unit": "largest part over the mean", "keys": trace_keys(data)}
    figure = card(data, "Imbalance", shapes=[rule(y=1, width=1)], **texts, **axes)
    even = min(partitions, key=lambda label: partitions[label].imbalance["edges"])
    ratio = three_digits(partitions[even].imbalance["edges"])
    return figure, f"Edges are most even by {even}: the largest part has {ratio} times the mean."


def _sent_card(partitions: Partitions) -> CaptionedFigure:
    sent = {name: sum(float(layers.sum()) for layers in facts.predicted.values()) for name, facts in partitions.items()}
    lowest, (unit, factor) = min(sent, key=lambda name: sent[name]), byte_unit(max(sent.values()))
    values = [count / factor for count in sent.values()]
    figure = _bars("Bytes exchanged", f"{unit} per step", values, list(sent), lambda value: bytes_text(value * factor))
    return figure, f"A step would send least by {lowest}: {bytes_text(sent[lowest])}."


def _seconds_card(partitions: Partitions) -> CaptionedFigure:
    seconds = {name: facts.seconds for name, facts in partitions.items()}
    lowest = min(seconds, key=lambda name: seconds[name])
    figure = _bars("Time to make it", "s", list(seconds.values()), list(seconds), seconds_text)
    return figure, f"Quickest is {lowest}: {seconds_text(seconds[lowest])}."


def _bars(
    title: str, unit: str, values: Sequence[float], labels: list[str], format_value: Callable[[float], str]
) -> Figure:
    colours = [series_colour(index) for index in range(len(values))]
    above: Attributes = {"textposition": "outside", "cliponaxis": False, "textfont": {"size": 10}}
    text = [format_value(value) for value in values]
    data = [bars(title, labels, list(values), colours, "%{x}: %{text}<extra></extra>", text=text, **above)]
    y_axis = {**FROM_ZERO, "range": [0, 1.18 * max(values) or 1.0], "nticks": 5}
    return card(data, title, unit=unit, xaxis=_label_axis(labels), yaxis=y_axis)


def _label_axis(labels: Sequence[str] | Partitions) -> Attributes:
    """Return an axis of labels, which break where they have several words."""
    short = [label.replace("_", "_<br>").replace(", ", ",<br>").replace(" (", "<br>(") for label in labels]
    ticks: Attributes = {"tickvals": list(labels), "ticktext": short, "tickfont": {"size": 10}}
    return {"type": "category", "showgrid": False, "range": [-0.5, len(short) - 0.5], **ticks}


def _note(facts: PartitionFacts, previous: PartitionFacts | None) -> str:
    if previous is None:
        return ""
    return f"{'before' if facts is previous else 'now'}: {facts.label}"


def binned(values: Array, bounds: Array) -> tuple[Array, Array]:
    """Return values and bounds with as few columns as can be drawn: means of neighbouring ones."""
    stride = -(-values.size // MOST_CELLS)
    if stride <= 1:
        return values, bounds
    firsts, widths = np.arange(0, values.shape[1], stride), np.diff(bounds)
    means = np.add.reduceat(values * widths, firsts, axis=1) / np.add.reduceat(widths, firsts)
    return means, np.append(bounds[firsts], bounds[-1])
