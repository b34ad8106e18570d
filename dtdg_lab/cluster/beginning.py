"""What a run begins with: nothing, a checkpoint of another run, or the records of one that it repeats."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.story import Story
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.runs.directory import RunDirectory

if TYPE_CHECKING:
    from dtdg_lab.training.interfaces import Recorder
    from dtdg_lab.training.replay import Replay

FORKED, REPLAYS = "forked", "replays"  # in environment.json, and kinds of events


@dataclass(frozen=True, slots=True)
class Beginning:
    """What one rank begins with.

    Attributes:
        told: kind of event -> what it says.
        begin: the checkpoint of another run.
        replay: what this rank did in another run.
        threads: of each rank, as the other run had them; 0 where that is not to be, or not known.
    """

    told: dict[str, dict[str, Any]]
    begin: Path | None = None
    replay: Replay | None = None
    threads: int = 0

    @classmethod
    def of(cls, directory: RunDirectory, rank: int, *, attempt: int = 1) -> Beginning:
        """As a run's folder says.

        Raises:
            ControlError: a replay is to be resumed.
            LabError: the other run's records cannot be read.
        """
        environment = directory.environment()
        told = {kind: environment[kind] for kind in (FORKED, REPLAYS) if kind in environment}
        if attempt > 1:
            check_resumable(directory)
            return cls({}, threads=int(told.get(FORKED, {}).get("threads", 0)))
        threads = max((int(facts.get("threads", 0)) for facts in told.values()), default=0)
        begin = directory.begin_file if FORKED in told else None
        replay = None
        if REPLAYS in told:
            replay = Story(repeated_by(directory)).replay(rank)
        return cls(told, begin, replay, threads)

    @property
    def check(self) -> Callable[[dict[str, Any]], None] | None:
        """What refuses control requests to a replay; None where it is none, and takes what any run takes."""
        if self.replay is None:
            return None
        apart = bool(self.replay.rounds)

        def refuse(request: dict[str, Any]) -> None:
            if request != {"stop": True} or apart:
                allowed = "session.close() ends it" if apart else "run.stop() ends it"
                raise ControlError(f"a replay does what its run did, and takes no requests of its own: {allowed}.")

        return refuse

    def tell(self, recorder: Recorder) -> None:
        """Write down what it begins with, as events at the step where it does."""
        at = self.told.get(FORKED, {})
        for kind, facts in self.told.items():
            recorder.row("events", (at.get("step", 0), at.get("epoch", 0), time.time_ns(), kind, facts))


def check_resumable(directory: RunDirectory) -> None:
    """Refuse to resume a replay, which would go on without the records that it follows.

    Raises:
        ControlError: it is one.
    """
    told = directory.environment().get(REPLAYS)
    if told is not None:
        raise ControlError(f"run {directory.id} repeats run {told['run']}, and is not resumed: repeat that run anew.")


def repeated_by(directory: RunDirectory) -> RunDirectory:
    """The run that a replay repeats.

    Raises:
        ConfigError: it is no replay.
        RunStoreError: that run is no longer where it was.
    """
    told = directory.environment().get(REPLAYS)
    if told is None:
        raise ConfigError(f"run {directory.id} is no replay. Make one: lab.replay({str(directory.path)!r}).")
    return RunDirectory.open((directory.path / told["path"]).resolve())
