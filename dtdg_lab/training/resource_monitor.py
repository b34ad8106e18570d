"""Memory and energy of a rank, once a second and by phase."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

import psutil
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import peak_rss_bytes
from dtdg_lab.distributed.group import hash_of_host
from dtdg_lab.energy.modelled import BusySeconds, ModelledReader
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.phases import Interval, PhaseEnergy, Row
from dtdg_lab.energy.rank_readers import SHARE, readers_for
from dtdg_lab.energy.readers import ChildSeconds, PowerModel, Reading
from dtdg_lab.energy.total import GPU, PROCESSOR
from dtdg_lab.training.recorder import Recorder

SAMPLE_S = 1.0
_SHARED_NOTE = (
    "GPU energy is unknown: ranks share GPUs or have MIG instances, and counters and power models are of whole GPUs. "
    "Give every rank a GPU of its own to measure it."
)


class ResourceMonitor:
    """Samples resident memory and energy into the tables ``memory``, ``energy`` and ``phase_energy``.

    If the processors' energy is modelled, each step gets its share too (:meth:`step_energy`). A counter of the node or
    the GPU is too coarse for single steps, so their energy stays unknown there; strategies that learn from energy get
    its readings as they come (:meth:`readings`).

    Args:
        config: settings, with the powers of the model.
        device: ``cpu`` or a CUDA device.
        rank: number of this rank on the node.
        size: ranks on this node.
        recorder: writer of rows.
        shares_gpu: whether other ranks compute on the same GPU; its energy is then unknown.

    Attributes:
        notes: unavailable readings and their replacements.
        children: returns the ids of the processes that work for this rank, such as its feature server.
    """

    def __init__(
        self, config: RunConfig, device: str, rank: int, size: int, recorder: Recorder, *, shares_gpu: bool = False
    ) -> None:
        self._power = _power(config)
        self.children: Callable[[], tuple[int, ...]] = tuple
        child_seconds = ChildSeconds(self._child_ids)
        busy = BusySeconds()

        def processor() -> float:
            return time.process_time() + child_seconds()

        kind, _, index = device.partition(":")
        readers, self.notes = readers_for(
            "cuda" if kind == "cuda" and not shares_gpu else "cpu",
            local_rank=rank,
            local_ranks=size,
            device_index=_gpu_name(int(index)) if index else None,
            **asdict(self._power),
            gpu_busy=busy,
            shares=True,
            processor=processor,
        )
        if shares_gpu:
            self.notes.append(_SHARED_NOTE)
        self._meter = EnergyMeter(readers)
        read_devices = {reader.device for reader in readers if not reader.name.endswith(SHARE)}
        self._unread = [
            device for device in (PROCESSOR, *([GPU] if kind == "cuda" else [])) if device not in read_devices
        ]
        self._node = f"{hash_of_host():08x}"
        self._phases = PhaseEnergy(self._meter, self._power, ranks_on_node=size, gpu_busy=busy, children=child_seconds)
        modelled = kind == "cpu" and any(isinstance(reader, ModelledReader) for reader in readers)
        idle_w, max_w = self._power.idle_w, self._power.max_w
        self._per_step = (
            ModelledReader(ranks_on_node=size, idle_w=idle_w, max_w=max_w, processor=processor) if modelled else None
        )
        self._recorder = recorder
        self._step = self._epoch = 0
        self._reported_lost: set[str] = set()
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_closed, name="vitals", daemon=True)
        self._last_cpu_s, self._last_ns = time.process_time(), time.time_ns()

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def step_energy(self, step: int) -> tuple[float | None, str | None]:
        """Return the joules of this rank since the last call, and their source; (None, None) if unknown."""
        self._step = step
        if self._per_step is None:
            return None, None
        reading = self._per_step.read()
        return (None, None) if reading is None else (reading.joules, reading.source)

    def readings(self) -> tuple[Reading, ...]:
        """Return the energy of this rank's devices since the last call, measured or modelled, by reader.

        Of the node's processors it is the rank's share. A device without a new reading, such as a GPU whose counter
        moves every 0.1 s, is left out, and its later reading includes the time.
        """
        return tuple(reading for reading in self._meter.sample("strategy") if reading.scope == "rank")

    def use(self, config: RunConfig) -> None:
        """Use a config's powers from now on."""
        power = _power(config)
        if power == self._power:
            return
        self._power = power
        self._phases.set_power(power)
        if self._per_step is not None:
            self._per_step.set_power(power)

    def phases(
        self, step: int, epoch: int, intervals: list[Interval], cpu_s: Mapping[str, float], *, stalled_s: float
    ) -> None:
        """Divide joules over the phases of a finished step; ``stalled_s`` of the phase ``transfer`` were waiting."""
        self._step, self._epoch = step, epoch
        self._write(self._phases.add(step, epoch, intervals, cpu_s, stalled_s={"transfer": stalled_s}))

    def between(self, phase: str, start_ns: int, end_ns: int) -> None:
        """Record work between steps."""
        self._phases.between(phase, start_ns, end_ns)

    def end_epoch(self) -> None:
        """Record the energy of an epoch and of the work at its end."""
        self._write(self._phases.end_epoch())

    def _child_ids(self) -> tuple[int, ...]:
        return self.children()

    def _write(self, rows: list[Row]) -> None:
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
        for sample in self._meter.sample():
            if sample.reader.endswith(SHARE):
                continue  # the node's row has these joules
            measured = (sample.interval_s, sample.joules, sample.watts, spent_s)
            origin = (sample.reader, sample.source, sample.scope, sample.device)
            self._recorder.row("energy", (now_ns, *measured, *origin, self._node))
        for device in self._unread:
            unknown = (passed_s, None, None, spent_s, None, None, "rank", device)
            self._recorder.row("energy", (now_ns, *unknown, self._node))
        self._last_cpu_s, self._last_ns = cpu_s, now_ns
        for name in self._meter.lost.keys() - self._reported_lost:
            self._reported_lost.add(name)
            data = {"reader": name, "reason": self._meter.lost[name]}
            self._recorder.row("events", (self._step, self._epoch, now_ns, "energy lost", data))

    def close(self) -> None:
        """Stop with a last sample, so that no joule is missing; a second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._write(self._phases.close())
        self._sample()
        self._meter.close()


def _gpu_name(index: int) -> int | str:
    """Return the UUID of a CUDA device for NVML, whose numbers differ from CUDA's on nodes with mixed GPUs.

    Return the number where torch does not tell UUIDs.
    """
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return index if uuid is None else f"GPU-{uuid}"


def _power(config: RunConfig) -> PowerModel:
    names = ("idle_w", "max_w", "gpu_idle_w", "gpu_max_w")
    return PowerModel(**{name: config[f"power_{name}"] for name in names})
