"""Cards on paper: title, unit, colour keys and caption of a card as parts of a plotly figure, one or several."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.visualization.chart import SECTIONS, CaptionedFigure, Chart, Figure
from dtdg_lab.visualization.palette import SOFT_COLOUR, TEXT_COLOUR
from dtdg_lab.visualization.traces import escaped

WIDE = "timeline"  # a chart as wide as the sheet, though it is no picture
WIDTH = 1000  # pixels of a sheet, by which its room is shared out
GAP = 26  # pixels between cards
PLOT_HEIGHT, STUDY_HEIGHT, PICTURE_HEIGHT = 158, 250, 340  # of a card of a run, of a study, and of a picture
COLOUR_BAR = 74  # pixels of a colour bar with its numbers
TITLE_HEIGHT, KEYS_HEIGHT, CAPTION_HEIGHT, LINE_HEIGHT = 24, 18, 12, 17
TICK_LINE = 13  # of a further line of names under an axis
SHEET_TITLE = 40
LETTER = 6.3  # pixels of a letter
SYMBOLS: Mapping[str, str] = MappingProxyType(
    {
        "line": "━",
        "dash": "╍",
        "dot": "●",
        "ring": "○",
        "box": "■",
        "hatch": "▨",
        "cross": "✕",
        "star": "★",
        "diamond": "◆",
        "open-diamond": "◇",
        "triangle": "▼",
    }
)
LINKS = ("anchor", "overlaying", "matches", "scaleanchor")  # names of other axes
AXIS = re.compile(r"([xy])(\d*)( domain)?")


def as_figure(figure: Figure, caption: str = "", *, plot_height: int = PLOT_HEIGHT) -> Figure:
    """Return a card as a figure that has its title, unit and colour keys above the plot, and its caption below."""
    return sheet([(figure, caption)], columns=1, plot_height=plot_height)


def standalone(figure: Figure, caption: str = "") -> Figure:
    """Return a figure that shows its own title: a large one of a card; one that is no card as it is."""
    is_card = "card" in figure["layout"].get("meta", {})
    return as_figure(figure, caption, plot_height=PICTURE_HEIGHT) if is_card else figure


def sheet(
    cards: Sequence[CaptionedFigure],
    *,
    title: str = "",
    columns: int = 2,
    wide: Collection[int] = (),
    plot_height: int = PLOT_HEIGHT,
) -> Figure:
    """Return one figure of several cards, from left to right, ``columns`` in a row.

    Args:
        cards: each with its caption.
        title: of the whole.
        columns: cards in a row.
        wide: places in ``cards`` of those that have a row to themselves.
        plot_height: pixels of a plot that has no height of its own.
    """
    rows = _rows(len(cards), columns, wide)
    panels = [_panels(cards, row, columns, plot_height) for row in rows]
    head = SHEET_TITLE if title else 0
    height = head + sum(max(panel.height for panel in row) for row in panels) + GAP * (len(panels) - 1)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "font": cards[0][0]["layout"]["font"] if cards else {},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "showlegend": False,
        "height": height,
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0, "autoexpand": False},
        "shapes": [],
        "annotations": [],
        "barmode": _barmode(cards),
        "bargap": 0.2,
    }
    if title:
        position = {"x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "pad": {"t": 10}}
        layout["title"] = {"text": title, "font": {"size": 15, "color": TEXT_COLOUR}, **position}
    top = float(head)
    for row in panels:
        for panel in row:
            data += panel.add_to(layout, top, height, len(data))
        top += max(panel.height for panel in row) + GAP
    return {"data": data, "layout": layout}


def run_sheet(cards: Mapping[Chart, CaptionedFigure], *, title: str) -> Figure:
    """Return charts of a run as one figure; pictures and the timeline have a row to themselves.

    Args:
        cards: by their charts, in order.
        title: of the whole.
    """
    ordered = _ordered(list(cards))
    wide = [index for index, chart in enumerate(ordered) if _is_wide(chart)]
    return sheet([cards[chart] for chart in ordered], title=title, wide=wide)


def _is_wide(chart: Chart) -> bool:
    return chart.section == "picture" or chart.name == WIDE


def _ordered(charts: Sequence[Chart]) -> list[Chart]:
    """Return pictures first and folded charts last, so that no card is alone in a row before a wide one."""
    ordered: list[Chart] = []
    narrow = 0  # cards since the last wide one
    for chart in sorted(charts, key=lambda candidate: SECTIONS.index(candidate.section)):
        if _is_wide(chart):
            ordered.insert(len(ordered) - narrow % 2, chart)
            narrow %= 2
        else:
            ordered.append(chart)
            narrow += 1
    return ordered


def _rows(count: int, columns: int, wide: Collection[int]) -> list[list[int]]:
    """Return the places of the cards by row."""
    rows: list[list[int]] = []
    for index in range(count):
        is_full = not rows or len(rows[-1]) == columns or rows[-1][-1] in wide
        if is_full or index in wide:
            rows.append([])
        rows[-1].append(index)
    return rows


def _panels(cards: Sequence[CaptionedFigure], row: Sequence[int], columns: int, plot_height: int) -> list[_Panel]:
    across = 1 if len(row) == 1 and columns > 1 else columns
    width = (WIDTH - GAP * (across - 1)) / across
    return [
        _Panel(*cards[index], x=column * (width + GAP), width=width, usual_height=plot_height)
        for column, index in enumerate(row)
    ]


def _barmode(cards: Sequence[CaptionedFigure]) -> str:
    """Return the one mode of all bars; bars with a base of their own, as in a timeline, are never stacked."""
    modes = {figure["layout"].get("barmode") for figure, _ in cards}
    return next((mode for mode in ("stack", "group") if mode in modes), "overlay")


@dataclass(frozen=True, slots=True)
class _Panel:
    """A card and its place on the sheet, in pixels."""

    figure: Figure
    caption: str
    x: float
    width: float
    usual_height: int

    @property
    def card(self) -> Mapping[str, Any]:
        card: Mapping[str, Any] = self.figure["layout"]["meta"]["card"]
        return card

    @property
    def head_lines(self) -> list[str]:
        """Title and unit, with the colour keys beside them, or under them where they are long."""
        soft = f'<span style="color:{SOFT_COLOUR}">{escaped(self.card["unit"])}</span>'
        title, unit = (
            (f"<b>{escaped(self.card['title'])}</b>", len(self.card["title"])),
            (soft, len(self.card["unit"])),
        )
        keys = [
            (f'<span style="color:{colour}">{SYMBOLS[mark]}</span> {escaped(label)}', len(label) + 3)
            for label, colour, mark in self.card["keys"]
        ]
        lines: list[str] = []
        letters = 0
        for text, length in [title, *([unit] if self.card["unit"] else []), *keys]:
            letters += length + 3
            if lines and LETTER * letters < self.width:
                lines[-1] += f"   {text}"
            else:
                lines.append(text)
                letters = length
        return lines

    @property
    def caption_lines(self) -> list[str]:
        return textwrap.wrap(self.caption, int(self.width / LETTER))

    @property
    def head_height(self) -> float:
        return TITLE_HEIGHT + KEYS_HEIGHT * (len(self.head_lines) - 1)

    @property
    def plot_height(self) -> float:
        return float(self.figure["layout"].get("height", self.usual_height))

    @property
    def height(self) -> float:
        return self.head_height + self.plot_height + CAPTION_HEIGHT + LINE_HEIGHT * len(self.caption_lines)

    def add_to(self, layout: dict[str, Any], top: float, height: float, trace_count: int) -> list[dict[str, Any]]:
        """Add axes, words and marks to the layout of the sheet, and return the traces.

        Args:
            layout: of the sheet.
            top: pixels above this card.
            height: of the sheet.
            trace_count: traces that the sheet has already.
        """
        card_layout = self.figure["layout"]
        names = [name for name in card_layout if name.startswith(("xaxis", "yaxis"))]
        numbers = {
            name: self._number(name, layout)
            for name in sorted(names, key=lambda axis_name: (axis_name[0], len(axis_name), axis_name))
        }
        plot_top = top + self.head_height
        margin = card_layout["margin"]
        left, right = self.x + self._left_margin(), self.x + self.width - self._right_margin()
        upper, lower = plot_top + margin["t"], plot_top + self.plot_height - self._bottom_margin()
        x_span, y_span = (left / WIDTH, right / WIDTH), (1 - lower / height, 1 - upper / height)
        references = {f"{name[0]}{name[5:]}": f"{name[0]}{number}" for name, number in numbers.items()}
        for name, number in numbers.items():
            span = x_span if name[0] == "x" else y_span
            crossing = "y" if name[0] == "x" else "x"
            axis = {"anchor": crossing, **card_layout[name]}
            layout[f"{name[0]}axis{number}"] = _moved_axis(axis, span, references)
        layout["shapes"] += [_moved_mark(shape, references, x_span, y_span) for shape in card_layout["shapes"]]
        layout["annotations"] += [_moved_mark(note, references, x_span, y_span) for note in card_layout["annotations"]]
        x = self.x / WIDTH
        head = _text("<br>".join(self.head_lines), x, 1 - top / height, size=12)
        foot = _text(
            "<br>".join(map(escaped, self.caption_lines)), x, 1 - (plot_top + self.plot_height + 4) / height, size=12
        )
        layout["annotations"] += [head, *([foot] if self.caption else [])]
        bargap, is_named = card_layout.get("bargap"), card_layout["yaxis"].get("type") == "category"
        traces = []
        for trace in self.figure["data"] or [{"type": "scatter", "x": [None], "y": [None]}]:
            axes = {f"{axis}axis": references[trace.get(f"{axis}axis", axis)] for axis in "xy"}
            width = {"width": 1 - bargap} if trace["type"] == "bar" and is_named and bargap is not None else {}
            bar = {"colorbar": _moved_bar(trace["colorbar"], x_span[1], y_span)} if "colorbar" in trace else {}
            traces.append({**width, **trace, **axes, **bar})
        return traces

    def _number(self, name: str, layout: dict[str, Any]) -> str:
        """Return the number that an axis gets on the sheet, and take it."""
        count = sum(key.startswith(name[:5]) for key in layout)
        number = "" if not count else str(count + 1)
        layout[f"{name[:5]}{number}"] = {}
        return number

    def _left_margin(self) -> float:
        """Return room for the names at the left: the sheet does not grow by itself."""
        axis, margin = self.figure["layout"]["yaxis"], float(self.figure["layout"]["margin"]["l"])
        if axis.get("type") == "category":
            names = axis.get("categoryarray") or [name for trace in self.figure["data"] for name in trace["y"]]
        else:
            names = axis.get("ticktext", ())
        return max([margin, *(LETTER * len(line) + 12 for name in names for line in str(name).split("<br>"))])

    def _right_margin(self) -> float:
        has_bar = any("colorbar" in trace for trace in self.figure["data"])
        return float(self.figure["layout"]["margin"]["r"]) + COLOUR_BAR * has_bar

    def _bottom_margin(self) -> float:
        """Return room for names that break under the axis."""
        names = self.figure["layout"]["xaxis"].get("ticktext", ())
        lines = max((str(name).count("<br>") for name in names), default=0)
        return float(self.figure["layout"]["margin"]["b"]) + TICK_LINE * lines


def _moved_bar(bar: Mapping[str, Any], right: float, y_span: tuple[float, float]) -> dict[str, Any]:
    """Return a colour bar at the right of its card, as high as the plot."""
    low, high = y_span
    position = {"x": right, "xanchor": "left", "xpad": 6, "y": (low + high) / 2, "yanchor": "middle", "ypad": 0}
    return {**bar, **position, "len": high - low, "lenmode": "fraction"}


def _moved_axis(axis: Mapping[str, Any], span: tuple[float, float], references: Mapping[str, str]) -> dict[str, Any]:
    """Return an axis on its part of the sheet."""
    first, last = axis.get("domain", (0.0, 1.0))
    length = span[1] - span[0]
    links = {name: references.get(axis[name], axis[name]) for name in LINKS if name in axis}
    domain = [span[0] + first * length, span[0] + last * length]
    return {**axis, **links, "domain": domain, "automargin": False}


def _moved_mark(
    mark: Mapping[str, Any],
    references: Mapping[str, str],
    x_span: tuple[float, float],
    y_span: tuple[float, float],
) -> dict[str, Any]:
    """Return a shape or an annotation of a card on the sheet."""
    moved = dict(mark)
    for letter, span in (("x", x_span), ("y", y_span)):
        reference = mark.get(f"{letter}ref", "paper")
        match = AXIS.fullmatch(reference)
        if match:
            moved[f"{letter}ref"] = references[match[1] + match[2]] + (match[3] or "")
            continue
        moved[f"{letter}ref"] = "paper"
        if "text" in mark:  # plotly would choose by the place on the sheet
            moved.setdefault(f"{letter}anchor", _anchor(letter, mark[letter]))
        for name in (letter, f"{letter}0", f"{letter}1"):
            if name in mark:
                moved[name] = span[0] + mark[name] * (span[1] - span[0])
    return moved


def _anchor(letter: str, position: float) -> str:
    """Return the side at which plotly puts words at a place of the paper."""
    sides = ("left", "center", "right") if letter == "x" else ("bottom", "middle", "top")
    return sides[(position > 1 / 3) + (position >= 2 / 3)]


def _text(text: str, x: float, y: float, *, size: int) -> dict[str, Any]:
    placed = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "top", "align": "left"}
    return {"text": text, "x": x, "y": y, "showarrow": False, "font": {"size": size, "color": TEXT_COLOUR}, **placed}
