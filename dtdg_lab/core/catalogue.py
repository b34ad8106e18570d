"""The catalogue: one entry per algorithm and data set, and systems as compositions of entries.

ALGORITHMS.md is generated from it. Targets are strings, so that listing entries imports no algorithm.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError, UnsupportedError

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One algorithm or data set: its code, its source, and the options it reads.

    Attributes:
        name: its name in a config.
        kind: such as ``models`` or ``scheduling``; also the group of its options in a config.
        target: module and attribute as text, so that listing it does not import it.
        summary: one sentence.
        source: paper and section, or data collection.
        options: names of the options it reads.
        memory: the state that a model carries between snapshots; empty for other kinds.
        defaults: values of options that replace the glossary's defaults.
        tasks: the tasks that a data set has labels for; empty for other kinds.
    """

    name: str
    kind: str
    target: str
    summary: str
    source: str
    options: tuple[str, ...] = ()
    memory: str = ""
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    tasks: tuple[str, ...] = ()

    def load(self) -> Any:
        """Import and return the class, function or definition this entry names."""
        return _load(self.target)


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A training system: a choice of one entry per kind, with the options whose defaults it changes.

    Attributes:
        family: the one of :data:`FAMILIES` that builds and shows it.
    """

    name: str
    family: str
    parts: Mapping[str, str]
    summary: str
    source: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    differs_by: str = ""


# Models, tasks and layouts.


def _model(name: str, target: str, memory: str, summary: str, source: str, *options: str) -> Entry:
    return Entry(
        name=name,
        kind="models",
        target=f"dtdg_lab.models.{target}",
        memory=memory,
        summary=summary,
        source=source,
        options=options,
    )


MODELS: tuple[Entry, ...] = (
    _model(
        "tgcn",
        "tgcn:TGCN",
        "per_vertex",
        "Graph convolution, then a GRU per node; the hidden state is never convolved.",
        "Zhao et al. 2019 (T-GCN), section III-C",
        "gc_layers",
    ),
    _model(
        "wdgcn",
        "gcn_lstm:WDGCN",
        "per_vertex",
        "Graph convolution, then an LSTM per node.",
        "Manessi, Rozza, Manzo 2020 (Waterfall Dynamic-GCN); DyGNeX section 5.1",
    ),
    _model(
        "gatlstm",
        "gcn_lstm:GATLSTM",
        "per_vertex",
        "Graph attention, then an LSTM per node.",
        "Velickovic et al. 2018 (GAT), equations 1 to 5; DyGNeX section 5.1",
        "heads",
    ),
    _model(
        "cdgcn",
        "gcn_lstm:CDGCN",
        "per_vertex",
        "Aggregated features concatenated with their convolution, then an LSTM per node.",
        "Manessi, Rozza, Manzo 2020 (CD-GCN); ESDG section 5.1",
    ),
    _model(
        "mpnn-lstm",
        "gcn_lstm:MPNNLSTM",
        "per_vertex",
        "Two graph convolutions whose outputs are concatenated, then two stacked LSTMs per node.",
        "Panagopoulos, Nikolentzos, Vazirgiannis 2021 (MPNN+LSTM)",
    ),
    _model(
        "tmgcn",
        "tmgcn:TMGCN",
        "per_vertex",
        "Graph convolution, then the mean of the last activations; no temporal parameters are learned.",
        "Malik et al. 2021 (TM-GCN); ESDG section 5.3",
        "transform_window",
    ),
    _model(
        "evolvegcn-o",
        "evolvegcn:EvolveGCNO",
        "weights",
        "Graph convolution whose weights evolve through time by an LSTM; nodes carry no state.",
        "Pareja et al. 2020 (EvolveGCN), section 3.2",
    ),
    _model(
        "evolvegcn-h",
        "evolvegcn:EvolveGCNH",
        "weights_from_data",
        "Graph convolution whose weights evolve by a GRU fed with the most important nodes' features.",
        "Pareja et al. 2020 (EvolveGCN), section 3.2",
    ),
    _model(
        "dcrnn",
        "dcrnn:DCRNN",
        "neighbourhood",
        "A GRU whose gates diffuse features and hidden state along edges in both directions.",
        "Li et al. 2018 (DCRNN), equations 2 and 3",
        "diffusion_steps",
    ),
    _model(
        "graphsage",
        "graphsage:GraphSAGE",
        "none",
        "A node's features and the mean of its in-neighbours; no state is carried over time.",
        "Hamilton, Ying, Leskovec 2017 (GraphSAGE), algorithm 1, mean",
    ),
)

TASKS: tuple[Entry, ...] = (
    Entry(
        name="regression",
        kind="tasks",
        target="dtdg_lab.tasks.regression:Regression",
        summary="Squared error of every node's next log-degree, or of the value the data set gives.",
        source="DynaHB and FlareDTDG, released code",
    ),
    Entry(
        name="classification",
        kind="tasks",
        target="dtdg_lab.tasks.classification:Classification",
        summary="Cross-entropy of the classes of labelled nodes.",
        source="DynaHB section 7 (Cora-T, Pubmed-T); EvolveGCN section 4.2 (Elliptic)",
    ),
    Entry(
        name="link",
        kind="tasks",
        target="dtdg_lab.tasks.link_prediction:LinkPrediction",
        summary="Predicts the edges of the next snapshot against random node pairs that depend only on the edges.",
        source="ESDG section 6; ranks as in TGB 2023",
        options=("link_share", "negatives", "ranking_negatives", "link_head"),
    ),
)

LAYOUTS: tuple[Entry, ...] = (
    Entry(
        name="single",
        kind="parallel",
        target="dtdg_lab.systems.single.strategy:SingleStrategy",
        summary="The whole training sequence as one batch in one process: the reference.",
        source="ours",
    ),
    Entry(
        name="snapshot_group",
        kind="parallel",
        target="dtdg_lab.systems.snapshot_groups.strategy:SnapshotGroupStrategy",
        summary="Each part computes whole groups of consecutive snapshots; gradients are summed over ranks.",
        source="DyGNeX sections 3 and 4",
        options=("group_window", "group_stride", "loss_at", "pipelined"),
    ),
    Entry(
        name="halo_vertex",
        kind="parallel",
        target="dtdg_lab.systems.vertex_parts.strategy:HaloStrategy",
        summary="Each part owns nodes in all snapshots; halo rows are exchanged for every aggregation.",
        source="ADGNN-T as DynaHB section 7.1 has it; ESDG section 4.1 (node partitioning)",
        options=("halo_reuse", "blocks", "memory_gib"),
    ),
    Entry(
        name="snapshot",
        kind="parallel",
        target="dtdg_lab.systems.snapshot_blocks.strategy:SnapshotBlockStrategy",
        summary="Each part computes whole snapshots, then some nodes through time; an all-to-all redistributes rows.",
        source="ESDG section 4.2; row-wise hybrid and overlap: section 6.5, which leaves them open",
        options=("blocks", "memory_gib", "overlap", "graphs", "difference", "row_ranks", "halo_reuse"),
    ),
    Entry(
        name="cached_vertex",
        kind="parallel",
        target="dtdg_lab.systems.vertex_parts.strategy:ReplicatedStrategy",
        summary="Each part owns nodes and replicates their L-hop neighbours; only gradients are exchanged.",
        source="DynaHB section 4.1 (L-layer cache); its baseline PyGT-Dist",
        options=("cache_gib",),
    ),
    Entry(
        name="halo_window",
        kind="parallel",
        target="dtdg_lab.systems.decayed_windows.strategy:DecayedWindowStrategy",
        summary="Each part owns nodes; a step is a window of snapshots. Full snapshots exchange halo rows, "
        "decayed ones do not.",
        source="FlareDTDG sections 3.2 to 3.4",
        options=("overlap", "halo_reuse", "loss_at"),
    ),
    Entry(
        name="sampled_window",
        kind="parallel",
        target="dtdg_lab.systems.decayed_windows.sampled:SampledWindowStrategy",
        summary="Nodes are reassigned to parts in every epoch; each part copies what it samples. A step is a window.",
        source="DynaGraph (Guan et al. 2022), as FlareDTDG sections 2.2 and 4.1 describe it",
    ),
    Entry(
        name="remote_feature",
        kind="parallel",
        target="dtdg_lab.systems.feature_cache.strategy:RemoteFeatureStrategy",
        summary="Each part trains on mini-batches of its own nodes; features of remote nodes are fetched from "
        "their owners by remote procedure calls.",
        source="GreenDyGNN sections II and V, on DistDGL (Zheng et al. 2020)",
    ),
)


# Batching: which snapshots a step uses, and how much of each.


_TRAPEZOID = (
    "window",
    "full_snapshots",
    "alpha",
    "decay",
    "late_state",
    "chunks",
    "chunker",
    "tune",
    "tune_every",
    "tune_memory_gib",
)

BATCHINGS: tuple[Entry, ...] = (
    Entry(
        name="trapezoid",
        kind="batching",
        target="dtdg_lab.systems.decayed_windows.window:hybrid_batch",
        summary="The newest snapshots of a window in full; older ones keep fewer and fewer chunks of their nodes.",
        source="FlareDTDG section 3.2",
        options=_TRAPEZOID,
    ),
    Entry(
        name="full_window",
        kind="batching",
        target="dtdg_lab.systems.decayed_windows.window:hybrid_batch",
        summary="All snapshots of a window in full.",
        source="FlareDTDG section 4.3 (Full-History; Recent-Only where there are two)",
        options=("window",),
    ),
    Entry(
        name="sampled_window",
        kind="batching",
        target="dtdg_lab.engine.minibatches:sampled_edges",
        summary="All snapshots of a window, with a few sampled in-neighbours per node.",
        source="DynaGraph (Guan et al. 2022), as FlareDTDG section 4 describes it",
        options=("window", "fanout"),
    ),
    Entry(
        name="hybrid",
        kind="batching",
        target="dtdg_lab.systems.hybrid_batches.batches:TargetSampler",
        summary="Some target nodes in some consecutive snapshots, with all neighbours within L hops.",
        source="DynaHB section 5, definition 3",
        options=(
            "batch_snapshots",
            "batch_vertices",
            "load_groups",
            "epoch_batches",
            "reservoir",
            "reservoir_gib",
            "reservoir_uses",
            "generators",
            "stand_in_gib",
        ),
    ),
    Entry(
        name="neighbours",
        kind="batching",
        target="dtdg_lab.engine.minibatches:SeedBatches",
        summary="Some target nodes of a part in some consecutive snapshots, with sampled in-neighbours per layer.",
        source="Hamilton, Ying, Leskovec 2017 (GraphSAGE), as GreenDyGNN section VI-A trains it",
        options=("batch_size", "batch_length", "fanouts", "sampler"),
    ),
)


# Data sets: published files, static graphs made dynamic, and generators.


_READ = {  # options by kind of data set
    "edges": (
        "cut",
        "cut_by",
        "interval",
        "edge_life",
        "smoothing_window",
        "drop_first",
        "drop_partial",
        "min_edges",
        "features",
    ),
    "steps": ("edge_life", "smoothing_window", "features"),
    "static": ("generated_snapshots", "growth", "growth_curve", "edge_life", "smoothing_window", "features"),
}
_LINKS = ("regression", "link")  # where the file has the values to predict: regression alone
_ALL_TASKS = ("regression", "link", "classification")
_PUBLISHED: tuple[Entry, ...] = tuple(
    Entry(
        name=name,
        kind="datasets",
        target=f"dtdg_lab.datasets.definitions:{name.upper().replace('-', '_')}",
        summary=known["summary"],
        source=known["source"],
        options=_READ[known.get("options", "edges")],
        tasks=tuple(known.get("tasks", _LINKS)),
        defaults=MappingProxyType(known.get("defaults", {})),
    )
    for name, known in tomllib.loads(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8")).items()
)


def _generator(name: str, target: str, summary: str, source: str, *options: str, **more: Any) -> Entry:
    read = (
        "generated_nodes",
        "generated_edges",
        "generated_snapshots",
        *options,
        "edge_life",
        "smoothing_window",
        "features",
    )
    return Entry(
        name=name,
        kind="datasets",
        target=f"dtdg_lab.datasets.generators.{target}",
        summary=summary,
        source=source,
        options=read,
        tasks=more.pop("tasks", _LINKS),
        defaults=MappingProxyType(more),
    )


_GENERATED: tuple[Entry, ...] = (
    _generator(
        "growing",
        "synthetic:GROWING",
        "Seeded generator: popular nodes, a growing number of edges, a tenth of them replaced.",
        "ours; for the simulations of DyGNeX section 5.4 (10,000 snapshots)",
        "growth",
        "growth_curve",
        "churn",
        "zipf",
    ),
    _generator(
        "uniform",
        "synthetic:UNIFORM",
        "Seeded generator: random edges, every snapshot independent of the others.",
        "ESDG section 6.3 (weak scaling)",
        generated_edges=1800,
    ),
    _generator(
        "powerlaw",
        "synthetic:POWERLAW",
        "Seeded generator: popular targets, a constant number of edges, a share of them replaced.",
        "ours; used by the benchmark workloads W1 and W2",
        "churn",
        "zipf",
    ),
    _generator(
        "sbm",
        "communities:COMMUNITIES",
        "Seeded generator: communities that nodes move between; the community is the class.",
        "Holland et al. 1983 (block model); Goyal et al. 2018; EvolveGCN's SBM",
        "communities",
        "drift",
        tasks=_ALL_TASKS,
    ),
    _generator(
        "transactions",
        "transactions:TRANSACTIONS",
        "Seeded generator: payments among accounts with planted laundering patterns, in the manner of AMLSim.",
        "ours; imitates AMLSim (Weber et al. 2018)",
        tasks=_ALL_TASKS,
    ),
)

DATASETS: tuple[Entry, ...] = (*_PUBLISHED, *_GENERATED)


# Policies for remote features, and congestion patterns.


_CACHING = (
    "cache_policy",
    "cache_window",
    "cache_bias",
    "cache_rows",
    "queue_depth",
    "fetch_timeout_s",
    "policy_file",
)


def _path(name: str, target: str, summary: str, source: str) -> Entry:
    # all list the same options, because the policy may change during a run; a policy ignores those it does not read
    return Entry(
        name=name,
        kind="features",
        target=f"dtdg_lab.systems.feature_cache.{target}",
        summary=summary,
        source=source,
        options=_CACHING,
    )


FEATURE_PATHS: tuple[Entry, ...] = (
    _path(
        "on_demand",
        "modes:on_demand",
        "Sampling and fetching alternate with training; nothing is cached.",
        "GreenDyGNN section VI-A, baseline Default DGL",
    ),
    _path(
        "prefetch",
        "modes:prefetch",
        "Batches are sampled and fetched ahead of training; nothing is cached.",
        "GreenDyGNN section VI-A, baseline BGL (Liu et al. 2023)",
    ),
    _path(
        "epoch_hot",
        "modes:epoch_hot",
        "A cache of the rows that an epoch reads most often, rebuilt once per epoch.",
        "GreenDyGNN section VI-A, baseline RapidGNN (2025)",
    ),
    _path(
        "fixed",
        "modes:fixed",
        "A cache rebuilt every W steps for the rows that the next W steps read.",
        "GreenDyGNN section VI-H, the ablation without RL",
    ),
    _path(
        "threshold",
        "modes:threshold",
        "W is set by a rule: shorter where a link is slow.",
        "GreenDyGNN Eq. 7, unreadable in our copy of the paper; thresholds chosen by us",
    ),
    _path(
        "random",
        "modes:random",
        "Window and allocation drawn uniformly at random.",
        "ours, for comparison",
    ),
    _path(
        "double_dqn",
        "modes:double_dqn",
        "W and allocation are chosen by a Double DQN trained in the calibrated simulator.",
        "GreenDyGNN section IV-C",
    ),
    _path(
        "double_dqn_plus",
        "modes:double_dqn_plus",
        "As double_dqn, with rewards over the steps that a decision lasts and with past observations in the state.",
        "ours, after GreenDyGNN section IV-C",
    ),
    _path(
        "planner",
        "modes:planner",
        "The window and allocation of lowest cost by the cost model, given the rows that the next "
        "batches read and the measured delays.",
        "ours: model-predictive control",
    ),
    _path(
        "clairvoyant",
        "modes:clairvoyant",
        "Windows that are optimal under the cost model, with congestion known in advance.",
        "ours: dynamic programming over rebuilds",
    ),
)

_CONGESTING = (
    "congestion",
    "links",
    "congestion_ms",
    "congestion_mbit",
    "congestion_from",
    "congestion_cycle",
    "congestion_table",
    "congestion_file",
    "congestion_by",
)


def _pattern(name: str, attribute: str, summary: str, source: str) -> Entry:
    return Entry(
        name=name,
        kind="congestion",
        target=f"dtdg_lab.network.{attribute}",
        summary=summary,
        source=source,
        options=_CONGESTING,
    )


_CASES = "GreenDyGNN section IV-C2, archetypes (their shapes are ours)"

CONGESTIONS: tuple[Entry, ...] = (
    _pattern("none", "patterns:none", "No link is slow, except those set by links.", _CASES),
    _pattern("one_slow", "patterns:one_slow", "One owner's links are slow for many epochs in a row.", _CASES),
    _pattern("one_fast", "patterns:one_fast", "One owner's links are slow in bursts shorter than an epoch.", _CASES),
    _pattern("two_symmetric", "patterns:two_symmetric", "Two owners' links are equally slow.", _CASES),
    _pattern(
        "two_asymmetric", "patterns:two_asymmetric", "Two owners' links are slow, one of them half as much.", _CASES
    ),
    _pattern("oscillating", "patterns:oscillating", "Congestion oscillates and moves between owners.", _CASES),
    _pattern("rotating", "patterns:rotating", "The owners are slow in turn.", "ours"),
    _pattern(
        "markov", "patterns:markov", "Each owner switches between slow and clean independently at random.", "ours"
    ),
    _pattern("all_slow", "patterns:all_slow", "All owners' links are slow for many epochs in a row.", "ours"),
    _pattern(
        "schedule",
        "patterns:schedule",
        "Clean epochs, then a cycle of epochs with one or two slow owners, given by a table.",
        "GreenDyGNN section VI-A",
    ),
    _pattern("recorded", "patterns:recorded", "Congestion from a trace, such as one recorded in another run.", "ours"),
)


# Which kinds of model memory each layout supports, and how.


MEMORY_TABLE_LAYOUTS = (
    "single",
    "snapshot_group",
    "snapshot",
    "cached_vertex",
    "halo_vertex",
    "remote_feature",
    "halo_window",
    "sampled_window",
)
REFUSED = "refused"
_NOT_EXCHANGED: Mapping[str, str] = MappingProxyType(
    {
        "weights_from_data": "its weights depend on the top-k nodes",
        "neighbourhood": "its hidden state depends on neighbours",
    }
)

_ROWS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "per_vertex": (
            "exact",
            "exact",
            "exact, all-to-all of nodes and snapshots",
            "exact",
            "exact",
            "exact, zero initial state",
            "exact within its batches",
            "exact within the sample",
        ),
        "weights": (
            "exact",
            "exact",
            "exact, gradients only",
            "exact",
            "exact",
            "exact",
            "exact within its batches, where decayed snapshots only advance the weights",
            "exact within the sample",
        ),
        "weights_from_data": (
            "exact",
            "exact",
            "exact, all-gather of the top-k summaries",
            "approximation: top-k among each part's own nodes",
            "exact, all-gather of candidates",
            REFUSED,
            "exact within its batches, all-gather of candidates",
            REFUSED,
        ),
        "neighbourhood": (
            "exact",
            "exact",
            REFUSED,
            "truncated: hidden states beyond L hops are dropped",
            "exact, halo of the hidden state",
            REFUSED,
            "exact within its batches, halo of the hidden state",
            REFUSED,
        ),
        "none": (
            "exact",
            "exact",
            "exact",
            "exact",
            "exact",
            "exact",
            "exact within its batches, where only the newest snapshot matters",
            "exact within the sample",
        ),
    }
)

MEMORY_ON_LAYOUT: dict[tuple[str, str], str] = {
    (memory, layout): how
    for memory, row in _ROWS.items()
    for layout, how in zip(MEMORY_TABLE_LAYOUTS, row, strict=True)
    if how != REFUSED
}


# Partitioners: which part owns each node.


def _partitioner(name: str, target: str, summary: str, source: str) -> Entry:
    # all list the same options, because the partitioner may change during a run; it ignores those it does not read
    return Entry(
        name=name,
        kind="partition",
        target=f"dtdg_lab.partition.{target}",
        summary=summary,
        source=source,
        options=("partitioner", "dealing", "imbalance", "partition_file"),
    )


PARTITIONERS: tuple[Entry, ...] = (
    _partitioner(
        "hash",
        "simple:assign_hash",
        "A pseudo-random part for each node, independent of the graph's structure.",
        "common practice",
    ),
    _partitioner(
        "round_robin",
        "simple:assign_round_robin",
        "Node v goes to part v mod P.",
        "DynaHB figure 4, which calls it hash",
    ),
    _partitioner(
        "metis",
        "metis:assign",
        "Minimises cut edges of the union of all snapshots, with edges and labelled nodes balanced.",
        "Karypis, Kumar 1998 (METIS); on the union graph as FlareDTDG section 4",
    ),
    _partitioner(
        "load_aware",
        "simple:assign_load_aware",
        "Nodes sorted by the size of their computation graphs and assigned to parts in turn.",
        "DynaHB section 5, algorithm 1",
    ),
    _partitioner(
        "hypergraph",
        "hypergraph:assign",
        "Minimises the exact number of rows sent: one net for each node and snapshot.",
        "ESDG section 6 (hypergraph node partition); Mt-KaHyPar, Gottesbueren et al. 2024",
    ),
    _partitioner("file", "simple:assign_from_file", "A saved partition of the same graph.", "ours"),
)


# Evaluation protocols: the split, the initial state of the evaluation, and the edges that a label counts.


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """An evaluation setting: how an evaluation metric is computed.

    The first ``train_share`` of the T labelled snapshots is the training split, or all but the last
    ``test_snapshots`` where that is not 0; its last ``validation_share`` is held out for validation (0: none).
    Where ``purge`` is set, ``edge_life - 1`` snapshots are left out at each boundary, because a snapshot shares edges
    with that many successors. ``state`` is ``warm`` (the recurrent state runs from the first snapshot) or ``cold``
    (zero at the start of each split). ``strict_label`` counts only edges of the newest base interval in the label.
    ``settings`` are the protocol's defaults for options of the run. Values that are given take precedence, and a data
    set with its own features keeps them.
    """

    name: str
    meaning: str
    source: str = "ours"
    train_share: float = 0.4
    validation_share: float = 0.25
    test_snapshots: int = 0
    purge: bool = True
    state: str = "warm"
    strict_label: bool = False
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def leaky(self) -> bool:
        """Whether splits share edges if edges live longer than one interval."""
        return not self.purge

    def gap(self, edge_life: int) -> int:
        """Snapshots left out at each boundary between splits, where edges live ``edge_life`` intervals."""
        return edge_life - 1 if self.purge else 0


_PAPER_CUT: Mapping[str, Any] = MappingProxyType({"features": "degrees", "drop_first": True, "min_edges": 51})

_ALL = (
    Protocol(name="warm", meaning="purged split, warm state: the default"),
    Protocol(name="cold", meaning="purged split, zero state at the start of each split", state="cold"),
    Protocol(
        name="strict",
        meaning="purged split, and only edges new in the next snapshot count in the label",
        strict_label=True,
    ),
    Protocol(
        name="leaky",
        meaning="no purge gap, as in the papers' code: splits share edges where edge_life > 1",
        purge=False,
    ),
    Protocol(
        name="flare-2026",
        source="FlareDTDG, released loader and evaluation",
        meaning="40/60, leaky, warm state; raw degrees; edges scaled by in- and out-degree, no self loops; no "
        "validation split",
        validation_share=0.0,
        purge=False,
        settings=MappingProxyType({**_PAPER_CUT, "norm": "in_out", "self_loops": False}),
    ),
    Protocol(
        name="dynahb-2024",
        source="DynaHB, released loader and evaluation, with features and label corrected",
        meaning="40/60, leaky, cold state; raw degrees; self loops, scaled by in-degree; no validation split",
        validation_share=0.0,
        purge=False,
        state="cold",
        settings=MappingProxyType({**_PAPER_CUT, "norm": "in", "self_loops": True}),
    ),
    Protocol(
        name="esdg-2021",
        source="ESDG section 6 (link prediction of its experiments)",
        meaning="links: train on all snapshots but the last, test on it; raw degrees; a tenth of the edges, and "
        "equally many random pairs; accuracy; no validation split; an incomplete last interval is left out",
        test_snapshots=1,
        validation_share=0.0,
        purge=False,
        settings=MappingProxyType(
            {
                "features": "degrees",
                "drop_partial": True,
                "task": "link",
                "link_share": 0.1,
                "negatives": 1,
                "link_head": "concat",
                "norm": "in",
                "self_loops": True,
            }
        ),
    ),
    Protocol(
        name="evolvegcn-2020",
        source="EvolveGCN section 4, released settings",
        meaning="links: 70/10/20; one-hot degree; all edges against 100 random pairs each (the paper takes all pairs); "
        "average precision and MRR; edges keep their direction (the paper adds reversed ones)",
        train_share=0.8,
        validation_share=0.125,
        purge=False,
        settings=MappingProxyType(
            {
                "features": "one_hot_degree",
                "drop_partial": True,
                "task": "link",
                "link_share": 1.0,
                "negatives": 100,
                "ranking_negatives": 1000,
                "link_head": "concat",
                "norm": "in",
                "self_loops": True,
            }
        ),
    ),
    Protocol(
        name="roland-2022",
        source="ROLAND section 5, fixed split",
        meaning="links: 70/10/20; constant features; every edge ranked against 1000 random targets; "
        "MRR; edges keep their direction (the paper's code uses both directions)",
        train_share=0.8,
        validation_share=0.125,
        purge=False,
        settings=MappingProxyType(
            {
                "features": "constant",
                "drop_partial": True,
                "task": "link",
                "link_share": 1.0,
                "negatives": 1,
                "ranking_negatives": 1000,
                "link_head": "dot",
                "norm": "in",
                "self_loops": True,
            }
        ),
    ),
    Protocol(
        name="tgb",
        source="TGB 2023, section 4, cut to snapshots",
        meaning="links: 70/15/15 by snapshots; every edge ranked against 100 fixed targets; MRR, ties at the mean rank",
        train_share=0.85,
        validation_share=15 / 85,
        purge=False,
        settings=MappingProxyType(
            {
                "drop_partial": True,
                "task": "link",
                "link_share": 1.0,
                "negatives": 1,
                "ranking_negatives": 100,
                "link_head": "dot",
            }
        ),
    ),
)

PROTOCOLS: Mapping[str, Protocol] = MappingProxyType({protocol.name: protocol for protocol in _ALL})


# Schedulers: how snapshot groups are assigned to ranks and iterations.


def _scheduler(name: str, target: str, summary: str, source: str) -> Entry:
    # all list the same options, because the scheduler may change during a run; it ignores those it does not read
    return Entry(
        name=name,
        kind="scheduling",
        target=f"dtdg_lab.systems.snapshot_groups.schedulers.{target}",
        summary=summary,
        source=source,
        options=(
            "scheduler",
            "groups_per_rank",
            "group_times",
            "profile_epochs",
            "schedule_gap",
            "schedule_limit_s",
            "schedule_targets",
        ),
    )


SCHEDULERS: tuple[Entry, ...] = (
    _scheduler(
        "round_robin",
        "heuristics:schedule_round_robin",
        "Groups in time order, assigned to parts in turn.",
        "DyGNeX section 2.3 (PSG)",
    ),
    _scheduler(
        "consecutive",
        "heuristics:schedule_consecutive",
        "Consecutive groups on the same part: 0 and 1, 2 and 3, ...",
        "DyGNeX section 5.1 (BLAD)",
    ),
    _scheduler(
        "longest_first",
        "base:schedule_longest_first",
        "Groups sorted by predicted time; each iteration takes the longest left, so that its parts are balanced.",
        "Graham 1969 (LPT), applied per iteration",
    ),
    _scheduler(
        "fold",
        "heuristics:schedule_fold",
        "Pairs the largest group with the smallest; pairs of similar sums run in the same iteration.",
        "ours",
    ),
    _scheduler(
        "dygnex_greedy",
        "dygnex:schedule",
        "Each iteration takes the longest group left and the pairs closest to it in time.",
        "DyGNeX section 4.3, algorithm 2 (DyGNeX-G)",
    ),
    _scheduler(
        "dygnex_ilp",
        "dygnex_ilp:schedule",
        "Integer programme of the whole epoch, solved to an optimality gap or a time limit.",
        "DyGNeX section 4.2, appendix C (DyGNeX-L)",
    ),
    _scheduler(
        "dygnex_auto", "dygnex_ilp:schedule_auto", "DyGNeX-L below 100 groups, DyGNeX-G from 100.", "DyGNeX appendix G"
    ),
    _scheduler(
        "best_of",
        "heuristics:schedule_best_of",
        "The schedule of smallest makespan among several heuristics, improved by swaps.",
        "ours",
    ),
)


# Batch-size controllers, and gradient or model synchronisation.


_ADJUSTING = (
    "adjuster",
    "snapshot_sizes",
    "vertex_sizes",
    "decide_every",
    "reward_loss",
    "reward",
    "discount",
    "epsilon_decay",
    "epsilon_min",
    "agent_rate",
)


def _adjuster(name: str, target: str, summary: str, source: str) -> Entry:
    # all list the same options, because the controller may change during a run; it ignores those it does not read
    return Entry(
        name=name,
        kind="control",
        target=f"dtdg_lab.{target}",
        summary=summary,
        source=source,
        options=_ADJUSTING,
    )


ADJUSTERS: tuple[Entry, ...] = (
    _adjuster("none", "rl.dqn:Fixed", "Fixed batch size.", "DynaHB section 6.2, fixed batches"),
    _adjuster("random", "rl.dqn:UniformAgent", "Batch size drawn uniformly at random.", "DynaHB table 10, Random"),
    _adjuster(
        "bandit",
        "rl.dqn:Bandit",
        "Multi-armed bandit: the size with the best upper confidence bound of recent rewards.",
        "Garivier, Moulines 2011 (discounted UCB)",
    ),
    _adjuster("dqn", "rl.dqn:DQN", "A deep Q-network rewarded by the decrease of the loss.", "DynaHB section 5.1"),
    _adjuster(
        "law",
        "systems.hybrid_batches.policies:ProgressLaw",
        "The size of most progress per second, by a scaling law fitted to past measurements.",
        "McCandlish, Kaplan, Amodei 2018 (noise scale)",
    ),
)

_EXCHANGING = ("exchange", "average_every_s")

EXCHANGES: tuple[Entry, ...] = (
    Entry(
        name="gradients",
        kind="comm",
        target="dtdg_lab.distributed.gradients:FlatGradients",
        summary="Gradients are summed over ranks in every step.",
        source="common practice",
        options=_EXCHANGING,
    ),
    Entry(
        name="models",
        kind="comm",
        target="dtdg_lab.distributed.model_averaging:ModelAverager",
        summary="Models are averaged every T_mu seconds, weighted by their steps; each rank trains at its own pace.",
        source="DynaHB section 5.2, algorithm 2",
        options=_EXCHANGING,
    ),
)


ENTRIES: list[Entry] = [
    *DATASETS,
    *MODELS,
    *TASKS,
    *LAYOUTS,
    *SCHEDULERS,
    *PARTITIONERS,
    *BATCHINGS,
    *ADJUSTERS,
    *EXCHANGES,
    *FEATURE_PATHS,
    *CONGESTIONS,
]

_HYBRID: Mapping[str, str] = MappingProxyType(
    {
        "parallel": "cached_vertex",
        "partition": "metis",
        "batching": "hybrid",
        "control": "none",
        "comm": "gradients",
    }
)

_HALO: Mapping[str, str] = MappingProxyType({"parallel": "halo_vertex", "congestion": "none"})

_WINDOW: Mapping[str, str] = MappingProxyType({"parallel": "halo_window", "partition": "metis", "congestion": "none"})

_REMOTE: Mapping[str, str] = MappingProxyType(
    {"parallel": "remote_feature", "partition": "metis", "batching": "neighbours", "congestion": "none"}
)

# Families of systems: each is a folder under ``systems/``, reached by this text alone.
FAMILIES: dict[str, str] = {
    name: f"dtdg_lab.systems.{name}:FAMILY"
    for name in (
        "single",
        "vertex_parts",
        "snapshot_groups",
        "snapshot_blocks",
        "decayed_windows",
        "hybrid_batches",
        "feature_cache",
    )
}

SYSTEMS: list[System] = [
    System(
        name="single",
        family="single",
        parts=MappingProxyType({"parallel": "single"}),
        summary="Full batch in one process; the reference for all other systems.",
        source="ours",
        differs_by="steps per epoch (1) and bytes sent (0)",
    ),
    System(
        name="psg",
        family="snapshot_groups",
        parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "round_robin"}),
        summary="Data-parallel over snapshot groups, one group per part and iteration, in time order.",
        source="DyGNeX section 2.3; the baseline PSG",
        differs_by="steps per epoch (groups over parts) and bytes sent (gradients)",
    ),
    System(
        name="blad",
        family="snapshot_groups",
        parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "consecutive"}),
        summary="Two consecutive snapshot groups at once on each part, with the activations of both in memory.",
        source="DyGNeX section 5.1, baseline BLAD (Fu et al. 2023)",
        defaults=MappingProxyType({"groups_per_rank": 2, "pipelined": True}),
        differs_by="peak bytes (two groups' activations) and the schedule's assignment (neighbours in time)",
    ),
    System(
        name="dygnex-g",
        family="snapshot_groups",
        parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "dygnex_greedy"}),
        summary="Up to two snapshot groups per part and iteration, paired greedily by their times.",
        source="DyGNeX section 4.3",
        defaults=MappingProxyType({"groups_per_rank": 2}),
        differs_by="the schedule's assignment and its predicted makespan",
    ),
    System(
        name="dygnex-l",
        family="snapshot_groups",
        parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "dygnex_ilp"}),
        summary="Up to two snapshot groups per part and iteration, scheduled by an integer programme.",
        source="DyGNeX section 4.2, appendix C",
        defaults=MappingProxyType({"groups_per_rank": 2}),
        differs_by="the schedule's assignment, its gap and solving time",
    ),
    System(
        name="esdg",
        family="snapshot_blocks",
        parts=MappingProxyType({"parallel": "snapshot", "congestion": "none"}),
        summary="Full batch with snapshot parallelism and gradient checkpointing over time blocks; rows are "
        "redistributed by node for temporal layers, and back.",
        source="ESDG sections 3 and 4",
        differs_by="rows in links (redistribution) and in exchanges (all-to-all phases)",
    ),
    System(
        name="esdg-hybrid",
        family="snapshot_blocks",
        parts=MappingProxyType({"parallel": "snapshot", "congestion": "none"}),
        summary="As esdg, for snapshots too large for one rank: groups of ranks split each snapshot by rows.",
        source="ESDG section 6.5",
        defaults=MappingProxyType({"row_ranks": 2}),
        differs_by="rows in links (halo within a group of ranks, and redistribution)",
    ),
    System(
        name="hypergraph-vertex",
        family="vertex_parts",
        parts=MappingProxyType({**_HALO, "partition": "hypergraph"}),
        summary="Full batch over node parts of a hypergraph partitioner, which minimises the rows exchanged.",
        source="ESDG sections 4.1 and 6.4 (PaToH there, Mt-KaHyPar here)",
        differs_by="rows in links (the hypergraph's connectivity)",
    ),
    System(
        name="adgnn-t",
        family="vertex_parts",
        parts=MappingProxyType({**_HALO, "partition": "metis"}),
        summary="Full batch over node parts, which exchange halo rows for every aggregation.",
        source="DynaHB section 7.1, baseline ADGNN-T (partitioner not specified in the paper; we use METIS)",
        differs_by="rows in links (halo) and bytes sent (halo and gradients)",
    ),
    System(
        name="pygt-dist",
        family="vertex_parts",
        parts=MappingProxyType({"parallel": "cached_vertex", "partition": "metis"}),
        summary="Full batch over node parts with replicated L-hop neighbours; only gradients are exchanged.",
        source="DynaHB section 7.1, baseline PyGT-Dist (partitioner not specified in the paper; we use METIS)",
        differs_by="no rows in links, bytes sent (gradients) and replicated rows",
    ),
    System(
        name="dbov",
        family="hybrid_batches",
        parts=_HYBRID,
        defaults=MappingProxyType({"batch_snapshots": 1.0}),
        summary="Node batches: some nodes of every part, in all snapshots.",
        source="DynaHB section 6.1, baseline DBoV (partitioner not specified in the paper; we use METIS)",
        differs_by="targets (all snapshots of some nodes) and seconds of batches",
    ),
    System(
        name="dbos",
        family="hybrid_batches",
        parts=_HYBRID,
        defaults=MappingProxyType({"batch_vertices": 1.0}),
        summary="Snapshot batches: all nodes of every part, in some consecutive snapshots.",
        source="DynaHB section 6.1, baseline DBoS (partitioner not specified in the paper; we use METIS)",
        differs_by="targets (some snapshots of all nodes)",
    ),
    System(
        name="bvr",
        family="hybrid_batches",
        parts=_HYBRID,
        defaults=MappingProxyType({"batch_snapshots": 1.0, "reservoir": True}),
        summary="As dbov, with batches generated in the background and kept in a reservoir.",
        source="DynaHB section 6.1, baseline DBoV-Reservoir (BVR)",
        differs_by="rows in reservoir and the source in targets",
    ),
    System(
        name="dynahb",
        family="hybrid_batches",
        parts=MappingProxyType({**_HYBRID, "partition": "load_aware", "control": "dqn", "comm": "models"}),
        defaults=MappingProxyType({"reservoir": True}),
        summary="Hybrid batches of some snapshots and some nodes, sized by a DQN and kept in a reservoir; models "
        "are averaged asynchronously.",
        source="DynaHB sections 4 and 5",
        differs_by="rows in rounds (averaging) and in decisions (sizes)",
    ),
    System(
        name="flaredtdg",
        family="decayed_windows",
        parts=MappingProxyType({**_WINDOW, "batching": "trapezoid"}),
        summary="Hybrid batches: recent snapshots in full, older ones decayed; no re-indexing, overlapped exchanges.",
        source="FlareDTDG section 3",
        differs_by="rows in batches (a trapezoid) and steps per epoch (one for each snapshot)",
    ),
    System(
        name="full-history",
        family="decayed_windows",
        parts=MappingProxyType({**_WINDOW, "batching": "full_window"}),
        summary="As flaredtdg, with every snapshot of the window in full.",
        source="FlareDTDG section 4.3",
        differs_by="rows in batches (all of every snapshot) and peak bytes",
    ),
    System(
        name="recent-only",
        family="decayed_windows",
        parts=MappingProxyType({**_WINDOW, "batching": "full_window"}),
        defaults=MappingProxyType({"window": 2}),
        summary="As flaredtdg, with only the two newest snapshots and a detached initial state (truncated BPTT).",
        source="FlareDTDG section 4.3",
        differs_by="rows in batches (two snapshots) and peak bytes",
    ),
    System(
        name="dynagraph",
        family="decayed_windows",
        parts=MappingProxyType({"parallel": "sampled_window", "partition": "hash", "batching": "sampled_window"}),
        summary="Sliding windows with sampled neighbours; aggregations are cached between windows, and nodes are "
        "reassigned to parts in each epoch.",
        source="FlareDTDG section 4.1, baseline DynaGraph (Guan et al. 2022)",
        differs_by="edges in batches (sampled) and no rows in links",
    ),
    System(
        name="dgl-default",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "on_demand"}),
        summary="Mini-batches with sampled neighbours; features of other parts' nodes are fetched when needed.",
        source="GreenDyGNN section VI-A, baseline Default DGL (DistDGL)",
        differs_by="rows in fetches (misses only) and resolved (every step waits)",
    ),
    System(
        name="bgl",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "prefetch"}),
        summary="As dgl-default, sampled and fetched ahead of training.",
        source="GreenDyGNN section VI-A, baseline BGL (Liu et al. 2023); its tiers of caches are left out",
        differs_by="resolved (wait_s below resolve_s)",
    ),
    System(
        name="rapidgnn",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "epoch_hot"}),
        summary="As bgl, with a cache of the rows that an epoch reads most often, found by sampling it in advance.",
        source="GreenDyGNN section VI-A, baseline RapidGNN (2025)",
        differs_by="rows in windows (one per epoch)",
    ),
    System(
        name="fixed-window",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "fixed"}),
        summary="As bgl, with a cache rebuilt every W steps for the next W steps.",
        source="GreenDyGNN section VI-H, without RL",
        differs_by="rows in windows (of W steps)",
    ),
    System(
        name="threshold-window",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "threshold"}),
        summary="As fixed-window, with a shorter window where a link is slow.",
        source="GreenDyGNN Eq. 7, unreadable in our copy of the paper; thresholds chosen by us",
        differs_by="windows (policy and length)",
    ),
    System(
        name="greendygnn",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "double_dqn"}),
        summary="As fixed-window, with window and allocation chosen at every rebuild by the paper's Double DQN; "
        "our cache_policy double_dqn_plus and planner do better.",
        source="GreenDyGNN sections IV and V",
        differs_by="rows in cache_decisions (values of 8 P actions)",
    ),
    System(
        name="clairvoyant",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "clairvoyant"}),
        summary="As greendygnn, with windows that are optimal under the cost model for congestion known in advance.",
        source="ours: dynamic programming over rebuilds",
        differs_by="cache_decisions (policy)",
    ),
]

TRAINING_OPTIONS = (
    "optimizer",
    "dtype",
    "kernel",
    "norm",
    "self_loops",
    "evaluate_every",
    "checkpoint_every_s",
    "keep_every",
    "slow_rank",
    "slow_ms",
)
TASK_OPTIONS = ("task", "link_share", "negatives", "ranking_negatives", "link_head")
ENERGY_OPTIONS = ("power_idle_w", "power_max_w", "power_gpu_idle_w", "power_gpu_max_w")


_SINGULAR = {
    "datasets": "data set",
    "models": "model",
    "tasks": "task",
    "parallel": "layout",
    "batching": "batching",
    "control": "batch-size controller",
    "comm": "exchange",
    "scheduling": "scheduler",
    "partition": "partitioner",
    "features": "cache policy",
    "congestion": "congestion pattern",
}
STORED = "graph:"  # prefix of the names of graphs stored by their hash


def names(kind: str) -> tuple[str, ...]:
    """Names of a kind's entries, or of the systems for ``kind="systems"``, in the catalogue's order."""
    if kind == "systems":
        return tuple(system.name for system in SYSTEMS)
    return tuple(entry.name for entry in ENTRIES if entry.kind == kind)


def entry(kind: str, name: str) -> Entry:
    """The entry ``name`` of ``kind``.

    Raises:
        UnknownNameError: the kind has no such entry.
    """
    for candidate in ENTRIES:
        if (candidate.kind, candidate.name) == (kind, name):
            return candidate
    raise UnknownNameError(_SINGULAR.get(kind, kind), name, names(kind))


def system(name: str) -> System:
    """The system called ``name``.

    Raises:
        UnknownNameError: there is no such system.
    """
    for candidate in SYSTEMS:
        if candidate.name == name:
            return candidate
    raise UnknownNameError("system", name, names("systems"))


def family(name: str) -> Any:
    """The :class:`dtdg_lab.systems.base.SystemFamily` called ``name``.

    Raises:
        UnknownNameError: there is no such family.
    """
    if name not in FAMILIES:
        raise UnknownNameError("family of systems", name, FAMILIES)
    return _load(FAMILIES[name])


def families() -> list[Any]:
    """All families of systems, in the catalogue's order."""
    return [family(name) for name in FAMILIES]


