"""Metrics in charts: their names, those with a value, and the main one of a task."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any

from dtdg_lab.config.catalogue import metrics_of
from dtdg_lab.records.link_metrics import is_score

_WORDS = {"mrr": "MRR", "auc": "AUC", "mae": "mean absolute error"}
BASELINE = "persistence_"


def metric_name(metric: str) -> str:
    """Return what a metric is called in a chart."""
    return _WORDS.get(metric, metric.replace("_", " ").replace("f1", "F1"))


def finite_scores(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the scores of an evaluation that have a finite value."""
    scores = {name: float(value) for name, value in (metrics or {}).items() if value is not None and is_score(name)}
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def main_metric(task: str, metrics: Container[str]) -> str | None:
    """Return the metric that is drawn beside the loss of a task; None where none was measured."""
    return next((name for name in metrics_of(task) if name in metrics), None)
