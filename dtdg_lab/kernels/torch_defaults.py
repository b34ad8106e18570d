"""Torch's factory settings, under which all of the lab's computations run."""

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
    """A setting of torch that results or errors depend on.

    Attributes:
        factory: factory value.
        read: returns the current value.
        write: sets a value.
    """

    factory: Any
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _attribute(owner: Any, name: str, factory: Any) -> list[_Setting]:
    """Return an attribute of a torch module as a setting; none if this version of torch lacks it."""
    if not hasattr(owner, name):
        return []
    return [_Setting(factory, lambda: getattr(owner, name), lambda value: setattr(owner, name, value))]


def _autocast(device: str) -> _Setting:
    return _Setting(
        False, lambda: torch.is_autocast_enabled(device), lambda value: torch.set_autocast_enabled(device, value)
    )


def _settings(threads: int) -> list[_Setting]:
    """Return all settings; a setting comes after those that it inherits from.

    Gradient and inference mode, and the rest of autograd's thread state, are set by a context manager instead.
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
        # each precision inherits from earlier ones; the legacy setting is last, as it cannot be read in mixed states
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
    """Run with torch's factory settings, and restore the caller's afterwards, also after an error.

    Thread-local settings change in the calling thread only: threads that start inside have factory settings anyway.

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
    """Disable the thread's modes, such as a default device, and its saved-tensor hooks."""
    with _disable_current_modes():
        modes = [_pop_mode() for _ in range(_len_torch_function_stack())]
        default = (
            torch._GLOBAL_DEVICE_CONTEXT
        )  # thread-local; torch.get_default_device reads it in addition to the mode stack
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
    """Return the number of threads of a rank.

    Args:
        threads: the requested number; 0 for ``OMP_NUM_THREADS`` if set, else this rank's share of the machine's cores,
            at least one.
        local_ranks: ranks on this machine.
    """
    variable = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # further numbers are for nested regions
    per_process = int(variable) if variable.isdecimal() else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return threads or per_process or max(1, cores // local_ranks)
