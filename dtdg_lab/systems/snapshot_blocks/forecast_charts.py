"""Figures of ``Forecast.transfers`` and ``Forecast.volumes``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import exp, log
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds, join_words, percent
from dtdg_lab.visualization.axes import FROM_ZERO, byte_unit, counts_axis, time_unit
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card, trace_keys
from dtdg_lab.visualization.palette import BASELINE_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import SYMBOLS, Attributes, bars, line, rule

# What the graphs of a block cost to bring: bytes and times, whole and as differences, and how many can benefit.


Row = Mapping[str, Any]
SAID = {"csr32": "CSR int32", "coo64": "pairs int64"}
_COLOURS = {"csr32": ("#9FC3DC", "#0072B2"), "coo64": ("#F2C09A", "#D55E00")}  # whole, difference


def difference_figure(rows: Sequence[Row], shares: Sequence[Row], *, title: str) -> Figure:
    """Bytes, times, ratios beside what the overlap allows, and the share of snapshots that benefit, as four panels.

    Args:
        rows: one for each model and format, as ``DIFFERENCE_MEANINGS`` says.
        shares: one for each model, format, number of blocks and of ranks: ``share`` and ``ratio``.
        title: of the whole.
    """
    cards = [_byte_ratios(rows), _times(rows), _ratios(rows), _shares(shares)]
    return sheet(cards, title=title, plot_height=STUDY_HEIGHT)


def _byte_ratios(rows: Sequence[Row]) -> CaptionedFigure:
    largest = max((row["whole_bytes"] for row in rows), default=1)
    unit, size = byte_unit(min(largest, 2**39))
    data = _pairs(rows, ("whole_bytes", "difference_bytes"), 1 / size, format_bytes)
    figure = _by_model(rows, "Bytes of all snapshots", f"bytes ({unit})", data)
    if not rows:
        return figure, ""
    best = max(rows, key=lambda row: float(row["ratio"]))
    caption = (
        f"Compare the strong bar of a pair with the faint one: at most {best['ratio']:.2f} times fewer bytes "
        f"({best['model']}, {SAID[best['form']]}), where {percent(best['overlap'])} of a snapshot's edges were in the "
        "one before."
    )
    return figure, caption


def _times(rows: Sequence[Row]) -> CaptionedFigure:
    timed = [row for row in rows if row.get("time_ratio") is not None]
    unit, factor = time_unit(max((max(row["whole_s"], row["difference_s"]) for row in timed), default=1.0))
    data = _pairs(timed, ("whole_s", "difference_s"), factor, format_seconds)
    figure = _by_model(timed, "Time until all are usable", f"time ({unit})", data, "no times were taken")
    if not timed:
        return figure, ""
    faster = [row for row in timed if row["time_ratio"] > 1]
    unpacking = sum(row["difference_unpack_s"] for row in timed) / sum(row["difference_s"] for row in timed)
    which = join_words([f"{row['model']} ({SAID[row['form']]}, {row['time_ratio']:.2f} times)" for row in faster])
    caption = f"Differences are faster for {which}. " if faster else "Differences are slower throughout. "
    caption += f"Of their time {percent(unpacking)} is unpacking, which the light bars hardly have"
    limits = [row["worth_below"] / 1e9 for row in timed if row.get("worth_below")]
    if limits:
        low, high = f"{min(limits):.2g}", f"{max(limits):.2g}"
        caption += f": it pays over links slower than {low if low == high else f'{low} to {high}'} GB/s"
    return figure, f"{caption}."


def _ratios(rows: Sequence[Row]) -> CaptionedFigure:
    data = []
    for form in _forms(rows):
        mine = [row for row in rows if row["form"] == form]
        names, ratios = [row["model"] for row in mine], [round(row["ratio"], 4) for row in mine]
        texts: Attributes = {
            "text": [f"{row['ratio']:.2f}" for row in mine],
            "textposition": "outside",
            "cliponaxis": False,
        }
        hover = "%{x}: %{y:.3f} times fewer bytes"
        data.append(bars(SAID[form], names, ratios, _COLOURS[form][1], hover, offsetgroup=form, **texts))
        frame = {"color": "rgba(0,0,0,0)", "line": {"color": WARNING_COLOUR, "width": 1.6}}
        name = "what the overlap allows" if form == _forms(rows)[0] else f"{SAID[form]}: what the overlap allows"
        style: Attributes = {"marker": frame, "offsetgroup": form, "showlegend": form == _forms(rows)[0]}
        bounds = [round(row["bound"], 4) for row in mine]
        data.append(bars(name, names, bounds, "", "%{x}: at most %{y:.3f}", **style))
    figure = _by_model(rows, "How many times fewer bytes", "whole / difference (1)", data)
    figure["layout"]["shapes"] = [rule(y=1)]
    lowest_share = min((row["reached"] for row in rows), default=1.0)
    caption = (
        f"Red frames: no more is possible with these overlaps; at least {100 * lowest_share:.1f}% of it is reached. If "
        "nothing changes, 5 bounds pairs, 2 bounds CSR with values and long rows, nothing bounds CSR without values."
    )
    return figure, caption


def _shares(shares: Sequence[Row]) -> CaptionedFigure:
    shares_by_blocks: dict[int, dict[int, float]] = {}
    for row in shares:
        shares_by_blocks.setdefault(int(row["blocks"]), {})[int(row["ranks"])] = 100 * row["share"]
    data = []
    for index, (blocks, by_ranks) in enumerate(sorted(shares_by_blocks.items())):
        marker = {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 7, "color": series_colour(index)}
        x, y = sorted(by_ranks), [round(by_ranks[ranks], 3) for ranks in sorted(by_ranks)]
        style: Attributes = {"mode": "lines+markers", "marker": marker}
        name = f"{blocks} block{'s' * (blocks > 1)}"
        data.append(line(name, x, y, series_colour(index), "%{x} ranks: %{y:.1f}%", **style))
    axes: Attributes = {
        "xaxis": counts_axis([ranks for by_ranks in shares_by_blocks.values() for ranks in by_ranks]),
        "yaxis": {"range": [0, 104], "ticksuffix": " %"},
    }
    texts: Attributes = {"unit": "share of all snapshots", "x_title": "ranks", "empty": "no plans were given"}
    figure = card(data, "Snapshots that can be sent as a delta", keys=trace_keys(data), **texts, **axes)
    caption = (
        "The first snapshot of a block on a rank is always whole: of blocks of b snapshots on R ranks (b - R) / b "
        "benefit. Lines fall with more blocks and more ranks."
    )
    return figure, caption if data else ""


def _pairs(
    rows: Sequence[Row], keys: tuple[str, str], factor: float, format_value: Callable[[float], str]
) -> list[Attributes]:
    """Return a pair of bars for each model and format; the second shows its share of the first."""
    data = []
    above: Attributes = {"textposition": "outside", "textangle": 0, "textfont": {"size": 10}, "constraintext": "none"}
    for form in _forms(rows):
        mine = [row for row in rows if row["form"] == form]
        names, ratios = [row["model"] for row in mine], [row[keys[0]] / row[keys[1]] for row in mine]
        for key, pass_name, colour in zip(keys, ("whole", "difference"), _COLOURS[form], strict=True):
            text = [_less(ratio) for ratio in ratios] if pass_name == "difference" else ""
            style: Attributes = {"offsetgroup": f"{form}/{pass_name}", "text": text, "cliponaxis": False, **above}
            hover = "%{x}, " + f"{SAID[form]}, {pass_name}: " + "%{customdata}<extra></extra>"
            y, told = [round(row[key] * factor, 6) for row in mine], [format_value(row[key]) for row in mine]
            data.append(
                bars(f"{SAID[form].split()[0]}, {pass_name}", names, y, colour, hover, customdata=told, **style)
            )
    return data


def _less(ratio: float) -> str:
    return f"÷{ratio:.2g}" if ratio >= 1 else f"×{1 / ratio:.2g}"


def _forms(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["form"]) for row in rows))


def _by_model(
    rows: Sequence[Row], title: str, unit: str, data: list[Attributes], empty: str = "nothing was compared"
) -> Figure:
    labels = {row["model"]: f"{row['model']}<br>({row['smoothing']})" for row in rows}
    axis = {"type": "category", "showgrid": False, "tickvals": list(labels), "ticktext": list(labels.values())}
    style: Attributes = {"barmode": "group", "xaxis": axis, "yaxis": FROM_ZERO}
    return card(data, title, unit=unit, keys=trace_keys(data), empty=empty, **style)


# Numbers sent in a step over the number of ranks: snapshot partition beside hypergraph node partition.


_UNITS = ((1e9, "billion numbers"), (1e6, "million numbers"), (1e3, "thousand numbers"), (1.0, "numbers"))
_LINES = (
    ("snapshot", "snapshot", series_colour(0), 2, "solid", "circle"),
    ("hypergraph", "hypergraph", series_colour(1), 2, "solid", "diamond"),
    ("snapshot_as_paper", "snapshot, paper's rule", BASELINE_COLOUR, 1.5, "dash", "circle-open"),
)


def volume_figure(rows: Sequence[Row]) -> Figure:
    """Return a panel for each model: numbers sent over ranks, and a sentence that names where one passes the other.

    Args:
        rows: ``model``, ``ranks``, ``snapshot``, ``hypergraph`` and ``snapshot_as_paper`` of each, as
            ``Forecast.volumes`` has them.
    """
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    cards = [_volume_card(name, sorted((row for row in rows if row["model"] == name), key=_ranks)) for name in models]
    nothing = card([], "Volume", unit="numbers sent in a step", x_title="ranks", empty="nothing counted")
    title = "Numbers sent in one step, by how the work is divided"
    return sheet(cards or [(nothing, "")], title=title, plot_height=STUDY_HEIGHT)


def crossing(rows: Sequence[Row]) -> str:
    """Say in a sentence which of both sends less on how many ranks.

    Args:
        rows: of one model, at least one.
    """
    mine = sorted(rows, key=_ranks)
    name, first, last = str(mine[0]["model"]), mine[0], mine[-1]
    if not any(row["snapshot"] for row in mine):
        return f"{name}: snapshot partition sends nothing between ranks but gradients of parameters."
    gaps = [(row["ranks"], row["hypergraph"] - row["snapshot"]) for row in mine]
    for (fewer, low), (more, high) in pairwise(gaps):
        if low < 0 <= high or high < 0 <= low:
            lower, higher = ("hypergraph", "snapshot") if low < 0 else ("snapshot", "hypergraph")
            met = round(exp(log(fewer) + (log(more) - log(fewer)) * low / (low - high)))
            return (
                f"{name}: {lower} partition sends less on {fewer} ranks, {higher} partition on {more}; drawn straight, "
                f"the lines meet near {met} ranks."
            )
    less = "hypergraph" if gaps[-1][1] < 0 else "snapshot"
    ends = " and ".join(f"{_share(row)} on {row['ranks']}" for row in ([first, last] if last is not first else [first]))
    return f"{name}: {less} partition sends less on every number of ranks; hypergraph over snapshot is {ends}."


def _ranks(row: Row) -> int:
    return int(row["ranks"])


def _share(row: Row) -> str:
    return f"{row['hypergraph'] / row['snapshot']:.3g}" if row["snapshot"] else "without bound"


def _volume_card(name: str, rows: list[Row]) -> CaptionedFigure:
    top = max(max(int(row[key]) for row in rows) for key, *_ in _LINES)
    factor, unit = next((pair for pair in _UNITS if top >= pair[0]), _UNITS[-1])
    ranks = [_ranks(row) for row in rows]
    data = []
    for key, label, colour, width, dash, symbol in _LINES:
        y = [round(row[key] / factor, 6) for row in rows]
        style: Attributes = {"mode": "lines+markers", "marker": {"symbol": symbol, "size": 7, "color": colour}}
        hover = f"%{{x}} ranks: %{{y:.4g}} {unit}"
        data.append(line(label, ranks, y, colour, hover, width=width, dash=dash, **style))
    axes: Attributes = {"yaxis": FROM_ZERO, "xaxis": counts_axis(ranks)}
    sentence = crossing(rows)
    look = "Look at the gap between the full lines, and how it changes with the ranks."
    if not any(row["snapshot"] for row in rows):
        look = "Look at the orange line: all of it is what snapshot partition saves."
    elif "the lines meet" in sentence:
        look = "Look at where the full lines meet: to the right of it the flatter one wins."
    figure = card(data, name, unit=f"{unit} sent in a step", keys=trace_keys(data), x_title="ranks", **axes)
    return figure, f"{sentence} {look}"
