"""The scripts of benchmarks/, imported for a test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def benchmark(name: str) -> Any:
    """Return a fixture of a benchmark as a module, with a fresh cache; what it imported is forgotten after the test."""

    @pytest.fixture
    def imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
        monkeypatch.syspath_prepend(str(BENCHMARKS))
        monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))
        yield importlib.import_module(name)
        for module in [
            module
            for module in sys.modules
            if module.partition(".")[0] in ("peers", "models", "result_files", "partition_epochs", name)
        ]:
            del sys.modules[module]

    return imported
