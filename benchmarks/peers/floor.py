"""The floor of an epoch: its dense and sparse matrix products, one after another, and nothing else.

The products are those that the lab's epoch makes, by shape, forward and backward. Each is done by the fastest kernel
at hand, on operands that were used just before: what fits the cache is read from it.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from result_files import finish
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.spmm import Adjacency
from peers import lab
from peers.case import Case, Epoch

load = lab.load

Product = Callable[[], object]

DENSE = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::addmm_": 1, "aten::baddbmm": 1}  # first factor's place
BAGS = ("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
ROUNDS = 5


class ProductLog(TorchDispatchMode):
    """Notes every matrix product while it is active, in ``products``: the factors' shapes and strides, or a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Any, ...]] = []
        self.matrices: dict[int, Tensor] = {}
        self._known_by: list[Tensor] = []  # kept, so that no other tensor gets the same id

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split(".")[0]
        if name in BAGS:
            self._note_sparse(args[1], functools.partial(_matrix_of_bags, args), args[0])
        elif name in DENSE:
            left, right = args[DENSE[name] :][:2]
            if left.layout == torch.strided:
                self.products.append((*((tuple(x.shape), x.stride()) for x in (left, right)), left.dtype))
            else:
                self._note_sparse(left, lambda: left, right)
        return func(*args, **(kwargs or {}))

    def _note_sparse(self, known_by: Tensor, matrix: Callable[[], Tensor], x: Tensor) -> None:
        key = id(known_by)
        if key not in self.matrices:
            self.matrices[key] = matrix()
            self._known_by.append(known_by)
        self.products.append((key, tuple(x.shape), x.dtype))


def _matrix_of_bags(args: Any) -> Tensor:
    """Return the matrix whose product with (M, F) is this ``embedding_bag``, as torch CSR."""
    x, indices, offsets, *_ = args
    weights = args[6] if len(args) > 6 else None
    return Adjacency(offsets, indices, weights, columns=len(x)).matrix


def prepare(case: Case, graph: DynamicGraph, *, device: str = "cpu") -> Epoch:
    """Return a function that repeats the products of an epoch; its loss is not a number."""
    epoch = lab.prepare(case, graph, device=device)
    epoch()  # what is computed once is no part of an epoch
    with ProductLog() as log:
        epoch()
    del epoch
    repeats = {product: _fastest(product, log.matrices, device) for product in dict.fromkeys(log.products)}

    def products() -> float:
        for product in log.products:
            repeats[product]()
        return math.nan

    return products


def _fastest(product: tuple[Any, ...], matrices: dict[int, Tensor], device: str) -> Product:
    """Return the fastest way to compute a product."""
    first, *rest = product
    ways = _sparse_ways(matrices[first], *rest) if isinstance(first, int) else _dense_ways(first, *rest, device)
    return min(ways, key=lambda way: _seconds(way, device))


def _seconds(way: Product, device: str) -> float:
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        way()
        finish(device)
        rounds.append(time.perf_counter() - began)
    return min(rounds)


def _dense_ways(left: Any, right: Any, dtype: torch.dtype, device: str) -> list[Product]:
    """A B with the layouts of the epoch, with contiguous ones, and as the transpose of B' A'."""
    a, b = (_operand(*factor, dtype, device) for factor in (left, right))
    product = torch.bmm if a.ndim == 3 else torch.mm
    layouts = [(a, b), (a.contiguous(), b.contiguous()), (b.mT, a.mT), (b.mT.contiguous(), a.mT.contiguous())]
    return [functools.partial(product, x, y, out=product(x, y)) for x, y in layouts]


def _operand(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Random numbers in a layout, in which rows may share memory."""
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return torch.randn(last + 1, dtype=dtype, device=device).as_strided(shape, strides)


def _sparse_ways(matrix: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> list[Product]:
    """A sparse matrix by (M, F), by torch's CSR kernel and, on the CPU, as bags of embeddings."""
    x = torch.randn(shape, dtype=dtype, device=matrix.device)
    ways: list[Product] = [lambda: matrix @ x]
    if matrix.device.type == "cpu":
        arrays = matrix.col_indices(), matrix.crow_indices()
        ways.append(lambda: torch.embedding_bag(x, *arrays, False, 0, False, matrix.values(), True))
    return ways
