"""What the lab holds: one entry per algorithm and data set, and systems as compositions of entries.

ALGORITHMS.md is generated from here. Targets are strings, so that listing them imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import UnknownNameError, UnsupportedError

# What the catalogue is made of: entries, one per algorithm or data set, and systems as compositions of entries.


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One algorithm or data set: where it lives, where it comes from, and the options it reads.

    Attributes:
        name: what it is called in a config.
        kind: what it is, such as ``models`` or ``scheduling``: the group of a config that has its options.
        target: module and attribute as text, so that listing it imports nothing.
        summary: one sentence.
        source: paper and section, or data collection.
        options: names of the options it reads.
        memory: what a model remembers between snapshots; empty elsewhere.
        defaults: values it brings for its options, where the glossary's would be wrong.
        tasks: what can be learned on a data set; empty elsewhere.
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


# The algorithms of the catalogue: models, tasks, layouts.


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
        "Aggregated features beside their convolution, then an LSTM per node.",
        "Manessi, Rozza, Manzo 2020 (CD-GCN); ESDG section 5.1",
    ),
    _model(
        "mpnn-lstm",
        "gcn_lstm:MPNNLSTM",
        "per_vertex",
        "Two graph convolutions whose outputs stand side by side, then two stacked LSTMs per node.",
        "Panagopoulos, Nikolentzos, Vazirgiannis 2021 (MPNN+LSTM)",
    ),
    _model(
        "tmgcn",
        "tmgcn:TMGCN",
        "per_vertex",
        "Graph convolution, then the mean of the last activations; nothing of time is learned.",
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
        "A GRU whose gates diffuse features and hidden state over edges, both ways.",
        "Li et al. 2018 (DCRNN), equations 2 and 3",
        "diffusion_steps",
    ),
    _model(
        "graphsage",
        "graphsage:GraphSAGE",
        "none",
        "A node beside the mean of its in-neighbours; nothing is remembered.",
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
        summary="Which edges the next snapshot has, against random pairs that the edges alone decide.",
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
        target="dtdg_lab.systems.single.strategy:SnapshotGroupStrategy",
        summary="Each part computes whole groups of consecutive snapshots; gradients are summed over ranks.",
        source="DyGNeX sections 3 and 4",
        options=("group_window", "group_stride", "loss_at", "pipelined"),
    ),
    Entry(
        name="halo_vertex",
        kind="parallel",
        target="dtdg_lab.engine.halo:HaloStrategy",
        summary="Each part owns nodes in all snapshots; rows of remote neighbours are exchanged at every pull.",
        source="ADGNN-T as DynaHB section 7.1 has it; ESDG section 4.1 (node partitioning)",
        options=("halo_reuse", "blocks", "memory_gib"),
    ),
    Entry(
        name="snapshot",
        kind="parallel",
        target="dtdg_lab.systems.snapshot_blocks.strategy:SnapshotBlockStrategy",
        summary="Each part computes whole snapshots, then some nodes through time; rows go all to all in between.",
        source="ESDG section 4.2; row-wise hybrid and overlap: section 6.5, which leaves them open",
        options=("blocks", "memory_gib", "overlap", "graphs", "difference", "row_ranks", "halo_reuse"),
    ),
    Entry(
        name="cached_vertex",
        kind="parallel",
        target="dtdg_lab.engine.replicated:ReplicatedStrategy",
        summary="Each part owns nodes and keeps copies of their L-hop neighbours; only gradients are exchanged.",
        source="DynaHB section 4.1 (L-layer cache); its baseline PyGT-Dist",
        options=("cache_gib",),
    ),
    Entry(
        name="halo_window",
        kind="parallel",
        target="dtdg_lab.systems.decayed_windows.strategy:DecayedWindowStrategy",
        summary="Each part owns nodes; a step is a window of snapshots. Full ones exchange rows of remote "
        "neighbours, decayed ones need none.",
        source="FlareDTDG sections 3.2 to 3.4",
        options=("overlap", "halo_reuse", "loss_at"),
    ),
    Entry(
        name="sampled_window",
        kind="parallel",
        target="dtdg_lab.systems.decayed_windows.sampled:SampledWindowStrategy",
        summary="Each part owns nodes anew in every epoch and has copies of what it samples; a step is a window.",
        source="DynaGraph (Guan et al. 2022), as FlareDTDG sections 2.2 and 4.1 describe it",
    ),
    Entry(
        name="remote_feature",
        kind="parallel",
        target="dtdg_lab.systems.feature_cache.strategy:RemoteFeatureStrategy",
        summary="Each part trains mini-batches of its own nodes; features of others' nodes are fetched from "
        "whoever owns them, by remote procedure calls.",
        source="GreenDyGNN sections II and V, on DistDGL (Zheng et al. 2020)",
    ),
)


# The batches of the catalogue: rules that say which snapshots, and how much of each, a step takes.


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
        summary="The newest snapshots of a window whole, the older ones in ever fewer chunks of their nodes.",
        source="FlareDTDG section 3.2",
        options=_TRAPEZOID,
    ),
    Entry(
        name="full_window",
        kind="batching",
        target="dtdg_lab.systems.decayed_windows.window:hybrid_batch",
        summary="All snapshots of a window whole.",
        source="FlareDTDG section 4.3 (Full-History; Recent-Only where there are two)",
        options=("window",),
    ),
    Entry(
        name="sampled_window",
        kind="batching",
        target="dtdg_lab.engine.minibatches:sampled_edges",
        summary="All snapshots of a window, with a few sampled in-neighbours of each node.",
        source="DynaGraph (Guan et al. 2022), as FlareDTDG section 4 describes it",
        options=("window", "fanout"),
    ),
    Entry(
        name="hybrid",
        kind="batching",
        target="dtdg_lab.systems.hybrid_batches.batches:TargetSampler",
        summary="Some consecutive snapshots of some nodes, with every neighbour that their layers reach.",
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
        summary="Some nodes of a part at some consecutive snapshots, with sampled in-neighbours for each layer.",
        source="Hamilton, Ying, Leskovec 2017 (GraphSAGE), as GreenDyGNN section VI-A trains it",
        options=("batch_size", "batch_length", "fanouts", "sampler"),
    ),
)


# The data sets of the catalogue: published files, static graphs made dynamic, and generators.


_EDGES = (
    "cut",
    "cut_by",
    "interval",
    "edge_life",
    "smoothing_window",
    "drop_first",
    "drop_partial",
    "min_edges",
    "features",
)
_STEPS = ("edge_life", "smoothing_window", "features")
_STATIC = ("generated_snapshots", "growth", "growth_curve", "edge_life", "smoothing_window", "features")
_LINKS = ("regression", "link")
_GIVEN_VALUES = ("regression",)  # where the file says what to predict, no next snapshot is counted
_ALL_TASKS = ("regression", "link", "classification")


def _published(
    name: str,
    summary: str,
    source: str,
    *,
    options: tuple[str, ...] = _EDGES,
    tasks: tuple[str, ...] = _LINKS,
    **defaults: Any,
) -> Entry:
    constant = name.upper().replace("-", "_")
    return Entry(
        name=name,
        kind="datasets",
        target=f"dtdg_lab.datasets.definitions:{constant}",
        summary=summary,
        source=source,
        options=options,
        tasks=tasks,
        defaults=MappingProxyType(defaults),
    )


def _papers(cut: int, lags: int) -> Mapping[str, Any]:
    """How DynaHB and FlareDTDG cut a set: equal intervals, edges that live ``lags`` more, sparse snapshots dropped."""
    return {"cut": cut, "edge_life": lags + 1, "drop_first": True, "min_edges": 51}


_TEMPORAL: tuple[Entry, ...] = (
    _published(
        "collegemsg",
        "Private messages of a college network, 193 days, cut every 2.2 days.",
        "Panzarasa, Opsahl, Carley 2009; SNAP CollegeMsg; window of EvolveGCN",
    ),
    _published(
        "email-eu",
        "E-mail of a European research institution, 803 days, cut every week.",
        "Paranjape, Benson, Leskovec 2017; SNAP email-Eu-core-temporal",
    ),
    _published(
        "mathoverflow",
        "Answers and comments on MathOverflow, 2350 days, cut every 30 days.",
        "Paranjape, Benson, Leskovec 2017; SNAP sx-mathoverflow",
    ),
    _published(
        "bitcoin-otc",
        "Who trusts whom on Bitcoin OTC, five years, cut every 13.9 days.",
        "Kumar et al. 2016, 2018; SNAP soc-sign-bitcoin-otc; window of EvolveGCN",
    ),
    _published(
        "bitcoin-alpha",
        "Who trusts whom on Bitcoin Alpha, five years, cut every 13.9 days.",
        "Kumar et al. 2016, 2018; SNAP soc-sign-bitcoin-alpha; window of EvolveGCN",
    ),
    _published(
        "fb-forum",
        "Posts in a student forum, 164 days, cut every day.",
        "Rossi, Ahmed 2015; Network Repository fb-forum",
    ),
    _published(
        "enron-employees",
        "E-mail among Enron's employees, three years, cut every week.",
        "Rossi, Ahmed 2015; Network Repository ia-enron-employees",
    ),
    _published(
        "wikipedia",
        "Edits of 1,000 Wikipedia pages by 8,227 users, 31 days, cut every day.",
        "Kumar, Zhang, Leskovec 2019 (JODIE)",
    ),
    _published(
        "slashdot",
        "Replies on Slashdot; cut as DynaHB and FlareDTDG do.",
        "Network Repository ia-slashdot-reply-dir; DynaHB table 1",
        **_papers(200, 30),
    ),
    _published(
        "stackexch",
        "Interactions on Stack Exchange; cut as DynaHB and FlareDTDG do.",
        "Network Repository ia-stackexch; DynaHB table 1",
        **_papers(200, 30),
    ),
    _published(
        "amazon-ratings",
        "Ratings on Amazon; cut as DynaHB and FlareDTDG do.",
        "Network Repository rec-amazon-ratings; DynaHB table 1",
        **_papers(100, 30),
    ),
    _published(
        "flickr",
        "Growth of Flickr's contacts; cut as DynaHB and FlareDTDG do.",
        "Network Repository soc-flickr-growth; DynaHB table 1",
        **_papers(100, 30),
    ),
    _published(
        "youtube",
        "Growth of YouTube's contacts; cut as DynaHB and FlareDTDG do.",
        "Network Repository soc-youtube-growth; DynaHB table 1",
        **_papers(100, 20),
    ),
    _published(
        "soc-bitcoin",
        "Bitcoin transactions; cut as DynaHB and FlareDTDG do.",
        "Network Repository soc-bitcoin; DynaHB table 1",
        **_papers(100, 10),
    ),
    _published(
        "epinions",
        "Ratings of reviews on Epinions.",
        "Network Repository rec-epinions-user-ratings; ESDG table 1",
        cut=501,
    ),
    _published(
        "askubuntu",
        "Answers and comments on Ask Ubuntu, cut every 30 days.",
        "Paranjape, Benson, Leskovec 2017; SNAP sx-askubuntu",
    ),
    _published(
        "stackoverflow",
        "Answers and comments on Stack Overflow, 50 intervals.",
        "Paranjape, Benson, Leskovec 2017; SNAP sx-stackoverflow; DyGNeX section 5.1",
        cut=51,
    ),
    _published(
        "reddit-hyperlinks",
        "Links between communities of Reddit, cut every week.",
        "Kumar et al. 2018 (WWW); SNAP soc-RedditHyperlinks; window of EvolveGCN",
    ),
    _published(
        "amlsim",
        "Simulated bank transactions with laundering patterns.",
        "Weber et al. 2018 (AMLSim); ESDG table 1",
        cut=200,
    ),
)

_STEPPED: tuple[Entry, ...] = (
    _published(
        "chickenpox",
        "Weekly chickenpox cases of Hungary's 20 counties.",
        "Rozemberczki et al. 2021 (PyTorch Geometric Temporal)",
        options=_STEPS,
        tasks=_GIVEN_VALUES,
        features="given",
    ),
    _published(
        "england-covid",
        "Daily COVID-19 cases and movements between 129 regions of England.",
        "Panagopoulos et al. 2021; PyTorch Geometric Temporal",
        options=_STEPS,
        tasks=_GIVEN_VALUES,
        features="given",
    ),
    _published(
        "twitter-tennis",
        "Mentions on Twitter around a tennis tournament, hourly.",
        "Beres et al. 2018; PyTorch Geometric Temporal",
        options=_STEPS,
        tasks=_GIVEN_VALUES,
        features="given",
    ),
    _published(
        "elliptic",
        "Bitcoin transactions of 49 fortnights, some known as licit or illicit.",
        "Weber et al. 2019 (Elliptic)",
        options=_STEPS,
        tasks=_ALL_TASKS,
        features="given",
        task="classification",
    ),
)

_GROWN: tuple[Entry, ...] = tuple(
    _published(
        name,
        f"{what}, made dynamic by deleting edges along a growth curve.",
        source,
        options=_STATIC,
        tasks=_ALL_TASKS,
        features=features,
        task="classification",
        generated_snapshots=51,
    )
    for name, family, what, source, features in (
        ("cora-t", "planetoid", "Citations among 2,708 papers", "Sen et al. 2008; Planetoid; DynaHB table 1", "given"),
        ("pubmed-t", "planetoid", "Citations among 19,717 papers", "Sen et al. 2008; Planetoid; DynaHB", "given"),
        ("ogbn-arxiv-t", "ogb", "Citations among arXiv papers", "Hu et al. 2020 (OGB); DyGNeX section 5.1", "given"),
        ("ogbn-products-t", "ogb", "Products bought together", "Hu et al. 2020 (OGB); DyGNeX section 5.1", "given"),
        # its own features take 57 GB; ask for them with features="given"
        ("ogbn-papers100m-t", "ogb", "Citations among 111 million papers", "Hu et al. 2020 (OGB)", "log_degrees"),
    )
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
        "Seeded generator: popular nodes, a growing number of edges, a tenth of them renewed.",
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
        "Seeded generator: popular targets, a constant number of edges, a share of them renewed.",
        "ours; the family of the benchmark workloads W1 and W2",
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
        "imitates AMLSim (Weber et al. 2018) and is not it",
        tasks=_ALL_TASKS,
    ),
)

DATASETS: tuple[Entry, ...] = (*_TEMPORAL, *_STEPPED, *_GROWN, *_GENERATED)


# The catalogue's ways to come by remote features, and patterns of congestion.


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
    # all name the same options: the policy changes in the middle of a run, and one ignores what it does not read
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
        "Sampling and fetching take turns with training; nothing is kept.",
        "GreenDyGNN section VI-A, baseline Default DGL",
    ),
    _path(
        "prefetch",
        "modes:prefetch",
        "Batches are sampled and fetched ahead of training; nothing is kept.",
        "GreenDyGNN section VI-A, baseline BGL (Liu et al. 2023)",
    ),
    _path(
        "epoch_hot",
        "modes:epoch_hot",
        "A cache of the rows that an epoch will ask for most, rebuilt once an epoch.",
        "GreenDyGNN section VI-A, baseline RapidGNN (2025)",
    ),
    _path(
        "fixed",
        "modes:fixed",
        "A cache rebuilt every W steps for what the next W will ask for.",
        "GreenDyGNN section VI-H, the ablation without RL",
    ),
    _path(
        "threshold",
        "modes:threshold",
        "W by a rule: shorter where a link is found slow.",
        "GreenDyGNN equation 7, whose text is lost; the thresholds are ours",
    ),
    _path(
        "random",
        "modes:random",
        "Any window and allocation, as likely as another.",
        "ours, for comparison",
    ),
    _path(
        "double_dqn",
        "modes:double_dqn",
        "W and allocation by a Double DQN trained in the calibrated simulator.",
        "GreenDyGNN section IV-C",
    ),
    _path(
        "double_dqn_plus",
        "modes:double_dqn_plus",
        "As double_dqn, rewarded by the steps that a decision holds for, and with what was seen before.",
        "ours, after GreenDyGNN section IV-C",
    ),
    _path(
        "planner",
        "modes:planner",
        "The window and allocation that the cost model forecasts to be cheapest, for what "
        "the next batches ask for and the delays found.",
        "ours: model-predictive control",
    ),
    _path(
        "clairvoyant",
        "modes:clairvoyant",
        "Windows that are optimal in the cost model, congestion known.",
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
    _pattern("none", "patterns:none", "No link is slow, but those set by hand.", _CASES),
    _pattern("one_slow", "patterns:one_slow", "One owner's links are slow for epochs on end.", _CASES),
    _pattern("one_fast", "patterns:one_fast", "One owner's links are slow in bursts shorter than an epoch.", _CASES),
    _pattern("two_symmetric", "patterns:two_symmetric", "Two owners' links are slow alike.", _CASES),
    _pattern("two_asymmetric", "patterns:two_asymmetric", "Two owners' links are slow, one half as much.", _CASES),
    _pattern("oscillating", "patterns:oscillating", "Slowness comes and goes, and moves between owners.", _CASES),
    _pattern("rotating", "patterns:rotating", "One owner after another is slow.", "ours"),
    _pattern("markov", "patterns:markov", "Each owner becomes slow and clean again by itself, at random.", "ours"),
    _pattern("all_slow", "patterns:all_slow", "All owners' links are slow for epochs on end.", "ours"),
    _pattern(
        "schedule",
        "patterns:schedule",
        "Clean epochs, then a cycle of epochs with one or two slow owners by a table.",
        "GreenDyGNN section VI-A",
    ),
    _pattern("recorded", "patterns:recorded", "What a trace says, such as one recorded in another run.", "ours"),
)


# Which layout carries which memory of a model, and how: SYSTEMS.md's table "memory x layout" as data.


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

_ROWS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "per_vertex": (
            "exact",
            "exact",
            "exact, all-to-all of nodes and snapshots",
            "exact",
            "exact",
            "exact, cold state",
            "exact of its batches",
            "exact of what is sampled",
        ),
        "weights": (
            "exact",
            "exact",
            "exact, gradients only",
            "exact",
            "exact",
            "exact",
            "exact of its batches, in which decayed snapshots count as time that passes and no more",
            "exact of what is sampled",
        ),
        "weights_from_data": (
            "exact",
            "exact",
            "exact, all-gather of the top-k summaries",
            "approximation: top-k among each part's own nodes",
            "exact, all-gather of candidates",
            REFUSED,
            "exact of its batches, all-gather of candidates",
            REFUSED,
        ),
        "neighbourhood": (
            "exact",
            "exact",
            REFUSED,
            "truncated: hidden states beyond the layers' hops are dropped",
            "exact, halo of the hidden state",
            REFUSED,
            "exact of its batches, halo of the hidden state",
            REFUSED,
        ),
        "none": (
            "exact",
            "exact",
            "exact",
            "exact",
            "exact",
            "exact",
            "exact of its batches, in which only the newest snapshot counts",
            "exact of what is sampled",
        ),
    }
)

MEMORY_ON_LAYOUT: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        (memory, layout): how
        for memory, row in _ROWS.items()
        for layout, how in zip(MEMORY_TABLE_LAYOUTS, row, strict=True)
        if how != REFUSED
    }
)


# The partitioners of the catalogue: rules that say which part owns each node.


def _partitioner(name: str, target: str, summary: str, source: str) -> Entry:
    # all name the same options: a partitioner is changed in the middle of a run, and ignores what it does not read
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
        "A pseudo-random part for each node: no structure is looked at.",
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
        "Few cut edges of the union of all snapshots, with edges and labelled nodes balanced.",
        "Karypis, Kumar 1998 (METIS); on the union graph as FlareDTDG section 4",
    ),
    _partitioner(
        "load_aware",
        "simple:assign_load_aware",
        "Nodes sorted by the length of their computation graphs, and dealt to parts.",
        "DynaHB section 5, algorithm 1",
    ),
    _partitioner(
        "hypergraph",
        "hypergraph:assign",
        "The fewest rows sent, counted exactly: one net for each node and snapshot.",
        "ESDG section 6 (hypergraph node partition); Mt-KaHyPar, Gottesbueren et al. 2024",
    ),
    _partitioner("file", "simple:assign_from_file", "A partition saved before, for the same graph.", "ours"),
)


# Named evaluation protocols: how the sequence is split, what state the evaluator starts with, what a label counts.


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What an evaluation number means.

    The first ``train_share`` of the T labelled snapshots is the training split, or all but the last
    ``test_snapshots`` where that is not 0; its last ``validation_share`` is held out for validation (0: none).
    Where ``purge`` is set, ``edge_life - 1`` snapshots are left out at each boundary, because a snapshot shares edges
    with that many successors. ``state`` is ``warm`` (the recurrent state runs from the first snapshot) or ``cold``
    (zero at the start of each part). ``strict_label`` counts only edges of the newest base interval in the label.
    ``settings`` are defaults that the protocol brings for options of the run; given values win, and a data set with
    features of its own keeps them.
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
        """Whether parts share edges where edges live longer than one interval."""
        return not self.purge

    def gap(self, edge_life: int) -> int:
        """Snapshots left out at each boundary between parts, where edges live ``edge_life`` intervals."""
        return edge_life - 1 if self.purge else 0


_PAPER_CUT: Mapping[str, Any] = MappingProxyType({"features": "degrees", "drop_first": True, "min_edges": 51})

_ALL = (
    Protocol(name="warm", meaning="purged split, warm state: the default"),
    Protocol(name="cold", meaning="purged split, state zero at the start of each part", state="cold"),
    Protocol(
        name="strict",
        meaning="purged split, and only edges new in the next snapshot count in the label",
        strict_label=True,
    ),
    Protocol(
        name="leaky", meaning="no purge gap, as the papers' code: parts share edges where edge_life > 1", purge=False
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
        source="DynaHB, released loader and evaluation, with features and label put right",
        meaning="40/60, leaky, cold state; raw degrees; self loops, scaled by in-degree; no validation split",
        validation_share=0.0,
        purge=False,
        state="cold",
        settings=MappingProxyType({**_PAPER_CUT, "norm": "in", "self_loops": True}),
    ),
    Protocol(
        name="esdg-2021",
        source="ESDG section 6 (link prediction of its experiments)",
        meaning="links: train on all snapshots but the last, test on it; raw degrees; a tenth of the edges and as many "
        "random pairs; accuracy; no validation split; a last interval that is not full is left out",
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
        "MRR; edges keep their direction (the paper's code hears both ends)",
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


# The schedulers of the catalogue: rules that deal snapshot groups to ranks and iterations.


def _scheduler(name: str, target: str, summary: str, source: str) -> Entry:
    # all name the same options: a scheduler is changed in the middle of a run, and ignores what it does not read
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
        "Groups in time order, dealt to parts in turn.",
        "DyGNeX section 2.3 (PSG)",
    ),
    _scheduler(
        "consecutive",
        "heuristics:schedule_consecutive",
        "Neighbouring groups to one part: 0 and 1, 2 and 3, ...",
        "DyGNeX section 5.1 (BLAD)",
    ),
    _scheduler(
        "longest_first",
        "base:schedule_longest_first",
        "Groups sorted by predicted time; each iteration takes the longest left, so that its parts are alike.",
        "Graham 1969 (LPT), applied per iteration",
    ),
    _scheduler(
        "fold",
        "heuristics:schedule_fold",
        "The largest group with the smallest, and pairs of like sums side by side.",
        "ours",
    ),
    _scheduler(
        "dygnex_greedy",
        "dygnex:schedule",
        "Each iteration takes the longest group left and pairs that come closest to it in time.",
        "DyGNeX section 4.3, algorithm 2 (DyGNeX-G)",
    ),
    _scheduler(
        "dygnex_ilp",
        "dygnex_ilp:schedule",
        "The integer programme of the whole epoch, solved to a gap or until time is over.",
        "DyGNeX section 4.2, appendix C (DyGNeX-L)",
    ),
    _scheduler(
        "dygnex_auto", "dygnex_ilp:schedule_auto", "DyGNeX-L below 100 groups, DyGNeX-G from 100.", "DyGNeX appendix G"
    ),
    _scheduler(
        "best_of", "heuristics:schedule_best_of", "The least makespan of several heuristics, improved by swaps.", "ours"
    ),
)


# The catalogue's adjusters of batches, and what ranks exchange.


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
    # all name the same options: an adjuster is changed in the middle of a run, and ignores what it does not read
    return Entry(
        name=name,
        kind="control",
        target=f"dtdg_lab.{target}",
        summary=summary,
        source=source,
        options=_ADJUSTING,
    )


ADJUSTERS: tuple[Entry, ...] = (
    _adjuster("none", "rl.dqn:Fixed", "Batches keep the size that is set.", "DynaHB section 6.2, fixed batches"),
    _adjuster("random", "rl.dqn:UniformAgent", "Any size, as likely as another.", "DynaHB table 10, Random"),
    _adjuster(
        "bandit",
        "rl.dqn:Bandit",
        "The size whose recent rewards were best, or might be.",
        "Garivier, Moulines 2011 (discounted UCB)",
    ),
    _adjuster("dqn", "rl.dqn:DQN", "A deep Q-network chooses by how much the loss fell.", "DynaHB section 5.1"),
    _adjuster(
        "law",
        "systems.hybrid_batches.policies:ProgressLaw",
        "The size of most progress per second, by a law fitted to what was seen.",
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
        summary="Models are averaged every T_mu seconds by the steps they had; ranks share an epoch at their own pace.",
        source="DynaHB section 5.2, algorithm 2",
        options=_EXCHANGING,
    ),
)


ENTRIES: tuple[Entry, ...] = (
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
)

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

SYSTEMS: tuple[System, ...] = (
    System(
        name="single",
        family="single",
        parts=MappingProxyType({"parallel": "single"}),
        summary="Full batch in one process; what the others are compared with.",
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
        summary="Two consecutive snapshot groups at once on each part, with the activations of both alive.",
        source="DyGNeX section 5.1, baseline BLAD (Fu et al. 2023)",
        defaults=MappingProxyType({"groups_per_rank": 2, "pipelined": True}),
        differs_by="peak bytes (two groups' activations) and the schedule's assignment (neighbours in time)",
    ),
    System(
        name="dygnex-g",
        family="snapshot_groups",
        parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "dygnex_greedy"}),
        summary="Up to two snapshot groups a part and iteration, paired by their times: greedily.",
        source="DyGNeX section 4.3",
        defaults=MappingProxyType({"groups_per_rank": 2}),
        differs_by="the schedule's assignment and its predicted makespan",
    ),
    System(
        name="dygnex-l",
        family="snapshot_groups",
        parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "dygnex_ilp"}),
        summary="Up to two snapshot groups a part and iteration, scheduled by an integer programme.",
        source="DyGNeX section 4.2, appendix C",
        defaults=MappingProxyType({"groups_per_rank": 2}),
        differs_by="the schedule's assignment, its gap and solving time",
    ),
    System(
        name="esdg",
        family="snapshot_blocks",
        parts=MappingProxyType({"parallel": "snapshot", "congestion": "none"}),
        summary="Full batch over snapshots in blocks of time; rows are redistributed to nodes for what runs through "
        "time, and back.",
        source="ESDG sections 3 and 4",
        differs_by="rows in links (redistribution) and in exchanges (legs)",
    ),
    System(
        name="esdg-hybrid",
        family="snapshot_blocks",
        parts=MappingProxyType({"parallel": "snapshot", "congestion": "none"}),
        summary="As esdg, for snapshots too large for one rank: groups of ranks split each snapshot by rows.",
        source="ESDG section 6.5",
        defaults=MappingProxyType({"row_ranks": 2}),
        differs_by="rows in links (halo within a group of ranks beside the redistribution)",
    ),
    System(
        name="hypergraph-vertex",
        family="vertex_parts",
        parts=MappingProxyType({**_HALO, "partition": "hypergraph"}),
        summary="Full batch over node parts that a hypergraph partitioner made to exchange few rows.",
        source="ESDG sections 4.1 and 6.4 (PaToH there, Mt-KaHyPar here)",
        differs_by="rows in links (the hypergraph's connectivity)",
    ),
    System(
        name="adgnn-t",
        family="vertex_parts",
        parts=MappingProxyType({**_HALO, "partition": "metis"}),
        summary="Full batch over node parts, which exchange the rows of remote neighbours at every pull.",
        source="DynaHB section 7.1, baseline ADGNN-T (its partitioner is not told; METIS is ours)",
        differs_by="rows in links (halo) and bytes sent (halo and gradients)",
    ),
    System(
        name="pygt-dist",
        family="vertex_parts",
        parts=MappingProxyType({"parallel": "cached_vertex", "partition": "metis"}),
        summary="Full batch over node parts with copies of their L-hop neighbours; gradients alone are exchanged.",
        source="DynaHB section 7.1, baseline PyGT-Dist (its partitioner is not told; METIS is ours)",
        differs_by="no rows in links, bytes sent (gradients) and replicated rows",
    ),
    System(
        name="dbov",
        family="hybrid_batches",
        parts=_HYBRID,
        defaults=MappingProxyType({"batch_snapshots": 1.0}),
        summary="Node batches: some nodes of every part, in all snapshots.",
        source="DynaHB section 6.1, baseline DBoV (its partitioner is not told; METIS is ours)",
        differs_by="targets (all snapshots of some nodes) and seconds of batches",
    ),
    System(
        name="dbos",
        family="hybrid_batches",
        parts=_HYBRID,
        defaults=MappingProxyType({"batch_vertices": 1.0}),
        summary="Snapshot batches: all nodes of every part, in some consecutive snapshots.",
        source="DynaHB section 6.1, baseline DBoS (its partitioner is not told; METIS is ours)",
        differs_by="targets (some snapshots of all nodes)",
    ),
    System(
        name="bvr",
        family="hybrid_batches",
        parts=_HYBRID,
        defaults=MappingProxyType({"batch_snapshots": 1.0, "reservoir": True}),
        summary="As dbov, with batches generated beside training and kept in a reservoir.",
        source="DynaHB section 6.1, baseline DBoV-Reservoir (BVR)",
        differs_by="rows in reservoir and the source in targets",
    ),
    System(
        name="dynahb",
        family="hybrid_batches",
        parts=MappingProxyType({**_HYBRID, "partition": "load_aware", "control": "dqn", "comm": "models"}),
        defaults=MappingProxyType({"reservoir": True}),
        summary="Hybrid batches of some snapshots and some nodes, sized by a DQN and kept in a reservoir; models "
        "are averaged now and then, and no step waits.",
        source="DynaHB sections 4 and 5",
        differs_by="rows in rounds (averaging) and in decisions (sizes)",
    ),
    System(
        name="flaredtdg",
        family="decayed_windows",
        parts=MappingProxyType({**_WINDOW, "batching": "trapezoid"}),
        summary="Hybrid batches: full recent snapshots, decaying older ones; nothing re-indexed, exchanges overlapped.",
        source="FlareDTDG section 3",
        differs_by="rows in batches (a trapezoid) and steps per epoch (one for each snapshot)",
    ),
    System(
        name="full-history",
        family="decayed_windows",
        parts=MappingProxyType({**_WINDOW, "batching": "full_window"}),
        summary="As flaredtdg, with every snapshot of the window whole.",
        source="FlareDTDG section 4.3",
        differs_by="rows in batches (all of every snapshot) and peak bytes",
    ),
    System(
        name="recent-only",
        family="decayed_windows",
        parts=MappingProxyType({**_WINDOW, "batching": "full_window"}),
        defaults=MappingProxyType({"window": 2}),
        summary="As flaredtdg, with the newest two snapshots alone; what came before is in the state they begin with.",
        source="FlareDTDG section 4.3",
        differs_by="rows in batches (two snapshots) and peak bytes",
    ),
    System(
        name="dynagraph",
        family="decayed_windows",
        parts=MappingProxyType({"parallel": "sampled_window", "partition": "hash", "batching": "sampled_window"}),
        summary="Sliding windows with sampled neighbours, aggregations kept between windows, parts dealt anew each "
        "epoch.",
        source="FlareDTDG section 4.1, baseline DynaGraph (Guan et al. 2022)",
        differs_by="edges in batches (sampled) and no rows in links",
    ),
    System(
        name="dgl-default",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "on_demand"}),
        summary="Mini-batches with sampled neighbours; features of other parts' nodes are fetched when needed.",
        source="GreenDyGNN section VI-A, baseline Default DGL (DistDGL)",
        differs_by="rows in fetches (misses alone) and resolved (waited for in every step)",
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
        summary="As bgl, with a cache of the rows that an epoch asks for most, known by sampling it beforehand.",
        source="GreenDyGNN section VI-A, baseline RapidGNN (2025)",
        differs_by="rows in windows (one an epoch)",
    ),
    System(
        name="fixed-window",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "fixed"}),
        summary="As bgl, with a cache rebuilt every W steps for the W that follow.",
        source="GreenDyGNN section VI-H, without RL",
        differs_by="rows in windows (of W steps)",
    ),
    System(
        name="threshold-window",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "threshold"}),
        summary="As fixed-window, with a shorter window where a link is found slow.",
        source="GreenDyGNN equation 7, whose text is lost; the thresholds are ours",
        differs_by="windows (policy and length)",
    ),
    System(
        name="greendygnn",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "double_dqn"}),
        summary="As fixed-window, with window and allocation chosen at every rebuild by a Double DQN as the paper has "
        "it; cache_policy double_dqn_plus and planner are ours, and do better.",
        source="GreenDyGNN sections IV and V",
        differs_by="rows in cache_decisions (values of 8 P actions)",
    ),
    System(
        name="clairvoyant",
        family="feature_cache",
        parts=MappingProxyType({**_REMOTE, "features": "clairvoyant"}),
        summary="As greendygnn, with windows that are optimal in the cost model for congestion known beforehand.",
        source="ours: dynamic programming over rebuilds",
        differs_by="cache_decisions (policy)",
    ),
)

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


STORED = "graph:"  # the prefix of names of graphs that were stored under their hash


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
    raise UnknownNameError(f"entry of {kind}", name, names(kind))


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


def check_links(text: str, parts: int) -> None:
    """Refuse links set by hand that P parts do not have, or whose text is not understood.

    Raises:
        ConfigError: as :func:`dtdg_lab.network.patterns.parse_links` says.
    """
    if text.strip():
        importlib.import_module("dtdg_lab.network.patterns").parse_links(text, parts)


def check_memory(model: str, layout: str) -> str:
    """How ``layout`` keeps the memory of ``model``: ``exact`` or a named approximation.

    Raises:
        UnsupportedError: the layout cannot carry it; the message names the layouts that can.
    """
    memory = entry("models", model).memory
    kept = MEMORY_ON_LAYOUT.get((memory, layout))
    if kept is None:
        able = [other for (kind, other) in MEMORY_ON_LAYOUT if kind == memory and other in names("parallel")]
        raise UnsupportedError(
            f"model {model!r} remembers {memory}, which layout {layout!r} cannot carry. "
            f"Layouts that can: {', '.join(able) or 'none yet'}."
        )
    return kept


def check_task(dataset: str, task: str) -> None:
    """Refuse a task that a data set of the catalogue has no labels for; a stored graph is looked at when it is loaded.

    Raises:
        UnsupportedError: the data set does not serve the task; the message names the tasks it serves.
    """
    if dataset.startswith(STORED):
        return
    able = entry("datasets", dataset).tasks
    if task not in able:
        labelled = [name for name in names("datasets") if task in entry("datasets", name).tasks]
        raise UnsupportedError(
            f"task={task!r} on data set {dataset!r}, which serves {', '.join(able)}. "
            f"Data sets with {task}: {', '.join(labelled)}."
        )


def option_owners(system_name: str, dataset: str, model: str) -> dict[str, tuple[str, ...]]:
    """Room -> names of the options that a run of this system on this data set and model reads."""
    chosen = system(system_name)
    data = entry("datasets", dataset).options if not dataset.startswith(STORED) else ()
    owners: dict[str, tuple[str, ...]] = {"datasets": data, "models": entry("models", model).options}
    for kind, name in chosen.parts.items():
        owners[kind] = entry(kind, name).options
    return {**owners, "tasks": TASK_OPTIONS, "training": TRAINING_OPTIONS, "energy": ENERGY_OPTIONS}


def describe(name: str) -> str:
    """What the catalogue says about a system, algorithm, data set or protocol, as a few lines of text.

    Raises:
        UnknownNameError: the catalogue does not hold the name.
    """
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
    if not lines:
        known = {*names("systems"), *PROTOCOLS, *(candidate.name for candidate in ENTRIES)}
        raise UnknownNameError("name", name, known)
    return "\n".join(lines)
