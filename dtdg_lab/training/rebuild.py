"""What trains, made anew under other settings: in-memory checkpoint, build, restore."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from dtdg_lab.batching.row_memory import RowMemory
from dtdg_lab.comm.group import Group
from dtdg_lab.core.config import RunConfig
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training import windowed
from dtdg_lab.training.build import Built, build
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.together import attempted
from dtdg_lab.training.told_plans import Told, told_plans


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What trains from here on.

    Attributes:
        built: in place of what trained before.
        measured: memory of a step over a window, where there are windows.
        told: events that tell of it.
    """

    built: Built
    measured: RowMemory | None
    told: Told


def rebuilt(
    config: RunConfig, changes: dict[str, Any], memory: Checkpoint, graph: DynamicGraph, group: Group, *, device: str,
    before: Built,
) -> tuple[Rebuilt | None, str]:  # fmt: skip
    """Build anew, or say why not, the same on every rank; collective. What trained before can go on as it was.

    A device that the kernel shapes for it is given back first: there is one for both.

    Args:
        config: the settings until now, with changes made in place.
        changes: of its settings.
        memory: parameters and moments to go on with.
        graph: the data.
        group: the ranks.
        device: where this rank computes.
        before: what trained.
    """

    def make() -> Built:
        made = build(config.replace(**changes), graph, group, device=device, plan=memory.plan)
        try:
            memory.restore(made.model, made.optimizer)
        except BaseException:
            made.close()
            raise
        return made

    if before.network is not None and before.config["congestion_by"] == "netem":
        _, reason = attempted(before.network.release, group, device=device)
        if reason:
            return None, reason
    made, reason = attempted(make, group, device=device)
    if made is None or reason:
        if made is not None:
            made.close()
        return None, reason
    measured = windowed.measure(made, group, device=device)  # collective: all ranks have built
    told, reason = attempted(partial(told_plans, made, graph, group, before, measured), group, device=device)
    if reason:
        made.close()
        return None, reason
    return Rebuilt(made, measured, told or Told()), ""
