"""Where a step waits for its GPU: copies to the host, and synchronization of streams or of the device."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import dtdg_lab
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.capabilities import RunsInBackground
from dtdg_lab.engine.strategy import Step
from dtdg_lab.training.build import RunComponents, build
from dtdg_lab.training.clock import PhaseClock

_PACKAGE = Path(dtdg_lab.__file__).parent
_FOREIGN = (Path(torch.__file__).parent, Path(traceback.__file__).parent)
_SYNCHRONIZES = "synchronizing CUDA operation"  # in torch's warning


def find_stops(config: RunConfig, device: str) -> tuple[str, ...]:
    """Return where a step makes the host wait for the device, as ``file:line``, sorted; a first step is not watched.

    The step computes, exchanges gradients and updates, as in training. torch warns of most waits, not of all
    (``torch.cuda.set_sync_debug_mode``); ``torch.cuda.synchronize`` is watched besides. Not yet run on a GPU.

    Args:
        config: settings of the run.
        device: a CUDA device.

    Raises:
        LabError: the config cannot be built on this machine.
    """
    group = SoloGroup(device)
    components = build(config.replace(device="cuda"), load_for(config), group, device=device)
    try:
        if isinstance(components.strategy, RunsInBackground):
            components.strategy.open()
        steps = components.strategy.epoch(0)
        clock = PhaseClock(group.device_clock)
        _make_step(components, steps[0], clock)
        with _watched() as stops:
            _make_step(components, steps[-1], clock)
    finally:
        components.close()
    return tuple(sorted(set(stops)))


def _make_step(components: RunComponents, step: Step, clock: PhaseClock) -> None:
    components.gradients.zero()
    result = components.strategy.compute(step, clock)
    components.gradients.exchange(version=0, loss_sum=result.loss_sum, groups=result.groups)
    components.optimizer.step()


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Yield a list that gets the place of every wait for the device."""
    stops: list[str] = []
    synchronize = torch.cuda.synchronize

    def note(message: Warning | str, *args: Any, **options: Any) -> None:
        if _SYNCHRONIZES in str(message):
            stops.append(_place())

    def note_synchronize(*args: Any, **options: Any) -> None:
        stops.append(_place())
        synchronize(*args, **options)

    with (
        warnings.catch_warnings(),
        mock.patch.object(warnings, "showwarning", note),
        mock.patch.object(torch.cuda, "synchronize", note_synchronize),
    ):
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield stops
        finally:
            torch.cuda.set_sync_debug_mode("default")


def _place() -> str:
    """Return the innermost line being executed that belongs to neither Python, torch nor this file."""
    for frame in reversed(traceback.extract_stack()):
        file = Path(frame.filename)
        if file != Path(__file__) and not any(file.is_relative_to(folder) for folder in _FOREIGN):
            name = file.relative_to(_PACKAGE) if file.is_relative_to(_PACKAGE) else file.name
            return f"{name}:{frame.lineno}"
    raise AssertionError("a program has a line of its own")
