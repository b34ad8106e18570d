"""The five papers, and what is ours."""

from __future__ import annotations

from dtdg_lab.studies.cards.text import Paper

ESDG = Paper(
    name="ESDG", main="esdg",
    reference="Chakaravarthy, Pandian, Raje, Sabharwal, Suzumura, Ubaru: Efficient scaling of dynamic graph neural "
    "networks, SC 2021",
    protocol="16 nodes of 8 V100 (32 GiB), InfiniBand; epinions, flickr, youtube and AMLSim, smoothed for two of three "
    "models; two layers, hidden width 6; time of an epoch, mean of 5; convergence by link prediction on the snapshot "
    "after the last, without a validation part",
)  # fmt: skip
DYNAHB = Paper(
    name="DynaHB", main="dynahb",
    reference="Song, Gu, Sun, Li, Zhang, Li, Jensen, Yu: DynaHB: A Communication-Avoiding Asynchronous Distributed "
    "Framework with Hybrid Batches for Dynamic GNN Training, PVLDB 17 (11), 2024",
    protocol="5 machines with a 2080Ti each, 10 Gbit/s, or 8 A6000 in one; six graphs of 0.05 to 24.6 million "
    "vertices, edges that live for many intervals; T-GCN, DCRNN, EvolveGCN; first 0.4 to train and 0.6 to test "
    "without a gap; converged after ten evaluations without improvement",
)  # fmt: skip
DYGNEX = Paper(
    name="DyGNeX", main="dygnex-g",
    reference="Anonymous: DyGNeX: Efficient Distributed Training of Dynamic Graph Neural Networks with Cross "
    "Time-Window Scheduling, under review",
    protocol="4 A100 (80 GiB) on PCIe; Arxiv, Products and Reddit with random edges deleted (30 snapshots), Stack "
    "Overflow (50); windows of 4, two layers; EvolveGCN, WD-GCN, T-GCN, GAT-LSTM; time of an epoch, accuracy over 100 "
    "epochs; more than 4 GPUs are simulated, and the growth of that graph is not given",
)  # fmt: skip
FLAREDTDG = Paper(
    name="FlareDTDG", main="flaredtdg",
    reference="Huang, Wang, Cao, Zheng, Wang, Song, Wu, Chen: FlareDTDG: Harnessing Temporal Recency for Scalable "
    "Discrete-Time Dynamic Graph Training, PVLDB 19 (7), 2026",
    protocol="4 nodes of 4 A40 (48 GiB), InfiniBand; soc-flickr, rec-amazon and soc-youtube on 4 GPUs, soc-bitcoin and "
    "papers100M on 16; windows of 8 for all but ESDG; T-GCN, MPNN-LSTM, EvolveGCN; Adam at 0.001; the released loader "
    "splits 40/60 without a gap",
)  # fmt: skip
GREENDYGNN = Paper(
    name="GreenDyGNN", main="greendygnn",
    reference="GreenDyGNN: Runtime-Adaptive Energy-Efficient Communication for Distributed GNN Training",
    protocol="4 nodes with 2 P100 each, 25 Gbit/s; Reddit, ogbn-products, papers100M (static graphs) in 4 METIS parts; "
    "GraphSAGE 2 x 16, fan-outs 10 and 25, batches of 1000 to 3000, 30 epochs; delays of 15 to 25 ms on one or two "
    "nodes in epochs 3 to 9 of every seven; joules by RAPL and NVML, summed over nodes",
)  # fmt: skip
OURS = Paper(
    name="DTDG Lab", main="single", reference="No paper: made for this laboratory", protocol="Nothing was reported.",
)  # fmt: skip

PAPERS = (ESDG, DYNAHB, DYGNEX, FLAREDTDG, GREENDYGNN)
