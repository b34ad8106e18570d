"""Where kernels are tested: with every library that multiplies, on every device there is."""

from __future__ import annotations

import pytest
import torch

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.kernels.backend_choice import can_use_dgl
from dtdg_lab.kernels.spmm import import_dgl
from tests.simulated_tensors import DEVICE


def has_dgl() -> bool:
    try:
        import_dgl()
    except NotAvailableError:
        return False
    return True


needs_dgl = pytest.mark.skipif(not has_dgl(), reason="dgl is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: kernels are not tested on one")
backends = pytest.mark.parametrize("backend", ["torch", pytest.param("dgl", marks=needs_dgl)])
devices = pytest.mark.parametrize("device", ["cpu", DEVICE, pytest.param("cuda:0", marks=[pytest.mark.gpu, needs_gpu])])
# DGL's build on PyPI has kernels for processors only; others are tested where they pass the probe
dgl_on_gpu = torch.cuda.is_available() and can_use_dgl("cuda:0", torch.float32)
places = pytest.mark.parametrize(
    ("backend", "device"),
    [
        ("torch", "cpu"),
        ("torch", DEVICE),
        pytest.param("dgl", "cpu", marks=needs_dgl),
        pytest.param("torch", "cuda:0", marks=[pytest.mark.gpu, needs_gpu]),
        pytest.param(
            "dgl",
            "cuda:0",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not dgl_on_gpu, reason="no DGL that computes on a GPU")],
        ),
    ],
)
