"""Event history of a run, from its records: one timeline, for replays and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, ControlError, RunStoreError
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.records import TABLES
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.records import RunTables

if TYPE_CHECKING:
    from dtdg_lab.training.replay import RecordedRequest, RunReplay


ENDLESS = 1 << 62
Row = dict[str, Any]


@dataclass(frozen=True)
class EventHistory:
    """The records of a run's attempts as one timeline: for a repeated step, the later attempt counts.

    Attributes:
        directory: of the run.
    """

    directory: RunDirectory

    def rows(self, table: str, rank: int = 0) -> Iterator[Row]:
        """The rows of a rank in the timeline, in order, with the number of their ``attempt``."""
        for row in self._all(rank).get(table, ()):
            if row["step"] < self.cut(row["attempt"]):
                yield row

    def events(self, kind: str) -> list[Row]:
        """Rank 0's events of a kind, including those at the step of a resume."""
        found = (row for row in self._all(0).get("events", ()) if row["kind"] == kind)
        return [row for row in found if row["step"] <= self.cut(row["attempt"])]

    def evaluations(self) -> Iterator[Row]:
        """Rank 0's evaluations in the timeline; those of the test split only from the last attempt, which ended it."""
        found = self._all(0).get("evaluations", ())
        for row in found:
            cut = self.cut(row["attempt"])
            if row["step"] <= cut and (cut == ENDLESS or row["split"] != "test"):
                yield row

    def cut(self, attempt: int) -> int:
        """The step at which a later attempt resumes; the last attempt has none."""
        return min((step for number, step in self._resumed.items() if number > attempt), default=ENDLESS)

    @cached_property
    def _resumed(self) -> dict[int, int]:
        found = (row for row in self._all(0).get("events", ()) if row["kind"] == "resumed")
        return {row["attempt"]: row["step"] for row in found}

    @cached_property
    def _by_rank(self) -> dict[int, dict[str, list[Row]]]:
        return {}

    def _all(self, rank: int) -> dict[str, list[Row]]:
        if rank not in self._by_rank:
            tables: dict[str, list[Row]] = {}
            for table, row in RunTables(self.directory).rows(rank):
                if table in ("steps", "events", "evaluations", "rounds", "targets", "decisions"):
                    tables.setdefault(table, []).append(row)
            self._by_rank[rank] = tables
        return self._by_rank[rank]

    # what a replay of this run needs

    @property
    def config(self) -> RunConfig:
        """The settings at its start, with changes made by a resume before the first step."""
        config = self.directory.config()
        for row in self.events("resumed"):
            if row["step"] <= self.first_step:
                config = config.replace(**row["data"].get("changes", {}))
        return config

    @property
    def first_step(self) -> int:
        """The step of its start: 0, except for a fork."""
        return int(self.directory.environment().get("forked", {}).get("step", 0))

    @property
    def threads(self) -> int:
        """Threads of each rank in its last attempt; 0 if a run of an older version did not record them."""
        described = [row["data"].get("threads", 0) for row in self.events("kernel")]
        return int(described[-1]) if described else 0

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
        config = self.config
        if "sampler" in config.flat and config["sampler"] == "dgl":
            raise ConfigError(
                f"run {name} had sampler='dgl', whose draws are not recorded and not reproducible. For replays, "
                "train with "
                "sampler='own'."
            )
        if self.averaged and (self._resumed or state == "failed"):
            how = "failed" if state == "failed" else "was resumed"
            raise ConfigError(
                f"run {name} {how}, and its ranks averaged models: each rank was at a different step when it ended, "
                "and "
                "records of rounds do not determine the next one. A run with exchange='models' can be replayed if it "
                "finished, or was stopped, in one attempt."
            )
        if self.averaged and not self._has_requests and self.events("knob"):
            raise ConfigError(
                f"run {name} had live changes while its ranks averaged models, and the version of DTDG Lab that "
                "recorded it "
                "kept no control requests. Record a new run."
            )
        for row in self.events("resumed"):
            if "changes" not in row["data"]:
                raise ConfigError(
                    f"run {name} was resumed, and the version of DTDG Lab that recorded it did not store the "
                    "changes. Record, and resume, a new run."
                )

    @property
    def _has_requests(self) -> bool:
        """Whether control requests are in the records."""
        return self.threads > 0

    def replay(self, rank: int) -> RunReplay:
        """The record of a rank."""
        from dtdg_lab.training.replay import RunReplay

        return RunReplay.of(
            self.rows("rounds", rank),
            self.rows("targets", rank),
            self.rows("steps", rank),
            requests=self._requests(),
            schedules=self._schedules(),
            refused=self._refused(),
            decisions=self._decisions(),
        )

    def _requests(self) -> tuple[RecordedRequest, ...]:
        from dtdg_lab.training.replay import STEP, RecordedRequest

        last = max(row["attempt"] for row in self._all(0)["events"])
        asked = self.events("asked") if self._has_requests else self._requests_from_effects()
        found = [
            (row["attempt"], RecordedRequest(row["step"], row["data"]["heard"], row["data"]["request"]))
            for row in asked
            if row["attempt"] == last or not row["data"]["request"].get("stop")
        ]
        for row in self.events("resumed"):
            if row["step"] > self.first_step:
                before = [of for attempt, of in found if attempt < row["attempt"] and of.step == row["step"]]
                payload = {"set": row["data"]["changes"], "pause": False}
                received = before[-1].received if before else STEP
                found.append((row["attempt"] - 0.5, RecordedRequest(row["step"], received, payload)))
        if self.directory.status()["state"] == "failed":  # its later steps are unknown
            steps = (row["step"] for rank in self.directory.record_files() for row in self.rows("steps", rank))
            ends = max(steps) + 1
            found.append((last + 1, RecordedRequest(ends, STEP, {"stop": True})))
        return tuple(of for _, of in sorted(found, key=lambda item: item[0]))

    def _requests_from_effects(self) -> list[Row]:
        """Requests of a run that recorded only their effects."""
        made = [
            {**row, "data": {"request": {"set": row["data"]["changes"]}, "heard": "step"}}
            for row in self.events("knob")
            if "by" not in row["data"]
        ]
        stops = [{**row, "data": {"request": {"stop": True}, "heard": "step"}} for row in self.events("stopping")]
        return sorted([*made, *stops], key=lambda row: (row["attempt"], row["step"]))

    def _schedules(self) -> dict[tuple[int, str], list[Row]]:
        """The schedule events that created a schedule, without those of resumed ones."""
        found: dict[tuple[int, str], list[Row]] = {}
        began: set[int] = set()
        resumed = {row["attempt"]: row for row in self.events("resumed")}
        latest: dict[tuple[int, str], int] = {}
        for row in self.events("schedule"):
            attempt, data = row["attempt"], row["data"]
            is_first = attempt not in began
            began.add(attempt)
            if "scheduler" not in data:
                continue
            came = "build" if "rebuild_s" in data or is_first else "epoch"
            starts = is_first and "rebuild_s" not in data
            if starts and attempt in resumed and not _rebuilds(resumed[attempt]["data"]):
                continue
            at = (row["step"], came)
            if latest.setdefault(at, attempt) < attempt or (
                attempt in resumed and row["step"] == self._resumed[attempt]
            ):
                found[at] = []
            latest[at] = attempt
            found.setdefault(at, []).append(data)
        return found

    def _refused(self) -> dict[tuple[int, str], list[str]]:
        from dtdg_lab.training.replay import changes_key

        found: dict[tuple[int, str], list[str]] = {}
        for row in self.events("refused"):
            found.setdefault((row["step"], changes_key(row["data"]["changes"])), []).append(row["data"]["reason"])
        return found

    def _decisions(self) -> dict[int, list[tuple[Any, ...]]]:
        found: dict[int, list[tuple[Any, ...]]] = {}
        for row in self.rows("decisions"):
            if row["policy"] != "greedy":  # windows are tuned by losses, so replays repeat them
                found.setdefault(row["step"], []).append(tuple(row[name] for name in TABLES["decisions"][2:]))
        return found


def _rebuilds(resumed: Mapping[str, Any]) -> bool:
    """Whether a resume created another plan: with changed plan settings, at the end of an epoch."""
    live = (OPTIONS[name].live if name in OPTIONS else "epoch" for name in resumed["changes"])
    return not resumed["iteration"] and "epoch" in live
