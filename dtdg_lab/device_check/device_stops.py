"""Where a step waits for its GPU: copies to the host, and synchronization of events, streams or the device."""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import dtdg_lab
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.engine.strategy import Step
from dtdg_lab.kernels.uploads import CudaCopies
from dtdg_lab.testing.small_runs import REFUSALS
from dtdg_lab.testing.training import RecordingRecorder, train_in_memory
from dtdg_lab.training.loop import Trainer

_PACKAGE = Path(dtdg_lab.__file__).parent
_FOREIGN = (Path(torch.__file__).parent, Path(traceback.__file__).parent)
_SYNCHRONIZES = "synchronizing CUDA operation"  # in torch's warning
_UNWATCHED = 2  # first steps, which bring what stays on the device
_STEPS = 4


@dataclass(frozen=True, slots=True)
class DeviceStops:
    """Waits of a step for its device.

    Attributes:
        places: where the host waits, as ``file:line``, sorted.
        reason: why no step could be watched; empty otherwise.
    """

    places: tuple[str, ...] = ()
    reason: str = ""


def find_stops(config: RunConfig, device: str) -> DeviceStops:
    """Return where a step makes the host wait for the device; the first two steps are not watched.

    A trainer makes the steps: it computes, exchanges gradients, updates, decides, and records the step before. torch
    warns of most waits, not of all (``torch.cuda.set_sync_debug_mode``); ``synchronize`` of events, streams and the
    device is watched besides. A wait for an event of an earlier step is allowed. Not yet run on a GPU.

    Args:
        config: settings of the run.
        device: device of this rank.

    Raises:
        Exception: the error of a step.
    """
    config = config.replace(device=device.partition(":")[0], epochs=_STEPS)  # some systems make one step in an epoch
    recorder, places, steps_made = RecordingRecorder(), set[str](), 0
    train_step = Trainer._train_step

    def watched_step(trainer: Trainer, step: Step) -> None:
        nonlocal steps_made
        steps_made += 1
        if steps_made <= _UNWATCHED:
            return train_step(trainer, step)
        with _watched(places):
            return train_step(trainer, step)

    try:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(Trainer, "_train_step", watched_step):
            script = {_STEPS - 1: {"stop": True}}
            file = Path(folder) / "checkpoint"
            train_in_memory(config, load_for(config), file, device=device, script=script, recorder=recorder)
    except REFUSALS as error:
        if recorder.events("kernel"):  # the first event of a started run
            raise
        return DeviceStops(reason=str(error))
    return DeviceStops(tuple(sorted(places)))


@contextmanager
def _watched(places: set[str]) -> Iterator[None]:
    """Add the place of every wait for the device; waits for events from before the block are allowed."""
    recorded: list[Any] = []  # events of the block
    record, pass_event = torch.cuda.Event.record, torch.cuda.Event.synchronize

    def note_warning(message: Warning | str, *args: Any, **options: Any) -> None:
        if _SYNCHRONIZES in str(message):
            places.add(_place())

    def note_record(event: Any, *args: Any, **options: Any) -> None:
        recorded.append(event)
        record(event, *args, **options)

    def note_event(event: Any) -> None:
        if any(event is own for own in recorded):
            places.add(_place())
        pass_event(event)

    def noted(synchronize: Callable[..., None]) -> Callable[..., None]:
        def note(*args: Any, **options: Any) -> None:
            places.add(_place())
            synchronize(*args, **options)

        return note

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        for owner, name, replacement in (
            (warnings, "showwarning", note_warning),
            (torch.cuda.Event, "record", note_record),
            (torch.cuda.Event, "synchronize", note_event),
            (torch.cuda.Stream, "synchronize", noted(torch.cuda.Stream.synchronize)),
            (torch.cuda, "synchronize", noted(torch.cuda.synchronize)),
            # a full buffer waits for its own copies, which computations do not delay
            (CudaCopies, "wait_here", lambda copies, event: pass_event(event)),
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def _place() -> str:
    """Return the innermost line being executed that belongs to neither Python, torch nor this file."""
    for frame in reversed(traceback.extract_stack()):
        file = Path(frame.filename)
        if file == Path(__file__):
            continue
        if file.is_relative_to(_PACKAGE):  # first: without a virtual environment it may be in Python's own folder
            return f"{file.relative_to(_PACKAGE)}:{frame.lineno}"
        if not any(file.is_relative_to(folder) for folder in _FOREIGN):
            return f"{file.name}:{frame.lineno}"
    raise AssertionError("a program has a line of its own")
