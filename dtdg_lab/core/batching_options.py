"""The options of batches: which snapshots a step takes, and how much of each."""

from __future__ import annotations

from dtdg_lab.core.option import Option

BATCHING_OPTIONS: tuple[Option, ...] = (
    Option(
        name="window", owner="batching", kind=int, default=8, low=1, high=10_000, unit="snapshots", live="epoch",
        meaning="Snapshots in a batch: the full ones and, before them, the decayed ones.",
    ),
    Option(
        name="full_snapshots", owner="batching", kind=int, default=2, low=1, high=10_000, unit="snapshots",
        live="step", meaning="Newest snapshots of a batch that are whole (K of FlareDTDG); at most window.",
    ),
    Option(
        name="alpha", owner="batching", kind=float, default=0.1, low=1e-4, high=1.0, live="step",
        meaning="Share of its chunks that a batch's oldest snapshot keeps (text), or its newest decayed one (ladder).",
    ),
    Option(
        name="decay", owner="batching", kind=str, default="ladder", choices=("ladder", "text"), live="step",
        meaning="How chunks fall from one decayed snapshot to the one before: in a geometric ladder from alpha of them "
        "to a single one, each rung rounded up, as FlareDTDG's released code has it, or by the factor alpha^(1/m), "
        "rounded down, as its text.",
    ),
    Option(
        name="late_state", owner="batching", kind=str, default="inherit", choices=("inherit", "zero"), live="epoch",
        meaning="What vertices start from that older snapshots of a window lack: the state that they had after the "
        "same earlier snapshot in the step before (FlareDTDG), or zero.",
    ),
    Option(
        name="chunks", owner="batching", kind=int, default=0, low=0, high=1_000_000, live="epoch",
        meaning="Chunks that each part's vertices are dealt to; a decayed snapshot keeps whole chunks. 0 takes 128, or "
        "fewer where a chunk would have less than 4 vertices.",
    ),
    Option(
        name="chunker", owner="batching", kind=str, default="metis", choices=("metis", "hash", "load_aware"),
        live="epoch", meaning="How the vertices of a part are dealt to its chunks.",
    ),
    Option(
        name="tune", owner="batching", kind=bool, default=False, live="epoch",
        meaning="Whether full_snapshots and alpha follow the validation loss after a trial epoch with each of their "
        "neighbours, greedily: K by 1, alpha by 0.1 and not below 0.1.",
    ),
    Option(
        name="tune_every", owner="batching", kind=int, default=5, low=1, high=10_000, unit="epochs", live="epoch",
        meaning="Epochs between two looks at the neighbours of full_snapshots and alpha; a look takes up to five trial "
        "epochs, of which nothing is kept.",
    ),
    Option(
        name="tune_memory_gib", owner="batching", kind=float, default=4.0, low=1e-6, high=1e6, unit="GiB",
        live="epoch",
        meaning="Most memory that a step may take on a rank of one thread, by prediction, for tuning to choose it.",
    ),
    Option(
        name="fanout", owner="batching", kind=int, default=10, low=1, high=1_000_000, unit="neighbours", live="epoch",
        meaning="Most in-neighbours that are drawn of a vertex for each layer.",
    ),
)  # fmt: skip
