"""Rows of text: the numbers of lines, and numbers that must be finite."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats import snap, temporal
from dtdg_lab.datasets.formats.text import ID, NUMBER, read_rows
from tests.format_samples import refused


def test_line_numbers_count_comments_blank_lines_and_the_header():
    assert "line 6 of" in refused(snap.parse_snap_text, b"# a\n\n1 2 3\r\n\n# b\n1 2\n")
    assert "line 4 of" in refused(temporal.parse_jodie, b"u,i,t,l\n0,0,1,0\n0,0,2,0\n0,a,3,0\n")
    assert "line 5 of" in refused(temporal.parse_jodie, b"u,i,t,l\n0,0,1,0\n\n0,0,2,0\n0,0,1,0\n")


def test_numbers_must_be_finite_and_are_named():
    columns = {"a": ID, "b": NUMBER}
    for bad in (b"nan", b"inf", b"-inf", b"1e400", b""):
        with pytest.raises(DataError, match=r"line 2 of x is .* column 2 \(b\) is"):
            read_rows(b"1,0.5\n2," + bad + b"\n", "x", columns)
    assert read_rows(b"1,-0.5\n2,1e3\n", "x", columns)["b"].tolist() == [-0.5, 1000.0]
