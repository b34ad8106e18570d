"""SECURITY.md: every row names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_names_a_test() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 10
    for row in rows:
        (named,) = re.findall(r"`(tests/[^`:]+\.py)::(test_\w+)`", row)
        assert f"def {named[1]}(" in (ROOT / named[0]).read_text(), row
