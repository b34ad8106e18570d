"""Node features of one window: degrees, a constant, or what the data set gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError, UnknownNameError
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import LARGEST, Snapshot

KINDS = ("log_degrees", "degrees", "one_hot_degree", "constant", "given")
ONE_HOT_CLASSES = 64


class FeatureRows:
    """The features of window after window.

    ``degrees`` are the in-degree and the out-degree, sums of weights where edges carry any, raw as in the papers;
    ``log_degrees`` are log(1 + degree). ``one_hot_degree`` is the number of out-neighbours, one-hot in 64 classes;
    the last is "63 or more". ``constant`` is 1. ``given`` are those of the stream: where they change over time,
    a window has the value of its newest base interval.

    Args:
        stream: the data, for ``given``.
        kind: one of the above.

    Raises:
        UnknownNameError: another kind.
        DataError: ``given`` for data that gives none.

    Source: degrees of DynaHB and FlareDTDG; one-hot out-degree of EvolveGCN's released code; constant of ROLAND.

    Differs from the paper: EvolveGCN's one-hot is as wide as the largest degree at any time, later ones included; here
    the width is fixed, so that nothing of the future shows in it.
    """

    def __init__(self, stream: IntervalStream, kind: str) -> None:
        if kind not in KINDS:
            raise UnknownNameError("value of features", kind, KINDS)
        if kind == "given" and stream.features is None:
            raise DataError(
                "features='given', and this data set gives none. Choose features='log_degrees' or another kind, or "
                "give features of shape (N, F) or (B, N, F) with the edges."
            )
        self._stream, self._kind = stream, kind
        self._before: tuple[Snapshot, NDArray[np.float32]] | None = None

    @property
    def static(self) -> NDArray[np.float32] | None:
        """The features of all windows at once, shape (N, F), where they never change."""
        if self._kind == "constant":
            return np.ones((self._stream.num_nodes, 1), dtype=np.float32)
        given = self._stream.features
        return given if self._kind == "given" and given is not None and given.ndim == 2 else None

    @property
    def width(self) -> int:
        """F, the number of features."""
        if self._kind == "given" and self._stream.features is not None:
            return int(self._stream.features.shape[-1])
        return {"one_hot_degree": ONE_HOT_CLASSES, "constant": 1}.get(self._kind, 2)

    def row(self, graph: Snapshot, newest: int) -> NDArray[np.float32]:
        """Features of shape (N, F) of a window whose newest base interval has this number; they are not static."""
        if self._kind == "given":
            assert self._stream.features is not None  # seen in the constructor
            return self._stream.features[newest]
        if self._before is None or graph is not self._before[0]:  # windows in which nothing changes are one graph
            self._before = graph, self._of_degrees(graph)
        return self._before[1]

    def _of_degrees(self, graph: Snapshot) -> NDArray[np.float32]:
        if self._kind == "one_hot_degree":
            return _one_hot(np.bincount(graph.indices, minlength=graph.num_nodes))
        degrees = np.stack([graph.in_degrees(), graph.out_degrees()], axis=1)
        return narrowed(np.log1p(degrees) if self._kind == "log_degrees" else degrees)


def log_in_degrees(graph: Snapshot) -> NDArray[np.float32]:
    """log(1 + in-degree) of every node, shape (N,), weighted where edges carry weights."""
    return np.log1p(graph.in_degrees()).astype(np.float32)


def narrowed(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Values of at least 0 in float32.

    Raises:
        DataError: one is too large for it.
    """
    largest = float(values.max(initial=0.0))
    if largest > LARGEST:
        raise DataError(f"a degree is {largest}; at most 3.4e38 can be kept. Scale the weights down.")
    return values.astype(np.float32)


def _one_hot(degrees: NDArray[np.int64]) -> NDArray[np.float32]:
    features = np.zeros((len(degrees), ONE_HOT_CLASSES), dtype=np.float32)
    features[np.arange(len(degrees)), np.minimum(degrees, ONE_HOT_CLASSES - 1)] = 1
    return features
