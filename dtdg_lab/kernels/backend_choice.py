"""Choice of the library of sparse products, torch or DGL: torch on the CPU, the faster one on a GPU."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.operators import KINDS, AttentionOperator, Operators, OperatorSettings, SnapshotSource
from dtdg_lab.kernels.spmm import import_dgl

BACKENDS = ("torch", "dgl")
LEAST_GAIN = 0.9  # of torch's time: DGL must take less, so that noise does not decide
ROUNDS = 4  # the first warms up; the fastest counts

PullShape = tuple[str, int]  # kind and width


def choose_backend(kernel: str, *, device: str, dtype: torch.dtype) -> str:
    """Choose the backend of a requested kernel, ``dgl`` or ``torch``, without measuring.

    ``auto`` is torch. On the CPU it is the faster one, but for single cases within the noise (``python
    benchmarks/kernels.py rows``). On a GPU a run measures both instead (:func:`measure_backends`).

    Args:
        kernel: ``auto``, ``dgl`` or ``torch``.
        device: ``cpu`` or a CUDA device.
        dtype: type of the products.

    Raises:
        NotAvailableError: ``dgl`` was requested by name but cannot be imported, or computes wrongly or not at all on
            the device.
    """
    if kernel != "dgl":
        return "torch"
    import_dgl()
    if reason := dgl_defect(device, dtype):
        raise NotAvailableError(
            f"kernel='dgl' is not available on device {device!r}: {reason}. Set kernel='auto', or install a build "
            "of DGL for this device."
        )
    return "dgl"


def can_use_dgl(device: str, dtype: torch.dtype) -> bool:
    """Return whether DGL can be imported, and computes correctly on a device."""
    try:
        import_dgl()
    except NotAvailableError:
        return False
    return not dgl_defect(device, dtype)


@functools.cache
def dgl_defect(device: str, dtype: torch.dtype) -> str:
    """Return why DGL cannot be used on a device; empty if its products and their gradients equal torch's.

    Tried are sums with and without weights, and attention, on a graph of five nodes. PyPI's build of DGL fails on GPUs,
    since it has kernels for the CPU alone.
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        return "torch finds no CUDA device"
    failures = (RuntimeError, import_dgl().DGLError)
    indptr, indices = np.array([0, 2, 3, 3, 6, 8]), np.array([1, 4, 0, 0, 2, 4, 1, 3], np.int32)
    for weights in (None, np.linspace(0.5, 2.0, len(indices), dtype=np.float32)):
        snapshot = Snapshot(indptr, indices, weights)
        for kind in ("gcn", "attention"):
            results = []
            for backend in BACKENDS:
                settings = OperatorSettings(backend, dtype, device)
                try:
                    results.append(Pulls(snapshot, settings, [(kind, 3)])())
                except failures as error:
                    return f"{backend} fails there ({' '.join(str(error).split())[:200].rstrip('.')})"
            if not all(torch.allclose(x, y, rtol=1e-4, atol=1e-6) for x, y in zip(*results, strict=True)):
                return f"DGL's {kind} product or its gradient differs from torch's"
    return ""


class Pulls:
    """Aggregations over one snapshot, with random rows, to be tried or timed.

    Args:
        snapshot: the graph, of N nodes.
        settings: backend, type and device.
        shapes: kind and width of each pull. Width counts one score of attention; kinds without a product are left out.
    """

    def __init__(self, snapshot: Snapshot, settings: OperatorSettings, shapes: Sequence[PullShape]) -> None:
        self.settings = settings
        operators = Operators(SnapshotSource(snapshot, range(snapshot.num_nodes), settings), settings)
        draw = torch.Generator("cpu").manual_seed(0)

        def rows(width: int) -> Tensor:
            drawn = torch.randn(snapshot.num_nodes, width, generator=draw)
            return drawn.to(settings.device, settings.dtype).requires_grad_()

        self._calls: list[tuple[Callable[..., Tensor], list[Tensor]]] = []
        for kind, width in shapes:
            if kind == "attention":
                attention: AttentionOperator = operators.attention()
                self._calls.append((attention.apply, [rows(max(width - 1, 1)), rows(1), rows(1)]))
            elif kind in KINDS:
                self._calls.append((operators.scaled(kind).apply, [rows(width)]))

    def __call__(self) -> list[Tensor]:
        """Return the results and gradients of all pulls."""
        results: list[Tensor] = []
        for apply, inputs in self._calls:
            y = apply(*inputs)
            results += [y.detach(), *torch.autograd.grad(y, inputs, y.detach())]
        return results

    def seconds(self) -> float:
        """Return the seconds of all pulls, forward and backward; on a GPU until it is idle."""
        best = float("inf")
        for _ in range(ROUNDS):
            self._wait()
            began_s = time.perf_counter()
            self()
            self._wait()
            best = min(best, time.perf_counter() - began_s)
        return best

    def _wait(self) -> None:
        if torch.device(self.settings.device).type == "cuda":
            torch.cuda.synchronize(self.settings.device)


def measure_backends(snapshot: Snapshot, settings: OperatorSettings, shapes: Sequence[PullShape]) -> dict[str, float]:
    """Return the seconds of all pulls with each backend, forward and backward.

    DGL is left out where it runs out of memory, since its attention holds rows of all edges.

    Args:
        snapshot: the graph, best the largest of a run.
        settings: type and device; the backend is ignored.
        shapes: kind and width of each pull of the model.
    """
    seconds = {}
    for backend in BACKENDS:
        try:
            seconds[backend] = Pulls(snapshot, replace(settings, backend=backend), shapes).seconds()
        except torch.cuda.OutOfMemoryError:
            if backend == "torch":
                raise
    return seconds


def faster(seconds: Mapping[str, float]) -> str:
    """Return the faster backend; torch, unless DGL was measured and takes less than ``LEAST_GAIN`` of its time."""
    return "dgl" if seconds.get("dgl", float("inf")) < LEAST_GAIN * seconds["torch"] else "torch"
