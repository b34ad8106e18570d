"""What runs have spent so far, as rows for :mod:`dtdg_lab.views.energy_by_method`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.views.layout import join_words

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow

SO_FAR = "so far"  # the condition of rows of runs that may go on
Labelled = Sequence[tuple[str, "RunWindow"]]


def energy_rows(runs: Labelled) -> list[dict[str, Any]]:
    """One row for each labelled run: joules of its ranks together, by phase where these are told.

    A run whose energy nobody reads or models has None. Joules by phase are told a little later than those of readers,
    so that a run that goes on has some whose phase is not known yet.
    """
    return [_row(label, window) for label, window in runs]


def _row(label: str, window: RunWindow) -> dict[str, Any]:
    by_source, by_phase = window.energy.joules(), _phases(window)
    joules = sum(by_source.values()) if by_source else None
    told = sum(by_phase.values())
    if told and (joules is None or told > joules):
        joules = told
    return {
        "method": label, "condition": SO_FAR, "dataset": window.config.dataset, "joules": joules, "phases": by_phase,
        "seed": window.config.seed, "source": join_words(sorted(by_source)) or None,
    }  # fmt: skip


def _phases(window: RunWindow) -> dict[str, float]:
    found: dict[str, float] = {}
    for phases in window.phase_energy.joules().values():
        for phase, joules in phases.items():
            found[phase] = found.get(phase, 0.0) + joules
    return found
