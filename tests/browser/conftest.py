"""Pretend sessions live beside the unit tests: a browser can look at them without a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "unit"))
