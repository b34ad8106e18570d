"""Other schedulers and other numbers of ranks for a run's groups, asked by a thread: the page must not wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.dash.actions import describe
from dtdg_lab.dash.calibration import Calibration, measured_epochs
from dtdg_lab.dash.newest_first import NewestFirst
from dtdg_lab.scheduling.epoch_times import predict_epochs
from dtdg_lab.scheduling.replay import replay
from dtdg_lab.views.what_if import name_of

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

RANKS = (1, 2, 4, 8, 16)
TIME_LIMIT_S = 1.0  # for each scheduler that searches
_LOG = logging.getLogger(__name__)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """The run whose schedule is looked at, its settings then, and what it had measured."""

    run: Run
    config: RunConfig
    measured: Calibration


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows of ``scheduling.replay`` and of ``scheduling.epoch_times``; what could not be had is in ``why_not``."""

    others: tuple[Row, ...] = ()
    epochs: tuple[Row, ...] = ()
    why_not: str = ""


class ScheduleAsker:
    """Answers what was asked last; ``on_outcome(wanted, outcome)`` is called by the thread.

    Args:
        runs: gives the session's runs, oldest first, whose epochs are compared with; called by the thread.
        on_outcome: takes each answer.
    """

    def __init__(self, runs: Callable[[], Sequence[Run]], on_outcome: Callable[[Wanted, Outcome], None]) -> None:
        self._runs, self._on_outcome = runs, on_outcome
        self._worker = NewestFirst(self._work, "dashboard-schedules")

    def ask(self, wanted: Wanted) -> None:
        """Answer this next."""
        self._worker.ask(wanted)

    def close(self) -> None:
        """End the thread once it has finished what it does."""
        self._worker.close()

    def _work(self, wanted: Wanted) -> None:
        self._on_outcome(wanted, self._answer(wanted))

    def _answer(self, wanted: Wanted) -> Outcome:
        problems: list[str] = []

        def tried(what: str, ask: Callable[[], tuple[Row, ...]]) -> tuple[Row, ...]:
            try:
                return ask()
            except Exception as error:  # one answer that fails leaves the other; there is no caller to raise to
                if not isinstance(error, LabError):
                    _LOG.exception("%s", what)
                problems.append(f"{what}: {describe(error)}")
                return ()

        others = tried("the other schedulers", lambda: _others(wanted, problems))
        epochs = tried("other numbers of ranks", lambda: self._epochs(wanted))
        return Outcome(others, epochs, " ".join(problems))

    def _epochs(self, wanted: Wanted) -> tuple[Row, ...]:
        known = wanted.measured
        measured = measured_epochs(known, wanted.config, self._runs())
        ranks = {*(count for count in RANKS if count <= len(known.times_s)), known.facts.ranks, *measured}
        found = predict_epochs(
            known.times_s, measured_on=known.facts.ranks, ranks=sorted(ranks), scheduler=known.scheduler,
            per_rank=known.per_rank, allreduce_s=known.exchange_s, step_s=known.step_s, measured_s=measured,
            time_limit_s=TIME_LIMIT_S, seed=wanted.config.seed,
        )  # fmt: skip
        return tuple(each.row() for each in found)


def _others(wanted: Wanted, problems: list[str]) -> tuple[Row, ...]:
    """What the schedulers of the catalogue would come to, the one in use among them."""
    known = wanted.measured
    facts = known.facts

    def ask(schedulers: Sequence[str] | None) -> tuple[Row, ...]:
        found = replay(
            known.times_s, facts.ranks, per_rank=known.per_rank, allreduce_s=known.exchange_s, schedulers=schedulers,
            time_limit_s=TIME_LIMIT_S, seed=wanted.config.seed,
        )  # fmt: skip
        problems.extend(f"{name}: {why}" for name, why in found.missing)
        return tuple(found.rows())

    rows = ask(None)
    in_use = name_of(facts)
    return rows if any(row["scheduler"] == in_use for row in rows) else (*rows, *ask([in_use]))
