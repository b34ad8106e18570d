"""A cache policy that was learned beforehand, in the simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_memory import RunsMemory
from dtdg_lab.control.cache_views import CacheViews
from dtdg_lab.control.policy_files import StoredPolicy, load_policy, shipped_policy
from dtdg_lab.control.q_network import QNetwork
from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.feature_path import CacheActions, CacheDecision, CacheView

DOUBLE_DQN = "double_dqn"  # the paper's
DOUBLE_DQN_PLUS = "double_dqn_plus"  # ours: another reward, and states that look back


class CacheDQN:
    """Takes the action whose learned value is highest; learns nothing more.

    Where what was learned looks back, each decision must be asked for once, in the order of the steps; a step before
    the last one begins a new run.

    Args:
        stored: what was learned.

    Attributes:
        name: of the policy.
        stored: what was learned.
        first: action of a simulated run's first window: W = 16, uniform.

    References: GreenDyGNN section IV-C2, V-B.
    """

    def __init__(self, stored: StoredPolicy) -> None:
        self.name, self.stored = stored.name, stored
        self.first = CacheActions(stored.parts).action(16)
        self._network = QNetwork(stored.sizes, stored.parameters)
        self._memory = RunsMemory(stored.parts)

    def values(self, inputs: NDArray[np.floating]) -> NDArray[np.float64]:
        """States and what is remembered, (B, S) -> what each action is worth, (B, 8 P), in rewards to come.

        Raises:
            PlanError: states of another number of parts.
        """
        if inputs.ndim != 2 or inputs.shape[1] != self._network.sizes[0]:
            raise PlanError(
                f"states of shape {inputs.shape} for a policy of {self.stored.parts} parts: "
                f"(B, {self._network.sizes[0]}) are needed."
            )
        return self._network.values(inputs)

    def decide(self, view: CacheView) -> CacheDecision:
        """The best action for one state; ties go to the lower one."""
        inputs = self._inputs(view.state[np.newaxis], np.zeros(1, dtype=np.int64), np.array([view.at]))
        values: list[float] = self.values(inputs)[0].tolist()
        return CacheDecision(self.name, values.index(max(values)), tuple(values))

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the same for every run."""
        best: NDArray[np.int64] = self.values(self._inputs(views.states, views.runs, views.now)).argmax(axis=1)
        return best

    def _inputs(
        self, states: NDArray[np.float32], runs: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """(B, 3 P + 11) -> (B, S) what the network is told."""
        return self._memory.take_in(states, runs, steps) if self.stored.remembers else states


def learned_policy(parts: int, name: str = DOUBLE_DQN, file: str = "") -> CacheDQN:
    """The learned policy that decides for so many parts: from a file where one is given, else the one that is shipped.

    Raises:
        ConfigError: there is none for so many parts, or the file holds none.
        UnknownNameError: none of this name is shipped.
    """
    stored = load_policy(Path(file)) if file else shipped_policy(parts, name)
    if stored.parts != parts:
        raise ConfigError(
            f"{file} holds a policy for {stored.parts} parts, and this run has {parts}: train one with "
            f"python -m dtdg_lab train-policy --parts {parts} --out FILE, or run with parts={stored.parts}."
        )
    return CacheDQN(stored)
