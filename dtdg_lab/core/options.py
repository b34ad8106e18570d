"""The glossary: one entry for every option of a run, with owner, type, unit, bounds, default, meaning and liveness.

``live`` says when a change asked for during a run takes effect: ``"step"`` before the next step on all ranks,
``"epoch"`` at the next epoch boundary (in-memory checkpoint, rebuild, restore), ``"no"`` only in a new run.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dtdg_lab.core.batching_options import BATCHING_OPTIONS
from dtdg_lab.core.catalogue import names
from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.core.feature_options import FEATURE_OPTIONS
from dtdg_lab.core.hybrid_options import HYBRID_OPTIONS
from dtdg_lab.core.option import Option

GLOSSARY: tuple[Option, ...] = (
    # data
    Option(
        name="cut", owner="datasets", kind=int, default=0, low=0, high=100_000,
        meaning="Base intervals the data is cut into, as cut_by says; 0 takes intervals of a fixed length.",
    ),
    Option(
        name="cut_by", owner="datasets", kind=str, default="time", choices=("time", "edges"),
        meaning="What the intervals of cut share equally: the time span, or the number of edges.",
    ),
    Option(
        name="interval", owner="datasets", kind=float, default=0.0, low=0.0, high=1e12,
        meaning="Length of a base interval in the data's unit of time, where cut is 0; 0 takes the data set's own.",
    ),
    Option(
        name="edge_life", owner="datasets", kind=int, default=1, low=1, high=1000, unit="base intervals",
        meaning="Base intervals an edge lives: snapshot i holds the edges of intervals i .. i + edge_life - 1.",
    ),
    Option(
        name="smoothing_window", owner="datasets", kind=int, default=1, low=1, high=1000, unit="snapshots",
        meaning="M-transform of graph and features: means over the last snapshots (w of TM-GCN); 1 is none.",
    ),
    Option(
        name="drop_first", owner="datasets", kind=bool, default=False,
        meaning="Leave out the edges of the first distinct time, as the loaders of DynaHB and FlareDTDG do.",
    ),
    Option(
        name="drop_partial", owner="datasets", kind=bool, default=False,
        meaning="Leave out the edges of the last interval where it is not full: shorter than the others, or with fewer "
        "edges, as EvolveGCN does. Without effect where cut gives the number of intervals.",
    ),
    Option(
        name="min_edges", owner="datasets", kind=int, default=0, low=0, high=1_000_000_000, unit="edges",
        meaning="Snapshots with fewer edges are left out; 0 keeps all, also empty ones.",
    ),
    Option(
        name="features", owner="datasets", kind=str, default="log_degrees",
        choices=("log_degrees", "degrees", "one_hot_degree", "constant", "given"),
        meaning="Vertex features: weighted in- and out-degree (log(1 + d) or raw), one-hot out-degree, 1, or the "
        "data set's own.",
    ),
    Option(
        name="generated_nodes", owner="datasets", kind=int, default=600, low=8, high=100_000_000, unit="vertices",
        meaning="Size of the generated graph.",
    ),
    Option(
        name="generated_edges", owner="datasets", kind=int, default=3000, low=8, high=1_000_000_000, unit="edges",
        meaning="Edges of the last generated snapshot.",
    ),
    Option(
        name="generated_snapshots", owner="datasets", kind=int, default=50, low=4, high=100_000, unit="snapshots",
        meaning="Base intervals of a generated graph, or of a static graph made dynamic.",
    ),
    Option(
        name="growth", owner="datasets", kind=float, default=10.0, low=1.0, high=1000.0,
        meaning="Edges of the last generated snapshot over those of the first.",
    ),
    Option(
        name="growth_curve", owner="datasets", kind=str, default="linear",
        choices=("linear", "exponential", "logistic"),
        meaning="How the number of edges grows from the first generated snapshot to the last.",
    ),
    Option(
        name="churn", owner="datasets", kind=float, default=0.1, low=0.0, high=1.0,
        meaning="Share of the edges that every generated snapshot renews.",
    ),
    Option(
        name="zipf", owner="datasets", kind=float, default=0.6, low=0.0, high=4.0,
        meaning="Exponent of popularity of generated targets: in-degrees have a tail of exponent 1 + 1/zipf.",
    ),
    Option(
        name="communities", owner="datasets", kind=int, default=3, low=2, high=1000,
        meaning="Communities of the generated block model.",
    ),
    Option(
        name="drift", owner="datasets", kind=float, default=0.02, low=0.0, high=1.0,
        meaning="Share of the vertices that change their community at every generated snapshot.",
    ),
    # models
    Option(
        name="gc_layers", owner="models", kind=int, default=1, low=1, high=2,
        meaning="Graph convolutions before the gates of T-GCN: 1 as PyG-Temporal, 2 as the original paper.",
    ),
    Option(
        name="heads", owner="models", kind=int, default=2, low=1, high=64,
        meaning="Attention heads, which share the hidden width.",
    ),
    Option(
        name="diffusion_steps", owner="models", kind=int, default=2, low=1, high=16, unit="hops",
        meaning="Hops of the diffusion convolution in each direction (K of DCRNN).",
    ),
    Option(
        name="transform_window", owner="models", kind=int, default=5, low=1, high=1000, unit="snapshots",
        meaning="Snapshots the M-transform of TM-GCN's activations averages (w).",
    ),
    # tasks
    Option(
        name="task", owner="tasks", kind=str, default="regression", choices=("regression", "classification", "link"),
        meaning="What is learned: the next snapshot's log-degree (or a given value), a vertex's class, or its edges.",
    ),
    Option(
        name="link_share", owner="tasks", kind=float, default=0.1, low=1e-4, high=1.0,
        meaning="Share of the next snapshot's edges that are positives of link prediction (theta of ESDG).",
    ),
    Option(
        name="negatives", owner="tasks", kind=int, default=1, low=1, high=1000,
        meaning="Random pairs without an edge for each positive of link prediction.",
    ),
    Option(
        name="ranking_negatives", owner="tasks", kind=int, default=100, low=1, high=100_000,
        meaning="Targets without an edge against which each evaluated positive is ranked (MRR).",
    ),
    Option(
        name="link_head", owner="tasks", kind=str, default="concat", choices=("concat", "dot"),
        meaning="Score of a pair: linear in the concatenated embeddings (ESDG), or the product of projected ones.",
    ),
    # parallel
    Option(
        name="group_window", owner="parallel", kind=int, default=4, low=1, high=1000, unit="snapshots", live="epoch",
        meaning="Consecutive snapshots in a group (w of DyGNeX).",
    ),
    Option(
        name="group_stride", owner="parallel", kind=int, default=1, low=1, high=1000, unit="snapshots", live="epoch",
        meaning="Distance between the starts of neighbouring groups.",
    ),
    Option(
        name="loss_at", owner="parallel", kind=str, default="last", choices=("last", "all"), live="epoch",
        meaning="Where the loss of a snapshot group, or of a window, is taken: at its last snapshot or at all of them.",
    ),
    Option(
        name="pipelined", owner="parallel", kind=bool, default=False, live="epoch",
        meaning="Whether the groups of a step are in work together, all their activations alive, as in BLAD.",
    ),
    Option(
        name="halo_reuse", owner="parallel", kind=bool, default=False, live="epoch",
        meaning="Whether pulls of features alone are exchanged once and kept; off, they are exchanged in every step.",
    ),
    Option(
        name="blocks", owner="parallel", kind=int, default=1, low=0, high=100_000, live="epoch",
        meaning="Blocks of time (nb of ESDG): activations of one are kept, states between them; backward computes each "
        "again. 0 takes the fewest that fit memory_gib.",
    ),
    Option(
        name="memory_gib", owner="parallel", kind=float, default=4.0, low=1e-6, high=1e6, unit="GiB", live="epoch",
        meaning="Most memory that a step's activations and states may take on a rank, where blocks is 0.",
    ),
    Option(
        name="overlap", owner="parallel", kind=bool, default=True, live="epoch",
        meaning="Whether rows are sent snapshot by snapshot while the next one is computed, or all at once after it.",
    ),
    Option(
        name="graphs", owner="parallel", kind=str, default="brought", choices=("brought", "kept"), live="epoch",
        meaning="With several blocks of time: whether the graphs of each are brought to the device anew, as ESDG does, "
        "or all are kept there, which takes more memory and less time. Ranks that split snapshots keep them.",
    ),
    Option(
        name="difference", owner="parallel", kind=bool, default=True, live="epoch",
        meaning="Whether graphs that are brought are so as differences from the snapshot before, or each whole.",
    ),
    Option(
        name="row_ranks", owner="parallel", kind=int, default=1, low=1, high=4096, unit="ranks", live="epoch",
        meaning="Ranks that split each snapshot by rows; they must divide the ranks. 1: a snapshot is on one rank.",
    ),
    Option(
        name="cache_gib", owner="parallel", kind=float, default=4.0, low=0.0, high=1e6, unit="GiB", live="epoch",
        meaning="Most host memory that the parts with their replicated neighbours may take together.",
    ),
    *BATCHING_OPTIONS,
    *HYBRID_OPTIONS,
    *FEATURE_OPTIONS,
    # partition
    Option(
        name="partitioner", owner="partition", kind=str, default="hash", choices=names("partition"), live="epoch",
        meaning="How vertices are dealt to parts.",
    ),
    Option(
        name="dealing", owner="partition", kind=str, default="boustrophedon", choices=("boustrophedon", "plain"),
        live="epoch",
        meaning="How load_aware deals vertices sorted by load: 1..P, P..1 in turns, or 1..P every time.",
    ),
    Option(
        name="imbalance", owner="partition", kind=float, default=0.03, low=0.0, high=10.0, live="epoch",
        meaning="How much a part may exceed the mean of what metis and hypergraph balance, as a share of it.",
    ),
    Option(
        name="partition_file", owner="partition", kind=str, default="", live="epoch",
        meaning="File that partitioner 'file' reads, as save() of a partition writes it.",
    ),
    # scheduling
    Option(
        name="scheduler", owner="scheduling", kind=str, default="round_robin", live="epoch",
        choices=names("scheduling"),
        meaning="How snapshot groups are dealt to parts and iterations.",
    ),
    Option(
        name="group_times", owner="scheduling", kind=str, default="profile", choices=("profile", "linear", "size"),
        live="epoch",
        meaning="What groups are scheduled by: medians of profiled epochs, a linear model of vertices and edges fitted "
        "to a few timed groups, or their vertices plus edges.",
    ),
    Option(
        name="profile_epochs", owner="scheduling", kind=int, default=5, low=1, high=100, unit="epochs", live="epoch",
        meaning="Epochs in which every group is timed; of several the first is dropped.",
    ),
    Option(
        name="schedule_gap", owner="scheduling", kind=float, default=0.02, low=0.0, high=10.0, live="epoch",
        meaning="How far above a bound dygnex_ilp may stop, as a share of it.",
    ),
    Option(
        name="schedule_limit_s", owner="scheduling", kind=float, default=10.0, low=0.01, high=3600.0, unit="s",
        live="epoch", meaning="Most time that a scheduler searches.",
    ),
    Option(
        name="schedule_targets", owner="scheduling", kind=int, default=0, low=0, high=10_000_000, unit="targets",
        live="epoch",
        meaning="Most targets that DyGNeX-G tries in an iteration. 0: all where that takes about a second by the "
        "numbers of groups and ranks, else as many as do.",
    ),
    Option(
        name="groups_per_rank", owner="scheduling", kind=int, default=1, low=1, high=64, unit="groups", live="epoch",
        meaning="Most groups a part computes between two gradient exchanges.",
    ),
    # training
    Option(
        name="optimizer", owner="training", kind=str, default="adam", choices=("adam", "sgd"),
        meaning="Update rule.",
    ),
    Option(
        name="dtype", owner="training", kind=str, default="float32", choices=("float32", "float64"),
        meaning="Floating-point type of features, parameters and gradients.",
    ),
    Option(
        name="kernel", owner="training", kind=str, default="auto", choices=("auto", "dgl", "torch"),
        meaning="Backend of sparse products; auto picks by device and edge weights, as measured.",
    ),
    Option(
        name="norm", owner="training", kind=str, default="in", choices=("in", "in_out"),
        meaning="Scaling of graph convolutions: 1/sqrt(1 + in-degree) on both sides, or, as FlareDTDG's code, "
        "1/sqrt(in-degree of the target x out-degree of the source).",
    ),
    Option(
        name="self_loops", owner="training", kind=bool, default=True,
        meaning="Whether graph convolutions add every vertex to its own neighbours.",
    ),
    Option(
        name="evaluate_every", owner="training", kind=int, default=1, low=1, high=100_000, unit="epochs", live="epoch",
        meaning="Epochs between two evaluations of the training and validation parts.",
    ),
    Option(
        name="checkpoint_every_s", owner="training", kind=float, default=2.0, low=0.0, high=86_400.0, unit="s",
        meaning="Least time between two checkpoints, which are taken between steps; where steps hand on a state, where "
        "none is handed on.",
    ),
    Option(
        name="keep_every", owner="training", kind=int, default=0, low=0, high=100_000, unit="epochs", live="epoch",
        meaning="Epochs between two checkpoints that are kept beside the last one, to branch from; 0 keeps none.",
    ),
    Option(
        name="slow_rank", owner="training", kind=int, default=-1, low=-1, high=4095, live="step",
        meaning="Rank made slower on purpose, to see imbalance; -1 is none.",
    ),
    Option(
        name="slow_ms", owner="training", kind=float, default=0.0, low=0.0, high=5000.0, unit="ms", live="step",
        meaning="Time the slowed rank sleeps inside the compute phase of every step.",
    ),
    # energy
    Option(
        name="power_idle_w", owner="energy", kind=float, default=20.0, low=0.0, high=10_000.0, unit="W", live="step",
        meaning="Assumed power of the idle processors of a node, for modelled energy only.",
    ),
    Option(
        name="power_max_w", owner="energy", kind=float, default=100.0, low=0.0, high=10_000.0, unit="W", live="step",
        meaning="Assumed power of a node with all processor cores busy, for modelled energy only.",
    ),
    Option(
        name="power_gpu_idle_w", owner="energy", kind=float, default=30.0, low=0.0, high=10_000.0, unit="W",
        live="step", meaning="Assumed power of a GPU that waits, where NVML cannot read it.",
    ),
    Option(
        name="power_gpu_max_w", owner="energy", kind=float, default=250.0, low=0.0, high=10_000.0, unit="W",
        live="step", meaning="Assumed power of a GPU that computes, where NVML cannot read it; 0: it stays unknown.",
    ),
    # the run itself
    Option(
        name="epochs", owner="run", kind=int, default=5, low=1, high=10_000_000, unit="epochs", live="epoch",
        meaning="Passes over the training part.",
    ),
    Option(name="seed", owner="run", kind=int, default=0, low=0, high=2**53, meaning="Seed of every random stream."),
    Option(
        name="ranks", owner="run", kind=int, default=1, low=1, high=4096, unit="processes",
        meaning="Processes that train together (R).",
    ),
    Option(
        name="parts", owner="run", kind=int, default=0, low=0, high=65_536, live="epoch",
        meaning="Parts the plan is made for (P); 0 takes the number of ranks, which must divide it (2 for one rank "
        "where features are fetched).",
    ),
    Option(name="hidden", owner="run", kind=int, default=32, low=1, high=65_536, meaning="Width of hidden layers (H)."),
    Option(name="layers", owner="run", kind=int, default=1, low=1, high=64, meaning="Layers of the model."),
    Option(
        name="learning_rate", owner="run", kind=float, default=1e-3, low=0.0, high=100.0, live="step",
        meaning="Step size of the optimiser.",
    ),
    Option(
        name="threads", owner="run", kind=int, default=0, low=0, high=1024, unit="threads",
        meaning="Threads of each rank; 0 shares the machine's cores out.",
    ),
    Option(
        name="device", owner="run", kind=str, default="auto", choices=("auto", "cpu", "cuda"),
        meaning="Where ranks compute; auto takes one GPU a rank when there are enough, else the CPU.",
    ),
)  # fmt: skip

OPTIONS: Mapping[str, Option] = MappingProxyType({option.name: option for option in GLOSSARY})


def option(name: str) -> Option:
    """The glossary entry called ``name``.

    Raises:
        UnknownNameError: no option has that name.
    """
    if name not in OPTIONS:
        raise UnknownNameError("option", name, OPTIONS)
    return OPTIONS[name]
