"""Cases of congestion for training and comparing cache policies, and the state of the links at every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.network.links import BITS, LinkState
from dtdg_lab.network.patterns import Pattern


@dataclass(frozen=True, slots=True, eq=False)
class LinkTrace:
    """The conditions of the links, and the condition at each step (K conditions, S steps, P parts).

    Attributes:
        delay_s: (K, P - 1) seconds of delay of each other part's replies, in ascending order of the parts.
        bytes_per_s: (K, P - 1) rate of its replies; infinite for no limit.
        which: (S,) index of the condition at each step.
    """

    delay_s: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]
    which: NDArray[np.int64]

    @property
    def parts(self) -> int:
        """Number of parts P."""
        return self.delay_s.shape[1] + 1

    @property
    def steps(self) -> int:
        """Number of steps S."""
        return len(self.which)


def trace_of_pattern(pattern: Pattern, part: int, steps: range, *, epoch_steps: int) -> LinkTrace:
    """Return the trace of a part that requests rows under a pattern of congestion, step by step."""
    positions = (divmod(step, epoch_steps) for step in steps)
    states = [pattern.at(epoch, step_of_epoch / epoch_steps) for epoch, step_of_epoch in positions]
    conditions: dict[LinkState, int] = {}
    which = [conditions.setdefault(state, len(conditions)) for state in states]
    is_other = np.arange(states[0].parts) != part
    return LinkTrace(
        np.stack([state.delay_s[is_other, part] for state in conditions]),
        np.stack([state.bytes_per_s[is_other, part] for state in conditions]),
        np.array(which, dtype=np.int64),
    )


PAPER_ARCHETYPES = ("none", "one_slow", "one_fast", "two_symmetric", "two_asymmetric", "oscillating")
STEADY, ALL_STEADY = "steady", "all_steady"  # one link, or all of them, from the first step to the last
ARCHETYPES = (*PAPER_ARCHETYPES, "rotating", "markov", "all_slow", STEADY, ALL_STEADY)
KINDS = ("delay", "rate")

# (name, added milliseconds, remaining Mbit/s). Policies are compared at other severities than they are trained with.
# They are accepted at still others, since constants may have been chosen by comparison.
TRAINED_SEVERITIES = (("mild", 4.0, 800.0), ("middling", 12.0, 300.0), ("severe", 28.0, 80.0))
COMPARED_SEVERITIES = (("light", 6.0, 500.0), ("medium", 16.0, 200.0), ("heavy", 22.0, 50.0))
TRAINED_SPREAD, COMPARED_SPREAD = 0.15, 0.05
LEVELS = 8  # number of levels between no and full congestion, for swinging links
WARM_UP_EPOCHS = 2  # GreenDyGNN section V-B: the baseline of fetch times is measured in these epochs
SLOW_EPOCHS = ((3.0, 9.0), (1.0, 4.0))  # bounds of the phases with congestion, and without
FAST_EPOCHS = ((0.15, 0.6), (0.15, 0.6))
SWING_EPOCHS = (1.0, 6.0)  # bounds of the time from one owner to the other and back
TURN_EPOCHS = (0.5, 3.0)  # bounds of one owner's turn, for rotating congestion
MARKOV_EPOCHS = ((0.5, 3.0), (1.0, 6.0))  # bounds of the mean time that a link stays slow, and that it stays clean


@dataclass(frozen=True, slots=True)
class CacheCase:
    """One archetype of congestion at one severity; each episode draws its owners, onset and lengths.

    If a part has only one other, both links are the same. ``one_slow`` and ``one_fast`` are our reading of "single-link
    slow or fast": phases of several epochs, and phases shorter than one. Five more archetypes are ours. ``rotating``:
    the owners take equally long turns of being slow. ``markov``: each link becomes slow and clean again independently,
    after exponentially distributed times. ``all_slow``: all links in the phases of ``one_slow``. ``steady`` and
    ``all_steady``: one link, or all links, from the first step to the last.

    Attributes:
        archetype: one of ``ARCHETYPES``.
        severity: its name.
        delay_s: maximum seconds added to a reply.
        bytes_per_s: minimum rate of replies; infinite for no limit.
        spread: relative range of an episode's delay and rate around these values.

    Raises:
        UnknownNameError: the archetype is unknown.
        ConfigError: a delay is negative, a rate is not above 0, or the spread is not from 0 to below 1.

    References: GreenDyGNN section IV-C2 (six archetypes x three severities; their values are not given, so ours).
    """

    archetype: str
    severity: str
    delay_s: float = 0.0
    bytes_per_s: float = np.inf
    spread: float = 0.0

    def __post_init__(self) -> None:
        if self.archetype not in ARCHETYPES:
            raise UnknownNameError("archetype of congestion", self.archetype, ARCHETYPES)
        if not (0 <= self.delay_s < np.inf and self.bytes_per_s > 0 and 0 <= self.spread < 1):
            raise ConfigError(
                f"{self}: set a delay of 0 s or more, a rate above 0 bytes/s, and a spread from 0 to below 1."
            )

    @property
    def name(self) -> str:
        """Archetype, severity and kind, as in ``one_slow/heavy/delay``."""
        return f"{self.archetype}/{self.severity}/{KINDS[int(np.isfinite(self.bytes_per_s))]}"

    def draw(self, random: np.random.Generator, parts: int, *, epochs: int, epoch_steps: int) -> LinkTrace:
        """Draw the links of one episode, from P - 1 other parts to one part.

        The first two epochs are clean, except those of ``steady`` and ``all_steady``.

        Args:
            random: draws the owners, the onset, the lengths and the severity.
            parts: P, at least 2.
            epochs: epochs of the episode.
            epoch_steps: steps of an epoch.
        """
        steps, num_others = epochs * epoch_steps, parts - 1
        bad = random.uniform(1 - self.spread, 1 + self.spread)
        owners = random.permutation(num_others)
        levels, which = self._draw_levels(random, num_others, steps, epoch_steps)
        used = owners[: levels.shape[1]]
        shares = np.zeros((len(levels), num_others))
        shares[:, used] = levels[:, : len(used)]
        with np.errstate(divide="ignore"):
            return LinkTrace(self.delay_s * bad * shares, self.bytes_per_s / bad / shares, which)

    def _draw_levels(
        self, random: np.random.Generator, num_others: int, steps: int, epoch_steps: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw the (K, owners) severities of each condition from 0 to 1, and the (S,) index of the condition."""
        if self.archetype == "none":
            return np.zeros((1, 2)), np.zeros(steps, dtype=np.int64)
        if self.archetype in (STEADY, ALL_STEADY):
            return np.ones((1, 1 if self.archetype == STEADY else num_others)), np.zeros(steps, dtype=np.int64)
        earliest = WARM_UP_EPOCHS * epoch_steps
        onset = min(int(random.uniform(earliest, max(earliest, 0.4 * steps) + 1)), steps)
        if self.archetype == "oscillating":
            return _draw_swinging(random, steps, onset, epoch_steps)
        if self.archetype == "rotating":
            turn = max(round(random.uniform(*TURN_EPOCHS) * epoch_steps), 1)
            passed = np.arange(steps) - onset
            return np.vstack([np.zeros(num_others), np.eye(num_others)]), np.where(
                passed >= 0, 1 + passed // turn % num_others, 0
            )
        if self.archetype == "markov":
            return _draw_flipping(random, num_others, steps, onset, np.array(MARKOV_EPOCHS) * epoch_steps)
        second = {"two_symmetric": 1.0, "two_asymmetric": 0.5}.get(self.archetype, 0.0)
        congested = np.ones(num_others) if self.archetype == "all_slow" else np.array([1.0, second])
        lengths = FAST_EPOCHS if self.archetype == "one_fast" else SLOW_EPOCHS
        phases = _draw_phases(random, steps, onset, np.array(lengths) * epoch_steps)
        return np.stack([np.zeros_like(congested), congested]), phases


