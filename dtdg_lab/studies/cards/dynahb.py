"""Cards of DynaHB and of its baselines: vertex parts with and without exchange, and batches of one kind."""

from __future__ import annotations

from dtdg_lab.studies.cards.papers import DYNAHB
from dtdg_lab.studies.cards.text import CardText, Formula, Measured, Reported

_MICRO = "python benchmarks/dynahb.py slowed reservoir memory building"
_GROWTH = "python benchmarks/dynahb.py growth --seconds 5"
_CONVERGENCE = (
    "python benchmarks/dynahb.py convergence --models tgcn --only mathoverflow "
    "--systems dbos dynahb dbov bvr --seconds 5"
)
_STRAGGLER = "python benchmarks/dynahb.py straggler --seeds 3 --only mathoverflow collegemsg"
_LANDSCAPES = "python benchmarks/dynahb.py landscapes"
_CACHE = Formula(
    r"C_i = \{u \,|\, u \in \bigcup_{l=1}^{L} N^l(v), \, v \in P_i, \, u \notin P_i\}",
    "copies that part i holds: all within L hops of its own vertices",
)
_TARGETS = Formula(
    r"V_H = \{v_{i,t} \,|\, i \in B_V, \, t \in B_S\}",
    "targets of a batch: chosen vertices in consecutive snapshots, N_V times N_S of them",
)
_MEMORY = "memory of a step, mathoverflow"
_TOTAL = "time to converge, T-GCN on Flickr"

