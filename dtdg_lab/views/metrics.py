"""Names of losses and metrics in charts and sentences, and which metric of a task stands beside its loss."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.support import is_score

LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "regression": "mean squared error",
        "classification": "cross-entropy (nats)",
        "link": "binary cross-entropy (nats)",
    }
)

# the first that an evaluation holds is drawn; all are shares of 1, larger is better
MAIN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "regression": (),
        "classification": ("accuracy", "macro_f1"),
        "link": ("mrr", "average_precision", "auc", "accuracy"),
    }
)

_WORDS = {"mrr": "MRR", "auc": "AUC", "mae": "mean absolute error"}
BASELINE = "persistence_"


def words(metric: str) -> str:
    """What a metric is called in a chart."""
    return _WORDS.get(metric, metric.replace("_", " ").replace("f1", "F1"))


def finite(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """The scores of an evaluation that have a value; runs recorded before there were metrics have none."""
    found = {name: float(value) for name, value in (metrics or {}).items() if value is not None and is_score(name)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def main_metric(task: str, metrics: Container[str]) -> str | None:
    """The metric of a task that is drawn beside its loss; None where there is none of them."""
    return next((name for name in MAIN.get(task, ()) if name in metrics), None)
