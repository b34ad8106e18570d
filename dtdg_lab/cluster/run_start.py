"""The start of a run: from scratch, from a checkpoint of another run, or as a replay of another run's records."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.event_history import EventHistory
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.records.requests import Request, Stop
from dtdg_lab.runs.directory import RunDirectory

if TYPE_CHECKING:
    from dtdg_lab.training.recorder import Recorder
    from dtdg_lab.training.replay import RunReplay


FORKED, REPLAYS = "forked", "replays"  # keys in environment.json, and kinds of events


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of one rank.

    Attributes:
        origins: kind of event (fork or replay) -> its data.
        begin: checkpoint of another run, if any.
        replay: records of this rank in another run, if any.
        threads: threads of each rank in the other run; 0 if irrelevant or unknown.
    """

    origins: dict[str, dict[str, Any]]
    begin: Path | None = None
    replay: RunReplay | None = None
    threads: int = 0

    @classmethod
    def of(cls, directory: RunDirectory, rank: int, *, attempt: int = 1) -> RunStart:
        """Read the start from a run's folder.

        Raises:
            ControlError: a replay cannot be resumed.
            LabError: the other run's records cannot be read.
        """
        environment = directory.environment()
        origins = {kind: environment[kind] for kind in (FORKED, REPLAYS) if kind in environment}
        if attempt > 1:
            check_resumable(directory)
        if attempt > 1 and directory.checkpoint_file.is_file():
            return cls({}, threads=int(origins.get(FORKED, {}).get("threads", 0)))
        threads = max((int(facts.get("threads", 0)) for facts in origins.values()), default=0)
        begin = directory.begin_file if FORKED in origins else None
        replay = None
        if REPLAYS in origins:
            replay = EventHistory(repeated_by(directory)).replay(rank)
        return cls(origins, begin, replay, threads)

    @property
    def check(self) -> Callable[[Request], None] | None:
        """A check that refuses requests to a replay; None for other runs, which accept them."""
        if self.replay is None:
            return None
        averages = bool(self.replay.rounds)

        def refuse(request: Request) -> None:
            if not isinstance(request, Stop) or averages:
                allowed = "session.close() ends it" if averages else "run.stop() ends it"
                raise ControlError(f"a replay repeats its run and accepts no requests of its own: {allowed}.")

        return refuse

    def report(self, recorder: Recorder) -> None:
        """Record the start, as events at its step."""
        origin = self.origins.get(FORKED, {})
        for kind, facts in self.origins.items():
            recorder.row("events", (origin.get("step", 0), origin.get("epoch", 0), time.time_ns(), kind, facts))


def check_resumable(directory: RunDirectory) -> None:
    """Raise if a run is a replay, which cannot be resumed: it would continue without the records that it follows.

    Raises:
        ControlError: the run is a replay.
    """
    origin = directory.environment().get(REPLAYS)
    if origin is not None:
        raise ControlError(
            f"run {directory.id} replays run {origin['run']} and cannot be resumed. Replay that run again."
        )


def repeated_by(directory: RunDirectory) -> RunDirectory:
    """Return the original run of a replay.

    Raises:
        ConfigError: it is not a replay.
        RunStoreError: the original run was moved.
    """
    origin = directory.environment().get(REPLAYS)
    if origin is None:
        raise ConfigError(f"run {directory.id} is not a replay. Create one: lab.runs.replay({str(directory.path)!r}).")
    return RunDirectory.open((directory.path / origin["path"]).resolve())
