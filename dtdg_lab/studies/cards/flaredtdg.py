"""Cards of FlareDTDG, of the two windows it is compared with, and of its baseline DynaGraph."""

from __future__ import annotations

from dtdg_lab.studies.cards.papers import FLAREDTDG
from dtdg_lab.studies.cards.text import CardText, Formula, Measured, Reported

_PEER = "python benchmarks/flaredtdg.py peer"
_MEMORY = "python benchmarks/flaredtdg.py memory --only W1 mathoverflow --models tgcn mpnn-lstm --ranks 1"
_BATCH = Formula(
    r"B_t = \{G_{t-K+1}, \ldots, G_t\} \cup \{\hat{G}_{t-K-m+1}, \ldots, \hat{G}_{t-K}\}",
    "K whole snapshots, and m older ones of which only some chunks are left",
)
_DECAY = Formula(
    r"N_{t-1} = \lfloor \beta N_t \rfloor, \quad \beta = \alpha^{1/m}",
    "chunks that each older snapshot keeps (rule text); rule ladder falls geometrically from alpha of them to one, "
    "each rung rounded up",
)

CARDS = (
    CardText(
        system="flaredtdg", paper=FLAREDTDG,
        idea=(
            "Recent snapshots say most about the next one, and old ones little.",
            "So a step takes the newest K snapshots whole and keeps ever fewer chunks of those before them, which "
            "gives the "
            "window the shape of a trapezoid.",
            "What an old snapshot keeps, all newer ones keep too, so that a vertex has an unbroken chain of states; "
            "one that enters late inherits the state that it had after the same earlier snapshot in the step before.",
            "Vertices are numbered once an epoch by how long they survive, and each smaller snapshot is then a "
            "prefix, cut "
            "out without numbering anything anew.",
            "Only whole snapshots exchange rows between ranks, and these travel while other snapshots are computed.",
        ),
        formulas=(
            _BATCH, _DECAY,
            Formula(r"h_t = \text{RNN}(\bar{h}_{t-1}, \text{GNN}(B_t))",
                    "states that the step before left are inherited, without their gradient"),
        ),
        reported=(
            Reported("speed over the best baseline", "1.4 to 2.5 times", "abstract, Table 4"),
            Reported("less GPU memory than full-batch baselines", "10 % to 85 %", "abstract"),
            Reported("less GPU memory than Full-History", "67 % to 71 %", "section 4.3, Table 7"),
            Reported("squared error, MPNN-LSTM on soc-flickr; Full-History 0.0597, Recent-Only 0.6867", "0.0543",
                     "Table 6"),
            Reported("less time by cutting prefixes instead of numbering anew", "5.3 % to 25.3 %", "Table 9"),
            Reported("less communication that nothing hides", "6.9 % to 20.4 %", "Table 11"),
        ),
        measured=(
            Measured("epoch of 39 hybrid steps, T-GCN on W1, over PyG-Temporal's full-batch epoch; share of its memory",
                     "0.43, 7 %", _PEER),
            Measured("peak memory of any step over Full-History's, MPNN-LSTM, ladder: W1, mathoverflow",
                     "37.1 %, 37.8 %", _MEMORY),
            Measured("the same, text", "39.6 %, 43.7 %", _MEMORY),
            Measured("the same, T-GCN, W1: ladder and text", "49.3 %, 42.8 %", _MEMORY),
        ),
        code=("dtdg_lab.batching.decay:decayed_counts", "dtdg_lab.batching.survival:survival_order",
              "dtdg_lab.batching.shrink:Shrinker", "dtdg_lab.partition.chunks:make_chunks",
              "dtdg_lab.parallel.pace:Pace", "dtdg_lab.scheduling.early_ready:early_ready",
              "dtdg_lab.scheduling.task_times:TaskTimePredictor", "dtdg_lab.batching.greedy_tuner:next_setting"),
        differs=(
            "Two rules of decay are kept apart by name: the paper's text keeps 49 % of the rows, the authors' code "
            "28 %. Neither comes down to the memory that the paper reports, since inherited states are counted here.",
            "Norms of decayed snapshots are made anew from what is kept.",
            "Of the states that a step leaves, one row of each vertex is kept: the one that the next window of the "
            "same shape asks for. The authors' code keeps all rows of all snapshots.",
            "The loss is at the last snapshot, as the text reads; the authors' code averages it over the window, which "
            "is loss_at='all'.",
            "A tuner's candidate is tried for an epoch and judged by the run's validation loss; the paper does not say "
            "how it evaluates one.",
        ),
        settings={"parts": 2},
    ),
    CardText(
        system="full-history", paper=FLAREDTDG,
        idea=(
            "Every snapshot of the window is whole.",
            "A step sees all vertices and edges of the last eight snapshots, and exchanges rows in each of them.",
            "Nothing is lost within the window, and what lies before it comes with the state.",
            "Memory and time grow with the window, which is what the trapezoid saves.",
            "It is the yardstick: a decayed window should come near its loss for much less.",
        ),
        formulas=(
            Formula(r"B_t = \{G_{t-W+1}, \ldots, G_t\}", "all W snapshots whole: K = W and m = 0"),
        ),
        reported=(
            Reported("GPU memory, MPNN-LSTM on soc-flickr (the table's head says GB; MB fits); FlareDTDG 2,441.61",
                     "7,336.17", "Table 7"),
            Reported("time to converge, the same; FlareDTDG 2,362.3 s", "7,475.6 s", "Table 8"),
        ),
        measured=(
            Measured("peak memory of FlareDTDG's windows over this one's, MPNN-LSTM, ladder: W1, mathoverflow",
                     "37.1 %, 37.8 %", _MEMORY),
        ),
        code=("dtdg_lab.parallel.window_work:WindowWork",), settings={"parts": 2},
    ),
    CardText(
        system="recent-only", paper=FLAREDTDG,
        idea=(
            "A step takes the newest two snapshots and nothing else.",
            "It is the cheapest window, for nothing old is kept.",
            "The state that came before is handed on without its gradient, so the past is not forgotten altogether.",
            "What the past should hold for the future cannot be learned any more, since no gradient reaches it.",
            "If this were as good as the trapezoid, decayed snapshots would be of no use.",
        ),
        formulas=(
            Formula(r"B_t = \{G_{t-1}, G_t\}, \quad h_{t-2} \text{ is given, without gradient}",
                    "two snapshots: W = K = 2 and m = 0"),
        ),
        reported=(
            Reported("squared error, MPNN-LSTM, rec-amazon; FlareDTDG 0.1245, Full-History 0.0943", "1.2034",
                     "Table 6"),
            Reported("squared error, T-GCN on soc-flickr; FlareDTDG 0.0876, Full-History 0.0562", "0.1395", "Table 6"),
        ),
        code=("dtdg_lab.parallel.window_work:WindowWork",),
        differs=(
            "It is not two snapshots from state zero, which would be psg with group_window=2: lesson 07 shows both.",
        ),
        settings={"parts": 2},
    ),
    CardText(
        system="dynagraph", paper=FLAREDTDG,
        idea=(
            "A window of consecutive snapshots slides over the sequence.",
            "Of each vertex a few in-neighbours are drawn, so that a part needs copies of what it samples and nothing "
            "else.",
            "Aggregations of a snapshot are kept while it stays in the window, and not computed again.",
            "Vertices are dealt to parts anew in every epoch, so that parts see different data.",
            "All snapshots of the window are sampled alike, however old they are.",
        ),
        formulas=(
            Formula(r"\sum_{u \in S(v)} \frac{c_v}{k_v} w_{uv} x_u \approx \sum_{u \in N(v)} w_{uv} x_u, \quad "
                    r"k_v = \min (c_v, f)",
                    "with f of c neighbours drawn, their weights grow so that the sum is right on average"),
        ),
        reported=(
            Reported("squared error, MPNN-LSTM on rec-amazon; FlareDTDG 0.1245", "0.3082", "Table 3"),
            Reported("time to converge, MPNN-LSTM on soc-bitcoin; FlareDTDG 4,346.1 s", "22,884.4 s", "Table 4"),
            Reported("GPU memory per device, T-GCN on papers100M; FlareDTDG 38.6 GB", "41.5 GB", "Table 5"),
        ),
        code=("dtdg_lab.batching.sampling:sampled_edges",), settings={"parts": 2},
    ),
)  # fmt: skip
