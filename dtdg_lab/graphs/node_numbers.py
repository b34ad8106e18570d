"""Number the nodes of an edge list 0 .. N - 1, over all time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs import pieces
from dtdg_lab.graphs.edge_list import read_ids

MAX_NODES = 2**31 - 1  # sources are kept as int32

_Vector = NDArray[Any]


def number_nodes(
    sources: _Vector, targets: _Vector, *, bipartite: bool = False, nodes: Any = None
) -> tuple[_Vector, NDArray[np.int32], NDArray[np.int32]]:
    """Return the ids of N nodes, shape (N,), and the ends of E edges as positions in them, shape (E,) each.

    Args:
        sources: ids, int64 or text, shape (E,).
        targets: ids, shape (E,).
        bipartite: whether sources and targets are nodes of two kinds.
        nodes: as in :func:`cut_edges`.

    Raises:
        DataError: one column holds text and the other numbers, or ``nodes`` lacks an id.
    """
    if nodes is not None:
        return _number_listed(nodes, sources, targets, bipartite=bipartite)
    if bipartite:
        users, source_rows = np.unique(sources, return_inverse=True)
        items, target_rows = np.unique(targets, return_inverse=True)
        node_ids = two_sides(users, items)
        ends = source_rows.astype(np.int32), (target_rows + len(users)).astype(np.int32)
    else:
        if sources.dtype.kind != targets.dtype.kind:
            raise DataError(
                f"src and dst must both be whole numbers or both be text, because they name the same nodes: src[0] is "
                f"{sources[0].item()!r}, dst[0] is {targets[0].item()!r}. Convert one of them, or give bipartite=True "
                "if they are nodes of two kinds."
            )
        node_ids, *both = _numbered(sources, targets)
        ends = both[0], both[1]
    return node_ids, *ends


def two_sides(users: _Vector, items: _Vector) -> _Vector:
    """Return the ids of nodes of two kinds: first those of the sources, then those of the targets.

    No id stands for two nodes: whole numbers of targets are shifted by one more than the largest source, other ids
    become ``dst:<id>``.

    Args:
        users: distinct ids of the sources.
        items: distinct ids of the targets.

    Raises:
        DataError: a shifted id would not fit 64 bits.
    """
    if users.dtype.kind == items.dtype.kind == "i":
        shift = int(users.max()) + 1 - min(int(items.min()), 0)
        if int(items.max()) + shift >= 2**63:
            raise DataError(
                f"bipartite=True shifts the ids of dst by {shift}, one more than the largest src; {items.max()} then "
                "passes 2^63. Number both kinds of nodes from 0 on."
            )
        return np.concatenate([users, items + shift])
    names, prefix = users.astype(str), "dst:"
    while np.char.startswith(names, prefix).any():  # no id may stand for two nodes
        prefix = f"dst:{prefix}"
    return np.concatenate([names, np.char.add(prefix, items.astype(str))])


def _number_listed(
    nodes: Any, sources: _Vector, targets: _Vector, *, bipartite: bool
) -> tuple[_Vector, NDArray[np.int32], NDArray[np.int32]]:
    """Return the listed ids of the nodes, and the positions of sources and targets among them."""
    if bipartite:
        if not isinstance(nodes, (tuple, list)) or len(nodes) != 2:
            raise DataError(
                "nodes is no pair of vectors; with bipartite=True, (ids of the sources, ids of the targets) is needed."
            )
        users, items = (read_nodes(side, f"nodes[{number}]") for number, side in enumerate(nodes))
        ends = position_in(users, sources, "src"), position_in(items, targets, "dst") + np.int32(len(users))
        return two_sides(users, items), *ends
    node_ids = read_nodes(nodes, "nodes")
    return node_ids, position_in(node_ids, sources, "src"), position_in(node_ids, targets, "dst")


def read_nodes(nodes: Any, name: str) -> _Vector:
    """Return the listed ids of nodes, shape (N,); a number N stands for 0 .. N - 1.

    Raises:
        DataError: they are no ids, or there are none.
    """
    if isinstance(nodes, int | np.integer) and not isinstance(nodes, bool):
        if not 1 <= nodes <= MAX_NODES:
            raise DataError(f"{name}={nodes}; the ids of all nodes are needed, or their number, 1 to {MAX_NODES:,}.")
        return np.arange(nodes)
    node_ids = read_ids(nodes, name)
    if not len(node_ids):
        raise DataError(f"{name} is empty; the ids of all nodes are needed, or their number.")
    return node_ids


def position_in(node_ids: _Vector, ids: _Vector, name: str) -> NDArray[np.int32]:
    """Return the positions of ids, shape (E,), among N ids in any order.

    Args:
        node_ids: distinct ids, shape (N,).
        ids: ids of edges' ends.
        name: the name of ``ids`` in messages.

    Raises:
        DataError: an id is listed twice, or not at all.
    """
    if node_ids.dtype.kind != ids.dtype.kind:
        kinds = {"i": "whole numbers", "U": "text"}
        raise DataError(
            f"nodes are {kinds[node_ids.dtype.kind]}, and {name}[0] is {ids[0].item()!r}. Give both in the same way."
        )
    _check_count(node_ids)
    if node_ids.dtype.kind == "i" and node_ids[0] == 0 and (np.diff(node_ids) == 1).all():  # positions already
        outside = np.flatnonzero((ids < 0) | (ids >= len(node_ids)))
        if len(outside):
            raise _not_listed(name, ids[outside[0]], node_ids)
        return ids.astype(np.int32)
    order = np.argsort(node_ids, kind="stable")
    ascending = node_ids[order]
    twice = np.flatnonzero(ascending[1:] == ascending[:-1])
    if len(twice):
        raise DataError(f"nodes lists {ascending[twice[0]].item()!r} twice. Give every node once.")
    position = np.searchsorted(ascending, ids).clip(max=len(ascending) - 1)
    absent = np.flatnonzero(ascending[position] != ids)
    if len(absent):
        raise _not_listed(name, ids[absent[0]], node_ids)
    positions: NDArray[np.int32] = order[position].astype(np.int32)
    return positions


def _not_listed(name: str, absent: Any, node_ids: _Vector) -> DataError:
    return DataError(
        f"{name} has the id {absent.item()!r}, which nodes does not list: it lists {len(node_ids):,} ids, such as "
        f"{node_ids[0].item()!r}. Add it, or leave nodes out."
    )


def _numbered(sources: _Vector, targets: _Vector) -> tuple[_Vector, NDArray[np.int32], NDArray[np.int32]]:
    """Return the sorted ids, and sources and targets as positions in them."""
    is_integer = sources.dtype.kind == "i"
    low = int(min(sources.min(), targets.min())) if is_integer else 0
    high = int(max(sources.max(), targets.max())) if is_integer else 0
    if is_integer and high - low < 4 * len(sources) + 1024:
        # ids lie close: marking those that occur is faster than sorting all of them
        occurs = np.zeros(high - low + 1, dtype=bool)
        for ids in (sources, targets):
            for piece in pieces.slices(len(ids)):
                occurs[ids[piece] - low] = True
        node_ids = np.flatnonzero(occurs) + low
        _check_count(node_ids)
        number_of = np.cumsum(occurs, dtype=np.int32)
        number_of -= 1
        return node_ids, _looked_up(number_of, sources, low), _looked_up(number_of, targets, low)
    node_ids, every = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    _check_count(node_ids)
    numbers: NDArray[np.int32] = every.astype(np.int32)
    return node_ids, numbers[: len(sources)], numbers[len(sources) :]


def _looked_up(numbers: NDArray[np.int32], ids: _Vector, low: int) -> NDArray[np.int32]:
    result = np.empty(len(ids), dtype=np.int32)

    def look_up(piece: slice) -> None:
        result[piece] = numbers[ids[piece] - low]

    pieces.work_on(len(ids), look_up)
    return result


def _check_count(node_ids: _Vector) -> None:
    if len(node_ids) > MAX_NODES:
        raise DataError(f"{len(node_ids):,} nodes; at most {MAX_NODES:,} fit the index type.")
