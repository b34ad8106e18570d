"""Partitioners against imbalance: who divides the vertices so that nobody waits, and what it sends for that."""

from __future__ import annotations

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.studies.shipped.entry import Panel, Shipped
from dtdg_lab.studies.shipped.sizes import QUICK
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep

NAME, PARTITIONER, MODEL = "partitioners", "partitioner", "model"
PARTITIONERS = ("hash", "round_robin", "metis", "load_aware", "hypergraph")


def sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """Partitioner x model x seeds on two ranks; a session of as many engines is needed.

    Raises:
        ConfigError: the base's system does not divide vertices.
    """
    small = {**QUICK, "epochs": 6}
    config = base or RunConfig(system="adgnn-t", ranks=2, **(small if quick else {"epochs": 20, "threads": 1}))
    if PARTITIONER not in config.flat:
        raise ConfigError(f"system={config.system!r} divides no vertices: study config.replace(system='adgnn-t').")
    partitioners = ("hash", "metis") if quick else PARTITIONERS
    models = ("tgcn",) if quick else ("tgcn", "mpnn-lstm")
    over = {PARTITIONER: partitioners, MODEL: models}
    return Sweep(config, over, (0, 1) if quick else (0, 1, 2), objective="imbalance", shipped=NAME)


def analysis(study: Study) -> dict[str, Panel]:
    """Maps of the imbalance, of the bytes sent, of the seconds of an epoch."""
    return {
        NAME: study.map_panel(PARTITIONER, MODEL),
        "bytes": study.map_panel(PARTITIONER, MODEL, "bytes_sent"),
        "seconds": study.map_panel(PARTITIONER, MODEL, "epoch_time_s"),
    }


PARTITIONING = Shipped(
    name=NAME, sweep=sweep, analysis=analysis,
    question="Which partitioner balances the ranks' work, and what do its exchanges cost?",
    source="DynaHB section 7.4; ESDG section 6.4 (hypergraph)",
)  # fmt: skip
