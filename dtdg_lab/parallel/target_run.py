"""A run whose loss is the targets' own, which a hybrid batch is trained on, and how its gradients are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.models.base import run_straight
from dtdg_lab.parallel.grouped import HOW
from dtdg_lab.parallel.layer import PIECE_NUMBERS, STEP_NUMBERS
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sequence import StackedSpace
from dtdg_lab.tasks.task import Rows


@dataclass(frozen=True)
class TargetRun(Run):
    """Snapshots trained from the initial state, with the loss of some vertices, those of the sequence.

    The loss is the mean over the snapshots where loss is taken and some target is labelled, of the mean over the
    labelled targets; 0 where none is in any.

    Raises:
        UnsupportedError: the task needs all vertices at once.

    References: DynaHB section 5.1, Algorithm 2 (the loss of a batch is the mean over its snapshots).
    """

    def __post_init__(self) -> None:
        if not self.task.per_vertex:
            raise UnsupportedError(
                f"task={self.task.name!r} on hybrid batches: its loss needs all vertices at once, and a batch has some "
                "of them. Choose system='adgnn-t' (halo_vertex), or another task."
            )

    @cached_property
    def _over_share(self) -> Tensor:
        """Of each snapshot where loss is taken, 1 / the share of its labelled items that are targets; 0 for none."""
        vertices = self.sequence.vertices
        share = self.task.share(self.at, slice(0, self.own) if vertices is None else vertices)
        return torch.where(share > 0, 1 / share, 0.0)

    @cached_property
    def num_labelled(self) -> int:
        """How many of the snapshots where loss is taken have a labelled target."""
        return int((self._over_share > 0).sum())

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """What some targets at some snapshots add to the loss of the run, a scalar.

        Args:
            z: their readout, (S', n, outputs).
            snapshots: S' of those where loss is taken.
            rows: which of the targets they are.
        """
        vertices, start = self.sequence.vertices, snapshots.start - self.at.start
        losses = self.task.loss(z, snapshots, rows if vertices is None else vertices[rows])
        scaled = losses * self._over_share[start : start + len(snapshots)].to(losses.dtype)
        return scaled.sum() / max(self.num_labelled, 1)


def add_gradients(run: Run) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss; what it needs is here already.

    A small run of a model that remembers vertices goes layer by layer over all snapshots at once, with one backward:
    that is done before :mod:`dtdg_lab.parallel.blocks` has cut it, which computes all layers but the last twice. Others
    are differentiated as :data:`dtdg_lab.parallel.grouped.HOW` has it.

    Args:
        run: what is differentiated.
    """
    if run.model.memory != "per_vertex":
        return HOW[run.model.memory](run)
    stacks = [run.sequence.stacks(run.snapshots, layer) for layer in range(run.model.layers)]
    heights = [*(spaces[0].num_rows // len(spaces[0].snapshots) for spaces in stacks[1:]), run.own]
    place, hidden = run.sequence.device.partition(":")[0], run.model.hidden
    if (rows := max(heights) * hidden) > STEP_NUMBERS[place] or rows * len(run.snapshots) > PIECE_NUMBERS[place]:
        return HOW[run.model.memory](run)  # a run of several pieces, which fit the cache
    loss = _straight(run, stacks, heights)
    loss.backward()
    return loss.detach()


def _straight(run: Run, stacks: Sequence[Sequence[StackedSpace]], heights: Sequence[int]) -> Tensor:
    """The loss, with its history; a layer's output has the rows that the next one reads."""
    model, counts = run.model, [len(space.snapshots) for space in stacks[0]]
    inputs = [space.inputs for space in stacks[0]]
    for layer, (spaces, height) in enumerate(zip(stacks, heights, strict=True)):
        state = model.initial_state(height)
        mixed = [
            run_straight(model.spatial(layer, space, x, state)).unflatten(0, (count, -1))[:, :height]
            for space, x, count in zip(spaces, inputs, counts, strict=True)
        ]
        h, _ = model.temporal_sequence(layer, mixed[0] if len(mixed) == 1 else torch.cat(mixed), state)
        inputs = [part.flatten(0, 1) for part in h.split(counts)]
    return run.loss(model.readout(h[len(h) - len(run.at) :]), run.at, slice(0, run.own))
