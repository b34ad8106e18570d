"""What the loop does beside steps where a system trains on windows of snapshots; nothing where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from dtdg_lab.batching.row_memory import RowMemory
from dtdg_lab.batching.trapezoid import WHOLE_CHUNKS, Trapezoid
from dtdg_lab.comm.group import Group
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.models.state import State
from dtdg_lab.parallel.halo_window import HaloWindowLayout
from dtdg_lab.parallel.layout import Unmarked
from dtdg_lab.parallel.window_work import WindowWork
from dtdg_lab.training.build import Built
from dtdg_lab.training.memory import peak_bytes
from dtdg_lab.training.tuning import Decision, Tuner

LEAST_ALPHA = OPTIONS["alpha"].low or 0.0
CARRIED = "carried"  # in the plan of a checkpoint


def steer(built: Built, config: RunConfig) -> None:
    """Let windows have the shape that a config asks for, from the next step on."""
    if isinstance(built.layout, HaloWindowLayout):
        built.layout.shape = Trapezoid.of(config, chunks=built.layout.shape.chunks)


def at_rest(built: Built) -> bool:
    """Whether the next step needs nothing of the last one but the parameters."""
    return not isinstance(built.layout, HaloWindowLayout) or built.layout.carried.after is None


def measure(built: Built, group: Group, *, device: str) -> RowMemory | None:
    """Memory of a step as it follows from its rows; collective.

    Measured are windows of a few shapes, whatever the present one: a run that is resumed, or tuned, is told what it was
    told before.
    """
    layout = built.layout
    if not isinstance(layout, HaloWindowLayout):
        return None
    assert built.chunking is not None and built.partition is not None
    shape, own = layout.shape, []
    shapes = _measured(shape)
    for layout.shape in shapes:
        own.append(_peak(layout, layout.by_length()[-1], device))
    layout.shape = shape
    built.gradients.zero()
    layout.forget()
    told = torch.tensor([own], dtype=torch.float64, device=device)
    peaks = group.gather_rows(told, [1] * group.size).max(dim=0).values.tolist()
    return RowMemory.through(
        list(zip(shapes, peaks, strict=True)), nodes=int(built.partition.on_ranks(group.size).counts.max()),
        chunks=built.chunking.chunks, piece_rows=layout.piece_rows,
    )  # fmt: skip


def _measured(shape: Trapezoid) -> list[Trapezoid]:
    """Windows that differ in rows, and in how many run through how many snapshots together."""
    window, few = shape.window, min(2, shape.window)
    if shape.chunks == WHOLE_CHUNKS:  # snapshots are always full
        return [replace(shape, window=full, full=full) for full in sorted({1, few, window})]
    return [
        *(replace(shape, full=full, alpha=LEAST_ALPHA, decay="ladder") for full in sorted({1, few, window})),
        *(replace(shape, full=1, alpha=alpha, decay="text") for alpha in (0.1, 0.5)),
    ]


def _peak(layout: HaloWindowLayout, work: WindowWork, device: str) -> int:
    """The peak bytes of a step on this rank."""

    def step() -> None:
        layout.tried(work, Unmarked())

    layout.forget()
    return peak_bytes(step, device=device)


def tuned(built: Built, config: RunConfig, epoch: int, memory: RowMemory | None) -> Decision | None:
    """What tuning decides at the end of an epoch, the same on every rank; collective."""
    layout = built.layout
    if not isinstance(layout, HaloWindowLayout) or "tune" not in config.options["batching"] or memory is None:
        return None

    def predicted(full_snapshots: int, alpha: float) -> float:
        return memory.peak_bytes(layout.shaped(full_snapshots, alpha))

    return Tuner(config).end_epoch(epoch, partial(_trial_loss, built, layout, epoch + 1), predicted)


def _trial_loss(built: Built, layout: HaloWindowLayout, epoch: int, full_snapshots: int, alpha: float) -> float:
    """The validation loss, as the run is judged by it, after an epoch with windows of another shape; collective.

    The epoch is tried and taken back: parameters, moments and shape are then as they were, and nothing is recorded.
    """
    shape, model, optimizer = layout.shape, built.model, built.optimizer
    parameters, moments = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
    layout.shape = layout.shaped(full_snapshots, alpha)
    try:
        for work in layout.epoch(epoch):
            built.gradients.zero()
            computed = layout.compute(work, Unmarked())
            built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=len(work.groups))
            optimizer.step()
        (scores,) = built.evaluator.evaluate(model, ("validation",))
    finally:
        layout.shape = shape
        layout.rows()
        model.load_state_dict(parameters)
        optimizer.load_state_dict(moments)
    return float("nan") if scores.loss is None else scores.loss


def gathered_state(built: Built, group: Group) -> dict[str, Any]:
    """What is carried from the last step to the next one, of all ranks, for a checkpoint; collective."""
    layout = built.layout
    found = layout.carried_state() if isinstance(layout, HaloWindowLayout) else None
    if found is None:
        return {}
    vertices, after, state = found
    layers = state.layers
    if state.per_vertex:
        own = vertices.new_tensor([[len(vertices)]])
        counts = [int(number) for number in group.gather_rows(own, [1] * group.size)[:, 0]]
        both = group.gather_rows(torch.stack([vertices, after.to(vertices)], dim=1), counts)
        vertices, after = both[:, 0], both[:, 1]
        layers = tuple(tuple(group.gather_rows(x, counts) for x in layer) for layer in layers)
    tensors = [[x.cpu() for x in layer] for layer in layers]
    held = {"after": after.cpu(), "vertices": vertices.cpu(), "tensors": tensors, "per_vertex": state.per_vertex}
    return {CARRIED: held}


def put_back(built: Built, plan: Mapping[str, Any], *, device: str) -> None:
    """Go on with what a checkpoint carried, where it did."""
    if CARRIED not in plan or not isinstance(built.layout, HaloWindowLayout):
        return
    held = plan[CARRIED]
    layers = tuple(tuple(x.to(device) for x in layer) for layer in held["tensors"])
    state = State(layers, held["per_vertex"])
    built.layout.carried.put_back(held["vertices"].to(device), held["after"].cpu(), state)
