"""Settings of a feature pipeline: on demand, ahead of time, or through a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

AHEAD_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePath:
    """Settings of a feature pipeline, which may change between two steps.

    Attributes:
        mode: ``on_demand``: sample and fetch when requested, no cache. ``prefetch``: sample and fetch ahead, no cache.
            ``epoch_hot``: ahead, with one cache per epoch. ``windows``: ahead, with a cache that is rebuilt after every
            window of steps.
        policy: name of the policy for the records; the mode's name if empty.
        window: W of mode ``windows``: of all windows, or of the first if a policy decides.
        biased: part whose rows get 60 % of the cache; None or the part's own index for equal shares.
        decides: True if the policy decides every window after the first.
        capacity: maximum number of rows in the cache.
        depth: Q, maximum number of batches with features that wait for training.
        ahead: number of steps beyond the window being built whose batches are already sampled, for policies that look
            ahead; may extend into the next epoch.
        ahead_bytes: limit of stored sampled batches; beyond it only keys are stored, and batches are sampled again.
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
        if not self.policy:
            object.__setattr__(self, "policy", self.mode)

    @staticmethod
    def of_policy(policy: str, *, window: int = 16, bias: int = -1, ahead: int = 0, **sizes: Any) -> FeaturePath:
        """Return the settings of a cache policy by its name in the catalogue.

        Args:
            policy: on_demand, prefetch, epoch_hot and fixed decide nothing; any other policy decides each window.
            window: W.
            bias: part preferred by ``fixed``; -1 for none.
            ahead: steps to sample ahead; used by policies that decide.
            **sizes: capacity, depth, ahead_bytes.
        """
        if policy in ("on_demand", "prefetch", "epoch_hot"):
            return FeaturePath(mode=policy, window=window, **sizes)
        biased = bias if policy == "fixed" and bias >= 0 else None
        decides = policy != "fixed"
        return FeaturePath(
            mode="windows",
            policy=policy,
            window=window,
            biased=biased,
            decides=decides,
            ahead=ahead if decides else 0,
            **sizes,
        )

    @property
    def runs_ahead(self) -> bool:
        """True if batches are prepared before they are requested."""
        return self.mode != "on_demand"

    @property
    def caches(self) -> bool:
        """True if there is a cache."""
        return self.mode in ("epoch_hot", "windows")

    def same_windows(self, other: FeaturePath) -> bool:
        """Return True if a cache planned under one of the settings is valid under the other."""

        def plan(path: FeaturePath) -> tuple[object, ...]:
            return path.mode, path.policy, path.window, path.biased, path.decides, path.capacity

        return plan(self) == plan(other)
