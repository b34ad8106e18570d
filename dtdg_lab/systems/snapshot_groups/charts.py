"""The schedule view: who computes which group when, what it costs, and what other schedules would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor, log10
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.records import OWN_PHASES
from dtdg_lab.core.units import format_seconds
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.schedulers.base import PAPER_THROUGHPUT, lower_bound_s, replay
from dtdg_lab.visualization import palette
from dtdg_lab.visualization.charts import (
    NAMES,
    SYMBOLS,
    Drawn,
    Panel,
    bars,
    chart,
    counts_axis,
    flag,
    level_bars,
    line,
    points,
    rule,
    time_unit,
)
from dtdg_lab.visualization.layout import Figure, grid, share
from dtdg_lab.visualization.phases import BALANCED
from dtdg_lab.visualization.run_view import PlanView
from dtdg_lab.visualization.series import Series

# The Gantt chart of a schedule: which rank computed which group when, who set the pace, and who waited.


KEPT = 6_000  # blocks of a kind and epoch
DRAWN = 900  # blocks; of each rank:
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

    @property
    def long_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.start_ns


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

    def paces(self) -> dict[int, int]:
        """Step -> the rank whose groups took longest in it."""
        loads: dict[int, Counter[int]] = {}
        for block in self.of("group"):
            loads.setdefault(block.step, Counter())[block.rank] += block.long_ns
        return {step: ranks.most_common(1)[0][0] for step, ranks in loads.items()}

    @property
    def start_ns(self) -> int:
        """When its first block began."""
        return min(block.start_ns for known in self.blocks.values() for block in known.values())

    @property
    def span_s(self) -> float:
        """From its first block to the end of the last."""
        ends = [block.end_ns for known in self.blocks.values() for block in known.values()]
        return (max(ends) - self.start_ns) / 1e9 if ends else 0.0

    def of(self, kind: str) -> list[Block]:
        """Blocks of a kind."""
        return list(self.blocks.get(kind, {}).values())


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
        return chart(title, "time since the epoch began (s)", "", [], empty="no group yet")
    shown, first = _fitting(epoch, ranks)
    whole = first is None and not epoch.cut
    origin_ns = epoch.start_ns if whole else min(b.start_ns for blocks in shown.values() for b in blocks)
    ends = [block.end_ns for blocks in shown.values() for block in blocks]
    bounds = [("no schedule of these groups ends before", bound_s, palette.WARNING_COLOUR, "dash")]
    bounds = [*bounds, ("predicted end", predicted_s, palette.BASELINE_COLOUR, "dot")] if whole else []
    end_s = max([(max(ends) - origin_ns) / 1e9, *(value for _, value, *_ in bounds if value is not None)])
    unit, factor = time_unit(end_s)
    if not whole:
        title += f" · last {len({block.step for block in shown['group']}):,} iterations"
    first_step = min(block.step for block in shown["group"])
    drawing = _Drawing(origin_ns, factor / 1e9, unit, 1e9 * end_s, first_step, ranks <= _LABELLED)
    data = [*drawing.groups(shown["group"], epoch.paces()), *drawing.pauses(shown)]
    for name, value, colour, dash in bounds:
        if value is not None:
            at, said = value * factor, f"{name} {format_seconds(value)}"
            data.append(line(said, [at, at], [-0.55, ranks - 0.45], colour, dash=dash))
    axis: dict[str, Any] = {"range": [ranks - 0.4, -0.6], "showgrid": False}
    if ranks <= 32:
        names = [f"rank {rank}" for rank in range(ranks)]
        axis |= {"tickvals": [*range(ranks)], "ticksuffix": " ", "ticktext": names}
    else:
        axis |= {"title": {"text": "rank"}}
    x_title = f"time since the epoch began ({unit})" if whole else f"time ({unit})"
    x_axis = {"range": [0, 1.02 * end_s * factor], "showgrid": False}
    return chart(title, x_title, "", data, barmode="overlay", bargap=0.25, xaxis=x_axis, yaxis=axis)


def gantt_words(epoch: Epoch | None) -> str:
    """What to look for, and how much of the drawn time ranks waited."""
    if epoch is None:
        return "No group yet."
    spent, waited = (sum(block.long_ns for block in epoch.of(kind)) for kind in ("group", "wait"))
    if len({block.rank for block in epoch.of("group")}) < 2:
        return "Blocks are groups, one tone an iteration; with one rank, nothing waits."
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

    def groups(self, blocks: list[Block], paces: Mapping[int, int]) -> Iterable[Drawn]:
        """Two traces: groups, and those of the rank that sets the pace of its iteration."""
        several = len({block.rank for block in blocks}) > 1
        for name, tones in {"group": _TONES, "group that sets the pace": _PACE}.items():
            paced = tones is _PACE
            found = [block for block in blocks if (several and paces[block.step] == block.rank) == paced]
            colours = [tones[(b.step - self.first_step) % 2] for b in found]
            # white on the dark blue
            writing = ["white" if colour == _TONES[1] else palette.TEXT_COLOUR for colour in colours]
            if found:
                yield self._rows(
                    name,
                    found,
                    "rank %{customdata[3]}: group %{customdata[0]}, iteration %{customdata[1]} "
                    f"(step %{{customdata[2]}}), %{{x:.4g}} {self.unit}<extra></extra>",
                    {"color": colours, "line": {"width": 1, "color": "white"}},
                    customdata=[[b.group, b.step - self.first_step + 1, b.step, b.rank] for b in found],
                    text=[self._label(block) for block in found],
                    **{"textposition": "inside", "textangle": 0, "insidetextanchor": "middle"},
                    insidetextfont={"size": 10, "color": writing},
                )

    def pauses(self, shown: Mapping[str, list[Block]]) -> Iterable[Drawn]:
        """Waiting, hatched, and the exchange of gradients."""
        hatched = {"shape": "/", "fgcolor": palette.PURGE_COLOUR, "size": 5, "solidity": 0.25}
        looks: Drawn = {
            "wait": {"color": "#FFFFFF", "pattern": hatched},
            "communicate": {"color": palette.PHASE_COLOURS["communicate"]},
        }
        for kind, name in EXCHANGES.items():
            found = [block for block in shown[kind] if block.long_ns > _NOTHING * self.span_ns]
            if found:
                hover = f"rank %{{y}}: {name} %{{x:.4g}} {self.unit}<extra></extra>"
                yield self._rows(name, found, hover, {"line": {"width": 0}, **looks[kind]})

    def _rows(self, name: str, blocks: list[Block], hover: str, marker: Drawn, **more: Any) -> Drawn:
        widths = [round(block.long_ns * self.factor, 6) for block in blocks]
        starts = [round((block.start_ns - self.origin_ns) * self.factor, 6) for block in blocks]
        ranks = [block.rank for block in blocks]
        return level_bars(name, ranks, widths, None, hover, base=starts, width=0.78, marker=marker, **more)

    def _label(self, block: Block) -> str:
        text = str(block.group)
        return text if self.labelled and block.long_ns / self.span_ns >= _DIGIT * (len(text) + 1) else ""


# Times of snapshot groups: the scheduler's inputs against the ranks' measurements.


_EPOCHS = 5  # newest measurements of a group that are kept
_DRAWN = 1_500
_COLOURED = 8  # ranks up to which each has a colour
_LOG = 30.0  # largest over smallest time from which axes are logarithmic
_SHARED = 0.8  # processor seconds over wall-clock seconds below which the caption says so
_SLOW = 1.1  # a rank's measured over predicted, against that of all, from which it is named

Measured = tuple[int, int, float, float]  # epoch, rank, wall-clock and processor seconds


class GroupTimes:
    """Seconds of every group in the newest epochs; its first is dropped once there is another, as it warms up."""

    def __init__(self) -> None:
        self._times: dict[int, list[Measured]] = {}
        self._warm: set[int] = set()
        self._newest: dict[int, tuple[int, int]] = {}  # group -> attempt, epoch

    def group(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``groups``."""
        group, epoch = int(row["group"]), int(row["epoch"])
        if (attempt, epoch) <= self._newest.get(group, (-1, -1)):
            return
        self._newest[group] = (attempt, epoch)
        known = self._times.setdefault(group, [])
        if known and group not in self._warm:
            self._warm.add(group)
            known.clear()
        seconds = (int(row["end_ns"]) - int(row["start_ns"])) / 1e9
        known.append((epoch, rank, seconds, float(row["cpu_s"] if row["cpu_s"] is not None else "nan")))
        del known[:-_EPOCHS]

    def clear(self) -> None:
        """Forget all: groups are others now."""
        self._times, self._warm, self._newest = {}, set(), {}

    def seconds(self, groups: int) -> NDArray[np.float64]:
        """(K,) median seconds of each group; NaN where none was measured."""
        found = np.full(groups, np.nan)
        for group, known in self._times.items():
            if group < groups:
                found[group] = median(each[2] for each in known)
        return found

    def ranks(self, groups: int) -> NDArray[np.int64]:
        """(K,) the rank that computed each group last; -1 where none did."""
        found = np.full(groups, -1)
        for group, known in self._times.items():
            if group < groups:
                found[group] = known[-1][1]
        return found

    def processor_share(self) -> float | None:
        """Processor seconds over wall-clock seconds of all groups; None where unknown."""
        described = np.array([each[2:] for known in self._times.values() for each in known]).reshape(-1, 2)
        described = described[np.isfinite(described).all(axis=1)]
        wall = float(described[:, 0].sum())
        return float(described[:, 1].sum()) / wall if wall > 0 else None


