"""A window of snapshots for models that remember something of each vertex: layer by layer, piece by piece.

Vertices that leave the window at the same snapshot run through the rest of it together: a trapezoid is a pile of
rectangles, and each is computed as :mod:`dtdg_lab.parallel.layer` computes a block of time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from dtdg_lab.models.state import State
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.seam_width import SeamWidth
from dtdg_lab.parallel.space import SnapshotSpace
from dtdg_lab.parallel.time_block import Seam, TimeBlock
from dtdg_lab.parallel.window_layer import Entering, WindowLayer

MakeLayer = Callable[..., WindowLayer]


def add_gradients(
    run: Run, spaces: Sequence[SnapshotSpace], seam: Seam, begin: State, *, widths: Sequence[SeamWidth],
    make: MakeLayer = WindowLayer, leaves: bool = True, late: bool = False,
) -> tuple[Tensor, State | None]:  # fmt: skip
    """Add the gradients of a window's loss to the parameters'; returns the loss and what the window leaves.

    Args:
        run: the window; its sequence names own vertices in the order in which they run through time.
        spaces: (S,) the snapshots, oldest first.
        seam: between them and this order.
        begin: the states that vertices start from, of the first rows in this order; zero beyond.
        widths: of the seam, by layer.
        make: makes a layer, given what :class:`dtdg_lab.parallel.window_layer.WindowLayer` is.
        leaves: whether what the window leaves is asked for.
        late: whether vertices that the oldest snapshot lacks leave a state as well.

    Returns:
        The loss, and the state of each vertex after the first snapshot that it is in.
    """
    model = run.model
    stacks = [[space.layer(number) for space in spaces] for number in range(model.layers)]
    block = TimeBlock(run.snapshots, stacks, [run.own] * model.layers, seam)
    layers: list[WindowLayer] = []
    inputs, after = [space.inputs for space in spaces], []
    for number, width in enumerate(widths):
        if number:
            inputs = layers[-1].hidden()
        crossing = Entering(begin, keeps=False, model=model)
        layers.append(make(run, number, block, inputs, crossing, learning=True, seam=width))
        if leaves:
            after.append(layers[-1].after_entering(late=late))
    loss = layers[-1].losses() if run.task.per_vertex else layers[-1].joint_loss()
    while layers:
        parts = layers.pop().backward()
        if layers:
            layers[-1].pull_back(parts)
    return loss, State(tuple(after)) if leaves else None
