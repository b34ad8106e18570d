"""The tuning of K and alpha, the memory of a step by its rows, and the event that describes the windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.events import Event
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import Partition
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.systems.decayed_windows.backprop import WindowWork
from dtdg_lab.systems.decayed_windows.plans import Chunking
from dtdg_lab.systems.decayed_windows.window import (
    WHOLE_CHUNKS,
    RowMemory,
    Setting,
    Trapezoid,
    candidates,
    neighbours,
    next_setting,
)
from dtdg_lab.training.memory import peak_bytes

if TYPE_CHECKING:
    from dtdg_lab.distributed.gradients import FlatGradients
    from dtdg_lab.systems.decayed_windows.strategy import DecayedWindowStrategy

GIB = 1 << 30

# What events say of the windows that a run trains on: their shape, and how rows and memory follow from it.


def window_event(shape: Trapezoid, partition: Partition, chunking: Chunking, memory: RowMemory, ranks: int) -> Event:
    """The event ``trapezoid``; chunks are taken as alike.

    Args:
        shape: of the windows.
        partition: of the nodes into P parts.
        chunking: of the parts.
        memory: of a step, as measured.
        ranks: R.
    """
    from dtdg_lab.systems.decayed_windows.charts import Shape, TrapezoidFacts

    chunks = np.arange(chunking.chunks + 1) / chunking.chunks
    nodes, most = len(partition.owner), int(partition.on_ranks(ranks).counts.max())
    return TrapezoidFacts(
        window=shape.window,
        shape=Shape(shape.full, shape.alpha, shape.decay),
        chunks=chunking.chunks,
        nodes=nodes,
        row_counts=chunks * nodes,
        rank_row_counts=chunks * most,
        base_bytes=memory.base_bytes,
        row_bytes=memory.row_bytes,
        piece_bytes=memory.piece_bytes,
        piece_rows=memory.piece_rows,
    )


# Auto-tuning of K and alpha at epoch boundaries: validation losses of trial epochs in, a change of settings out.


@dataclass(frozen=True, slots=True)
class TuningDecision:
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
    """Tunes K and alpha by the validation split, a step at a time; it remembers nothing, so resuming changes nothing.

    Every candidate is judged by what it does to training: the next epoch is tried with it, from the same parameters and
    moments, and the run's own evaluation of the validation split gives its loss. The trial is then taken back.

    Args:
        config: the settings as they are at the end of the epoch, with manual changes since.

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
    ) -> TuningDecision | None:
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
        return TuningDecision("greedy", state, values, _named(chosen), reward)

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


# Memory of a step as it follows from its rows, and the trials of a tuner.


LEAST_ALPHA = OPTIONS["alpha"].low or 0.0


def measure(strategy: DecayedWindowStrategy, gradients: FlatGradients) -> RowMemory:
    """Memory of a step as it follows from its rows; collective.

    Windows of a few shapes are measured, whatever the present one: a run that is resumed or tuned gets the same.
    """
    of, shape, own = strategy.context, strategy.shape, []
    assert of.partition is not None
    decays = of.task.per_vertex or of.config["loss_at"] == "last"  # else the loss needs all nodes of each snapshot
    shapes = _measured(shape, decays=decays)
    for strategy.shape in shapes:
        own.append(_peak(strategy, strategy.by_length()[-1], of.device))
    strategy.shape = shape
    gradients.zero()
    strategy.forget()
    rows = torch.tensor([own], dtype=torch.float64, device=of.device)
    peaks = of.group.gather_rows(rows, [1] * of.group.size).max(dim=0).values.tolist()
    return RowMemory.through(
        list(zip(shapes, peaks, strict=True)),
        nodes=int(of.partition.on_ranks(of.group.size).counts.max()),
        chunks=strategy.chunking.chunks,
        piece_rows=strategy.piece_rows,
    )


def _measured(shape: Trapezoid, *, decays: bool) -> list[Trapezoid]:
    """Windows that differ in rows, and in how many run through how many snapshots together."""
    window, few = shape.window, min(2, shape.window)
    if shape.chunks == WHOLE_CHUNKS or not decays:  # snapshots are always full
        return [replace(shape, window=full, full=full) for full in sorted({1, few, window})]
    return [
        *(replace(shape, full=full, alpha=LEAST_ALPHA, decay="ladder") for full in sorted({1, few, window})),
        *(replace(shape, full=1, alpha=alpha, decay="text") for alpha in (0.1, 0.5)),
    ]


def _peak(strategy: DecayedWindowStrategy, work: WindowWork, device: str) -> int:
    """The peak bytes of a step on this rank."""

    def step() -> None:
        strategy.tried(work, StepMarks())

    strategy.forget()
    return peak_bytes(step, device=device)


def tuned(strategy: DecayedWindowStrategy, config: RunConfig, epoch: int, components: Any) -> TuningDecision | None:
    """What tuning decides at the end of an epoch, the same on every rank; collective.

    Args:
        strategy: whose K and alpha are tuned.
        config: the settings now.
        epoch: the one that ended.
        components: what trains.
    """
    if "tune" not in config.options["batching"]:
        return None

    def predicted(full_snapshots: int, alpha: float) -> float:
        return strategy.row_memory.peak_bytes(strategy.shaped(full_snapshots, alpha))

    return Tuner(config).end_epoch(epoch, partial(_trial_loss, strategy, components, epoch + 1), predicted)


def _trial_loss(strategy: DecayedWindowStrategy, built: Any, epoch: int, full_snapshots: int, alpha: float) -> float:
    """The validation loss, as the run is judged by it, after an epoch with windows of another shape; collective.

    The epoch is tried and taken back: parameters, moments and shape are then as they were, and nothing is recorded.
    """
    shape, model, optimizer = strategy.shape, built.model, built.optimizer
    parameters, moments = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
    strategy.shape = strategy.shaped(full_snapshots, alpha)
    try:
        for work in strategy.epoch(epoch):
            built.gradients.zero()
            computed = strategy.compute(work, StepMarks())
            built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=len(work.groups))
            optimizer.step()
        (scores,) = built.evaluator.evaluate(model, ("validation",))
    finally:
        strategy.shape = shape
        strategy.rows()
        model.load_state_dict(parameters)
        optimizer.load_state_dict(moments)
    return float("nan") if scores.loss is None else scores.loss
