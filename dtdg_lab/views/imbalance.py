"""How evenly a schedule loads the ranks, epoch by epoch: imbalance, waste, and who is on the critical path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, PHASE_COLOURS, PURGE_COLOUR
from dtdg_lab.views.phases import BALANCED, OWN
from dtdg_lab.views.schedule_facts import share
from dtdg_lab.views.series import Series

_OPEN = 2  # epochs whose iterations are kept, so that late ranks and resumed steps find theirs
_POINTS = 400
_RATIOS = {
    "most over least loaded rank": "most_over_least",
    "slowest over mean of an iteration": "max_over_mean",
}


@dataclass(frozen=True, slots=True)
class EpochBalance:
    """Own time (batch, transfer, compute; no waiting) of R ranks in the I iterations of an epoch that all have told.

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
        self._open: dict[int, dict[int, dict[int, _Told]]] = {}  # epoch, step, rank
        self._known: list[EpochBalance] | None = None  # of the open ones, until there are more rows

    def step(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``steps``."""
        epoch, step = int(row["epoch"]), int(row["step"])
        last = self._series["own"].last
        if (last is not None and epoch <= last.seconds) or not 0 <= rank < self._ranks:
            return
        self._known = None
        own = sum(float(row.get(f"{phase}_s") or 0.0) for phase in OWN)
        ranks = self._open.setdefault(epoch, {}).setdefault(step, {})
        ranks.setdefault(rank, _Told(own, float(row.get("time_s") or own), attempt))
        while len(self._open) > _OPEN:
            self._close(min(self._open))

    def _close(self, epoch: int) -> None:
        found, steps = self._balance(epoch), self._open.pop(epoch)
        if found is not None:
            attempt = max(told.attempt for ranks in steps.values() for told in ranks.values())
            for name, series in self._series.items():
                series.add(max(steps), epoch, getattr(found, name), attempt)

    def _balance(self, epoch: int) -> EpochBalance | None:
        """Of the iterations that all ranks have told; None before there is one."""
        told = [ranks for ranks in self._open[epoch].values() if len(ranks) == self._ranks]
        if not told:
            return None
        own, whole = (
            np.array([[ranks[rank][which] for rank in range(self._ranks)] for ranks in told]) for which in (0, 1)
        )
        return balance_of(epoch, own, whole)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        self._known = None
        for series in self._series.values():
            series.truncate(step, attempt)
        for epoch, steps in list(self._open.items()):
            kept = {
                known: {rank: told for rank, told in ranks.items() if known < step or told.attempt >= attempt}
                for known, ranks in steps.items()
            }
            self._open[epoch] = {known: ranks for known, ranks in kept.items() if ranks}
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

    def told(self, name: str) -> tuple[list[int], list[float | None]]:
        """Epochs from 1, and a value for each: ``most_over_least``, ``max_over_mean``, ``own`` or ``waste``."""
        points, recent = self._series[name].points, self.recent()
        epochs = [int(point.seconds) + 1 for point in points] + [each.epoch + 1 for each in recent]
        return epochs, [point.value for point in points] + [getattr(each, name) for each in recent]


class _Told(NamedTuple):
    """What a rank told of a step: own and whole seconds, and in which attempt."""

    own_s: float
    time_s: float
    attempt: int


def imbalance_figure(log: BalanceLog, marks: Mapping[int, str] | None = None) -> Figure:
    """Two ratios over epochs, 1 where the work is even.

    Args:
        log: of the run.
        marks: epoch (from 1) -> the schedule that begins with it.
    """
    data: list[dict[str, Any]] = []
    for index, (name, key) in enumerate(_RATIOS.items()):
        epochs, values = log.told(key)
        line = {"color": ("#0072B2", "#D55E00")[index], "width": 2, "dash": ("solid", "dash")[index]}
        data.append({
            "type": "scatter", "mode": "lines+markers" if len(epochs) <= 60 else "lines", "name": name, "x": epochs,
            "y": [None if value is None else round(value, 5) for value in values], "line": line,
            "marker": {"size": 5}, "hovertemplate": "epoch %{x}: %{y:.3f}",
        })  # fmt: skip
    known = [value for trace in data for value in trace["y"] if value is not None]
    top = max(known, default=1.1) - 1 or 0.1
    even = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1,
            "line": {"color": BASELINE_COLOUR, "width": 1, "dash": "dot"}}  # fmt: skip
    layout = frame(
        "Imbalance of own time", "epoch", "ratio (1 is even)", xaxis=_epochs(data[0]["x"]), showlegend=True,
        yaxis={"range": [1 - 0.06 * top, 1 + 1.1 * top]}, shapes=[even] if known else [],
    )  # fmt: skip
    layout = _marked(layout, marks or {})
    return {"data": data, "layout": layout if known else with_note(layout, "no whole iteration yet")}


def shares_figure(log: BalanceLog, marks: Mapping[int, str] | None = None) -> Figure:
    """Where the ranks' time goes, over epochs: own work, waste, and the rest; own work and waste are critical path."""
    epochs, own = log.told("own")
    _, waste = log.told("waste")
    kinds: dict[str, tuple[Sequence[float | None], str]] = {
        "own work": (own, PHASE_COLOURS["compute"]),
        "waste: idle behind the slowest": (waste, PURGE_COLOUR),
        "exchange and rest": ([1 - (a or 0) - (b or 0) for a, b in zip(own, waste, strict=True)], "#E9D5E1"),
    }
    data = [
        {
            "type": "scatter", "mode": "lines" if len(epochs) > 1 else "lines+markers", "name": name, "x": epochs,
            "y": [round(100 * (value or 0), 3) for value in values], "stackgroup": "time", "fillcolor": colour,
            "line": {"width": 0.5, "color": colour}, "hovertemplate": "epoch %{x}: %{y:.1f} %",
        }
        for name, (values, colour) in kinds.items()
    ]  # fmt: skip
    layout = frame(
        "Where the ranks' time goes", "epoch", "share of all ranks' time (%)", xaxis=_epochs(epochs), showlegend=True,
        yaxis={"range": [0, 100]},
    )  # fmt: skip
    layout = _marked(layout, marks or {})
    return {"data": data, "layout": layout if epochs else with_note(layout, "no whole iteration yet")}


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
        return "One rank: nobody waits for it."
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


def _epochs(epochs: list[int]) -> dict[str, Any]:
    """An axis of whole numbers."""
    if not epochs:
        return {}
    span = epochs[-1] - epochs[0]
    room = 0.02 * (span or 25)
    return {"dtick": max(1, -(-span // 10)), "range": [epochs[0] - room, epochs[-1] + room]}


def _marked(layout: dict[str, Any], marks: Mapping[int, str]) -> dict[str, Any]:
    """A line and a name where a schedule begins."""
    colour = BASELINE_COLOUR
    for epoch, name in marks.items():
        layout["shapes"] = [*layout["shapes"], {
            "type": "line", "xref": "x", "yref": "paper", "x0": epoch, "x1": epoch, "y0": 0, "y1": 1,
            "line": {"color": colour, "width": 1.2, "dash": "dot"},
        }]  # fmt: skip
        layout["annotations"] = [*layout["annotations"], {
            "text": name, "x": epoch, "xref": "x", "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "top",
            "textangle": -90, "showarrow": False, "font": {"size": 10, "color": colour},
            "bgcolor": "rgba(255,255,255,0.7)",
        }]  # fmt: skip
    return layout
