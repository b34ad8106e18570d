"""Cache policies: fixed, random, threshold, user rule, epoch-hot (RapidGNN), learned; and files of learned ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import rng
from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.core.files import read_arrays
from dtdg_lab.core.system_errors import reading
from dtdg_lab.core.units import as_path
from dtdg_lab.rl import QNetwork
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions, CacheDecision, CacheView
from dtdg_lab.systems.feature_cache.policies.env import CacheViews, RunsMemory, memory_size, state_size

# Files of learned cache policies: parameters, seed, and digests of the constants used.


SHIPPED = Path(__file__).parent / "shipped"
FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class StoredPolicy:
    """A learned policy and its origin.

    Attributes:
        name: of the policy.
        parts: P, number of parts it was trained for.
        seed: of its training.
        episodes: of its training.
        double: whether it was trained by Double DQN, otherwise by DQN.
        hidden: widths of the network's hidden layers.
        remembers: whether its input includes averages of past delays, beside the state.
        constants: digests of the simulator's constants, taken before the first episode.
        training: digest of all other settings of the training; see
            :mod:`dtdg_lab.systems.feature_cache.policies.training`.
        parameters: (n,) float32 of the network.
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

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of the network's layers."""
        inputs = state_size(self.parts) + (memory_size(self.parts) if self.remembers else 0)
        return (inputs, *self.hidden, len(CacheActions(self.parts)))

    def facts(self) -> dict[str, Any]:
        """All fields except the parameters, as plain values."""
        described = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "parameters"}
        return {**described, "hidden": list(self.hidden), "constants": list(self.constants)}

    def digest(self) -> str:
        """SHA-256 of facts and parameters."""
        described = json.dumps({"format": FORMAT, **self.facts()}, sort_keys=True).encode()
        return hashlib.sha256(described + self.parameters.astype("<f4").tobytes()).hexdigest()

    def knows(self, constants: str) -> bool:
        """Whether it was trained with the constants of this digest, possibly among others."""
        return constants in self.constants


def save_policy(path: Path, policy: StoredPolicy) -> None:
    """Write a policy to a ``.npz`` file; the same policy gives the same bytes."""
    described = json.dumps({"format": FORMAT, "digest": policy.digest(), **policy.facts()}, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, facts=np.array(described), parameters=policy.parameters.astype("<f4"))


def load_policy(path: Path) -> StoredPolicy:
    """The policy in a file.

    Raises:
        ConfigError: the file is missing, damaged, or not a policy.
    """
    advice = f"Train one: python -m dtdg_lab train-policy --parts P --out {path}"
    with reading(path, remedy=advice, damaged="is not a policy file", raises=ConfigError):
        try:
            held = read_arrays(path)
        except FileNotFoundError as error:
            raise ConfigError(f"{path}: file not found. {advice}") from error
        described, parameters = json.loads(str(held["facts"])), held["parameters"]
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise ConfigError(f"{path} is not a policy file of format {FORMAT}, which this version reads. {advice}")
    policy = _policy(path, described, parameters)
    if policy.digest() != described.get("digest"):
        raise ConfigError(f"{path} is damaged: its digest does not match its contents. {advice}")
    return policy


def shipped_policy(parts: int, name: str) -> StoredPolicy:
    """The shipped policy of a name.

    Raises:
        ConfigError: none is shipped for this number of parts.
        UnknownNameError: none of this name is shipped.
    """
    held = sorted(path.stem.rsplit("_p", 1) for path in SHIPPED.glob("*_p*.npz"))
    names = sorted({stem for stem, _ in held})
    if name not in names:
        raise UnknownNameError("learned policy", name, names)
    known = sorted(int(count) for stem, count in held if stem == name)
    if parts not in known:
        raise ConfigError(
            f"there is no learned policy for {parts} parts; shipped policies are for "
            f"{', '.join(map(str, known))}. Train one: python -m dtdg_lab train-policy --parts {parts} --out FILE, and "
            "give FILE as policy_file; or choose another policy."
        )
    return load_policy(shipped_path(parts, name))


def shipped_path(parts: int, name: str) -> Path:
    """Path of the shipped policy of a name, whether it exists or not."""
    return SHIPPED / f"{name}_p{parts}.npz"


