"""What events say of the plans that a run trains by: who owns which nodes and snapshots, who computes what when."""

from __future__ import annotations

from typing import Any

from dtdg_lab.distributed.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.decayed_windows.sampled import SampledWindowStrategy
from dtdg_lab.systems.decayed_windows.strategy import DecayedWindowStrategy
from dtdg_lab.systems.decayed_windows.training import window_event
from dtdg_lab.systems.decayed_windows.window import RowMemory
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.partition import blocks_event, chunking_event, partition_event

KINDS = ("partition", "schedule", "blocks", "chunks", "trapezoid", "hybrid", "features")
EventList = list[tuple[str, dict[str, Any]]]  # events by kind


def plan_events(
    built: RunComponents,
    graph: DynamicGraph,
    group: Group,
    left: RunComponents | None = None,
    memory: RowMemory | None = None,
) -> EventList:
    """Events on rank 0; none on the others.

    Args:
        built: what trains.
        graph: the data.
        group: the ranks.
        left: what trained before; where it had a plan of a kind that this has none of, that is said.
        memory: of a step over a window, as measured, where there are windows.
    """
    described = EventList()
    if group.rank != 0:
        return described
    if built.partition is not None and not isinstance(built.layout, SampledWindowStrategy):  # it deals parts anew
        facts = partition_event(
            built.config,
            graph,
            built.partition,
            train=built.split.train,
            ranks=group.size,
            blocks=built.snapshot_blocks,
        )
        described.append(("partition", facts))
    elif left is not None and left.partition is not None:
        described.append(("partition", {"layout": None}))
    if has_blocks_event(built):
        assert built.snapshot_blocks is not None
        facts = blocks_event(
            built.config,
            graph,
            built.snapshot_blocks,
            built.task,
            partition=built.partition,
            peak_bytes=built.block_peak,
        )
        described.append(("blocks", facts))
    elif left is not None and has_blocks_event(left):
        described.append(("blocks", {"layout": None}))
    if built.scheduling is not None:
        described.append(("schedule", built.scheduling.to_dict()))
    elif left is not None and left.scheduling is not None:
        described.append(("schedule", {"layout": None}))
    if isinstance(built.layout, DecayedWindowStrategy):
        assert built.partition is not None and built.chunking is not None and memory is not None
        described.append(("chunks", chunking_event(built.config, graph, built.partition, built.chunking)))
        shape = built.layout.shape
        described.append(("trapezoid", window_event(shape, built.partition, built.chunking, memory, group.size)))
    elif left is not None and isinstance(left.layout, DecayedWindowStrategy):
        described += [("chunks", {"layout": None}), ("trapezoid", {"layout": None})]
    described += _more_events(built, left)
    return described


def _more_events(built: RunComponents, left: RunComponents | None) -> EventList:
    """Of hybrid batches and fetched features."""
    described = EventList()
    for kind in ("hybrid", "remote"):
        has, had = getattr(built, kind), left is not None and getattr(left, kind) is not None
        if has is not None or had:
            described.append(
                ("features" if kind == "remote" else kind, {"layout": None} if has is None else has.to_dict())
            )
    return described


def has_blocks_event(built: RunComponents) -> bool:
    """Whether there is anything to tell of blocks: ranks that own nodes have all snapshots of the only one."""
    plan = built.snapshot_blocks
    return plan is not None and (built.partition is None or plan.blocks > 1 or built.config["blocks"] != 1)
