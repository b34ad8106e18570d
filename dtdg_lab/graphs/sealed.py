"""Seal the test split of a graph: it can be read only after a run's last step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, overload

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from dtdg_lab.core.errors import TestPartError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import Split

TEST = 2  # in DynamicGraph.vertex_split
Check = Callable[[str, int], None]


def _none() -> None:
    """Hide no node."""


class Seal:
    """Controls whether data after the training and validation splits can be read.

    Args:
        readable: number of first snapshots whose labels can always be read.

    Attributes:
        is_open: whether everything can be read now.
    """

    def __init__(self, readable: int) -> None:
        self.readable, self.is_open = readable, False

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Allow all reads within a block. Only the evaluation after a run's last step needs it."""
        was_open, self.is_open = self.is_open, True
        try:
            yield
        finally:
            self.is_open = was_open

    def check_label(self, what: str, last: int) -> None:
        """Refuse labels of snapshots after the validation split while the seal is closed.

        Raises:
            TestPartError: the seal is closed, and ``last`` is after the validation split.
        """
        if last >= self.readable and not self.is_open:
            self._refuse(f"{what} of snapshot {last}")

    def check_input(self, what: str, last: int) -> None:
        """Refuse snapshots after the validation split, but for the next one, which is the split's last label.

        Raises:
            TestPartError: the seal is closed, and ``last`` is after the next one.
        """
        if last > self.readable and not self.is_open:
            self._refuse(f"{what} of snapshot {last}")

    def _refuse(self, what: str) -> NoReturn:
        raise TestPartError(
            f"the {what} cannot be read while a run trains: it belongs to the test split, which only the evaluation "
            "after the last step reads (Evaluator.evaluate(..., final=True)). Before, snapshots 0 to "
            f"{self.readable - 1} may be read, the training and validation splits: tune by the validation loss."
        )


class SealedArray(NDArrayOperatorsMixin):
    """A numpy-like array over T snapshots. Reading a sealed entry raises.

    Args:
        array: shape (T, N) or (T, N, F).
        check: method of a :class:`Seal` that raises where entries up to a number are sealed.
        what: name of an entry in messages.
        hidden: returns the nodes whose entries read as -1 now, (N,), or None.
    """

    def __init__(
        self, array: NDArray[Any], check: Check, what: str, *, hidden: Callable[[], NDArray[np.bool_] | None] = _none
    ) -> None:
        self._array, self._check, self._what, self._hidden = array, check, what, hidden
        self.shape, self.dtype, self.ndim, self.size = array.shape, array.dtype, array.ndim, array.size
        self.strides, self.nbytes = array.strides, array.nbytes

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        self._check(self._what, last_read(index[0] if isinstance(index, tuple) and index else index, len(self)))
        value, hidden = self._array[index], self._hidden()
        if hidden is None:
            return value
        return np.where(np.broadcast_to(hidden, self.shape)[index], value.dtype.type(-1), value)

    def __iter__(self) -> Iterator[Any]:
        return (self[t] for t in range(len(self)))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(value) if isinstance(value, SealedArray) else value for value in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getattr__(self, name: str) -> Any:
        # methods of arrays, such as mean(), would read every entry
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"SealedArray has no attribute {name!r}")
        return getattr(self[:], name)


class SealedSnapshots(Sequence[Snapshot]):
    """A sequence of T snapshots. Reading a sealed one raises.

    Args:
        snapshots: the T snapshots.
        check: method of a :class:`Seal` that raises where snapshots up to a number are sealed.
        what: name of a snapshot in messages.
    """

    def __init__(self, snapshots: Sequence[Snapshot], check: Check, what: str) -> None:
        self._snapshots, self._check, self._what = snapshots, check, what

    def __len__(self) -> int:
        return len(self._snapshots)

    @overload
    def __getitem__(self, index: int) -> Snapshot: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Snapshot]: ...
    def __getitem__(self, index: int | slice) -> Snapshot | Sequence[Snapshot]:
        self._check(self._what, last_read(index, len(self)))
        return self._snapshots[index]


class SealedGraph(DynamicGraph):
    """A view of a graph whose snapshots after the validation split can be read only while its seal is open.

    Labels are ``targets``, ``classes``, ``following`` and ``persistence``, which is the label before. Where the data
    set splits its nodes, labels of test nodes read as -1. Features that never change are not sealed.

    It guards against mistakes, not against intent: all data are in the same memory.
    """

    seal: Seal
    _whole: DynamicGraph

    def __reduce__(self) -> tuple[Any, ...]:
        return (_sealed_again, (self._whole, self.seal.readable))


def sealed(graph: DynamicGraph, split: Split) -> SealedGraph:
    """Return a view of the graph with a sealed test split; nothing is copied.

    Args:
        graph: T snapshots; the seal of a sealed graph is replaced.
        split: the graph's splits.
    """
    return _sealed_again(unsealed(graph), max(split.train.stop, split.validation.stop))


def unsealed(graph: DynamicGraph) -> DynamicGraph:
    """Return the unsealed graph, whose training snapshots plans are made from."""
    return graph._whole if isinstance(graph, SealedGraph) else graph


def seal_of(graph: DynamicGraph) -> Seal:
    """Return the seal of a graph; a new one that seals nothing where the graph has none."""
    return graph.seal if isinstance(graph, SealedGraph) else Seal(graph.num_snapshots)


def last_read(index: Any, length: int) -> int:
    """Return the highest of ``length`` entries that an index reads; the last if unknown, -1 if it reads none."""
    if isinstance(index, slice):
        read = range(*index.indices(length))
        return max(read[0], read[-1]) if read else -1
    if index is Ellipsis or index is None or isinstance(index, bool | np.bool_ | tuple):
        return length - 1
    if isinstance(index, list | np.ndarray):
        places = np.asarray(index)
        if places.dtype == bool:
            return int(places.nonzero()[0].max(initial=-1)) if places.ndim else length - 1
        places = np.where(places < 0, places + length, places)
        return int(places.max(initial=-1))
    position = operator.index(index)
    return position + length if position < 0 else position


def _sealed_again(graph: DynamicGraph, readable: int) -> SealedGraph:
    seal = Seal(readable)
    tested = None if graph.vertex_split is None else np.asarray(graph.vertex_split) == TEST
    fields = {name: getattr(graph, name) for name in DynamicGraph.__dataclass_fields__}
    fields |= {
        "snapshots": SealedSnapshots(graph.snapshots, seal.check_input, "edges"),
        "targets": SealedArray(graph.targets, seal.check_label, "label"),
        "persistence": SealedArray(graph.persistence, seal.check_label, "persistence"),
    }
    if not graph.static_features:
        fields["features"] = SealedArray(graph.features, seal.check_input, "features")
    if graph.classes is not None:
        fields["classes"] = SealedArray(
            graph.classes, seal.check_label, "class", hidden=lambda: None if seal.is_open else tested
        )
    if graph.following is not None:
        fields["following"] = SealedSnapshots(graph.following, seal.check_label, "edges after those")
    facts = {name: getattr(graph, name) for name in ("data_hash", "num_edges", "num_classes")}
    return SealedGraph.trusted(**fields, **facts, seal=seal, _whole=graph)
