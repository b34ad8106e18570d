"""The generated graphs of benchmarks/greendygnn.py, kept in the cache under a name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dtdg_lab as lab
from contenders.gd_plan import Ground, Plan
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.names import load_for

CLASSES = 8
POPULAR = 0.6  # exponent by which a node is drawn less often than those before it
ALIKE = 0.7  # share of edges within a class
NOISE = 2.0  # of features about the mean of their class


def placed(ground: Ground) -> Ground:
    """The same with its graph made and kept; all seeds have the same one."""
    if ground.dataset:
        return ground
    if ground.snapshots:
        sizes = {"generated_nodes": ground.nodes, "generated_edges": ground.degree * ground.nodes,
                 "generated_snapshots": ground.snapshots}  # fmt: skip
        made = load_for(lab.RunConfig(system="fixed-window", dataset="growing", model=ground.model, parts=2, **sizes))
        return replace(ground, dataset=made.store())
    return replace(ground, dataset=static_graph(ground).store())


def placed_plan(plan: Plan) -> Plan:
    """The plan with all its graphs made, each once."""
    made: dict[Ground, Ground] = {}
    for ground in (*plan.grounds, plan.ablated, plan.lived):
        if ground not in made:
            made[ground] = placed(ground)
    return replace(
        plan, grounds=tuple(made[of] for of in plan.grounds), ablated=made[plan.ablated], lived=made[plan.lived]
    )


def static_graph(ground: Ground) -> lab.DynamicGraph:
    """Classes whose nodes point at each other and whose features are about one mean, and a few popular nodes.

    Popular nodes are neighbours of many: what makes a cache worth having on the real graphs.
    """
    draw = generator(0, "benchmarks/greendygnn", ground.nodes)
    classes = draw.integers(0, CLASSES, ground.nodes)
    popular = draw.permutation((1.0 + np.arange(ground.nodes)) ** -POPULAR)
    edges = ground.nodes * ground.degree
    src = draw.choice(ground.nodes, edges, p=popular / popular.sum())
    dst = draw.integers(0, ground.nodes, edges)
    by_class, counts = np.argsort(classes, kind="stable"), np.bincount(classes, minlength=CLASSES)
    first, of = np.concatenate([[0], np.cumsum(counts)])[:-1], classes[src]
    peers = by_class[first[of] + (draw.random(edges) * counts[of]).astype(np.int64)]
    dst = np.where(draw.random(edges) < ALIKE, peers, dst)
    # a node without edges would not be in the graph, and the numbers of all others would move
    ring = np.arange(ground.nodes)
    src, dst = np.concatenate([src, ring]), np.concatenate([dst, np.roll(ring, 1)])
    means = draw.standard_normal((CLASSES, ground.features))
    rows = means[classes] + NOISE * draw.standard_normal((ground.nodes, ground.features))
    return lab.datasets.from_static(src, dst, features=rows.astype(np.float32), labels=classes, name=ground.name)
