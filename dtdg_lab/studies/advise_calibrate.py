"""A few short runs in this process, from which rates are learnt where no run of these settings is there."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

from dtdg_lab.cluster.run_config import run_config
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.open import StoredRun

CHOSEN = ("single", "psg", "blad", "pygt-dist", "flaredtdg", "dbov", "dgl-default")  # one of each kind of layout
EPOCHS = 4


def calibration_runs(
    configs: Mapping[str, RunConfig], graph: DynamicGraph, runs_dir: str | Path | None
) -> list[StoredRun]:
    """Train some systems for a few epochs on one rank, and give the runs; those that cannot be trained are left out.

    Args:
        configs: system -> its settings; ranks and epochs are set here.
        graph: the data, which the configs name.
        runs_dir: where the runs are kept; in a folder of their own where not given.
    """
    folder = mkdtemp(prefix="dtdg-advise-") if runs_dir is None else runs_dir
    some = next(iter(configs.values()))
    made = []
    for name in CHOSEN:
        with contextlib.suppress(LabError):  # a system that cannot run on this graph tells nothing
            config = (configs.get(name) or some.replace(system=name)).replace(
                ranks=1, parts=2 if name == "dgl-default" else 1, epochs=EPOCHS, evaluate_every=EPOCHS, threads=1,
            )  # fmt: skip
            made.append(run_config(config, runs_dir=folder).run)
    return made
