"""How a part's features come to its batches: on demand, ahead of time, or out of a cache that is rebuilt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError

MODES = ("on_demand", "prefetch", "epoch_hot", "windows")
AHEAD_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePath:
    """Settings of a :class:`dtdg_lab.features.pipeline.FeaturePipeline`; all of them may change between two steps.

    Attributes:
        mode: ``on_demand``: sampled and fetched when asked for, no cache. ``prefetch``: sampled and fetched ahead, no
            cache. ``epoch_hot``: ahead, with one cache for each epoch. ``windows``: ahead, with a cache that is
            rebuilt after every window of steps.
        policy: name of what decides, for the records; the mode's where it is empty.
        window: W of mode ``windows``: of all windows, or of the first where a policy decides.
        biased: part whose rows get 60 % of the cache; None, or a part's own number: all others get as much.
        decides: whether the policy is asked for every window after the first.
        capacity: most rows in the cache.
        depth: Q, batches with their features that may wait for training.
        ahead: steps past the window being built whose batches are sampled already, for policies that look ahead; they
            reach over the end of an epoch.
        ahead_bytes: sampled batches that are held; beyond it only their keys are kept and they are sampled again.

    Raises:
        ConfigError: a number is out of its range.
        UnknownNameError: there is no such mode.
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
        """The path of a cache policy by its name in the catalogue.

        Args:
            policy: on_demand, prefetch, epoch_hot and fixed decide nothing; any other name is asked for each window.
            window: W.
            bias: part preferred by ``fixed``; -1 for none.
            ahead: as above; used by policies that are asked.
            **others: capacity, depth, ahead_bytes.
        """
        if policy in ("on_demand", "prefetch", "epoch_hot"):
            return FeaturePath(mode=policy, window=window, **others)
        biased = bias if policy == "fixed" and bias >= 0 else None
        decides = policy != "fixed"
        return FeaturePath(
            mode="windows", policy=policy, window=window, biased=biased, decides=decides,
            ahead=ahead if decides else 0, **others,
        )  # fmt: skip

    @property
    def runs_ahead(self) -> bool:
        """Whether batches are prepared before they are asked for."""
        return self.mode != "on_demand"

    @property
    def caches(self) -> bool:
        """Whether there is a cache."""
        return self.mode in ("epoch_hot", "windows")

    def same_windows(self, other: FeaturePath) -> bool:
        """Whether a cache planned under one is also planned under the other."""

        def plan(path: FeaturePath) -> tuple[object, ...]:
            return path.mode, path.policy, path.window, path.biased, path.decides, path.capacity

        return plan(self) == plan(other)
