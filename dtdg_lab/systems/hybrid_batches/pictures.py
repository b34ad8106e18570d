"""Pictures on the cards of its systems: a sampled batch, and the load of its targets."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.catalogue import System
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.systems.hybrid_batches.batches import LoadGroups, TargetSampler, load_groups
from dtdg_lab.systems.hybrid_batches.charts import PartBatch, target_map_figure
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, SizeFacts
from dtdg_lab.visualization.charts import Panel, compared_panel

PARTS = 2
GROUPS = 10


def batch_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The batch of one step as the system's sampler draws it, and the load of its targets in every partition."""
    shares = [float(system.defaults.get(name, OPTIONS[name].default)) for name in ("batch_snapshots", "batch_nodes")]
    partition = make_partition(system.parts["partition"], graph, PARTS, hops=2)
    loads, snapshots = vertex_loads(graph, 2), graph.num_snapshots
    own = [np.flatnonzero(partition.owner == part) for part in range(PARTS)]
    grouped = [load_groups(loads[vertices], np.arange(len(vertices)), GROUPS) for vertices in own]
    batches = {part: _batch(part, groups, shares, snapshots) for part, groups in enumerate(grouped)}
    sizes = [batch.targets for batch in batches.values()]
    facts = HybridFacts(
        sizes=(SizeFacts(len(batches[0].snapshots), min(sizes), max(sizes), (shares[0], shares[1])),),
        snapshots=snapshots,
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
    taken = sum(batch.size for batch in batches.values())
    words = (
        f"Drawn by the sampler: {len(batches[0].snapshots)} of {snapshots} snapshots, {sizes[0]} nodes of the "
        f"first partition; {taken:,} targets of {snapshots * graph.num_nodes:,}. The other two fields are what a node "
        "batch and a snapshot batch of the same sizes would be."
    )
    return [(target_map_figure(facts, batches), words), _loads(system.parts["partition"], loads, graph)]


def _batch(part: int, groups: LoadGroups, shares: list[float], snapshots: int) -> PartBatch:
    size = BatchSize(
        max(1, round(shares[0] * snapshots)), max(min(GROUPS, len(groups)), round(shares[1] * len(groups)))
    )
    drawn = TargetSampler(0, part, groups, range(snapshots)).batch(size, 0, 0)
    return PartBatch(
        0, part, 0, 0, "new", drawn.snapshots, len(drawn.targets), 0, 0, 0.0, tuple(groups.sixtieths(drawn.targets))
    )


def _loads(own: str, loads: np.ndarray, graph: DynamicGraph) -> Panel:
    names = list(dict.fromkeys(("hash", "metis", "load_aware", own)))
    worst = {}
    for name in names:
        owner = make_partition(name, graph, PARTS * 2, hops=2).owner
        held = np.bincount(owner, weights=loads, minlength=PARTS * 2)
        worst[name] = float(held.max() / held.mean())
    return compared_panel(
        "Load of the heaviest of four partitions",
        "relative to the mean",
        worst,
        own=own,
        words=(
            f"Load is the length of computation graphs (DynaHB's algorithm 1); 1 is balanced. This system uses {own}."
        ),
    )
