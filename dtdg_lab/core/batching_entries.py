"""The batches of the catalogue: rules that say which snapshots, and how much of each, a step takes."""

from __future__ import annotations

from dtdg_lab.core.entry import Entry

_TRAPEZOID = (
    "window", "full_snapshots", "alpha", "decay", "late_state", "chunks", "chunker", "tune", "tune_every",
    "tune_memory_gib",
)  # fmt: skip

BATCHINGS: tuple[Entry, ...] = (
    Entry(
        name="trapezoid", room="batching", target="dtdg_lab.batching.segments:hybrid_batch",
        summary="The newest snapshots of a window whole, the older ones in ever fewer chunks of their vertices.",
        source="FlareDTDG section 3.2", options=_TRAPEZOID,
    ),
    Entry(
        name="full_window", room="batching", target="dtdg_lab.batching.segments:hybrid_batch",
        summary="All snapshots of a window whole.",
        source="FlareDTDG section 4.3 (Full-History; Recent-Only where there are two)",
        options=("window",),
    ),
    Entry(
        name="sampled_window", room="batching", target="dtdg_lab.batching.sampling:sampled_edges",
        summary="All snapshots of a window, with a few sampled in-neighbours of each vertex.",
        source="DynaGraph (Guan et al. 2022), as FlareDTDG section 4 describes it", options=("window", "fanout"),
    ),
    Entry(
        name="hybrid", room="batching", target="dtdg_lab.batching.target_sampler:TargetSampler",
        summary="Some consecutive snapshots of some vertices, with every neighbour that their layers reach.",
        source="DynaHB section 5, definition 3",
        options=(
            "batch_snapshots", "batch_vertices", "load_groups", "epoch_batches", "reservoir", "reservoir_gib",
            "reservoir_uses", "generators", "stand_in_gib",
        ),
    ),
    Entry(
        name="neighbours", room="batching", target="dtdg_lab.batching.seed_batches:SeedBatches",
        summary="Some vertices of a part at some consecutive snapshots, with sampled in-neighbours for each layer.",
        source="Hamilton, Ying, Leskovec 2017 (GraphSAGE), as GreenDyGNN section VI-A trains it",
        options=("batch_size", "batch_length", "fanouts", "sampler"),
    ),
)  # fmt: skip
