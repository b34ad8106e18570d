"""The label of every window, the baseline that stands beside it, and the edges that the label counts.

Without given targets the label at window t is log(1 + in-degree in window t + 1), and its persistence log(1 + in-degree
in window t), so that the last window is only a label. With ``strict_label`` only edges that the newest base interval of
those windows holds count: with edges that live long, neighbouring windows share nearly all of them, and persistence is
hard to beat.

What is given is given for base intervals; window t takes what belongs to its newest one. Windows that ``min_edges``
leaves out take theirs with them, and the label of the window before comes from the next one that is kept.

Source: SYSTEMS.md, "Data conventions of the papers" (targets of DynaHB and FlareDTDG); the strict label is ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.features import log_in_degrees
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.windows import Window


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A window with its label.

    Attributes:
        window: the window.
        targets: shape (N,), float32.
        persistence: shape (N,), float32: what "tomorrow is like today" predicts for ``targets``.
        following: the edges that the label counts; None where targets are given.
    """

    window: Window
    targets: NDArray[np.float32]
    persistence: NDArray[np.float32]
    following: Snapshot | None


def labelled(windows: Iterable[Window], stream: IntervalStream, *, strict_label: bool) -> Iterator[Labelled]:
    """The windows with their labels, oldest first: all of them where targets are given, else all but the last."""
    if stream.targets is not None:
        for window in windows:
            target, expected = stream.targets[window.newest], _expected(stream, window.newest)
            yield Labelled(window, target, expected, None)
        return
    for (now, _, today), (_, following, tomorrow) in itertools.pairwise(_counted(windows, strict_label)):
        yield Labelled(now, tomorrow, today, following)


def _counted(windows: Iterable[Window], strict_label: bool) -> Iterator[tuple[Window, Snapshot, NDArray[np.float32]]]:
    """Every window with the edges that a label counts, and the label; taken over where nothing has changed."""
    before: Snapshot | None = None
    for window in windows:
        graph = window.base if strict_label else window.graph
        if graph is not before:
            before, label = graph, log_in_degrees(graph)
        yield window, graph, label


def _expected(stream: IntervalStream, newest: int) -> NDArray[np.float32]:
    """What "tomorrow is like today" says of a given target: what is given, else the target one base interval before.

    The first base interval has none before it; there it says 0.
    """
    assert stream.targets is not None  # seen by the caller
    if stream.persistence is not None:
        return stream.persistence[newest]
    return stream.targets[newest - 1] if newest else np.zeros_like(stream.targets[0])
