"""Runs of models that remember something of each vertex: layer by layer, through time in blocks of vertices.

A layer first mixes neighbours in all S snapshots, as many at once as are small. Its recurrence then never mixes
vertices: a block of them runs through all snapshots while its rows are in the cache. In the last layer the block goes
on through readout, loss and backward at once, so that no activation of the recurrence outlives its block; in earlier
layers the block is computed again when its gradient has come. What is kept for all vertices and snapshots is the
spatial parts' outputs and their gradients. Exact, whatever the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.space import SnapshotSpace

# Numbers in one snapshot's rows of a block: one array of a step is shared by two threads (torch shares from 32,768
# numbers on) and a step's dozen arrays fit the cache; on a GPU a block should fill it.
STEP_NUMBERS = {"cpu": 81920, "cuda": 8_000_000}
BLOCK_NUMBERS = {"cpu": 8_000_000, "cuda": 64_000_000}  # of all S snapshots: bounds what a block keeps for backward


def add_gradients(run: Run) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss. For ``per_vertex`` memory."""
    spaces = run.sequence.stacks(run.snapshots)
    layers = [_Layer(run, 0, spaces, [space.inputs for space in spaces])]
    for number in range(1, run.model.layers):
        layers.append(_Layer(run, number, spaces, layers[-1].hidden()))
    loss = layers[-1].losses() if run.task.per_vertex else layers[-1].joint_loss()
    while layers:
        gradients = layers.pop().backward()
        if layers:
            layers[-1].pull_back(gradients)
    return loss


class _Layer:
    """One layer of a run.

    Args:
        run: what is differentiated.
        number: which layer.
        spaces: the S snapshots, some of them stacked.
        inputs: for each space the layer's input, (n, width), stacked as the space is.
    """

    def __init__(self, run: Run, number: int, spaces: list[SnapshotSpace], inputs: list[Tensor]) -> None:
        self._run, self._number, self._spaces = run, number, spaces
        self._state = run.model.initial_state(run.num_rows)
        self._inputs = inputs if number == 0 else [x.detach().requires_grad_() for x in inputs]
        self._mixed = [
            run_straight(run.model.spatial(number, space, x, self._state))
            for space, x in zip(spaces, self._inputs, strict=True)
        ]
        self._parts = self._by_snapshot([mixed.detach() for mixed in self._mixed])
        learns = any(mixed.requires_grad for mixed in self._mixed)
        self._gradients = [torch.empty_like(mixed) for mixed in self._mixed] if learns else []
        self._gradient_parts = self._by_snapshot(self._gradients)

    def hidden(self) -> list[Tensor]:
        """The layer's output, for each space (n, H), without history."""
        run = self._run
        h = self._parts[0].new_empty(len(run.snapshots), run.num_rows, run.model.hidden)
        with torch.no_grad():
            for rows in self._blocks():
                h[:, rows] = self._through_time(self._block(rows), rows)
        return [part.flatten(0, 1) for part in h.split([len(space.snapshots) for space in self._spaces])]

    def losses(self) -> Tensor:
        """The run's loss, block by block, each with its backward. For the last layer and a loss that is a sum."""
        run = self._run
        total = torch.zeros((), dtype=torch.float64, device=run.sequence.device)
        for rows in self._blocks():
            x = self._block(rows)
            loss = run.loss(self._readout(x, rows), run.at, rows)
            loss.backward()
            self._keep_gradient(x, rows)
            total += loss.detach()
        return total

    def joint_loss(self) -> Tensor:
        """The run's loss of all vertices together, with its backward; blocks are computed twice."""
        run = self._run
        with torch.no_grad():
            z = torch.cat([self._readout(self._block(rows), rows) for rows in self._blocks()], dim=1)
        z.requires_grad_()
        loss = run.loss(z, run.at, slice(0, run.num_rows))
        (dz,) = torch.autograd.grad(loss, z)
        for rows in self._blocks():
            x = self._block(rows)
            self._readout(x, rows).backward(dz[:, rows])
            self._keep_gradient(x, rows)
        return loss.detach()

    def pull_back(self, gradients: list[Tensor]) -> None:
        """Backward through time, from the output's gradient for each space; blocks are computed again."""
        parts = self._by_snapshot(gradients)
        for rows in self._blocks():
            x = self._block(rows)
            self._through_time(x, rows).backward(torch.stack([part[rows] for part in parts]))
            self._keep_gradient(x, rows)

    def backward(self) -> list[Tensor]:
        """Backward through the spatial parts: the gradient of the layer's input for each space; none in layer 0."""
        for place, gradient in enumerate(self._gradients):
            self._mixed[place].backward(gradient)
            self._mixed[place] = gradient  # lets go of the history
        return [x.grad for x in self._inputs if x.grad is not None]

    def _through_time(self, x: Tensor, rows: slice) -> Tensor:
        return self._run.model.temporal_sequence(self._number, x, self._state.slice(rows))[0]

    def _readout(self, x: Tensor, rows: slice) -> Tensor:
        """Readout of a block where loss is taken, (S', n, outputs)."""
        h = self._through_time(x, rows)
        return self._run.model.readout(h if self._run.loss_at == "all" else h[-1:])

    def _blocks(self) -> Iterator[slice]:
        run = self._run
        place = run.sequence.device.partition(":")[0]
        step = STEP_NUMBERS[place] // run.model.hidden
        whole = BLOCK_NUMBERS[place] // (run.model.hidden * len(run.snapshots))
        size = max(1, min(step, whole))
        return (slice(start, min(start + size, run.num_rows)) for start in range(0, run.num_rows, size))

    def _block(self, rows: slice) -> Tensor:
        """The block's rows of the spatial part, (S, n, C)."""
        return torch.stack([part[rows] for part in self._parts]).requires_grad_(bool(self._gradients))

    def _keep_gradient(self, x: Tensor, rows: slice) -> None:
        if x.grad is not None:
            for part, gradient in zip(self._gradient_parts, x.grad, strict=True):
                part[rows] = gradient

    def _by_snapshot(self, tensors: list[Tensor]) -> list[Tensor]:
        """Views of stacked rows, one for each snapshot."""
        return [
            part
            for space, rows in zip(self._spaces, tensors, strict=False)
            for part in rows.unflatten(0, (len(space.snapshots), -1)).unbind()
        ]
