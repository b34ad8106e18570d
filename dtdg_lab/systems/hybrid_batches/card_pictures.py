"""Pictures on the cards of its systems: a sampled batch, and the load of its targets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dtdg_lab.config.catalogue import System
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, SizeFacts
from dtdg_lab.systems.hybrid_batches.observations import PartBatch
from dtdg_lab.systems.hybrid_batches.sampler import SHARES, LoadGroups, TargetSampler, load_groups
from dtdg_lab.visualization.bar_charts import compared_bars
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card
from dtdg_lab.visualization.traces import Attributes, box, colour_bar, heat

PARTS = 2
GROUPS = 10
SHARES_OF_A_BATCH = ("batch_snapshots", "batch_nodes")


def batch_pictures(system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
    """Return the batch of one step as the system's sampler draws it, and the load of its targets in every partition."""
    snapshots, nodes = (float(system.defaults.get(name, OPTIONS[name].default)) for name in SHARES_OF_A_BATCH)
    partitioner = system.parts["partition"]
    loads = vertex_loads(graph, 2)
    return [batch_card(graph, snapshots, nodes, partitioner=partitioner), _loads(partitioner, loads, graph)]


def batch_card(graph: DynamicGraph, snapshots: float, nodes: float, *, partitioner: str = "metis") -> CaptionedFigure:
    """Return a hybrid batch beside the two that it replaces.

    Args:
        graph: T snapshots of N nodes, in two parts.
        snapshots: share of the snapshots in a batch, N_S.
        nodes: share of a part's nodes in a batch, N_V.
        partitioner: makes the parts.
    """
    shares = [snapshots, nodes]
    partition = make_partition(partitioner, graph, PARTS, hops=2)
    loads, count = vertex_loads(graph, 2), graph.num_snapshots
    part_nodes = [np.flatnonzero(partition.owner == part) for part in range(PARTS)]
    grouped = [load_groups(loads[vertices], np.arange(len(vertices)), GROUPS) for vertices in part_nodes]
    batches = {part: _batch(part, groups, shares, count) for part, groups in enumerate(grouped)}
    sizes = [batch.targets for batch in batches.values()]
    facts = HybridFacts(
        sizes=(SizeFacts(len(batches[0].snapshots), min(sizes), max(sizes), (shares[0], shares[1])),),
        snapshots=count,
        first=0,
        nodes=graph.num_nodes,
        candidates=tuple(len(groups) for groups in grouped),
        choice=0,
        batch_policy="none",
        reservoir=False,
        exchange="gradients",
        average_every_s=0.0,
        capacities=(),
        load_groups=GROUPS,
        deviation=None,
        cache_bytes=None,
    )
    hybrid, of_nodes, of_snapshots = target_counts(facts, batches)
    beside = f"its nodes in all snapshots {of_nodes:,}, all nodes in its snapshots {of_snapshots:,}"
    return kinds_figure(facts, batches), f"A hybrid batch has {hybrid:,} targets, {beside}."


def _batch(part: int, groups: LoadGroups, shares: list[float], snapshots: int) -> PartBatch:
    size = BatchSize(
        max(1, round(shares[0] * snapshots)), max(min(GROUPS, len(groups)), round(shares[1] * len(groups)))
    )
    batch = TargetSampler(0, part, groups, range(snapshots)).batch(size, 0, 0)
    return PartBatch(
        part=part,
        action=0,
        source="new",
        snapshots=batch.snapshots,
        targets=len(batch.targets),
        edges=0,
        counts=tuple(groups.sixtieths(batch.targets)),
    )


# The batch beside those that it replaces.


KINDS = ("hybrid batch", "node batch", "snapshot batch")
_GAP = 0.12  # between the three, share of their width
_SPACE = 4  # between parts, in sixtieths
# by share of a sixtieth's candidates: one in a thousand is visible, and one in ten differs from all
_SCALE = (
    (0.0, "#FFFFFF"),
    (0.0005, "#DCEAF5"),
    (0.02, "#A9CCE6"),
    (0.1, "#5BA3D0"),
    (0.4, "#2F6FA8"),
    (1.0, "#08306B"),
)


