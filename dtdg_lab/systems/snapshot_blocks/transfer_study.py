"""Cost of transferring graphs in full and as deltas, measured by model and format."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs import delta
from dtdg_lab.graphs.delta import Payload, SequenceChanges, TransferFormat, decode, decode_pairs, encode
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.windowing import averaged, lived
from dtdg_lab.kernels.device_snapshot import unpack, unpack_pairs
from dtdg_lab.systems.snapshot_blocks import forecast_charts
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.studies.result import StudyResult

if TYPE_CHECKING:
    pass


BLOCKS, RANKS = (1, 2, 4, 8), (1, 2, 4, 8, 16)
DIFFERENCE_MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_blocks"]["columns"]["transfers"])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransferStudy(StudyResult):
    """Cost of transferring a graph's snapshots, in full and as deltas.

    Attributes:
        rows: one row per model and format, see ``DIFFERENCE_MEANINGS``; times are None if not measured.
        shares: one row per model, format, number of blocks and of ranks: ``share`` of the snapshots whose predecessor
            is in the same block on the same rank, and with it ``whole_bytes``, ``difference_bytes`` and ``ratio`` over
            all blocks.
        described: title of the study.
    """

    rows: tuple[dict[str, Any], ...]
    shares: tuple[dict[str, Any], ...]
    described: str
    meanings = DIFFERENCE_MEANINGS
    text_columns = (
        "model",
        "form",
        "overlap",
        "whole_bytes",
        "difference_bytes",
        "ratio",
        "bound",
        "whole_s",
        "difference_s",
        "time_ratio",
    )

    @property
    def figure(self) -> Figure:
        """Bytes and times, the bound set by the overlap, and the ratio left on several ranks, as a plotly figure."""
        return forecast_charts.difference_figure(self.rows, self.shares, title=self.described)


def estimate_transfers(
    graph: DynamicGraph,
    *,
    edge_life: int = 5,
    smoothing_window: int = 5,
    forms: Sequence[str] = tuple(delta.FORMATS),
    blocks: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
    repeats: int = 5,
    device: str = "cpu",
) -> TransferStudy:
    """Measure bytes and seconds of transferring a graph's snapshots, in full or as deltas from the previous one.

    The snapshots are smoothed like the models do it: CD-GCN uses them unchanged, EvolveGCN sums the last ``edge_life``,
    TM-GCN averages the last ``smoothing_window``. Both increase the overlap of consecutive snapshots.

    Args:
        graph: T unsmoothed snapshots (``edge_life=1``, ``smoothing_window=1``).
        edge_life: edge life of EvolveGCN, in snapshots.
        smoothing_window: window of TM-GCN, in snapshots.
        forms: ``csr32``, ours, and ``coo64``, the paper's.
        blocks: numbers of time blocks; by default 1, 2, 4 and 8, up to the number of snapshots.
        ranks: numbers of ranks; by default 1 to 16, up to the number of nodes.
        repeats: repetitions of each timed transfer; 0 to measure no times.
        device: target of the transfers.

    Raises:
        ConfigError: a number is invalid.
        UnknownNameError: a format is unknown.
        PlanError: there are more blocks than snapshots, or more ranks than nodes.
        DataError: the snapshots cannot be encoded.

    References: ESDG sections 3.2 (deltas), 5.4 (smoothing), 6.2 and Figure 4.
    """
    _check(forms, edge_life=(edge_life, 1), smoothing_window=(smoothing_window, 1), repeats=(repeats, 0))
    plans = _plans(graph, blocks, ranks)
    rows: list[dict[str, Any]] = []
    shares: list[dict[str, Any]] = []
    smoothings = {
        "cdgcn": ("none", lambda: iter(graph.snapshots)),
        "evolvegcn": (f"edge life {edge_life}", lambda: lived(graph.snapshots, edge_life)),
        "tmgcn": (f"mean of {smoothing_window}", lambda: averaged(graph.snapshots, smoothing_window)),
    }
    for model, (smoothing, smooth) in smoothings.items():
        smoothed = list(smooth())
        changes = delta.sequence_changes(smoothed)
        for form in (delta.FORMATS[name] for name in forms):
            identity = {"model": model, "smoothing": smoothing, "form": form.name}
            sizes = _row(smoothed, changes, form)
            saved = sizes["whole_bytes"] - sizes["difference_bytes"]
            rows.append(identity | sizes | _times(smoothed, form, repeats=repeats, device=device, saved_bytes=saved))
            shares += [identity | _share(changes, form, plan) for plan in plans]
    alive = f"; its edges live {graph.edge_life} base intervals already" if graph.edge_life > 1 else ""
    size = f"{graph.num_snapshots:,} snapshots of {graph.num_nodes:,} nodes"
    described = f"Transferring {graph.name}: {size} to {device}{alive}"
    return TransferStudy(tuple(rows), tuple(shares), described)


def _check(forms: Sequence[str], **numbers: tuple[int, int]) -> None:
    """Raise on numbers below their minimum, and on unknown formats."""
    for name, (number, least) in numbers.items():
        if number < least:
            raise ConfigError(f"{name}={number}: give a whole number of at least {least}.")
    for form in forms:
        if form not in delta.FORMATS:
            raise UnknownNameError("format", form, delta.FORMATS)


def _plans(graph: DynamicGraph, blocks: Sequence[int] | None, ranks: Sequence[int] | None) -> list[SnapshotBlocks]:
    blocks = [count for count in BLOCKS if count <= graph.num_snapshots] if blocks is None else blocks
    ranks = [number for number in RANKS if number <= graph.num_nodes] if ranks is None else ranks
    every = range(graph.num_snapshots)
    return [SnapshotBlocks(every, count, number, graph.num_nodes) for count in blocks for number in ranks]


def _row(snapshots: Sequence[Snapshot], changes: SequenceChanges, form: delta.TransferFormat) -> dict[str, Any]:
    sent, whole_bytes = delta.encode(snapshots, form).nbytes, delta.encode(snapshots, form, difference=False).nbytes
    least_bytes, _ = changes.brought(form, [range(len(snapshots))])
    return {
        "snapshots": len(snapshots),
        "edges": int(changes.edges.sum()),
        "overlap": changes.overlap,
        "whole_bytes": whole_bytes,
        "difference_bytes": sent,
        "ratio": whole_bytes / sent,
        "bound": whole_bytes / least_bytes,
        "reached": least_bytes / sent,
    }


def _times(
    snapshots: Sequence[Snapshot], form: delta.TransferFormat, *, repeats: int, device: str, saved_bytes: int
) -> dict[str, Any]:
    if not repeats:
        names = ("whole_s", "difference_s", "difference_copy_s", "difference_unpack_s", "time_ratio", "worth_below")
        return dict.fromkeys(names)

    in_full, as_delta = transfer_times(snapshots, form, device=device, repeats=repeats)
    more_s = as_delta.unpack_s - in_full.unpack_s
    return {
        "whole_s": in_full.total_s,
        "difference_s": as_delta.total_s,
        "difference_copy_s": as_delta.copy_s,
        "difference_unpack_s": as_delta.unpack_s,
        "time_ratio": in_full.total_s / as_delta.total_s,
        "worth_below": saved_bytes / more_s if saved_bytes and more_s > 0 else None,
    }


def _share(changes: SequenceChanges, form: delta.TransferFormat, plan: SnapshotBlocks) -> dict[str, Any]:
    delta_bytes, whole_bytes = changes.brought(form, delta.own_ranges(plan))
    return {
        "blocks": plan.blocks,
        "ranks": plan.ranks,
        "share": delta.benefiting_share(plan),
        "whole_bytes": whole_bytes,
        "difference_bytes": delta_bytes,
        "ratio": whole_bytes / delta_bytes,
    }


WARM_UPS = 1


@dataclass(frozen=True, slots=True)
class TransferTime:
    """Median times of a transfer.

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

    Encoding is excluded, since it is done once. On a CUDA device, copies are from pinned memory, with a synchronisation
    after each stage. Both formats alternate, so that other processes disturb both equally.

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
        """Return the seconds of copying and of unpacking."""
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
        del arrays  # after the clock stops, so that freeing is not timed
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