REGISTERED: list[str] = []  # texts of families from outside the package, in order


def register(target: str) -> Any:
    """Add a family of systems from outside the package; a second call with the same text changes nothing.

    Engines import it by the same text when they train one of its systems.

    Args:
        target: ``module:attribute`` of a :class:`dtdg_lab.systems.base.SystemFamily`; the module must be importable
            here and on every engine.

    Returns:
        The family.

    Raises:
        ConfigError: it cannot be imported, or one of its names is taken.
    """
    from dtdg_lab.core.options import OPTIONS
    from dtdg_lab.core.records import TABLES

    try:
        found = _load(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"register({target!r}): {error}. Give 'module:attribute' of a SystemFamily in a module on PYTHONPATH."
        ) from error
    if target in REGISTERED:
        return found
    taken = [
        *(name for name in (found.name,) if name in FAMILIES),
        *(each.name for each in found.systems if each.name in names("systems")),
        *(each.name for each in found.entries if each.name in names(each.kind)),
        *(each.name for each in found.options if each.name in OPTIONS),
        *(table for table in found.tables if table in TABLES),
    ]
    if taken:
        raise ConfigError(f"register({target!r}): {', '.join(taken)} are names in use. Choose others.")
    FAMILIES[found.name] = target
    ENTRIES.extend(found.entries)
    SYSTEMS.extend(found.systems)
    MEMORY_ON_LAYOUT.update(found.memories)
    OPTIONS.update({each.name: each for each in found.options})
    TABLES.update(found.tables)
    REGISTERED.append(target)
    return found


