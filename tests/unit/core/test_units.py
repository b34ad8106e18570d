"""Numbers with units as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.units import format_bytes, format_joules, format_seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1023.7, "1.0 KiB"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (2**30, "1.0 GiB"),
        (2**40, "1.0 TiB"),
        (5000 * 2**40, "5000.0 TiB"),
    ],
)
def test_bytes_read_well(count: float | None, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (0, "0 ms"),
        (0.0123, "12.3 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1.0 s"),
        (3.44, "3.4 s"),
        (99.94, "99.9 s"),
        (99.96, "1 min 40 s"),
        (119.6, "2 min 00 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (3659, "1 h 01 min"),
        (7199.7, "2 h 00 min"),
        (90000, "25 h 00 min"),
    ],
)
def test_durations_read_well(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (None, "unknown"),
        (0, "0 J"),
        (12.34, "12.3 J"),
        (999.4, "999 J"),
        (999.9, "1.00 kJ"),
        (4560, "4.56 kJ"),
        (999_999, "1.00 MJ"),
        (2.5e6, "2.50 MJ"),
    ],
)
def test_energy_reads_well(joules: float | None, text: str) -> None:
    assert format_joules(joules) == text


@given(st.floats(0, 1e15))
def test_no_unit_ever_shows_a_power_of_ten(value: float) -> None:
    for form in (format_bytes, format_seconds, format_joules):
        assert "e+" not in form(value)
