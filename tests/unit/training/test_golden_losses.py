"""Loss curves kept as text: a change that moves one is a change of results, and CHANGELOG.md names it.

To write them anew after such a change: ``DTDG_LAB_WRITE_GOLDEN=1 pytest tests/unit/training/test_golden_losses.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.testing.training import train_in_memory

FOLDER = Path(__file__).resolve().parents[2] / "golden"
ONE_OF_EACH_MEMORY = ("tgcn", "evolvegcn-o", "evolvegcn-h", "dcrnn", "graphsage")
# adgnn-t on one process is `single` for every memory: tests/distributed/test_vertex_plans.py compares them
SYSTEMS = ("single", "psg", "pygt-dist")
EXACT = ("esdg", "hypergraph-vertex")  # in blocks of time as well: held to the losses kept of `single`
CASES = [
    *((system, model, "regression") for system in SYSTEMS for model in ONE_OF_EACH_MEMORY),
    *((system, "tgcn", "regression") for system in ("blad", "dygnex-g")),  # four epochs are no profile
    *(("flaredtdg", model, "regression") for model in ("tgcn", "mpnn-lstm", "evolvegcn-h", "dcrnn")),
    *(("flaredtdg", model, "zero") for model in ("tgcn", "mpnn-lstm", "dcrnn")),  # regression, late_state="zero"
    ("dynagraph", "tgcn", "regression"),
    ("psg", "tgcn", "link"),
    ("psg", "tgcn", "classification"),
    *(("esdg", model, "regression") for model in ONE_OF_EACH_MEMORY if model != "dcrnn"),
    ("hypergraph-vertex", "tgcn", "regression"),
]
DATA = {"regression": "growing", "zero": "growing", "link": "growing", "classification": "sbm"}


@pytest.mark.parametrize(("system", "model", "task"), CASES)
def test_losses_are_those_kept(system: str, model: str, task: str, tmp_path: Path) -> None:
    config = RunConfig(
        system=system,
        model=model,
        dataset=DATA[task],
        task="regression" if task == "zero" else task,
        epochs=4,
        hidden=8,
        learning_rate=0.01,
        dtype="float64",
        kernel="torch",
        generated_nodes=60,
        generated_edges=240,
        generated_snapshots=24,
        seed=7,
        **({"communities": 2} if task == "classification" else {}),
        **({"parts": 3, "partitioner": "round_robin"} if system == "pygt-dist" else {}),
        **({"parts": 3, "partitioner": "round_robin", "window": 4} if system in ("flaredtdg", "dynagraph") else {}),
        **({"chunker": "hash", "decay": "text", "alpha": 0.4} if system == "flaredtdg" else {}),
        **({"late_state": "zero"} if task == "zero" else {}),
        **({"blocks": 3} if system in EXACT else {}),
    )
    losses = train_in_memory(config, load_for(config), tmp_path / "last.pt").losses
    named = "" if task == "regression" else f"-{task}"
    path = FOLDER / f"losses-{'single' if system in EXACT else system}-{model}{named}.txt"
    if os.environ.get("DTDG_LAB_WRITE_GOLDEN") and system not in EXACT:
        path.write_text("".join(f"{loss:.10f}\n" for loss in losses))
    kept = np.loadtxt(path)
    assert len(kept) == len(losses)
    assert np.allclose(losses, kept, rtol=1e-6), f"largest difference {np.abs(np.array(losses) - kept).max():.2e}"
