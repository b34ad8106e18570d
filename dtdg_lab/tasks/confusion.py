"""Accuracy and F1 from a table of true and predicted classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def confusion(true: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """How often class c is taken for class d: entry (c, d) of (C, C)."""
    counts = np.bincount(true * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.float64)


def accuracy(table: NDArray[np.float64]) -> float | None:
    """Share of the items whose class is predicted; None where there are no items."""
    total = float(table.sum())
    return float(np.trace(table)) / total if total else None


def f1(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 of each class, (C,): 2 hits / (items of the class + items taken for it); NaN where there are neither."""
    hits, involved = np.diag(table), table.sum(axis=0) + table.sum(axis=1)
    return np.where(involved > 0, 2 * hits / np.maximum(involved, 1), np.nan)


def macro_f1(table: NDArray[np.float64]) -> float | None:
    """Mean F1 of the classes that occur or are predicted; None where there are no items."""
    return float(np.nanmean(f1(table))) if table.sum() else None


def f1_of(table: NDArray[np.float64], kind: int) -> float | None:
    """F1 of one class; None where it neither occurs nor is predicted."""
    value = float(f1(table)[kind])
    return None if np.isnan(value) else value
