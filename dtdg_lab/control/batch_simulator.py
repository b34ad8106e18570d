"""Training in a formula: how long a step of a batch size takes and how far it gets, to compare adjusters in moments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from dtdg_lab.control.batch_adjuster import BatchAdjuster, Decision, make_adjuster
from dtdg_lab.core import streams
from dtdg_lab.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What an adjuster made of a simulated training.

    Attributes:
        seconds: to the target, None where it was not reached. Of the last step only the share that was needed counts,
            so that no order of sizes can be faster than the best size alone where that stays the best.
        choices: size of each step.
        losses: without noise, after each step.
        decisions: all of them.
    """

    seconds: float | None
    choices: tuple[int, ...]
    losses: tuple[float, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSimulator:
    """A training run whose steps are a few lines of arithmetic.

    A batch holds a share b = (snapshots) x (vertices) of the training part. Its step takes
    ``fixed_s + per_snapshot_s * snapshots + per_share_s * b`` seconds and lowers the logarithm of the loss above its
    floor by ``progress / (1 + noise_share / b)``: batches far below the noise scale gain with their size, far above it
    no more. With ``growth`` the noise scale rises by that factor, linearly on the way to the target, and larger batches
    become the better ones: there an adjuster can beat every fixed size. With ``turn`` it does not rise but jumps, at
    that share of the way. With ``snapshot_scale`` S a batch's progress is multiplied by s / (s + S), where s is its
    share of snapshots: short rollouts from state zero teach less.

    What an adjuster hears is noisy: losses by ``loss_noise * sqrt(noise_share / b)`` and seconds by ``jitter``, both
    relative standard deviations. What counts in the end is not.

    Attributes:
        sizes: shares (snapshots, vertices) of each action, in (0, 1].
        fixed_s: seconds of a step of nothing.
        per_snapshot_s: seconds that all snapshots add.
        per_share_s: seconds that the whole training part adds.
        noise_share: the share at which a batch makes half the progress of the whole, at the start.
        growth: how many times larger it is at the target; 1 keeps it.
        turn: share of the way to the target at which it becomes so; None: linearly.
        snapshot_scale: share of snapshots at which a batch makes half the progress of a long one; 0: all alike.
        progress: of a step without noise.
        start: loss at the start.
        floor: the loss that training nears.
        loss_noise: of what is heard of a loss.
        jitter: of what is heard of a step's time.
        validation_noise: of what is heard of the validation loss.
        evaluation_s: seconds that an evaluation takes.
        seed: of the noise.

    Raises:
        ConfigError: a number is out of its bounds.

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
        if not self.sizes or any(not 0 < share <= 1 for size in self.sizes for share in size):
            raise ConfigError(f"sizes={self.sizes}: at least one pair of shares within (0, 1] is needed.")
        heard = (self.loss_noise, self.jitter, self.validation_noise, self.evaluation_s, self.snapshot_scale)
        costs = (self.fixed_s, self.per_snapshot_s, self.per_share_s, *heard)
        if min(costs) < 0 or sum(costs[:3]) <= 0 or min(self.noise_share, self.growth, self.progress) <= 0:
            raise ConfigError(
                f"{self}: seconds and noise must be 0 or more, and not all seconds 0; noise_share, growth and progress "
                "above 0."
            )
        if self.start <= self.floor:
            raise ConfigError(f"start={self.start}, floor={self.floor}: the loss must start above its floor.")

    def step_s(self, action: int) -> float:
        """Seconds of a step of this size."""
        snapshots, vertices = self.sizes[action]
        return self.fixed_s + self.per_snapshot_s * snapshots + self.per_share_s * snapshots * vertices

    def gain(self, action: int, done: float) -> float:
        """By how much a step of this size lowers ln(loss - floor), a share ``done`` of the way to the target."""
        snapshots, vertices = self.sizes[action]
        grown = done if self.turn is None else float(done >= self.turn)
        noise = self.noise_share * (1 + (self.growth - 1) * grown)
        whole = self.progress / (1 + noise / (snapshots * vertices))
        return whole * snapshots / (snapshots + self.snapshot_scale)

    def run(
        self, adjuster: BatchAdjuster, *, target: float, decide_every: int = 5, most_steps: int = 10_000,
        validated: bool = False,
    ) -> SimulatedRun:  # fmt: skip
        """Train until the loss is at the target.

        Args:
            adjuster: chooses among ``sizes``; it is changed.
            target: a loss between the floor and the start.
            decide_every: steps between its decisions.
            most_steps: after which it is given up.
            validated: decisions read the validation loss, whose evaluation takes time, instead of the batches'.

        Raises:
            ConfigError: the target is not between floor and start, or the adjuster has another number of choices.
        """
        if adjuster.choices != len(self.sizes):
            raise ConfigError(f"an adjuster of {adjuster.choices} choices for {len(self.sizes)} sizes.")
        whole = self._way(target)
        noise = streams.generator(self.seed, "control/simulator").standard_normal((most_steps, 3))
        left, seconds = whole, 0.0
        choices: list[int] = []
        losses: list[float] = []
        decisions: list[Decision] = []
        for for_loss, for_time, for_validation in noise:
            action = adjuster.choice
            step_s, gain = self.step_s(action), self.gain(action, 1 - left / whole)
            needed = min(left / gain, 1.0)
            left, seconds = left - needed * gain, seconds + needed * step_s
            choices.append(action)
            losses.append(self.floor + (target - self.floor) * math.exp(left))
            if needed < 1 or left <= 0:
                return SimulatedRun(seconds, tuple(choices), tuple(losses), tuple(decisions))
            snapshots, vertices = self.sizes[action]
            spread = self.loss_noise * math.sqrt(self.noise_share / (snapshots * vertices))
            loss = None if validated else losses[-1] * (1 + spread * for_loss)
            adjuster.observe(loss, step_s * math.exp(self.jitter * for_time))
            if adjuster.is_due(decide_every):
                seconds += self.evaluation_s * validated
                loss = losses[-1] * (1 + self.validation_noise * for_validation) if validated else None
                decisions.append(adjuster.decide(loss))
        return SimulatedRun(None, tuple(choices), tuple(losses), tuple(decisions))

    def fixed_s_to(self, action: int, target: float) -> float:
        """Seconds to the target with one size throughout.

        Raises:
            ConfigError: the target is not between floor and start.
        """
        whole = self._way(target)
        left, seconds = whole, 0.0
        while left > 0:
            gain = self.gain(action, 1 - left / whole)
            seconds += min(left / gain, 1.0) * self.step_s(action)
            left -= gain
        return seconds

    def best_fixed(self, target: float) -> tuple[int, float]:
        """The best fixed size in hindsight: its action and its seconds to the target; ties go to the lower action."""
        times = [self.fixed_s_to(action, target) for action in range(len(self.sizes))]
        action = min(range(len(times)), key=times.__getitem__)
        return action, times[action]

    def regret_s(self, run: SimulatedRun, target: float) -> float | None:
        """Seconds lost against the best fixed size in hindsight; None where the run did not reach the target.

        Never negative where ``growth`` is 1; elsewhere what is below 0 is what adjusting won.
        """
        return None if run.seconds is None else run.seconds - self.best_fixed(target)[1]

    def _way(self, target: float) -> float:
        """By how much ln(loss - floor) must fall."""
        if not self.floor < target < self.start:
            raise ConfigError(f"target={target}: it must lie between floor={self.floor} and start={self.start}.")
        return math.log((self.start - self.floor) / (target - self.floor))


GRID = tuple(itertools.product((0.1, 0.2, 0.3), (0.01, 0.05, 0.1)))  # DynaHB's
_COMMON = BatchSimulator(
    sizes=GRID, fixed_s=1.5e-4, per_snapshot_s=0.01, per_share_s=0.6, noise_share=3e-3, progress=0.002, jitter=0.1,
    loss_noise=0.02, validation_noise=1e-3,
)  # fmt: skip
MOST_STEPS = 30_000  # of a comparison
TARGET = 0.25  # loss of the landscapes that adjusters are compared on
LANDSCAPES: Mapping[str, BatchSimulator] = MappingProxyType({
    "small batches are best": _COMMON,
    "large batches are best": replace(_COMMON, noise_share=0.02),
    "short rollouts teach less": replace(_COMMON, noise_share=5e-4, snapshot_scale=0.5),
    "the noise scale rises": replace(_COMMON, noise_share=1.2e-4, growth=40.0),
    "the noise scale jumps": replace(_COMMON, noise_share=1.2e-4, growth=80.0, turn=0.5),
    "losses scatter": replace(_COMMON, noise_share=1.2e-4, growth=40.0, loss_noise=0.2, validation_noise=5e-3),
})  # fmt: skip
# name -> the policy, what rewards it, and whether it reads the validation part
CONTROLLERS: Mapping[str, tuple[str, str, bool]] = MappingProxyType({
    "random": ("random", "paper", False), "bandit": ("bandit", "paper", False), "dqn": ("dqn", "paper", False),
    "bandit, progress": ("bandit", "progress", True), "dqn, progress": ("dqn", "progress", True),
    "law": ("law", "progress", True),
})  # fmt: skip


def compared(
    simulator: BatchSimulator, target: float, *, seeds: Sequence[int] = range(5), decide_every: int = 10,
    controllers: Mapping[str, tuple[str, str, bool]] = CONTROLLERS,
) -> dict[str, list[SimulatedRun]]:  # fmt: skip
    """Each controller's run with every seed, all beginning with the middle size.

    Args:
        simulator: of the training; its seed is replaced.
        target: loss to be reached.
        seeds: of controllers and of what they hear.
        decide_every: steps between two decisions.
        controllers: by name, the policy, its reward, and whether it reads the validation part.
    """
    found: dict[str, list[SimulatedRun]] = {}
    for name, (policy, reward, validated) in controllers.items():
        found[name] = []
        for seed in seeds:
            adjuster = make_adjuster(
                policy, choices=len(simulator.sizes), initial=len(simulator.sizes) // 2, seed=seed, reward=reward,
                sizes=simulator.sizes,
            )  # fmt: skip
            run = replace(simulator, seed=seed).run(
                adjuster, target=target, decide_every=decide_every, validated=validated, most_steps=MOST_STEPS
            )
            found[name].append(run)
    return found


def over_best_fixed(simulator: BatchSimulator, *, names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[float]]:
    """Seconds of some ``CONTROLLERS`` over those of the best fixed size, which only hindsight knows.

    Args:
        simulator: of the training, to ``TARGET``.
        names: of controllers.
        seeds: of controllers and of what they hear.

    Returns:
        By name, a ratio for each seed, ascending; infinite where the target was never reached.
    """
    best_s = simulator.best_fixed(TARGET)[1]
    runs = compared(simulator, TARGET, seeds=seeds, controllers={name: CONTROLLERS[name] for name in names})
    return {
        name: sorted(math.inf if run.seconds is None else run.seconds / best_s for run in found)
        for name, found in runs.items()
    }
