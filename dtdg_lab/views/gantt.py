"""The Gantt chart of a schedule: which rank computed which group when, who set the pace, and who waited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, PHASE_COLOURS, PURGE_COLOUR, TEXT_COLOUR, WARNING_COLOUR
from dtdg_lab.views.schedule_facts import share, unit_of

KEPT = 6_000  # blocks of a kind and epoch
DRAWN = 900  # blocks, of which of a rank:
_OF_A_RANK = 60
_LABELLED = 12  # ranks up to which a block has room for its number
WATCHED_S = 3.0  # an epoch that takes so long is drawn while it runs, a shorter one when it is over
EXCHANGES = {"wait": "waiting", "communicate": "exchange"}
_TONES = ("#8CC7E8", "#2F7FB8")  # by turns, so that the blocks of an iteration are seen as one
_PACE = ("#F2B089", "#D55E00")
_NOTHING = 2e-4  # of the width of the chart, below which a pause is not drawn
_DIGIT = 0.0075  # of the width of the chart, that a digit needs


@dataclass(frozen=True, slots=True)
class Block:
    """What a rank did from when to when in a step: a group's number, or no group where it waited or exchanged."""

    rank: int
    step: int
    start_ns: int
    end_ns: int
    group: int = -1


@dataclass(slots=True)
class Epoch:
    """The blocks of one epoch by kind: ``group``, ``wait`` or ``communicate``; the newest ``KEPT`` of each."""

    number: int
    attempt: int
    groups: int = 0  # computed so far
    cut: bool = False
    blocks: dict[str, dict[tuple[int, int, int], Block]] = field(default_factory=dict)

    def add(self, kind: str, block: Block) -> None:
        """Add a block, once."""
        known = self.blocks.setdefault(kind, {})
        place = (block.rank, block.step, block.start_ns)
        if place in known:
            return
        known[place] = block
        self.groups += kind == "group"
        if len(known) > KEPT:
            del known[next(iter(known))]
            self.cut = True

    def of(self, kind: str) -> list[Block]:
        """Blocks of a kind."""
        return list(self.blocks.get(kind, {}).values())

    def paces(self) -> dict[int, int]:
        """Step -> the rank whose groups took longest in it."""
        loads: dict[int, dict[int, int]] = {}
        for block in self.of("group"):
            ranks = loads.setdefault(block.step, {})
            ranks[block.rank] = ranks.get(block.rank, 0) + block.end_ns - block.start_ns
        return {step: max(ranks, key=lambda rank: ranks[rank]) for step, ranks in loads.items()}

    @property
    def start_ns(self) -> int:
        """When its first block began."""
        return min(block.start_ns for known in self.blocks.values() for block in known.values())

    @property
    def span_s(self) -> float:
        """From its first block to the end of the last."""
        ends = [block.end_ns for known in self.blocks.values() for block in known.values()]
        return (max(ends) - self.start_ns) / 1e9 if ends else 0.0


