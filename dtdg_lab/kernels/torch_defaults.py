"""Torch's factory settings, under which everything computes that the lab computes for a user."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import _len_torch_function_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import _disable_current_modes

_HOOKS = torch._C._autograd


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting of torch that results, or errors, depend on.

    Attributes:
        factory: value in a process that has changed nothing.
        read: returns the current value.
        write: sets a value.
    """

    factory: Any
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _attribute(owner: Any, name: str, factory: Any) -> list[_Setting]:
    """Return an attribute of a module of torch as a setting; none where this version of torch lacks it."""
    if not hasattr(owner, name):
        return []
    return [_Setting(factory, lambda: getattr(owner, name), lambda value: setattr(owner, name, value))]


def _autocast(device: str) -> _Setting:
    return _Setting(
        False, lambda: torch.is_autocast_enabled(device), lambda value: torch.set_autocast_enabled(device, value)
    )


def _settings(threads: int) -> list[_Setting]:
    """Return all settings, those first that others inherit from.

    Gradient and inference mode, and what else belongs to autograd's state of a thread, are set by one context instead.
    """
    backends = torch.backends
    return [
        _Setting(torch.float32, torch.get_default_dtype, torch.set_default_dtype),
        _Setting(threads, torch.get_num_threads, torch.set_num_threads),
        *map(_autocast, ("cpu", "cuda")),
        _Setting(
            (False, False),
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda modes: torch.use_deterministic_algorithms(modes[0], warn_only=modes[1]),
        ),
        *_attribute(torch.utils.deterministic, "fill_uninitialized_memory", True),
        _Setting(
            (False, True),
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda modes: torch.set_anomaly_enabled(*modes),
        ),
        _Setting(False, lambda: sys.float_info.min / 2 == 0.0, torch.set_flush_denormal),  # torch has no getter
        # each precision inherits from those before; the oldest setting is last, as it refuses to be read in a mixture
        *_attribute(backends, "fp32_precision", "none"),
        *_attribute(backends.cudnn, "fp32_precision", "none"),
        *_attribute(getattr(backends.cudnn, "conv", None), "fp32_precision", "tf32"),
        *_attribute(getattr(backends.cudnn, "rnn", None), "fp32_precision", "tf32"),
        *_attribute(backends.cuda.matmul, "fp32_precision", "none"),
        *_attribute(backends.mkldnn, "fp32_precision", "none"),
        *_attribute(getattr(backends.mkldnn, "conv", None), "fp32_precision", "none"),
        *_attribute(getattr(backends.mkldnn, "rnn", None), "fp32_precision", "none"),
        *_attribute(getattr(backends.mkldnn, "matmul", None), "fp32_precision", "none"),
        _Setting("highest", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        _Setting(True, torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
        *_attribute(backends.mkldnn, "deterministic", False),
        *_attribute(backends.cudnn, "enabled", True),
        *_attribute(backends.cudnn, "benchmark", False),
        *_attribute(backends.cudnn, "deterministic", False),
    ]


@contextmanager
def torch_defaults(threads: int = 0, *, local_ranks: int = 1) -> Iterator[None]:
    """Compute under torch's factory settings; the caller's hold again afterwards, also after an error.

    Settings of a thread are those of the calling thread: threads that start inside have the factory's anyway.

    Args:
        threads: threads of this process; 0 as in :func:`share_cores`.
        local_ranks: processes that share this machine's cores.
    """
    with ExitStack() as undo:
        undo.enter_context(_no_interceptors())
        undo.enter_context(torch.inference_mode(False))  # enables gradients, and resets the thread's autograd state
        for setting in _settings(share_cores(threads, local_ranks)):
            value = setting.read()
            if value != setting.factory:
                undo.callback(setting.write, value)
                setting.write(setting.factory)
        yield


@contextmanager
def _no_interceptors() -> Iterator[None]:
    """Take the thread's modes (a default device is one) and its hooks on saved tensors off their stacks."""
    with _disable_current_modes():
        modes = [_pop_mode() for _ in range(_len_torch_function_stack())]
        default = torch._GLOBAL_DEVICE_CONTEXT  # of this thread; torch.get_default_device reads it beside the stack
        device_context = getattr(default, "device_context", None)
        default.device_context = None
        hooks = []
        while (pair := _HOOKS._top_saved_tensors_default_hooks(True)) is not None:
            hooks.append(pair)
            _HOOKS._pop_saved_tensors_default_hooks()
        try:
            yield
        finally:
            for pack, unpack in reversed(hooks):
                _HOOKS._push_saved_tensors_default_hooks(pack, unpack)
            default.device_context = device_context
            for mode in reversed(modes):
                _push_mode(mode)


def share_cores(threads: int, local_ranks: int) -> int:
    """Return the threads of a rank.

    Args:
        threads: the number that was asked for; 0 is ``OMP_NUM_THREADS`` where that is set, else the machine's cores
            divided among its ranks, at least one.
        local_ranks: ranks on this machine.
    """
    variable = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # the others are for nested regions
    per_process = int(variable) if variable.isdecimal() else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return threads or per_process or max(1, cores // local_ranks)
