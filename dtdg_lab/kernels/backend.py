"""Which library multiplies: DGL or torch, and whether DGL can be imported at all."""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType

import torch

from dtdg_lab.core.errors import NotAvailableError


@functools.cache
def import_dgl() -> ModuleType:
    """DGL, imported on first use.

    Raises:
        NotAvailableError: it is not installed for this Python or does not import with this torch.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes a config file into the home folder
    try:
        import dgl
    except (ImportError, OSError, FileNotFoundError) as error:
        advice = (
            "PyPI has no DGL for Python 3.12 and later; use Python 3.11, or kernel='torch', which needs none."
            if sys.version_info >= (3, 12)
            else "Install it with: pip install 'dgl==1.1.3' packaging; or set kernel='torch', which needs none."
        )
        raise NotAvailableError(f"DGL cannot be imported ({type(error).__name__}: {error}). {advice}") from error
    return dgl


def has_bag_kernel(device: str, dtype: torch.dtype) -> bool:
    """Whether torch's ``embedding_bag`` runs FBGEMM here: sums of rows by index, with vectors and prefetching.

    A bag of embeddings is a row of a sparse product. Only builds for x86 have FBGEMM, and only in single precision;
    elsewhere ``embedding_bag`` copies every row first and the CSR product is the faster.
    """
    return device == "cpu" and dtype == torch.float32 and "fbgemm" in torch.backends.quantized.supported_engines


DGL_FROM_EDGES = 100_000


def choose_backend(kernel: str, *, device: str, weighted: bool, edges: int, dtype: torch.dtype = torch.float32) -> str:
    """``dgl`` or ``torch`` for an asked-for kernel.

    ``auto`` takes what was measured faster (``benchmarks/kernels.py``). On the CPU in single precision that is torch's
    ``embedding_bag`` for every size, with weights and without. Where it does not serve (see :func:`has_bag_kernel`) it
    is DGL for unweighted sums over large snapshots on the CPU, else torch's CSR product: below about 100,000 edges a
    call of DGL costs more than its kernel saves, its PyPI build has no CUDA kernels, and its weighted sum is slower.

    Args:
        kernel: ``auto``, ``dgl`` or ``torch``.
        device: ``cpu`` or a CUDA device.
        weighted: whether edges carry weights.
        edges: edges of the largest snapshot.
        dtype: type of the products.

    Raises:
        NotAvailableError: ``dgl`` was asked for by name and cannot be imported, or not for this device.
    """
    if kernel == "torch":
        return "torch"
    if kernel == "dgl":
        import_dgl()
        if device != "cpu":
            raise NotAvailableError(
                f"kernel='dgl' on device {device!r}: the PyPI build of DGL has CPU kernels only. Set kernel='auto'."
            )
        return "dgl"
    if device != "cpu" or weighted or edges < DGL_FROM_EDGES or has_bag_kernel(device, dtype):
        return "torch"
    try:
        import_dgl()
    except NotAvailableError:
        return "torch"  # `python -m dtdg_lab env` says so; both are tested to give the same numbers
    return "dgl"
