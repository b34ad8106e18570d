"""Fetching of remote features: modes with and without a cache, and the actions and policies of the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig  # not in the process that serves: pydantic takes half of its start
    from dtdg_lab.network.emulated_network import EmulatedNetwork
    from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts

WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128)  # GreenDyGNN section IV-C: choices of steps between two rebuilds
BIAS = 0.6  # share of the cache that a biased allocation gives to one owner


@dataclass(frozen=True, slots=True)
class OwnerReply:
    """The reply of one owner.

    Attributes:
        owner: number of its part.
        rows: (k, F) float32, in the requested order.
        rtt_s: seconds from the request to the last byte.
        nbytes: of request and reply.
    """

    owner: int
    rows: NDArray[np.float32]
    rtt_s: float
    nbytes: int


class Fetcher(Protocol):
    """Fetches feature rows from their owners. Not thread-safe."""

    def fetch(self, wanted: Mapping[int, NDArray[np.int64]]) -> dict[int, OwnerReply]:
        """Fetch from all owners concurrently, one RPC each, and return when the last has answered.

        Args:
            wanted: for each owner the keys of the rows, at least one.

        Raises:
            RunFailedError: an owner timed out or refused; the message names it.
        """
        ...

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class CacheActions:
    """The actions at a cache rebuild: a window, and the allocation of the cache to owners.

    With P parts there are 8 P actions: ``action = 8 * b + w`` chooses ``WINDOWS[w]``, and b = 0 the uniform
    allocation, b = i + 1 the one biased to the i-th of the P - 1 other parts, in ascending order.

    Attributes:
        parts: P, at least 2.

    Raises:
        PlanError: fewer than two parts, or no such action.

    References: GreenDyGNN section IV-C1 (P = 4: 32 actions).
    """

    parts: int

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise PlanError(f"parts={self.parts}: a cache of remote features needs at least 2 parts.")

    def __len__(self) -> int:
        return len(WINDOWS) * self.parts

    def window(self, action: int) -> int:
        """W of an action, in steps."""
        return WINDOWS[self._checked(action) % len(WINDOWS)]

    def biased(self, action: int) -> int | None:
        """The index, among the P - 1 other parts, of the prioritised one; None for the uniform allocation."""
        allocation = self._checked(action) // len(WINDOWS)
        return allocation - 1 if allocation else None

    def action(self, window: int, biased: int | None = None) -> int:
        """The action of a window and an allocation.

        Raises:
            PlanError: there is none.
        """
        if window not in WINDOWS or (biased is not None and not 0 <= biased < self.parts - 1):
            raise PlanError(
                f"window={window}, biased={biased}: windows are {', '.join(map(str, WINDOWS))}; biased is None or an "
                f"index from 0 to {self.parts - 2}."
            )
        return WINDOWS.index(window) + len(WINDOWS) * (0 if biased is None else biased + 1)

    def shares(self, action: int) -> NDArray[np.float64]:
        """(P - 1,) shares of the cache for the rows of each other part; they sum to 1."""
        others, biased = self.parts - 1, self.biased(action)
        if biased is None or others == 1:
            return np.full(others, 1 / others)
        shares = np.full(others, (1 - BIAS) / (others - 1))
        shares[biased] = BIAS
        return shares

    def _checked(self, action: int) -> int:
        if not 0 <= action < len(self):
            raise PlanError(f"action {action}: there are {len(self)}, numbered from 0 to {len(self) - 1}.")
        return action


@dataclass(frozen=True, slots=True)
class CacheView:
    """The input of a policy's decision.

    Attributes:
        state: (3 P + 11,) float32; see :mod:`dtdg_lab.systems.feature_cache.policies.env`.
        delays_s: (P - 1,) estimated delay of each other part's replies.
        step: first step of the run that the decision applies to.
        steps_left: remaining steps of the epoch from there.
        previous: the action that applies until then.
        forecast: maps delays (P - 1,) to the predicted seconds per step of every action, (A,); None if unknown.
        rebuilds: maps delays to the predicted seconds of a rebuild for every action.
        now: step of the decision, non-decreasing during a run; -1 if it is ``step``.
        changes: number of change points of links detected so far.
        pending: the next action already decided, if the current window may be ended early; else -1.
        left: remaining steps of the current window.
    """

    state: NDArray[np.float32]
    delays_s: NDArray[np.float64]
    step: int
    steps_left: int
    previous: int
    forecast: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    rebuilds: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    now: int = -1
    changes: int = 0
    pending: int = -1
    left: int = 0

    @property
    def at(self) -> int:
        """Step of the decision."""
        return self.step if self.now < 0 else self.now


@dataclass(frozen=True, slots=True)
class CacheDecision:
    """The decision of a policy.

    Attributes:
        policy: its name.
        action: see :class:`CacheActions`.
        values: estimated value of each action, larger is better; empty if the policy estimates none.
        epsilon: probability of a random choice.
        greedy: whether the action has the highest estimated value.
    """

    policy: str
    action: int
    values: tuple[float, ...] = ()
    epsilon: float = 0.0
    greedy: bool = True


class CachePolicy(Protocol):
    """Chooses the window and the allocation of the next rebuild."""

    name: str

    def decide(self, view: CacheView) -> CacheDecision:
        """The action that applies from ``view.step``."""
        ...


# Modes in which remote features are obtained: fetched for each batch, or through a cache.


# Settings of a pipeline: features on demand, ahead of time, or from a cache that is rebuilt.


MODES = ("on_demand", "prefetch", "epoch_hot", "windows")
AHEAD_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePath:
    """Settings of a :class:`dtdg_lab.systems.feature_cache.pipeline.FeaturePipeline`, changeable between two steps.

    Attributes:
        mode: ``on_demand``: sample and fetch when requested, no cache. ``prefetch``: sample and fetch ahead, no cache.
            ``epoch_hot``: ahead, with one cache per epoch. ``windows``: ahead, with a cache that is rebuilt after every
            window of steps.
        policy: name of the policy, for the records; the mode's if empty.
        window: W of mode ``windows``: of all windows, or of the first if a policy decides.
        biased: part whose rows get 60 % of the cache; None, or a part's own index: equal shares.
        decides: whether the policy decides every window after the first.
        capacity: maximum number of rows in the cache.
        depth: Q, maximum number of batches with features that wait for training.
        ahead: steps beyond the window being built whose batches are sampled already, for policies that look ahead; they
            may extend into the next epoch.
        ahead_bytes: limit of stored sampled batches; beyond it only their keys are kept and they are sampled again.

    Raises:
        ConfigError: a number is out of range.
        UnknownNameError: the mode is unknown.
    """

    mode: str
    policy: str = ""
    window: int = 16
    biased: int | None = None
    decides: bool = False
    capacity: int = 100_000
    depth: int = 4
    ahead: int = 0
    ahead_bytes: int = AHEAD_BYTES

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UnknownNameError("mode of a feature path", self.mode, MODES)
        for name, low in (("window", 1), ("capacity", 1), ("depth", 1), ("ahead", 0), ("ahead_bytes", 0)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name}={getattr(self, name)} of a feature path: {low} or more is allowed.")
        if self.biased is not None and self.biased < 0:
            raise ConfigError(f"biased={self.biased} of a feature path: give a part from 0, or None for no preference.")
        if not self.policy:
            object.__setattr__(self, "policy", self.mode)

    @staticmethod
    def of_policy(policy: str, *, window: int = 16, bias: int = -1, ahead: int = 0, **others: Any) -> FeaturePath:
        """The settings of a cache policy by its name in the catalogue.

        Args:
            policy: on_demand, prefetch, epoch_hot and fixed decide nothing; any other policy decides each window.
            window: W.
            bias: part preferred by ``fixed``; -1 for none.
            ahead: as above; used by policies that decide.
            **others: capacity, depth, ahead_bytes.
        """
        if policy in ("on_demand", "prefetch", "epoch_hot"):
            return FeaturePath(mode=policy, window=window, **others)
        biased = bias if policy == "fixed" and bias >= 0 else None
        decides = policy != "fixed"
        return FeaturePath(
            mode="windows",
            policy=policy,
            window=window,
            biased=biased,
            decides=decides,
            ahead=ahead if decides else 0,
            **others,
        )

    @property
    def runs_ahead(self) -> bool:
        """Whether batches are prepared before they are requested."""
        return self.mode != "on_demand"

    @property
    def caches(self) -> bool:
        """Whether there is a cache."""
        return self.mode in ("epoch_hot", "windows")

    def same_windows(self, other: FeaturePath) -> bool:
        """Whether a cache planned with one of both settings is also valid with the other."""

        def plan(path: FeaturePath) -> tuple[object, ...]:
            return path.mode, path.policy, path.window, path.biased, path.decides, path.capacity

        return plan(self) == plan(other)


# Cache modes and policies by their names in the catalogue: settings of the pipeline, and the policy that decides.


@dataclass(frozen=True)
class PathSettings:
    """Arguments of a cache mode, for one part.

    Attributes:
        config: of the run.
        part: its index.
        epoch_steps: steps of an epoch.
        costs: costs of this run's steps, as far as known; called by policies that use a cost model.
        actions: what a policy of windows chooses from.
    """

    config: RunConfig
    part: int
    epoch_steps: int
    costs: Callable[[], CacheCosts]
    actions: CacheActions = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", CacheActions(self.config.parts))

    @cached_property
    def links(self) -> EmulatedNetwork:
        """State of the links over time, for a policy that knows it; it is made again when their settings change."""
        from dtdg_lab.network.emulated_network import EmulatedNetwork

        return EmulatedNetwork(self.config)

    @property
    def knows_links(self) -> bool:
        """Whether the policy has asked for the links."""
        return "links" in vars(self)

    def path(self, ahead: int = 0) -> FeaturePath:
        """The pipeline settings of the config's policy."""
        of = self.config
        sizes = {"capacity": of["cache_rows"], "depth": of["queue_depth"]}
        window, bias = of["cache_window"], of["cache_bias"]
        return FeaturePath.of_policy(of["cache_policy"], window=window, bias=bias, ahead=ahead, **sizes)


