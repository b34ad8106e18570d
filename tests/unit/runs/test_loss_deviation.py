"""A run on node parts says how far the loss it trains on is from the whole graph's."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import dtdg_lab as lab
from dtdg_lab.runs.summary import loss_deviation
from tests.factories import small_config
from tests.thinning import thinned

SPARSE = {
    "seed": 1,
    "generated_nodes": 60,
    "generated_edges": 150,
    "generated_snapshots": 24,
    "hidden": 6,
    "learning_rate": None,
}


@pytest.mark.parametrize(
    ("system", "model", "exact"),
    thinned(
        [
            ("adgnn-t", "dcrnn", True),
            ("pygt-dist", "tgcn", True),
            ("pygt-dist", "evolvegcn-h", False),
            ("dbov", "tgcn", True),
            ("dbov", "dcrnn", False),
            ("dynahb", "evolvegcn-o", True),
        ],
        (4, 5),
    ),
)
def test_only_what_a_layout_approximates_deviates(system: str, model: str, exact: bool, tmp_path: Path) -> None:
    few = {"epoch_batches": 5} if system in ("dbov", "dynahb") else {}
    config = small_config(system, model=model, parts=3, epochs=4, partitioner="hash", **SPARSE, **few)
    found = lab.train(config, runs_dir=tmp_path, progress=False).summary["loss_deviation"]
    assert 0 <= found < 1e-5 if exact else 1e-4 < found < 0.5


@pytest.mark.slow
def test_other_systems_have_none(tmp_path: Path) -> None:
    run = lab.train(small_config(parts=3, epochs=4), runs_dir=tmp_path, progress=False)
    assert run.summary["loss_deviation"] is None


def test_the_largest_difference_counts() -> None:
    steps = pd.DataFrame({"step": [0, 1, 1, 2, 3], "global_loss": [9.0, 1.0, 1.0, 2.0, 4.0]})
    evaluations = pd.DataFrame(
        {
            "step": [1, 1, 2, 3, 4],
            "split": ["train", "validation", "train", "train", "train"],
            "loss": [1.0, 7.0, 2.5, 4.0, 1.0],
        }
    )
    assert loss_deviation(steps, evaluations, first=0) == pytest.approx(0.2)
    assert loss_deviation(steps, evaluations, first=3) == 0.0
    assert loss_deviation(steps, evaluations, first=4) is None
