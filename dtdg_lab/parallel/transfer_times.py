"""How long snapshots take to arrive, whole and as differences, in turn: copying them, and making them usable."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from dtdg_lab.graphs.difference import Payload, decode, decode_pairs, encode
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.transfer_formats import TransferFormat
from dtdg_lab.kernels.difference import unpack, unpack_pairs

WARM_UPS = 1


@dataclass(frozen=True, slots=True)
class TransferTime:
    """Medians over repeats.

    Attributes:
        copy_s: seconds of copying the payload.
        unpack_s: seconds from there to arrays that can be trained from.
        total_s: seconds of both.
    """

    copy_s: float
    unpack_s: float
    total_s: float


def transfer_times(
    snapshots: Sequence[Snapshot], form: TransferFormat, *, device: str, repeats: int
) -> tuple[TransferTime, TransferTime]:
    """Times of bringing snapshots, which follow one another: each whole, and the later ones as differences.

    Encoding is not in them: it is done once. On a CUDA device copies are from pinned memory, and each part is waited
    for. Both ways take turns, so that what else the machine does hits both.

    Args:
        snapshots: S of them.
        form: in which they travel.
        device: where they arrive.
        repeats: turns of each way, at least 1.
    """
    ways = [_Transfer(encode(snapshots, form, difference=difference), device) for difference in (False, True)]
    found: tuple[list[tuple[float, float]], ...] = ([], [])
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(WARM_UPS + repeats):
            for way, times in zip(ways, found, strict=True):
                both = way.timed()
                if turn >= WARM_UPS:
                    times.append(both)
    finally:
        if collecting:
            gc.enable()
    return _medians(found[0]), _medians(found[1])


def _medians(times: list[tuple[float, float]]) -> TransferTime:
    copies, unpacks = zip(*times, strict=True)
    return TransferTime(median(copies), median(unpacks), median(map(sum, times)))


class _Transfer:
    """A payload that is brought again and again."""

    def __init__(self, payload: Payload, device: str) -> None:
        self._payload, self._device, self._cuda = payload, device, torch.device(device).type == "cuda"
        if self._cuda:
            arrays = [payload.numbers, *([] if payload.values is None else [payload.values])]
            self._pages = [torch.tensor(array).pin_memory() for array in arrays]

    def timed(self) -> tuple[float, float]:
        """Seconds of copying, and of unpacking."""
        self._wait()
        began = time.perf_counter()
        if self._cuda:
            tensors = [page.to(self._device, non_blocking=True) for page in self._pages]
        else:
            copy = self._copied()
        self._wait()
        copied = time.perf_counter()
        held = self._unpacked(tensors) if self._cuda else self._decoded(copy)
        self._wait()
        ended = time.perf_counter()
        del held  # what lived until the end was not freed within the time
        return copied - began, ended - copied

    def _copied(self) -> Payload:
        values = None if self._payload.values is None else self._payload.values.copy()
        numbers = self._payload.numbers.copy()
        for array in (numbers, values):
            if array is not None:
                array.setflags(write=False)
        return Payload(self._payload.contents, numbers, values)

    def _decoded(self, payload: Payload) -> object:
        return decode_pairs(payload) if payload.contents.form.pairs else decode(payload)

    def _unpacked(self, tensors: list[Tensor]) -> object:
        contents = self._payload.contents
        if contents.form.pairs:
            return unpack_pairs(contents, tensors[0])
        return unpack(contents, tensors[0], tensors[1] if len(tensors) > 1 else None)

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)
