"""Bytes that windows of snapshots send on two processes over whole runs, against those predicted from the partition.

Windows are short at the start of a segment, and segments are cut at random in each epoch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.build import build
from dtdg_lab.training.plan_reports import plan_events
from tests import factories
from tests.distributed.groups import in_groups
from tests.thinning import thinned, values_that_run

RANKS, EPOCHS = 2, 2
SMALL = {**factories.SMALL, **factories.EXACT, "epochs": EPOCHS, "parts": 2, "partitioner": "round_robin", "layers": 2}
WINDOWS: dict[str, dict[str, Any]] = {
    "full-history": {"window": 8},
    "recent-only": {},
    "flaredtdg": {"window": 8, "full_snapshots": 3, "chunks": 4, "chunker": "hash"},
}
LINK = {"task": "link", "link_share": 0.5, "ranking_negatives": 5}
AT_ALL = {model: {"loss_at": "all"} for model in ("evolvegcn-o", "graphsage")}  # else no decayed snapshot is read
CASES: list[dict[str, Any]] = [
    *(
        {"system": system, "model": model, **settings, **(AT_ALL.get(model, {}) if system == "flaredtdg" else {})}
        for system, settings in WINDOWS.items()
        for model in catalogue.names("models")
    ),
    *({"system": system, "loss_at": "all", **settings} for system, settings in WINDOWS.items()),
    *({"system": system, **LINK, **settings} for system, settings in WINDOWS.items()),
    {"system": "flaredtdg", "model": "mpnn-lstm", "parts": 4, **WINDOWS["flaredtdg"]},
    {"system": "flaredtdg", "model": "evolvegcn-h", "layers": 3, **WINDOWS["flaredtdg"]},
    {"system": "full-history", "model": "evolvegcn-h", "loss_at": "all", "window": 5},
    {"system": "full-history", "model": "gatlstm", "halo_reuse": True, "window": 5},
]
KEPT = (0, 7, 16, 20, 28, 30, 35, 39)
ids = [" ".join(str(value) for value in case.values()) for case in CASES]


def _config(case: dict[str, Any]) -> RunConfig:
    return RunConfig(ranks=RANKS, **{**SMALL, **case})


@cache
def _graph() -> DynamicGraph:
    return load_for(_config(CASES[0]))


def _sent(group: Group, cases: list[int]) -> dict[int, dict[str, Any]]:
    """The predicted bytes of a step, and the links and the number of steps of each epoch."""
    found = {}
    for case in cases:
        built = build(_config(CASES[case]), _graph(), group)
        predicted = next((data["predicted"] for kind, data in plan_events(built, group) if kind == "partition"), None)
        epochs = []
        for epoch in range(EPOCHS):
            steps = built.strategy.epoch(epoch)
            for step in steps:
                built.gradients.zero()
                built.strategy.compute(step, StepMarks())
            epochs.append((len(steps), built.strategy.rows()["links"]))
        found[case] = {"predicted": predicted, "epochs": epochs}
        built.close()
    return found


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest) -> list[dict[int, dict[str, Any]]]:
    cases = [case for (case,) in values_that_run(request, "case")]
    return in_groups(_sent, RANKS, cases, timeout_s=300)


@pytest.mark.parametrize("case", thinned(range(len(CASES)), KEPT), ids=ids)
def test_an_epoch_of_windows_sends_the_predicted_bytes(ranks: list[dict[int, dict[str, Any]]], case: int) -> None:
    predicted = {name: np.array(sent) for name, sent in ranks[0][case]["predicted"].items()}
    steps = sum(count for count, _ in ranks[0][case]["epochs"])
    sent = {name: np.zeros_like(layers) for name, layers in predicted.items()}
    for sender, found in enumerate(ranks):
        for _, links in found[case]["epochs"]:
            for layer, pass_name, to, _, sent_bytes in links:
                sent[pass_name][layer, sender, to] += sent_bytes
    assert predicted["forward"].sum() > 0
    for name, layers in predicted.items():
        np.testing.assert_allclose(layers * steps, sent[name], rtol=1e-12, err_msg=name)
