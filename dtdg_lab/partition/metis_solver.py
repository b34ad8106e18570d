"""What the child process does for partitioner ``metis``: METIS itself. Imports nothing else of the lab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def solve(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """METIS on K vertices that all have a neighbour: compressed sparse rows and weights in, (K,) parts out."""
    import pymetis

    number = pymetis.zero_copy_dtype()
    parts = int(arrays["parts"])
    options = pymetis.Options(
        seed=int(arrays["seed"]), ufactor=max(1, round(1000 * float(arrays["imbalance"]))), numbering=0
    )
    found = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(arrays["indptr"].astype(number), arrays["indices"].astype(number)),
        vweights=arrays["vertex_weights"].astype(number),
        eweights=arrays["edge_weights"].astype(number),
        recursive=parts <= 8,  # as METIS's manual advises
        options=options,
    )
    return np.asarray(found.vertex_part, np.int64)
