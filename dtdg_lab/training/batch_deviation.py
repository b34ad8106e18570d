"""How far the loss of a batch is from that of the same targets in the whole graph."""

from __future__ import annotations

import torch

from dtdg_lab.models.base import DynamicModel, run_straight
from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.parallel.part_batches import NEW, Drawn
from dtdg_lab.parallel.target_layout import TargetBatchLayout
from dtdg_lab.parallel.target_run import TargetRun, add_gradients
from dtdg_lab.tasks.task import Task


def batch_deviation(
    layout: TargetBatchLayout, model: DynamicModel, task: Task, sequence: DeviceSequence
) -> float | None:
    """The relative difference for the first batch of the present size, under the present parameters.

    Rounding, but for models that batches approximate: DCRNN (state from beyond the batch is cut off) and EvolveGCN-H
    (the best vertices are looked for among the targets). None where the batch has no labels. Gradients are changed.

    Args:
        layout: that draws batches.
        model: as it is.
        task: what is predicted.
        sequence: the whole graph.
    """
    of = layout.parts[0].again(Drawn(NEW, layout.choice, 0))
    run = TargetRun(model, of.sequence, task, of.batch.snapshots, "all")
    own, vertices = float(add_gradients(run)), of.sequence.vertices
    state, read = model.initial_state(sequence.own), []
    with torch.no_grad():
        for t in run.snapshots:
            space = sequence.space(t)
            h, state = run_straight(model.snapshot(space, space.inputs, state))
            read.append(model.readout(h if vertices is None else h[vertices]))
        whole = float(run.loss(torch.stack(read), run.snapshots, slice(0, run.own)))
    return abs(own - whole) / whole if whole > 0 else None
