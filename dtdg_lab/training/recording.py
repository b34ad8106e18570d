"""Records of a rank: the clock of its phases, steps, events, memory and energy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple
from typing import Any

import psutil
import torch

from dtdg_lab.config.record_tables import PHASES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import peak_rss_bytes
from dtdg_lab.distributed.group import hash_of_host
from dtdg_lab.distributed.model_averaging import Round
from dtdg_lab.energy.monitor import SHARE, EnergyMeter, readers_for
from dtdg_lab.energy.phases import Interval, PhaseEnergy, Row
from dtdg_lab.energy.readers import BusySeconds, ChildSeconds, ModelledReader, PowerModel
from dtdg_lab.energy.total import GPU, PROCESSOR
from dtdg_lab.engine.capabilities import Decision, Fetched, ServesFeatures
from dtdg_lab.engine.strategy import RecordRows, Step, StepMarks, StepResult, Strategy
from dtdg_lab.records.events import CheckpointKept, CheckpointWritten, RanksGathered, SettingsChanged
from dtdg_lab.tasks.base import Scores
from dtdg_lab.training.checkpoint import Position
from dtdg_lab.training.interfaces import Recorder

# Phases of a step as intervals that touch: they sum to the step by construction.


class PhaseClock(StepMarks):
    """Marks where one phase ends and the next begins; on a GPU the device is waited for at each mark.

    Args:
        device: ``cpu`` or a CUDA device.

    Attributes:
        intervals: phase, start and end in nanoseconds, since the step began.
        cpu_s: processor seconds of this process, all threads, by phase.
    """

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._epoch_offset_ns = time.time_ns() - time.perf_counter_ns()
        self.intervals: list[tuple[str, int, int]] = []
        self.cpu_s: dict[str, float] = {}
        self._last_ns = 0
        self.start()

    def start(self) -> None:
        """Begin a step: forget the last one's intervals."""
        self.intervals.clear()
        self.cpu_s.clear()
        self._last_cpu_s = time.process_time()
        self._last_ns = self._now_ns()

    def _now_ns(self) -> int:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter_ns() + self._epoch_offset_ns

    def __call__(self, phase: str) -> None:
        """The time since the last mark was ``phase``."""
        now_ns = self._now_ns()
        self.intervals.append((phase, self._last_ns, now_ns))
        self._last_ns = now_ns
        self._count(phase)

    def exchange(self, wait_s: float) -> None:
        """The time since the last mark was an exchange; its first ``wait_s`` were spent waiting for other ranks."""
        now_ns = self._now_ns()
        arrived_ns = min(self._last_ns + round(wait_s * 1e9), now_ns)
        self.intervals.append(("wait", self._last_ns, arrived_ns))
        self.intervals.append(("communicate", arrived_ns, now_ns))
        self._last_ns = now_ns
        self._count("communicate")  # a rank that waits for others is idle, or nearly so

    def _count(self, phase: str) -> None:
        cpu_s = time.process_time()
        self.cpu_s[phase] = self.cpu_s.get(phase, 0.0) + cpu_s - self._last_cpu_s
        self._last_cpu_s = cpu_s

    def seconds(self) -> dict[str, float]:
        """Seconds by phase since the start; a phase marked twice is summed."""
        total: dict[str, float] = {}
        for phase, start_ns, end_ns in self.intervals:
            total[phase] = total.get(phase, 0.0) + (end_ns - start_ns) * 1e-9
        return total


# What a rank notes beside its steps: memory and energy once a second, and joules by phase.


SAMPLE_S = 1.0


