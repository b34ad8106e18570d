"""What lies between the spatial and the temporal part of a layer, found out on one vertex without edges."""

from __future__ import annotations

from dataclasses import dataclass

from dtdg_lab.models.base import DynamicModel, run_straight
from dtdg_lab.parallel.one_vertex import OneVertex


@dataclass(frozen=True, slots=True)
class SeamWidth:
    """Of one layer: numbers in a row, C, and whether they depend on parameters."""

    width: int
    learned: bool


def seam_widths(model: DynamicModel) -> tuple[SeamWidth, ...]:
    """The seam of every layer, whatever this rank has of the graph."""
    found = []
    for layer in range(model.layers):
        x = model.zeros(1, model.width(layer)).requires_grad_(layer > 0)
        mixed = run_straight(model.spatial(layer, OneVertex(), x, model.initial_state(1)))
        found.append(SeamWidth(mixed.shape[1], mixed.requires_grad))
    return tuple(found)
