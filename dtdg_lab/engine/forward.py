"""The forward pass without gradients, of several snapshots at once, each layer in pieces that fit the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.kernels.parallel_map import STEP_NUMBERS, parallel_map
from dtdg_lab.models.base import DynamicModel, State

# At most, of the hidden rows of all snapshots of a block; little of a GPU, whose kernels are filled by one snapshot
BLOCK_NUMBERS = {"cpu": 128_000_000, "cuda": 16_000_000}


@torch.no_grad()
def forward(
    model: DynamicModel, view: Callable[[int], SnapshotView], snapshots: range, state: State, *, num_nodes: int
) -> Iterator[tuple[int, Tensor]]:
    """Yield each snapshot with its hidden rows, (n, H).

    Args:
        model: the model.
        view: returns the view of a snapshot.
        snapshots: consecutive snapshots.
        state: state before the first one.
        num_nodes: nodes of a snapshot on all ranks, so that these gather rows in the same order.
    """
    numbers = BLOCK_NUMBERS.get(model.readout_layer.weight.device.type, 0)
    together = model.memory in ("per_vertex", "none")
    size = max(1, numbers // (num_nodes * model.hidden)) if together else 1
    for start in range(snapshots.start, snapshots.stop, size):
        block = snapshots[start - snapshots.start :][:size]
        views = [view(t) for t in block]
        hidden: Sequence[Tensor]
        if together:
            hidden, state = _run_block(model, views, state)
        else:
            h, state = model.snapshot(views[0], views[0].inputs, state)
            hidden = (h,)
        yield from zip(block, hidden, strict=True)


def _run_block(model: DynamicModel, views: Sequence[SnapshotView], state: State) -> tuple[Sequence[Tensor], State]:
    """Return the hidden rows of S snapshots, and the state after them."""
    xs: Sequence[Tensor] = [view.inputs for view in views]
    for layer in range(model.layers):
        pulled = [model.spatial(layer, view.layer(layer), x, state) for view, x in zip(views, xs, strict=True)]
        xs, state = _through_time(model, layer, pulled, state)
    return xs, state


def _through_time(
    model: DynamicModel, layer: int, pulled: Sequence[Tensor], state: State
) -> tuple[Sequence[Tensor], State]:
    """Run the nodes of S snapshots through a layer's temporal part, and return their rows and the state after them."""
    nodes, device = len(pulled[0]), pulled[0].device.type
    rows = max(1, STEP_NUMBERS.get(device, nodes * model.hidden) // model.hidden)
    pieces = [slice(start, start + rows) for start in range(0, nodes, rows)]

    @torch.no_grad()
    def run(piece: slice) -> tuple[Tensor, tuple[Tensor, ...]]:
        x = torch.stack([of_snapshot[piece] for of_snapshot in pulled])
        h, after = model.temporal_sequence(layer, x, state.slice(piece))
        return h, after.layers[layer]

    first, tensors = run(pieces[0])
    if len(pieces) == 1:
        return first.unbind(), state.with_layer(layer, tensors)
    hidden = [first.new_empty(nodes, first.shape[2]) for _ in pulled]
    carried = tuple(tensor.new_empty(nodes, *tensor.shape[1:]) for tensor in tensors)

    def keep(piece: slice) -> None:
        h, after = run(piece)
        for whole, part in zip((*hidden, *carried), (*h, *after), strict=True):
            whole[piece] = part

    parallel_map(keep, pieces, device=device)
    return hidden, state.with_layer(layer, carried)
