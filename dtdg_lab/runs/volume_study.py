"""``lab.compare_volumes``: numbers sent in a step by snapshot and by hypergraph vertex partition, without any ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.model_pulls import Pull, pulls
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.core.units import format_seconds
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.model_smoothing import averaged
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.make import make_partition
from dtdg_lab.partition.snapshot_legs import RERUN_MEMORIES, Leg, legs
from dtdg_lab.partition.snapshot_volume import between_parts, leg_rows, redistributed
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.volume import crossing, volume_figure

if TYPE_CHECKING:
    import pandas as pd

MODELS = ("tmgcn", "cdgcn", "evolvegcn-o")
RANKS = (2, 4, 16, 64)
SMOOTHED = ("tmgcn", "evolvegcn-o", "evolvegcn-h")  # by the M-transform, or by edges that live on: the same edges
LINK_OUTPUTS = 2  # numbers of a vertex that pairs are scored from, by the paper's linear head
# ESDG's Table 2: ranks -> (snapshot, hypergraph), in billions of numbers; None: it did not run
PAPER: Mapping[str, Mapping[int, tuple[float, float | None]]] = MappingProxyType(
    {
        "tmgcn": MappingProxyType({4: (5.2, 3.2), 16: (6.5, 6.8), 64: (6.8, 9.5)}),
        "cdgcn": MappingProxyType({4: (13.8, 0.4), 16: (17.3, 0.9), 64: (18.1, 1.2)}),
        "evolvegcn-o": MappingProxyType({4: (0.0, None), 16: (0.0, 5.0), 64: (0.0, 6.9)}),
    }
)
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "snapshot": "numbers that a step sends by snapshot partition, as systems esdg counts them",
        "snapshot_as_paper": "the same by the paper's rule: six legs a layer (four in one block, which is not "
        "computed again), of the width of what it sends; its "
        "Table 2 has half of that for tmgcn, which it transforms only between the two layers",
        "hypergraph": "the same by hypergraph vertex partition: halo rows of forward, rerun and backward",
        "ratio": "hypergraph over snapshot; missing where snapshot partition sends nothing",
        "paper_ratio": "the same in the paper's Table 2, on AMLSim",
        "edges": "edges of the snapshots counted, after smoothing",
        "partition_s": "seconds that making the hypergraph partition took; paid once",
    }
)


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """One model on one number of ranks; ``MEANINGS`` says what the numbers are."""

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
class VolumeStudy:
    """Volumes of one graph by model and number of ranks.

    Attributes:
        outcomes: in the order of models, then ranks.
        legs: model -> every leg of a step, ours beside the paper's, with the reason of each difference.
        told: what was counted, in words.
    """

    outcomes: tuple[VolumeRow, ...]
    legs: Mapping[str, tuple[Leg, ...]]
    told: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Plain values, one row for each model and number of ranks."""
        return [{field.name: getattr(each, field.name) for field in fields(VolumeRow)} for each in self.outcomes]

    @property
    def figure(self) -> Figure:
        """Numbers sent over ranks, by both, a panel for each model, as a plotly figure dict."""
        return volume_figure(self.rows)

    def leg_rows(self) -> list[dict[str, Any]]:
        """Plain values, one row for each leg: ``model``, ``layer``, ``way``, ``leg``, ``width``, ``paper``, ``why``."""
        shown = ("layer", "way", "leg", "width", "paper", "why")
        return [{"model": model} | {name: getattr(leg, name) for name in shown}
                for model, some in self.legs.items() for leg in some]  # fmt: skip

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __repr__(self) -> str:
        lines = [self.told, f"{'model':<12}{'ranks':>6}{'snapshot':>14}{'as paper':>14}{'hypergraph':>14}"
                            f"{'ratio':>8}{'paper':>8}{'made in':>10}"]  # fmt: skip
        for row in self.outcomes:
            lines.append(
                f"{row.model:<12}{row.ranks:>6}{row.snapshot:>14,}{row.snapshot_as_paper:>14,}{row.hypergraph:>14,}"
                f"{_short(row.ratio):>8}{_short(row.paper_ratio):>8}{format_seconds(row.partition_s):>10}"
            )
        models = dict.fromkeys(row.model for row in self.outcomes)
        return "\n".join([*lines, *(crossing([row for row in self.rows if row["model"] == name]) for name in models)])

    def _repr_html_(self) -> str:
        """The table with what its columns mean; ``lab.plot(study.figure)`` draws it."""
        said = "".join(f"<li><b>{name}</b>: {meaning}</li>" for name, meaning in MEANINGS.items())
        shown = self.to_pandas().to_html(na_rep="", index=False, float_format=lambda value: f"{value:.4g}")
        return f"<p>{self.told}</p>{shown}<ul style='font-size:90%'>{said}</ul>"


