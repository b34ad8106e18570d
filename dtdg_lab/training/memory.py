"""Memory of a step over time and its peak, from live tensor storages on the CPU or the allocator on a GPU."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dtdg_lab.engine.capabilities import DescribesMemory
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.kernels.parallel_map import MemoryLedger
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.plan_reports import report_plans
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.state import TrainingState
from dtdg_lab.training.work_reports import WorkReports

MOST_SAMPLES = 2_000
SLOWER = 2.0  # about, than a step: every operation is noted
R = TypeVar("R")


class _StorageLedger(MemoryLedger):
    """Bytes of all live storages that operations have made.

    torch's own ``MemTracker`` follows modules and rejects recurrent modules, which are called twice in a step.
    """

    def __init__(self, note: Callable[[int], None] | None = None) -> None:
        super().__init__()
        self._note = note
        self.live_bytes = 0
        self.peak_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        storages = [storage for storage in _dense_storages((result,)) if storage._cdata not in self._known]
        if storages:  # views and in-place operations return the storage of an input
            inputs = {storage._cdata for storage in _dense_storages((*args, *kwargs.values()))}
            for storage in storages:
                if storage._cdata not in inputs and storage._cdata not in self._known:
                    self._follow(storage)
        return result

    def run_beside(self, works: Sequence[Callable[[], R]]) -> list[R]:
        """Run works one after another as if each stayed at its peak: the most that they can need at once."""
        results, peak, beside = [], self.peak_bytes, 0
        for work in works:
            begin = self.peak_bytes = self.live_bytes
            results.append(work())
            rise = self.peak_bytes - begin
            peak, beside = max(peak, self.peak_bytes), beside + rise
            self.live_bytes += rise
        self.live_bytes -= beside
        self.peak_bytes = peak
        return results

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled, and torch's check takes as long as the operation

    def _follow(self, storage: torch.UntypedStorage) -> None:
        size, name = storage.nbytes(), storage._cdata
        self._known.add(name)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if self._note is not None:
            self._note(self.live_bytes)
        # the Python object lives as long as the storage, so this runs when the memory is freed
        weakref.finalize(storage, self._forget, name, size)

    def _forget(self, name: int, size: int) -> None:
        self._known.discard(name)
        self.live_bytes -= size
        if self._note is not None:
            self._note(self.live_bytes)


class _AllocatorReader(TorchDispatchMode):
    """Reads the allocated bytes of a GPU after every operation."""

    def __init__(self, note: Callable[[int], None], device: str) -> None:
        super().__init__()
        self._note, self._device = note, device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._note(int(torch.cuda.memory_allocated(self._device)))
        return result


def _dense_storages(values: Iterable[Any]) -> Iterator[torch.UntypedStorage]:
    """Yield the storages of dense tensors among an operation's arguments or results, nested or not."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided:
                yield value.untyped_storage()
        elif isinstance(value, (tuple, list)):
            yield from _dense_storages(value)


def peak_bytes(step: Callable[[], None], *, device: str = "cpu") -> int:
    """Return the most bytes of tensors alive at once while ``step`` runs.

    On the CPU it follows every dense storage made inside the step until it is freed. Earlier tensors (parameters, the
    graph) and kernels' scratch memory do not count. On a GPU it is the allocator's peak, which counts both.

    Args:
        step: forward and backward of one step; call it outside timing, it runs several times slower.
        device: ``cpu`` or a CUDA device.
    """
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device))
    ledger = _StorageLedger()
    with ledger:
        step()
    return ledger.peak_bytes


class _OverLimitError(Exception):
    """A step exceeds its memory limit."""


