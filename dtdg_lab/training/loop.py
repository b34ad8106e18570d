"""The one loop: compute, exchange, update, agree on control, record."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dtdg_lab.comm.group import Group
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import PlanError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.parallel.layout import Computed, Work
from dtdg_lab.training import windowed
from dtdg_lab.training.build import Built, build
from dtdg_lab.training.checkpoint import Checkpoint, Position
from dtdg_lab.training.clock import PhaseClock
from dtdg_lab.training.interfaces import Control, Recorder
from dtdg_lab.training.knobs import Knobs, check_changes, live_names
from dtdg_lab.training.last_good import LastGood, not_finite
from dtdg_lab.training.parts import told_parts
from dtdg_lab.training.probe import probe_memory
from dtdg_lab.training.together import attempted
from dtdg_lab.training.told_plans import KINDS, Told, tells_blocks, told_plans
from dtdg_lab.training.vitals import Vitals

CONTROL_ROUND_S = 0.5  # a paused job meets this often
ENDING = "the run is ending: its last step is made. run.resume() or a new run takes changes."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How training ended: ``finished`` or ``stopped``, and where."""

    state: str
    position: Position


class Trainer:
    """Trains one rank of one run from where it is to its end.

    Args:
        config: the run's settings.
        graph: the data, the same on all ranks.
        group: the processes.
        recorder: takes this rank's records.
        control: requests; only rank 0's ``latest`` counts.
        checkpoint: file of the run's last checkpoint, written by rank 0.
        vitals: memory and energy of this rank.
        device: where this rank computes.
        resume: go on from the checkpoint.
        changes: live settings that differ from the checkpoint's from here on.
        show_progress: a progress bar over epochs, in cells and terminals.

    Raises:
        LabError: the config cannot be built on this graph and machine, or the checkpoint is of other data or does not
            fit.
    """

    def __init__(
        self,
        config: RunConfig,
        graph: DynamicGraph,
        group: Group,
        *,
        recorder: Recorder,
        control: Control,
        checkpoint: Path,
        vitals: Vitals,
        device: str = "cpu",
        resume: bool = False,
        changes: Mapping[str, Any] = MappingProxyType({}),
        show_progress: bool = False,
    ) -> None:
        self._graph, self._group, self._device = graph, group, device
        self._recorder, self._control, self._vitals = recorder, control, vitals
        self._show_progress, self._resumed = show_progress, resume
        self._clock = PhaseClock(device)
        self._position = Position()
        stored = Checkpoint.load(checkpoint, device=device) if resume else None
        self._data_checked = stored is not None and stored.check_graph(graph)
        self.knobs = Knobs(config) if stored is None else self._knobs_of(stored, dict(changes))
        plan = {} if stored is None else stored.plan
        self._built = build(self.knobs.config, graph, group, device=device, plan=plan)
        self._row_memory = windowed.measure(self._built, group, device=device)
        if stored is not None:
            self._restore(stored)
            self._take_settings()
            windowed.put_back(self._built, plan, device=device)
        self._last_good = LastGood(checkpoint)
        self._loss, self._carried = 0.0, dict[str, Any]()
        self._taken_down: dict[str, list[tuple[Any, ...]]] = {}  # by the layout, of the last step

    def run(self) -> Outcome:
        """Train until the last epoch or a stop request.

        Raises:
            NotFiniteError: a loss was NaN or infinite; every rank stops at the same step.
            RunStoreError: records or checkpoints can no longer be written.
        """
        if self._position.step == 0:
            self._event("parts", told_parts(self._graph, self._built.split))
            self._probe_memory()
            self._save(force=True)  # whatever happens from here on can be resumed
        if self._resumed:
            settings = {name: self.knobs.config.flat[name] for name in live_names(self.knobs.config)}
            self._event("resumed", {"settings": settings, "data_checked": self._data_checked})
        self._event("kernel", {"backend": self._built.sequence.backend, "device": self._device})
        self._tell(*KINDS)
        from tqdm.auto import tqdm

        with tqdm(total=self.knobs.config.epochs, unit="epoch", disable=not self._show_progress) as bar:
            while not self.knobs.stopping:
                self._rebuild_if_asked()  # before the end is looked for: it may move the end
                if self._is_over():
                    break
                self._epoch()
                bar.update(self._position.epoch - bar.n)
        self._control.refuse(ENDING)
        self._save(force=True)
        if not self.knobs.stopping:
            self._evaluate(("train", "validation", "test"), final=True)
        return Outcome("stopped" if self.knobs.stopping else "finished", self._position)

    @property
    def built(self) -> Built:
        """Model, optimiser and layout as they are now; an epoch knob replaces them."""
        return self._built

    # one epoch and one step

    def _epoch(self) -> None:
        epoch, started_s = self._position.epoch, time.perf_counter()
        works = self._built.layout.epoch(epoch)
        for work in works[self._position.iteration :]:
            self._step(work)
            self._position = Position(epoch, work.iteration + 1, self._position.step + 1)
            self._meet_while_paused()
            self._save(force=self.knobs.stopping)
            if self.knobs.stopping:
                break
        if self._position.iteration == len(works):
            self._position = Position(epoch + 1, 0, self._position.step)
            self._event("epoch", {"epoch": epoch, "time_s": time.perf_counter() - started_s})
            self._end_profiled_epoch()
            self._tune(epoch)
            if self._position.epoch % self.knobs.config["evaluate_every"] == 0 and not self._is_last():
                self._evaluate(("train", "validation"))

    def _end_profiled_epoch(self) -> None:
        """Go on by another schedule where there is one; by the old one where the scheduler fails, on every rank."""
        try:
            if self._built.end_epoch():
                self._tell("schedule")
        except PlanError as error:
            changes = {"group_times": self.knobs.config["group_times"]}
            self._event("refused", {"changes": changes, "reason": str(error)})

    def _tune(self, epoch: int) -> None:
        decision = windowed.tuned(self._built, self.knobs.config, epoch, self._row_memory)
        if decision is None:
            return
        if self._group.rank == 0:
            self._recorder.row("decisions", (self._position.step, epoch, *decision.row))
        if changed := self.knobs.apply({"set": decision.changes}):
            self._take_settings()
            self._knob_event(changed, "step", self._position.step, by=decision.policy)

    def _is_over(self) -> bool:
        """Whether all epochs are done, once what was asked for since the last exchange has been heard as well."""
        if self._position.epoch < self.knobs.config.epochs:
            return False
        self._control.refuse(ENDING)
        self._meet()
        self._rebuild_if_asked()
        if self.knobs.stopping or self._position.epoch >= self.knobs.config.epochs:
            return True
        self._control.refuse("")  # more epochs were asked for
        return False

    def _is_last(self) -> bool:
        return self._position.epoch >= self.knobs.waiting.get("epochs", self.knobs.config.epochs)

    def _step(self, work: Work) -> None:
        clock, built, cpu_s = self._clock, self._built, time.process_time()
        sent, received = self._group.bytes_sent, self._group.bytes_received
        clock.start()
        built.gradients.zero()
        computed = built.layout.compute(work, clock)
        self._slow_down()
        clock("compute")
        asked = self._control.latest() if self._group.rank == 0 else 0
        agreed = built.gradients.exchange(version=asked, loss_sum=computed.loss_sum, groups=computed.groups)
        clock.exchange(agreed.wait_s)
        loss = agreed.loss_sum / max(agreed.groups, 1)
        if not abs(loss) < float("inf"):
            raise not_finite(loss, self._position, self.knobs.config.learning_rate)
        self._loss = loss
        built.optimizer.step()
        clock("update")
        self._apply_up_to(agreed.version, self._position.step + 1)
        self._recorder.check()
        clock("control")
        moved = (self._group.bytes_sent - sent, self._group.bytes_received - received)
        self._record(work, computed, loss, time.process_time() - cpu_s, moved)
        if built.scheduling is not None:
            built.scheduling.observe(self._taken_down.get("groups", ()), agreed.communicate_s)

    def _slow_down(self) -> None:
        if self.knobs.config["slow_rank"] == self._group.rank and self.knobs.config["slow_ms"] > 0:
            time.sleep(self.knobs.config["slow_ms"] * 1e-3)

    def _record(self, work: Work, computed: Computed, loss: float, cpu_s: float, moved: tuple[int, int]) -> None:
        intervals = self._clock.intervals
        spent = self._clock.seconds()
        step, epoch = self._position.step, self._position.epoch
        energy_j, energy_source = self._vitals.step_energy(step)
        own = computed.loss_sum / computed.groups if computed.groups else None
        start_ns, end_ns = intervals[0][1], intervals[-1][2]
        self._recorder.row(
            "steps",
            (step, epoch, work.iteration, end_ns, (end_ns - start_ns) * 1e-9, own, loss, computed.groups,
             computed.vertex_snapshots, spent["batch"], spent["transfer"], spent["compute"], spent["wait"],
             spent["communicate"], spent["update"], spent["control"], cpu_s, *moved, energy_j, energy_source,
             self.knobs.version),
        )  # fmt: skip
        for phase, begin_ns, finish_ns in intervals:
            self._recorder.row("phases", (step, epoch, phase, begin_ns, finish_ns))
        self._taken_down = self._built.layout.rows()
        for table, rows in self._taken_down.items():
            for row in rows:
                self._recorder.row(table, (step, epoch, *row))

    # control

    def _apply_up_to(self, version: int, next_step: int) -> None:
        while self.knobs.version < version:
            self.knobs.version += 1
            payload = self._control.payload(self.knobs.version)
            was_paused = self.knobs.paused
            changed = self.knobs.apply(payload)
            if changed:
                self._take_settings()
                self._knob_event(changed, "step", next_step)
            if self.knobs.paused != was_paused:
                self._event("paused" if self.knobs.paused else "unpaused", {"version": self.knobs.version}, next_step)
            if payload.get("stop"):
                self._event("stopping", {"version": self.knobs.version}, next_step)

    def _take_settings(self) -> None:
        windowed.steer(self._built, self.knobs.config)
        for options in self._built.optimizer.param_groups:
            options["lr"] = self.knobs.config.learning_rate

    def _meet_while_paused(self) -> None:
        while self.knobs.paused and not self.knobs.stopping:
            if self._group.rank == 0:
                self._control.wait(self.knobs.version, CONTROL_ROUND_S)
            self._meet()
            self._recorder.check()

    def _meet(self) -> None:
        """A control round between steps."""
        asked = self._control.latest() if self._group.rank == 0 else 0
        self._apply_up_to(self._built.gradients.agree(asked), self._position.step)

    def _rebuild_if_asked(self) -> None:
        """Apply epoch knobs: in-memory checkpoint, build, restore. A config that fails leaves the run as it was."""
        if not self.knobs.waiting or self._position.iteration:  # a run resumed within an epoch ends it by its old plan
            return
        changes, before, started_ns = self.knobs.waiting, self._built, time.time_ns()
        self.knobs.waiting = {}
        memory, told, group = self._snapshot(), Told(), self._group
        config, reason = attempted(partial(self._build_anew, changes, memory), group, device=self._device)
        if not reason:  # what follows is collective: all ranks have built
            measured = windowed.measure(self._built, group, device=self._device)
            plans = partial(told_plans, self._built, self._graph, group, before, measured)
            found, reason = attempted(plans, group, device=self._device)
            del plans  # it holds what trained before
            told = found or told
        if reason:
            self._built = before
            self._event("refused", {"changes": changes, "reason": reason})
        else:
            assert config is not None
            self.knobs.config, self._row_memory = config, measured
            self._take_settings()
            self._note_rebuild(changes, told, started_ns)
            planned = [(built.config.system, built.snapshot_blocks) for built in (self._built, before)]
            if measured is not None or (tells_blocks(self._built) and planned[0] != planned[1]):
                self._probe_memory()  # as it is now; the new blocks' memory is not the old ones'
        heavy = before.partition is not None or before.snapshot_blocks is not None or self._device != "cpu"
        del before, memory
        if heavy:  # sequences and their stores hold each other, and tensors that there may be no second room for
            gc.collect()

    def _build_anew(self, changes: dict[str, Any], memory: Checkpoint) -> RunConfig:
        config = self.knobs.config.replace(**changes)
        self._built = build(config, self._graph, self._group, device=self._device, plan=memory.plan)
        self._restore(memory)
        return config

    def _note_rebuild(self, changes: dict[str, Any], told: Told, started_ns: int) -> None:
        ended_ns, step = time.time_ns(), self._position.step
        self._recorder.row("phases", (step, self._position.epoch, "rebuild", started_ns, ended_ns))
        took_s = (ended_ns - started_ns) * 1e-9
        self._knob_event(changes, "epoch", step, took_s=took_s)
        for kind, data in told:
            self._event(kind, {**data, "rebuild_s": took_s})

    # state

    def _snapshot(self) -> Checkpoint:
        return Checkpoint(
            self._built.model.state_dict(),
            self._built.optimizer.state_dict(),
            self._position,
            self.knobs.config.to_json(),
            self.knobs.waiting,
            self._graph.data_hash,
            {**self._built.plan, **self._carried},
        )

    def _knobs_of(self, stored: Checkpoint, changes: dict[str, Any]) -> Knobs:
        """Position and settings to go on with; within an epoch, changes of its plan wait until it is over."""
        config = RunConfig.from_json(stored.config_json)
        changed = check_changes(config, changes)
        self._position = stored.position
        waiting = {name: value for name, value in stored.waiting.items() if name not in changes}
        if self._position.iteration == 0:
            return Knobs(changed, waiting=waiting)
        knobs = Knobs(config, waiting=waiting)
        knobs.apply({"set": changes})
        return knobs

    def _restore(self, stored: Checkpoint) -> None:
        stored.restore(self._built.model, self._built.optimizer)

    def _save(self, *, force: bool) -> None:
        """Rank 0 writes a checkpoint: where forced now and with what is carried, else when due, good and at rest."""
        self._carried = windowed.gathered_state(self._built, self._group) if force else {}
        if self._group.rank != 0:
            return
        started_ns = time.time_ns()
        written: Checkpoint | None
        if force:
            forced = written = self._snapshot()
            self._last_good.write(forced)
        else:
            every_s = self.knobs.config["checkpoint_every_s"] if windowed.at_rest(self._built) else float("inf")
            written = self._last_good.after_step(self._loss, every_s, self._snapshot)
        if written is not None:
            at = written.position
            self._recorder.row("phases", (at.step, self._current_epoch, "checkpoint", started_ns, time.time_ns()))
            self._event("checkpoint", {"step": at.step, "epoch": at.epoch}, step=at.step)

    @property
    def _current_epoch(self) -> int:
        """The epoch that what is done between steps belongs to: the one just ended where the next has not begun."""
        at_boundary = self._position.iteration == 0 and self._position.step > 0
        return self._position.epoch - at_boundary

    def _evaluate(self, splits: tuple[str, ...], *, final: bool = False) -> None:
        started_ns = time.time_ns()
        step, epoch = self._position.step, self._position.epoch
        for result in self._built.evaluator.evaluate(self._built.model, splits, final=final):
            if self._group.rank == 0:
                self._recorder.row(
                    "evaluations",
                    (step, epoch, time.time_ns(), result.split, result.loss, result.persistence_loss, result.mean_loss,
                     result.snapshots, result.metrics),
                )  # fmt: skip
        self._recorder.row("phases", (step, self._current_epoch, "evaluate", started_ns, time.time_ns()))

    def _probe_memory(self) -> None:
        traced = probe_memory(self._built, device=self._device)
        self._recorder.row("memory", (self._position.step, time.time_ns(), None, None, traced.peak_bytes))
        self._event("memory_trace", traced.told())

    def _tell(self, *kinds: str) -> None:
        for kind, data in told_plans(self._built, self._graph, self._group, memory=self._row_memory):
            if kind in kinds:
                self._event(kind, data)

    def _knob_event(self, changes: dict[str, Any], when: str, step: int, **facts: Any) -> None:
        """Changes that rule from ``step`` on; every rank writes them, so that agreement can be seen."""
        data = {"version": self.knobs.version, "changes": changes, "when": when, **facts}
        self._recorder.row("events", (step, self._position.epoch, time.time_ns(), "knob", data))

    def _event(self, kind: str, data: dict[str, Any], step: int | None = None) -> None:
        if self._group.rank == 0:
            step = self._position.step if step is None else step
            self._recorder.row("events", (step, self._position.epoch, time.time_ns(), kind, data))