def _policy(path: Path, described: Mapping[str, Any], parameters: NDArray[Any]) -> StoredPolicy:
    try:
        kept = {field.name: described[field.name] for field in fields(StoredPolicy) if field.name != "parameters"}
        lists = {"hidden": tuple(map(int, kept["hidden"])), "constants": tuple(map(str, kept["constants"]))}
        return StoredPolicy(**{**kept, **lists}, parameters=parameters.astype(np.float32))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is an incomplete policy file ({error!r}); train the policy again.") from error


# A cache policy that was trained in the simulator.


DOUBLE_DQN = "double_dqn"  # the paper's
DOUBLE_DQN_PLUS = "double_dqn_plus"  # ours: another reward, and states with memory


class CacheDQN:
    """Takes the action of the highest learned value; its parameters are fixed.

    If the policy has a memory, each decision must be requested once, in the order of the steps; a step before the
    last one starts a new run.

    Args:
        stored: the learned policy.

    Attributes:
        name: of the policy.
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
        """Network inputs (B, S) -> value of each action, (B, 8 P): expected future rewards.

        Raises:
            PlanError: the inputs are of another number of parts.
        """
        if inputs.ndim != 2 or inputs.shape[1] != self._network.sizes[0]:
            raise PlanError(
                f"states of shape {inputs.shape} for a policy of {self.stored.parts} parts: "
                f"(B, {self._network.sizes[0]}) are needed."
            )
        return self._network.values(inputs)

    def decide(self, view: CacheView) -> CacheDecision:
        """The best action for one state; ties are broken by the lower one."""
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
        """(B, 3 P + 11) -> (B, S) network inputs."""
        return self._memory.take_in(states, runs, steps) if self.stored.remembers else states


def learned_policy(parts: int, name: str = DOUBLE_DQN, file: str = "") -> CacheDQN:
    """The learned policy for this number of parts: from a file if one is given, otherwise the shipped one.

    Raises:
        ConfigError: there is none for this number of parts, or the file is not a policy.
        UnknownNameError: none of this name is shipped.
    """
    stored = load_policy(as_path(file, "policy_file", ConfigError)) if file else shipped_policy(parts, name)
    if stored.parts != parts:
        raise ConfigError(
            f"{file} is a policy for {stored.parts} parts, but this run has {parts}: train one with "
            f"python -m dtdg_lab train-policy --parts {parts} --out FILE, or run with parts={stored.parts}."
        )
    return CacheDQN(stored)


# RapidGNN in the simulator: one cache per epoch, in equal shares.


class EpochHot:
    """Rebuilds at the beginning of an epoch.

    Only simulated: live it is a mode of the pipeline without decisions. Its window, the steps of an epoch, is not an
    action's; the simulator numbers it after the actions
    (:class:`dtdg_lab.systems.feature_cache.policies.costs.CacheTables`).

    Its costs extrapolate the cost model to the epoch's length: as in our pipeline, the next epoch's cache is fetched
    during this one, its bytes spread over all steps. An epoch of 25 steps then costs nearly as much as W = 16. In the
    authors' measurements RapidGNN takes 5 to 35 % more joules than W = 16, although their steps at W = 32 and W = 16
    differ by about 1 % only. The cause is not documented, and no calibrated cost reproduces it. Not modelled are:

    - waiting between epochs, while the next epoch's cache is fetched at once, and its joules;
    - sampling and counting a whole epoch ahead, and its memory or disk space;
    - its own server, client and loader: the constants are those of GreenDyGNN's pipeline, whatever the window;
    - building the first cache before step 0, which no policy pays for.

    So the advantage of policies over RapidGNN is smaller here than with the original.

    Args:
        actions: what may be chosen.

    References: GreenDyGNN section VI-A ("RapidGNN").
    """

    name = "epoch_hot"

    def __init__(self, actions: CacheActions) -> None:
        self.first = len(actions)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) an epoch's window for every run."""
        return np.full(len(views.steps), self.first)


# A constant policy: one window and one allocation.