LONGEST = 32  # limit of windows planned live, so that changes are noticed soon

PathAndPolicy = tuple[FeaturePath, CachePolicy | None]


class CacheRule(Protocol):
    """A function that makes a cache policy; one of a user's own is added by ``lab.register(rule, "cache policy")``."""

    def __call__(self, of: PathSettings) -> PathAndPolicy:
        """Return the settings of the pipeline, ``of.path()``, and the policy; None where nothing is decided.

        Raises:
            ConfigError: the policy cannot decide in this run.
        """


def no_policy(of: PathSettings) -> PathAndPolicy:
    """On demand, ahead without a cache, or with a cache for each epoch or every W steps: nothing is decided."""
    return of.path(), None


def threshold(of: PathSettings) -> PathAndPolicy:
    """W by a threshold rule."""
    from dtdg_lab.systems.feature_cache.policies.base import ThresholdWindow

    return of.path(), ThresholdWindow(of.actions, of.config["cache_window"])


def random(of: PathSettings) -> PathAndPolicy:
    """A random action."""
    from dtdg_lab.systems.feature_cache.policies.base import RandomWindows

    return of.path(), RandomWindows(of.actions, seed=of.config.seed, part=of.part)


def learned(of: PathSettings) -> PathAndPolicy:
    """The best action by a trained network: ``double_dqn``, or ``double_dqn_plus`` with rewards per step.

    Raises:
        ConfigError: there is no trained policy for this number of parts, or the file is not a policy.
    """
    from dtdg_lab.systems.feature_cache.policies.base import learned_policy

    return of.path(), learned_policy(of.config.parts, of.config["cache_policy"], of.config["policy_file"])


def planner(of: PathSettings) -> PathAndPolicy:
    """The cheapest action by a forecast."""
    from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner

    return of.path(ahead=2 * LONGEST), CachePlanner(of.actions, of.costs(), longest=LONGEST)


def clairvoyant(of: PathSettings) -> PathAndPolicy:
    """The optimal action of the cost model for known future congestion."""
    from dtdg_lab.systems.feature_cache.policy_inputs import ForeseenWindows

    return of.path(), ForeseenWindows(of.links, of.costs(), part=of.part, epoch_steps=of.epoch_steps)