def compare_volumes(
    graph: DynamicGraph,
    model: str | Sequence[str] = MODELS,
    ranks: Sequence[int] = RANKS,
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
    """Count exactly what a step sends by snapshot and by hypergraph vertex partition, for numbers of ranks at will.

    Nothing is trained. Gradients of parameters, which both all-reduce, are in neither count.

    Args:
        graph: T snapshots, not smoothed yet.
        model: a name of the catalogue, or several.
        ranks: R; at most N each.
        hidden: H of the model.
        layers: of the model.
        blocks: nb, blocks of time for both; as many as there are training snapshots where these are fewer.
        smoothing: snapshots whose edges a smoothed one holds: w of TM-GCN, l of EvolveGCN; others take the graph as is.
        pairs: numbers of a vertex that pairs are scored from: 2 for the paper's link prediction; 0 where the loss is a
            sum over vertices.
        protocol: whose training snapshots are counted.
        seed: of the partitioner.
        imbalance: that the partitioner may leave.

    Raises:
        ConfigError: a name or value is not allowed.
        UnsupportedError: snapshot partition cannot carry the model's memory.
        PlanError: there are more ranks than vertices.
        NotAvailableError: mtkahypar is not installed.

    References: ESDG section 6.4, Table 2 (PaToH there, Mt-KaHyPar here).
    """
    models, numbers = [model] if isinstance(model, str) else list(model), list(ranks)
    _check(graph, models, numbers, smoothing=smoothing, pairs=pairs, blocks=blocks, protocol=protocol)
    hidden, layers = OPTIONS["hidden"].check(hidden), OPTIONS["layers"].check(layers)
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[protocol]).train
    many, features = min(blocks, len(train)), graph.num_features
    of_model = {name: legs(name, features, hidden, layers, pairs=pairs, blocks=many) for name in dict.fromkeys(models)}
    plans = [SnapshotBlocks(train, many, count, graph.num_nodes) for count in numbers]
    smooths = [name for name in of_model if name in SMOOTHED]
    smooth = smoothed(graph, smoothing) if smooths else graph
    outcomes = []
    for name, plan in product(of_model, plans):
        on, pulled = smooth if name in smooths else graph, pulls(name, features, hidden, layers)
        made = make_partition("hypergraph", on, plan.ranks, seed=seed, imbalance=imbalance)
        outcomes.append(_row(name, on, plan, some=of_model[name], pulled=pulled, made=made))
    size = f"{graph.num_nodes:,} vertices with {features} features; {layers} layer{'s' * (layers > 1)}, hidden {hidden}"
    told = (
        f"Numbers sent in one step of {len(train)} snapshots in {many} block{'s' * (many > 1)} of {graph.name!r}, "
        f"{size}; edges live {smoothing} snapshots for {', '.join(smooths) or 'no model'}."
    )
    return VolumeStudy(tuple(outcomes), MappingProxyType(of_model), told)


def _check(graph: Any, models: list[str], ranks: list[int], *, protocol: str, **least: int) -> None:
    if not isinstance(graph, DynamicGraph):
        raise ConfigError(f"compare_volumes() got {shortened(graph)}; a graph is needed: lab.load_dataset(name).")
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    if not models or not ranks:
        raise ConfigError(f"models={models}, ranks={ranks}: at least one of each is needed.")
    for name, value in least.items():
        if value < (name != "pairs"):
            raise ConfigError(f"{name}={value}: at least {int(name != 'pairs')} is needed.")


def _row(
    name: str,
    graph: DynamicGraph,
    plan: SnapshotBlocks,
    *,
    some: Sequence[Leg],
    pulled: Sequence[Pull],
    made: Partition,
) -> VolumeRow:
    """Both counts of one model and number of ranks."""
    train, layers = plan.snapshots, 1 + max(pull.layer for pull in pulled)
    again = catalogue.entry("models", name).memory in RERUN_MEMORIES
    before_last = len(train) - len(plan.block(plan.blocks - 1))
    trained = graph.snapshots[train.start : train.stop]
    halo = between_parts(trained, made, pulled, rerun_before=before_last if again else 0).total
    ours = redistributed(plan, some, layers).total
    return VolumeRow(
        model=name, ranks=plan.ranks, snapshot=ours, snapshot_as_paper=_as_paper(plan, some), hypergraph=halo,
        ratio=halo / ours if ours else None, paper_ratio=_paper_ratio(name, plan.ranks),
        edges=sum(snapshot.num_edges for snapshot in trained), partition_s=made.seconds,
    )  # fmt: skip


def smoothed(graph: DynamicGraph, window: int) -> DynamicGraph:
    """The graph whose snapshots hold the edges of the last ``window`` snapshots, weighted by their mean.

    As M-transform and edge life leave them, up to the weights, which no count reads; features stay as they are.
    """
    snapshots = tuple(averaged(graph.snapshots, window))
    return replace(graph, snapshots=snapshots, name=f"{graph.name}, {window} snapshots smoothed", counts=None)


def _as_paper(plan: SnapshotBlocks, some: Sequence[Leg]) -> int:
    """Six legs a layer over all snapshots, the two of the rerun included; one block has no rerun, and four legs."""
    paid = (leg.paper for leg in some if leg.way != "rerun" or plan.blocks > 1)
    return int(leg_rows(plan, "to_vertices").sum()) * sum(paid)


def _paper_ratio(model: str, ranks: int) -> float | None:
    snapshot, hypergraph = PAPER.get(model, {}).get(ranks, (0.0, None))
    return hypergraph / snapshot if hypergraph is not None and snapshot else None


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
