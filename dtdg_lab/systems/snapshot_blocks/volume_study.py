"""Values sent in a step by snapshot and by hypergraph node partitioning, counted without running ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import ModelFacts, model_facts
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.graphs.windowing import averaged
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.redistribution_volume import (
    AllToAllCost,
    collective_rows,
    collectives,
    redistributed,
)
from dtdg_lab.partition.volume import RERUN_MEMORIES, between_parts
from dtdg_lab.systems.snapshot_blocks import forecast_charts
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.studies.result import StudyResult

if TYPE_CHECKING:
    pass


MODELS = ("tmgcn", "cdgcn", "evolvegcn-o")
VOLUME_RANKS = (2, 4, 16, 64)
SMOOTHED = ("tmgcn", "evolvegcn-o", "evolvegcn-h")  # by M-transform or longer edge life, with the same edges
LINK_OUTPUTS = 2  # outputs per node that the paper's linear head scores pairs from
# ESDG's Table 2: ranks -> (snapshot, hypergraph), in billions of values; None if it did not run
PAPER: Mapping[str, Mapping[int, tuple[float, float | None]]] = MappingProxyType(
    {
        "tmgcn": MappingProxyType({4: (5.2, 3.2), 16: (6.5, 6.8), 64: (6.8, 9.5)}),
        "cdgcn": MappingProxyType({4: (13.8, 0.4), 16: (17.3, 0.9), 64: (18.1, 1.2)}),
        "evolvegcn-o": MappingProxyType({4: (0.0, None), 16: (0.0, 5.0), 64: (0.0, 6.9)}),
    }
)
VOLUME_MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_blocks"]["columns"]["volumes"])


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """The counts of one model on one number of ranks; ``VOLUME_MEANINGS`` describes the columns."""

    model: str
    ranks: int
    snapshot: int
    snapshot_as_paper: int
    hypergraph: int
    ratio: float | None
    paper_ratio: float | None
    edges: int
    partition_s: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VolumeStudy(StudyResult):
    """Volumes of one graph by model and number of ranks.

    Attributes:
        outcomes: in the order of models, then ranks.
        collectives: model -> collectives of a step, ours beside the paper's, with the reason of each difference.
        described: title of the study.
    """

    outcomes: tuple[VolumeRow, ...]
    collectives: Mapping[str, tuple[AllToAllCost, ...]]
    described: str
    meanings = VOLUME_MEANINGS
    digits = 3

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per model and number of ranks."""
        return [asdict(outcome) for outcome in self.outcomes]

    @property
    def figure(self) -> Figure:
        """Values sent by number of ranks, by both methods, with a panel per model, as a plotly figure."""
        return forecast_charts.volume_figure(self.rows)

    def collective_rows(self) -> list[dict[str, Any]]:
        """Return one row per model and collective of a step, with the reason of each difference."""
        columns = ("layer", "pass_name", "collective", "width", "paper", "why")
        return [
            {"model": model} | {name: getattr(cost, name) for name in columns}
            for model, some in self.collectives.items()
            for cost in some
        ]

    def conclusion(self) -> str:
        """Return a sentence per model on the partitioning that sends less."""
        models = dict.fromkeys(row.model for row in self.outcomes)
        return "\n".join(
            forecast_charts.crossing([row for row in self.rows if row["model"] == name]) for name in models
        )


