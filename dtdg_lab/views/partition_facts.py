"""What the pictures of a vertex partition are made of: the facts of an event ``partition``, or of a measured one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.views.ways import WAYS, Matrix


@dataclass(frozen=True, slots=True, eq=False)
class PartitionFacts:
    """A partition of N vertices in P parts, measured over T snapshots that are binned into K columns.

    Attributes:
        partitioner: its name.
        parts: P.
        ranks: R, processes that execute the parts; 0 where no run does.
        layout: ``halo_vertex`` or ``cached_vertex``; empty where no run uses it.
        seconds: making the partition took.
        rebuild_s: the whole change took, in the middle of a run; None at a run's start.
        bounds: (K + 1,): column k shows snapshots bounds[k] to bounds[k + 1] - 1.
        maps: ``edges`` into own vertices, ``halo`` rows received, ``replicated`` rows; (P, K) means of a snapshot.
        vertices: (P,) owned by each part.
        load: (P,) walks of up to D hops into a part's vertices, as DynaHB counts them.
        memory: layout -> (P,) bytes.
        shares: ``cut`` edges of all edges; ``halo`` rows of those a part's pulls read; ``replicated`` rows of those a
            part holds; from 0 to 1.
        totals: ``cut_edges``, ``all_edges``, ``halo`` and ``replicated`` rows, summed over snapshots and parts.
        imbalance: of ``vertices``, ``edges`` and ``load``: the largest part's over the mean.
        predicted: way -> (L, R, R) bytes from one rank to another in a step (part to part where there are no ranks);
            empty where nothing was predicted.
    """

    partitioner: str
    parts: int
    ranks: int
    layout: str
    seconds: float
    rebuild_s: float | None
    bounds: NDArray[np.int64]
    maps: Mapping[str, Matrix]
    vertices: Matrix
    load: Matrix
    memory: Mapping[str, Matrix]
    shares: Mapping[str, float]
    totals: Mapping[str, float]
    imbalance: Mapping[str, float]
    predicted: Mapping[str, Matrix]

    @property
    def label(self) -> str:
        """Its name in titles, such as ``metis, 4 parts``."""
        return f"{self.partitioner}, {self.parts} part{'s' if self.parts > 1 else ''}"

    @property
    def exchanges(self) -> bool:
        """Whether rows are sent between ranks, or would be."""
        return self.layout != "cached_vertex"

    def same(self, other: PartitionFacts) -> bool:
        """Whether it is the same partition, executed in the same way."""
        mine, theirs = ((f.partitioner, f.parts, f.ranks, f.layout) for f in (self, other))
        return (
            mine == theirs
            and self.predicted.keys() == other.predicted.keys()
            and np.array_equal(self.vertices, other.vertices)
            and all(np.array_equal(each, other.maps[name]) for name, each in self.maps.items())
            and all(np.array_equal(each, other.predicted[way]) for way, each in self.predicted.items())
        )


def facts_of(data: Mapping[str, Any]) -> PartitionFacts:
    """The facts in the data of an event ``partition``, or in ``MeasuredPartition.told()``.

    Args:
        data: ``partitioner``, ``parts``, ``seconds``, ``measures`` (``PartitionMeasures.told``), ``predicted``, and
            where a run uses it ``ranks``, ``layout`` and ``rebuild_s``.

    Raises:
        DataError: something is missing.
    """
    try:
        told, predicted = data["measures"], data.get("predicted") or {}
        return PartitionFacts(
            partitioner=str(data["partitioner"]),
            parts=int(data["parts"]),
            ranks=int(data.get("ranks") or 0),
            layout=str(data.get("layout") or ""),
            seconds=float(data["seconds"]),
            rebuild_s=None if data.get("rebuild_s") is None else float(data["rebuild_s"]),
            bounds=np.asarray(told["bins"], np.int64),
            maps={name: _numbers(told[name]) for name in ("edges", "halo", "replicated")},
            vertices=_numbers(told["owned"]),
            load=_numbers(told["load"]),
            memory={"halo_vertex": _numbers(told["halo_bytes"]), "cached_vertex": _numbers(told["cached_bytes"])},
            shares={name: float(told[f"{name}_share"]) for name in ("cut", "halo", "replicated")},
            totals={name: float(told["totals"][name]) for name in ("cut_edges", "all_edges", "halo", "replicated")},
            imbalance={name: float(told["imbalance"][name]) for name in ("vertices", "edges", "load")},
            predicted={way: _numbers(predicted[way]) for way in WAYS if way in predicted},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"a partition cannot be drawn from what is told of it ({error!r}): was it recorded by another version?"
        ) from error


def _numbers(values: Sequence[Any]) -> Matrix:
    return np.asarray(values, np.float64)
