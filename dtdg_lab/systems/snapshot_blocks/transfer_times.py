"""Transfer times of snapshots, in full and as deltas, measured alternately: copying and unpacking."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from dtdg_lab.graphs.delta import Payload, TransferFormat, decode, decode_pairs, encode
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.device_snapshot import unpack, unpack_pairs

WARM_UPS = 1


@dataclass(frozen=True, slots=True)
class TransferTime:
    """Medians over repeats.

    Attributes:
        copy_s: seconds of copying the payload.
        unpack_s: seconds of converting it to arrays for training.
        total_s: seconds of both.
    """

    copy_s: float
    unpack_s: float
    total_s: float


def transfer_times(
    snapshots: Sequence[Snapshot], form: TransferFormat, *, device: str, repeats: int
) -> tuple[TransferTime, TransferTime]:
    """Return the times of transferring consecutive snapshots in full, and with the later ones as deltas.

    Encoding is excluded: it is done once. On a CUDA device copies are from pinned memory, with a synchronisation after
    each stage. Both formats alternate, so that disturbances by other processes affect both.

    Args:
        snapshots: S of them.
        form: the transfer format.
        device: the destination.
        repeats: repetitions of each, at least 1.
    """
    transfers = [_Transfer(encode(snapshots, form, difference=difference), device) for difference in (False, True)]
    measured: tuple[list[tuple[float, float]], ...] = ([], [])
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(WARM_UPS + repeats):
            for transfer, times in zip(transfers, measured, strict=True):
                seconds = transfer.measure()
                if turn >= WARM_UPS:
                    times.append(seconds)
    finally:
        if is_collecting:
            gc.enable()
    return _medians(measured[0]), _medians(measured[1])


def _medians(times: list[tuple[float, float]]) -> TransferTime:
    copies, unpacks = zip(*times, strict=True)
    return TransferTime(median(copies), median(unpacks), median(map(sum, times)))


class _Transfer:
    """A payload that is transferred repeatedly."""

    def __init__(self, payload: Payload, device: str) -> None:
        self._payload, self._device, self._cuda = payload, device, torch.device(device).type == "cuda"
        if self._cuda:
            arrays = [payload.numbers, *([] if payload.values is None else [payload.values])]
            self._pages = [torch.tensor(array).pin_memory() for array in arrays]

    def measure(self) -> tuple[float, float]:
        """Return the seconds of copying, and of unpacking."""
        self._synchronise()
        began_s = time.perf_counter()
        if self._cuda:
            tensors = [page.to(self._device, non_blocking=True) for page in self._pages]
        else:
            copy = self._copy()
        self._synchronise()
        copied_s = time.perf_counter()
        arrays = self._unpack(tensors) if self._cuda else self._decode(copy)
        self._synchronise()
        ended_s = time.perf_counter()
        del arrays  # freed only now, so that freeing is not timed
        return copied_s - began_s, ended_s - copied_s

    def _copy(self) -> Payload:
        values = None if self._payload.values is None else self._payload.values.copy()
        numbers = self._payload.numbers.copy()
        for array in (numbers, values):
            if array is not None:
                array.setflags(write=False)
        return Payload(self._payload.contents, numbers, values)

    def _decode(self, payload: Payload) -> object:
        return decode_pairs(payload) if payload.contents.form.pairs else decode(payload)

    def _unpack(self, tensors: list[Tensor]) -> object:
        contents = self._payload.contents
        if contents.form.pairs:
            return unpack_pairs(contents, tensors[0])
        return unpack(contents, tensors[0], tensors[1] if len(tensors) > 1 else None)

    def _synchronise(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)
