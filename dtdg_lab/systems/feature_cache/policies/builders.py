"""Builders of cache policies by their names in the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.policies.baselines import RandomWindows, ThresholdWindow
from dtdg_lab.systems.feature_cache.policies.clairvoyant import ForeseenWindows
from dtdg_lab.systems.feature_cache.policies.interface import CachePolicy
from dtdg_lab.systems.feature_cache.policies.learned import learned_policy
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig  # not in the process that serves: pydantic takes half of its start
    from dtdg_lab.network.emulated_network import EmulatedNetwork
    from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts


@dataclass(frozen=True)
class PathSettings:
    """Arguments of a cache mode, for one part.

    Attributes:
        config: config of the run.
        part: index of the part.
        epoch_steps: steps of an epoch.
        costs: returns the known costs of this run's steps, for policies that use a cost model.
        actions: the actions to choose from.
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
        """The state of the links over time, for policies that know it; the emulated network of the config."""
        from dtdg_lab.network.emulated_network import EmulatedNetwork

        return EmulatedNetwork(self.config)

    @property
    def knows_links(self) -> bool:
        """True if the policy has used the links."""
        return "links" in vars(self)

    def path(self, ahead: int = 0) -> FeaturePath:
        """Return the pipeline settings of the config's policy."""
        settings = self.config
        sizes = {"capacity": settings["cache_rows"], "depth": settings["queue_depth"]}
        window, bias = settings["cache_window"], settings["cache_bias"]
        return FeaturePath.of_policy(settings["cache_policy"], window=window, bias=bias, ahead=ahead, **sizes)


LONGEST = 32  # limit of windows planned live, so that changes are noticed soon
PathAndPolicy = tuple[FeaturePath, CachePolicy | None]


class CacheRule(Protocol):
    """A function that builds a cache policy; register your own by ``lab.register(rule, "cache policy")``."""

    def __call__(self, settings: PathSettings) -> PathAndPolicy:
        """Return the pipeline's settings, from ``settings.path()``, and the policy; None if nothing is decided.

        Raises:
            ConfigError: the policy cannot decide in this run.
        """


def no_policy(settings: PathSettings) -> PathAndPolicy:
    """Build a path without decisions: on demand, ahead without a cache, or with fixed windows."""
    return settings.path(), None


def threshold(settings: PathSettings) -> PathAndPolicy:
    """Build a threshold rule for W."""
    return settings.path(), ThresholdWindow(settings.actions, settings.config["cache_window"])


def random(settings: PathSettings) -> PathAndPolicy:
    """Build a policy of random actions."""
    return settings.path(), RandomWindows(settings.actions, seed=settings.config.seed, part=settings.part)


def learned(settings: PathSettings) -> PathAndPolicy:
    """Build a trained network: ``double_dqn``, or ``double_dqn_plus`` with rewards per step.

    Raises:
        ConfigError: there is no trained policy for this number of parts, or the file is not a policy.
    """
    return settings.path(), learned_policy(
        settings.config.parts, settings.config["cache_policy"], settings.config["policy_file"]
    )


def planner(settings: PathSettings) -> PathAndPolicy:
    """Build a planner, which takes the cheapest action by a forecast."""
    return settings.path(ahead=2 * LONGEST), CachePlanner(settings.actions, settings.costs(), longest=LONGEST)


def clairvoyant(settings: PathSettings) -> PathAndPolicy:
    """Build a policy that is optimal in the cost model for known future congestion."""
    return settings.path(), ForeseenWindows(
        settings.links, settings.costs(), part=settings.part, epoch_steps=settings.epoch_steps
    )
