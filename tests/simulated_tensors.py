"""Tensors of a simulated device: computed by the CPU, and every operation that makes the host wait is noted.

torch's `torch.cuda.set_sync_debug_mode("error")` without a GPU. Its tensors wrap tensors of the CPU and claim another
device, so the package takes its paths for accelerators.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import dtdg_lab
from dtdg_lab.engine.backprop import time_blocks
from dtdg_lab.engine.views import device_sequence
from dtdg_lab.kernels import uploads
from dtdg_lab.kernels.device_clock import HostClock, HostFlight, StartCollective
from dtdg_lab.kernels.uploads import Uploader

TYPE = "simulated"
DEVICE = f"{TYPE}:0"
PACKAGE = str(Path(dtdg_lab.__file__).parent)
_setup_privateuseone_for_python_backend(TYPE)  # now: autograd asks for devices once, at the first backward
aten = torch.ops.aten
# operations whose result, or its size, depends on values on the device
READS = {
    aten._local_scalar_dense.default: "reads a number",
    aten.equal.default: "reads a number",
    aten.is_nonzero.default: "reads a number",
    aten.nonzero.default: "reads a size",
    aten.masked_select.default: "reads a size",
    aten._unique2.default: "reads a size",
    aten.unique_dim.default: "reads a size",
    aten.unique_consecutive.default: "reads a size",
    aten.bincount.default: "reads a size",
}
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
COPY, FROM, REPEAT = aten.copy_.default, aten._to_copy.default, aten.repeat_interleave.Tensor
MAKERS = (torch.tensor, torch.as_tensor, torch.asarray)  # they copy without a dispatch of their own


class WaitCounter:
    """Counts the waits of the host in a `with` statement, within which tensors can be made on ``DEVICE``.

    Attributes:
        waits: (what, where) -> how often the host waited; where is file and function of the package.
    """

    def __init__(self) -> None:
        self.waits: Counter[tuple[str, str]] = Counter()
        self._modes = (_Dispatch(self), _Function())

    def __enter__(self) -> WaitCounter:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)

    def note(self, what: str) -> None:
        """Count a wait, at the innermost function of the package."""
        frame: Any = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        code = None if frame is None else frame.f_code
        self.waits[what, "" if code is None else f"{code.co_filename[len(PACKAGE) + 1 :]} {code.co_name}"] += 1


class SimulatedTensor(Tensor):
    """A tensor of the device."""

    wrapped: Tensor
    counter: WaitCounter

    @staticmethod
    def __new__(cls, wrapped: Tensor, counter: WaitCounter) -> SimulatedTensor:
        dense = wrapped.layout == torch.strided
        layout = {"strides": wrapped.stride(), "storage_offset": wrapped.storage_offset()} if dense else {}
        tensor = Tensor._make_wrapper_subclass(cls, wrapped.size(), dtype=wrapped.dtype, device=DEVICE, **layout)
        tensor.wrapped, tensor.counter = wrapped, counter
        return tensor

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(None, function, args, kwargs or {})

    # what torch does for a tensor of an accelerator, without a dispatch

    def untyped_storage(self) -> Any:
        dense = self.wrapped if self.wrapped.layout == torch.strided else self.wrapped.values()
        return dense.untyped_storage()

    def data_ptr(self) -> int:
        return self.wrapped.data_ptr()

    def __format__(self, text: str) -> str:
        return format(self.wrapped, text)

    def __repr__(self, **options: Any) -> str:
        return f"simulated {self.wrapped!r}"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)

    def __deepcopy__(self, memo: Any) -> Tensor:
        copy: Tensor = SimulatedTensor(self.wrapped.clone(), self.counter)
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, self.requires_grad)
        memo[id(self)] = copy
        return copy


class SimulatedCopies:
    """Copies to the device from pinned memory (see :class:`dtdg_lab.kernels.uploads.DeviceCopies`)."""

    def __init__(self, counter: WaitCounter) -> None:
        self._counter = counter

    def pinned(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8)

    def is_pinned(self, values: Tensor) -> bool:
        return False

    def empty(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        return SimulatedTensor(torch.empty(shape, dtype=dtype), self._counter)

    def copy(self, target: Tensor, source: Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def record(self) -> Any:
        return None

    def wait_here(self, event: Any) -> None:
        pass

    def wait_there(self, event: Any, tensor: Tensor) -> None:
        pass


class SimulatedClock(HostClock):
    """A clock of the device whose stamps count as late, as those of a GPU (see `kernels/device_clock.py`)."""

    is_late = True

    def send(self, tensor: Tensor) -> Tensor:
        return tensor.to(DEVICE, non_blocking=True)

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        copy = tensor.to("cpu", non_blocking=True)
        return lambda: copy

    def launch(self, start: StartCollective) -> HostFlight:
        return _Flight(self, start)


class _Flight(HostFlight):
    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        return self._clock.read_back(tensor)


@contextmanager
def simulated_device() -> Iterator[WaitCounter]:
    """Let the package compute on ``DEVICE`` while the block runs, with the limits of a GPU."""
    limits = (
        device_sequence.STACKED_ROWS,
        device_sequence.STACKED_NUMBERS,
        time_blocks.STEP_NUMBERS,
        time_blocks.PIECE_NUMBERS,
    )
    with WaitCounter() as counter, pytest.MonkeyPatch.context() as patch:
        for by_type in limits:
            patch.setitem(by_type, TYPE, by_type["cuda"])
        uploaders = {DEVICE: Uploader(SimulatedCopies(counter)), "cpu": Uploader(None)}
        patch.setattr(uploads, "uploader", uploaders.__getitem__)
        yield counter


class _Dispatch(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # importing it takes seconds

    def __init__(self, counter: WaitCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(self._counter, function, args, kwargs or {})


class _Function(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in MAKERS and is_simulated(kwargs.get("device")) and not isinstance(args[0], SimulatedTensor):
            device = kwargs.pop("device")
            return function(*args, **kwargs, device="cpu").to(device)
        return function(*args, **kwargs)


def is_simulated(device: Any) -> bool:
    """Whether this is the simulated device, or its name."""
    return device is not None and torch.device(device).type == TYPE


def compute(counter: WaitCounter | None, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU, and wrap the tensors of its result if it runs on the device."""
    tensors: list[SimulatedTensor] = []

    def unwrapped(value: Any) -> Any:
        if isinstance(value, SimulatedTensor):
            tensors.append(value)
            return value.wrapped
        return value

    real_args, real_kwargs = mapped(unwrapped, args), mapped(unwrapped, kwargs)
    counter = tensors[0].counter if tensors else counter
    target = kwargs.get("device")
    runs_there = is_simulated(target) or (bool(tensors) and target is None)
    if counter is not None:
        for what in waits_of(function, args, kwargs, bool(tensors)):
            counter.note(what)
    if is_simulated(target):
        real_kwargs["device"] = torch.device("cpu")
    result = function(*real_args, **real_kwargs)
    written = [args[at] if at < len(args) else kwargs.get(name) for at, name in written_places(function)]
    if written:
        if not function._schema.returns:
            return None
        return written[0] if len(function._schema.returns) == 1 else tuple(written)
    if not runs_there or counter is None:
        return result
    return mapped(lambda value: SimulatedTensor(value, counter) if isinstance(value, Tensor) else value, result)


