"""Pictures of mechanisms, drawn at once from a few numbers, by the functions that draw the cards of the systems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.core.units import format_seconds
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.graphs.training_graph import training_graph
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.partition.redistribution_volume import collective_rows
from dtdg_lab.systems.decayed_windows.card_pictures import window_card
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.systems.feature_cache.charts.card_pictures import windows_beside_best
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase
from dtdg_lab.systems.hybrid_batches.card_pictures import batch_card
from dtdg_lab.systems.snapshot_blocks.card_charts import owner_figures
from dtdg_lab.systems.snapshot_groups.gantt import planned_epoch, planned_figure
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s, solve
from dtdg_lab.visualization.chart import CaptionedFigure
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.sheet import sheet


def window_picture(
    *, window: int = 8, full_snapshots: int = 2, alpha: float = 0.1, decay: str = "ladder", chunks: int = 128
) -> CaptionedFigure:
    """Return the share of nodes that each snapshot of a decayed window keeps; arguments are settings of FlareDTDG."""
    counts = np.linspace(0, chunks, chunks + 1)  # a node a chunk
    shape = Shape(min(full_snapshots, window), alpha, decay)
    return window_card(TrapezoidFacts(window, shape, chunks, chunks, counts, counts, None, None))


def batch_picture(
    graph: DynamicGraph, *, batch_snapshots: float = 0.2, batch_nodes: float = 0.05, protocol: str = "warm"
) -> CaptionedFigure:
    """Return a hybrid batch of a graph's training snapshots in two parts, beside the two batches that it replaces.

    Args:
        graph: T snapshots of N nodes.
        batch_snapshots: share of the snapshots, N_S.
        batch_nodes: share of the nodes, N_V.
        protocol: protocol of the training split.
    """
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[protocol]).train
    return batch_card(training_graph(graph, train), batch_snapshots, batch_nodes)


def schedule_picture(
    times_s: Sequence[float], *, scheduler: str = "psg", ranks: int = 2, noise: float = 0.0, per_rank: int = 2
) -> CaptionedFigure:
    """Return the Gantt chart of an epoch whose groups take other times than the scheduler expected.

    Args:
        times_s: (K,) expected seconds of each group.
        scheduler: ``psg``, or a scheduler of the catalogue.
        ranks: R.
        noise: relative standard deviation of the times that the groups really take.
        per_rank: groups of a rank in an iteration, at most.
    """
    expected = np.asarray(times_s, np.float64)
    plan = solve(scheduler, expected, ranks, per_rank=per_rank)
    factors = np.exp(noise * np.random.default_rng(0).standard_normal(len(expected)))
    epoch = planned_epoch(plan, expected * factors)
    bound_s = lower_bound_s(expected * factors, ranks, per_rank=per_rank)
    figure = planned_figure(plan, expected * factors, per_rank=per_rank, label=scheduler)
    waited = percent_text(epoch.waiting_share(ranks))
    caption = f"The epoch takes {format_seconds(epoch.span_s)}, and ranks wait for {waited} of it. "
    return figure, f"{caption}No schedule ends before {format_seconds(bound_s)}."


def owners_picture(*, blocks: int = 1, ranks: int = 2, snapshots: int = 12, nodes: int = 12) -> CaptionedFigure:
    """Return which rank owns each row within snapshots and over time; what differs is sent.

    Args:
        blocks: blocks of time.
        ranks: R.
        snapshots: T.
        nodes: N.
    """
    plan = SnapshotBlocks(range(snapshots), blocks, ranks, nodes, 1)
    redistribution = ((0, "forward", "to_vertices", 1),)
    facts = BlockFacts.of(plan, "snapshot", requested=blocks, predicted={}, collectives=redistribution, note="")
    sent = int(collective_rows(plan, "to_vertices").sum())
    longest = max(len(plan.block(number)) for number in range(blocks))
    caption = (
        f"{sent} of {snapshots * nodes} rows are sent. In memory at once: activations of {longest} snapshots, and "
        f"{blocks - 1} states between blocks."
    )
    cards = [(figure, "") for figure in owner_figures(facts)]
    return sheet(cards, title="A cell of another colour on the right is a row that ranks swap"), caption


def cache_picture(*, megabits: float = 50.0, policy: str = "fixed-window") -> CaptionedFigure:
    """Return how long a policy keeps its caches in a simulated run with a slow link, beside the best plan.

    Args:
        megabits: rate of the slow link in Mbit/s, while it is slow.
        policy: ``fixed-window``, ``rapidgnn``, ``threshold-window``, ``greendygnn`` or ``planner (ours)``.
    """
    case = CacheCase("one_slow", "heavy", bytes_per_s=megabits * 1e6 / 8)
    (figure, caption), joules = windows_beside_best(policy, case)
    over = percent_text(joules[policy] / joules["clairvoyant"] - 1)
    return figure, f"{caption} It needs {over} more energy."
