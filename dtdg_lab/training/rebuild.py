"""What trains, made anew under other settings: in-memory checkpoint, build, restore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of the requests that waited for the end of an epoch.

    Attributes:
        made: what trains from here on; None where nothing changes.
        changes: that were made.
        refused: requests that were not, with reasons, oldest first.
    """

    made: Rebuilt | None
    changes: dict[str, Any]
    refused: list[tuple[dict[str, Any], str]]


def settle(
    requests: Sequence[dict[str, Any]],
    merge: Callable[[Sequence[dict[str, Any]]], dict[str, Any]],
    make: Callable[[dict[str, Any]], tuple[Rebuilt | None, str]],
) -> Settled:
    """Make the requests together, or as many of them as can be; collective where ``make`` is.

    Where they cannot all be made, they are tried one by one, oldest first, each with those that could. One that was
    refused is tried again once others are made that may make room for it.

    Args:
        requests: at least one.
        merge: the settings that some of them ask for together.
        make: what trains under changed settings, or why there is none.
    """
    everything = merge(requests)
    made, reason = make(everything)
    if made is not None or len(requests) == 1:
        return Settled(
            made, everything if made is not None else {}, [] if made is not None else [(requests[0], reason)]
        )
    failed, kept = [(everything, reason)], [False] * len(requests)
    reasons, found, again = [""] * len(requests), dict[str, Any](), True
    while again:
        again = False
        for place in range(len(requests)):
            if kept[place]:
                continue
            wanted = merge([of for at, of in enumerate(requests) if kept[at] or at == place])
            known = [why for changes, why in failed if changes == wanted]
            if known:
                reasons[place] = reasons[place] or known[0]
                continue
            if wanted != found:
                if made is not None:
                    made.built.close()  # there may be no room for both
                made, reason = make(wanted)
                if made is None:
                    failed, reasons[place] = [*failed, (wanted, reason)], reason
                    continue
            kept[place], found, again = True, wanted, True
    if found and made is None:  # closed for one that failed after it
        made, reason = make(found)
        if made is None:
            return Settled(None, {}, [(of, reasons[place] or reason) for place, of in enumerate(requests)])
    refused = [(of, reasons[place]) for place, of in enumerate(requests) if not kept[place]]
    return Settled(made, found, refused)
