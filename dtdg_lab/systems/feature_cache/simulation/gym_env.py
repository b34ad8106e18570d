"""The simulator as a Gymnasium environment, for external learning algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, SupportsInt

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, NotAvailableError, PlanError
from dtdg_lab.systems.feature_cache.calibration.calibration import products, reddit
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.interface import state_bounds
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase, training_cases
from dtdg_lab.systems.feature_cache.simulation.episode import CacheNoise
from dtdg_lab.systems.feature_cache.simulation.simulator import REFERENCE, CacheSimulator

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise NotAvailableError(
        "the environment for learners needs gymnasium, which is not installed. Run: pip install dtdg-lab[lab]. The "
        "simulator itself (dtdg_lab.systems.feature_cache.simulation.simulator) does not need it."
    ) from error

ENV_ID = "dtdg_lab/CacheWindows-v1"  # increase the version with every change that may alter results


class CacheEnv(gymnasium.Env[NDArray[np.float32], SupportsInt]):
    """When to rebuild a cache of remote features, and which part's rows to prefer in it.

    Description:
        A graph is trained in P parts. Each part fetches the features of the others' nodes, through links that are
        shared with other traffic. It keeps a cache of the rows that the next W batches request most. See
        :mod:`dtdg_lab.systems.feature_cache.simulation.simulator`.

    Action Space:
        ``Discrete(8 P)``: a window and an allocation, numbered as in ``CacheActions``. An action takes effect at the
        next boundary.

    Observation Space:
        ``Box((3 P + 11,), float32)``: see ``cache_state``.

    Rewards:
        ``-E / E_ref - lambda [allocation changed]`` of the decided window, or its savings: see
        ``CacheSimulator``.

    Starting State:
        Step 0 of a run whose first window has 16 steps and equal shares, before any observation.

    Episode End:
        Terminated when the decided window reaches the end of the run; never truncated.

    Version History:
        v1: initial version.

    Args:
        costs: calibrated costs, all for the same number of parts; by default the shipped ones for four parts.
        cases: congestion; by default the cases of policy training.
        seed: seed of the episodes until ``reset`` sets another. If ``reset`` gets none, the numbering continues.
        epochs: epochs of a run.
        epoch_steps: steps of an epoch.
        penalty: lambda.
        reward: "ratio" or "saved".
        noise: noise of steps and measurements.

    Raises:
        ConfigError: the run is not longer than its first window, or ``CacheSimulator`` rejects an argument.
        NotAvailableError: (at import) gymnasium is not installed.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - declared like this by gymnasium

    def __init__(
        self,
        costs: Sequence[CacheCosts] | None = None,
        cases: Sequence[CacheCase] | None = None,
        *,
        seed: int = 0,
        epochs: int = 30,
        epoch_steps: int = 25,
        penalty: float = 0.05,
        reward: Literal["ratio", "saved"] = "ratio",
        noise: CacheNoise | None = None,
    ) -> None:
        if epochs * epoch_steps <= REFERENCE:
            raise ConfigError(
                f"{epochs} epochs of {epoch_steps} steps are not longer than the first window of {REFERENCE} steps."
            )
        all_costs, all_cases = tuple(costs or (products(), reddit())), tuple(cases or training_cases())
        self._made = partial(
            CacheSimulator,
            all_costs,
            all_cases,
            epochs=epochs,
            epoch_steps=epoch_steps,
            penalty=penalty,
            reward=reward,
            noise=noise,
        )
        self._simulator = self._made(seed=seed)
        self._going = False
        low, high = state_bounds(self._simulator.actions)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(self._simulator.actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode.

        Args:
            seed: seed of this episode and later ones.
            options: ``{"number": n}`` starts the n-th episode of the seed.

        Raises:
            ConfigError: an option is unknown.
        """
        super().reset(seed=seed)
        if unknown := set(options or {}) - {"number"}:
            raise ConfigError(
                f"options {sorted(unknown)} of reset are unknown. The only option is number, of the episode."
            )
        if seed is not None:
            self._simulator = self._made(seed=seed)
        states = self._simulator.reset(number=(options or {}).get("number"))
        self._going = True
        return states[0], self._to_dict()

    def step(self, action: SupportsInt) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Decide, and advance to the next boundary.

        Raises:
            PlanError: no episode is in progress, or the action does not exist.
        """
        number = int(action)
        if not self._going:
            raise PlanError("no episode is in progress. Call reset first.")
        if not self.action_space.contains(number):
            raise PlanError(f"action {number} is out of range: actions are 0 to {len(self._simulator.actions) - 1}.")
        states, rewards, done, info = self._simulator.step([number])
        self._going = not done[0]
        costs = {
            "joules": float(info.joules[0]),
            "seconds": float(info.seconds[0]),
            "steps": int(info.steps[0]),
            "reference_j": float(info.reference_j[0]),
        }
        return states[0], float(rewards[0]), bool(done[0]), False, {**self._to_dict(), **costs}

    def _to_dict(self) -> dict[str, Any]:
        """Return facts on the episode for observers; policies do not see them."""
        (episode,) = self._simulator.running
        return {
            "case": episode.case.name if episode.case else "",
            "number": episode.number,
            "costs": episode.costs.name,
        }


def register_env() -> None:
    """Register the environment for ``gymnasium.make(ENV_ID)``; idempotent."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(ENV_ID, entry_point="dtdg_lab.systems.feature_cache.simulation.gym_env:CacheEnv")
