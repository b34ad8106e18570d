"""A closed-form model of training by batch size, for fast comparisons of controllers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from dtdg_lab.core import rng
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.engine.capabilities import DecisionRow
from dtdg_lab.rl.agent import checked_action
from dtdg_lab.systems.hybrid_batches.controller import BatchSizeController, make_controller


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Result of a controller in a simulated training run.

    Attributes:
        seconds: seconds to the target; None if it was not reached. Only the needed share of the last step counts. So no
            sequence of sizes can beat the best single size if that stays the best.
        choices: size of each step.
        losses: losses after each step, without noise.
        decisions: all decisions.
    """

    seconds: float | None
    choices: tuple[int, ...]
    losses: tuple[float, ...]
    decisions: tuple[DecisionRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSimulator:
    """A training run computed in closed form, step by step.

    A batch contains a share b = (snapshots) x (nodes) of the training split. Its step takes
    ``fixed_s + per_snapshot_s * snapshots + per_share_s * b`` seconds and lowers the logarithm of the loss above its
    floor by ``progress / (1 + noise_share / b)``: progress grows with size far below the noise scale and saturates far
    above it. With ``growth`` the noise scale rises by that factor, linearly in the progress to the target. Larger
    batches then become better over time, and a controller can beat every fixed size. With ``turn`` the noise scale
    jumps at that share of the progress instead. With ``snapshot_scale`` S, progress is multiplied by s / (s + S), where
    s is its share of snapshots: short rollouts from a zero state are less useful.

    A controller observes noisy values: losses with ``loss_noise * sqrt(noise_share / b)`` and seconds with ``jitter``,
    both relative standard deviations. The result is measured without noise.

    Attributes:
        sizes: shares (snapshots, nodes) of each action, in (0, 1].
        fixed_s: constant seconds of a step.
        per_snapshot_s: additional seconds for all snapshots.
        per_share_s: additional seconds for the whole training split.
        noise_share: share at which a batch initially makes half the progress of a full one.
        growth: factor of the noise scale at the target; 1 keeps it constant.
        turn: share of the progress to the target at which the factor applies; None for a linear rise.
        snapshot_scale: share of snapshots at which a batch makes half the progress of a long one; 0 for no effect.
        progress: progress of a step without noise.
        start: initial loss.
        floor: limit of the loss.
        loss_noise: noise of observed losses.
        jitter: noise of observed seconds.
        validation_noise: noise of the observed validation loss.
        evaluation_s: seconds of an evaluation.
        seed: seed of the noise.

    Raises:
        ConfigError: a number is out of range.

    References: McCandlish, Kaplan, Amodei 2018, An Empirical Model of Large-Batch Training, section 2 (noise scale).
    """

    sizes: tuple[tuple[float, float], ...]
    fixed_s: float = 2e-3
    per_snapshot_s: float = 1e-2
    per_share_s: float = 0.2
    noise_share: float = 0.01
    growth: float = 1.0
    turn: float | None = None
    snapshot_scale: float = 0.0
    progress: float = 0.05
    start: float = 1.0
    floor: float = 0.2
    loss_noise: float = 0.0
    jitter: float = 0.0
    validation_noise: float = 0.0
    evaluation_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        step_s = (self.fixed_s, self.per_snapshot_s, self.per_share_s)
        noise = (self.loss_noise, self.jitter, self.validation_noise, self.evaluation_s, self.snapshot_scale)
        if (
            not self.sizes
            or any(not 0 < share <= 1 for size in self.sizes for share in size)
            or min(*step_s, *noise) < 0
            or min(sum(step_s), self.noise_share, self.growth, self.progress) <= 0
            or self.start <= self.floor
        ):
            raise ConfigError(
                f"{self}: give sizes as pairs of shares within (0, 1]; seconds and noise of 0 or more, not all "
                "seconds 0; noise_share, growth and progress above 0; and start above floor."
            )

    def step_s(self, action: int) -> float:
        """Return the seconds of a step of this size."""
        snapshots, nodes = self.sizes[action]
        return self.fixed_s + self.per_snapshot_s * snapshots + self.per_share_s * snapshots * nodes

    def gain(self, action: int, progress_share: float) -> float:
        """Return the decrease of ln(loss - floor) in a step of this size.

        Args:
            action: index of the size.
            progress_share: share of the progress to the target that is already made.
        """
        snapshots, nodes = self.sizes[action]
        growth = progress_share if self.turn is None else float(progress_share >= self.turn)
        noise = self.noise_share * (1 + (self.growth - 1) * growth)
        gain = self.progress / (1 + noise / (snapshots * nodes))
        return gain * snapshots / (snapshots + self.snapshot_scale)

    def run(
        self,
        controller: BatchSizeController,
        *,
        target: float,
        decide_every: int = 5,
        max_steps: int = 10_000,
        validated: bool = False,
    ) -> SimulatedRun:
        """Train until the loss reaches the target.

        Args:
            controller: chooses among ``sizes``; it is modified.
            target: loss to reach, between floor and start.
            decide_every: number of steps between decisions.
            max_steps: maximum number of steps.
            validated: True if decisions use the validation loss, whose evaluation takes time, instead of the batches'
                losses.

        Raises:
            ConfigError: the target is not between floor and start.
        """
        total = self.distance(target)
        noise = rng.generator(self.seed, "control/simulator").standard_normal((max_steps, 3))
        remaining, seconds = total, 0.0
        choices: list[int] = []
        losses: list[float] = []
        decisions: list[DecisionRow] = []
        for loss_draw, time_draw, validation_draw in noise:
            action = controller.choice
            step_s, gain = self.step_s(action), self.gain(action, 1 - remaining / total)
            needed = min(remaining / gain, 1.0)
            remaining, seconds = remaining - needed * gain, seconds + needed * step_s
            choices.append(action)
            losses.append(self.floor + (target - self.floor) * math.exp(remaining))
            if needed < 1 or remaining <= 0:
                return SimulatedRun(seconds, tuple(choices), tuple(losses), tuple(decisions))
            snapshots, nodes = self.sizes[action]
            spread = self.loss_noise * math.sqrt(self.noise_share / (snapshots * nodes))
            loss = None if validated else losses[-1] * (1 + spread * loss_draw)
            controller.observe(loss, step_s * math.exp(self.jitter * time_draw))
            if controller.is_due(decide_every):
                seconds += self.evaluation_s * validated
                loss = losses[-1] * (1 + self.validation_noise * validation_draw) if validated else None
                decisions.append(controller.decide(loss))
        return SimulatedRun(None, tuple(choices), tuple(losses), tuple(decisions))

    def fixed_s_to(self, action: int, target: float) -> float:
        """Return the seconds to the target with a single size.

        Raises:
            ConfigError: the target is not between floor and start.
        """
        return planned_s(self, (action,), target)

    def best_fixed(self, target: float) -> tuple[int, float]:
        """Return action and seconds of the best fixed size in hindsight; of equal ones, the lowest action."""
        seconds, action = min((self.fixed_s_to(action, target), action) for action in range(len(self.sizes)))
        return action, seconds

    def distance(self, target: float) -> float:
        """Return the total decrease of ln(loss - floor) to the target.

        Raises:
            ConfigError: the target is not between floor and start.
        """
        if not self.floor < target < self.start:
            raise ConfigError(f"target={target} must lie between floor={self.floor} and start={self.start}.")
        return math.log((self.start - self.floor) / (target - self.floor))


def planned_s(simulator: BatchSimulator, plan: Sequence[int], target: float) -> float:
    """Return the seconds to the target of a simulated training with a fixed plan of sizes.

    The total decrease of the logarithm of the loss above its floor is divided into equal stages, one per size of the
    plan. A step has the size of the stage in which it begins. Only the needed share of the last step counts, as in

    Args:
        simulator: model of the training; its noise is ignored.
        plan: action of each stage, at least one.
        target: loss to reach, between floor and start.

    Raises:
        ConfigError: the plan is empty, or the target is not between floor and start.
        PlanError: an action is out of range.
    """
    total = simulator.distance(target)
    if not plan:
        raise ConfigError(f"the plan to a loss of {target} is empty. Give at least one stage.")
    for action in plan:
        checked_action(action, len(simulator.sizes))
    remaining, seconds = total, 0.0
    while remaining > 0:
        progress_share = 1 - remaining / total
        action = plan[min(int(progress_share * len(plan)), len(plan) - 1)]
        gain = simulator.gain(action, progress_share)
        seconds += min(remaining / gain, 1.0) * simulator.step_s(action)
        remaining -= gain
    return seconds


# Scenarios in which controllers are compared.


GRID = tuple(itertools.product((0.1, 0.2, 0.3), (0.01, 0.05, 0.1)))  # DynaHB's
_COMMON = BatchSimulator(
    sizes=GRID,
    fixed_s=1.5e-4,
    per_snapshot_s=0.01,
    per_share_s=0.6,
    noise_share=3e-3,
    progress=0.002,
    jitter=0.1,
    loss_noise=0.02,
    validation_noise=1e-3,
)
MAX_STEPS = 30_000  # maximum steps of a compared run
TARGET = 0.25  # loss to reach
LANDSCAPES: Mapping[str, BatchSimulator] = MappingProxyType(
    {
        "small batches are best": _COMMON,
        "large batches are best": replace(_COMMON, noise_share=0.02),
        "short rollouts teach less": replace(_COMMON, noise_share=5e-4, snapshot_scale=0.5),
        "the noise scale rises": replace(_COMMON, noise_share=1.2e-4, growth=40.0),
        "the noise scale jumps": replace(_COMMON, noise_share=1.2e-4, growth=80.0, turn=0.5),
        "losses scatter": replace(_COMMON, noise_share=1.2e-4, growth=40.0, loss_noise=0.2, validation_noise=5e-3),
    }
)
# name -> policy, reward, and True if it uses the validation loss
CONTROLLERS: Mapping[str, tuple[str, str, bool]] = MappingProxyType(
    {
        "random": ("random", "paper", False),
        "bandit": ("bandit", "paper", False),
        "dqn": ("dqn", "paper", False),
        "bandit, progress": ("bandit", "progress", True),
        "dqn, progress": ("dqn", "progress", True),
        "law": ("law", "progress", True),
    }
)


def run_controllers(
    simulator: BatchSimulator,
    target: float,
    *,
    seeds: Sequence[int] = range(5),
    decide_every: int = 10,
    controllers: Mapping[str, tuple[str, str, bool]] = CONTROLLERS,
) -> dict[str, list[SimulatedRun]]:
    """Run each controller with every seed, all starting with the middle size.

    Args:
        simulator: model of the training; its seed is replaced.
        target: loss to reach.
        seeds: seeds of controllers and of observation noise.
        decide_every: number of steps between decisions.
        controllers: by name, the policy, its reward, and True if it uses the validation loss.
    """
    sizes = simulator.sizes
    choices: dict[str, Any] = {"choices": len(sizes), "initial": len(sizes) // 2, "sizes": sizes}
    how: dict[str, Any] = {"target": target, "decide_every": decide_every, "max_steps": MAX_STEPS}
    return {
        name: [
            replace(simulator, seed=seed).run(
                make_controller(policy, seed=seed, reward=reward, **choices), validated=validated, **how
            )
            for seed in seeds
        ]
        for name, (policy, reward, validated) in controllers.items()
    }


def over_best_fixed(simulator: BatchSimulator, *, names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[float]]:
    """Return the seconds of some ``CONTROLLERS`` relative to the best fixed size, which is only known in hindsight.

    Args:
        simulator: model of the training, to ``TARGET``.
        names: names of controllers.
        seeds: seeds of controllers and of observation noise.

    Returns:
        By name, a ratio per seed, ascending; infinite if the target was not reached.
    """
    best_s = simulator.best_fixed(TARGET)[1]
    runs = run_controllers(simulator, TARGET, seeds=seeds, controllers={name: CONTROLLERS[name] for name in names})
    return {
        name: sorted(math.inf if run.seconds is None else run.seconds / best_s for run in seed_runs)
        for name, seed_runs in runs.items()
    }
