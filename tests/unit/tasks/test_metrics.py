"""What link metrics rest on: full intervals, how many pairs, and how far a number would move with other pairs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dtdg_lab.cluster.local import train
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.link_metrics import FEW_PAIRS
from dtdg_lab.runs.comparison import compare
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.studies import race_result
from dtdg_lab.studies.race_result import race_words
from dtdg_lab.tasks.metrics import (
    MOST_DRAWN,
    RESAMPLES,
    _area_and_precision,
    auc_and_average_precision,
    interval,
    resampled,
)

NOTHING = np.zeros(0)


def test_rows_of_resamples_are_scored_as_one_by_one() -> None:
    draws = np.random.default_rng(0)
    positive, negative = draws.integers(0, 6, (20, 7)), draws.integers(0, 5, (20, 11))
    area, precision = _area_and_precision(positive, negative)
    for row in range(20):
        scores = torch.tensor([*positive[row], *negative[row]])
        wanted = auc_and_average_precision(scores, torch.arange(18) < 7)
        assert (area[row], precision[row]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.slow
def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    draws, inside, widths = np.random.default_rng(1), [], []
    for _ in range(60):  # AUC of normal scores one standard deviation apart is Phi(1 / sqrt 2) = 0.7602
        scores = np.concatenate([draws.normal(1.0, 1.0, 80), draws.normal(0.0, 1.0, 80)])
        low, high = interval(resampled(scores, 80, NOTHING, draws)[1])
        inside.append(low <= 0.7602 <= high)
        widths.append(high - low)
    assert 0.85 <= np.mean(inside) <= 1.0
    assert 0.10 < np.mean(widths) < 0.20


@pytest.mark.slow
def test_many_pairs_are_drawn_in_part_and_their_interval_is_as_narrow_as_theirs() -> None:
    draws, many = np.random.default_rng(2), 4 * MOST_DRAWN
    scores = np.concatenate([draws.normal(1.0, 1.0, many), draws.normal(0.0, 1.0, many)])
    ranks = 1 / draws.integers(1, 50, many)
    found = resampled(scores, many, ranks, np.random.default_rng(3))
    assert found.shape == (4, RESAMPLES)
    # Hanley and McNeil's standard error of an area of 0.76 with so many of each kind, and that of a mean
    q1, q2, area = 0.76 / (2 - 0.76), 2 * 0.76**2 / (1 + 0.76), 0.76
    error = np.sqrt((area * (1 - area) + (many - 1) * (q1 + q2 - 2 * area**2)) / many**2)
    assert found[1].std() == pytest.approx(error, rel=0.15)
    assert found[3].std() == pytest.approx(ranks.std() / np.sqrt(many), rel=0.15)
    assert np.array_equal(found, resampled(scores, many, ranks, np.random.default_rng(3)))


def test_without_negatives_or_ranked_edges_there_is_nothing_to_resample() -> None:
    found = resampled(np.array([1.0, -1.0]), 2, NOTHING, np.random.default_rng(0))
    assert found[1:].max() == 0 and set(found[0]) <= {0.0, 0.5, 1.0}


def trained(root: Path, **settings: object) -> StoredRun:
    config = RunConfig(system="single", model="tgcn", epochs=1, hidden=4, evaluate_every=1, **settings)
    return train(config, runs_dir=root, progress=False)


def test_a_handful_of_pairs_is_warned_of_everywhere(
    tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTDG_LAB_DATA", str(real_data))
    run = trained(tmp_path, dataset="bitcoin-otc", protocol="esdg-2021")
    assert run.config["drop_partial"] is True
    summary = run.summary
    assert summary["link_pairs"] == 4  # a tenth of 20 edges, and as many others; with the partial interval 2 pairs
    assert summary["link_intervals"] is None
    assert "4 pairs, fewer than 100" in summary["link_warning"]
    assert summary["link_warning"] in run.report().read_text()
    compared = compare([run])
    assert any(summary["link_warning"] in note for note in compared.notes)
    assert compared.table["link_pairs"].tolist() == [4]
    row = race_result.Row(
        label="single",
        config=run.config,
        settings={},
        runs=(run,),
        failed=(),
        planned=1,
        sources=(),
        spreads=race_result.spreads_of([run], [None]),
        coincides=None,
    )
    plan = SimpleNamespace(configs={"single": run.config}, seeds=(0,), stop=None, parallel=False, data={})
    assert any("fewer than 100" in said for said in race_words(plan, [], [row], []))


def test_many_pairs_have_an_interval_that_holds_the_number_and_repeats(tmp_path: Path) -> None:
    settings = {"dataset": "growing", "generated_nodes": 40, "generated_edges": 160, "task": "link", "link_share": 1.0}
    one, again, other = (trained(tmp_path, **settings, seed=seed) for seed in (0, 0, 1))
    assert one.summary["link_pairs"] >= FEW_PAIRS and one.summary["link_warning"] is None
    assert one.summary["link_intervals"] == again.summary["link_intervals"] != other.summary["link_intervals"]
    for name in ("accuracy", "auc", "average_precision", "mrr"):
        low, high = one.summary["link_intervals"][name]
        assert 0 <= low <= one.summary["metrics"][name] <= high <= 1 and low < high
    assert set(one.summary["metrics"]) == {
        f"{prefix}{name}" for prefix in ("", "persistence_") for name in ("accuracy", "auc", "average_precision", "mrr")
    }
    low, high = one.summary["link_intervals"]["auc"]
    assert f"[{low:.3g} .. {high:.3g}]" in one.report().read_text()