def training_cases(archetypes: tuple[str, ...] = ARCHETYPES) -> tuple[CacheCase, ...]:
    """Return the cases of policy training: each archetype at three severities, by delay and by rate, spread by 15 %.

    The paper's ``double_dqn`` is only trained with ``PAPER_ARCHETYPES``.
    """
    return cases_of(archetypes, TRAINED_SEVERITIES, TRAINED_SPREAD)


def comparison_cases(archetypes: tuple[str, ...] = ARCHETYPES) -> tuple[CacheCase, ...]:
    """Return the cases of policy comparison, at severities that training never draws."""
    return cases_of(archetypes, COMPARED_SEVERITIES, COMPARED_SPREAD)


def cases_of(
    archetypes: tuple[str, ...], severities: tuple[tuple[str, float, float], ...], spread: float
) -> tuple[CacheCase, ...]:
    """Return each archetype at each severity (name, milliseconds, Mbit/s), by delay and by rate."""
    return tuple(
        CacheCase(archetype, name, delay_ms / 1e3, np.inf, spread)
        if kind == "delay"
        else CacheCase(archetype, name, 0.0, mbit / BITS, spread)
        for archetype in archetypes
        for kind in KINDS
        for name, delay_ms, mbit in severities
    )


def _draw_phases(
    random: np.random.Generator, steps: int, onset: int, lengths: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Draw (S,) 1 under congestion; phases with and without it alternate after the onset."""
    phase_lengths = random.uniform(lengths[:, 0], lengths[:, 1], (max(2, int(steps / lengths[:, 0].sum()) + 1), 2))
    ends = onset + np.cumsum(np.maximum(np.rint(phase_lengths).astype(np.int64), 1).ravel())
    turn = np.searchsorted(ends, np.arange(steps), side="right")
    return np.where(np.arange(steps) >= onset, 1 - turn % 2, 0)


def _draw_swinging(
    random: np.random.Generator, steps: int, onset: int, epoch_steps: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw congestion that moves from one owner to the other and back, in levels; condition 0 is clean."""
    up = np.arange(LEVELS + 1) / LEVELS
    levels = np.vstack([np.zeros((1, 2)), np.stack([1 - up, up], axis=1)])
    period = random.uniform(*SWING_EPOCHS) * epoch_steps
    moved = (1 - np.cos(2 * np.pi * (np.arange(steps) - onset) / period)) / 2
    return levels, np.where(np.arange(steps) >= onset, 1 + np.rint(moved * LEVELS).astype(np.int64), 0)


def _draw_flipping(
    random: np.random.Generator, num_others: int, steps: int, onset: int, means: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw links that become slow and clean again independently; ``means`` (2, 2) bounds the mean times in steps."""
    slow = np.zeros((steps, num_others), dtype=np.int64)
    stays = random.uniform(means[:, 0], means[:, 1])
    for owner in range(num_others):
        step, is_slow = onset + int(random.exponential(stays[1])), 1
        while step < steps:
            lasts = 1 + int(random.exponential(stays[1 - is_slow]))
            slow[step : step + lasts, owner] = is_slow
            step, is_slow = step + lasts, 1 - is_slow
    codes, which = np.unique(slow @ 2 ** np.arange(num_others), return_inverse=True)
    return (codes[:, None] >> np.arange(num_others) & 1).astype(np.float64), which