def target_counts(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> tuple[int, int, int]:
    """Return the target nodes (nodes x snapshots) of a batch, and of the two that it replaces.

    Args:
        facts: of the run.
        batches: by part.

    Returns:
        of the hybrid batch; of the node batch: the same nodes in all T snapshots; of the snapshot batch: all
        candidates in the same snapshots.

    References: DynaHB figure 2 and example 1.
    """
    parts = batches.values()
    return (
        sum(batch.size for batch in parts),
        sum(batch.targets * facts.snapshots for batch in parts),
        sum(facts.candidates[batch.part] * len(batch.snapshots) for batch in parts),
    )


def kinds_figure(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> Figure:
    """Return three fields side by side: snapshots across, candidates of each part by load down, heaviest first."""
    width, last = facts.snapshots, facts.first + facts.snapshots - 1
    starts = [round(number * (1 + _GAP) * width) for number in range(len(KINDS))]
    places: list[float] = []
    names: list[str] = []
    for start, kind, count in zip(starts, KINDS, target_counts(facts, batches), strict=True):
        places += [start, start + (width - 1) / 2, start + width - 1]  # its first and last snapshot, and what it is
        names += [str(facts.first), f"snapshot<br><b>{kind}</b><br>{count:,} targets", str(last)]
    tops = [number * (SHARES + _SPACE) for number in range(len(batches))]
    style: Attributes = {"layer": "below", "line": {"color": "#B8BEC6", "width": 1}, "fillcolor": "#F6F8FA"}
    data, fields = list[Attributes](), list[Attributes]()
    for top, batch in zip(tops, batches.values(), strict=True):
        edges = (top - 0.5, top + SHARES - 0.5)
        fields += [box((start - 0.5, start + width - 0.5), edges, **style) for start in starts]
        data += _part_fields(facts, batch, top, starts)
    ticks = {"tickvals": [0.0, 0.1, 0.4, 1.0], "ticktext": ["0", "10%", "40%", "all"]}
    data[0] |= {"showscale": True, "colorbar": colour_bar("targets", **ticks)}
    plain = {"showgrid": False, "showline": False}
    ends = [-0.5 - 0.02 * width, starts[-1] + width - 0.5 + 0.02 * width]
    across = {"tickvals": places, "ticktext": names, "tickangle": 0, "range": ends, **plain}
    down = {"tickvals": [top + (SHARES - 1) / 2 for top in tops], "ticktext": [f"part {part}" for part in batches]}
    axes: Attributes = {"xaxis": across, "yaxis": {**down, **plain, "range": [tops[-1] + SHARES + 0.5, -1.5]}}
    return card(data, "Batch", unit="nodes by load, heaviest on top", shapes=fields, **axes)


def _part_fields(facts: HybridFacts, batch: PartBatch, top: float, starts: list[int]) -> list[Attributes]:
    """Return the three fields of one part, each one column of colour over the snapshots it takes."""
    candidates = facts.candidates[batch.part]
    within = np.bincount(np.arange(candidates) * SHARES // candidates, minlength=SHARES)  # nodes of each sixtieth
    targets = np.asarray(batch.counts, np.float64)
    span = (batch.snapshots.start - facts.first, batch.snapshots.stop - facts.first)
    fields = []
    spans = (span, (0, facts.snapshots), span)
    for start, (begin, end), counts in zip(starts, spans, (targets, targets, within), strict=True):
        rows = [(count, n) for count, n in zip(counts, within, strict=True) if n]  # a small part has fewer than sixty
        z = [[round(float(min(count / n, 1.0)), 4)] for count, n in rows]
        texts = [[f"{int(count):,} of {int(n):,} nodes"] for count, n in rows]
        x = [start + begin - 0.5, start + end - 0.5]
        y = [round(top - 0.5 + row * SHARES / len(rows), 3) for row in range(len(rows) + 1)]
        position = f"part {batch.part}, snapshots {facts.first + begin} to {facts.first + end - 1}"
        style: Attributes = {
            "customdata": texts,
            "hover": position + ": %{customdata}<extra></extra>",
            "showscale": False,
        }
        fields.append(heat("", z, x, y, _SCALE, span=(0, 1), **style))
    return fields


def _loads(partitioner: str, loads: np.ndarray, graph: DynamicGraph) -> CaptionedFigure:
    names = list(dict.fromkeys(("hash", "metis", "load_aware", partitioner)))
    worst = {}
    for name in names:
        owner = make_partition(name, graph, PARTS * 2, hops=2).owner
        part_loads = np.bincount(owner, weights=loads, minlength=PARTS * 2)
        worst[name] = float(part_loads.max() / part_loads.mean())
    return compared_bars(
        "Load of the heaviest of four partitions",
        "relative to the mean",
        worst,
        highlighted=partitioner,
        caption=(
            f"Load is the length of computation graphs (DynaHB's algorithm 1); 1 is balanced. This system uses "
            f"{partitioner}."
        ),
    )
