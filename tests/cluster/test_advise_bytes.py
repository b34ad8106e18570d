"""Bytes that the advisor predicts beside those that two ranks counted: equal where they are said to be exact."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.cluster.session import Session
from dtdg_lab.datasets.names import load_for
from dtdg_lab.forecast.measured_runs import measured_run
from dtdg_lab.forecast.rates import fit_rates
from tests.factories import small_config
from tests.thinning import thinned


def predicted_and_counted(session: Session, **changes: Any) -> tuple[frozenset[str], float, float]:
    """What is exact, bytes that the busiest rank sends in an epoch as predicted, and as recorded."""
    config = small_config(layers=2, ranks=2, epochs=2, threads=1, evaluate_every=2, **changes)
    found = measured_run(run_config(config, session=session).run, load_for(config))
    described = fit_rates([found], found.facts).predict(found.work, found.facts)
    return found.work.exact, described.rank_bytes, found.quantities["rank_bytes"]


CASES: dict[str, dict[str, Any]] = {
    "gradients": {"system": "psg"},
    "snapshots": {"system": "esdg", "overlap": False},
    "blocks-links": {"system": "esdg", "overlap": False, "blocks": 2, "task": "link"},
    "halo": {"system": "adgnn-t"},
    "batches": {"system": "dbov", "epoch_batches": 3},
}


@pytest.mark.parametrize("name", thinned(CASES, [2, 3]))
def test_exact_bytes_are_those_that_ranks_counted(session: Session, name: str) -> None:
    exact, described, counted = predicted_and_counted(session, **CASES[name])
    assert "bytes" in exact
    assert described == counted


def test_served_features_are_near_those_recorded(session: Session) -> None:
    exact, described, counted = predicted_and_counted(session, system="dgl-default", batch_size=16, batch_length=2)
    assert "bytes" not in exact
    assert described == pytest.approx(counted, rel=0.2)
