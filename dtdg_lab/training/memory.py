"""Peak memory of a step, from live tensor storages on the CPU or the allocator on a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _StorageLedger(TorchDispatchMode):
    """Adds every storage an operation makes, and takes it off when it dies.

    torch's own ``MemTracker`` follows modules and refuses one that is called twice in a step, as a recurrent one is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = 0
        self.peak_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if _is_dense(leaf)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if _is_dense(leaf) and leaf.untyped_storage()._cdata not in inputs | self._known:
                self._follow(leaf.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        size, name = storage.nbytes(), storage._cdata
        self._known.add(name)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        # a storage keeps its Python object as long as anything holds it, so this runs when the memory goes
        weakref.finalize(storage, self._forget, name, size)

    def _forget(self, name: int, size: int) -> None:
        self._known.discard(name)
        self.live_bytes -= size


def _is_dense(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided


def peak_bytes(step: Callable[[], None], *, device: str = "cpu") -> int:
    """The most bytes of tensors alive at once while ``step`` runs.

    On the CPU every dense storage made inside the step is followed until it dies; what existed before (parameters,
    the graph) is not counted, nor what kernels use inside. On a GPU it is the allocator's peak, which counts both.

    Args:
        step: forward and backward of one step; call it outside timing, it runs several times slower.
        device: ``cpu`` or a CUDA device.
    """
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device))
    ledger = _StorageLedger()
    with ledger:
        step()
    return ledger.peak_bytes
