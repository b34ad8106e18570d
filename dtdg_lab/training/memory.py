"""Memory of a step, its peak and its course, from live tensor storages on the CPU or the allocator on a GPU."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dtdg_lab.engine.capabilities import DescribesMemory
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.plan_reports import report_plans
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.state import TrainingState

MOST_SAMPLES = 2_000


class _StorageLedger(TorchDispatchMode):
    """Bytes of all storages that operations make, while they are alive.

    torch's own ``MemTracker`` follows modules and refuses one that is called twice in a step, as a recurrent one is.
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
        if storages:  # a view's storage, or that of a tensor changed in place, was there before
            inputs = {storage._cdata for storage in _dense_storages((*args, *kwargs.values()))}
            for storage in storages:
                if storage._cdata not in inputs and storage._cdata not in self._known:
                    self._follow(storage)
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled; torch's guard against it takes as long as the operation

    def _follow(self, storage: torch.UntypedStorage) -> None:
        size, name = storage.nbytes(), storage._cdata
        self._known.add(name)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if self._note is not None:
            self._note(self.live_bytes)
        # a storage keeps its Python object as long as anything holds it, so this runs when the memory goes
        weakref.finalize(storage, self._forget, name, size)

    def _forget(self, name: int, size: int) -> None:
        self._known.discard(name)
        self.live_bytes -= size
        if self._note is not None:
            self._note(self.live_bytes)


class _AllocatorReader(TorchDispatchMode):
    """Reads after every operation the bytes that a GPU's allocator has given out."""

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

    On the CPU every dense storage made inside the step is followed until it dies; what existed before (parameters,
    the graph) is not counted, nor what kernels use inside. On a GPU it is the allocator's peak, which counts both.

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
    """A step needs more memory than it may."""


def fits_memory(step: Callable[[], None], limit_bytes: float, *, device: str = "cpu") -> bool:
    """Return True if ``step`` has at most so many bytes of tensors alive; on the CPU it ends where it has more.

    Args:
        step: forward and backward of one step, which may leave gradients of a part.
        limit_bytes: the most it may have, counted as by :func:`peak_bytes`.
        device: ``cpu`` or a CUDA device.
    """
    if device.startswith("cuda"):
        try:
            return peak_bytes(step, device=device) <= limit_bytes
        except torch.OutOfMemoryError:
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

    The step ran several times slower than outside the probe, so seconds give an order rather than durations.

    Attributes:
        peak_bytes: the most at any time.
        seconds: times of the samples since the step began.
        bytes: in use then; of neighbouring samples the largest is kept.
        blocks: (second, number, pass) where a time block begins.
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
    """Samples of any number; at most ``limit`` are kept, the largest of every few in a row."""

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
    """Marks of a probed step: when its time blocks begin."""

    def __init__(self, limit: int) -> None:
        self._began_s = time.perf_counter()
        self.samples = _Samples(limit)
        self.blocks: list[tuple[float, int, str]] = []

    def block(self, number: int, pass_name: str) -> None:
        """Record when a time block begins."""
        self.blocks.append((self._now_s(), number, pass_name))

    def note(self, live_bytes: int) -> None:
        """Sample the bytes in use now."""
        self.samples.add(self._now_s(), live_bytes)

    def _now_s(self) -> float:
        return time.perf_counter() - self._began_s


def trace_memory(step: Callable[[StepMarks], object], *, device: str = "cpu", limit: int = MOST_SAMPLES) -> MemoryTrace:
    """Return the memory in use while ``step`` runs, with its peak as :func:`peak_bytes` has it.

    Args:
        step: forward and backward of one step, which marks where time blocks begin.
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
    """Measures the memory of a step between epochs, never before the first step, which need not wait for it.

    Args:
        state: of this rank.
        recorder: writes records.

    Attributes:
        is_due: whether memory is measured at the end of this epoch, as at the end of the first one of every attempt.
    """

    def __init__(self, state: TrainingState, recorder: StepRecorder) -> None:
        self._state, self._recorder = state, recorder
        self.is_due = True

    def run_if_due(self) -> None:
        """Measure and record the memory of the largest step, if that is due; collective."""
        state = self._state
        if not self.is_due or not state.position.step:
            return
        self.is_due = False
        trace = largest_trace(state.components, device=state.device)
        self._recorder.memory(state.position, trace.peak_bytes)
        self._recorder.event(state.position, "memory_trace", trace.to_dict())
        if isinstance(state.strategy, DescribesMemory):
            report_plans(state, self._recorder, state.strategy.probed_plans)


def largest_trace(components: RunComponents, *, device: str) -> MemoryTrace:
    """Return the memory over the largest step of a strategy; gradients are zero afterwards. Collective as steps are."""
    traces = []
    for step in components.strategy.probe_steps():
        traces.append(trace_memory(step, device=device))
        components.gradients.zero()
    components.gradients.zero()  # the strategy may have computed more by itself
    return max(traces, key=lambda trace: trace.peak_bytes)
