"""The runs that can be compared: what is known of each without reading its records, and which are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.studies.comparison import difference_of_data

MOST = 8  # maximum number of compared runs, which is the number of colours
_STARTED = re.compile(r"^(\d{8})-(\d{6})-")


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in the list.

    Attributes:
        id: name of its folder.
        path: its folder.
        config: the settings with which it began; None if they cannot be read.
        ended: how it ended, or its current state.
        name: the name that a person gave it; empty without one.
        problem: why it cannot be read; empty if it can.
    """

    id: str
    path: Path
    config: RunConfig | None
    ended: str = ""
    name: str = ""
    problem: str = ""


def started_text(run_id: str, today: date | None = None) -> str:
    """Return the time of day in the name of a run's folder, with the date if it is not ``today``."""
    match = _STARTED.match(run_id)
    if match is None:
        return ""
    started = datetime.strptime(match[1] + match[2], "%Y%m%d%H%M%S")
    is_today = today is None or started.date() == today
    return f"{started:%H:%M}" if is_today else f"{started.day} {started:%b, %H:%M}"


def ended_text(status: str, epoch: int | None) -> str:
    """Return how a run ended, such as ``stopped at epoch 14``."""
    is_early = status in ("stopped", "failed", "interrupted") and epoch
    return f"{status} at epoch {epoch}" if is_early else status


def read_listed(path: Path) -> ListedRun:
    """Return a stored run as an entry of the list; if it cannot be read, the entry says why."""
    try:
        run = open_run(path)
        epoch = run.summary.get("epochs")
        return ListedRun(path.name, path, run.config, ended_text(run.status, epoch), run.directory.name())
    except LabError as error:
        return ListedRun(path.name, path, None, problem=str(error))


@dataclass(slots=True)
class RunChoice:
    """The runs that are compared, with their colours: those that a person ticked, otherwise the session's last runs.

    The newest ticked run of the session, or else the first ticked run, decides which others can be compared with it.
    """

    _ticks: dict[str, bool] = field(default_factory=dict)
    _colours: dict[str, int] = field(default_factory=dict)

    def tick(self, run_id: str, is_on: bool) -> None:
        """Add a run to the compared ones, or take it out."""
        self._ticks[run_id] = is_on

    def choose(self, session: Sequence[ListedRun], stored: Sequence[ListedRun]) -> dict[str, str]:
        """Return why runs cannot be compared, by id; compared runs are not in the result.

        Runs that are neither compared nor in the result may be ticked.

        Args:
            session: the session's runs, newest first.
            stored: earlier runs.
        """
        readable = [run for run in (*session, *stored) if run.config is not None]
        ticked_runs = [run for run in session if self._ticks.get(run.id, True)]
        ticked_runs += [run for run in stored if self._ticks.get(run.id, False)]
        reference = next((run.config for run in ticked_runs if run.config is not None), None)
        reasons: dict[str, str] = {}
        for run in readable:
            assert run.config is not None
            reason = "" if reference is None else difference_of_data(run.config, reference)
            if reason:
                reasons[run.id] = reason
        fitting = [run.id for run in ticked_runs if run.config is not None and run.id not in reasons]
        ticked = [run_id for run_id in fitting if self._ticks.get(run_id)]  # runs that a person ticked come first
        chosen_ids = [*ticked, *(run_id for run_id in fitting if run_id not in ticked)][:MOST]
        compared = [run_id for run_id in fitting if run_id in chosen_ids]
        self._colour(compared)
        return reasons

    def _colour(self, compared: Sequence[str]) -> None:
        """Give each run its own colour, which it keeps while it is compared."""
        self._colours = {run_id: index for run_id, index in self._colours.items() if run_id in compared}
        for run_id in reversed(compared):  # oldest first, so that a new run does not change other colours
            if run_id not in self._colours:
                self._colours[run_id] = min(set(range(MOST)) - set(self._colours.values()))

    @property
    def colours(self) -> Mapping[str, str]:
        """Compared run -> its colour, in order of colours."""
        order = sorted(self._colours.items(), key=lambda item: item[1])
        return {run_id: series_colour(index) for run_id, index in order}

    @property
    def is_full(self) -> bool:
        """Whether no further run can be compared."""
        return len(self._colours) >= MOST
