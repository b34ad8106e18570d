"""Runs of models that remember something of each vertex: layer by layer, through time in blocks of vertices.

A layer first mixes neighbours in all S snapshots, as many at once as are small. Its recurrence then never mixes
vertices: a block of them runs through all snapshots while its rows are in the cache. In the last layer the block goes
on through readout, loss and backward at once, so that no activation of the recurrence outlives its block; in earlier
layers the block is computed again when its gradient has come. What is kept for all vertices and snapshots is the
spatial parts' outputs and their gradients. Exact, whatever the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.parallel.learned import Gradients, Learned
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sequence import StackedSpace
from dtdg_lab.parallel.threads import in_order

# Numbers in one snapshot's rows of a block: few enough for a step's dozen arrays to fit a core's cache, many enough for
# the calls not to matter; on a GPU a block should fill it.
STEP_NUMBERS = {"cpu": 65_536, "cuda": 8_388_608}
BLOCK_NUMBERS = {"cpu": 4_194_304, "cuda": 67_108_864}  # of all S snapshots: bounds what a block keeps for backward


def add_gradients(run: Run) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss. For ``per_vertex`` memory."""
    stacks = [run.sequence.stacks(run.snapshots, layer) for layer in range(run.model.layers)]
    stacked = len(stacks[0][0].snapshots)
    needed = [*(spaces[0].num_rows // stacked for spaces in stacks[1:]), run.own]
    layers = [_Layer(run, 0, stacks[0], [space.inputs for space in stacks[0]], needed[0])]
    for number in range(1, run.model.layers):
        layers.append(_Layer(run, number, stacks[number], layers[-1].hidden(), needed[number]))
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
        rows: how many vertices' output is wanted: the first ones of the n, of each snapshot.
    """

    def __init__(self, run: Run, number: int, spaces: Sequence[StackedSpace], inputs: list[Tensor], rows: int) -> None:
        self._run, self._number, self._spaces, self._rows = run, number, spaces, rows
        self._device, self._learned = run.sequence.device, Learned(run.model)
        self._alone = run.sequence.collective
        self._state = run.model.initial_state(rows)
        self._inputs = inputs if number == 0 else [x.detach().requires_grad_() for x in inputs]

        def mix(place: int) -> Tensor:
            return run_straight(run.model.spatial(number, spaces[place], self._inputs[place], self._state))

        self._mixed = in_order(mix, range(len(spaces)), device=self._device, alone=self._alone)
        self._parts = self._by_snapshot([mixed.detach() for mixed in self._mixed])
        learns = any(mixed.requires_grad for mixed in self._mixed)
        self._gradients = [self._gradient_like(mixed) for mixed in self._mixed] if learns else []
        self._gradient_parts = self._by_snapshot(self._gradients)

    def _gradient_like(self, mixed: Tensor) -> Tensor:
        """Room for a gradient; rows whose output nobody wants have none."""
        wanted = self._rows * sum(len(space.snapshots) for space in self._spaces)
        everything = sum(space.num_rows for space in self._spaces)
        return torch.empty_like(mixed) if wanted == everything else torch.zeros_like(mixed)

    def hidden(self) -> list[Tensor]:
        """The layer's output, for each space (n, H), without history."""
        run = self._run
        h = self._parts[0].new_empty(len(run.snapshots), self._rows, run.model.hidden)

        @torch.no_grad()
        def fill(rows: slice) -> None:
            h[:, rows] = self._through_time(self._block(rows), rows)

        in_order(fill, self._blocks(), device=self._device)
        return [part.flatten(0, 1) for part in h.split([len(space.snapshots) for space in self._spaces])]

    def losses(self) -> Tensor:
        """The run's loss, block by block, each with its backward. For the last layer and a loss that is a sum."""
        run = self._run

        def piece(rows: slice) -> tuple[Tensor, Gradients]:
            x = self._block(rows)
            loss = run.loss(self._readout(x, rows), run.at, rows)
            return loss.detach(), self._back(loss, None, x, rows)

        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for loss, gradients in in_order(piece, self._blocks(), device=self._device):
            total += loss
            self._learned.add(gradients)
        return total

    def joint_loss(self) -> Tensor:
        """The run's loss of all vertices together, with its backward; blocks are computed twice."""
        run = self._run

        @torch.no_grad()
        def read(rows: slice) -> Tensor:
            return self._readout(self._block(rows), rows)

        def piece(rows: slice) -> Gradients:
            x = self._block(rows)
            return self._back(self._readout(x, rows), dz[:, rows], x, rows)

        z = torch.cat(in_order(read, self._blocks(), device=self._device), dim=1).requires_grad_()
        loss = run.loss(z, run.at, slice(0, run.own))
        (dz,) = torch.autograd.grad(loss, z)
        for gradients in in_order(piece, self._blocks(), device=self._device):
            self._learned.add(gradients)
        return loss.detach()

    def pull_back(self, gradients: list[Tensor]) -> None:
        """Backward through time, from the output's gradient for each space; blocks are computed again."""
        parts = self._by_snapshot(gradients)

        def piece(rows: slice) -> Gradients:
            x = self._block(rows)
            return self._back(self._through_time(x, rows), torch.stack([part[rows] for part in parts]), x, rows)

        for found in in_order(piece, self._blocks(), device=self._device):
            self._learned.add(found)

    def backward(self) -> list[Tensor]:
        """Backward through the spatial parts: the gradient of the layer's input for each space; none in layer 0."""

        def piece(place: int) -> tuple[Gradients, Gradients]:
            found = self._learned.gradients(self._mixed[place], self._gradients[place], [self._inputs[place]])
            self._mixed[place] = self._gradients[place] = self._gradients[place].new_empty(0)  # memory is let go
            return found

        inputs = []
        places = range(len(self._gradients))
        for gradients, (of_input,) in in_order(piece, places, device=self._device, alone=self._alone):
            self._learned.add(gradients)
            inputs += [] if of_input is None else [of_input]
        return inputs

    def _back(self, end: Tensor, seed: Tensor | None, x: Tensor, rows: slice) -> Gradients:
        """Backward of a block: the parameters' gradients; that of its rows of the spatial part is put where it goes."""
        gradients, (of_rows,) = self._learned.gradients(end, seed, [x])
        if of_rows is not None:
            for part, gradient in zip(self._gradient_parts, of_rows, strict=True):
                part[rows] = gradient
        return gradients

    def _through_time(self, x: Tensor, rows: slice) -> Tensor:
        return self._run.model.temporal_sequence(self._number, x, self._state.slice(rows))[0]

    def _readout(self, x: Tensor, rows: slice) -> Tensor:
        """Readout of a block where loss is taken, (S', n, outputs)."""
        h = self._through_time(x, rows)
        return self._run.model.readout(h if self._run.loss_at == "all" else h[-1:])

    def _blocks(self) -> list[slice]:
        run, place = self._run, self._device.partition(":")[0]
        step = STEP_NUMBERS[place] // run.model.hidden
        whole = BLOCK_NUMBERS[place] // (run.model.hidden * len(run.snapshots))
        size = max(1, min(step, whole))
        return [slice(start, min(start + size, self._rows)) for start in range(0, self._rows, size)]

    def _block(self, rows: slice) -> Tensor:
        """The block's rows of the spatial part, (S, n, C)."""
        return torch.stack([part[rows] for part in self._parts]).requires_grad_(bool(self._gradients))

    def _by_snapshot(self, tensors: list[Tensor]) -> list[Tensor]:
        """Views of stacked rows, one for each snapshot."""
        return [
            part
            for space, rows in zip(self._spaces, tensors, strict=False)
            for part in rows.unflatten(0, (len(space.snapshots), -1)).unbind()
        ]
