"""The pictures of a system's card: computed by our planners from a small synthetic graph, or taken from a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.catalogue import System
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.feature_store import CacheActions
from dtdg_lab.core.message_passing import pulls
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import BatchSize, Schedule, SnapshotBlocks
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.engine.minibatches import sampled_edges, sampling_key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.metrics import Volume, partition_graph
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.partition.volume import legs, pulled_by_groups, redistributed, sent
from dtdg_lab.systems.decayed_windows.charts import Shape, TrapezoidFacts, shape_figure
from dtdg_lab.systems.decayed_windows.window import RULES
from dtdg_lab.systems.feature_cache.policies.base import learned_policy
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, best_plan, cost_of
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.policies.shipped_costs import reddit
from dtdg_lab.systems.feature_cache.policies.simulator import CacheCase, CacheEpisode, CacheSimulator, draw_episode
from dtdg_lab.systems.feature_cache.policies.training import always_compared, run_policy
from dtdg_lab.systems.hybrid_batches.batches import LoadGroups, TargetSampler, load_groups
from dtdg_lab.systems.hybrid_batches.charts import HybridFacts, PartBatch, SizeFacts, target_map_figure
from dtdg_lab.systems.snapshot_blocks.charts import BlockFacts, ownership_panels
from dtdg_lab.systems.snapshot_groups.charts import gantt_words, planned_epoch, planned_figure
from dtdg_lab.systems.snapshot_groups.schedulers.base import PSG, lower_bound_s, solve
from dtdg_lab.visualization.cards import Panel, Span, compared_panel, lanes_panel, stacked_panel, windows_chosen_panel
from dtdg_lab.visualization.layout import Figure, percent
from dtdg_lab.visualization.partition import facts_of, map_figure, map_words, matrix_figure

# Pictures of hybrid batches: a real sample on a small graph.


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


# Pictures of remote feature caches: a simulated run with a slow link, under the system's own policy.


CACHE_PICTURES_PARTS, EPOCHS, STEPS = 4, 12, 25
LATE_S = 0.02
_SLOW = CacheCase("one_slow", "heavy", bytes_per_s=50e6 / 8)
_FROM = "Simulated."
_SHOWN = {
    "epoch_hot": "rapidgnn",
    "fixed-16": "fixed-window",
    "threshold": "threshold-window",
    "double_dqn": "greendygnn",
    "planner": "planner (ours)",
    "clairvoyant": "clairvoyant",
}
_POLICY = {"fixed": "fixed-16"}


def cache_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Windows chosen by the policy beside the best plan, and joules of all policies on the same run."""
    path = system.parts["features"]
    if path in ("on_demand", "prefetch"):
        return [_lanes("by turns" if path == "on_demand" else "ahead")]
    own = _SHOWN[_POLICY.get(path, path)]
    episode = draw_episode([reddit()], [_SLOW], number=1, seed=8, epochs=EPOCHS, epoch_steps=STEPS)
    played = _played(episode)
    joules = {name: cost_of(episode, windows) for name, windows in played.items()}
    over = joules[own] / joules["clairvoyant"] - 1
    actions = CacheActions(CACHE_PICTURES_PARTS)
    lengths = {
        name: [(first, _length(actions, action, episode)) for first, action in windows]
        for name, windows in played.items()
    }
    shown = {own: lengths[own], "clairvoyant": lengths["clairvoyant"]}
    return [
        windows_chosen_panel(
            shown,
            episode.steps,
            _slow_spans(episode),
            words=(
                "Shaded: one owner's link is limited to 50 Mbit/s. Watch the window when shading "
                "starts; a window "
                f"that has started is kept to its end. {_FROM}"
            ),
        ),
        compared_panel(
            "Joules of one partition in this run",
            "joules",
            joules,
            own=own,
            words=(f"{own} uses {percent(over)} more energy than the best plan for this run. {_FROM}"),
        ),
    ]


