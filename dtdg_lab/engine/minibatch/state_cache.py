"""Hidden states of a part's nodes from earlier batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.views.replicated_part import STATIC_MEMORIES, CachedPart
from dtdg_lab.models.base import DynamicModel

Places = slice | Tensor  # indices among a part's nodes


class StateCache:
    """Latest hidden states of a part's nodes before each snapshot; batches start from them.

    There is a row for each node and snapshot, zero until it is computed. One state per node would not do, since a
    batch may begin at any snapshot. Only nodes whose state a layer reads have rows: per_vertex memory needs no state of
    the nodes that only the first pull reaches.

    Args:
        model: the model.
        part: the nodes, the same in all T snapshots.
        limit_bytes: most bytes of the states.

    Attributes:
        vertices: (M,) the nodes' numbers in the graph.
        layers: for each layer and tensor of its state, (T, M', ...); the state before the first snapshot stays zero.

    Raises:
        UnsupportedError: the model has no state for each node, or the states exceed the limit.

    References: FlareDTDG section 3.2 (historical hidden states of an RNN are inherited); truncated BPTT.
    Differs from the paper: DynaHB starts every batch from a zero state.
    """

    def __init__(self, model: DynamicModel, part: CachedPart, limit_bytes: int) -> None:
        if model.memory not in STATIC_MEMORIES:
            raise UnsupportedError(
                f"batch_state='cached' keeps one state per node, but the memory of {type(model).__name__} is "
                f"{model.memory!r}. Set batch_state='zero', or choose a model with a state per node, such as tgcn."
            )
        snapshots, hops = part.reach.snapshots, part.reach.hops
        self._first = snapshots.start
        reads = [hops * layers_after // model.layers for layers_after in reversed(range(model.layers))]
        if model.memory == "neighbourhood":
            reads = [hops] * model.layers
        heights = [part.prefix(snapshots.start, layer_hops) for layer_hops in reads]
        rows = zip(model.initial_state(1).layers, heights, strict=True)
        needed_bytes = len(snapshots) * sum(
            sum(row.nbytes for row in layer_states) * height for layer_states, height in rows
        )
        if needed_bytes > limit_bytes:
            raise UnsupportedError(
                f"batch_state='cached' would keep states of {max(heights):,} nodes before {len(snapshots)} "
                f"snapshots in {format_bytes(needed_bytes)}, where batch_state_gib allows {format_bytes(limit_bytes)} "
                "for a part. Set batch_state_gib higher, a smaller hidden, more ranks, or batch_state='zero'."
            )
        self.vertices = torch.tensor(part.vertices(snapshots.start)[: max(heights)].astype(np.int64))
        self.layers = tuple(
            tuple(row.new_zeros(len(snapshots), height, *row.shape[1:]) for row in layer_states)
            for layer_states, height in zip(model.initial_state(1).layers, heights, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        return sum(tensor.nbytes for layer_states in self.layers for tensor in layer_states)

    def before(self, t: int, layer: int, rows: Places) -> tuple[Tensor, ...]:
        """Return a layer's state of some nodes before snapshot t.

        Args:
            t: a snapshot of the part.
            layer: layer of the model.
            rows: (n,) indices among the part's nodes.
        """
        layer_rows = (states[t - self._first, rows] for states in self.layers[layer])
        # a slice is a view, and a later write must not change tensors that backward needs
        return tuple(rows_before.clone() if isinstance(rows, slice) else rows_before for rows_before in layer_rows)

    def write(self, t: int, layer: int, rows: Places, states: Sequence[Tensor]) -> None:
        """Replace the states of some nodes after S snapshots from t on.

        Args:
            t: the first snapshot.
            layer: layer of the model.
            rows: (n,) indices among the part's nodes.
            states: (S, n, ...) for each tensor of the state.
        """
        first = t - self._first + 1
        for cached, new_states in zip(self.layers[layer], states, strict=True):
            target = cached[first : first + len(new_states)]
            target[:, rows] = new_states[: len(target)]  # no batch starts after the last snapshot

    def gathered(self, group: Group) -> list[dict[str, Any]]:
        """Gather the :meth:`state_dict` of every rank's cache; collective."""

        def gather(rows: Tensor) -> list[Tensor]:
            row_count = torch.tensor([[len(rows)]], device=self.layers[0][0].device)
            counts = [int(count) for count in group.gather_rows(row_count, [1] * group.size)[:, 0]]
            return [rank_rows.cpu() for rank_rows in group.gather_rows(rows, counts).split(counts)]

        vertices = gather(self.vertices.to(self.layers[0][0].device).unsqueeze(1))
        layers: list[list[list[Tensor]]] = [[[] for _ in self.layers] for _ in vertices]
        for number, layer_states in enumerate(self.layers):
            for states in layer_states:
                shape = (len(states), *states.shape[2:])
                for rank, rows in enumerate(gather(states.transpose(0, 1).flatten(1))):
                    layers[rank][number].append(rows.unflatten(1, shape).transpose(0, 1))
        return [
            {"vertices": rank_vertices[:, 0], "layers": rank_layers}
            for rank_vertices, rank_layers in zip(vertices, layers, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return nodes and states, without copying."""
        return {"vertices": self.vertices, "layers": self.layers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a :meth:`state_dict`, unless its nodes, snapshots or shapes differ."""
        stored_tensors = [tensor for layer_states in state["layers"] for tensor in layer_states]
        cached_tensors = [tensor for layer_states in self.layers for tensor in layer_states]
        if torch.equal(state["vertices"].cpu(), self.vertices) and [x.shape for x in stored_tensors] == [
            x.shape for x in cached_tensors
        ]:
            for cached, stored in zip(cached_tensors, stored_tensors, strict=True):
                cached.copy_(stored)