def times_figure(facts: ScheduleFacts, measured_s: NDArray[np.float64], ranks: NDArray[np.int64]) -> Figure:
    """A dot a group, predicted across and measured up; on the diagonal both are equal.

    Args:
        facts: of the schedule.
        measured_s: (K,) seconds, NaN where unknown.
        ranks: (K,) that measured them.
    """
    title = "Group times: predicted against measured"
    scale = facts.scale(measured_s)
    known = np.flatnonzero(np.isfinite(measured_s) & (measured_s > 0) & (facts.times_s > 0))
    if scale is None or not len(known):
        return chart(title, "predicted (s)", "measured (s)", [], empty="no group measured yet")
    if len(known) > _DRAWN:  # evenly over the sizes
        known = known[np.argsort(facts.times_s[known], kind="stable")][:: -(-len(known) // _DRAWN)]
        title += f" · {len(known):,} of {facts.groups:,}"
    predicted, measured = scale * facts.times_s[known], measured_s[known]
    low, high = min(predicted.min(), measured.min()), max(predicted.max(), measured.max())
    unit, factor = time_unit(float(high))
    ends = [low * factor, high * factor]
    data = [line("equal", ends, ends, width=1, dash="dot", hoverinfo="skip")]
    hover = f"group %{{customdata}}: predicted %{{x:.4g}} {unit}, measured %{{y:.4g}} {unit}"
    there = sorted({int(rank) for rank in ranks[known]})
    for rank in there if len(there) <= _COLOURED else [-1]:
        mine = (ranks[known] == rank) if rank >= 0 else np.ones(len(known), bool)
        x, y = (np.round(each[mine] * factor, 5).tolist() for each in (predicted, measured))
        name, colour = f"rank {rank}" if rank >= 0 else "group", palette.series_colour(max(rank, 0))
        looks: Drawn = {"size": 6, "marker": {"opacity": 0.75}, "customdata": known[mine].tolist(), "showlegend": True}
        data.append(points(name, x, y, colour, hover, **looks))
    kind = {"type": "log"} if high > _LOG * low else {"rangemode": "tozero"}
    source = {"size": "by size, scaled to the mean", "profile": "by profile", "linear": "by nodes and edges"}
    across = f"predicted {source.get(facts.source, facts.source)} ({unit})"
    return chart(title, across, f"measured ({unit})", data, xaxis=kind, yaxis=kind)


def errors_of(facts: ScheduleFacts, measured_s: NDArray[np.float64]) -> tuple[float, float] | None:
    """Mean and largest relative error of the predicted times; None where no group was measured."""
    scale = facts.scale(measured_s)
    known = np.isfinite(measured_s) & (measured_s > 0)
    if scale is None or not known.any():
        return None
    errors = np.abs(scale * facts.times_s[known] / measured_s[known] - 1)
    return float(errors.mean()), float(errors.max())


def times_words(
    facts: ScheduleFacts, measured_s: NDArray[np.float64], ranks: NDArray[np.int64], processor: float | None
) -> str:
    """The error in words, a rank that stands out, and whether ranks shared processors."""
    errors = errors_of(facts, measured_s)
    if errors is None:
        return "No group measured yet."
    words = [f"Predicted times are off by {share(errors[0])} on average, {share(errors[1])} at most."]
    if facts.fit and "mean_error" in facts.fit:
        words.append(f"On groups held out of the fit it was {share(facts.fit['mean_error'])}.")
    ratios = _by_rank(facts, measured_s, ranks)
    slow = max(ratios, key=lambda rank: ratios[rank])
    if len(ratios) > 1 and ratios[slow] >= _SLOW:
        words.append(f"Rank {slow}'s dots are high: it needs {ratios[slow]:.2f} times as long as all do for the same.")
    if processor is not None and processor < _SHARED:
        words.append(f"Processors worked {share(processor)} of it: shared by ranks, or waiting for a GPU.")
    if len(words) == 1:
        longest = format_seconds(float(np.nanmax(measured_s)))
        words.append(f"A schedule is as good as these times; the longest group takes {longest}.")
    return " ".join(words)


def _by_rank(facts: ScheduleFacts, measured_s: NDArray[np.float64], ranks: NDArray[np.int64]) -> dict[int, float]:
    """Rank -> measured over predicted of its groups, over the same of all."""
    known = np.isfinite(measured_s) & (facts.times_s > 0)
    ratios = {}
    for rank in np.unique(ranks[known]).tolist():
        mine = known & (ranks == rank)
        ratios[rank] = float(measured_s[mine].sum() / facts.times_s[mine].sum())
    whole = measured_s[known].sum() / facts.times_s[known].sum()
    return {rank: float(ratio / whole) for rank, ratio in ratios.items()}


# How evenly a schedule loads the ranks, epoch by epoch: imbalance, waste, and who is on the critical path.


_OPEN = 2  # epochs whose iterations are kept, so that late ranks and resumed steps find theirs
_POINTS = 400
_RATIOS = {"most over least loaded rank": "most_over_least", "slowest over mean of an iteration": "max_over_mean"}


@dataclass(frozen=True, slots=True)
class EpochBalance:
    """Own time (batch, transfer, compute; no waiting) of R ranks in the I iterations of an epoch that all have logged.

    Attributes:
        epoch: its number, from 0.
        iterations: I.
        own_s: (R,) seconds of each rank.
        critical_s: of the slowest rank of every iteration, summed: the critical path.
        paced_s: (R,) share of the critical path that each rank is, in seconds.
        time_s: of the iterations with everything in it, on the rank that took longest for each.
    """

    epoch: int
    iterations: int
    own_s: NDArray[np.float64]
    critical_s: float
    paced_s: NDArray[np.float64]
    time_s: float

    @property
    def most_over_least(self) -> float | None:
        """Most over least loaded rank (the paper's ratio); None where a rank had nothing to do."""
        least = float(self.own_s.min())
        return float(self.own_s.max()) / least if least > 0 else None

    @property
    def max_over_mean(self) -> float | None:
        """Slowest rank over the mean of all, iteration by iteration, weighted by time."""
        mean = float(self.own_s.mean())
        return self.critical_s / mean if mean > 0 else None

    @property
    def waste(self) -> float:
        """Share of all ranks' time for which they have nothing to do but wait for the slowest of the iteration."""
        ranks = len(self.own_s)
        return (ranks * self.critical_s - float(self.own_s.sum())) / (ranks * self.time_s) if self.time_s > 0 else 0.0

    @property
    def own(self) -> float:
        """Share of all ranks' time that is own work."""
        return float(self.own_s.mean()) / self.time_s if self.time_s > 0 else 0.0

    @property
    def critical(self) -> float:
        """Share of the epoch that is the critical path; the rest is exchange, update and control."""
        return self.critical_s / self.time_s if self.time_s > 0 else 0.0

    @property
    def slowest(self) -> int:
        """The rank that is the most of the critical path."""
        return int(self.paced_s.argmax())


def balance_of(epoch: int, own_s: NDArray[np.float64], time_s: NDArray[np.float64]) -> EpochBalance:
    """The balance of an epoch.

    Args:
        epoch: its number.
        own_s: (I, R) own seconds.
        time_s: (I, R) seconds of the whole iteration.
    """
    slowest = own_s.argmax(axis=1)
    paced = np.bincount(slowest, weights=own_s.max(axis=1), minlength=own_s.shape[1]).astype(np.float64)
    return EpochBalance(
        epoch, len(own_s), own_s.sum(axis=0), float(paced.sum()), paced, float(time_s.max(axis=1).sum())
    )


class BalanceLog:
    """Balance of every epoch of a run; of long runs of every second, fourth and so on."""

    def __init__(self, ranks: int, points: int = _POINTS) -> None:
        self._ranks = ranks
        # a point's step is the last of its epoch, so that a resume cuts where it should; its seconds are the epoch
        self._series = {name: Series(points) for name in ("most_over_least", "max_over_mean", "own", "waste")}
        self._open: dict[int, dict[int, dict[int, _LoggedStep]]] = {}  # epoch, step, rank
        self._known: list[EpochBalance] | None = None  # of the open ones, until there are more rows

    def step(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``steps``."""
        epoch, step = int(row["epoch"]), int(row["step"])
        last = self._series["own"].last
        if (last is not None and epoch <= last.seconds) or not 0 <= rank < self._ranks:
            return
        self._known = None
        own = sum(float(row.get(f"{phase}_s") or 0.0) for phase in OWN_PHASES)
        ranks = self._open.setdefault(epoch, {}).setdefault(step, {})
        ranks.setdefault(rank, _LoggedStep(own, float(row.get("time_s") or own), attempt))
        while len(self._open) > _OPEN:
            self._close(min(self._open))

    def _close(self, epoch: int) -> None:
        found, steps = self._balance(epoch), self._open.pop(epoch)
        if found is not None:
            attempt = max(described.attempt for ranks in steps.values() for described in ranks.values())
            for name, series in self._series.items():
                series.add(max(steps), epoch, getattr(found, name), attempt)

    def _balance(self, epoch: int) -> EpochBalance | None:
        """Of the iterations that all ranks have logged; None before there is one."""
        logged = [ranks for ranks in self._open[epoch].values() if len(ranks) == self._ranks]
        if not logged:
            return None
        own, whole, _ = np.array([[ranks[rank] for rank in range(self._ranks)] for ranks in logged]).transpose(2, 0, 1)
        return balance_of(epoch, own, whole)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        self._known = None
        for series in self._series.values():
            series.truncate(step, attempt)
        for epoch, steps in list(self._open.items()):
            for known in [at for at in steps if at >= step]:
                steps[known] = {rank: each for rank, each in steps[known].items() if each.attempt >= attempt}
            self._open[epoch] = {known: ranks for known, ranks in steps.items() if ranks}
            if not self._open[epoch]:
                del self._open[epoch]

    def recent(self) -> list[EpochBalance]:
        """The newest epochs, the running one last."""
        if self._known is None:
            self._known = [found for epoch in sorted(self._open) if (found := self._balance(epoch)) is not None]
        return self._known

    def last(self, iterations: int) -> EpochBalance | None:
        """The newest epoch of so many iterations; the newest of all where none has been through them."""
        recent = self.recent()
        whole = [found for found in recent if found.iterations >= iterations]
        return next(reversed(whole or recent), None)

    def to_dict(self, name: str) -> tuple[list[int], list[float | None]]:
        """Epochs from 1, and a value for each: ``most_over_least``, ``max_over_mean``, ``own`` or ``waste``."""
        points, recent = self._series[name].points, self.recent()
        epochs = [int(point.seconds) + 1 for point in points] + [each.epoch + 1 for each in recent]
        return epochs, [point.value for point in points] + [getattr(each, name) for each in recent]


class _LoggedStep(NamedTuple):
    """A rank's logged step: own and whole seconds, and the attempt."""

    own_s: float
    time_s: float
    attempt: int


def imbalance_figure(log: BalanceLog, marks: Mapping[int, str] | None = None) -> Figure:
    """Two ratios over epochs, 1 where the work is even.

    Args:
        log: of the run.
        marks: epoch (from 1) -> the schedule that begins with it.
    """
    data, known = [], []
    looks = (("#0072B2", "solid"), ("#D55E00", "dash"))
    for (name, key), (colour, dash) in zip(_RATIOS.items(), looks, strict=True):
        epochs, values = log.to_dict(key)
        mode = "lines+markers" if len(epochs) <= 60 else "lines"
        y = [None if value is None else round(value, 5) for value in values]
        marker = {"size": 5, "color": colour}
        data.append(line(name, epochs, y, colour, "epoch %{x}: %{y:.3f}", dash=dash, mode=mode, marker=marker))
        known += [value for value in y if value is not None]
    top = max(known, default=1.1) - 1 or 0.1
    axis = {"range": [1 - 0.06 * top, 1 + 1.1 * top]}
    found: Drawn = {"marks": marks, "y_axis": axis, "lines": [rule(y=1, width=1)] if known else []}
    return _over_epochs("Imbalance of own time", "ratio (1 is even)", epochs, data if known else [], **found)


def shares_figure(log: BalanceLog, marks: Mapping[int, str] | None = None) -> Figure:
    """Where the ranks' time goes, over epochs: own work, waste, and the rest; own work and waste are critical path."""
    epochs, own = log.to_dict("own")
    _, waste = log.to_dict("waste")
    rest = [1 - (a or 0) - (b or 0) for a, b in zip(own, waste, strict=True)]
    kinds: tuple[tuple[str, Sequence[float | None], str], ...] = (
        ("own work", own, palette.PHASE_COLOURS["compute"]),
        ("waste: idle behind the slowest", waste, palette.PURGE_COLOUR),
        ("exchange and rest", rest, "#E9D5E1"),
    )
    mode = "lines" if len(epochs) > 1 else "lines+markers"
    data = []
    for name, values, colour in kinds:
        y = [round(100 * (value or 0), 3) for value in values]
        stacked: Drawn = {"width": 0.5, "mode": mode, "stackgroup": "time", "fillcolor": colour}
        data.append(line(name, epochs, y, colour, "epoch %{x}: %{y:.1f} %", **stacked))
    found: Drawn = {"marks": marks, "y_axis": {"range": [0, 100]}}
    return _over_epochs(
        "Where the ranks' time goes", "share of all ranks' time (%)", epochs, data if epochs else [], **found
    )


def _over_epochs(
    title: str,
    y_title: str,
    epochs: list[int],
    data: list[Drawn],
    *,
    marks: Mapping[int, str] | None,
    y_axis: Drawn,
    lines: Sequence[Drawn] = (),
) -> Figure:
    """A chart over whole epochs, with a line and a name where a schedule begins."""
    x_axis: Drawn = {}
    if epochs:
        span = epochs[-1] - epochs[0]
        room = 0.02 * (span or 25)
        x_axis = {"dtick": max(1, -(-span // 10)), "range": [epochs[0] - room, epochs[-1] + room]}
    marked = {
        "shapes": [*lines, *(rule(x=epoch) for epoch in marks or {})],
        "annotations": [flag(name, epoch, palette.BASELINE_COLOUR) for epoch, name in (marks or {}).items()],
    }
    axes: Drawn = {"xaxis": x_axis, "yaxis": y_axis}
    return chart(title, "epoch", y_title, data, empty="no whole iteration yet", showlegend=True, **axes, **marked)


def imbalance_words(found: EpochBalance | None) -> str:
    """The ratios of an epoch and what they mean."""
    if found is None:
        return "No whole iteration yet."
    ratio, each = found.most_over_least, found.max_over_mean
    least = "a rank had nothing to do at all" if ratio is None else f"the most loaded rank works {ratio:.2f} times as "
    text = f"Epoch {found.epoch + 1}: {least}{'long as the least loaded' if ratio is not None else ''}"
    if each is not None:
        text += f"; iteration by iteration, the slowest works {each:.2f} times the mean"
    return f"{text}. The second is what costs time: ranks meet at the end of every iteration."


def shares_words(found: EpochBalance | None) -> str:
    """Waste, critical path, and the rank that is the most of it."""
    if found is None:
        return "No whole iteration yet."
    return (
        f"Epoch {found.epoch + 1}: own work and waste make the critical path, {share(found.critical)} of its time; "
        f"{share(found.waste)} is waste. {pace_words(found)}"
    )


def pace_words(found: EpochBalance) -> str:
    """The slowest rank and its share of the critical path."""
    ranks = len(found.own_s)
    if ranks == 1 or found.critical_s <= 0:
        return "One rank: no other waits for it."
    rank = found.slowest
    part = float(found.paced_s[rank]) / found.critical_s
    text = (
        f"Rank {rank} is slowest: it is {share(part)} of the critical path of {format_seconds(found.critical_s)} "
        f"(even: {share(1 / ranks)})"
    )
    over = float(found.own_s[rank] / found.own_s.mean())
    if over >= BALANCED:
        return f"{text} and works {over:.2f} times the mean."
    return f"{text}."


# The Gantt chart of a schedule before execution: its groups take the times it is given.


_SHORT = {"group that sets the pace": "sets the pace", "no schedule of these groups ends before": "bound"}


def planned_epoch(schedule: Schedule, times_s: ArrayLike, *, allreduce_s: float = 0.0) -> Epoch:
    """The blocks of an epoch as planned: in each iteration ranks compute, wait for the slowest, and exchange.

    Args:
        schedule: of K groups on R ranks.
        times_s: (K,) seconds of each group.
        allreduce_s: seconds of the exchange that ends an iteration.
    """
    times = np.asarray(times_s, np.float64)
    epoch, begun = Epoch(0, 0), 0.0

    for step, row in enumerate(schedule.assignment):
        ends = begun + max(sum(float(times[group]) for group in groups) for groups in row)
        for rank, groups in enumerate(row):
            spans, now = [], begun
            for group in groups:
                spans.append(("group", now, now + float(times[group]), group))
                now += float(times[group])
            if ends > now:
                spans.append(("wait", now, ends, -1))
            if allreduce_s > 0:
                spans.append(("communicate", ends, ends + allreduce_s, -1))
            for kind, start_s, end_s, group in spans:
                epoch.add(kind, Block(rank, step, round(start_s * 1e9), round(end_s * 1e9), group))
        begun = ends + allreduce_s
    return epoch


def planned_figure(
    schedule: Schedule,
    times_s: ArrayLike,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    label: str = "",
    until_s: float | None = None,
) -> Figure:
    """The Gantt chart of a schedule for given times, with the bound that no schedule beats, as a plotly figure dict.

    Args:
        schedule: of K groups on R ranks.
        times_s: (K,) seconds of each group, not all 0.
        per_rank: most groups of a rank in an iteration that the bound allows.
        allreduce_s: seconds of the exchange that ends an iteration.
        label: for the title, such as the scheduler's name.
        until_s: where the time axis ends, so that charts can be compared; at the end of the epoch where not given.

    Raises:
        PlanError: a time is negative or not finite.
    """
    epoch = planned_epoch(schedule, times_s, allreduce_s=allreduce_s)
    bound_s = lower_bound_s(times_s, schedule.parts, per_rank=per_rank, allreduce_s=allreduce_s)
    figure = gantt_figure(epoch, schedule.parts, bound_s=bound_s)
    layout = figure["layout"]
    layout["title"]["text"] = "Planned epoch" + (label and f" · {label}")
    for trace in figure["data"]:  # several stand beside each other
        for long, short in _SHORT.items():
            trace["name"] = trace["name"].replace(long, short)
    if until_s is not None:
        factor = layout["xaxis"]["range"][1] / (1.02 * max(epoch.span_s, bound_s))  # of the axis' unit
        layout["xaxis"]["range"] = [0, 1.02 * until_s * factor]
    return figure


# What other schedulers would have made of the same group times: bars of makespan over the bound.


Row = Mapping[str, Any]
PSG = "psg"
_USED, _OTHER = "#F2B089", "#8CC7E8"


def rows_told(facts: ScheduleFacts) -> list[dict[str, Any]]:
    """What is known without solving anything: the schedule in use, and round robin's makespan (PSG)."""
    used = {"makespan_s": facts.makespan_s, "solve_s": facts.solve_s, "targets": facts.targets}
    rows = [{"scheduler": name_of(facts), **used}]
    if facts.psg_makespan_s is not None and name_of(facts) != PSG:
        rows.insert(0, {"scheduler": PSG, "makespan_s": facts.psg_makespan_s})
    return rows


def name_of(facts: ScheduleFacts) -> str:
    """The scheduler as a replay names it: round robin with one group a rank is the system ``psg``."""
    return PSG if (facts.scheduler, facts.per_rank) == ("round_robin", 1) else facts.scheduler


def what_if_figure(rows: Sequence[Row], *, bound_s: float, used: str = "", scale: float | None = 1.0) -> Figure:
    """A bar for each scheduler, with how far it is above the bound and how long it took to solve.

    Args:
        rows: of ``scheduling.replay``: ``scheduler``, ``makespan_s``, and where known ``solve_s`` and
            ``imbalance``.
        bound_s: no schedule is shorter.
        used: the scheduler in use, in another colour.
        scale: seconds of a unit of the times; None where that is unknown, and 1.0 is the bound.
    """
    factor, unit = 1 / bound_s if bound_s > 0 else 1.0, "bound = 1"
    if scale is not None:
        unit, factor = time_unit(scale * max((row["makespan_s"] for row in rows), default=1.0))
        factor *= scale
    names = [f"{row['scheduler']}{'<br>(in use)' * (row['scheduler'] == used)}" for row in rows]
    at = bound_s * factor
    bound = line(
        "no schedule is shorter", [at] * 2, names[:1] * 2, palette.WARNING_COLOUR, dash="dash", showlegend=True
    )
    bars = level_bars(
        "predicted epoch",
        names,
        [round(row["makespan_s"] * factor, 5) for row in rows],
        [_USED if row["scheduler"] == used else _OTHER for row in rows],
        "%{y}: %{x:.4g} " + unit + "%{customdata}<extra></extra>",
        customdata=[_hover(row) for row in rows],
        text=[_said_what_if(row, bound_s) for row in rows],
        **{"textposition": "inside", "insidetextanchor": "start", "textfont": {"size": 11}},
        **{"showlegend": False, "width": 0.7},
    )
    return chart(
        "What would the others have done",
        f"time of an epoch's groups and exchanges ({unit})",
        "",
        [bars, bound] if rows else [],
        empty="no schedule yet",
        xaxis={"rangemode": "tozero"},
        yaxis=NAMES,
        bargap=0.3,
        shapes=[rule(x=at, colour=palette.WARNING_COLOUR, width=2, dash="dash")] if bound_s > 0 and rows else [],
    )


def what_if_words(rows: Sequence[Row], *, bound_s: float, used: str = "") -> str:
    """The best, against the one in use and round robin."""
    if not rows:
        return "No schedule yet."
    best = min(rows, key=lambda row: float(row["makespan_s"]))
    mine = next((row for row in rows if row["scheduler"] == used), None)
    even = next((row for row in rows if row["scheduler"] in (PSG, "round_robin")), None)
    words = []
    if mine is not None and best["makespan_s"] < mine["makespan_s"] * (1 - 1e-9):
        saved = share(1 - best["makespan_s"] / mine["makespan_s"])
        words.append(f"For the same times {best['scheduler']} would need {saved} less than {used}.")
    elif mine is not None and len(rows) > 1:
        words.append(f"None of the others would be shorter than {used} for the same times.")
    if even is not None and best is not even and best["makespan_s"] < even["makespan_s"]:
        saved = share(1 - best["makespan_s"] / even["makespan_s"])
        words.append(f"{best['scheduler']} needs {saved} less than round robin ({even['scheduler']}).")
    if bound_s > 0:
        left = best["makespan_s"] / bound_s - 1
        words.append(f"No schedule could save more than {share(max(0.0, left / (1 + left)))} of what it needs.")
    return " ".join(words)


def _said_what_if(row: Row, bound_s: float) -> str:
    text = f"{share(max(0.0, row['makespan_s'] / bound_s - 1))} above the bound" if bound_s > 0 else ""
    text += f" · {row['targets']:,} targets" if row.get("targets") is not None else ""
    return text + (f" · solved in {format_seconds(row['solve_s'])}" if row.get("solve_s") is not None else "")


def _hover(row: Row) -> str:
    text = "" if row.get("imbalance") is None else f", imbalance {row['imbalance']:.3f}"
    return text + (f"<br>{row['notes']}" if row.get("notes") else "")


MOST_GROUPS = 2_000  # above it the schedulers would take longer than a report may
_TIME_LIMIT_S = 0.5  # for each scheduler that searches


class ScheduleView(PlanView[ScheduleFacts]):
    """The schedules of one run, and how its ranks executed the newest."""

    name = "schedule"
    title = "Who computes what when"
    subject = "schedule"
    wide = True

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.gantt = GanttLog()
        self.balance = BalanceLog(ranks)
        self.times = GroupTimes()
        self.tables = {"steps": self.balance.step, "phases": self.gantt.phase, "groups": self.group}
        self._replayed: tuple[Row, ...] = ()
        self._bound: tuple[tuple[int, int], float] | None = None  # (attempt, epoch) and its bound

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``schedule``."""
        if not self._is_new(row, attempt):
            return
        before, facts = self.facts, ScheduleFacts.read_plan(row["data"])
        if before is not None and (facts is None or before.groups != facts.groups):
            self.times.clear()
        self._add_plan(facts, row, attempt)
        self._replayed = ()

    def group(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``groups``."""
        self.gantt.group(rank, row, attempt)
        self.times.group(rank, row, attempt)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; a schedule made just before ``step`` stays."""
        super().truncate(step, attempt)
        self.balance.truncate(step, attempt)

    def times_s(self) -> NDArray[np.float64]:
        """(K,) measured seconds of each group, the predicted where none was measured: for replays."""
        facts = self._in_use()
        measured = self.times.seconds(facts.groups)
        return np.where(np.isfinite(measured), measured, (facts.scale(measured) or 1.0) * facts.times_s)

    def replayed(self, rows: Sequence[Row]) -> None:
        """Draw these rows of ``scheduling.replay`` instead of the run's own, until its next schedule."""
        self._replayed = tuple(rows)

    def complete(self, summary: Mapping[str, Any]) -> None:
        """Schedule the groups again by every scheduler, from the times that were measured, and draw that.

        Nothing is done for a single rank, for too many groups, or where a group was not measured.
        """
        facts = self.facts
        if facts is None or facts.ranks < 2 or facts.groups > MOST_GROUPS:
            return
        measured = self.times.seconds(facts.groups)
        if not (np.isfinite(measured) & (measured > 0)).all():
            return
        found = replay(
            measured,
            facts.ranks,
            per_rank=facts.rank_groups,
            allreduce_s=(summary.get("phase_time_s") or {}).get("communicate") or 0.0,
            time_limit_s=_TIME_LIMIT_S,
        )
        self.replayed(found.rows())

    def panels(self) -> list[Panel]:
        """Gantt chart, imbalance, waste, group times and the other schedulers; none where the run has no schedule."""
        facts = self.facts
        if facts is None:
            return []
        last, marks = self.balance.last(facts.iterations), self._marks()
        measured, ranks = self.times.seconds(facts.groups), self.times.ranks(facts.groups)
        found = [self.gantt_panel()]
        if facts.ranks > 1:
            found += [
                (imbalance_figure(self.balance, marks), imbalance_words(last)),
                (shares_figure(self.balance, marks), shares_words(last)),
            ]
        said = times_words(facts, measured, ranks, self.times.processor_share())
        return [*found, (times_figure(facts, measured, ranks), said), self._what_if(facts, measured)]

    def gantt_panel(self) -> Panel:
        """The Gantt chart alone: what changes quickly."""
        facts = self._in_use()
        epoch, scale = self.gantt.shown(facts.groups), facts.scale(self.times.seconds(facts.groups))
        bound = None if epoch is None else self._bound_of(epoch, facts)
        predicted = None if scale is None else scale * facts.makespan_s
        label = facts.scheduler if epoch is not None and epoch.number >= self._known[-1].epoch else ""
        predicted = predicted if label else None  # the epoch is of the schedule before
        return gantt_figure(epoch, facts.ranks, bound_s=bound, predicted_s=predicted, label=label), gantt_words(epoch)

    def _bound_of(self, epoch: Epoch, facts: ScheduleFacts) -> float | None:
        """Seconds that no schedule of the groups as they were measured in a whole epoch can beat."""
        if epoch.cut or epoch.groups != facts.groups:
            return None
        place = (epoch.attempt, epoch.number)
        if self._bound is None or self._bound[0] != place:
            times = [(block.end_ns - block.start_ns) / 1e9 for block in epoch.of("group")]
            self._bound = (place, lower_bound_s(times, facts.ranks, per_rank=facts.rank_groups))
        return self._bound[1]

    def _what_if(self, facts: ScheduleFacts, measured: NDArray[np.float64]) -> Panel:
        rows, used = self._replayed or tuple(rows_told(facts)), name_of(facts)
        bound = float(self._replayed[0]["bound_s"]) if self._replayed else facts.bound_s
        scale = 1.0 if self._replayed else facts.scale(measured)
        return what_if_figure(rows, bound_s=bound, used=used, scale=scale), what_if_words(
            rows, bound_s=bound, used=used
        )

    def figure(self) -> Figure:
        """All panels as one figure; the Gantt chart over its whole width."""
        return grid(self.panels(), title=f"Schedule: {self._in_use().label}", wide={0})

    def caption(self) -> str:
        """The schedule, the rank that sets the pace, and the waste, in words."""
        facts = self.facts
        if facts is None:
            return ""
        last = self.balance.last(facts.iterations)
        if last is None or facts.ranks == 1:
            return facts.words
        return f"{facts.words} {pace_words(last)} {share(last.waste)} of the ranks' time is waste."

    def _marks(self) -> dict[int, str]:
        """Epoch (from 1) -> scheduler, of schedules made in the middle of the run."""
        return {
            each.epoch + 1: each.facts.scheduler for each in self._known if each.step > 0 and each.facts is not None
        }


# What schedulers come to on many ranks: throughput and imbalance over the number of ranks, as the paper's Figure 5.


_GOOD = 0.85  # throughput the paper reaches at its largest cluster
_UNEVEN = 10.0  # largest ratio up to which the axis is plain


def simulation_figure(rows: Sequence[Row], *, paper: Mapping[int, float] | None = None) -> Figure:
    """Throughput, imbalance, distance to the bound and solve time over ranks, a line a scheduler.

    Args:
        rows: one for each number of ranks and scheduler, as ``scheduling.outcome.Outcome.row`` gives them; rows
            with different ``curve`` get panels of their own.
        paper: ranks -> throughput of DyGNeX-G, drawn beside; what the paper says (section 5.4) when not given.
    """
    reached = PAPER_THROUGHPUT if paper is None else paper
    curves = list(dict.fromkeys(str(row.get("curve") or "") for row in rows))
    names = list(dict.fromkeys(str(row["scheduler"]) for row in rows))
    panels: list[Panel] = []
    for draw in (_throughput, _imbalance, _idle, _solving):
        for curve in curves:
            mine = [row for row in rows if str(row.get("curve") or "") == curve]
            panels.append(draw(mine, names, f" · {curve}" if curve else "", reached))
    nothing = chart("Throughput", "ranks", "share of one rank's", [], empty="nothing simulated")
    return grid(panels or [(nothing, "")], title="Simulation of schedules on many ranks")


def epoch_times_figure(rows: Sequence[Row]) -> Panel:
    """Predicted epoch times by number of ranks, beside those measured, with the error in words.

    Args:
        rows: as ``scheduling.epoch_times.EpochTime.row`` gives them.
    """
    unit, factor = time_unit(max((row["predicted_s"] for row in rows), default=1.0))
    ranks = [str(row["ranks"]) for row in rows]
    above = {"textposition": "outside", "textangle": 0, "cliponaxis": False, "showlegend": True}
    data = []
    for name, colour in (("predicted", "#8CC7E8"), ("measured", "#D55E00")):
        seconds = [row.get(f"{name}_s") for row in rows]
        y = [None if each is None else round(each * factor, 5) for each in seconds]
        said = ["" if each is None else format_seconds(each) for each in seconds]
        data.append(bars(name, ranks, y, colour, f"%{{x}} ranks: %{{y:.4g}} {unit}", text=said, **above))
    least = [round(row["bound_s"] * factor, 5) for row in rows]
    dashes = {"symbol": "line-ew", "line": {"color": palette.WARNING_COLOUR, "width": 2.5}}
    looks: Drawn = {"size": 26, "marker": dashes, "hoverinfo": "skip"}
    data.append(points("no schedule is shorter", ranks, least, palette.WARNING_COLOUR, **looks))
    axes: Drawn = {"xaxis": {"type": "category", "showgrid": False}, "yaxis": {"rangemode": "tozero"}}
    grouped: Drawn = {"barmode": "group", "bargap": 0.35, "empty": "nothing predicted", **axes}
    errors = {row["ranks"]: row["error"] for row in rows if row.get("error") is not None}
    off = ", ".join(
        f"{share(abs(error))} too {'long' if error >= 0 else 'short'} on {r}" for r, error in errors.items()
    )
    words = f"Predicted epochs are {off} ranks." if off else "No measured epoch to compare with."
    titles = ("Epoch time on other numbers of ranks", "ranks", f"time of an epoch ({unit})")
    return chart(*titles, data if rows else [], **grouped), words


def _throughput(rows: list[Row], names: list[str], curve: str, paper: Mapping[int, float]) -> Panel:
    data = _lines(rows, names, "throughput")
    bound = {int(row["ranks"]): row["bound_throughput"] for row in rows if row.get("bound_throughput") is not None}
    hidden: Drawn = {"showlegend": False}
    if bound:
        known, name = sorted(bound), "bound: none can be better"
        hover = "%{x} ranks: %{y:.4f}"
        data.append(line(name, known, [bound[r] for r in known], hover=hover, width=1.5, dash="dash", **hidden))
    if paper:
        star: Drawn = {"size": 12, "marker": {"symbol": "star-open"}, **hidden}
        name, hover = "the paper's DyGNeX-G", "%{x} ranks: %{y:.3f}"
        data.append(points(name, list(paper), list(paper.values()), "black", hover, **star))
    least = min((value for trace in data for value in trace["y"] if value is not None), default=0.0)
    axis = {"range": [min(0.9 * least, 0.8), 1.02]}
    figure = _over_ranks(rows, f"Throughput per rank{curve}", "share of one rank's", data, axis)
    largest = max(int(row["ranks"]) for row in rows)
    last = {str(row["scheduler"]): row["throughput"] for row in rows if row["ranks"] == largest}
    best = max(last, key=lambda name: last[name])
    words = f"On {largest:,} ranks {best} keeps {share(last[best])} of one rank's throughput"
    words += f"; the bound is {share(bound[largest])}" if largest in bound else ""
    if "psg" in last and best != "psg":
        words += f" and psg keeps {share(last['psg'])}"
    marks = "Dashed: a bound of all schedules. " * bool(bound) + "Stars: the paper's DyGNeX-G. " * bool(paper)
    return figure, f"{words}.{_drop(rows, best)} {marks}".strip()


def _drop(rows: list[Row], name: str) -> str:
    """Where a scheduler falls below what the paper keeps at its largest cluster."""
    mine = sorted((int(row["ranks"]), float(row["throughput"])) for row in rows if row["scheduler"] == name)
    for (ranks, before), (more, after) in pairwise(mine):
        if before >= _GOOD > after:
            return f" It falls below {share(_GOOD)} between {ranks:,} and {more:,} ranks."
    return ""


def _imbalance(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> Panel:
    data = _lines(rows, names, "imbalance")
    top = max((value for trace in data for value in trace["y"] if value is not None), default=1.1)
    kind = {"type": "log"} if top > _UNEVEN else {"range": [1 - 0.05 * (top - 1 or 0.1), 1 + 1.08 * (top - 1 or 0.1)]}
    figure = _over_ranks(rows, f"Imbalance of an epoch{curve}", "most over least loaded rank (1)", data, kind)
    idle = any(row["imbalance"] is None for row in rows)
    return figure, "As the paper counts it, over whole epochs; 1 is even." + (
        " Gaps: a rank has nothing to do at all, so the ratio is infinite." if idle else ""
    )


def _idle(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> Panel:
    data = _lines(rows, names, "idle_share", 100.0)
    words = (
        "Time a rank waits in an iteration for the slowest one: this is what the throughput loses. With few groups a "
        "rank there is nothing left to balance."
    )
    axis = {"rangemode": "tozero"}
    return _over_ranks(rows, f"Waiting{curve}", "share of the ranks' time (%)", data, axis), words


def _solving(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> Panel:
    data = _lines(rows, names, "solve_s")
    axis = _decades([row["solve_s"] for row in rows])
    longest = max(rows, key=lambda row: float(row["solve_s"]))
    words = (
        f"Paid once. Longest: {longest['scheduler']} on {longest['ranks']:,} ranks, "
        f"{format_seconds(longest['solve_s'])} for {longest['groups']:,} groups."
    )
    return _over_ranks(rows, f"Time to make the schedule{curve}", "time", data, axis), words


def _lines(rows: list[Row], names: list[str], key: str, factor: float = 1.0) -> list[Drawn]:
    found = []
    for index, name in enumerate(names):
        mine = sorted((row for row in rows if row["scheduler"] == name), key=lambda row: int(row["ranks"]))
        y = [None if row.get(key) is None else round(row[key] * factor, 6) for row in mine]
        colour = palette.series_colour(index)
        marker = {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 7, "color": colour}
        looks: Drawn = {"hover": "%{x} ranks: %{y:.4g}", "mode": "lines+markers", "marker": marker}
        if mine:
            found.append(line(name, [int(row["ranks"]) for row in mine], y, colour, **looks))
    return found


def _over_ranks(rows: list[Row], title: str, y_title: str, data: list[Drawn], y_axis: Drawn) -> Figure:
    x_axis = counts_axis([int(row["ranks"]) for row in rows])
    return chart(title, "ranks", y_title, data, xaxis=x_axis, yaxis=y_axis, showlegend=True)


def _decades(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis of seconds over whole powers of ten."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = floor(log10(min(known))), ceil(log10(max(known)))
    ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
    said = [format_seconds(tick) for tick in ticks]
    return {"type": "log", "range": [low, max(high, low + 1)], "tickvals": ticks, "ticktext": said}
