"""Joules of a device that works for a moment."""

from __future__ import annotations

import pytest

from dtdg_lab.device_check import energy_use
from dtdg_lab.device_check.energy_use import measure_energy


def test_the_processor_uses_joules_and_what_is_not_measured_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy_use, "WORK_S", 0.05)
    use = measure_energy("cpu")
    assert use.joules
    assert all(joules is not None and joules > 0 for joules, _ in use.joules.values())
    assert use.notes or {source for _, source in use.joules.values()} == {"counter"}
