"""The options of hybrid batches: their sizes, who makes and chooses them, and what ranks exchange."""

from __future__ import annotations

from dtdg_lab.core.catalogue import names
from dtdg_lab.core.option import Option

SIZES: tuple[Option, ...] = (
    Option(
        name="batch_snapshots", owner="batching", kind=float, default=0.2, low=1e-9, high=1e9, live="step",
        meaning="Consecutive snapshots of a batch (N_S): a share of the training part up to 1, which is all of it, or "
        "a whole number of them from 2. Where an adjuster chooses, the nearest of its sizes.",
    ),
    Option(
        name="batch_vertices", owner="batching", kind=float, default=0.05, low=1e-9, high=1e9, live="step",
        meaning="Target vertices of a batch, of every part (N_V): a share of the part's trained vertices up to 1, "
        "which is all of them, or a whole number from 2. Where an adjuster chooses, the nearest of its sizes.",
    ),
    Option(
        name="load_groups", owner="batching", kind=int, default=10, low=1, high=10_000, unit="groups", live="epoch",
        meaning="Groups of like load that a part's vertices are sorted into; a batch takes equally many of each.",
    ),
    Option(
        name="epoch_batches", owner="batching", kind=int, default=20, low=1, high=1_000_000, unit="steps",
        live="epoch",
        meaning="Steps of an epoch on each rank: batches are drawn at random, and no number of them is the whole. With "
        "exchange='models' ranks share the steps of all, and a faster one makes more.",
    ),
    Option(
        name="reservoir", owner="batching", kind=bool, default=False, live="step",
        meaning="Whether batches are generated beside training and kept for use again.",
    ),
    Option(
        name="reservoir_gib", owner="batching", kind=float, default=0.5, low=1e-6, high=1e6, unit="GiB", live="epoch",
        meaning="Most memory that the batches kept by one rank may take.",
    ),
    Option(
        name="reservoir_uses", owner="batching", kind=int, default=0, low=0, high=1_000_000, unit="steps",
        live="epoch",
        meaning="Steps after which a kept batch makes room for a new one; 0 keeps every batch for good, as the paper.",
    ),
    Option(
        name="generators", owner="batching", kind=str, default="processes", choices=("threads", "processes"),
        live="epoch", meaning="What generates batches beside training.",
    ),
    Option(
        name="stand_in_gib", owner="batching", kind=float, default=2.0, low=0.0, high=1e6, unit="GiB", live="epoch",
        meaning="Most memory that a step may take for a batch of all vertices to stand in for one that the reservoir "
        "does not give; above, a new batch is built while the step waits.",
    ),
)  # fmt: skip

ADJUSTING: tuple[Option, ...] = (
    Option(
        name="adjuster", owner="control", kind=str, default="none", choices=names("control"), live="step",
        meaning="What chooses the size of batches while training runs.",
    ),
    Option(
        name="snapshot_sizes", owner="control", kind=str, default="0.1 0.2 0.3", live="epoch",
        meaning="Sizes in snapshots that an adjuster may choose: numbers as batch_snapshots takes, blanks between.",
    ),
    Option(
        name="vertex_sizes", owner="control", kind=str, default="0.01 0.05 0.1", live="epoch",
        meaning="Sizes in vertices that an adjuster may choose: numbers as batch_vertices takes, blanks between.",
    ),
    Option(
        name="decide_every", owner="control", kind=int, default=5, low=1, high=1_000_000, unit="steps", live="step",
        meaning="Steps under one size before an adjuster chooses again. The rank that decides uses its choice from its "
        "next step on; where models are averaged, other ranks follow after the next round.",
    ),
    Option(
        name="reward_loss", owner="control", kind=str, default="train", choices=("train", "validation"), live="step",
        meaning="Whose fall rewards an adjuster: the loss of the batches, or that of the validation part, which it "
        "hears after evaluations only.",
    ),
    Option(
        name="reward", owner="control", kind=str, default="paper", choices=("paper", "progress"), live="step",
        meaning="What a size earns: paper, shorter steps and a faster falling loss than under the size before (DynaHB "
        "equation 3); progress, the relative fall of the loss per second over its own best so far. `law` always "
        "earns progress.",
    ),
    Option(
        name="discount", owner="control", kind=float, default=0.99, low=0.0, high=1.0, live="epoch",
        meaning="What a later reward is worth to the DQN, of one now (gamma).",
    ),
    Option(
        name="epsilon_decay", owner="control", kind=float, default=0.95, low=0.0, high=1.0, live="epoch",
        meaning="Factor by which the DQN's share of random choices falls with every decision, from 1.",
    ),
    Option(
        name="epsilon_min", owner="control", kind=float, default=0.1, low=0.0, high=1.0, live="epoch",
        meaning="Where the DQN's share of random choices stays.",
    ),
    Option(
        name="agent_rate", owner="control", kind=float, default=0.005, low=1e-9, high=10.0, live="epoch",
        meaning="The DQN's own learning rate.",
    ),
)  # fmt: skip

EXCHANGING: tuple[Option, ...] = (
    Option(
        name="exchange", owner="comm", kind=str, default="gradients", choices=names("comm"), live="epoch",
        meaning="What ranks exchange: the gradients of every step, or their models now and then, without waiting.",
    ),
    Option(
        name="average_every_s", owner="comm", kind=float, default=0.5, low=1e-3, high=1e6, unit="s", live="step",
        meaning="Seconds between two rounds of averaging models (T_mu).",
    ),
)  # fmt: skip

HYBRID_OPTIONS = (*SIZES, *ADJUSTING, *EXCHANGING)
