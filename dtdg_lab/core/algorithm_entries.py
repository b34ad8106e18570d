"""The algorithms of the catalogue: models, tasks, layouts."""

from __future__ import annotations

from dtdg_lab.core.entry import Entry


def _model(name: str, target: str, memory: str, summary: str, source: str, *options: str) -> Entry:
    return Entry(
        name=name, room="models", target=f"dtdg_lab.models.{target}", memory=memory, summary=summary, source=source,
        options=options,
    )  # fmt: skip


MODELS: tuple[Entry, ...] = (
    _model(
        "tgcn", "tgcn:TGCN", "per_vertex",
        "Graph convolution, then a GRU per vertex; the hidden state is never convolved.",
        "Zhao et al. 2019 (T-GCN), section III-C", "gc_layers",
    ),
    _model(
        "wdgcn", "wdgcn:WDGCN", "per_vertex", "Graph convolution, then an LSTM per vertex.",
        "Manessi, Rozza, Manzo 2020 (Waterfall Dynamic-GCN); DyGNeX section 5.1",
    ),
    _model(
        "gatlstm", "gatlstm:GATLSTM", "per_vertex", "Graph attention, then an LSTM per vertex.",
        "Velickovic et al. 2018 (GAT), equations 1 to 5; DyGNeX section 5.1", "heads",
    ),
    _model(
        "cdgcn", "cdgcn:CDGCN", "per_vertex",
        "Aggregated features beside their convolution, then an LSTM per vertex.",
        "Manessi, Rozza, Manzo 2020 (CD-GCN); ESDG section 5.1",
    ),
    _model(
        "mpnn-lstm", "mpnn_lstm:MPNNLSTM", "per_vertex",
        "Two graph convolutions whose outputs stand side by side, then two stacked LSTMs per vertex.",
        "Panagopoulos, Nikolentzos, Vazirgiannis 2021 (MPNN+LSTM)",
    ),
    _model(
        "tmgcn", "tmgcn:TMGCN", "per_vertex",
        "Graph convolution, then the mean of the last activations; nothing of time is learned.",
        "Malik et al. 2021 (TM-GCN); ESDG section 5.3", "transform_window",
    ),
    _model(
        "evolvegcn-o", "evolvegcn_o:EvolveGCNO", "weights",
        "Graph convolution whose weights evolve through time by an LSTM; vertices carry no state.",
        "Pareja et al. 2020 (EvolveGCN), section 3.2",
    ),
    _model(
        "evolvegcn-h", "evolvegcn_h:EvolveGCNH", "weights_from_data",
        "Graph convolution whose weights evolve by a GRU fed with the most important vertices' features.",
        "Pareja et al. 2020 (EvolveGCN), section 3.2",
    ),
    _model(
        "dcrnn", "dcrnn:DCRNN", "neighbourhood",
        "A GRU whose gates diffuse features and hidden state over edges, both ways.",
        "Li et al. 2018 (DCRNN), equations 2 and 3", "diffusion_steps",
    ),
    _model(
        "graphsage", "graphsage:GraphSAGE", "none",
        "A vertex beside the mean of its in-neighbours; nothing is remembered.",
        "Hamilton, Ying, Leskovec 2017 (GraphSAGE), algorithm 1, mean",
    ),
)  # fmt: skip

TASKS: tuple[Entry, ...] = (
    Entry(
        name="regression", room="tasks", target="dtdg_lab.tasks.regression:Regression",
        summary="Squared error of every vertex's next log-degree, or of the value the data set gives.",
        source="DynaHB and FlareDTDG, released code",
    ),
    Entry(
        name="classification", room="tasks", target="dtdg_lab.tasks.classification:Classification",
        summary="Cross-entropy of the classes of labelled vertices.",
        source="DynaHB section 7 (Cora-T, Pubmed-T); EvolveGCN section 4.2 (Elliptic)",
    ),
    Entry(
        name="link", room="tasks", target="dtdg_lab.tasks.link:LinkPrediction",
        summary="Which edges the next snapshot has, against random pairs that the edges alone decide.",
        source="ESDG section 6; ranks as in TGB 2023",
        options=("link_share", "negatives", "ranking_negatives", "link_head"),
    ),
)  # fmt: skip

LAYOUTS: tuple[Entry, ...] = (
    Entry(
        name="single", room="parallel", target="dtdg_lab.parallel.single:SingleLayout",
        summary="The whole training sequence as one batch in one process: the reference.", source="ours",
    ),
    Entry(
        name="snapshot_group", room="parallel", target="dtdg_lab.parallel.snapshot_group:SnapshotGroupLayout",
        summary="Each part computes whole groups of consecutive snapshots; gradients are summed over ranks.",
        source="DyGNeX sections 3 and 4", options=("group_window", "group_stride", "loss_at", "pipelined"),
    ),
    Entry(
        name="halo_vertex", room="parallel", target="dtdg_lab.parallel.halo_vertex:HaloVertexLayout",
        summary="Each part owns vertices in all snapshots; rows of remote neighbours are exchanged at every pull.",
        source="ADGNN-T as DynaHB section 7.1 has it; ESDG section 4.1 (vertex partitioning)",
        options=("halo_reuse", "blocks", "memory_gib"),
    ),
    Entry(
        name="snapshot", room="parallel", target="dtdg_lab.parallel.snapshot:SnapshotLayout",
        summary="Each part computes whole snapshots, then some vertices through time; rows go all to all in between.",
        source="ESDG section 4.2; row-wise hybrid and overlap: section 6.5, which leaves them open",
        options=("blocks", "memory_gib", "overlap", "graphs", "difference", "row_ranks", "halo_reuse"),
    ),
    Entry(
        name="cached_vertex", room="parallel", target="dtdg_lab.parallel.cached_vertex:CachedVertexLayout",
        summary="Each part owns vertices and keeps copies of their L-hop neighbours; only gradients are exchanged.",
        source="DynaHB section 4.1 (L-layer cache); its baseline PyGT-Dist", options=("cache_gib",),
    ),
    Entry(
        name="halo_window", room="parallel", target="dtdg_lab.parallel.halo_window:HaloWindowLayout",
        summary="Each part owns vertices; a step is a window of snapshots. Full ones exchange rows of remote "
        "neighbours, decayed ones need none.",
        source="FlareDTDG sections 3.2 to 3.4", options=("overlap", "halo_reuse", "loss_at"),
    ),
    Entry(
        name="sampled_window", room="parallel", target="dtdg_lab.parallel.sampled_window:SampledWindowLayout",
        summary="Each part owns vertices anew in every epoch and has copies of what it samples; a step is a window.",
        source="DynaGraph (Guan et al. 2022), as FlareDTDG sections 2.2 and 4.1 describe it",
    ),
    Entry(
        name="remote_feature", room="parallel", target="dtdg_lab.parallel.remote_feature:RemoteFeatureLayout",
        summary="Each part trains mini-batches of its own vertices; features of others' vertices are fetched from "
        "whoever owns them, by remote procedure calls.",
        source="GreenDyGNN sections II and V, on DistDGL (Zheng et al. 2020)",
    ),
)  # fmt: skip
