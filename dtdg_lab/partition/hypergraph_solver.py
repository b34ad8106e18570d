"""What the child process does for partitioner ``hypergraph``: Mt-KaHyPar itself. Imports nothing else of the lab."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def solve(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Mt-KaHyPar on nets of N vertices: starts, pins and weights in, (N,) parts out."""
    import mtkahypar

    # on several threads only the deterministic preset repeats itself, at three times the work for as many rows
    library = mtkahypar.initialize(1)
    mtkahypar.set_seed(int(arrays["seed"]))
    context = library.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.set_partitioning_parameters(int(arrays["parts"]), float(arrays["imbalance"]), mtkahypar.Objective.KM1)
    context.logging = False
    starts, pins = arrays["starts"].tolist(), arrays["pins"].tolist()
    nets = [pins[first:after] for first, after in itertools.pairwise(starts)]
    hypergraph = library.create_hypergraph(
        context, len(arrays["vertex_weights"]), len(nets), nets, arrays["vertex_weights"].tolist(),
        arrays["net_weights"].tolist(),
    )  # fmt: skip
    return np.asarray(hypergraph.partition(context).get_partition(), np.int64)
