"""Learned cache policies, and the files that store them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.core.files import read_arrays, replacing
from dtdg_lab.core.system_errors import reading
from dtdg_lab.core.units import as_path
from dtdg_lab.rl.dqn import QNetwork
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.policies.delay_estimator import RunsMemory, memory_size
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision, CacheView, CacheViews, state_size

SHIPPED = Path(__file__).parent / "shipped"
FORMAT = 1
_NOT_FACTS = ("parameters", "protocol")  # the protocol only where there is one


@dataclass(frozen=True, slots=True, eq=False)
class StoredPolicy:
    """A learned policy and its origin.

    Attributes:
        name: name of the policy.
        parts: P, number of parts it was trained for.
        seed: seed of its training.
        episodes: number of episodes of its training.
        double: True if it was trained by Double DQN, otherwise by DQN.
        hidden: widths of the network's hidden layers.
        remembers: True if its input includes averages of past delays besides the state.
        constants: digests of the simulator's constants, taken before the first episode.
        training: digest of all other settings of the training; see
            :mod:`dtdg_lab.systems.feature_cache.simulation.training`.
        parameters: (n,) float32 parameters of the network.
        protocol: its training in words; empty for files of earlier versions.
    """

    name: str
    parts: int
    seed: int
    episodes: int
    double: bool
    hidden: tuple[int, ...]
    remembers: bool
    constants: tuple[str, ...]
    training: str
    parameters: NDArray[np.float32]
    protocol: str = ""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of the network's layers."""
        inputs = state_size(self.parts) + (memory_size(self.parts) if self.remembers else 0)
        return (inputs, *self.hidden, len(CacheActions(self.parts)))

    def facts(self) -> dict[str, Any]:
        """Return all fields except the parameters, as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NOT_FACTS}
        protocol = {"protocol": self.protocol} if self.protocol else {}
        return {**values, "hidden": list(self.hidden), "constants": list(self.constants), **protocol}

    def digest(self) -> str:
        """Return the SHA-256 of facts and parameters."""
        text = json.dumps({"format": FORMAT, **self.facts()}, sort_keys=True).encode()
        return hashlib.sha256(text + self.parameters.astype("<f4").tobytes()).hexdigest()


def save_policy(path: Path, policy: StoredPolicy) -> None:
    """Write a policy to a ``.npz`` file, as a whole; equal policies give equal bytes."""
    text = json.dumps({"format": FORMAT, "digest": policy.digest(), **policy.facts()}, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez(file, facts=np.array(text), parameters=policy.parameters.astype("<f4"))


def load_policy(path: Path) -> StoredPolicy:
    """Load a policy from a file.

    Raises:
        ConfigError: the file is missing, damaged, or not a policy.
    """
    advice = f"Train one: python -m dtdg_lab train-policy --parts P --out {path}"
    with reading(path, remedy=advice, damaged="is not a policy file", raises=ConfigError):
        try:
            arrays = read_arrays(path)
        except FileNotFoundError as error:
            raise ConfigError(f"{path} does not exist. {advice}") from error
        facts, parameters = json.loads(str(arrays["facts"])), arrays["parameters"]
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ConfigError(f"{path} is not a policy file of format {FORMAT}. {advice}")
    policy = _parse_policy(path, facts, parameters)
    if policy.digest() != facts.get("digest"):
        raise ConfigError(f"{path} is damaged: its digest does not match its contents. {advice}")
    return policy


def shipped_policy(parts: int, name: str) -> StoredPolicy:
    """Load a shipped policy.

    Raises:
        ConfigError: no policy is shipped for this number of parts.
        UnknownNameError: no policy of this name is shipped.
    """
    shipped = sorted(path.stem.rsplit("_p", 1) for path in SHIPPED.glob("*_p*.npz"))
    names = sorted({stem for stem, _ in shipped})
    if name not in names:
        raise UnknownNameError("learned policy", name, names)
    part_counts = sorted(int(count) for stem, count in shipped if stem == name)
    if parts not in part_counts:
        raise ConfigError(
            f"no learned policy is shipped for {parts} parts, only for "
            f"{', '.join(map(str, part_counts))}. Train one with "
            f"`python -m dtdg_lab train-policy --parts {parts} --out FILE` and give FILE as policy_file, or choose "
            "another policy."
        )
    return load_policy(shipped_path(parts, name))


def shipped_path(parts: int, name: str) -> Path:
    """Return the path of a shipped policy, whether it exists or not."""
    return SHIPPED / f"{name}_p{parts}.npz"


def _parse_policy(path: Path, facts: Mapping[str, Any], parameters: NDArray[Any]) -> StoredPolicy:
    try:
        values = {field.name: facts[field.name] for field in fields(StoredPolicy) if field.name not in _NOT_FACTS}
        lists = {"hidden": tuple(map(int, values["hidden"])), "constants": tuple(map(str, values["constants"]))}
        protocol = str(facts.get("protocol", ""))
        return StoredPolicy(**{**values, **lists}, parameters=parameters.astype(np.float32), protocol=protocol)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is an incomplete policy file ({error!r}). Train the policy again.") from error


DOUBLE_DQN = "double_dqn"  # the paper's network, states and reward; shipped in a shorter training
DOUBLE_DQN_PLUS = "double_dqn_plus"  # our policy: another reward, and states with memory


class CacheDQN:
    """Takes the action with the highest learned value; its parameters are fixed.

    If the policy has a memory, request each decision once, in the order of the steps. An earlier step starts a new run.

    Args:
        stored: the learned policy.

    Attributes:
        name: name of the policy.
        stored: the learned policy.
        first: action of a simulated run's first window: W = 16, uniform.

    References: GreenDyGNN section IV-C2, V-B.
    """

    def __init__(self, stored: StoredPolicy) -> None:
        self.name, self.stored = stored.name, stored
        self.first = CacheActions(stored.parts).action(16)
        self._network = QNetwork(stored.sizes, stored.parameters)
        self._memory = RunsMemory(stored.parts)

    def values(self, inputs: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the (B, 8 P) expected future rewards of each action for network inputs (B, S).

        Raises:
            PlanError: the inputs belong to another number of parts.
        """
        if inputs.ndim != 2 or inputs.shape[1] != self._network.sizes[0]:
            raise PlanError(
                f"inputs have shape {inputs.shape}, but the policy of {self.stored.parts} parts needs "
                f"(B, {self._network.sizes[0]})."
            )
        return self._network.values(inputs)

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the action with the highest value for a view; of equal ones, the lowest index."""
        inputs = self._inputs(view.state[np.newaxis], np.zeros(1, dtype=np.int64), np.array([view.at]))
        values: list[float] = self.values(inputs)[0].tolist()
        return CacheDecision(self.name, values.index(max(values)), tuple(values))

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return the (B,) best action of every run."""
        best: NDArray[np.int64] = self.values(self._inputs(views.states, views.runs, views.now)).argmax(axis=1)
        return best

    def _inputs(
        self, states: NDArray[np.float32], runs: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return network inputs (B, S) for states (B, 3 P + 11)."""
        return self._memory.take_in(states, runs, steps) if self.stored.remembers else states


def learned_policy(parts: int, name: str = DOUBLE_DQN, file: str = "") -> CacheDQN:
    """Load the learned policy for this number of parts, from a file if given, otherwise the shipped one.

    Raises:
        ConfigError: no policy is shipped for this number of parts, or the file is not a policy.
        UnknownNameError: no policy of this name is shipped.
    """
    stored = load_policy(as_path(file, "policy_file", ConfigError)) if file else shipped_policy(parts, name)
    if stored.parts != parts:
        raise ConfigError(
            f"{file} is a policy for {stored.parts} parts, but this run has {parts}. Train one with "
            f"python -m dtdg_lab train-policy --parts {parts} --out FILE, or run with parts={stored.parts}."
        )
    return CacheDQN(stored)
