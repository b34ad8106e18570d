"""Modes in which remote features are obtained: fetched for each batch, or through a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.systems.feature_cache.actions import CacheActions, CachePolicy
from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts

if TYPE_CHECKING:
    from dtdg_lab.network.emulated_network import EmulatedNetwork


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


@dataclass(frozen=True, slots=True)
class PathSettings:
    """Arguments of a cache mode, for one part.

    Attributes:
        config: of the run.
        part: its index.
        epoch_steps: steps of an epoch.
        costs: costs of this run's steps, as far as known; called by policies that use a cost model.
        actions: what a policy of windows chooses from.
        links: state of the links over time, for a policy that knows it.
    """

    config: RunConfig
    part: int
    epoch_steps: int
    costs: Callable[[], CacheCosts]
    actions: CacheActions = field(init=False)
    links: EmulatedNetwork = field(init=False)

    def __post_init__(self) -> None:
        from dtdg_lab.network.emulated_network import EmulatedNetwork

        object.__setattr__(self, "actions", CacheActions(self.config.parts))
        object.__setattr__(self, "links", EmulatedNetwork(self.config))

    def path(self, ahead: int = 0) -> FeaturePath:
        """The pipeline settings of the config's policy."""
        of = self.config
        sizes = {"capacity": of["cache_rows"], "depth": of["queue_depth"]}
        window, bias = of["cache_window"], of["cache_bias"]
        return FeaturePath.of_policy(of["cache_policy"], window=window, bias=bias, ahead=ahead, **sizes)


LONGEST = 32  # limit of windows planned live, so that changes are noticed soon

PathAndPolicy = tuple[FeaturePath, CachePolicy | None]


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
