"""Metrics against their definitions, and how far a number would move with other pairs."""

from __future__ import annotations

import math
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
    accuracy,
    auc_and_average_precision,
    confusion,
    f1,
    f1_of,
    interval,
    macro_f1,
    reciprocal_ranks,
    resampled,
)
from tests.labelled_graphs import brute_auc, brute_average_precision

NOTHING = np.zeros(0)


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_auc_and_average_precision_are_their_definitions(levels: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores = (draw.integers(0, levels, 40) / levels).tolist()
    labels = (draw.random(40) < 0.3).tolist()
    found = auc_and_average_precision(torch.tensor(scores, dtype=torch.float64), torch.tensor(labels))
    assert found == pytest.approx((brute_auc(scores, labels), brute_average_precision(scores, labels)), rel=1e-12)


def test_known_areas() -> None:
    labels = torch.tensor([True, True, False, False])
    assert auc_and_average_precision(torch.tensor([4.0, 3.0, 2.0, 1.0]), labels) == (1.0, 1.0)
    assert auc_and_average_precision(torch.zeros(4), labels) == (0.5, 0.5)
    # scikit-learn's documentation: average_precision_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) is 0.83, AUC 0.75
    found = auc_and_average_precision(torch.tensor([0.35, 0.8, 0.1, 0.4]), labels)
    assert found == (0.75, pytest.approx(0.8333333333333333))
    for one_kind in (torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)):
        with pytest.raises(ValueError, match="both are needed"):
            auc_and_average_precision(torch.zeros(3), one_kind)


@pytest.mark.parametrize("block", [3, 1 << 22])
def test_reciprocal_ranks_are_means_of_the_best_and_the_worst_rank(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtdg_lab.tasks.metrics._BLOCK", block)
    draw = torch.Generator().manual_seed(1)
    positive = torch.randint(0, 4, (20,), generator=draw).double()
    candidates = torch.randint(0, 4, (6, 7), generator=draw).double()
    candidates[2, 3:] = -torch.inf
    candidates[4] = -torch.inf
    row = torch.randint(0, 6, (20,), generator=draw)
    found = reciprocal_ranks(positive, candidates, row).tolist()
    for own, place, value in zip(positive.tolist(), row.tolist(), found, strict=True):
        others = sorted([s for s in candidates[place].tolist() if s > -math.inf], reverse=True)
        best = 1 + len([s for s in others if s > own])
        worst = 1 + len([s for s in others if s >= own])
        assert value == pytest.approx(2 / (best + worst))
    assert reciprocal_ranks(positive[:0], candidates, row[:0]).tolist() == []


def test_f1_and_accuracy_are_their_definitions() -> None:
    draw = np.random.default_rng(2)
    true, said = draw.integers(0, 4, 200), draw.integers(0, 4, 200)
    true[true == 3] = 0  # class 3 is predicted and never true
    table = confusion(true, said, 5)
    for kind in range(4):
        hits = ((true == kind) & (said == kind)).sum()
        precision = hits / (said == kind).sum()
        recall = hits / (true == kind).sum() if (true == kind).any() else 0.0
        wanted = 2 * precision * recall / (precision + recall) if hits else 0.0
        assert f1(table)[kind] == pytest.approx(wanted)
        assert f1_of(table, kind) == pytest.approx(wanted)
    assert f1_of(table, 4) is None  # neither
    assert macro_f1(table) == pytest.approx(f1(table)[:4].mean())
    assert accuracy(table) == pytest.approx((true == said).mean())
    assert (accuracy(np.zeros((2, 2))), macro_f1(np.zeros((2, 2)))) == (None, None)


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
