"""The event history of a run as one timeline over its attempts, for replays and comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, ControlError, RunStoreError
from dtdg_lab.records.events import ControlReceived, Event, Kernel, OverlapChosen, Refused, Resumed
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.frames import RunFrames

if TYPE_CHECKING:
    from dtdg_lab.training.replay import RecordedRequest, RunReplay


ENDLESS = 1 << 62
REPLAY = "replay"
Row = dict[str, Any]
E = TypeVar("E", bound=Event)


class Recorded(NamedTuple, Generic[E]):
    """An event with its attempt and step."""

    attempt: int
    step: int
    event: E


@dataclass(frozen=True)
class EventHistory:
    """The records of a run's attempts as one timeline: for a repeated step, the later attempt counts.

    Attributes:
        directory: folder of the run.
    """

    directory: RunDirectory

    def rows(self, table: str, rank: int = 0) -> Iterator[Row]:
        """Yield the rows of a rank in the timeline, in order, with their ``attempt``."""
        for row in self._all(rank).get(table, ()):
            if row["step"] < self.cut(row["attempt"]):
                yield row

    def event_rows(self, kind: str) -> list[Row]:
        """Return rank 0's events of a kind, including those at the step of a resume."""
        events = (row for row in self._all(0).get("events", ()) if row["kind"] == kind)
        return [row for row in events if row["step"] <= self.cut(row["attempt"])]

    def events(self, event_class: type[E]) -> list[Recorded[E]]:
        """Return rank 0's events of one class, with the attempt and the step of each."""
        return [
            Recorded(row["attempt"], row["step"], event_class.read(row["data"]))
            for row in self.event_rows(event_class.kind)
        ]

    def evaluations(self) -> Iterator[Row]:
        """Yield rank 0's evaluations in the timeline; evaluations of the test split only from the last attempt."""
        evaluations = self._all(0).get("evaluations", ())
        for row in evaluations:
            cut = self.cut(row["attempt"])
            if row["step"] <= cut and (cut == ENDLESS or row["split"] != "test"):
                yield row

    def cut(self, attempt: int) -> int:
        """Return the step at which a later attempt resumes; no limit for the last attempt."""
        return min((step for number, step in self._resumed.items() if number > attempt), default=ENDLESS)

    @cached_property
    def _resumed(self) -> dict[int, int]:
        events = (row for row in self._all(0).get("events", ()) if row["kind"] == Resumed.kind)
        return {row["attempt"]: row["step"] for row in events}

    @cached_property
    def _by_rank(self) -> dict[int, dict[str, list[Row]]]:
        return {}

    def _all(self, rank: int) -> dict[str, list[Row]]:
        if rank not in self._by_rank:
            tables: dict[str, list[Row]] = {}
            for table, row in RunFrames(self.directory).rows(rank):
                if table in ("steps", "events", "evaluations", "rounds", "targets", "decisions"):
                    tables.setdefault(table, []).append(row)
            self._by_rank[rank] = tables
        return self._by_rank[rank]

    # for replays of this run

    @property
    def config(self) -> RunConfig:
        """The settings at the start, including changes by a resume before the first step."""
        config = self.directory.config()
        for resumed in self.events(Resumed):
            if resumed.step <= self.first_step:
                config = config.replace(**resumed.event.changes)
        return config

    @property
    def first_step(self) -> int:
        """The first step: 0, except for a fork."""
        return int(self.directory.environment().get("forked", {}).get("step", 0))

    @property
    def threads(self) -> int:
        """Threads of each rank in the last attempt; 0 if it did not reach its first step."""
        return self.events(Kernel)[-1].event.threads if self.event_rows(Kernel.kind) else 0

    @property
    def averaged(self) -> bool:
        """Whether ranks were asynchronous for a while."""
        return any(next(self.rows("rounds", rank), None) is not None for rank in self.directory.record_files())

    def check_repeatable(self) -> None:
        """Refuse a run that cannot be replayed.

        Raises:
            ControlError: it is active.
            ConfigError: its records do not determine it.
            RunStoreError: it completed no step.
        """
        state, name = self.directory.status()["state"], self.directory.id
        if state not in ENDED:
            raise ControlError(
                f"run {name} is {state}: only a run that has ended can be replayed. Wait for it, or stop it."
            )
        if next(self.rows("steps"), None) is None:
            raise RunStoreError(f"run {name} completed no step: there is nothing to replay. Train its config again.")
        if self.averaged and (self._resumed or state == "failed"):
            how = "failed" if state == "failed" else "was resumed"
            raise ConfigError(
                f"run {name} {how}, and its ranks averaged models: each rank was at a different step when it ended, "
                "and records of rounds do not determine the next one. A run with exchange='models' can be replayed if "
                "it finished, or was stopped, in one attempt."
            )

    def replay(self, rank: int) -> RunReplay:
        """Return the record of a rank."""
        from dtdg_lab.training.replay import RunReplay

        return RunReplay.of(
            self.rows("rounds", rank),
            self.rows("targets", rank),
            self.rows("steps", rank),
            requests=self._requests(),
            plans={**self._schedules(), **self._overlaps()},
            compute=self._compute(),
            refused=self._refused(),
            decisions=self._decisions(),
        )

    def _requests(self) -> tuple[RecordedRequest, ...]:
        from dtdg_lab.training.control import STEP
        from dtdg_lab.training.replay import RecordedRequest

        last = max(row["attempt"] for row in self._all(0)["events"])
        requests: list[tuple[float, RecordedRequest]] = [
            (attempt, RecordedRequest(step, received.received_at, {**received.request, "by": replayed_by(received.by)}))
            for attempt, step, received in self.events(ControlReceived)
            if attempt == last or not received.request.get("stop")
        ]
        for attempt, step, resumed in self.events(Resumed):
            if step > self.first_step:
                earlier = [request for number, request in requests if number < attempt and request.step == step]
                payload = {"set": resumed.changes, "pause": False, "by": replayed_by("resume")}
                requests.append(
                    (attempt - 0.5, RecordedRequest(step, earlier[-1].received_at if earlier else STEP, payload))
                )
        if self.directory.status()["state"] == "failed":  # its later steps are unknown
            steps = (row["step"] for rank in self.directory.record_files() for row in self.rows("steps", rank))
            ends = max(steps) + 1
            requests.append((last + 1, RecordedRequest(ends, STEP, {"stop": True})))
        return tuple(request for _, request in sorted(requests, key=lambda item: item[0]))

    def _schedules(self) -> dict[tuple[int, str], list[Row]]:
        """Return the events that created a schedule, without those of resumed ones."""
        schedules: dict[tuple[int, str], list[Row]] = {}
        began: set[int] = set()
        resumed = {resume.attempt: resume.event for resume in self.events(Resumed)}
        latest: dict[tuple[int, str], int] = {}
        for row in self.event_rows("schedule"):
            attempt, data = row["attempt"], row["data"]
            is_first = attempt not in began
            began.add(attempt)
            if "scheduler" not in data:
                continue
            came = "build" if "rebuild_s" in data or is_first else "epoch"
            starts = is_first and "rebuild_s" not in data
            if starts and attempt in resumed and not _rebuilds(resumed[attempt]):
                continue
            key = (row["step"], came)
            if latest.setdefault(key, attempt) < attempt or (
                attempt in resumed and row["step"] == self._resumed[attempt]
            ):
                schedules[key] = []
            latest[key] = attempt
            schedules.setdefault(key, []).append(data)
        return schedules

    def _overlaps(self) -> dict[tuple[int, str], list[Row]]:
        """Return the choices of overlap by the step after the epoch at whose end they were made."""
        choices = (row for row in self.rows("events") if row["kind"] == OverlapChosen.kind)
        return {(row["step"], "epoch"): [row["data"]] for row in choices}

    def _compute(self) -> list[tuple[int, Row]]:
        """Return the choices of backend and memory limits by step; none of runs that did not record them."""
        choices = [(recorded.step, recorded.event) for recorded in self.events(Kernel)]
        return [(step, choice.write()) for step, choice in choices if choice.memory_share is not None]

    def _refused(self) -> dict[tuple[int, str], list[str]]:
        from dtdg_lab.training.replay import changes_key

        refusals: dict[tuple[int, str], list[str]] = {}
        for _, step, refused in self.events(Refused):
            if refused.version is None:
                continue  # the ranks never received it
            refusals.setdefault((step, changes_key(refused.changes)), []).append(refused.reason)
        return refusals

    def _decisions(self) -> dict[int, list[tuple[Any, ...]]]:
        decisions: dict[int, list[tuple[Any, ...]]] = {}
        for row in self.rows("decisions"):
            if row["policy"] != "greedy":  # windows are tuned by losses, so replays repeat them
                decisions.setdefault(row["step"], []).append(tuple(row[name] for name in TABLES["decisions"][2:]))
        return decisions


def replayed_by(by: str | None) -> str:
    """Return who makes a request in a replay, by who made it in the run; the same in the replay of a replay."""
    if by is None:
        return REPLAY
    return by if by.startswith(REPLAY) else f"{REPLAY} of {by}"


def _rebuilds(resumed: Resumed) -> bool:
    """Return whether a resume created another plan: with changed plan settings, at the end of an epoch."""
    live = (OPTIONS[name].live if name in OPTIONS else "epoch" for name in resumed.changes)
    return not resumed.iteration and "epoch" in live
