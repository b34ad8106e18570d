"""Auto-tuning of K and alpha at epoch boundaries: validation losses of trial epochs in, a knob change out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtdg_lab.batching.greedy_tuner import Setting, candidates, neighbours, next_setting
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.training.blocked import GIB


@dataclass(frozen=True, slots=True)
class Decision:
    """One look at the neighbours of K and alpha, and what came of it.

    Attributes:
        policy: what decided.
        state: the present ``full_snapshots`` and ``alpha``, their predicted ``bytes``, and the budget ``most_bytes``.
        values: the present setting, then its neighbours: ``full_snapshots``, ``alpha``, predicted ``bytes`` and
            validation ``loss`` after a trial epoch, None where none was made because it needs more than the budget.
        action: ``full_snapshots`` and ``alpha`` from here on.
        reward: the present setting's loss less the chosen one's; 0 where it stays, negative only where the budget
            forced it, None where a trial diverged.
    """

    policy: str
    state: dict[str, Any]
    values: list[dict[str, Any]]
    action: dict[str, Any]
    reward: float | None

    @property
    def changes(self) -> dict[str, Any]:
        """Live settings that change, by name; empty where the setting stays."""
        return {name: value for name, value in self.action.items() if value != self.state[name]}

    @property
    def row(self) -> tuple[Any, ...]:
        """The columns of the record table ``decisions`` after step and epoch."""
        return (self.policy, self.state, self.values, self.action, self.reward)


@dataclass(frozen=True, slots=True)
class Tuner:
    """Tunes K and alpha by the validation part, a step at a time; it remembers nothing, so resuming changes nothing.

    Every candidate is judged by what it does to training: the next epoch is tried with it, from the same parameters and
    moments, and the run's own evaluation of the validation part gives its loss. The trial is then taken back.

    Args:
        config: the settings as they are at the end of the epoch, with changes made by hand since.

    References: FlareDTDG section 3.5: it "periodically evaluates neighbouring settings on the validation set during
        training".
    Differs from the paper: it does not say how a setting is evaluated. Trials of an epoch, all from one start, are
        ours, and so is the least alpha that is tried, 0.1, with which the paper's tuning begins.
    """

    config: RunConfig

    def is_due(self, epoch: int) -> bool:
        """Whether the neighbours are looked at after this epoch: every ``tune_every``-th, where ``tune`` is on."""
        return bool(self.config["tune"]) and (epoch + 1) % int(self.config["tune_every"]) == 0

    def end_epoch(
        self, epoch: int, ask: Callable[[int, float], float], predicted: Callable[[int, float], float]
    ) -> Decision | None:
        """Look at the neighbours where it is due; collective where ``ask`` is, and the same decision on every rank.

        Args:
            epoch: the one that just ended, from 0.
            ask: K, alpha -> validation loss after a trial epoch with that shape; the same on every rank.
            predicted: K, alpha -> peak bytes of a step on the largest rank; the same on every rank.

        Returns:
            What was found and decided; None where it is not due.
        """
        if not self.is_due(epoch):
            return None
        window, most_bytes = int(self.config["window"]), float(self.config["tune_memory_gib"]) * GIB
        at = Setting(min(int(self.config["full_snapshots"]), window), float(self.config["alpha"]))
        around = [setting for setting in neighbours(at, window=window) if self._fits(setting)]
        peaks = {setting: float(predicted(setting.full_snapshots, setting.alpha)) for setting in (at, *around)}
        chosen_from = candidates(
            at, window=window, predicted=lambda setting: peaks.get(setting, math.inf), most_bytes=most_bytes
        )
        losses = {setting: float(ask(setting.full_snapshots, setting.alpha)) for setting in (at, *chosen_from)}
        chosen = next_setting(at, losses, must_leave=peaks[at] > most_bytes)
        values = [
            _named(setting) | {"bytes": peaks[setting], "loss": _finite(losses.get(setting))} for setting in peaks
        ]
        state = _named(at) | {"bytes": peaks[at], "most_bytes": most_bytes}
        reward = _finite(losses[at] - losses[chosen]) if chosen != at else 0.0
        return Decision("greedy", state, values, _named(chosen), reward)

    def _fits(self, setting: Setting) -> bool:
        """Whether the run can have it: some models need full snapshots where the loss is at the last one."""
        try:
            self.config.replace(**_named(setting))
        except UnsupportedError:
            return False
        return True


def _finite(value: float | None) -> float | None:
    """None for the loss of a trial that diverged."""
    return value if value is not None and math.isfinite(value) else None


def _named(setting: Setting) -> dict[str, Any]:
    return {"full_snapshots": setting.full_snapshots, "alpha": setting.alpha}
