"""Work of an epoch for the advisor: counts for whole graphs, windows and batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import PROTOCOLS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.message_passing import Pull, hops, pulls, ways
from dtdg_lab.core.plans import HybridBatch, Partition, SnapshotBlocks, TargetBatch
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.minibatches import SeedBatches, fanouts_of, rounds_of, sampled_edges, sampling_key, stretches_of
from dtdg_lab.graphs.delta import sequence_changes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, give_up
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.base import PARTITION_SETTINGS, make_partition
from dtdg_lab.partition.halo import hop_distance, pulled_rows
from dtdg_lab.partition.metrics import PartitionMeasures, measures_for, predicted_bytes
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.partition.volume import (
    RERUN_MEMORIES,
    StepSettings,
    StepWork,
    between_parts,
    legs,
    pulled_by_groups,
    redistributed,
)
from dtdg_lab.partition.volume import sent as sent_legs
from dtdg_lab.systems.decayed_windows.window import Trapezoid, epoch_batches
from dtdg_lab.systems.hybrid_batches.batches import TargetSampler, batch_size, grid, load_groups
from dtdg_lab.systems.snapshot_groups.schedulers.base import named, solve

# What a config computes on a graph, whatever its system: snapshots trained, pulls, sizes of rows and of gradients.


Numbers = NDArray[np.float64]
SLOTS = 4  # numbers that ride behind the gradients beside one for each rank: version, choice, loss, groups
# assumed where too few runs tell: seconds of a unit of each column of Facts.passes, on a core
ASSUMED_COMPUTE = (2e-9, 2e-11, 5e-5, 5e-5, 0.0, 2e-3)
KEPT_OF_HIDDEN = 8  # assumed: numbers of the width H that backward needs of a row and layer (gates and states)


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A config and its graph, with what every count needs of them.

    Attributes:
        config: settings.
        graph: T snapshots of N nodes.
        train: the snapshots trained.
        pulled: what the model pulls along edges in one snapshot.
        parameters: numbers of a gradient.
        outputs: numbers that the model gives of a node.
    """

    config: RunConfig
    graph: DynamicGraph
    train: range
    pulled: tuple[Pull, ...]
    parameters: int
    outputs: int

    @property
    def ranks(self) -> int:
        """R."""
        return self.config.ranks

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Those trained."""
        return tuple(self.graph.snapshots[self.train.start : self.train.stop])

    @property
    def model_options(self) -> dict[str, Any]:
        """Of the model alone."""
        return dict(self.config.options.get("models", {}))

    @property
    def memory(self) -> str | None:
        """How the model remembers: per_vertex, weights, weights_from_data, neighbourhood, none."""
        return catalogue.entry("models", self.config.model).memory

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return int(np.dtype(self.config["dtype"]).itemsize)

    @property
    def reach(self) -> int:
        """Hops of all layers."""
        return hops(self.config.model, self.config.layers, **self.model_options)

    @property
    def edge_numbers(self) -> int:
        """Numbers that are read along one edge of a snapshot, over all layers."""
        return sum(pull.width for pull in self.pulled)

    @property
    def row_numbers(self) -> int:
        """Numbers of one row that are assumed to be kept for backward."""
        return self.graph.num_features + KEPT_OF_HIDDEN * self.config.hidden * self.config.layers

    @property
    def gradient_bytes(self) -> int:
        """That one rank sends for one step: 2 b (R - 1) / R of a ring, slots included; exact."""
        numbers = self.parameters + SLOTS + self.ranks
        return 2 * numbers * self.itemsize * (self.ranks - 1) // self.ranks

    @property
    def edges(self) -> NDArray[np.int64]:
        """(S,) of the snapshots trained."""
        return np.asarray(self.graph.num_edges[self.train.start : self.train.stop], np.int64)

    @property
    def graph_bytes(self) -> int:
        """Of the snapshots trained, whole, float32 and int32: features, row starts, sources, weights."""
        return whole_bytes(self.graph, len(self.train), int(self.edges.sum()))

    def partition(self) -> Partition:
        """Of the nodes into P parts, as a run of the config makes it."""
        config = self.config
        live_settings = {knob: config[knob] for knob in PARTITION_SETTINGS}
        return make_partition(
            config["partitioner"], self.graph, config.parts, hops=self.reach, seed=config.seed, **live_settings
        )

    def measured(self, partition: Partition) -> PartitionMeasures:
        """Counts of a partition over the snapshots trained."""
        return measures_for(
            self.graph, partition, self.config.model, self.config.layers, snapshots=self.train, **self.model_options
        )

    def passes(self, edges: Any, rows: Any, snapshots: Any, pieces: Any) -> Numbers:
        """(R, 6) as ``StepWork.passes`` has them, forward and backward, with edges and rows in numbers worked on.

        So weighed, rates of a model with one hidden width stand near those of another: an edge counts the numbers read
        along it, a row the model's parameters, each of which is multiplied once for it. The sixth column is of pieces
        of work (a step's part, batch or group), for what each costs whatever its size.

        Args:
            edges: (R,) pulled along, in snapshots.
            rows: (R,) nodes times snapshots.
            snapshots: (R,) worked on, one after another.
            pieces: (R,) of work.
        """
        given = (edges, rows, snapshots, pieces)
        size = max(np.size(each) for each in given)
        of_edges, of_rows, of, some = (np.broadcast_to(np.asarray(each, np.float64), (size,)) for each in given)
        through = of * (self.memory == "per_vertex")
        none = np.zeros(size)
        found = np.stack([of_edges, of_rows * self.row_passes, of, through, none, some / 2], axis=1)
        return self.weighed(2.0 * found)

    @property
    def row_passes(self) -> int:
        """How often a row is passed over: once, and once more where it runs through time by itself."""
        return 1 + (self.memory == "per_vertex")

    def weighed(self, passes: Numbers) -> Numbers:
        """Passes whose edges and rows are counted as numbers worked on."""
        return np.asarray(passes * np.array([self.edge_numbers, self.parameters, 1.0, 1.0, 1.0, 1.0]))


def facts_of(config: RunConfig, graph: DynamicGraph) -> Facts:
    """What counts need of a config and its graph.

    Raises:
        LabError: the graph is too short for the protocol.
    """
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol]).train
    settings = dict(config.options.get("models", {}))
    asked = pulls(config.model, graph.num_features, config.hidden, config.layers, **settings)
    outputs = _outputs(config, graph)
    size = (graph.num_features, config.hidden, config.layers, outputs)
    counted = parameters(config.model, size, tuple(sorted(settings.items())))
    return Facts(config, graph, train, tuple(pull for pull in asked if pull.way != "top"), counted, outputs)


@lru_cache(maxsize=256)
def parameters(model: str, size: tuple[int, int, int, int], settings: tuple[tuple[str, Any], ...]) -> int:
    """Numbers of a model's parameters, counted on the model itself; ``size`` is features, hidden, layers, outputs."""
    features, hidden, layers, outputs = size
    made = catalogue.entry("models", model).load()(features, hidden, layers, outputs=outputs, seed=0, **dict(settings))
    return sum(int(each.numel()) for each in made.parameters())


def edge_ways(config: RunConfig) -> tuple[str, ...]:
    """Along which edges the config's model pulls."""
    return ways(config.model)


def whole_bytes(graph: DynamicGraph, snapshots: int, edges: int) -> int:
    """Bytes of some snapshots of a graph: float32 features and weights, int32 row starts and sources."""
    rows = graph.num_nodes * (1 if graph.static_features else snapshots)
    an_edge = 2 if graph.weighted else 1
    return 4 * (graph.num_features * rows + snapshots * (graph.num_nodes + 1) + an_edge * edges)


def _outputs(config: RunConfig, graph: DynamicGraph) -> int:
    if config["task"] == "classification":
        return max(int(graph.num_classes), 1)
    if config["task"] == "link":
        return 2 if config["link_head"] == "concat" else config.hidden
    return 1


# What each rank does in an epoch of a system, counted from the graph, and what it keeps in memory meanwhile.


EXACT = ("rows", "bytes")  # counts that may be known exactly
FRONT_BYTES = 40  # before the rows for each other rank: clock, count and place, five numbers (comm.rows)


@dataclass(frozen=True, slots=True, eq=False)
class GroupWork:
    """Snapshot groups that a scheduler deals to ranks; (K,) each.

    Attributes:
        passes: (K, 6) of each group, as ``Facts.passes``.
        scheduler: its name.
        per_rank: most groups of a rank in an iteration.
    """

    passes: Numbers
    scheduler: str
    per_rank: int


@dataclass(frozen=True, slots=True, eq=False)
class Fetching:
    """Features fetched in a step, means over parts.

    Attributes:
        owners: asked, all at once.
        bytes: of the rows.
        ahead: whether they are fetched while the step before is computed.
    """

    owners: float
    bytes: float
    ahead: bool


@dataclass(frozen=True, slots=True, eq=False)
class EpochWork:
    """An epoch of R ranks.

    Attributes:
        system: its name.
        steps: updates of the model.
        passes: (R, 6) as ``Facts.passes``: edges and rows in numbers worked on.
        rows: (R,) nodes times snapshots that are run forward once, copies included.
        edges: (R,) pulled along, once.
        sent: (R, R) bytes of rows from rank to rank.
        exchanges: of rows.
        gradient_bytes: that one rank sends in the epoch by the ring's formula, for gradients.
        brought: (R, 3) as ``StepWork.brought``.
        alive: (R, 2) rows and edges kept for backward in the largest step.
        held_bytes: (R,) of the data that a rank needs, beside what a step makes.
        exact: which of ``EXACT`` are counts, not estimates.
        waits: whether ranks meet in every step.
        groups: where snapshot groups are dealt by a scheduler.
        fetching: where features are fetched.
        round_bytes: that a rank sends for a round of averaging models, and seconds between two; where there are any.
        notes: what an estimate rests on, in words.
    """

    system: str
    steps: int
    passes: Numbers
    rows: Numbers
    edges: Numbers
    sent: Numbers
    exchanges: int
    gradient_bytes: float
    brought: Numbers
    alive: Numbers
    held_bytes: Numbers
    exact: frozenset[str] = frozenset()
    waits: bool = True
    groups: GroupWork | None = None
    fetching: Fetching | None = None
    round_bytes: tuple[float, float] | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.sent)

    @property
    def rank_bytes(self) -> float:
        """Bytes that the busiest rank sends in an epoch: rows, gradients, features served; not rounds of averaging."""
        fronts = FRONT_BYTES * self.exchanges * (self.ranks - 1)
        return float(self.sent.sum(axis=1).max()) + fronts + self.gradient_bytes

    def step(self) -> StepWork:
        """The mean step, as the scaling model takes it; gradients go round a ring."""
        ranks, share = self.ranks, 1.0 / max(self.steps, 1)
        sent = self.sent * share
        if ranks > 1 and self.waits:
            sent = sent + np.roll(np.eye(ranks), 1, axis=1) * (self.gradient_bytes * share)
        exchanges = round(self.exchanges * share) + 1 if ranks > 1 else 0
        return StepWork(0, int(self.edges.sum()), self.passes * share, sent, exchanges, self.brought * share)