class GanttLog:
    """Blocks of the newest epoch and the one before."""

    def __init__(self) -> None:
        self._newest: Epoch | None = None
        self._before: Epoch | None = None

    def group(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``groups``."""
        self._add("group", rank, row, attempt, int(row["group"]))

    def phase(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``phases``: waiting and exchanging, of epochs that have groups."""
        if row["phase"] in EXCHANGES:
            self._add(str(row["phase"]), rank, row, attempt, -1)

    def _add(self, kind: str, rank: int, row: Mapping[str, Any], attempt: int, group: int) -> None:
        place = (attempt, int(row["epoch"]))
        if self._newest is None or place > (self._newest.attempt, self._newest.number):
            self._before, self._newest = self._newest, Epoch(place[1], attempt)
        for epoch in (self._newest, self._before):
            if epoch is not None and place == (epoch.attempt, epoch.number):
                epoch.add(kind, Block(rank, int(row["step"]), int(row["start_ns"]), int(row["end_ns"]), group))

    def shown(self, groups: int) -> Epoch | None:
        """The epoch to draw: the newest that is over, or the running one where epochs are long.

        Args:
            groups: K, of a whole epoch.
        """
        newest, before = self._newest, self._before
        if newest is None or before is None or not before.groups:
            return newest if newest is not None and newest.groups else None
        return newest if newest.groups >= groups or (newest.groups and before.span_s >= WATCHED_S) else before


def gantt_figure(
    epoch: Epoch | None, ranks: int, *, bound_s: float | None = None, predicted_s: float | None = None, label: str = ""
) -> Figure:
    """Blocks of groups by rank over time; blocks of one iteration have one tone, those all wait for are orange.

    Args:
        epoch: what to draw; None before there is any.
        ranks: R.
        bound_s: no schedule ends an epoch of these groups before; a line where the whole epoch is drawn.
        predicted_s: when the scheduler expected the end; a line as well.
        label: of the schedule, for the title.
    """
    title = "Gantt chart" + ("" if epoch is None else f" of epoch {epoch.number + 1}") + (label and f" · {label}")
    if epoch is None:
        nothing = {"type": "bar", "x": [], "y": [], "showlegend": False}  # else a grid would not draw the axes
        layout = frame(title, "time since the epoch began (s)", "")
        return {"data": [nothing], "layout": with_note(layout, "no group yet")}
    shown, first = _fitting(epoch, ranks)
    whole = first is None and not epoch.cut
    origin_ns = epoch.start_ns if whole else min(b.start_ns for blocks in shown.values() for b in blocks)
    ends = [block.end_ns for blocks in shown.values() for block in blocks]
    lines = {"no schedule of these groups ends before": bound_s, "predicted end": predicted_s} if whole else {}
    end_s = max([(max(ends) - origin_ns) / 1e9, *(value for value in lines.values() if value is not None)])
    unit, factor = unit_of(end_s)
    if not whole:
        title += f" · last {len({block.step for block in shown['group']}):,} iterations"
    first_step = min(block.step for block in shown["group"])
    drawing = _Drawing(origin_ns, factor / 1e9, unit, 1e9 * end_s, first_step, ranks <= _LABELLED)
    data = [*drawing.groups(shown["group"], epoch.paces()), *drawing.pauses(shown)]
    data += [
        _line(f"{name} {format_seconds(value)}", value * factor, ranks, dash)
        for (name, value), dash in zip(lines.items(), ("dash", "dot"), strict=False)
        if value is not None
    ]
    x_title = f"time since the epoch began ({unit})" if whole else f"time ({unit})"
    layout = frame(
        title, x_title, "", barmode="overlay", bargap=0.25,
        xaxis={"range": [0, 1.02 * end_s * factor], "showgrid": False},
        yaxis={"range": [ranks - 0.4, -0.6], "tickvals": [*range(ranks)], "showgrid": False, "ticksuffix": " ",
               "ticktext": [f"rank {rank}" for rank in range(ranks)]} if ranks <= 32
        else {"range": [ranks - 0.4, -0.6], "showgrid": False, "title": {"text": "rank"}},
    )  # fmt: skip
    return {"data": data, "layout": layout}


def gantt_words(epoch: Epoch | None) -> str:
    """What to look for, and how much of the drawn time ranks waited."""
    if epoch is None:
        return "No group yet."
    spent = sum(block.end_ns - block.start_ns for block in epoch.of("group"))
    waited = sum(block.end_ns - block.start_ns for block in epoch.of("wait"))
    if len({block.rank for block in epoch.of("group")}) < 2:
        return "Blocks are groups, one tone an iteration: of one rank, so nobody waits."
    return (
        f"Blocks are groups, one tone an iteration. Orange ones set the pace: the other ranks wait for them (hatched), "
        f"{format_seconds(waited / 1e9)} of rank time, {share(waited / (spent + waited))}. "
        "A good schedule has little hatching."
    )


def _fitting(epoch: Epoch, ranks: int) -> tuple[dict[str, list[Block]], int | None]:
    """Blocks by kind of the newest iterations that can be drawn, and the first of these; None where all can."""
    groups = epoch.of("group")
    first = None
    most = min(DRAWN, _OF_A_RANK * ranks)
    if len(groups) > most:
        steps = sorted((block.step for block in groups), reverse=True)
        first = min(steps[most] + 1, steps[0])
    kept = {kind: epoch.of(kind) for kind in ("group", *EXCHANGES)}
    return {kind: [b for b in blocks if first is None or b.step >= first] for kind, blocks in kept.items()}, first


@dataclass(frozen=True, slots=True)
class _Drawing:
    """Where time 0 is, what a nanosecond is in the unit of the axis, and how wide the chart is."""

    origin_ns: int
    factor: float
    unit: str
    span_ns: float
    first_step: int
    labelled: bool

    def groups(self, blocks: list[Block], paces: Mapping[int, int]) -> Iterable[dict[str, Any]]:
        """Two traces: groups, and those of the rank that sets the pace of its iteration."""
        kinds = {"group": _TONES, "group that sets the pace": _PACE}
        several = len({block.rank for block in blocks}) > 1
        for name, tones in kinds.items():
            paced = tones is _PACE
            found = [block for block in blocks if (several and paces[block.step] == block.rank) == paced]
            if found:
                yield self._bars(name, found) | {
                    "marker": {"color": [tones[(b.step - self.first_step) % 2] for b in found],
                               "line": {"width": 1, "color": "white"}},
                    "text": [self._label(block) for block in found], "textposition": "inside", "textangle": 0,
                    "insidetextanchor": "middle",
                    "insidetextfont": {"size": 10, "color": [self._writing(tones, block) for block in found]},
                    "customdata": [[b.group, b.step - self.first_step + 1, b.step, b.rank] for b in found],
                    "hovertemplate": "rank %{customdata[3]}: group %{customdata[0]}, iteration %{customdata[1]} "
                    f"(step %{{customdata[2]}}), %{{x:.4g}} {self.unit}<extra></extra>",
                }  # fmt: skip

    def pauses(self, shown: Mapping[str, list[Block]]) -> Iterable[dict[str, Any]]:
        """Waiting, hatched, and the exchange of gradients."""
        looks = {
            "wait": {"color": "#FFFFFF", "line": {"width": 0},
                     "pattern": {"shape": "/", "fgcolor": PURGE_COLOUR, "size": 5, "solidity": 0.25}},
            "communicate": {"color": PHASE_COLOURS["communicate"], "line": {"width": 0}},
        }  # fmt: skip
        for kind, name in EXCHANGES.items():
            found = [block for block in shown[kind] if block.end_ns - block.start_ns > _NOTHING * self.span_ns]
            if found:
                yield self._bars(name, found) | {
                    "marker": looks[kind],
                    "hovertemplate": f"rank %{{y}}: {name} %{{x:.4g}} {self.unit}<extra></extra>",
                }

    def _bars(self, name: str, blocks: list[Block]) -> dict[str, Any]:
        return {
            "type": "bar", "orientation": "h", "name": name, "y": [block.rank for block in blocks], "width": 0.78,
            "base": [round((block.start_ns - self.origin_ns) * self.factor, 6) for block in blocks],
            "x": [round((block.end_ns - block.start_ns) * self.factor, 6) for block in blocks],
        }  # fmt: skip

    def _writing(self, tones: tuple[str, str], block: Block) -> str:
        """White on the dark tone of blue."""
        return "white" if tones is _TONES and (block.step - self.first_step) % 2 else TEXT_COLOUR

    def _label(self, block: Block) -> str:
        text = str(block.group)
        room = (block.end_ns - block.start_ns) / self.span_ns
        return text if self.labelled and room >= _DIGIT * (len(text) + 1) else ""


def _line(name: str, at: float, ranks: int, dash: str) -> dict[str, Any]:
    colour = WARNING_COLOUR if dash == "dash" else BASELINE_COLOUR
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": [at, at], "y": [-0.55, ranks - 0.45],
        "line": {"color": colour, "width": 2, "dash": dash}, "hoverinfo": "name",
    }  # fmt: skip