def waits_of(function: Any, args: Any, kwargs: dict[str, Any], has_tensors: bool) -> Iterator[str]:
    """Yield the reasons for which the host would wait."""
    blocks = not kwargs.get("non_blocking", False)
    if function is FROM and kwargs.get("device") is not None and blocks:
        if has_tensors and not is_simulated(kwargs["device"]):
            yield "copies to the host"
        elif not has_tensors and is_simulated(kwargs["device"]):
            yield "uploads"
    if not has_tensors:
        return
    if function is COPY and not (len(args) > 2 and args[2]) and blocks:
        there = [isinstance(tensor, SimulatedTensor) for tensor in args[:2]]
        if there == [False, True]:
            yield "copies to the host"
        elif there == [True, False] and args[1].ndim:  # a number is an argument of the kernel that fills
            yield "uploads"
    if function in READS:
        yield READS[function]
    if function is REPEAT and kwargs.get("output_size") is None:
        yield "reads a size"
    if function in INDEXING:
        for index in args[1]:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                yield "reads a size"
            elif index is not None and index.ndim and not isinstance(index, SimulatedTensor):
                yield "uploads"


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return arguments or results with every value changed."""
    if isinstance(value, dict):
        return {name: mapped(change, part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(change, part) for part in value)
    return change(value)


@functools.cache
def written_places(function: Any) -> list[tuple[int, str]]:
    """Return place and name of the arguments that an operation writes to and returns."""
    return [
        (place, argument.name)
        for place, argument in enumerate(function._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