def plain_work(
    facts: Facts,
    *,
    steps: int,
    edges: Numbers,
    rows: Numbers,
    snapshots: Numbers | float,
    pieces: Numbers | float | None = None,
    **more: object,
) -> EpochWork:
    """Work whose passes follow from its edges, rows and snapshots.

    Args:
        facts: config and graph.
        steps: of an epoch.
        edges: (R,) of an epoch.
        rows: (R,) of an epoch.
        snapshots: of an epoch, (R,) or one number for all.
        pieces: of work, each at once; one a step where not given.
        **more: further attributes, in place of what follows from these.
    """
    ranks = facts.ranks
    pieces = np.full(ranks, float(steps)) if pieces is None else pieces
    given: dict[str, object] = {
        "sent": np.zeros((ranks, ranks)),
        "exchanges": 0,
        "brought": np.zeros((ranks, 3)),
        "gradient_bytes": float(facts.gradient_bytes * steps),
        "held_bytes": np.full(ranks, float(facts.graph_bytes)),
        "alive": np.stack([rows, edges], axis=1) / max(steps, 1),
    }
    return EpochWork(
        system=facts.config.system,
        steps=steps,
        passes=facts.passes(edges, rows, snapshots, pieces),
        rows=rows,
        edges=edges,
        **{**given, **more},  # type: ignore[arg-type]
    )


