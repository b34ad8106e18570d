"""The schedule of a run, made from the sizes of groups, and again once the groups were timed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Schedule, SnapshotGroups
from dtdg_lab.core.system_errors import error_text
from dtdg_lab.distributed.group import Group, gather_texts, hash_of_host
from dtdg_lab.engine.capabilities import RECORDED_PLAN
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.records.events import Event
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.linear_times import fit
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s, solve
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import schedule_round_robin

LINEAR_EPOCHS = 2  # the first is dropped, as in a profile
FITTED_GROUPS, LEAST_FITTED = 8, 4


class GroupScheduling:
    """The schedule of a run, and the times it is made from.

    Initial times are proportional to nodes plus edges. With ``group_times="profile"`` every group is timed in the first
    ``profile_epochs`` epochs; the first is dropped, and medians are scheduled. With ``"linear"`` a few groups are timed
    in two epochs, and a linear model predicts all times. A group's time is wall-clock time, or processor time if ranks
    share cores. Rank 0 also times the exchange of gradients without waiting in these epochs, unless ranks share cores:
    then it would not be network time. Rank 0 makes the schedule, and all ranks follow it. Collective.

    Args:
        config: the run's settings.
        graph: the run's data.
        groups: K snapshot groups.
        group: the ranks.
        device: device of the computation.
        state: result of an earlier :meth:`state_dict`; ignored if its groups differ.

    Attributes:
        groups: K snapshot groups.
        schedule: the schedule in use.

    Raises:
        PlanError: the schedule could not be made; every rank raises it with rank 0's reason.

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
                f"group_times='linear' needs {LEAST_FITTED} groups or more, but there are {len(groups)}. Set "
                "group_times='profile' or 'size', or a smaller group_window or group_stride."
            )
        self._device, self._by_processor = device, shares_cores(group, device)
        load = np.concatenate([[0], np.cumsum(np.asarray(graph.num_edges, dtype=np.int64))])
        self._edges = load[groups.stop] - load[groups.start]
        self._nodes = (groups.stop - groups.start) * graph.num_nodes
        self._times_s: NDArray[np.float64] = (self._nodes + self._edges).astype(np.float64)
        self._source = "size"
        self._fit: dict[str, float] | None = None
        self._epochs: list[NDArray[np.float64]] = []
        self._times_of_epoch_s = np.zeros(len(groups))
        self._exchanges_s: list[float] = []
        self._allreduce_s = 0.0
        if state is not None and RECORDED_PLAN in state:
            self.repeat(state[RECORDED_PLAN])
        elif state is None or not self._adopt(state):
            self.schedule = self._solve()

    # times

    def observe(self, rows: Sequence[tuple[Any, ...]], exchange_s: float = 0.0) -> None:
        """Add a step: rows of table ``groups``, (group, start_ns, end_ns, cpu_s), and the seconds of its exchange."""
        if self._is_profiling:
            self._exchanges_s.append(exchange_s)
        for number, start_ns, end_ns, cpu_s in rows:
            self._times_of_epoch_s[number] += cpu_s if self._by_processor else (end_ns - start_ns) * 1e-9

    def end_epoch(self) -> bool:
        """End an epoch; return True if its times led to another schedule. Collective while groups are timed."""
        if not self._is_profiling:
            return False
        times_s = torch.tensor(self._times_of_epoch_s, device=self._device)
        self._times_of_epoch_s[:] = 0.0
        self._group.all_reduce(times_s)
        if bool((times_s <= 0).any()):  # groups are missing in a resumed epoch
            return False
        self._epochs.append(times_s.cpu().numpy())
        if len(self._epochs) < self._profile_epochs:
            return False
        self._set_times()
        if self._exchanges_s and self._group.size > 1 and not self._by_processor:
            self._allreduce_s = float(np.median(self._exchanges_s))
        self.schedule = self._solve()
        return True

    def repeat(self, recorded: Mapping[str, Any]) -> None:
        """Use the schedule and the times of an earlier run.

        Args:
            recorded: the data of its event.

        Raises:
            PlanError: the schedule belongs to other groups or parts.
        """
        if len(recorded["times_s"]) != len(self.groups) or recorded["parts"] != self._config.parts:
            raise PlanError(
                f"the recorded schedule has {len(recorded['times_s'])} groups on {recorded['parts']} parts, but this "
                f"run has {len(self.groups)} groups on {self._config.parts}. Repeat a run with its own data and "
                "settings."
            )
        self._times_s, self._source = np.array(recorded["times_s"]), recorded["source"]
        self._allreduce_s, self._fit = recorded.get("allreduce_s", 0.0), recorded.get("fit")
        self.schedule = _read_schedule({**recorded, "seconds": recorded["solve_s"]}, len(self.groups))
        if self._source != "size":  # the profile is complete
            self._epochs = [self._times_s] * self._profile_epochs

    @property
    def _profile_epochs(self) -> int:
        return LINEAR_EPOCHS if self._config["group_times"] == "linear" else int(self._config["profile_epochs"])

    @property
    def _is_profiling(self) -> bool:
        return self._config["group_times"] != "size" and len(self._epochs) < self._profile_epochs

    def _set_times(self) -> None:
        """Set times to medians over epochs, without the first of several, or to the linear model's predictions."""
        medians_s = np.median(self._epochs[1:] or self._epochs, axis=0)
        self._source = str(self._config["group_times"])
        sizes = self._nodes, self._edges, self.groups.stop - self.groups.start
        if self._source == "profile":
            self._times_s = medians_s
            enough = len(medians_s) >= LEAST_FITTED
            self._fit = _fit_facts(sizes, medians_s, np.arange(len(medians_s))) if enough else None
            return
        by_size = np.argsort(self._nodes + self._edges, kind="stable")
        fitted = np.unique(by_size[np.linspace(0, len(by_size) - 1, FITTED_GROUPS).astype(np.int64)])
        nodes, edges, snapshots = (size[fitted] for size in sizes)
        self._times_s = fit(nodes, edges, medians_s[fitted], snapshots).predict(*sizes)
        self._fit = _fit_facts(sizes, medians_s, fitted)

    # schedules

    def _solve(self) -> Schedule:
        config, message = self._config, dict[str, Any]()
        if self._group.rank == 0:
            try:
                schedule = solve(
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
                if schedule.parts != config.parts:
                    raise PlanError(f"its schedule has {schedule.parts} parts, but the run has {config.parts}.")
                message = asdict(schedule)
            except Exception as error:  # report any error, since the other ranks wait for an answer
                message = {"reason": f"scheduler {config['scheduler']!r}: {error_text(error)}"}
        message = json.loads(self._group.broadcast_text(json.dumps(message)))
        if "reason" in message:
            raise PlanError(message["reason"])
        return _read_schedule(message, len(self.groups))

    def event(self) -> Event:
        """Return the event of the schedule in use."""
        config, times, per_rank = self._config, self._times_s, self._config["groups_per_rank"]
        exchange_s, in_turn = self._allreduce_s, schedule_round_robin(times, config.parts, per_rank=1)
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
            psg_makespan_s=in_turn.makespan_s(times, allreduce_s=exchange_s),
            timed_by="processor" if self._by_processor else "wall",
            allreduce_s=exchange_s,
            fit=self._fit,
        )

    # state

    def state_dict(self) -> dict[str, Any]:
        """Return times and schedule as JSON values."""
        return asdict(self.schedule) | {
            "groups": [self.groups.start.tolist(), self.groups.stop.tolist()],
            "made_for": self._settings,
            "epochs": [epoch.tolist() for epoch in self._epochs],
            "allreduce_s": self._allreduce_s,
        }

    @property
    def _settings(self) -> list[Any]:
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
        """Restore the times of a state with the same groups; return True if its schedule is restored as well."""
        if state.get("groups") != [self.groups.start.tolist(), self.groups.stop.tolist()]:
            return False
        self._epochs = [np.array(epoch) for epoch in state["epochs"]][: self._profile_epochs]
        self._allreduce_s = float(state.get("allreduce_s", 0.0))
        has_same_settings = state["made_for"] == self._settings
        # with new settings, fewer epochs than a profile needs are enough: the new schedule uses the available times
        least_epochs = self._profile_epochs if has_same_settings else min(LINEAR_EPOCHS, self._profile_epochs)
        if self._epochs and len(self._epochs) >= least_epochs and self._config["group_times"] != "size":
            self._set_times()
        if has_same_settings:
            self.schedule = _read_schedule(state, len(self.groups))
        return has_same_settings


