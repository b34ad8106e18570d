"""Bipartite files number both sides from the same number on: the second side is moved behind the first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.tables import MAX_ID
from dtdg_lab.graphs.arrays import give_up


def shifted(users: NDArray[np.int64], items: NDArray[np.int64], where: str) -> NDArray[np.int64]:
    """The items, shape (E,), with the largest user + 1 added, so that no item is a user.

    Args:
        users: shape (E,), E at least 1.
        items: shape (E,).
        where: the file's name, for messages.

    Raises:
        DataError: the largest would pass 2^31 - 1.
    """
    moved = items + (int(users.max()) + 1)
    if moved.max() > MAX_ID:
        raise DataError(
            f"{where} numbers one side to {users.max():,} and the other to {items.max():,}; together at most "
            f"{MAX_ID:,} is allowed. Number the vertices anew, for example with from_csv."
        )
    return give_up(moved)
