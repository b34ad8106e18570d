"""Sparklines of tiles."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.visualization.tiles import SPARK_POINTS, spark_of


def test_a_sparkline_has_few_values_as_they_are_and_means_of_many() -> None:
    assert spark_of([1.0, np.nan, 3.0]) == (1.0, 3.0)
    many = spark_of(np.arange(2.0 * SPARK_POINTS))
    assert len(many) == SPARK_POINTS and many[0] == 0.5 and many[-1] == 2 * SPARK_POINTS - 1.5
    uneven = spark_of(np.ones(SPARK_POINTS + 1))
    assert uneven == pytest.approx((1.0,) * SPARK_POINTS)
