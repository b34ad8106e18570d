"""Whole snapshot groups on each part: data parallelism over time, with a schedule that follows from measured times."""

from __future__ import annotations

import functools
import json
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, PlanError
from dtdg_lab.core.plans import Schedule, SnapshotGroups
from dtdg_lab.core.system_errors import error_text
from dtdg_lab.distributed.group import Group, gather_texts, hash_of_host
from dtdg_lab.engine.backprop.reference import GroupRunner
from dtdg_lab.engine.capabilities import RECORDED_PLAN, ObservesSteps, Replannable, StepOutcome
from dtdg_lab.engine.strategy import BuildContext, RecordRows, Step, StepMarks, StepResult, Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.records.events import Event
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s, solve
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import schedule_round_robin as round_robin
from dtdg_lab.systems.snapshot_groups.time_model import fit

LEAST_GROUPS = 2  # one group is the whole part: nothing to deal out


def snapshot_groups(train: range, *, window: int, stride: int) -> SnapshotGroups:
    """Groups of ``window`` consecutive snapshots of the training split, one at every ``stride`` snapshots.

    Raises:
        DataError: the training split has room for fewer than two groups.

    References: DyGNeX section 3; stride 1 is ours, from its Table 6 (SYSTEMS.md section 3).
    """
    groups = max(0, (len(train) - window) // stride + 1)
    if groups < LEAST_GROUPS:
        raise DataError(
            f"the training split has {len(train)} snapshots, room for {groups} groups of group_window={window} that "
            f"start at every group_stride={stride}; at least {LEAST_GROUPS} groups, {window + stride} snapshots, are "
            "needed. Set a smaller group_window or group_stride, or cut the data finer (cut=...)."
        )
    start = np.arange(train.start, train.stop - window + 1, stride, dtype=np.int64)
    return SnapshotGroups(start, start + window)


class SnapshotGroupStrategy(Strategy, Replannable, ObservesSteps):
    """Each part computes its scheduled groups from state zero; the gradients of all groups of a step are averaged.

    Args:
        context: what it is built from; group layouts carry every kind of memory exactly. With option ``pipelined`` the
            groups of a step are in work together, all their activations alive (BLAD).
        scheduling: which part computes which group when, for P parts.
    """

    plan_kinds = ("schedule",)

    def __init__(self, context: BuildContext, scheduling: GroupScheduling) -> None:
        config, self.scheduling, self._parts = context.config, scheduling, context.parts
        self._runner = GroupRunner(
            context.model, context.sequence, context.task, scheduling.groups, config["loss_at"], config["pipelined"]
        )
        self._group_times = config["group_times"]
        self.use(scheduling.schedule)

    def use(self, schedule: Schedule) -> None:
        """Compute by another schedule from the next epoch on; for the same groups and parts."""
        self._works = tuple(
            Step(i, tuple(g for part in self._parts for g in row[part]), sum(map(len, row)))
            for i, row in enumerate(schedule.assignment)
        )

    def epoch(self, epoch: int) -> Sequence[Step]:
        """This rank's steps, by the schedule in use."""
        return self._works

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Gradients of this rank's groups of one step."""
        return self._runner.compute(work, marks)

    def rows(self) -> RecordRows:
        """Return and forget when each group was computed."""
        return {"groups": [*self._runner.clock.drain()]}

    # the schedule, which follows from measured times

    @property
    def epoch_changes(self) -> dict[str, Any]:
        """The setting that asks for measured times."""
        return {"group_times": self._group_times}

    def on_step_end(self, outcome: StepOutcome) -> None:
        """Add the times of the step's groups and of its exchange."""
        self.scheduling.observe(outcome.rows.get("groups", ()), outcome.communicate_s)

    def on_epoch_end(self) -> tuple[str, ...]:
        """Adopt a schedule by measured times once they are known; collective."""
        if not self.scheduling.end_epoch():
            return ()
        self.use(self.scheduling.schedule)
        return self.plan_kinds

    def adopt_plan(self, recorded: Mapping[str, Any]) -> tuple[str, ...]:
        """Use the schedule of a run that is replayed."""
        self.scheduling.take(recorded)
        self.use(self.scheduling.schedule)
        return self.plan_kinds

    def plan_events(self) -> list[Event]:
        """The schedule in force."""
        return [self.scheduling.event()]

    def state_dict(self) -> dict[str, Any]:
        """Measured times and the schedule."""
        return self.scheduling.state_dict()


def build(of: BuildContext) -> SnapshotGroupStrategy:
    """The strategy of a run, with a schedule that is the same on all ranks; collective.

    Raises:
        DataError: the training split has room for fewer than two groups.
        PlanError: the schedule could not be made.
    """
    config = of.config
    groups = snapshot_groups(of.train, window=config["group_window"], stride=config["group_stride"])
    scheduling = GroupScheduling(config, of.graph, groups, of.group, device=of.device, state=of.state)
    return SnapshotGroupStrategy(of, scheduling)


# The schedule: by sizes of groups first, and again once the groups have been timed.


LINEAR_EPOCHS = 2  # the first is dropped, as in a profile
FITTED_GROUPS, LEAST_FITTED = 8, 4


class GroupScheduling:
    """The schedule of a run, and the times it is made from.

    It begins with times proportional to nodes plus edges. With ``group_times="profile"`` every group is timed in the
    first ``profile_epochs`` epochs, the first of them is dropped, and medians are scheduled; with ``"linear"`` a few
    groups are timed in two epochs and the linear model gives all times. A group's time is the wall clock's, or, where
    ranks share cores, its processor seconds. What an exchange of gradients takes, without waiting, is weighed as rank 0
    has timed it in the same epochs; not where ranks share cores, where it is no time of the network's. Rank 0
    schedules, and all ranks have its schedule: collective.

    Args:
        config: the run's settings.
        graph: its data.
        groups: K snapshot groups.
        group: the ranks.
        device: where they compute.
        state: what :meth:`state_dict` gave of an earlier one; of other groups it is left out.

    Attributes:
        groups: K snapshot groups.
        schedule: the one in force.

    Raises:
        PlanError: it could not be made; every rank raises it with rank 0's reason.

    References: DyGNeX section 5.3 (profiling of 2 to 5 epochs), equation 31 (linear model).
    """

    def __init__(
        self,
        config: RunConfig,
        graph: DynamicGraph,
        groups: SnapshotGroups,
        group: Group,
        *,
        device: str = "cpu",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._config, self.groups, self._group = config, groups, group
        if config["group_times"] == "linear" and len(groups) < LEAST_FITTED:
            raise PlanError(
                f"group_times='linear' fits a model to {LEAST_FITTED} groups or more; there are {len(groups)} groups. "
                "Set group_times='profile' or 'size', or a smaller group_window or group_stride."
            )
        self._device, self._by_processor = device, shares_cores(group, device)
        load = np.concatenate([[0], np.cumsum(np.asarray(graph.num_edges, dtype=np.int64))])
        self._edges = load[groups.stop] - load[groups.start]
        self._nodes = (groups.stop - groups.start) * graph.num_nodes
        self._times_s: NDArray[np.float64] = (self._nodes + self._edges).astype(np.float64)
        self._source = "size"
        self._fit: dict[str, float] | None = None
        self._epochs: list[NDArray[np.float64]] = []
        self._seen = np.zeros(len(groups))
        self._exchanges_s: list[float] = []
        self._allreduce_s = 0.0
        if state is not None and RECORDED_PLAN in state:
            self.take(state[RECORDED_PLAN])
        elif state is None or not self._adopt(state):
            self.schedule = self._made()

    # times

    def observe(self, rows: Sequence[tuple[Any, ...]], exchange_s: float = 0.0) -> None:
        """Take in a step: rows of table ``groups``, (group, start_ns, end_ns, cpu_s), and its exchange's seconds."""
        if self._profiling:
            self._exchanges_s.append(exchange_s)
        for number, start_ns, end_ns, cpu_s in rows:
            self._seen[number] += cpu_s if self._by_processor else (end_ns - start_ns) * 1e-9

    def end_epoch(self) -> bool:
        """Whether the epoch that ended brought another schedule; collective while groups are timed."""
        if not self._profiling:
            return False
        seen = torch.tensor(self._seen, device=self._device)
        self._seen[:] = 0.0
        self._group.all_reduce(seen)
        if bool((seen <= 0).any()):  # an epoch that was gone on with from its middle
            return False
        self._epochs.append(seen.cpu().numpy())
        if len(self._epochs) < self._wanted_epochs:
            return False
        self._know_times()
        if self._exchanges_s and self._group.size > 1 and not self._by_processor:
            self._allreduce_s = float(np.median(self._exchanges_s))
        self.schedule = self._made()
        return True

    def take(self, described: Mapping[str, Any]) -> None:
        """Go on by the schedule of an earlier run, and the times it was made by.

        Args:
            described: the data of its event.

        Raises:
            PlanError: it is of other groups or parts.
        """
        if len(described["times_s"]) != len(self.groups) or described["parts"] != self._config.parts:
            raise PlanError(
                f"the schedule to be repeated is of {len(described['times_s'])} groups on {described['parts']} parts; "
                f"there are {len(self.groups)} groups on {self._config.parts}. Repeat a run on its own data and "
                "settings."
            )
        self._times_s, self._source = np.array(described["times_s"]), described["source"]
        self._allreduce_s, self._fit = described.get("allreduce_s", 0.0), described.get("fit")
        self.schedule = _schedule_of({**described, "seconds": described["solve_s"]}, len(self.groups))
        if self._source != "size":  # they are known
            self._epochs = [self._times_s] * self._wanted_epochs

    @property
    def _wanted_epochs(self) -> int:
        return LINEAR_EPOCHS if self._config["group_times"] == "linear" else int(self._config["profile_epochs"])

    @property
    def _profiling(self) -> bool:
        return self._config["group_times"] != "size" and len(self._epochs) < self._wanted_epochs

    def _know_times(self) -> None:
        """Medians of what was timed, the first epoch dropped where there are several; or the linear model's times."""
        timed = np.median(self._epochs[1:] or self._epochs, axis=0)
        self._source = str(self._config["group_times"])
        sizes = self._nodes, self._edges, self.groups.stop - self.groups.start
        if self._source == "profile":
            self._times_s = timed
            self._fit = _fit_facts(sizes, timed, np.arange(len(timed))) if len(timed) >= LEAST_FITTED else None
            return
        by_size = np.argsort(self._nodes + self._edges, kind="stable")
        some = np.unique(by_size[np.linspace(0, len(by_size) - 1, FITTED_GROUPS).astype(np.int64)])
        nodes, edges, snapshots = (size[some] for size in sizes)
        self._times_s = fit(nodes, edges, timed[some], snapshots).predict(*sizes)
        self._fit = _fit_facts(sizes, timed, some)

    # schedules

    def _made(self) -> Schedule:
        config, described = self._config, dict[str, Any]()
        if self._group.rank == 0:
            try:
                made = solve(
                    config["scheduler"],
                    self._times_s,
                    config.parts,
                    per_rank=config["groups_per_rank"],
                    allreduce_s=self._allreduce_s,
                    gap=config["schedule_gap"],
                    time_limit_s=config["schedule_limit_s"],
                    seed=config.seed,
                    targets=config["schedule_targets"],
                    settings=config.options["scheduling"],
                )
                if made.parts != config.parts:
                    raise PlanError(f"its schedule is for {made.parts} parts; the run has {config.parts}.")
                described = asdict(made)
            except Exception as error:  # whatever it is, the other ranks wait for an answer
                reason = error_text(error)
                described = {"reason": f"scheduler {config['scheduler']!r}: {reason}"}
        described = json.loads(self._group.broadcast_text(json.dumps(described)))
        if "reason" in described:
            raise PlanError(described["reason"])
        return _schedule_of(described, len(self.groups))

    def event(self) -> Event:
        """The schedule in force."""
        config, times, per_rank = self._config, self._times_s, self._config["groups_per_rank"]
        exchange_s = self._allreduce_s
        return ScheduleFacts(
            scheduler=config["scheduler"],
            ranks=self._group.size,
            parts=config.parts,
            per_rank=per_rank,
            iterations=len(self.schedule.assignment),
            source=self._source,
            times_s=times,
            assignment=self.schedule.assignment,
            makespan_s=self.schedule.makespan_s(times, allreduce_s=exchange_s),
            bound_s=lower_bound_s(times, config.parts, per_rank=per_rank, allreduce_s=exchange_s),
            gap=self.schedule.gap,
            targets=self.schedule.targets,
            notes=self.schedule.notes,
            solve_s=self.schedule.seconds,
            psg_makespan_s=round_robin(times, config.parts, per_rank=1).makespan_s(times, allreduce_s=exchange_s),
            timed_by="processor" if self._by_processor else "wall",
            allreduce_s=exchange_s,
            fit=self._fit,
        )

    # state

    def state_dict(self) -> dict[str, Any]:
        """Times and schedule as plain values."""
        return asdict(self.schedule) | {
            "groups": [self.groups.start.tolist(), self.groups.stop.tolist()],
            "made_for": self._made_for,
            "epochs": [epoch.tolist() for epoch in self._epochs],
            "allreduce_s": self._allreduce_s,
        }

    @property
    def _made_for(self) -> list[Any]:
        names = (
            "scheduler",
            "groups_per_rank",
            "schedule_gap",
            "schedule_limit_s",
            "schedule_targets",
            "group_times",
            "profile_epochs",
        )
        return [self._config.parts, *(self._config[name] for name in names)]

    def _adopt(self, state: Mapping[str, Any]) -> bool:
        """Take over times of the same groups; whether the schedule is taken over as well."""
        if state.get("groups") != [self.groups.start.tolist(), self.groups.stop.tolist()]:
            return False
        self._epochs = [np.array(epoch) for epoch in state["epochs"]][: self._wanted_epochs]
        self._allreduce_s = float(state.get("allreduce_s", 0.0))
        same, enough = state["made_for"] == self._made_for, min(LINEAR_EPOCHS, self._wanted_epochs)
        known = not self._profiling if same else len(self._epochs) >= enough  # else a new schedule forgot what is known
        if self._epochs and known and self._config["group_times"] != "size":
            self._know_times()
        if not same:
            return False
        self.schedule = _schedule_of(state, len(self.groups))
        return True


def shares_cores(group: Group, device: str) -> bool:
    """Whether ranks have more threads than cores to run on, so that wall time is not a rank's own; collective.

    Counted are the ranks of this machine whose cores overlap with this one's: ranks may be pinned.
    """
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    mine = sum(1 << core for core in own)
    described = f"{hash_of_host()} {mine:x} {torch.get_num_threads()}"
    ranks = [text.split() for text in gather_texts(group, described, device=device)]
    near = [(int(cores, 16), int(threads)) for host, cores, threads in ranks if int(host) == hash_of_host()]
    near = [(cores, threads) for cores, threads in near if cores & mine]
    cores = functools.reduce(operator.or_, (cores for cores, _ in near))
    return device == "cpu" and sum(threads for _, threads in near) > cores.bit_count()


def _schedule_of(described: Mapping[str, Any], groups: int) -> Schedule:
    rows = tuple(tuple(tuple(part) for part in row) for row in described["assignment"])
    return Schedule(rows, groups, described["notes"], described["gap"], described["seconds"], described.get("targets"))


def _fit_facts(
    sizes: tuple[NDArray[np.int64], ...], timed: NDArray[np.float64], some: NDArray[np.int64]
) -> dict[str, float]:
    """The linear model of some groups, with its errors on the others, or on those held out where it has all."""
    nodes, edges, snapshots = (size[some] for size in sizes)
    linear = fit(nodes, edges, timed[some], snapshots)
    described, others = linear.to_dict(), np.setdiff1d(np.arange(len(timed)), some)
    if len(others):
        nodes, edges, snapshots = (size[others] for size in sizes)
        errors = linear.errors(nodes, edges, timed[others], snapshots)
        described |= {"mean_error": float(errors.mean()), "max_error": float(errors.max())}
    return {**described, "groups": len(some)}