def check_links(text: str, parts: int) -> None:
    """Check the option ``links`` for P parts.

    Raises:
        ConfigError: as :func:`dtdg_lab.network.patterns.parse_links` says.
    """
    if text.strip():
        importlib.import_module("dtdg_lab.network.patterns").parse_links(text, parts)


def check_memory(model: str, layout: str, system: str = "") -> str:
    """How the strategy ``layout`` handles the memory of ``model``: ``exact`` or a named approximation.

    Raises:
        UnsupportedError: the strategy does not support it; the message names ``system`` and the systems that do.
    """
    memory = entry("models", model).memory
    kept = MEMORY_ON_LAYOUT.get((memory, layout))
    if kept is None:
        systems = [one.name for one in SYSTEMS if (memory, one.parts["parallel"]) in MEMORY_ON_LAYOUT]
        where = f"system {system!r}" if system else f"strategy {layout!r}"
        reason = _NOT_EXCHANGED.get(memory, f"its memory is {memory!r}")
        verb = "exchange" if memory in _NOT_EXCHANGED else "support"
        raise UnsupportedError(
            f"Model {model!r} does not work with {where}: {reason}, which strategy {layout!r} does not {verb}. "
            f"Compatible systems: {', '.join(systems) or 'none yet'}."
        )
    return kept


