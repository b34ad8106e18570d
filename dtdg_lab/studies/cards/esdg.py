"""Cards of ESDG, its hybrid, and the vertex partition it is compared with."""

from __future__ import annotations

from dtdg_lab.studies.cards.papers import ESDG
from dtdg_lab.studies.cards.text import CardText, Formula, Measured, Reported

_BENCH = "python benchmarks/esdg.py --quick"
_REDISTRIBUTED = Formula(
    r"V_{\text{redist}} = \sum_{p \ne q} |T_p| \cdot |V_q| = T N \frac{R-1}{R}",
    "rows that one redistribution sends over all ranks: it nears T N however many ranks there are",
)
_HYPERGRAPH_NUMBERS = "numbers sent, hypergraph over snapshot partition, on 2, 4, 16 ranks"
_SHARED = {"model": "cdgcn", "layers": 2}

CARDS = (
    CardText(
        system="esdg", paper=ESDG,
        idea=(
            "Mixing neighbours needs a whole snapshot and nothing else, and time needs one vertex in all snapshots.",
            "So every rank mixes neighbours in snapshots of its own, and an all-to-all exchange then gives it some "
            "vertices in all snapshots to run through time.",
            "What is sent depends on vertices and snapshots alone, not on edges, and hardly on the number of ranks.",
            "Time is cut into blocks of which one keeps its activations, while of the others only the state before "
            "them is "
            "kept and the way back computes them again.",
            "Snapshots that must be brought to the device again are sent as differences from the one before, for "
            "neighbouring snapshots share most edges.",
        ),
        formulas=(
            _REDISTRIBUTED,
            Formula(r"\pi_b = (S_{e(b)}, \text{ last } w \text{ activations}), \quad \text{memory} = "
                    r"O(\frac{T}{n_b} + n_b)",
                    "what is kept of a block, and why there is a best number of blocks"),
            Formula(r"\frac{\text{bsize} - R}{\text{bsize}}, \quad \text{bsize} = \frac{T}{n_b}",
                    "share of snapshots that can be sent as differences: each rank needs its first one whole"),
        ),
        reported=(
            Reported("speed on 128 GPUs over one", "up to 30 times", "abstract, Figure 5"),
            Reported("time of bringing snapshots, whole over difference", "up to 4.1 times", "section 6.2, Figure 4"),
            Reported("less time of an epoch by differences", "up to 40 %", "section 6.2"),
            Reported("numbers sent, TM-GCN on 4, 16, 64 ranks: snapshots", "5.2, 6.5, 6.8 billion", "Table 2"),
        ),
        measured=(
            Measured("peak memory in 2 and 4 blocks, of one", "79 %, 52 %", _BENCH),
            Measured("time of a step in 2 and 4 blocks, of one (graphs brought anew)", "2.6, 3.3", _BENCH),
            Measured("graphs as differences: bytes saved, of the bound the overlap allows", "100 %", _BENCH),
            Measured("time of bringing them, whole over difference, on the CPU", "0.57", _BENCH),
            Measured("losses of R = 1, 2 and of both partitions apart, five epochs", "1.2e-7", _BENCH),
        ),
        code=("dtdg_lab.parallel.redistribution:Redistribution", "dtdg_lab.parallel.checkpointed:Blocks",
              "dtdg_lab.graphs.difference:encode", "dtdg_lab.partition.snapshot_volume:Volume"),
        differs=(
            "Fewer legs are sent than the paper counts, or narrower ones: lab.compare_volumes says which and why.",
            "With overlap rows of one piece travel while the next is computed; the paper proposes it and leaves it "
            "open.",
        ),
        settings={**_SHARED, "parts": 2, "blocks": 2},
    ),
    CardText(
        system="esdg-hybrid", paper=ESDG,
        idea=(
            "A snapshot may be too large for one rank, and there may be fewer snapshots than ranks.",
            "Ranks are therefore put into groups, and each group shares its snapshots by rows.",
            "Within a group, rows of neighbours travel, as between vertex parts.",
            "Between groups, vertices are redistributed as in ESDG, among ranks that hold the same rows.",
            "With one rank a group it is ESDG, and with one group it is a vertex partition.",
        ),
        formulas=(
            _REDISTRIBUTED,
            Formula(r"R = K \cdot G, \quad V = T N \frac{K-1}{K} + \sum_{t} \sum_{v} (\lambda_t(v) - 1)",
                    "K groups of G ranks: redistribution between groups, and rows of neighbours within them"),
        ),
        reported=(
            Reported("TM-GCN on two GPUs, each snapshot split between them: accuracy for graphs of 2.2 and 3.2 billion "
                     "non-zeros", "63.8 %, 65.8 %", "section 6.5"),
        ),
        code=("dtdg_lab.partition.snapshot_volume:pulled_by_groups", "dtdg_lab.parallel.redistribution:Redistribution"),
        differs=("The paper leaves the hybrid open; groups, columns and what each rank sends are decided here.",),
        settings={**_SHARED, "ranks": 2, "row_ranks": 2},
    ),
    CardText(
        system="hypergraph-vertex", paper=ESDG,
        idea=(
            "Every rank owns some vertices in all snapshots, so that time needs no exchange.",
            "Mixing neighbours then needs the rows of vertices that other ranks own.",
            "A row is sent once to a rank, however many of its vertices need it, which a hypergraph counts and a graph "
            "does not.",
            "One net for each vertex and snapshot holds all who pull from it, and the partitioner minimises the ranks "
            "that "
            "a net touches.",
            "What is sent grows with ranks and density, and its pattern is irregular, which is what ESDG argues "
            "against.",
        ),
        formulas=(
            Formula(r"V_{\text{km1}} = \sum_{t} \sum_{v} (\lambda_t(v) - 1)",
                    "lambda counts the ranks that own v or a vertex that pulls from it in snapshot t"),
        ),
        reported=(
            Reported("numbers sent, TM-GCN on 4, 16, 64 ranks", "3.2, 6.8, 9.5 billion", "Table 2"),
            Reported("the same, CD-GCN, where snapshots send 13.8, 17.3, 18.1 billion", "0.4, 0.9, 1.2 billion",
                     "Table 2"),
            Reported("time of an epoch, TM-GCN on 64 ranks, where snapshots take 593 ms", "9164 ms", "Table 2"),
        ),
        measured=(Measured(_HYPERGRAPH_NUMBERS, "0.79, 1.23, 2.12", _BENCH),),
        code=("dtdg_lab.partition.nets:merged_nets", "dtdg_lab.partition.pulled_rows:pulled_rows"),
        settings={**_SHARED, "parts": 2},
    ),
)  # fmt: skip