def fits_memory(step: Callable[[], None], limit_bytes: float, *, device: str = "cpu") -> bool:
    """Return True if the peak of ``step`` is at most ``limit_bytes``; on the CPU a larger step is aborted.

    Args:
        step: forward and backward of one step; if aborted, it may leave incomplete gradients.
        limit_bytes: limit of :func:`peak_bytes`.
        device: ``cpu`` or a CUDA device.
    """
    if device.startswith("cuda"):
        try:
            return peak_bytes(step, device=device) <= limit_bytes
        except torch.cuda.OutOfMemoryError:
            return False

    def check(live_bytes: int) -> None:
        if live_bytes > limit_bytes:
            raise _OverLimitError

    try:
        with _StorageLedger(check):
            step()
    except _OverLimitError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class MemoryTrace:
    """Memory in use over one step.

    The probe slows the step several times, so seconds show the order rather than durations.

    Attributes:
        peak_bytes: peak memory.
        seconds: times of the samples since the start of the step.
        bytes: memory at these times; the largest of neighbouring samples is kept.
        blocks: (second, number, pass) of the start of each time block.
    """

    peak_bytes: int
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    blocks: tuple[tuple[float, int, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the data of an event ``memory_trace``."""
        return {
            "peak_bytes": self.peak_bytes,
            "seconds": [round(second, 6) for second in self.seconds],
            "bytes": list(self.bytes),
            "blocks": [[round(second, 6), number, pass_name] for second, number, pass_name in self.blocks],
        }


class _Samples:
    """At most ``limit`` samples, each the largest of several consecutive ones."""

    def __init__(self, limit: int) -> None:
        self._limit, self._stride, self._left = max(2, limit), 1, 0
        self.samples: list[tuple[float, int]] = []

    def add(self, second: float, value: int) -> None:
        if self._left:
            self._left -= 1
            if value > self.samples[-1][1]:
                self.samples[-1] = (second, value)
            return
        if len(self.samples) == self._limit:
            pairs = [self.samples[i : i + 2] for i in range(0, self._limit, 2)]
            self.samples = [max(pair, key=lambda sample: sample[1]) for pair in pairs]
            self._stride *= 2
        self.samples.append((second, value))
        self._left = self._stride - 1


class _Probe(StepMarks):
    """Marks of a probed step, which record the start of time blocks."""

    def __init__(self, limit: int) -> None:
        self._began_s = time.perf_counter()
        self.samples = _Samples(limit)
        self.blocks: list[tuple[float, int, str]] = []

    def block(self, number: int, pass_name: str) -> None:
        """Record the start of a time block."""
        self.blocks.append((self._now_s(), number, pass_name))

    def note(self, live_bytes: int) -> None:
        """Add a sample of the bytes in use."""
        self.samples.add(self._now_s(), live_bytes)

    def _now_s(self) -> float:
        return time.perf_counter() - self._began_s


def trace_memory(step: Callable[[StepMarks], object], *, device: str = "cpu", limit: int = MOST_SAMPLES) -> MemoryTrace:
    """Return the memory over ``step``, with the peak of :func:`peak_bytes`.

    Args:
        step: forward and backward of one step, which marks the start of time blocks.
        device: ``cpu`` or a CUDA device.
        limit: most samples kept.
    """
    probe = _Probe(limit)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        with _AllocatorReader(probe.note, device):
            step(probe)
        torch.cuda.synchronize(device)
        peak = int(torch.cuda.max_memory_allocated(device))
    else:
        probe.note(0)
        ledger = _StorageLedger(probe.note)
        with ledger:
            step(probe)
        peak = ledger.peak_bytes
    seconds, live_bytes = zip(*probe.samples.samples, strict=True) if probe.samples.samples else ((), ())
    return MemoryTrace(peak, seconds, live_bytes, tuple(probe.blocks))


class MemoryProbe:
    """Measures the memory of a step between epochs; not before the first step, so as not to delay it.

    Args:
        state: training state of this rank.
        recorder: writes records.

    Attributes:
        is_due: whether to measure memory at the end of this epoch; True in the first epoch of every attempt.
    """

    def __init__(self, state: TrainingState, recorder: StepRecorder) -> None:
        self._state, self._recorder = state, recorder
        self.is_due = True

    def run_if_due(self) -> None:
        """Measure and record the memory of the largest step, if due; collective."""
        state = self._state
        if not self.is_due or not state.position.step:
            return
        self.is_due = False
        with closing(WorkReports(self._recorder, state.position, "Measuring the memory of a step")) as reports:
            if self._recorder.newest is not None:
                reports.begin(SLOWER * self._recorder.newest.seconds)
            trace = largest_trace(state.components, device=state.device)
        self._recorder.memory(state.position, trace.peak_bytes)
        self._recorder.event(state.position, "memory_trace", trace.to_dict())
        if isinstance(state.strategy, DescribesMemory):
            report_plans(state, self._recorder, state.strategy.probed_plans)


def largest_trace(components: RunComponents, *, device: str) -> MemoryTrace:
    """Return the memory over the largest step of a strategy; gradients are zero afterwards. Collective."""
    traces = []
    for step in components.strategy.probe_steps():
        traces.append(trace_memory(step, device=device))
        components.gradients.zero()
    components.gradients.zero()  # the strategy may have computed further steps
    return max(traces, key=lambda trace: trace.peak_bytes)