class ResourceMonitor:
    """Samples resident memory and energy into the tables ``memory``, ``energy`` and ``phase_energy``.

    Where the processors' energy is modelled, each step gets its share as well (:meth:`step_energy`); a counter of the
    node or the GPU is too coarse for single steps, and their energy stays unknown.

    Args:
        config: for the powers the model assumes.
        device: ``cpu`` or a CUDA device.
        rank: this rank, of ``size`` on the node.
        size: ranks on this node.
        recorder: takes the rows.

    Attributes:
        notes: what could not be read, and what is done instead.
        children: tells the numbers of processes that work for this rank now, such as its server of features.
    """

    def __init__(self, config: RunConfig, device: str, rank: int, size: int, recorder: Recorder) -> None:
        self._power = _power(config)
        self.children: Callable[[], tuple[int, ...]] = tuple
        in_children = ChildSeconds(self._working)
        busy = BusySeconds()

        def processor() -> float:
            return time.process_time() + in_children()

        kind, _, index = device.partition(":")
        readers, self.notes = readers_for(
            "cuda" if kind == "cuda" else "cpu",
            local_rank=rank,
            local_ranks=size,
            device_index=int(index) if index else None,
            **asdict(self._power),
            gpu_busy=busy,
            shares=True,
            processor=processor,
        )
        self._meter = EnergyMeter(readers)
        own = {reader.device for reader in readers if not reader.name.endswith(SHARE)}
        self._unread = [device for device in (PROCESSOR, *([GPU] if kind == "cuda" else [])) if device not in own]
        self._node = f"{hash_of_host():08x}"
        self._phases = PhaseEnergy(self._meter, self._power, ranks_on_node=size, gpu_busy=busy, children=in_children)
        modelled = kind == "cpu" and any(isinstance(reader, ModelledReader) for reader in readers)
        idle_w, max_w = self._power.idle_w, self._power.max_w
        self._per_step = (
            ModelledReader(ranks_on_node=size, idle_w=idle_w, max_w=max_w, processor=processor) if modelled else None
        )
        self._recorder = recorder
        self._step = self._epoch = 0
        self._told_lost: set[str] = set()
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_closed, name="vitals", daemon=True)
        self._last_cpu_s, self._last_ns = time.process_time(), time.time_ns()

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def step_energy(self, step: int) -> tuple[float | None, str | None]:
        """Joules of this rank since the last call and where they come from; (None, None) where unknown."""
        self._step = step
        if self._per_step is None:
            return None, None
        reading = self._per_step.read()
        return (None, None) if reading is None else (reading.joules, reading.source)

    def use(self, config: RunConfig) -> None:
        """Assume a config's powers from now on."""
        power = _power(config)
        if power == self._power:
            return
        self._power = power
        self._phases.set_power(power)
        if self._per_step is not None:
            self._per_step.set_power(power)

    def phases(
        self, step: int, epoch: int, intervals: list[Interval], cpu_s: Mapping[str, float], *, still_s: float
    ) -> None:
        """Share joules out over the phases of a step that is over; ``still_s`` of it were spent waiting for features.

        Waiting for features is in the phase ``transfer``.
        """
        self._step, self._epoch = step, epoch
        self._note(self._phases.add(step, epoch, intervals, cpu_s, stalled_s={"transfer": still_s}))

    def between(self, phase: str, start_ns: int, end_ns: int) -> None:
        """Something was done between steps."""
        self._phases.between(phase, start_ns, end_ns)

    def end_epoch(self) -> None:
        """An epoch and what follows it is over."""
        self._note(self._phases.end_epoch())

    def _working(self) -> tuple[int, ...]:
        return self.children()

    def _note(self, rows: list[Row]) -> None:
        for row in rows:
            self._recorder.row("phase_energy", row)

    def _sample_until_closed(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        now_ns = time.time_ns()
        rss_bytes = self._process.memory_info().rss
        self._recorder.row("memory", (self._step, now_ns, rss_bytes, max(peak_rss_bytes(), rss_bytes), None))
        cpu_s = time.process_time()
        spent_s, passed_s = cpu_s - self._last_cpu_s, (now_ns - self._last_ns) * 1e-9
        for of in self._meter.sample():
            if of.reader.endswith(SHARE):
                continue  # the node's row has these joules
            known = (of.interval_s, of.joules, of.watts, spent_s, of.reader, of.source, of.scope, of.device)
            self._recorder.row("energy", (now_ns, *known, self._node))
        for device in self._unread:
            unknown = (passed_s, None, None, spent_s, None, None, "rank", device)
            self._recorder.row("energy", (now_ns, *unknown, self._node))
        self._last_cpu_s, self._last_ns = cpu_s, now_ns
        for name in self._meter.lost.keys() - self._told_lost:
            self._told_lost.add(name)
            data = {"reader": name, "reason": self._meter.lost[name]}
            self._recorder.row("events", (self._step, self._epoch, now_ns, "energy lost", data))

    def close(self) -> None:
        """Stop, with a last sample so that no joule is left out; a second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._note(self._phases.close())
        self._sample()
        self._meter.close()


def _power(config: RunConfig) -> PowerModel:
    names = ("idle_w", "max_w", "gpu_idle_w", "gpu_max_w")
    return PowerModel(**{name: config[f"power_{name}"] for name in names})


# What the loop writes down on a rank: steps with their phases, and events.


Moved = tuple[int, int]  # bytes sent and received


class StepRecorder:
    """Writes a rank's records. The fields of rounds and of scores are the columns of their tables.

    Args:
        recorder: takes rows.
        clock: of the steps' phases.
        vitals: measures the energy of a step.
        rank: this one; rank 0 writes most events.

    Attributes:
        taken_down: by the layout, of the last step, by table.
    """

    def __init__(self, recorder: Recorder, clock: PhaseClock, resource_monitor: ResourceMonitor, rank: int) -> None:
        self._recorder, self._clock, self._resource_monitor, self._rank = recorder, clock, resource_monitor, rank
        self.last_rows: RecordRows = {}

    def step(
        self,
        at: Position,
        work: Step,
        computed: StepResult,
        *,
        loss: float | None,
        cpu_s: float,
        moved: Moved,
        version: int,
        strategy: Strategy,
    ) -> float | None:
        """The rows of a step that is over; its joules where they are known.

        Args:
            at: which step.
            work: what was to be computed.
            computed: what was.
            loss: of all groups; None where they had no labels.
            cpu_s: processor seconds of this process.
            moved: bytes in the step, sent and received, but for features that were fetched.
            version: of the control word that holds after it.
            strategy: that has recorded more.
        """
        intervals, spent = self._clock.intervals, self._clock.seconds()
        energy_j, energy_source = self._resource_monitor.step_energy(at.step)
        own = computed.loss_sum / computed.groups if computed.groups else None
        start_ns, end_ns = intervals[0][1], intervals[-1][2]
        self.last_rows = strategy.rows()
        fetched = strategy.fetched(self.last_rows) if isinstance(strategy, ServesFeatures) else Fetched(0, 0.0)
        moved = moved[0], moved[1] + fetched.received_bytes
        self._recorder.row(
            "steps",
            (
                at.step,
                at.epoch,
                work.iteration,
                end_ns,
                (end_ns - start_ns) * 1e-9,
                own,
                loss,
                computed.groups,
                computed.vertex_snapshots,
                *(spent[phase] for phase in PHASES),
                cpu_s,
                *moved,
                energy_j,
                energy_source,
                version,
            ),
        )
        self._resource_monitor.phases(at.step, at.epoch, intervals, self._clock.cpu_s, still_s=fetched.wait_s)
        for phase, begin_ns, finish_ns in intervals:
            self._recorder.row("phases", (at.step, at.epoch, phase, begin_ns, finish_ns))
        for table, rows in self.last_rows.items():
            for row in rows:
                self._recorder.row(table, (at.step, at.epoch, *row))
        return energy_j

    def flush(self) -> None:
        """Write all rows so far."""
        self._recorder.flush()

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        """Whether these ranks have written that step."""
        return self._recorder.reached(step, ranks)

    def rounds(self, at: Position, rounds: list[Round]) -> None:
        """Rounds of averaging that were applied."""
        for of in rounds:
            self._recorder.row("rounds", (at.step, at.epoch, *astuple(of)))

    def gathered(self, at: Position, started_ns: int, moved: Moved) -> None:
        """All ranks have come together: how long this one waited, and what was moved meanwhile."""
        gathered = RanksGathered((time.time_ns() - started_ns) * 1e-9, *moved)
        self.own_event(at, gathered.kind, gathered.write())

    def between(self, step: int, epoch: int, phase: str, started_ns: int) -> int:
        """Something done between steps, that is over now; returns when that is."""
        ended_ns = time.time_ns()
        self._recorder.row("phases", (step, epoch, phase, started_ns, ended_ns))
        self._resource_monitor.between(phase, started_ns, ended_ns)
        return ended_ns

    def checkpoint(self, of: Position, epoch: int, started_ns: int) -> None:
        """One that was written in an epoch, of a position."""
        self.between(of.step, epoch, "checkpoint", started_ns)
        self.event(of, CheckpointWritten.kind, CheckpointWritten(of.step, of.epoch).write())

    def kept(self, name: str, of: Position, epoch: int, started_ns: int) -> None:
        """One that was written to be kept."""
        self.between(of.step, epoch, "checkpoint", started_ns)
        self.event(of, CheckpointKept.kind, CheckpointKept(f"{name}.pt", of.epoch, of.iteration, of.step).write())

    def evaluations(self, at: Position, results: list[Scores]) -> None:
        """Scores of parts of the sequence, on rank 0."""
        for of in results if self._rank == 0 else ():
            self._recorder.row("evaluations", (at.step, at.epoch, time.time_ns(), *astuple(of)))

    def live_settings(self, at: Position, changed: SettingsChanged, step: int) -> None:
        """Changes that rule from ``step`` on; every rank writes them, so that agreement can be seen."""
        self.own_event(at, changed.kind, changed.write(), step)

    def event(self, at: Position, kind: str, data: dict[str, Any], step: int | None = None) -> None:
        """What happened, on rank 0."""
        if self._rank == 0:
            self.own_event(at, kind, data, step)

    def own_event(self, at: Position, kind: str, data: dict[str, Any], step: int | None = None) -> None:
        """What happened on this rank."""
        self._recorder.row("events", (at.step if step is None else step, at.epoch, time.time_ns(), kind, data))

    def decision(self, at: Position, row: Decision) -> None:
        """What was decided, on rank 0."""
        if self._rank == 0:
            self._recorder.row("decisions", (at.step, at.epoch, *row))