def check_task(dataset: str, task: str) -> None:
    """Check that a data set of the catalogue has labels for a task; a stored graph is checked when it is loaded.

    Raises:
        UnsupportedError: it has none; the message names the tasks it has labels for.
    """
    if dataset.startswith(STORED):
        return
    able = entry("datasets", dataset).tasks
    if task not in able:
        labelled = [name for name in names("datasets") if task in entry("datasets", name).tasks]
        raise UnsupportedError(
            f"task={task!r} is not available on data set {dataset!r}, which supports {', '.join(able)}. "
            f"Data sets with {task}: {', '.join(labelled)}."
        )


def option_owners(system_name: str, dataset: str, model: str) -> dict[str, tuple[str, ...]]:
    """Kind -> names of the options that a run of this system on this data set and model reads."""
    chosen = system(system_name)
    data = entry("datasets", dataset).options if not dataset.startswith(STORED) else ()
    owners: dict[str, tuple[str, ...]] = {"datasets": data, "models": entry("models", model).options}
    for kind, name in chosen.parts.items():
        owners[kind] = entry(kind, name).options
    return {**owners, "tasks": TASK_OPTIONS, "training": TRAINING_OPTIONS, "energy": ENERGY_OPTIONS}


def describe(name: str) -> str:
    """What is known about a system, algorithm, data set, protocol or option, as a few lines of text.

    Raises:
        UnknownNameError: nothing has that name.
    """
    from dtdg_lab.core.options import OPTIONS

    lines = []
    for chosen in SYSTEMS:
        if chosen.name == name:
            made_of = ", ".join(f"{kind}: {part}" for kind, part in chosen.parts.items())
            lines += [f"system {name}: {chosen.summary}", f"  made of {made_of}", f"  source: {chosen.source}"]
    for candidate in ENTRIES:
        if candidate.name == name:
            lines += [f"{candidate.kind} {name}: {candidate.summary}", f"  source: {candidate.source}"]
            lines += [f"  options: {', '.join(candidate.options)}"] if candidate.options else []
    if name in PROTOCOLS:
        protocol = PROTOCOLS[name]
        lines += [f"protocol {name}: {protocol.meaning}", f"  source: {protocol.source}"]
        brings = ", ".join(f"{key}={value}" for key, value in protocol.settings.items())
        lines += [f"  brings: {brings}"] if brings else []
    if name in OPTIONS:
        lines += _option_lines(name)
    if not lines:
        known = {*names("systems"), *PROTOCOLS, *OPTIONS, *(candidate.name for candidate in ENTRIES)}
        raise UnknownNameError("name", name, known)
    return "\n".join(lines)


def _option_lines(name: str) -> list[str]:
    from dtdg_lab.core.options import CHOSEN_BY, TAKES_EFFECT, option

    of = option(name)
    kind = next((kind for kind, chooser in CHOSEN_BY.items() if chooser == name), "")
    own = {chosen.name: chosen.defaults.get(name, chosen.parts.get(kind, of.default)) for chosen in SYSTEMS}
    others = "".join(f"; {value!r} for {chosen}" for chosen, value in own.items() if value != of.default)
    systems = [
        chosen.name
        for chosen in SYSTEMS
        if any(name in entry(kind, part).options for kind, part in chosen.parts.items())
    ]
    given = [each for each in ENTRIES if each.kind in ("models", "datasets") and name in each.options]
    readers = [*systems, *(f"{_SINGULAR[each.kind]} {each.name}" for each in given)]
    return [
        f"option {name}: {of.meaning}",
        f"  allowed: {of.allowed}",
        *([f"  unit: {of.unit}"] if of.unit else []),
        f"  default: {of.default!r}{others}",
        f"  a change takes effect: {TAKES_EFFECT[of.live]}",
        f"  read by: {', '.join(readers) or 'every system'}",
    ]