def on_ranks(of_parts: NDArray[np.floating] | NDArray[np.integer], ranks: int) -> Numbers:
    """Sums of P parts over the R ranks that have them: parts of a rank follow each other; (P, ...) -> (R, ...)."""
    parts = np.asarray(of_parts, np.float64)
    return np.asarray(parts.reshape(ranks, len(parts) // ranks, *parts.shape[1:]).sum(axis=1))


# Epochs of systems whose steps are batches of nodes: hybrid batches, and mini-batches whose features are fetched.
#
# Batches are drawn as a run draws them, a few of each part, and counted; what an epoch takes is their mean.


DRAWN_BATCHES = 4  # of a part and size
DRAWN_PARTS = 4  # of all, evenly spaced
WINDOW_DRAWN = 8  # batches whose rows a cache is counted by, at most


def hybrid_work(facts: Facts) -> EpochWork:
    """Some snapshots of some nodes of every part, with all neighbours that their layers reach.

    Where an adjuster chooses, the mean over its sizes. Batches out of a reservoir count as new ones.

    References: DynaHB section 5, definition 3.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    loads = vertex_loads(facts.graph, facts.reach)
    shares = [(config["batch_snapshots"], config["batch_vertices"])]
    if config["adjuster"] != "none":
        shares = list(grid(config["snapshot_sizes"], config["vertex_sizes"]))
    found = []
    for part in _some(partition.parts):
        own = partition.vertices(part)
        groups = load_groups(loads[own], np.arange(len(own)), config["load_groups"])
        sampler = TargetSampler(config.seed, part, groups, facts.train)
        for action, share in enumerate(shares):
            size = batch_size(*share, snapshots=len(facts.train), candidates=len(own))
            drawn = [sampler.batch(size, action, index) for index in range(DRAWN_BATCHES)]
            found += [_reached(facts, batch, own) for batch in drawn]
    counts = np.array(found)  # rows, edges, snapshots
    mean, most = counts.mean(axis=0), counts.max(axis=0)
    steps, here = int(config["epoch_batches"]), config.parts // ranks
    asynchronous = config["exchange"] == "models"
    every = np.full(ranks, float(steps * here))
    measures = facts.measured(partition)
    held = on_ranks(measures.cached_bytes.astype(float), ranks)
    if config["reservoir"] and config["stand_in_gib"] > 0:  # all nodes of the window may stand in for a batch
        every_snapshot = most[2] / len(facts.train)
        inner = (facts.reach - 1) / facts.reach
        whole = measures.owned * len(facts.train) + measures.replicated.sum(axis=0) * inner
        pulled = measures.edges.sum(axis=0) + measures.replicated_edges.sum(axis=0)
        most = np.maximum(most, [every_snapshot * whole.max(), every_snapshot * pulled.max(), 0.0])
    return plain_work(
        facts,
        steps=steps,
        edges=mean[1] * every,
        rows=mean[0] * every,
        snapshots=mean[2] * steps * here,
        pieces=every,
        alive=np.tile(most[:2], (ranks, 1)),
        held_bytes=held,
        waits=not asynchronous,
        gradient_bytes=0.0 if asynchronous else float(facts.gradient_bytes * steps),
        round_bytes=(float(facts.gradient_bytes), float(config["average_every_s"])) if asynchronous else None,
        exact=frozenset() if asynchronous else frozenset({"bytes"}),
        notes=(f"means over {len(found)} batches drawn as a run draws them",),
    )


def _reached(facts: Facts, batch: TargetBatch, own: NDArray[np.int64]) -> tuple[float, float, float]:
    """Rows, edges and snapshots of a batch with its neighbours."""
    snapshots = [facts.graph.snapshots[t] for t in batch.snapshots]
    targets = own[batch.targets]
    together = facts.memory in ("per_vertex", "neighbourhood")  # states run through all of them
    distance = hop_distance(snapshots, targets, facts.reach, edge_ways(facts.config)) if together else None
    rows = edges = 0
    for snapshot in snapshots:
        reach = distance
        if reach is None:
            reach = hop_distance([snapshot], targets, facts.reach, edge_ways(facts.config))
        rows += int((reach < facts.reach).sum())  # the outermost are read, and nothing is computed for them
        edges += int(np.diff(snapshot.indptr)[reach < facts.reach].sum())
    return float(rows), float(edges), float(len(snapshots))


@dataclass(frozen=True, slots=True)
class _Mini:
    """One mini-batch: rows, edges, snapshots, and the numbers of remote feature rows, each once."""

    rows: int
    edges: int
    snapshots: int
    remote: NDArray[np.int64]
    owners: int


def remote_work(facts: Facts) -> EpochWork:
    """Mini-batches with sampled neighbours; features of other parts' nodes are fetched.

    What a cache spares is counted from the rows of as many batches as its window, or a few where that is longer. With
    ``epoch_hot`` the cache has all remote rows once an epoch, as far as it has room.

    References: GreenDyGNN sections II and V.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    size, stretches = int(config["batch_size"]), stretches_of(facts.train, config["batch_length"])
    rounds = rounds_of(partition.counts.tolist(), size)
    alike = facts.graph.static_features and _alike(facts)
    window = _window(facts)
    drawn_of: list[list[_Mini]] = []
    per_epoch = 1
    for part in _some(partition.parts):
        batches = SeedBatches(config.seed, part, partition.vertices(part), size, stretches, rounds, alike)
        per_epoch = batches.per_epoch
        many = min(max(min(window, WINDOW_DRAWN), DRAWN_BATCHES), per_epoch)
        drawn_of.append([_mini(facts, partition, batches.batch(number)) for number in range(many)])
    minis = [mini for drawn in drawn_of for mini in drawn]
    rows, edges, snapshots = (
        float(np.mean([getattr(mini, name) for mini in minis])) for name in ("rows", "edges", "snapshots")
    )
    here = config.parts // ranks
    every = np.full(ranks, float(per_epoch * here))
    fetched = _fetched_rows(facts, partition, drawn_of, per_epoch)
    row_bytes = float(4 * facts.graph.num_features)
    serving = np.zeros((ranks, ranks))
    if ranks > 1:
        between = fetched * row_bytes * per_epoch * here * (1 - (here - 1) / max(config.parts - 1, 1))
        serving = (np.ones((ranks, ranks)) - np.eye(ranks)) * between / (ranks - 1)
    most = max(minis, key=lambda mini: mini.rows)
    owners = float(np.mean([mini.owners for mini in minis])) if fetched else 0.0
    return plain_work(
        facts,
        steps=per_epoch,
        edges=edges * every,
        rows=rows * every,
        snapshots=snapshots * per_epoch * here,
        pieces=every,
        alive=np.tile([float(most.rows), float(most.edges)], (ranks, 1)),
        sent=serving,
        held_bytes=np.full(ranks, facts.graph_bytes / ranks),
        fetching=Fetching(owners, fetched * row_bytes, ahead=config["cache_policy"] != "on_demand"),
        notes=(f"means over {len(minis)} mini-batches drawn as a run draws them",),
    )


def _window(facts: Facts) -> int:
    """Batches that a cache serves; 1 where there is none."""
    policy = facts.config["cache_policy"]
    return 1 if policy in ("on_demand", "prefetch") else int(facts.config["cache_window"])


def _fetched_rows(facts: Facts, partition: Partition, drawn_of: list[list[_Mini]], per_epoch: int) -> float:
    """Remote rows that a part fetches in a step, on average."""
    asked = float(np.mean([len(mini.remote) for drawn in drawn_of for mini in drawn]))
    policy, window = facts.config["cache_policy"], _window(facts)
    if window == 1 and policy != "epoch_hot":
        return asked
    room = float(facts.config["cache_rows"])
    if policy == "epoch_hot":
        alone = facts.graph.num_nodes - float(partition.counts.mean())
        whole = alone * (1 if facts.graph.static_features else len(facts.train))
        return min(asked, min(whole, room) / per_epoch + asked * max(0.0, 1 - room / max(whole, 1.0)))
    served = [drawn[: min(window, len(drawn))] for drawn in drawn_of]
    once = float(np.mean([len(np.unique(np.concatenate([m.remote for m in some]))) / len(some) for some in served]))
    covered = min(1.0, room / max(once * min(window, WINDOW_DRAWN), 1.0))
    return once * covered + asked * (1 - covered)


def _mini(facts: Facts, partition: Partition, batch: TargetBatch) -> _Mini:
    """Rows and edges of a mini-batch, layer by layer from its targets; what it reads of other parts."""
    fanouts = fanouts_of(facts.config["fanouts"], facts.config.layers)
    rows = edges = 0
    remote: list[NDArray[np.int64]] = []
    owners: set[int] = set()
    for t in batch.snapshots:
        reached = np.asarray(batch.targets, np.int64)
        for layer in reversed(range(facts.config.layers)):
            for _ in range(max(facts.reach // facts.config.layers, 1)):
                key = sampling_key(facts.config.seed, batch.index, t, layer)
                drawn = sampled_edges(facts.graph.snapshots[t], reached, fanout=fanouts[layer], key=key)
                edges += len(drawn.indices)
                rows += len(reached)
                reached = np.union1d(reached, drawn.indices)
        of = partition.owner[reached]
        away = reached[of != batch.part]
        owners.update(np.unique(of[of != batch.part]).tolist())
        remote.append(away if facts.graph.static_features else away + t * facts.graph.num_nodes)
    return _Mini(rows, edges, len(batch.snapshots), np.unique(np.concatenate(remote)), len(owners))


def _alike(facts: Facts) -> bool:
    first = facts.snapshots[0]
    return all(first is other or first.equals(other) for other in facts.snapshots)


def _some(parts: int) -> list[int]:
    """Numbers of a few of the parts."""
    return np.unique(np.linspace(0, parts - 1, min(parts, DRAWN_PARTS)).astype(int)).tolist()


# Epochs of systems whose steps take whole snapshots: full batches by nodes, by snapshots, and snapshot groups.


PULLED_ALONE = ("per_vertex", "weights", "none")  # memories for which ranks send rows along edges and nothing else
LEAST_GROUPS = 2
FULL_ITERATIONS = ("round_robin", "consecutive")  # schedulers whose iterations are full, whatever groups take
_ALL = frozenset({"rows", "bytes"})


def single_work(facts: Facts) -> EpochWork:
    """One step of all snapshots on one rank."""
    edges, many = np.array([facts.edges.sum()], float), len(facts.train)
    rows = np.array([many * facts.graph.num_nodes], float)
    return plain_work(facts, steps=1, edges=edges, rows=rows, snapshots=float(many), exact=_ALL)


def group_work(facts: Facts) -> EpochWork:
    """Snapshot groups of the training split; who computes which follows from their times, and so later.

    References: DyGNeX sections 3 and 4.
    """
    config, ranks = facts.config, facts.ranks
    window, stride = int(config["group_window"]), int(config["group_stride"])
    starts = np.arange(0, len(facts.train) - window + 1, stride)
    if len(starts) < LEAST_GROUPS:
        raise PlanError(
            f"system={config.system!r}: {len(facts.train)} snapshots have no room for two groups of {window}. Set a "
            "smaller group_window, or cut the data finer."
        )
    running = np.concatenate([[0], np.cumsum(facts.edges)])
    edges = (running[starts + window] - running[starts]).astype(float)
    rows = np.full(len(starts), float(window * facts.graph.num_nodes))
    per_rank = int(config["groups_per_rank"])
    at_once = per_rank if config["pipelined"] else 1
    weighed = facts.passes(edges, rows, float(window), 1.0)
    sizes = weighed @ np.array(ASSUMED_COMPUTE)
    most = named(config["scheduler"], per_rank)[1]
    steps = len(solve(config["scheduler"], sizes, config.parts, per_rank=most, time_limit_s=1.0).assignment)
    fixed = steps == -(-len(starts) // (config.parts * most)) and config["scheduler"] in FULL_ITERATIONS
    alive = np.tile([rows[0] * at_once, float(edges.max()) * at_once], (ranks, 1))
    share = np.full(ranks, 1 / ranks)
    return plain_work(
        facts,
        steps=steps,
        edges=edges.sum() * share,
        rows=rows.sum() * share,
        snapshots=len(starts) * window * share,
        pieces=len(starts) * share,
        alive=alive,
        exact=frozenset({"bytes"}) if fixed else frozenset(),
        groups=GroupWork(weighed, str(config["scheduler"]), per_rank),
    )


def snapshot_work(facts: Facts) -> EpochWork:
    """Blocks of time, whose snapshots are shared out to ranks (ESDG); in the hybrid to groups of ranks.

    References: ESDG sections 3.1 and 4.2 (rerun and redistribution), 6.5 (hybrid).
    """
    config, ranks = facts.config, facts.ranks
    blocks, notes = int(config["blocks"]) or 1, _said(config)
    split = int(config["row_ranks"])
    plan = SnapshotBlocks(facts.train, blocks, ranks, facts.graph.num_nodes, split)
    # as a step of ESDG numbers the snapshots: from 0 on
    counted = SnapshotBlocks(range(len(facts.train)), blocks, ranks, facts.graph.num_nodes, split)
    pairs = facts.outputs if config["task"] == "link" else 0
    some = sent_legs(
        legs(
            config.model,
            facts.graph.num_features,
            config.hidden,
            config.layers,
            pairs=pairs,
            blocks=blocks,
            reuse=config["halo_reuse"],
            **facts.model_options,
        )
    )
    volume = redistributed(counted, some, config.layers)
    if split > 1:
        again = facts.memory in RERUN_MEMORIES
        volume = volume + pulled_by_groups(
            facts.graph.snapshots, plan, facts.pulled, rerun=again, reuse=config["halo_reuse"]
        )
    sent = sum((each.sum(axis=0) for each in volume.bytes(facts.itemsize).values()), np.zeros((ranks, ranks)))
    settings = StepSettings(
        config.model,
        facts.graph.num_features,
        config.hidden,
        config.layers,
        pairs=pairs,
        blocks=blocks,
        difference=config["difference"],
        reuse=config["halo_reuse"],
        itemsize=facts.itemsize,
        options=facts.model_options,
    )
    step = settings.work(sequence_changes(facts.snapshots), ranks)
    by_rank = _split_rows(step.passes, counted, facts) if split > 1 else step.passes
    passes = facts.weighed(np.column_stack([by_rank, np.full(ranks, float(blocks))]))
    rows, edges, alive = _shares(facts, counted)
    brought = step.brought if split == 1 and blocks > 1 and config["graphs"] == "brought" else np.zeros((ranks, 3))
    held = np.full(ranks, facts.graph_bytes / (ranks if split == 1 and blocks == 1 else 1))
    return EpochWork(
        system=config.system,
        steps=1,
        passes=passes,
        rows=rows,
        edges=edges,
        sent=np.asarray(sent, float),
        exchanges=max(step.exchanges - 1, 0) + 2 * len(facts.pulled) * (split > 1),
        gradient_bytes=float(facts.gradient_bytes),
        brought=brought,
        alive=alive,
        held_bytes=held,
        exact=_ALL if not config["overlap"] or ranks == 1 else frozenset({"rows"}),
        notes=notes,
    )


def halo_work(facts: Facts) -> EpochWork:
    """Nodes are owned by parts, which exchange the rows of remote neighbours at every pull.

    References: ESDG section 4.1; ADGNN-T as DynaHB section 7.1 has it.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    placed = partition if partition.parts == ranks else partition.on_ranks(ranks)
    measures = facts.measured(placed)
    blocks = max(int(config["blocks"]), 1)
    rows = np.asarray(measures.owned * float(len(facts.train)), np.float64)
    edges = measures.edges.sum(axis=0).astype(float)
    again = 0
    if blocks > 1 and facts.memory in RERUN_MEMORIES:
        plan = SnapshotBlocks(range(len(facts.train)), blocks, 1, facts.graph.num_nodes)
        again = len(facts.train) - len(plan.block(blocks - 1))
    if ranks == 1:
        sent: Numbers = np.zeros((1, 1))
    elif again:
        volume = between_parts(facts.snapshots, placed, facts.pulled, rerun_before=again, reuse=config["halo_reuse"])
        sent = np.asarray(sum(each.sum(axis=0) for each in volume.bytes(facts.itemsize).values()), float)
    else:
        described = predicted_bytes(measures, facts.pulled, itemsize=facts.itemsize, reuse=config["halo_reuse"])
        sent = np.asarray(sum(each.sum(axis=0) for each in described.values()), float)
    np.fill_diagonal(sent, 0.0)
    received = measures.halo.sum(axis=0) if ranks > 1 else np.zeros(1)
    share = 1 / blocks
    alive = np.stack([(rows + received) * share, edges * share], axis=1)
    exchanges = 0 if ranks == 1 else _stacks(facts, int(rows.max()) // len(facts.train)) * _exchanges(facts)
    repeat = 1 + again / len(facts.train) / 2  # a rerun is one of three passes
    return plain_work(
        facts,
        steps=1,
        edges=edges * repeat,
        rows=rows * repeat,
        snapshots=float(len(facts.train)),
        sent=sent,
        exchanges=exchanges,
        alive=alive,
        held_bytes=measures.halo_bytes.astype(float),
        exact=_ALL if config["blocks"] == 1 and facts.memory in PULLED_ALONE else frozenset(),
    )


def _stacks(facts: Facts, rows: int) -> int:
    """Runs of snapshots that a processor computes together, each with exchanges of its own."""
    from dtdg_lab.engine.graph_view import stack_ranges

    return len(stack_ranges(facts.train, rows=max(rows, 1), features=facts.graph.num_features, device="cpu"))


def _exchanges(facts: Facts) -> int:
    """Of one stack: every pull forward, and back those whose gradient is wanted."""
    return sum(1 + pull.learned for pull in facts.pulled)


def cached_work(facts: Facts) -> EpochWork:
    """Parts keep copies of their neighbours within all hops, and exchange gradients alone.

    References: DynaHB section 4.1; its baseline PyGT-Dist.
    """
    measures = facts.measured(facts.partition())
    own = np.asarray(measures.owned * float(len(facts.train)), np.float64)
    inner = (facts.reach - 1) / facts.reach  # of the copies, those that are more than read: all but the outermost hop
    rows = own + measures.replicated.sum(axis=0) * inner
    edges = measures.edges.sum(axis=0) + measures.replicated_edges.sum(axis=0).astype(float)
    by_rank = [on_ranks(each, facts.ranks) for each in (rows, edges, measures.cached_bytes.astype(float))]
    largest = np.stack([on_largest(rows, facts.ranks), on_largest(edges, facts.ranks)], axis=1)
    here = facts.config.parts // facts.ranks
    return plain_work(
        facts,
        steps=1,
        edges=by_rank[1],
        rows=by_rank[0],
        snapshots=float(len(facts.train) * here),
        pieces=float(here),
        alive=largest,
        held_bytes=by_rank[2],
        exact=frozenset({"bytes"}),
    )


def on_largest(of_parts: Numbers, ranks: int) -> Numbers:
    """The largest of the parts of each rank, which computes one after another; (P,) -> (R,)."""
    return np.asarray(np.asarray(of_parts, float).reshape(ranks, -1).max(axis=1))


def _said(config: RunConfig) -> tuple[str, ...]:
    found: tuple[str, ...] = ("blocks=0 is taken as one block",) if not config["blocks"] else ()
    if config["overlap"] and config.ranks > 1:
        found += (f"bytes lack the {FRONT_BYTES} in front of each piece that overlap sends",)
    return found


def _shares(facts: Facts, plan: SnapshotBlocks) -> tuple[Numbers, Numbers, Numbers]:
    """Rows and edges of each rank's own snapshots, and what the largest block keeps."""
    rows, edges = np.zeros(plan.ranks), np.zeros(plan.ranks)
    alive = np.zeros((plan.ranks, 2))
    for block in range(plan.blocks):
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            spatial = len(own) * len(plan.rows(rank))
            through = len(plan.chunk(rank)) * len(plan.block(block)) if facts.memory == "per_vertex" else 0
            pulled = float(facts.edges[own.start : own.stop].sum()) / plan.row_ranks
            rows[rank] += spatial
            edges[rank] += pulled
            alive[rank] = np.maximum(alive[rank], [max(spatial, through), pulled])
    return rows, edges, alive


def _split_rows(passes: Numbers, plan: SnapshotBlocks, facts: Facts) -> Numbers:
    """Passes of a hybrid: a rank has a share of the rows of its group's snapshots."""
    found = np.zeros((plan.ranks, 5))
    for block in range(plan.blocks):
        times = 2 + (facts.memory in RERUN_MEMORIES and block < plan.blocks - 1)
        length = len(plan.block(block))
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            through = len(plan.chunk(rank)) * length if facts.memory == "per_vertex" else 0
            edges = float(facts.edges[own.start : own.stop].sum()) / plan.row_ranks
            rows = len(own) * len(plan.rows(rank)) + through
            found[rank] += np.array([edges, rows, len(own), length, length]) * times
    return found


# Epochs of systems whose steps are windows of snapshots: trapezoids, whole windows, sampled windows.


EPOCHS = 4  # whose random cuts are averaged
DRAWN = 3  # snapshots in which sampled neighbours are counted
MOST_CHUNKS, LEAST_VERTICES = 128, 4  # of a part, and of a chunk, where their number is left open


def window_work(facts: Facts) -> EpochWork:
    """A step for each snapshot: a window that ends there, on nodes that ranks own.

    Rows follow from the windows of a few epochs. Edges of a decayed snapshot are taken as the square of the share of
    its rows, as if the chunks that stay were drawn at random: those of a clustering chunker keep more.

    References: FlareDTDG sections 3.2 to 3.5.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    placed = partition if partition.parts == ranks else partition.on_ranks(ranks)
    chunks = _chunks(facts, partition)
    shape = Trapezoid.of(config, chunks=chunks)
    if shape.window > len(facts.train):
        raise PlanError(
            f"window={shape.window} is beyond the {len(facts.train)} snapshots trained. Set a smaller window, or cut "
            "the data finer (cut=...)."
        )
    per_epoch = [
        epoch_batches(
            facts.train,
            seed=config.seed,
            epoch=epoch,
            window=shape.window,
            full_snapshots=shape.full,
            counts_newest_first=shape.counts,
        )
        for epoch in range(EPOCHS)
    ]
    batches = [batch for each in per_epoch for batch in each]
    share = 1 / EPOCHS
    owned, measures = placed.counts.astype(float), facts.measured(placed)
    rows_share = share * sum(_rows_share(batch, chunks) for batch in batches)
    of_snapshots = measures.edges.astype(float)
    each = np.array([_edges(batch, chunks, of_snapshots, facts.train.start) for batch in batches])
    edges = share * each.sum(axis=0)
    largest = max(batches, key=lambda batch: _rows_share(batch, chunks))
    alive = np.stack(
        [owned * _rows_share(largest, chunks), _edges(largest, chunks, of_snapshots, facts.train.start)], axis=1
    )
    snapshots = share * sum(len(batch.snapshots) for batch in batches)
    return plain_work(
        facts,
        steps=len(per_epoch[0]),
        edges=np.asarray(edges, float),
        rows=owned * rows_share,
        snapshots=snapshots,
        sent=_full_halo(facts, placed, batches) * share if ranks > 1 else np.zeros((1, 1)),
        alive=alive,
        exchanges=0 if ranks == 1 else round(share * 2 * len(facts.pulled) * sum(batch.full for batch in batches)),
        held_bytes=measures.halo_bytes.astype(float),
        notes=(
            f"means over the windows of {EPOCHS} epochs",
            *(("edges of decayed snapshots are an estimate",) if shape.counts else ()),
        ),
    )


def sampled_window_work(facts: Facts) -> EpochWork:
    """As many steps, of whole windows with sampled in-neighbours; copies of these are drawn, and nothing is sent.

    References: DynaGraph, as FlareDTDG sections 2.2 and 4.1 describe it.
    """
    config = facts.config
    length, fanout = int(config["window"]), int(config["fanout"])
    targets = range(len(facts.train))
    windows = [range(max(0, target - length + 1), target + 1) for target in targets]
    counted = sum(len(window) if facts.memory == "per_vertex" else 1 for window in windows)
    partition = facts.partition()
    order = generator(config.seed, "dynagraph/deal", 0).permutation(len(partition.owner))
    dealt = Partition(partition.owner[order], partition.parts)
    copies, edges = _copies(facts, dealt, fanout)
    inner = (facts.reach - 1) / facts.reach  # the outermost copies are read alone
    rows = (partition.counts + copies * inner) * float(counted)
    pulled = edges * float(counted)
    per_step = max(len(window) for window in windows) / max(counted, 1)
    ranks = facts.ranks
    alive = np.stack([on_largest(rows * per_step, ranks), on_largest(pulled * per_step, ranks)], axis=1)
    here = config.parts // ranks
    snapshots = float(sum(map(len, windows)) * here)
    return plain_work(
        facts,
        steps=len(windows),
        edges=on_ranks(pulled, ranks),
        rows=on_ranks(rows, ranks),
        snapshots=snapshots,
        pieces=float(len(windows) * here),
        alive=alive,
        exact=frozenset({"bytes"}),
        notes=(f"copies of sampled neighbours are those drawn in {DRAWN} snapshots",),
    )


def _chunks(facts: Facts, partition: Partition) -> int:
    """C of each part: as a run takes it where it is left open."""
    if "chunks" not in facts.config.options["batching"]:
        return 1
    fitting = max(1, min(MOST_CHUNKS, int(partition.counts.min()) // LEAST_VERTICES))
    return int(facts.config["chunks"]) or fitting


def _rows_share(batch: HybridBatch, chunks: int) -> float:
    """Snapshots' worth of rows in a batch."""
    return batch.full + sum(batch.counts) / chunks


def _edges(batch: HybridBatch, chunks: int, edges: Numbers, first: int) -> Numbers:
    """(R,) edges of a batch by rank; ``edges`` is (S, R) of whole snapshots."""
    shares = np.array([*((count / chunks) ** 2 for count in batch.counts), *[1.0] * batch.full])
    own = edges[batch.snapshots.start - first : batch.snapshots.stop - first]
    return np.asarray(shares @ own, float)


def _full_halo(facts: Facts, placed: Partition, batches: list[HybridBatch]) -> Numbers:
    """(R, R) bytes of halo rows of the full snapshots of some batches, forward and backward."""
    times = np.zeros(len(facts.train))
    for batch in batches:
        newest = batch.snapshots.stop - facts.train.start
        times[newest - batch.full : newest] += 1
    sent = np.zeros((facts.ranks, facts.ranks))
    by_way = {way: pulled_rows(facts.snapshots, placed, way) for way in edge_ways(facts.config)}
    for pull in facts.pulled:
        rows = np.tensordot(times, by_way[pull.way], axes=1) * (pull.width * facts.itemsize)
        ahead = pull.learned or not facts.config["halo_reuse"]
        sent += rows * ahead + rows.T * pull.learned
    return sent


def _copies(facts: Facts, dealt: Partition, fanout: int) -> tuple[Numbers, Numbers]:
    """(P,) copies of remote neighbours and edges drawn in a mean snapshot, all layers together."""
    places = np.unique(np.linspace(0, len(facts.train) - 1, DRAWN).astype(int))
    copies, edges = np.zeros(dealt.parts), np.zeros(dealt.parts)
    everyone = np.arange(facts.graph.num_nodes)
    for place in places:
        snapshot = facts.snapshots[place]
        for layer in range(facts.config.layers):
            key = sampling_key(facts.config.seed, 0, facts.train.start + int(place), layer)
            drawn = sampled_edges(snapshot, everyone, fanout=fanout, key=key)
            own = np.repeat(dealt.owner, np.diff(drawn.indptr))
            edges += np.bincount(own, minlength=dealt.parts) / len(places)
            if layer == 0:
                pulled = Snapshot.trusted(give_up(drawn.indptr), give_up(drawn.indices))
                copies += pulled_rows([pulled], dealt, "in")[0].sum(axis=0) / len(places)
    return copies * facts.config.layers, edges


# The work of an epoch by a config's system: which count serves which layout.


_OF_LAYOUT: Mapping[str, Callable[[Facts], EpochWork]] = MappingProxyType(
    {
        "single": single_work,
        "snapshot_group": group_work,
        "snapshot": snapshot_work,
        "halo_vertex": halo_work,
        "halo_window": window_work,
        "sampled_window": sampled_window_work,
        "remote_feature": remote_work,
    }
)


def count_work(config: RunConfig, graph: DynamicGraph) -> tuple[EpochWork, Facts]:
    """What each rank does in an epoch, and the facts that it follows from; nothing is trained.

    Args:
        config: with its number of ranks and parts.
        graph: its data.

    Raises:
        LabError: the graph does not serve the config: too short, too few nodes, a partitioner that fails.
    """
    facts = facts_of(config, graph)
    of = catalogue.system(config.system).parts
    if of["parallel"] == "cached_vertex":
        return (hybrid_work if "batching" in of else cached_work)(facts), facts
    return _OF_LAYOUT[of["parallel"]](facts), facts
