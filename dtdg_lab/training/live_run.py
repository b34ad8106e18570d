"""What a running job does when it is asked to change: the control word, live settings, what is built anew."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import ControlState
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.decayed_windows import training as windowed
from dtdg_lab.systems.decayed_windows.window import RowMemory
from dtdg_lab.systems.single.strategy import SnapshotGroupStrategy
from dtdg_lab.systems.snapshot_groups.group_schedule import TOLD
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.checkpoint import Checkpoint, Position
from dtdg_lab.training.checkpoint_manager import CheckpointManager
from dtdg_lab.training.collective import as_rank_0, joined, share_moments, shared_reason
from dtdg_lab.training.interfaces import ControlSource, Recorder
from dtdg_lab.training.live_settings import (
    LiveSettings,
    Rebuilt,
    Settled,
    check_changes,
    merged,
    readable,
    rebuilt,
    settle,
)
from dtdg_lab.training.plan_events import EventList, has_blocks_event, plan_events
from dtdg_lab.training.probe import probe_memory
from dtdg_lab.training.recording import ResourceMonitor, StepRecorder
from dtdg_lab.training.replay import GATHER, PAUSE, STEP, RunReplay
from dtdg_lab.training.updates import AveragedUpdates, Updates, updates_for

BATCH_SETTINGS = {"batch_snapshots", "batch_vertices", "adjuster", "reservoir"}


class LiveTraining:
    """One rank of a run between its steps: it hears what is asked for, and all ranks do it at the same place.

    Attributes:
        knobs: the settings as this rank has applied them.
    """

    live_settings: LiveSettings
    _graph: DynamicGraph
    _group: Group
    _device: str
    _recorder: Recorder
    _control: ControlSource
    _step_recorder: StepRecorder
    _position: Position
    _built: RunComponents
    _resource_monitor: ResourceMonitor
    _row_memory: RowMemory | None
    _updates: Updates
    _keeper: CheckpointManager
    _replay: RunReplay | None
    _branches: bool
    _changes: dict[str, Any]  # of settings, with which a run is resumed
    _save_requested = False
    _makes = 0  # of updates
    _stretch = 0  # of these, averaged ones
    _began: Position  # the present updates

    def _asked(self, received: str = STEP) -> ControlState:
        """The newest request and size of batches; rank 0's count."""
        if self._group.rank != 0:
            return ControlState()
        version = self._control.latest()
        if self._replay is not None and self._replay.requests is not None:
            stopped = version > 0  # a replay hears of nothing else
            version = (
                len(self._replay.requests) + 1 if stopped else self._replay.version(self._next_step(received), received)
            )
        return ControlState(version, 0 if self._built.hybrid is None else self._built.hybrid.asked)

    def _next_step(self, received: str) -> int:
        """The step that comes after the one that is being made, or after those made."""
        return self._position.step + (received == STEP)

    def _made_updates(self) -> Updates:
        """Those of a stretch that begins now; collective."""
        self._makes += 1
        self._began = self._position
        start = ControlState(self.live_settings.version, 0 if self._built.hybrid is None else self._built.hybrid.asked)
        rounds = None
        if self._replay is not None:
            self._replay.lead(self._built.layout)
            if self._built.config["exchange"] == "models":
                self._stretch += 1
                rounds = self._replay.stretch(self._stretch)
        return updates_for(
            self._built,
            self._group,
            self._asked,
            name=f"averaging-{self._makes}",
            start=start,
            step=self._position.step,
            place=(self._position.epoch, self._position.iteration),
            replay=rounds,
        )

    def _gather(self) -> None:
        """Wait for all ranks, follow words meanwhile, and be where they are together."""
        started_ns, sent, received = time.time_ns(), self._group.bytes_sent, self._group.bytes_received

        def hear(word: ControlState) -> None:
            self._apply_control(word, GATHER)
            self._recorder.check()

        self._updates.gather(hear)
        moved = (self._group.bytes_sent - sent, self._group.bytes_received - received)
        self._step_recorder.gathered(self._position, started_ns, moved)
        before, steps = self._position.epoch, self._shared_steps
        self._position = joined(self._began, self._position, self._group, steps=steps, device=self._device)
        self._began = self._position
        for epoch in range(before, self._position.epoch):  # that others ended
            self._event("epoch", {"epoch": epoch})  # without a time: this rank made none of it, or a part

    @property
    def _shared_steps(self) -> int:
        """Steps of an epoch, by all ranks together, where models are averaged."""
        return len(self._built.layout.epoch(self._position.epoch)) * self._group.size

    def _apply_control(self, word: ControlState, received: str) -> None:
        """Follow a word: the size of batches first, since changes may make other sizes."""
        if self._built.hybrid is not None:
            self._built.hybrid.follow(word)
        self._apply_up_to(word.version, received)
        self._step_recorder.rounds(self._position, self._updates.rounds())

    def _requested(self, version: int, received: str) -> dict[str, Any]:
        """The request of a version, and a note of it for whoever repeats the run."""
        next_step = self._next_step(received)
        if self._replay is not None and self._replay.requests is not None:
            together = self._updates.together
            payload = dict(self._replay.payload(version, next_step, received, together=together))
        else:
            payload = self._control.payload(version)
        if payload:
            self._event("asked", {"version": version, "request": payload, "heard": received}, next_step)
        return payload

    def _apply_up_to(self, version: int, received: str) -> None:
        next_step = self._next_step(received)
        while self.live_settings.version < version:
            number = self.live_settings.version + 1
            payload = self._requested(number, received)
            self._save_requested = self._save_requested or bool(payload.get("keep", False))
            was_paused, config, changed, reason = self.live_settings.paused, self.live_settings.config, {}, ""
            try:
                changed = self.live_settings.apply(payload)
            except ConfigError as error:  # of settings alone: the same on every rank
                reason = str(error)
            self.live_settings.version = (
                number  # after the change: the control thread counts newer requests as not yet made
            )
            if reason:
                self._refused(payload["set"], reason)
            if changed and self._validate_settings(changed):
                self.live_settings.config = config
            elif changed:
                self._apply_settings()
                self._record_change(changed, "step", next_step)
                self._record_batch_event(changed)
            if self.live_settings.paused != was_paused:
                self._event(
                    "paused" if self.live_settings.paused else "unpaused",
                    {"version": self.live_settings.version},
                    next_step,
                )
            if payload.get("stop"):
                self._event("stopping", {"version": self.live_settings.version}, next_step)

    def _validate_settings(self, changes: dict[str, Any]) -> bool:
        """Whether batches, features or links cannot be as changes have them: then all ranks stay as they were."""
        reason = self._refused_before(changes)
        if self._built.hybrid is not None:
            reason = reason or self._built.hybrid.validate_settings(self.live_settings.config)
        if self._built.remote is not None:
            validate_settings = reason or self._built.remote.validate_settings(self.live_settings.config)
            reason = shared_reason(validate_settings, self._group, device=self._device)
        elif self._built.network is not None:
            reason = reason or self._built.network.validate_settings(self.live_settings.config)
        if reason:
            self._refused(changes, reason)
        return bool(reason)

    def _refused(self, changes: dict[str, Any], reason: str) -> None:
        """Say that changes were not made, and why."""
        self._event("refused", {"version": self.live_settings.version, "changes": changes, "reason": reason})

    def _refused_before(self, changes: dict[str, Any]) -> str:
        """Why the run that is repeated refused these changes here; empty where it made them, or none is repeated.

        Refusals are recorded at rank 0's step: while ranks are at steps of their own, only rank 0 looks them up.
        """
        if self._replay is None or (self._group.rank != 0 and not self._updates.together):
            return ""
        return self._replay.refusal(self._position.step, changes)

    def _apply_settings(self) -> None:
        windowed.apply_settings(self._built, self.live_settings.config)
        if self._built.hybrid is not None:
            self._built.hybrid.apply_settings(self.live_settings.config)
        if self._built.network is not None:
            self._built.network.use(self.live_settings.config)
        if self._built.remote is not None:
            self._built.remote.apply_settings(self.live_settings.config)
        self._resource_monitor.use(self.live_settings.config)
        for options in self._built.optimizer.param_groups:
            options["lr"] = self.live_settings.config.learning_rate

    def _record_batch_event(self, changes: dict[str, Any]) -> None:
        """What changes in place have made of batches and their averaging."""
        if isinstance(self._updates, AveragedUpdates):
            self._updates.every(self.live_settings.config["average_every_s"])
        if self._built.hybrid is None or not BATCH_SETTINGS & set(changes):
            return
        if reason := self._built.hybrid.too_small():
            self._recorder.row(
                "events",
                (self._position.step, self._position.epoch, time.time_ns(), "empty reservoir", {"reason": reason}),
            )
        if self._group.rank == 0:
            self._event("hybrid", self._built.hybrid.to_dict())

    def _wait_while_paused(self) -> None:
        def wait(seconds: float) -> None:
            if self._group.rank == 0 and self._replay is None:
                self._control.wait(self.live_settings.version, seconds)

        while self.live_settings.paused and not self.live_settings.stopping:
            self._apply_control(self._updates.pause(wait), PAUSE)
            self._save_if_requested()
            self._recorder.check()

    def _save_if_requested(self) -> None:
        if self._save_requested:
            self._save_requested = False
            self._keeper.kept(f"step-{self._position.step:05d}", self._built, self._current_epoch)

    def _rebuild_if_asked(self) -> None:
        """Apply epoch knobs. A request that fails leaves the run, and the other requests, as they were."""
        if (
            not self.live_settings.requests or self._position.iteration
        ):  # a run resumed within an epoch ends it by its old plan
            return
        before, started_ns = self._built, time.time_ns()
        settled = self._settled(self.live_settings.requests)
        self.live_settings.requests = []
        for changes, reason in settled.refused:
            self._refused(changes, reason)
        if settled.made is not None:
            self._go_on_with(settled.made, settled.changes, started_ns)
        heavy = before.partition is not None or before.snapshot_blocks is not None or self._device != "cpu"
        del before, settled
        if heavy:  # sequences and their stores hold each other, and tensors that there may be no second room for
            gc.collect()

    def _settled(self, asked: list[dict[str, Any]]) -> Settled:
        """What becomes of requests: those that the run which is repeated refused are refused again."""
        reasons = [self._refused_before(changes) for changes in asked]
        if self._replay is not None:
            reasons = json.loads(self._group.broadcast_text(json.dumps(reasons)))
        refused = [(changes, why) for changes, why in zip(asked, reasons, strict=True) if why]
        tried = [changes for changes, why in zip(asked, reasons, strict=True) if not why]
        if not tried:
            return Settled(None, {}, refused)
        memory, config = replace(self._snapshot(), waiting=[]), self.live_settings.config
        at = self._position
        if self._replay is not None and not self._updates.together:  # schedules are recorded where all ranks go on
            at = as_rank_0(at, self._group, device=self._device)
        memory.plan.update(self._recorded_schedule(at.step))

        def make(changes: dict[str, Any]) -> tuple[Rebuilt | None, str]:
            graph, group, before = self._graph, self._group, self._built
            return rebuilt(config, changes, memory, graph, group, device=self._device, before=before)

        found = settle(tried, partial(merged, config), make)
        return replace(found, refused=[*refused, *found.refused])

    def _recorded_schedule(self, step: int) -> dict[str, Any]:
        """For a plan: the schedule that was made at a step, the same on all ranks, of the run that is repeated."""
        if self._replay is None:
            return {}
        described = self._replay.schedule(step, "build")
        return {} if described is None else {TOLD: described}

    def _other_schedule(self) -> bool:
        """Whether the epoch that ended brought another schedule: collective, or as it was in the run repeated."""
        if self._replay is None or self._replay.requests is None:
            return self._built.end_epoch()
        described = self._replay.schedule(self._position.step, "epoch")
        if described is not None:
            assert self._built.scheduling is not None and isinstance(self._built.layout, SnapshotGroupStrategy)
            self._built.scheduling.take(described)
            self._built.layout.use(self._built.scheduling.schedule)
        return described is not None

    def _go_on_with(self, made: Rebuilt, changes: dict[str, Any], started_ns: int) -> None:
        before, self._built = self._built, made.built
        before.close()
        self.live_settings.config, self._row_memory = made.built.config, made.measured
        if not self._updates.together and made.built.config["exchange"] == "gradients":  # ranks were at own steps
            self._position = as_rank_0(self._position, self._group, device=self._device)
            share_moments(self._built.optimizer, self._group)
        self._updates = self._made_updates()
        self._apply_settings()
        self._note_rebuild(changes, made.described, started_ns)
        planned = [(built.config.system, built.snapshot_blocks) for built in (self._built, before)]
        if made.measured is not None or (has_blocks_event(self._built) and planned[0] != planned[1]):
            self._probe_memory()  # as it is now; the new blocks' memory is not the old ones'
        if self._built.hybrid is not None:
            self._built.hybrid.open()

    def _note_rebuild(self, changes: dict[str, Any], described: EventList, started_ns: int) -> None:
        step = self._position.step
        took_s = (self._step_recorder.between(step, self._position.epoch, "rebuild", started_ns) - started_ns) * 1e-9
        self._record_change(changes, "epoch", step, took_s=took_s)
        for kind, data in described:
            self._event(kind, {**data, "rebuild_s": took_s})

    def _snapshot(self, carried: dict[str, Any] | None = None) -> Checkpoint:
        return Checkpoint(
            self._built.model.state_dict(),
            self._built.optimizer.state_dict(),
            self._position,
            self.live_settings.config.to_json(),
            self.live_settings.requests,
            self._graph.data_hash,
            {**self._built.plan, **(carried or {})},
        )

    def _knobs_from(self, stored: Checkpoint, config: RunConfig) -> LiveSettings:
        """Position and settings to go on with: of a run that is resumed, or of another one that is branched from."""
        return self._branched(stored, config) if self._branches else self._knobs_of(stored, self._changes)

    def _knobs_of(self, stored: Checkpoint, changes: dict[str, Any]) -> LiveSettings:
        """Position and settings to go on with; within an epoch, changes of its plan wait until it is over."""
        config = RunConfig.from_json(stored.config_json)
        changed = check_changes(config, changes)
        self._position = stored.position
        waiting = _without(stored.waiting, changes)
        if self._position.iteration == 0:
            return LiveSettings(changed, requests=waiting)
        live_settings = LiveSettings(config, requests=waiting)
        live_settings.apply({"set": changes})
        return live_settings

    def _branched(self, stored: Checkpoint, config: RunConfig) -> LiveSettings:
        """Position of another run's checkpoint, and settings of one's own; what waited there waits, unless set anew."""
        self._position = stored.position
        before, reads = RunConfig.from_json(stored.config_json).flat, readable(config.system, config)
        set_anew = {name for name, value in config.flat.items() if name not in before or before[name] != value}
        unread = {name for changes in stored.waiting for name in changes if name not in reads}
        return LiveSettings(config, requests=_without(stored.waiting, set_anew | unread))

    @property
    def _current_epoch(self) -> int:
        """The epoch that what is done between steps belongs to: the one just ended where the next has not begun."""
        at_boundary = self._position.iteration == 0 and self._position.step > 0
        return self._position.epoch - at_boundary

    def _probe_memory(self) -> None:
        traced = probe_memory(self._built, device=self._device)
        self._recorder.row("memory", (self._position.step, time.time_ns(), None, None, traced.peak_bytes))
        self._event("memory_trace", traced.to_dict())

    def _report(self, *kinds: str) -> None:
        for kind, data in plan_events(self._built, self._graph, self._group, memory=self._row_memory):
            if kind in kinds:
                self._event(kind, data)

    def _record_change(self, changes: dict[str, Any], when: str, step: int, **facts: Any) -> None:
        data = {"version": self.live_settings.version, "changes": changes, "when": when, **facts}
        if not self._updates.together:
            data["apart"] = True  # each rank at a step of its own
        self._step_recorder.live_settings(self._position, data, step)

    def _event(self, kind: str, data: dict[str, Any], step: int | None = None) -> None:
        self._step_recorder.event(self._position, kind, data, step)


def _without(requests: list[dict[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Requests less some settings, and less those that are then empty."""
    kept = [{name: value for name, value in changes.items() if name not in names} for changes in requests]
    return [changes for changes in kept if changes]
