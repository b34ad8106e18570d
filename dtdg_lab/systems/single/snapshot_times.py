"""Seconds of each snapshot's forward pass, timed once before training."""

from __future__ import annotations

import time

import torch

from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.systems.single.events import SnapshotTimes

ROUNDS = 3  # the first prepares, the quickest counts


@torch.no_grad()
def time_snapshots(model: DynamicModel, sequence: DeviceSequence, train: range) -> SnapshotTimes:
    """Time the forward pass of each training snapshot.

    Views are made, used and freed one after the other, beside those that training keeps.

    Args:
        model: that is trained.
        sequence: the graph on this device.
        train: the snapshots that are trained.
    """
    settings = sequence.settings
    alone = DeviceSequence(
        sequence.graph,
        device=sequence.device,
        dtype=sequence.dtype,
        kernel=settings.backend,
        norm=settings.norm,
        self_loops=settings.self_loops,
        spaces_bytes=0,
    )
    state, seconds = model.initial_state(alone.view(train.start).num_rows), []
    for snapshot in train:
        view, rounds_s = alone.view(snapshot), []
        for _ in range(ROUNDS):
            wait_for(alone.device)
            began_s = time.perf_counter()
            _, after = model.snapshot(view, view.inputs, state)
            wait_for(alone.device)
            rounds_s.append(time.perf_counter() - began_s)
        state = after
        seconds.append(min(rounds_s))
    return SnapshotTimes(train.start, tuple(seconds))


def wait_for(device: str) -> None:
    """Wait until a GPU has done its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