def shares_cores(group: Group, device: str) -> bool:
    """Return True if ranks have more threads than cores, so that wall-clock time includes other ranks; collective.

    Only ranks of this machine whose cores overlap with this rank's are counted, since ranks may be pinned.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    mask = sum(1 << core for core in cores)
    text = f"{hash_of_host()} {mask:x} {torch.get_num_threads()}"
    shared_mask = shared_threads = 0
    for host, rank_mask, threads in map(str.split, gather_texts(group, text, device=device)):
        if int(host) == hash_of_host() and int(rank_mask, 16) & mask:
            shared_mask |= int(rank_mask, 16)
            shared_threads += int(threads)
    return device == "cpu" and shared_threads > shared_mask.bit_count()


def _read_schedule(data: Mapping[str, Any], groups: int) -> Schedule:
    rows = tuple(tuple(tuple(part) for part in row) for row in data["assignment"])
    return Schedule(rows, groups, data["notes"], data["gap"], data["seconds"], data.get("targets"))


def _fit_facts(
    sizes: tuple[NDArray[np.int64], ...], times_s: NDArray[np.float64], fitted: NDArray[np.int64]
) -> dict[str, float]:
    """Return the linear model of some groups, with its errors on the other groups, or by cross-validation."""
    nodes, edges, snapshots = (size[fitted] for size in sizes)
    linear = fit(nodes, edges, times_s[fitted], snapshots)
    facts, unfitted = linear.to_dict(), np.setdiff1d(np.arange(len(times_s)), fitted)
    if len(unfitted):
        nodes, edges, snapshots = (size[unfitted] for size in sizes)
        errors = linear.errors(nodes, edges, times_s[unfitted], snapshots)
        facts |= {"mean_error": float(errors.mean()), "max_error": float(errors.max())}
    return {**facts, "groups": len(fitted)}