def estimate_volumes(
    graph: DynamicGraph,
    model: str | Sequence[str] = MODELS,
    ranks: Sequence[int] = VOLUME_RANKS,
    *,
    hidden: int = 6,
    layers: int = 2,
    blocks: int = 4,
    smoothing: int = 5,
    pairs: int = LINK_OUTPUTS,
    protocol: str = "warm",
    seed: int = 0,
    imbalance: float = 0.03,
) -> VolumeStudy:
    """Count exactly what a step sends under snapshot and hypergraph node partitioning, for any numbers of ranks.

    Nothing is trained. Neither count includes parameter gradients, which both all-reduce.

    Args:
        graph: T unsmoothed snapshots.
        model: a name of the catalogue, or several.
        ranks: R; at most N each.
        hidden: H of the model.
        layers: layers of the model.
        blocks: nb, time blocks for both; at most the number of training snapshots.
        smoothing: number of snapshots whose edges a smoothed one combines: w of TM-GCN, l of EvolveGCN; other models
            use the graph unchanged.
        pairs: outputs per node that pairs are scored from: 2 for the paper's link prediction; 0 if the loss is a sum
            over nodes.
        protocol: protocol whose training snapshots are counted.
        seed: seed of the partitioner.
        imbalance: allowed imbalance of the partition.

    Raises:
        ConfigError: a name or value is invalid.
        UnsupportedError: snapshot partitioning does not support the model's recurrence.
        PlanError: there are more ranks than nodes.
        NotAvailableError: mtkahypar is not installed.

    References: ESDG section 6.4, Table 2 (PaToH there, Mt-KaHyPar here).
    """
    models, numbers = [model] if isinstance(model, str) else list(model), list(ranks)
    _check_volume_study(graph, models, numbers, smoothing=smoothing, pairs=pairs, blocks=blocks, protocol=protocol)
    hidden, layers = OPTIONS["hidden"].check(hidden), OPTIONS["layers"].check(layers)
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[protocol]).train
    many, features = min(blocks, len(train)), graph.num_features
    of_model = {
        name: collectives(name, features, hidden, layers, pairs=pairs, blocks=many) for name in dict.fromkeys(models)
    }
    plans = [SnapshotBlocks(train, many, count, graph.num_nodes) for count in numbers]
    smooths = [name for name in of_model if name in SMOOTHED]
    smooth = smoothed(graph, smoothing) if smooths else graph
    outcomes = []
    for name, plan in product(of_model, plans):
        on, facts = smooth if name in smooths else graph, model_facts(name, features, hidden, layers)
        partition = make_partition("hypergraph", on, plan.ranks, snapshots=train, seed=seed, imbalance=imbalance)
        outcomes.append(_row_volume_study(name, on, plan, some=of_model[name], facts=facts, partition=partition))
    size = f"{graph.num_nodes:,} nodes with {features} features; {layers} layer{'s' * (layers > 1)}, hidden {hidden}"
    described = (
        f"Values sent in one step of {len(train)} snapshots in {many} block{'s' * (many > 1)} of {graph.name!r}, "
        f"{size}; edges live {smoothing} snapshots for {', '.join(smooths) or 'no model'}."
    )
    return VolumeStudy(tuple(outcomes), MappingProxyType(of_model), described)


def _check_volume_study(graph: Any, models: list[str], ranks: list[int], *, protocol: str, **minima: int) -> None:
    if not isinstance(graph, DynamicGraph):
        raise ConfigError(f"graph={shortened(graph)} is not a graph. Give one, such as lab.datasets.load(name).")
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    if not models or not ranks:
        raise ConfigError(f"models={models}, ranks={ranks}: give at least one of each.")
    for name, value in minima.items():
        if value < (name != "pairs"):
            raise ConfigError(f"{name}={value} is too small: give at least {int(name != 'pairs')}.")


def _row_volume_study(
    name: str,
    graph: DynamicGraph,
    plan: SnapshotBlocks,
    *,
    some: Sequence[AllToAllCost],
    facts: ModelFacts,
    partition: Partition,
) -> VolumeRow:
    """Return both counts of one model and number of ranks."""
    train, layers = plan.snapshots, len(facts.layer_hops)
    is_rerun = facts.memory in RERUN_MEMORIES
    before_last = len(train) - len(plan.block(plan.blocks - 1))
    trained = graph.snapshots[train.start : train.stop]
    halo = between_parts(trained, partition, facts.pulls, rerun_before=before_last if is_rerun else 0).total
    ours = redistributed(plan, some, layers).total
    return VolumeRow(
        model=name,
        ranks=plan.ranks,
        snapshot=ours,
        snapshot_as_paper=_as_paper(plan, some),
        hypergraph=halo,
        ratio=halo / ours if ours else None,
        paper_ratio=_paper_ratio(name, plan.ranks),
        edges=sum(snapshot.num_edges for snapshot in trained),
        partition_s=partition.seconds,
    )


def smoothed(graph: DynamicGraph, window: int) -> DynamicGraph:
    """Return the graph whose snapshots have the edges of the last ``window`` snapshots, weighted by their mean.

    Like M-transform and edge life, except for the weights, which no count uses; features stay unchanged.
    """
    snapshots = tuple(averaged(graph.snapshots, window))
    return replace(graph, snapshots=snapshots, name=f"{graph.name}, {window} snapshots smoothed", counts=None)


def _as_paper(plan: SnapshotBlocks, some: Sequence[AllToAllCost]) -> int:
    """Count as the paper: six all-to-all phases per layer over all snapshots, two of them recomputed; else four."""
    paid = (cost.paper for cost in some if cost.pass_name != "rerun" or plan.blocks > 1)
    return int(collective_rows(plan, "to_vertices").sum()) * sum(paid)


def _paper_ratio(model: str, ranks: int) -> float | None:
    snapshot, hypergraph = PAPER.get(model, {}).get(ranks, (0.0, None))
    return hypergraph / snapshot if hypergraph is not None and snapshot else None
