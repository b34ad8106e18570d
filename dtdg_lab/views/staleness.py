"""Averaging of models: how many steps a rank had made since it gave the model that a mean is of, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import series_colour
from dtdg_lab.views.rank_steps import RankSteps

Panel = tuple[Figure, str]
KEPT = 400  # rounds of a rank
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

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        # rank -> attempt, step at which it was applied, number: numbers begin anew where a run is built again
        self._rounds: dict[int, dict[tuple[int, int, int], RankRound]] = {}

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row."""
        rounds = self._rounds.setdefault(rank, {})
        number, weight = int(row["number"]), 1.0 if row["weight"] is None else float(row["weight"])
        gathered = bool(row.get("gathered", weight == 0))  # older records do not say: a rank had weight 0 then
        applied = int(row["applied_step"])
        rounds[attempt, applied, number or _OF_ALL] = RankRound(
            number, int(row["joined_step"]), applied, weight, gathered, attempt
        )  # fmt: skip
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
        "Staleness of averaged models", "step of the rank (model updates)", "steps since it gave its model",
        **{"yaxis": {"rangemode": "tozero"}, "showlegend": True, **marks.over_steps(applied)},
    )  # fmt: skip
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines+markers", "name": f"rank {rank}", "x": [each.applied for each in found],
            "y": [each.staleness for each in found], "line": {"color": series_colour(rank), "width": 1.5},
            "marker": {"color": series_colour(rank), "size": 4}, "customdata": [each.number for each in found],
            "showlegend": len(rounds) <= _NAMED,
            "hovertemplate": "round %{customdata}, step %{x}: %{y}<extra>%{fullData.name}</extra>",
        }
        for rank, found in rounds.items()
    ]  # fmt: skip
    figure = {"data": data, "layout": layout if data else with_note(layout, NO_ROUND)}
    return figure, staleness_words(log, steps, since=since)


def staleness_words(log: RoundLog, steps: RankSteps, *, since: int = 0) -> str:
    """How stale the means were that ranks took, and how often they did."""
    look = "A slow rank should lag by few steps of its own, and must not slow the others: look whether lines stay flat."
    rounds = log.rounds(since=since)
    if not rounds:
        return f"No rank waits for a round: a mean comes some steps after a rank gave its model. {look}"
    stale = {rank: [each.staleness for each in found if each.weight > 0] for rank, found in rounds.items()}
    told = [f"{sum(found) / len(found):.1f} on rank {rank}" for rank, found in stale.items() if found]
    most = max((each for found in stale.values() for each in found), default=0)
    text = f"Means were stale by {join_words(told)} steps on average, {most} at most" if told else "Ranks have finished"
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
