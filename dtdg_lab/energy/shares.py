"""How a window's joules are shared out over what was done in it."""

from __future__ import annotations

from collections.abc import Mapping

_LEAST_S = 1e-9  # of work: less is no measure to share anything out by


def shared_out(
    joules: float, seconds: Mapping[str, float], busy_s: Mapping[str, float], idle_j: float
) -> dict[str, float]:
    """Joules by phase: idle power by time, what is above it by busy seconds. They sum to ``joules``.

    Args:
        joules: of the whole window.
        seconds: that each phase lasted, above 0 in sum.
        busy_s: of these, what the device worked; phases that are not in it did not. Where none did, all is shared out
            by time.
        idle_j: what the idle device would have drawn in the window; at most ``joules`` of it count.
    """
    whole_s = sum(seconds.values())
    worked_s = sum(busy_s.get(phase, 0.0) for phase in seconds)
    worked = worked_s > _LEAST_S
    by_time = min(idle_j, joules) if worked else joules
    found = {phase: by_time * lasted_s / whole_s for phase, lasted_s in seconds.items()}
    if worked:
        for phase in seconds:
            found[phase] += (joules - by_time) * busy_s.get(phase, 0.0) / worked_s
    return found


def spread(amount: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """An amount shared out by time alone; nothing where there is no time."""
    whole_s = sum(seconds.values())
    return {phase: amount * lasted_s / whole_s for phase, lasted_s in seconds.items()} if whole_s > 0 else {}
