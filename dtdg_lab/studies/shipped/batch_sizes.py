"""N_S x N_V: what hybrid batches of each shape learn, take and hold."""

from __future__ import annotations

from dtdg_lab.core.config import RunConfig
from dtdg_lab.studies.shipped.dynahb_table8 import hybrid_base
from dtdg_lab.studies.shipped.entry import Panel, Shipped
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep

NAME, SNAPSHOTS, VERTICES = "batch-sizes", "batch_snapshots", "batch_vertices"


def sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """The nine sizes that DynaHB's DQN chooses among, each held fixed; two by two in the short form."""
    config = hybrid_base(base, quick).replace(adjuster="none")
    snapshots, vertices = ((0.1, 0.3), (0.05, 0.2)) if quick else ((0.1, 0.2, 0.3), (0.01, 0.05, 0.1))
    over = {SNAPSHOTS: snapshots, VERTICES: vertices}
    return Sweep(config, over, (0, 1) if quick else (0, 1, 2), shipped=NAME)


def analysis(study: Study) -> dict[str, Panel]:
    """Maps of the validation loss, the seconds of an epoch, and the peak of tensor memory."""
    return {
        NAME: study.map_panel(SNAPSHOTS, VERTICES),
        "seconds": study.map_panel(SNAPSHOTS, VERTICES, "epoch_time_s"),
        "memory": study.map_panel(SNAPSHOTS, VERTICES, "peak_bytes"),
    }


BATCH_SIZES = Shipped(
    name=NAME, sweep=sweep, analysis=analysis,
    question="How many snapshots, and how many vertices, does a batch need to learn as well as a larger one?",
    source="DynaHB section 5.1 (its actions), as a map",
)  # fmt: skip