class FixedWindow:
    """Rebuilds every W steps.

    Args:
        actions: what may be chosen.
        window: W, one of the windows of an action.
        biased: index of the preferred other part, None for the uniform allocation.

    Raises:
        PlanError: no action has this window and allocation.

    References: GreenDyGNN section VI-H ("w/o RL": static W = 16).
    """

    name = "fixed"

    def __init__(self, actions: CacheActions, window: int = 16, biased: int | None = None) -> None:
        self.first = actions.action(window, biased)

    def decide(self, view: CacheView) -> CacheDecision:
        """The given action, independent of the view."""
        return CacheDecision(self.name, self.first)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the same action for every run."""
        return np.full(len(views.steps), self.first)


# Uniformly random actions: a baseline for learned policies.


class RandomWindows:
    """Draws actions uniformly; the draw depends on the seed, the part or run, and the step.

    Args:
        actions: what may be chosen.
        seed: of its random numbers.
        part: the part that owns the cache.
    """

    name = "random"

    def __init__(self, actions: CacheActions, *, seed: int = 0, part: int = 0) -> None:
        self._actions = actions
        self._seed = seed
        self._part = part
        self.first = actions.action(16)

    def decide(self, view: CacheView) -> CacheDecision:
        """A random action, independent of the view."""
        return CacheDecision(self.name, self._drawn(self._part, view.step), (), 1.0, False)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) random actions."""
        return np.array([self._drawn(int(run), int(step)) for run, step in zip(views.runs, views.steps, strict=True)])

    def _drawn(self, counter: int, step: int) -> int:
        return int(rng.generator(self._seed, "control/random_windows", counter, step).integers(len(self._actions)))


# A user-defined rule for window and allocation.


Rule = Callable[[Mapping[int, float]], tuple[int, int | None]]


class RuleWindows:
    """Decides by a function: estimated delay of each other part's replies -> a window and a preferred part.

    Args:
        actions: what may be chosen.
        rule: from milliseconds by part to W, one of the windows of an action, and a part; None for the uniform
            allocation.
        part: the part that owns the cache; in the simulator 0 owns it, and 1 to P - 1 are the others.
        first: W of a simulated run's first window, uniform.

    Raises:
        PlanError: (in a decision) the rule returns no valid window and part.
    """

    name = "rule"

    def __init__(self, actions: CacheActions, rule: Rule, *, part: int = 0, first: int = 16) -> None:
        self._actions, self._rule = actions, rule
        self._others = [other for other in range(actions.parts) if other != part]
        self.first = actions.action(first)

    def decide(self, view: CacheView) -> CacheDecision:
        """The result of the rule for the observed delays."""
        return CacheDecision(self.name, self._chosen(view.delays_s))

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the same for every run."""
        return np.array([self._chosen(delays_s) for delays_s in views.delays_s], dtype=np.int64)

    def _chosen(self, delays_s: NDArray[np.float64]) -> int:
        late_ms = dict(zip(self._others, (1e3 * delays_s).tolist(), strict=True))
        try:
            window, preferred = self._rule(late_ms)
        except (TypeError, ValueError) as error:
            raise PlanError(f"a rule must return a window and a part or None, such as (16, None): {error}.") from error
        if preferred is not None and preferred not in self._others:
            raise PlanError(f"a rule preferred part {preferred}: valid are {', '.join(map(str, self._others))}.")
        return self._actions.action(window, None if preferred is None else self._others.index(preferred))


# Threshold rule: the longer the delay of a link, the shorter the window.


LATE_S = (2e-3, 10e-3)  # estimated delays from which a window is half and a quarter as long


class ThresholdWindow:
    """W0 below 2 ms of estimated delay, W0 / 2 from 2 ms on, W0 / 4 from 10 ms on; always in equal shares.

    The largest delay of all owners counts. If W0 or its fraction is not the window of an action, the next shorter one
    is taken, at least 1.

    Args:
        actions: what may be chosen.
        window: W0, 1 or more.

    Raises:
        PlanError: the window is below 1.

    References: GreenDyGNN Eq. 7, whose numbers are unreadable in our copy: ours.
    """

    name = "threshold"

    def __init__(self, actions: CacheActions, window: int = 16) -> None:
        if window < 1:
            raise PlanError(f"window={window}: at least one step is needed between two rebuilds.")
        shorter = [max((w for w in WINDOWS if w <= window // by), default=WINDOWS[0]) for by in (1, 2, 4)]
        self._by_lateness = np.array([actions.action(w) for w in shorter])
        self.first = int(self._by_lateness[0])

    def decide(self, view: CacheView) -> CacheDecision:
        """The action for the largest delay."""
        return CacheDecision(self.name, int(self._chosen(view.delays_s)))

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the same for every run."""
        return self._chosen(views.delays_s)

    def _chosen(self, delays_s: NDArray[np.float64]) -> NDArray[np.int64]:
        return self._by_lateness[np.searchsorted(LATE_S, delays_s.max(axis=-1), side="right")]
