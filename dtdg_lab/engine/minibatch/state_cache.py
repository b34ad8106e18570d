"""Hidden states of a part's nodes that earlier batches have computed."""

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

Places = slice | Tensor  # of nodes among those of a part: a run of them, or their numbers


class StateCache:
    """The hidden states of a part's nodes before each snapshot, as they were last computed: what batches start from.

    There is a row for each node and snapshot, zero until it is computed. A batch may begin at any snapshot, and a
    single state per node would nearly always be that of another one. Rows are kept only of nodes whose state a layer
    reads: per_vertex memory needs no state of the nodes that only the first pull reaches.

    Args:
        model: whose states they are.
        part: the nodes, the same in all T snapshots.
        limit_bytes: most that the states may take.

    Attributes:
        vertices: (M,) the nodes' numbers in the graph.
        layers: for each layer and tensor of its state, (T, M', ...); the state before the first snapshot stays zero.

    Raises:
        UnsupportedError: the model has no state for each node, or the states would take more.

    References: FlareDTDG section 3.2 (historical hidden states of an RNN are inherited); truncated BPTT.
    Differs from the paper: DynaHB starts every batch from a zero state.
    """

    def __init__(self, model: DynamicModel, part: CachedPart, limit_bytes: int) -> None:
        if model.memory not in STATIC_MEMORIES:
            raise UnsupportedError(
                f"batch_state='cached' keeps one state per node, and the memory of {type(model).__name__} is "
                f"{model.memory!r}. Set batch_state='zero', or choose a model with a state per node, such as tgcn."
            )
        snapshots, hops = part.reach.snapshots, part.reach.hops
        self._first = snapshots.start
        reads = [hops * layers_after // model.layers for layers_after in reversed(range(model.layers))]
        if model.memory == "neighbourhood":
            reads = [hops] * model.layers
        heights = [part.prefix(snapshots.start, of_layer) for of_layer in reads]
        rows = zip(model.initial_state(1).layers, heights, strict=True)
        needed_bytes = len(snapshots) * sum(sum(row.nbytes for row in of_layer) * height for of_layer, height in rows)
        if needed_bytes > limit_bytes:
            raise UnsupportedError(
                f"batch_state='cached' would keep states of {max(heights):,} nodes before {len(snapshots)} "
                f"snapshots in {format_bytes(needed_bytes)}, where batch_state_gib allows {format_bytes(limit_bytes)} "
                "for a part. Set batch_state_gib higher, a smaller hidden, more ranks, or batch_state='zero'."
            )
        self.vertices = torch.tensor(part.vertices(snapshots.start)[: max(heights)].astype(np.int64))
        self.layers = tuple(
            tuple(row.new_zeros(len(snapshots), height, *row.shape[1:]) for row in of_layer)
            for of_layer, height in zip(model.initial_state(1).layers, heights, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        return sum(tensor.nbytes for of_layer in self.layers for tensor in of_layer)

    def before(self, t: int, layer: int, rows: Places) -> tuple[Tensor, ...]:
        """Return a layer's state of some nodes before snapshot t.

        Args:
            t: of the part's snapshots.
            layer: of the model.
            rows: (n,) places among the part's nodes, or a run of them.
        """
        layer_rows = (states[t - self._first, rows] for states in self.layers[layer])
        # a run of rows is a view, and what backward needs must not change when the states after it are written
        return tuple(rows_before.clone() if isinstance(rows, slice) else rows_before for rows_before in layer_rows)

    def write(self, t: int, layer: int, rows: Places, states: Sequence[Tensor]) -> None:
        """Replace the states of some nodes after S snapshots from t on.

        Args:
            t: the first.
            layer: of the model.
            rows: (n,) places among the part's nodes, or a run of them.
            states: for each tensor of the state (S, n, ...).
        """
        first = t - self._first + 1
        for states_held, new_states in zip(self.layers[layer], states, strict=True):
            into = states_held[first : first + len(new_states)]
            into[:, rows] = new_states[: len(into)]  # nothing starts after the last snapshot

    def gathered(self, group: Group) -> list[dict[str, Any]]:
        """Return the :meth:`state_dict` of every rank's cache, by rank; collective."""

        def joined(rows: Tensor) -> list[Tensor]:
            row_count = torch.tensor([[len(rows)]], device=self.layers[0][0].device)
            counts = [int(count) for count in group.gather_rows(row_count, [1] * group.size)[:, 0]]
            return [of_rank.cpu() for of_rank in group.gather_rows(rows, counts).split(counts)]

        vertices = joined(self.vertices.to(self.layers[0][0].device).unsqueeze(1))
        layers: list[list[list[Tensor]]] = [[[] for _ in self.layers] for _ in vertices]
        for number, of_layer in enumerate(self.layers):
            for states in of_layer:
                shape = (len(states), *states.shape[2:])
                for rank, rows in enumerate(joined(states.transpose(0, 1).flatten(1))):
                    layers[rank][number].append(rows.unflatten(1, shape).transpose(0, 1))
        return [
            {"vertices": rank_vertices[:, 0], "layers": rank_layers}
            for rank_vertices, rank_layers in zip(vertices, layers, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Nodes and states, by reference."""
        return {"vertices": self.vertices, "layers": self.layers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the states of :meth:`state_dict`; those of other nodes, snapshots or shapes are left out."""
        stored_tensors = [tensor for of_layer in state["layers"] for tensor in of_layer]
        cached_tensors = [tensor for of_layer in self.layers for tensor in of_layer]
        if torch.equal(state["vertices"].cpu(), self.vertices) and [x.shape for x in stored_tensors] == [
            x.shape for x in cached_tensors
        ]:
            for into, tensor in zip(cached_tensors, stored_tensors, strict=True):
                into.copy_(tensor)
