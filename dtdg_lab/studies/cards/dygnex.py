"""Cards of DyGNeX's two schedulers and of its baselines PSG and BLAD."""

from __future__ import annotations

from dtdg_lab.studies.cards.papers import DYGNEX
from dtdg_lab.studies.cards.text import CardText, Formula, Measured, Reported

_EPOCHS = "python benchmarks/dygnex.py epochs --ranks 2 --only GRAPH --models MODEL"
_SIMULATED = "lab.simulate_schedules()"
_LENGTH = Formula(
    r"T = \sum_{i=1}^{m} T_i, \quad T_i = \max_{1 \le j \le G} \sum_{k: a_k = i, g_k = j} t_k + \alpha",
    "an epoch is the sum of its iterations; each lasts as long as its most loaded rank, and alpha for the gradients",
)
_IMBALANCE = "imbalance, most loaded rank over least loaded, waiting left out"
_SHARED = {"model": "gatlstm", "parts": 2}
_MIXED = "dtdg_lab.scheduling.simulate:simulate", "dtdg_lab.scheduling.linear_times:LinearTimes"

CARDS = (
    CardText(
        system="psg", paper=DYGNEX,
        idea=(
            "A snapshot group is a few consecutive snapshots that are trained from state zero.",
            "So a group needs nothing from any other group, and any rank can compute it at any time.",
            "In each iteration every rank takes the next group in time order, and gradients are summed.",
            "Graphs grow and differ, so some ranks finish early and wait for the slowest.",
            "This waiting is all that a scheduler can win back.",
        ),
        formulas=(
            _LENGTH,
            Formula(r"a_k = \lfloor k/G \rfloor, \quad g_k = k - G \lfloor k/G \rfloor",
                    "group k, counted from 0, goes to the ranks in turn, one a rank and iteration"),
        ),
        reported=(
            Reported("epoch, T-GCN on Reddit", "7.22 s", "Table 4"),
            Reported(_IMBALANCE, "1.26", "section 5.2, Figure 4"),
        ),
        measured=(
            Measured("share of one rank's throughput kept on 512 ranks, simulated, growth linear to 10 times", "87.0 %",
                     _SIMULATED),
            Measured("imbalance on two ranks, grown graph, T-GCN", "1.05", _EPOCHS),
        ),
        code=_MIXED, settings=_SHARED,
    ),
    CardText(
        system="blad", paper=DYGNEX,
        idea=(
            "Two neighbouring snapshot groups are given to one rank and computed at once.",
            "Where one group waits for memory, the other may compute.",
            "The two share most of their snapshots, because a group begins at every snapshot.",
            "The activations of both groups are alive together, which takes memory.",
            "Which groups meet is decided by time and not by size, so ranks stay as uneven as in PSG or become worse.",
        ),
        formulas=(
            _LENGTH,
            Formula(r"(a_k, g_k) = (a_{k+1}, g_{k+1}) \quad \text{for even } k",
                    "neighbours 0 and 1, 2 and 3, ... go to one rank and iteration"),
        ),
        reported=(
            Reported("epoch, T-GCN on Reddit", "6.01 s", "Table 4"),
            Reported(_IMBALANCE, "1.44", "section 5.2, Figure 4"),
            Reported("GPU memory, WD-GCN on Reddit; DyGNeX takes 8.68 GB", "36.07 GB", "Table 7"),
        ),
        measured=(
            Measured("epoch of PSG over that of BLAD, grown graph, T-GCN", "0.90", _EPOCHS),
            Measured("the same, mathoverflow, EvolveGCN-O", "0.54", _EPOCHS),
        ),
        code=("dtdg_lab.parallel.pipelined:add_gradients",), settings=_SHARED,
        differs=("Two threads of one process take the place of the two processes that the original starts on a GPU.",),
    ),
    CardText(
        system="dygnex-g", paper=DYGNEX,
        idea=(
            "Snapshot groups need nothing from each other, so an epoch may compute them in any order.",
            "Each group is timed in the first epochs, and the rest of the training follows a schedule made of these "
            "times.",
            "An iteration begins with the longest group that is left, alone or with a partner, as its target length.",
            "The other ranks get single groups or pairs whose sums come closest to the target, found with two "
            "pointers.",
            "The target that wastes least is kept, so ranks finish together although groups differ.",
        ),
        formulas=(
            _LENGTH,
            Formula(r"W_i = (T_i - \alpha) G - \sum_{k: a_k = i} t_k",
                    "the waste of an iteration: rank time in which nothing is computed; the greedy choice has the "
                    "least"),
        ),
        reported=(
            Reported("less time in an epoch, mean against the state of the art", "24 %", "abstract, Table 4"),
            Reported("epoch, T-GCN on Reddit", "5.34 s", "Table 4"),
            Reported(_IMBALANCE, "1.08", "section 5.2, Figure 4"),
            Reported("share of one node's throughput on 512 GPUs, simulated", "95 %", "section 5.4, Figure 5"),
            Reported("solving for 1000 and 10000 snapshots", "0.162 s, 13.880 s", "Table 5"),
        ),
        measured=(
            Measured("share of one rank's throughput kept on 512 ranks, simulated, growth linear to 10 times: PSG, "
                     "DyGNeX-G with 368 targets, our best_of", "87.0 %, 95.5 %, 99.6 %", _SIMULATED),
            Measured("the same on 1024 ranks, DyGNeX-G with 448 targets", "83.5 %, 96.2 %, 99.6 %", _SIMULATED),
            Measured("epoch of PSG over that of DyGNeX-G, two ranks, grown graph: T-GCN", "1.07", _EPOCHS),
            Measured("the same: EvolveGCN-O", "1.14", _EPOCHS),
            Measured("imbalance of PSG, DyGNeX-G, DyGNeX-L, email-eu, EvolveGCN-O", "1.04, 1.07, 1.06", _EPOCHS),
        ),
        code=("dtdg_lab.scheduling.bounds:lower_bound_s", *_MIXED), settings=_SHARED,
        differs=(
            "Every schedule comes with its distance from a bound that none beats, which the paper has not.",
            "All targets are tried where that takes about a second; else some of them are, and the schedule says how "
            "many.",
        ),
    ),
    CardText(
        system="dygnex-l", paper=DYGNEX,
        idea=(
            "The same snapshot groups as in DyGNeX-G are scheduled for the whole epoch at once.",
            "A 0/1 variable says of every group in which iteration and on which rank it is computed.",
            "A solver minimises the sum of the iterations' lengths and stops when it is close enough to a bound.",
            "It finds better schedules than the greedy choice where groups are few, and takes too long where they are "
            "many.",
            "The paper therefore takes it below 100 groups and DyGNeX-G from there on.",
        ),
        formulas=(
            Formula(r"\min \sum_{i=1}^{m} (z_i + \alpha) \quad \text{with} \quad z_i \ge \sum_{k=1}^{n} x_{k,i,j} t_k",
                    "z is the length of an iteration, at least the load of each of its ranks"),
            Formula(r"\sum_{i=1}^{m} \sum_{j=1}^{G} x_{k,i,j} = 1, \quad \sum_{k=1}^{n} x_{k,i,j} \le L",
                    "every group once, and at most L = 2 of them on a rank in an iteration"),
        ),
        reported=(
            Reported("less time in an epoch, mean against the state of the art", "28 %", "abstract, Table 4"),
            Reported("less time in an epoch than PSG", "3.9 % to 29.7 %", "section 5.2"),
            Reported(_IMBALANCE, "1.04", "section 5.2, Figure 4"),
            Reported("solving 30 and 100 snapshots to a gap of 2 %", "1.93 s, 23.02 s", "Table 6"),
        ),
        measured=(
            Measured("epoch of PSG over that of DyGNeX-L, two ranks, grown graph: EvolveGCN-O", "1.18", _EPOCHS),
            Measured("the same: email-eu, T-GCN", "1.12", _EPOCHS),
            Measured("the same: mathoverflow, T-GCN", "1.02", _EPOCHS),
        ),
        code=("dtdg_lab.scheduling.bounds:lower_bound_s", "dtdg_lab.scheduling.dygnex_model:searched"),
        settings=_SHARED,
    ),
)  # fmt: skip
