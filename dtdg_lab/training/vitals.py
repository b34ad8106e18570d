"""What a rank's side thread samples while the loop runs: memory and energy, once a second."""

from __future__ import annotations

import threading
import time

import psutil

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.peak_rss import peak_rss_bytes
from dtdg_lab.energy.choose import readers_for
from dtdg_lab.energy.modelled import ModelledReader
from dtdg_lab.energy.reader import EnergyReader
from dtdg_lab.training.interfaces import Recorder

SAMPLE_S = 1.0


class Vitals:
    """Samples resident memory and energy into the tables ``memory`` and ``energy``.

    Where the processors' energy is modelled, each step gets its share as well (:meth:`step_energy`); a counter of the
    node or the GPU is too coarse for single steps, and their energy stays unknown.

    Args:
        config: for the powers the model assumes.
        device: ``cpu`` or a CUDA device.
        rank: this rank, of ``size`` on the node.
        size: ranks on this node.
        recorder: takes the rows.
    """

    def __init__(self, config: RunConfig, device: str, rank: int, size: int, recorder: Recorder) -> None:
        idle_w, max_w = config["power_idle_w"], config["power_max_w"]
        kind, _, index = device.partition(":")
        self._readers: list[EnergyReader]
        self._readers, self.notes = readers_for(
            "cuda" if kind == "cuda" else "cpu",
            local_rank=rank,
            local_ranks=size,
            device_index=int(index) if index else None,
            idle_w=idle_w,
            max_w=max_w,
        )
        modelled = kind == "cpu" and any(isinstance(reader, ModelledReader) for reader in self._readers)
        self._per_step = ModelledReader(ranks_on_node=size, idle_w=idle_w, max_w=max_w) if modelled else None
        self._recorder = recorder
        self._step = 0
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_closed, name="vitals", daemon=True)
        self._last_cpu_s = time.process_time()

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

    def _sample_until_closed(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        now_ns = time.time_ns()
        rss_bytes = self._process.memory_info().rss
        self._recorder.row("memory", (self._step, now_ns, rss_bytes, max(peak_rss_bytes(), rss_bytes), None))
        cpu_s = time.process_time()
        for reader in self._readers:
            reading = reader.read()
            if reading is not None:
                self._recorder.row(
                    "energy",
                    (now_ns, reading.interval_s, reading.joules, reading.watts, cpu_s - self._last_cpu_s,
                     reading.reader, reading.source, reading.scope),
                )  # fmt: skip
        self._last_cpu_s = cpu_s

    def close(self) -> None:
        """Stop, with a last sample so that no joule is left out; a second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sample()
        for reader in self._readers:
            reader.close()
