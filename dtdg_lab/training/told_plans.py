"""What events say of the plans that a run trains by: who owns which vertices and snapshots, who computes what when."""

from __future__ import annotations

from typing import Any

from dtdg_lab.distributed.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.decayed_windows.sampled import SampledWindowLayout
from dtdg_lab.systems.decayed_windows.strategy import HaloWindowLayout
from dtdg_lab.systems.decayed_windows.training import told_windows
from dtdg_lab.systems.decayed_windows.window import RowMemory
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.partition import told_blocks, told_chunking, told_partition

KINDS = ("partition", "schedule", "blocks", "chunks", "trapezoid", "hybrid", "features")
Told = list[tuple[str, dict[str, Any]]]  # events by kind


def told_plans(
    built: RunComponents,
    graph: DynamicGraph,
    group: Group,
    left: RunComponents | None = None,
    memory: RowMemory | None = None,
) -> Told:
    """Events on rank 0; none on the others.

    Args:
        built: what trains.
        graph: the data.
        group: the ranks.
        left: what trained before; where it had a plan of a kind that this has none of, that is said.
        memory: of a step over a window, as measured, where there are windows.
    """
    told = Told()
    if group.rank != 0:
        return told
    if built.partition is not None and not isinstance(built.layout, SampledWindowLayout):  # it deals parts anew
        facts = told_partition(
            built.config,
            graph,
            built.partition,
            train=built.split.train,
            ranks=group.size,
            blocks=built.snapshot_blocks,
        )
        told.append(("partition", facts))
    elif left is not None and left.partition is not None:
        told.append(("partition", {"layout": None}))
    if tells_blocks(built):
        assert built.snapshot_blocks is not None
        facts = told_blocks(
            built.config,
            graph,
            built.snapshot_blocks,
            built.task,
            partition=built.partition,
            peak_bytes=built.block_peak,
        )
        told.append(("blocks", facts))
    elif left is not None and tells_blocks(left):
        told.append(("blocks", {"layout": None}))
    if built.scheduling is not None:
        told.append(("schedule", built.scheduling.told()))
    elif left is not None and left.scheduling is not None:
        told.append(("schedule", {"layout": None}))
    if isinstance(built.layout, HaloWindowLayout):
        assert built.partition is not None and built.chunking is not None and memory is not None
        told.append(("chunks", told_chunking(built.config, graph, built.partition, built.chunking)))
        shape = built.layout.shape
        told.append(("trapezoid", told_windows(shape, built.partition, built.chunking, memory, group.size)))
    elif left is not None and isinstance(left.layout, HaloWindowLayout):
        told += [("chunks", {"layout": None}), ("trapezoid", {"layout": None})]
    told += _told_beside(built, left)
    return told


def _told_beside(built: RunComponents, left: RunComponents | None) -> Told:
    """Of hybrid batches and fetched features."""
    told = Told()
    for kind in ("hybrid", "remote"):
        has, had = getattr(built, kind), left is not None and getattr(left, kind) is not None
        if has is not None or had:
            told.append(("features" if kind == "remote" else kind, {"layout": None} if has is None else has.told()))
    return told


def tells_blocks(built: RunComponents) -> bool:
    """Whether there is anything to tell of blocks: ranks that own vertices have all snapshots of the only one."""
    plan = built.snapshot_blocks
    return plan is not None and (built.partition is None or plan.blocks > 1 or built.config["blocks"] != 1)
