"""Tests of data sets alone on a machine: no folder of the user's, and no web."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtdg_lab.datasets import download


@pytest.fixture
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder comes from the environment and nothing is asked of the web; tests of small files share no cache."""
    monkeypatch.delenv("DTDG_LAB_DATA", raising=False)
    if "real_data" not in request.fixturenames:
        monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "download", lambda *given: pytest.fail(f"asked the web for {given[1]}"))