def _played(episode: CacheEpisode) -> dict[str, list[tuple[int, int]]]:
    always, actions = always_compared(CACHE_PICTURES_PARTS), CacheActions(CACHE_PICTURES_PARTS)
    policies = {
        **{name: always[name] for name in ("epoch_hot", "fixed-16", "threshold")},
        "double_dqn": learned_policy(CACHE_PICTURES_PARTS),
        "planner": CachePlanner(actions, episode.costs),
        "clairvoyant": Clairvoyant(best_plan([episode]), [episode.number]),
    }
    found = {}
    for name, policy in policies.items():
        simulator = CacheSimulator([episode.costs], epoch_steps=STEPS, draw=lambda _: episode)
        found[_SHOWN[name]] = list(run_policy(simulator, policy, number=0).windows[0])
    return found


def _length(actions: CacheActions, action: int, episode: CacheEpisode) -> int:
    """W of a choice; one cache per epoch is a separate choice."""
    return actions.window(action) if action < len(actions) else episode.epoch_steps


def _slow_spans(episode: CacheEpisode) -> list[Span]:
    trace = episode.trace
    late = np.any(np.isfinite(trace.bytes_per_s) | (trace.delay_s > 0), axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(late, int)[trace.which], [0]])))
    return [(float(start), float(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _lanes(own: str) -> Panel:
    costs, steps = reddit(), 8
    clean = costs.rpc_s + max(costs.asked) * costs.rows * costs.row_bytes / costs.link_bytes_per_s
    fetch_s = np.where(np.arange(steps) < steps // 2, clean, clean + max(costs.trips, 1.0) * LATE_S)
    figure, words = lanes_panel(fetch_s, costs.base_s, own=own)
    return figure, f"{words} One owner's replies are delayed by {1e3 * LATE_S:.0f} ms there. {_FROM}"


# Pictures of systems that schedule snapshot groups: schedules of a growing graph.


RANKS, WINDOW = 4, 4
EDGE_S, GROUP_S = 1e-6, 2e-4  # seconds per edge and fixed seconds per group: assumed, not measured
EXCHANGE_S = 1e-4
LIMIT_S = 0.5  # of a solver that searches
_SPREAD = 0.05  # relative noise of DyGNeX section 5.4
_NAMES = {"round_robin": PSG, "consecutive": "blad", "dygnex_greedy": "dygnex-g", "dygnex_ilp": "dygnex-l"}


def group_times_s(graph: DynamicGraph) -> NDArray[np.float64]:
    """(T - 3,) seconds of every group of four snapshots, by their edges: assumed, with 5 % noise."""
    edges = np.array([snapshot.num_edges for snapshot in graph.snapshots], np.float64)
    sums = np.convolve(edges, np.ones(WINDOW), "valid")
    noise = np.random.default_rng(0).normal(1.0, _SPREAD, len(sums))
    return (GROUP_S + EDGE_S * sums) * noise


def schedule_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The Gantt chart of the system's schedule of a small epoch, and its duration beside that of other systems."""
    times_s, own = group_times_s(graph), system.parts["scheduling"]
    plans = _plans(tuple(times_s.tolist()))
    plan, named = plans[_NAMES[own]], _NAMES[own]
    spans = {name: planned_epoch(each, times_s, allreduce_s=EXCHANGE_S).span_s for name, each in plans.items()}
    bound_s = lower_bound_s(times_s, RANKS, per_rank=2, allreduce_s=EXCHANGE_S)
    gantt = planned_figure(plan, times_s, per_rank=2, allreduce_s=EXCHANGE_S, label=named)
    words = (
        f"The same {len(times_s)} groups on {RANKS} ranks, with times assumed from edges. No schedule of at most two "
        "groups "
        f"per rank ends before {format_seconds(bound_s)}; {named} is {percent(spans[named] / bound_s - 1)} above that."
    )
    if named == "blad":
        words += " The prediction ignores that its two groups run concurrently."
    return [
        (gantt, gantt_words(planned_epoch(plan, times_s, allreduce_s=EXCHANGE_S))),
        compared_panel(
            "Predicted epoch",
            "milliseconds",
            {**{name: 1e3 * span for name, span in spans.items()}, "bound": 1e3 * bound_s},
            own=named,
            words=words,
        ),
    ]


@lru_cache(maxsize=4)
def _plans(times_s: tuple[float, ...]) -> dict[str, Schedule]:
    """Schedules of the same groups by system."""
    return {
        name: solve(
            scheduler,
            np.array(times_s),
            RANKS,
            per_rank=1 if scheduler == "round_robin" else 2,
            allreduce_s=EXCHANGE_S,
            time_limit_s=LIMIT_S,
        )
        for scheduler, name in _NAMES.items()
    }


# Pictures of ESDG: owners of snapshots and nodes, and the bytes of one redistribution.


SNAPSHOT_PICTURES_RANKS, BLOCKS = 4, 2
MODEL, LAYERS, HIDDEN = "cdgcn", 2, 6  # ESDG section 6.1


def snapshot_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Owners before and after a redistribution, and the bytes that a step sends between ranks."""
    split = int(system.defaults.get("row_ranks", 1))
    plan = SnapshotBlocks(range(graph.num_snapshots), BLOCKS, SNAPSHOT_PICTURES_RANKS, graph.num_nodes, split)
    volume = volume_of(plan, graph)
    maps = ownership_panels(_facts(plan))
    bytes_sent = {way: each.sum(axis=0).astype(np.float64) for way, each in volume.bytes().items()}
    top = float(np.sum(list(bytes_sent.values()), axis=0).max())
    whole = sum(float(each.sum()) for each in bytes_sent.values())
    words = (
        f"{MODEL}, {LAYERS} layers, hidden {HIDDEN}, {BLOCKS} blocks: a step sends {format_bytes(whole)} over all "
        "pairs, counted from the plan. "
        + (
            "Neighbour rows are exchanged within a group of ranks, node rows between groups."
            if split > 1
            else "The volume does not depend on edges; pairs differ only if snapshots do not divide evenly."
        )
    )
    return [*maps.values(), (matrix_figure("What a step sends", bytes_sent, who="rank", top=top), words)]


def volume_of(plan: SnapshotBlocks, graph: DynamicGraph) -> Volume:
    """Bytes that a step of the model sends under a plan."""
    moved = redistributed(plan, sent(legs(MODEL, graph.num_features, HIDDEN, LAYERS, blocks=plan.blocks)), LAYERS)
    pulled = pulls(MODEL, graph.num_features, HIDDEN, LAYERS)
    return moved + pulled_by_groups(graph.snapshots, plan, pulled, rerun=plan.blocks > 1)


def _facts(plan: SnapshotBlocks) -> BlockFacts:
    ranks = range(plan.ranks)
    return BlockFacts(
        layout="snapshot",
        ranks=plan.ranks,
        row_ranks=plan.row_ranks,
        nodes=plan.nodes,
        blocks=plan.blocks,
        asked=plan.blocks,
        bounds=np.array([plan.block(0).start, *(plan.block(b).stop for b in range(plan.blocks))]),
        own=tuple(tuple(_span(plan.own(b, rank)) for rank in ranks) for b in range(plan.blocks)),
        rows=tuple(_span(plan.rows(rank)) for rank in ranks),
        chunks=tuple(_span(plan.chunk(rank)) for rank in ranks),
        predicted={},
        legs=((0, "forward", "to_vertices", HIDDEN),),
        note="",
    )


def _span(part: range) -> tuple[int, int]:
    return part.start, part.stop


# Pictures of systems with node partitions: exchanged halo rows, or replicas.


VERTEX_PICTURES_PARTS = 4


def vertex_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The rows that a partition receives or copies, bytes between partitions, and partitioners compared."""
    own = system.parts["partition"]
    copies = system.parts["parallel"] == "cached_vertex"
    measured = {
        name: partition_graph(graph, name, VERTEX_PICTURES_PARTS) for name in dict.fromkeys((own, "hash", "metis"))
    }
    facts, name = facts_of(measured[own].to_dict()), "replicated" if copies else "halo"
    rows = {
        label: float((each.measures.replicated if copies else each.measures.halo).sum())
        for label, each in measured.items()
    }
    kind = "Rows copied" if copies else "Halo rows of a step"
    found = [(map_figure(name, facts.maps[name], facts.bounds), map_words(name, facts))]
    if not copies:
        found.append(_matrix(measured[own].predicted))
    return [
        *found,
        compared_panel(
            kind,
            "rows",
            rows,
            own=own,
            words=(
                f"{kind} with {VERTEX_PICTURES_PARTS} partitions of the same small graph. Fewer are better: a "
                "partitioner "
                "uses the structure of the graph "
                "or ignores it (hash)."
            ),
        ),
    ]


def _matrix(predicted: object) -> Panel:
    ways = {way: np.asarray(each, np.float64).sum(axis=0) for way, each in dict(predicted).items()}  # type: ignore[call-overload]
    top = float(np.sum(list(ways.values()), axis=0).max())
    return matrix_figure("Bytes between partitions", ways, who="partition", top=top), (
        "Counted from the partition: neighbour rows forward, their gradients backward. Unlike ESDG's, they "
        "depend "
        "on the edges, and pairs differ."
    )


# Pictures of snapshot windows: the trapezoid, whole windows, and windows of sampled neighbours.


CHUNKS, PAPER_WINDOW = 128, 8
FANOUT = 5


def window_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The window of a step, and its rows beside those of comparable systems."""
    window = int(system.defaults.get("window", OPTIONS["window"].default))
    decays = system.parts["batching"] == "trapezoid"
    full = int(OPTIONS["full_snapshots"].default) if decays else window
    shapes = {
        "ladder": Shape(2, 0.1, "ladder"),
        "text": Shape(2, 0.1, "text"),
    }
    whole = _facts_window_pictures(graph, PAPER_WINDOW, shapes["ladder"])
    rows = {f"flaredtdg, {rule}": float(whole.rows(shapes[rule])) for rule in RULES if rule in shapes}
    rows |= {"full-history": float(whole.whole_rows), "recent-only": 2.0 * graph.num_nodes}
    facts = _facts_window_pictures(graph, window, Shape(full, OPTIONS["alpha"].default, OPTIONS["decay"].default))
    own = f"flaredtdg, {facts.shape.decay}" if decays else system.name
    words = (
        f"Chunks of every snapshot of a window, oldest on the left: {', '.join(map(str, facts.counts()))}. "
        f"{percent(facts.kept())} of the rows of {window} whole snapshots are kept."
    )
    return [
        (shape_figure(facts, None), words),
        compared_panel(
            "Rows of nodes in a window",
            "rows",
            rows,
            own=own,
            words=(
                f"{graph.num_nodes:,} nodes, window {PAPER_WINDOW}, K = 2, alpha = 0.1, {CHUNKS} chunks: "
                "the two decay "
                "rules, the whole history, and only the newest two snapshots."
            ),
        ),
    ]


def sampled_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Sampled edges of the window's snapshots, with two fan-outs."""
    window = int(system.defaults.get("window", OPTIONS["window"].default))
    fanout = min(int(OPTIONS["fanout"].default), FANOUT)
    newest = graph.snapshots[-window:]
    rows = np.arange(graph.num_nodes)
    drawn = [
        len(sampled_edges(snapshot, rows, fanout=fanout, key=sampling_key(0, 0, number, 0)).indices)
        for number, snapshot in enumerate(newest)
    ]
    edges = [snapshot.num_edges for snapshot in newest]
    kept = sum(drawn) / sum(edges)
    words = (
        f"At most {fanout} in-neighbours of each node are sampled, again in every epoch: {percent(kept)} of this "
        "window's edges. All snapshots are treated alike, however old, which FlareDTDG criticises."
    )
    left_out = [all_of - some for all_of, some in zip(edges, drawn, strict=True)]
    return [
        stacked_panel(
            "Edges of a window",
            ("snapshot of a window, oldest first", "edges"),
            {"drawn": drawn, "left out": left_out},
            words=words,
        )
    ]


def _facts_window_pictures(graph: DynamicGraph, window: int, shape: Shape) -> TrapezoidFacts:
    counts = np.linspace(0, graph.num_nodes, CHUNKS + 1)
    return TrapezoidFacts(window, shape, CHUNKS, graph.num_nodes, counts, counts[None], None, None)


Drawer = Callable[[System, DynamicGraph], list[Panel]]
MOST = 4  # panels of a run
_SMALL_NOTE = "Computed now by this lab's planners, from a synthetic graph of 240 nodes and 24 snapshots."
CACHE_NOTE = (
    "Simulated now: one run of 12 epochs with 25 steps each on four partitions, with constants fitted to step times of "
    "the authors' cluster (Reddit) and modelled watts. Nothing was measured here."
)
SMALL: Mapping[str, Any] = MappingProxyType(
    {"generated_nodes": 240, "generated_edges": 1600, "generated_snapshots": 24, "growth": 6.0}
)


def drawn_pictures(system: System) -> list[Panel]:
    """One to four charts with their captions, computed now from the small graph.

    Args:
        system: of the catalogue.
    """
    return _DRAWERS[_family(system)](system, small_graph())


def picture_note(system: System) -> str:
    """The data source of :func:`drawn_pictures`."""
    return CACHE_NOTE if _family(system) == "cache" else _SMALL_NOTE


def run_pictures(system: System, run: Any) -> list[Panel]:
    """Charts of a run of the system, the first few that its records allow.

    Args:
        system: of the catalogue.
        run: with ``config`` and ``live``, such as that of ``lab.runs.open``.

    Raises:
        ConfigError: the run is of another system, or has recorded nothing that can be drawn yet.
    """
    if run.config.system != system.name:
        raise ConfigError(
            f"run {run.id} trained system {run.config.system!r}, and this is the card of {system.name!r}: "
            f"card({run.config.system!r}, run=...) draws it."
        )
    window = run.live
    views = {
        "schedule": (window.view("schedule"),),
        "snapshot": (window.view("blocks"),),
        "vertex": (window.partition, window.view("blocks")),
        "batch": (window.view("hybrid"),),
        "window": (window.view("trapezoid"),),
        "sampled": (window.view("trapezoid"),),
        "cache": (window.view("features"),),
        "single": (),
    }
    panels = [panel for view in views[_family(system)] for panel in view.panels() if _shows(panel[0])]
    if not panels:
        captions = window.captions()
        panels = [(figure, captions[name]) for name, figure in window.figures("steps").items() if name in captions]
    if not panels:
        raise ConfigError(f"run {run.id} has recorded nothing that can be drawn: wait for its first epoch.")
    return panels[:MOST]


@lru_cache(maxsize=1)
def small_graph() -> DynamicGraph:
    """A graph of 240 nodes whose 24 snapshots grow sixfold, from seed 0."""
    return load_dataset("growing", **SMALL)


def _shows(figure: Figure) -> bool:
    """Whether it contains anything but a note."""
    return any(value is not None for trace in figure["data"] for value in trace.get("x") or ())


def _family(system: System) -> str:
    layout = system.parts["parallel"]
    if layout == "cached_vertex":
        return "batch" if system.parts.get("batching") == "hybrid" else "vertex"
    return {
        "snapshot_group": "schedule",
        "snapshot": "snapshot",
        "halo_vertex": "vertex",
        "halo_window": "window",
        "sampled_window": "sampled",
        "remote_feature": "cache",
    }.get(layout, "single")


def _single(system: System, graph: DynamicGraph) -> list[Panel]:
    edges = [snapshot.num_edges for snapshot in graph.snapshots]
    return [
        stacked_panel(
            "Full batch: one step takes everything",
            ("snapshot", "edges"),
            {"edges": edges},
            words=(
                f"All {graph.num_snapshots} snapshots of {graph.num_nodes} nodes, {sum(edges):,} edges, "
                "in one batch. "
                "The other systems use smaller batches, or distribute this one."
            ),
        )
    ]


_DRAWERS: Mapping[str, Drawer] = MappingProxyType(
    {
        "schedule": schedule_pictures,
        "snapshot": snapshot_pictures,
        "vertex": vertex_pictures,
        "batch": batch_pictures,
        "window": window_pictures,
        "sampled": sampled_pictures,
        "cache": cache_pictures,
        "single": _single,
    }
)