CARDS = (
    CardText(
        system="adgnn-t", paper=DYNAHB,
        idea=(
            "Every part owns some vertices in all snapshots, and trains all of them in every step.",
            "At every mixing of neighbours it receives the rows of neighbours that other parts own.",
            "On the way back the gradients of these rows travel to their owners.",
            "Nothing is computed twice and nothing is copied, so memory is the least of all.",
            "What travels grows with cut edges, snapshots and layers, and all ranks wait for it.",
        ),
        formulas=(
            Formula(r"V = \sum_{t} \sum_{v} (\lambda_t(v) - 1)",
                    "rows sent in one mixing: lambda counts the parts that own v or a vertex that pulls from it"),
        ),
        reported=(
            Reported(f"{_TOTAL}; DynaHB 4.06 s", "1687 s", "Table 2"),
            Reported("communicating and computing in it", "1517 s, 53.33 s", "Table 3"),
            Reported("host memory, mean; DynaHB 40.25 GB", "18.58 GB", "Table 7"),
        ),
        code=("dtdg_lab.partition.pulled_rows:pulled_rows", "dtdg_lab.parallel.halo_rows:HaloRows"),
        differs=("The paper does not tell its partitioner; METIS is ours.",), settings={"parts": 2},
    ),
    CardText(
        system="pygt-dist", paper=DYNAHB,
        idea=(
            "Every part owns some vertices and holds copies of all vertices within the hops that its model reaches.",
            "So a step needs no row of another part, and only gradients are summed.",
            "Copies are computed again by every part that holds them.",
            "With more layers or denser graphs a part soon holds nearly everything.",
            "A step takes all snapshots and all own vertices, so its memory is the largest.",
        ),
        formulas=(_CACHE,),
        reported=(
            Reported(f"{_TOTAL}; DynaHB 4.06 s", "252 s", "Table 2"),
            Reported("GPU memory, mean; DynaHB 0.47 GB", "9.95 GB", "Table 7"),
        ),
        measured=(Measured(_MEMORY, "34.8 MiB", _MICRO),),
        code=("dtdg_lab.partition.hop_sets:within_hops", "dtdg_lab.parallel.cached_part:CachedPart"),
        differs=("The paper does not tell its partitioner; METIS is ours.",), settings={"parts": 2},
    ),
    CardText(
        system="dbov", paper=DYNAHB,
        idea=(
            "A step takes some vertices of every part, in all snapshots.",
            "Its blocks have every neighbour within the model's hops, out of the copies that the part holds.",
            "So gradients are those of these vertices in the whole graph, and nothing but gradients is sent.",
            "Building the blocks means numbering edges anew for every batch, which may take longer than computing.",
            "All snapshots are computed for few vertices, which leaves a large device idle.",
        ),
        formulas=(_TARGETS, Formula(r"N_S = T, \quad N_V < N", "all snapshots, some vertices")),
        reported=(
            Reported(f"{_TOTAL}; DynaHB 4.06 s", "473 s", "Table 2"),
            Reported("generating batches and computing in it", "443.1 s, 25.29 s", "Table 3"),
        ),
        measured=(
            Measured("DBoS' time to a loss that every system reaches over this one's, mathoverflow, median of five "
                     "seeds: vertex batches are quickest there", "5.9 times", _CONVERGENCE),
            Measured(_MEMORY, "12.7 MiB", _MICRO),
        ),
        code=("dtdg_lab.parallel.target_blocks", "dtdg_lab.batching.load_groups:LoadGroups"),
        settings={"parts": 2},
    ),
    CardText(
        system="dbos", paper=DYNAHB,
        idea=(
            "A step takes all vertices, in some consecutive snapshots.",
            "These snapshots are there already, so a batch is made by saying where it begins.",
            "The paper calls it the state of the art and measures its own speed against it.",
            "Memory and time of a step grow with the graph, whatever the batch.",
            "The state of every vertex begins at zero where the batch begins.",
        ),
        formulas=(_TARGETS, Formula(r"N_V = N, \quad N_S < T", "some snapshots, all vertices")),
        reported=(
            Reported(f"{_TOTAL}; DynaHB 4.06 s", "96.1 s", "Table 2"),
            Reported("time to converge, T-GCN on Bitcoin; DynaHB 3.61 s", "338 s", "Table 2"),
            Reported("GPU memory, mean; DynaHB 0.47 GB", "3.05 GB", "Table 7"),
        ),
        measured=(
            Measured("its step over DynaHB's on grown graphs of 1,000, 4,000, 16,000, 64,000 vertices",
                     "1.9, 2.6, 5.3, 9.8 times", _GROWTH),
            Measured("its time to a loss that both reach, over DynaHB's, the same graphs, medians of five seeds",
                     "0.85, 0.57, 1.30, 1.70", _GROWTH),
            Measured(_MEMORY, "11.9 MiB", _MICRO),
        ),
        code=("dtdg_lab.batching.load_groups:LoadGroups",), settings={"parts": 2},
    ),
    CardText(
        system="bvr", paper=DYNAHB,
        idea=(
            "It takes the batches of DBoV, but does not wait for them.",
            "A generator fills a store of batches beside training, the reservoir.",
            "A step takes one of the store with a probability that grows with what is in it.",
            "Once it is full, batches are used again, and building them costs nothing more.",
            "What it saves over DBoV is what the reservoir alone is worth.",
        ),
        formulas=(
            Formula(r"p = \frac{N_{\text{rsv}}}{N \cdot T / (N_S \cdot N_V) / N_A}",
                    "probability of taking a batch of the reservoir; N_A counts the sizes of batches (equation 4)"),
        ),
        reported=(
            Reported(f"{_TOTAL}; DBoV 473 s", "118 s", "Table 2"),
            Reported("filling the reservoir and computing in it", "5.271 s, 40.27 s", "Table 3"),
        ),
        measured=(
            Measured("DBoS' time to a loss that every system reaches over its own, mathoverflow, median of five seeds",
                     "2.4 times", _CONVERGENCE),
            Measured("time that steps wait for batches once reservoirs are full, mathoverflow", "0.4 %", _MICRO),
        ),
        code=("dtdg_lab.batching.reservoir:Reservoir", "dtdg_lab.parallel.batch_generators:Generators"),
        settings={"parts": 2},
    ),
    CardText(
        system="dynahb", paper=DYNAHB,
        idea=(
            "A step takes some vertices in some consecutive snapshots, which is less than either kind of batch alone.",
            "Each machine holds copies of what its vertices reach, so that no step asks another machine for anything.",
            "Vertices are dealt by the length of their computation graphs, and every batch has the same number of each "
            "group of like load.",
            "A small network learns during training which size of batch lowers the loss fastest, and generators keep a "
            "store of ready batches.",
            "Ranks never wait for each other: every few seconds their models are averaged, and each goes on meanwhile.",
        ),
        formulas=(
            _TARGETS,
            Formula(r"L_i^t = \sum_{l=1}^{L} \sum_{l'=1}^{l} |N^{l'}(v_{i,t})|",
                    "load of a vertex in a snapshot, summed over layers (definition 2)"),
            Formula(r"R = \frac{t_l - t_c}{t_l} + \frac{\Delta \ell_c - \Delta \ell_l}{\Delta \ell_c}",
                    "reward: how much sooner, and how much more the loss fell, than with the size before (equation 3)"),
            Formula(r"p = \frac{N_{\text{rsv}}}{N \cdot T / (N_S \cdot N_V) / N_A}",
                    "probability of taking a batch of the reservoir (equation 4)"),
        ),
        reported=(
            Reported("speed over snapshot batches: mean, most", "8.06, 93 times", "abstract"),
            Reported(f"{_TOTAL}; DBoS 96.1 s", "4.06 s", "Table 2"),
            Reported("its loss there; DBoS 0.657, PyGT-Dist 0.655", "0.650", "Table 2"),
            Reported("time to converge with the DQN, and with sizes at random", "3.21 s, 5.82 s", "Table 10"),
            Reported("GPU memory, mean; DBoS 3.05 GB", "0.47 GB", "Table 7"),
        ),
        measured=(
            Measured("step of DynaHB against DBoS, grown graphs of 1,000 to 64,000 vertices: times shorter",
                     "1.9, 2.6, 5.3, 9.8", _GROWTH),
            Measured("time to a loss that both reach, DBoS over DynaHB, the same graphs, medians of five seeds: 8.06 "
                     "is not reached", "0.85, 0.57, 1.30, 1.70", _GROWTH),
            Measured("the same on mathoverflow and collegemsg", "2.39, 0.56", _CONVERGENCE),
            Measured("time to a loss 5 % above the least where the other rank's steps take 60 ms longer, mathoverflow, "
                     "median of three seeds: with gradients, with models", "0.80, 0.11 s", _STRAGGLER),
            Measured("the other rank's step where one is slowed tenfold: with models, with gradients",
                     "1.06, 10.5", _MICRO),
            Measured("memory of a step, mathoverflow (and of a stand-in)", "8.3 (14.0) MiB", _MICRO),
            Measured("simulated trainings, time over the best fixed size's, medians of five seeds on six landscapes: "
                     "DQN, law", "1.36 to 1.54, 1.00 to 1.13", _LANDSCAPES),
        ),
        code=("dtdg_lab.partition.loads:vertex_loads", "dtdg_lab.batching.load_groups:LoadGroups",
              "dtdg_lab.batching.reservoir:Reservoir", "dtdg_lab.control.rewards:reward",
              "dtdg_lab.control.batch_adjuster:BatchAdjuster", "dtdg_lab.control.progress_law:ProgressLaw",
              "dtdg_lab.parallel.batch_generators:Generators",
              "dtdg_lab.parallel.cached_part:CachedPart"),
        differs=(
            "The reward reads the training loss or the validation part; the released code reads the test part.",
            "Ranks share the steps of an epoch, and a model counts by those it had since the last round; the paper "
            "names neither steps nor weights. A straggler's partition counts for little where partitions differ.",
            "A choice takes effect at the next step of the rank that makes it; others follow after a round.",
            "The DQN does not beat the best fixed size, and hybrid batches do not always reach a loss sooner.",
            "adjuster='law' and reward='progress' are ours: a fitted law, and pay for progress per second.",
        ),
        settings={"parts": 2},
    ),
)  # fmt: skip
