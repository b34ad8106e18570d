"""Schedules that the other schedulers compute from a run's measured group times."""

from __future__ import annotations

import numpy as np

from dtdg_lab.runs.run import StoredRun
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import replay

MOST_GROUPS = 2_000  # above it the schedulers would take longer than a report may
_TIME_LIMIT_S = 0.5  # for each scheduler that searches


def replay_run(run: StoredRun) -> bool:
    """Compute the run's schedule with every scheduler, from its measured times, and draw them in its schedule view.

    Returns:
        Whether this was possible: all groups measured, not too many of them, and several ranks.
    """
    view = run.window.schedule
    facts = view.facts
    if facts is None or facts.ranks < 2 or facts.groups > MOST_GROUPS:
        return False
    measured = view.times.seconds(facts.groups)
    if not (np.isfinite(measured) & (measured > 0)).all():
        return False
    exchange_s = ((run.summary or {}).get("phase_time_s") or {}).get("communicate") or 0.0
    found = replay(
        measured,
        facts.ranks,
        per_rank=max(1, facts.per_rank * facts.parts // facts.ranks),
        allreduce_s=exchange_s,
        time_limit_s=_TIME_LIMIT_S,
    )
    view.replayed(found.rows())
    return True
