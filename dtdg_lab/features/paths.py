"""The ways to come by remote features, by their names in the catalogue: what a pipeline does, and what decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.control.link_trace import LinkPattern
from dtdg_lab.core.feature_path import CacheActions, CachePolicy
from dtdg_lab.features.path import FeaturePath


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """What a way is made of, for one part.

    Attributes:
        part: its number.
        parts: P, at least 2.
        window: W, or the first one.
        bias: part that policy fixed prefers; -1 for none.
        capacity: rows of the cache.
        depth: Q, batches with features that may wait.
        epoch_steps: of an epoch.
        seed: of the run.
        policy_file: of a trained policy; empty for the shipped one.
        costs: what steps of this run cost, as far as is known; called where a policy thinks by them.
        links: how slow they will be, for a policy that knows it.
    """

    part: int
    parts: int
    window: int
    bias: int
    capacity: int
    depth: int
    epoch_steps: int
    seed: int
    policy_file: str
    costs: Callable[[], CacheCosts]
    links: LinkPattern

    def path(self, policy: str, ahead: int = 0) -> FeaturePath:
        """The path of a policy."""
        return FeaturePath.of_policy(
            policy, window=self.window, bias=self.bias, ahead=ahead, capacity=self.capacity, depth=self.depth
        )


LONGEST = 32  # steps that a window planned live may last: what changes is seen before long

Way = tuple[FeaturePath, CachePolicy | None]


def on_demand(of: PathSettings) -> Way:
    """Sampled and fetched in the step that needs it."""
    return of.path("on_demand"), None


def prefetch(of: PathSettings) -> Way:
    """Sampled and fetched ahead."""
    return of.path("prefetch"), None


def epoch_hot(of: PathSettings) -> Way:
    """One cache for each epoch."""
    return of.path("epoch_hot"), None


def fixed(of: PathSettings) -> Way:
    """A cache for every W steps."""
    return of.path("fixed"), None


def threshold(of: PathSettings) -> Way:
    """W by a rule."""
    from dtdg_lab.control.cache_threshold import ThresholdWindow

    return of.path("threshold"), ThresholdWindow(CacheActions(of.parts), of.window)


def random(of: PathSettings) -> Way:
    """Any action."""
    from dtdg_lab.control.cache_random import RandomWindows

    return of.path("random"), RandomWindows(CacheActions(of.parts), seed=of.seed, part=of.part)


def double_dqn(of: PathSettings) -> Way:
    """What a trained network thinks best.

    Raises:
        ConfigError: there is no trained policy for so many parts, or the file is not one.
    """
    return _learned("double_dqn", of)


def double_dqn_plus(of: PathSettings) -> Way:
    """What a network thinks best that was rewarded by steps.

    Raises:
        ConfigError: there is no trained policy for so many parts, or the file is not one.
    """
    return _learned("double_dqn_plus", of)


def _learned(name: str, of: PathSettings) -> Way:
    from dtdg_lab.control.cache_dqn import learned_policy

    return of.path(name), learned_policy(of.parts, name, of.policy_file)


def planner(of: PathSettings) -> Way:
    """What is forecast to be cheapest."""
    from dtdg_lab.control.cache_planner import CachePlanner

    return of.path("planner", ahead=2 * LONGEST), CachePlanner(CacheActions(of.parts), of.costs(), longest=LONGEST)


def clairvoyant(of: PathSettings) -> Way:
    """What is optimal in the cost model for the congestion to come."""
    from dtdg_lab.features.foreseen import ForeseenWindows

    foreseen = ForeseenWindows(of.links, of.costs(), part=of.part, epoch_steps=of.epoch_steps)
    return of.path("clairvoyant"), foreseen
