"""Events of fetched features: the feature path of a run, and the congestion of its links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.records.events import Event

CACHELESS = ("on_demand", "prefetch")
POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "on_demand": "sampled and fetched in the step, without a cache",
        "prefetch": "sampled and fetched ahead, without a cache",
        "epoch_hot": "fetched ahead, with a cache of the epoch's hottest rows",
        "fixed": "fetched ahead, with a cache that is rebuilt at a fixed pace",
        "threshold": "fetched ahead, with a cache rebuilt faster the later replies are",
        "random": "fetched ahead, with a cache of random windows",
        "double_dqn": "fetched ahead, with a cache whose window and allocation a Double DQN chooses",
        "double_dqn_plus": "fetched ahead, with a cache whose window and allocation our Double DQN chooses",
        "planner": "fetched ahead, with a cache whose window and allocation are planned from the batches to come",
        "clairvoyant": "fetched ahead, with a cache chosen by the plan that is best in the cost model, delays known",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFacts(Event):
    """The feature path of a run whose parts request features from each other.

    Attributes:
        parts: P.
        rows: number of keys: nodes, times snapshots if features change over time.
        row_bytes: bytes of a row.
        remote_share: share of the first layers' inputs that other parts own; None if unknown.
        steps_per_epoch: steps of an epoch.
        policy: cache policy, a key of ``POLICIES``.
        window: initial steps between two rebuilds; 0 if the policy has none.
        cache_bias: the setting of this name.
        cache_rows: maximum number of rows in a cache.
        batch_size: seed nodes of a part and step.
        batch_length: consecutive snapshots of a batch.
        fanouts: maximum number of sampled neighbours, layer by layer.
    """

    kind: ClassVar[str] = "features"
    about: ClassVar[str] = "fetched features"
    ended: ClassVar[str] = "features are local from here on"
    parts: int
    rows: int
    row_bytes: int
    remote_share: float | None
    steps_per_epoch: int
    policy: str
    window: int = 0
    cache_bias: int = -1
    cache_rows: int = 0
    batch_size: int
    batch_length: int
    fanouts: str

    @property
    def cached(self) -> bool:
        """True if the policy keeps a cache."""
        return self.policy not in CACHELESS

    def write(self) -> dict[str, Any]:
        """Return the data as recorded, with policy and window also under the names of their settings."""
        data = Event.write(self)
        later = {name: data.pop(name) for name in ("cache_bias", "cache_rows", "batch_size", "batch_length", "fanouts")}
        return {**data, "cache_policy": self.policy, "cache_window": self.window, **later}

    @classmethod
    def entries(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the entries with fan-outs as text."""
        fanouts = data["fanouts"]
        return {**data, "fanouts": fanouts if isinstance(fanouts, str) else " ".join(map(str, fanouts))}

    def check(self) -> None:
        """Raise a DataError if there are no parts, rows or steps."""
        if self.parts < 1 or self.row_bytes < 1 or self.steps_per_epoch < 1:
            raise DataError(
                f"an event has features of {self.parts} parts, {self.row_bytes} bytes a row and {self.steps_per_epoch} "
                "steps an epoch, but each must be at least 1: was it recorded by another version?"
            )

    @property
    def words(self) -> str:
        """The feature path in a few sentences, for the table of events."""
        length = f" in each of {self.batch_length} snapshots" if self.batch_length > 1 else ""
        text = (
            f"{self.parts} part{'s' * (self.parts > 1)} with batches of {self.batch_size:,} seeds{length}, at most "
            f"{' and '.join(self.fanouts.split())} neighbours by layer. Features are "
            f"{POLICIES.get(self.policy, f'fetched by {self.policy}')}"
        )
        if self.cached:
            size_text = format_bytes(self.cache_rows * self.row_bytes)
            text += f"; a part holds at most {self.cache_rows:,} rows ({size_text})"
        if self.remote_share is not None:
            text += f". {100 * self.remote_share:.0f}% of what a batch reads belongs to other parts"
        return text + "."


@dataclass(frozen=True, slots=True)
class Congestion(Event):
    """The state of the links from a step on.

    Attributes:
        pattern: name of the congestion pattern.
        delay_ms: (P, P) milliseconds added to replies, by owner, then by requester.
        mbit: (P, P) rate of replies, likewise; None without a limit.
        by: ``emulated`` by the replying rank, or ``netem`` by the kernel.
    """

    kind: ClassVar[str] = "congestion"
    about: ClassVar[str] = "congestion"
    pattern: str
    delay_ms: tuple[tuple[float, ...], ...]
    mbit: tuple[tuple[float | None, ...], ...]
    by: str = "emulated"

    def check(self) -> None:
        """Raise a DataError if delays and rates are not (P, P)."""
        lengths = {len(row) for row in (*self.delay_ms, *self.mbit)}
        if lengths - {len(self.delay_ms)} or len(self.mbit) != len(self.delay_ms):
            raise DataError(
                "an event has congestion whose links are not a square of parts: was it recorded by another version?"
            )

    @property
    def parts(self) -> int:
        """Number of parts P."""
        return len(self.delay_ms)

    @property
    def owner_delays_ms(self) -> tuple[float, ...]:
        """(P,) delay of each owner: the largest of its links."""
        return tuple(
            max((delay for requester, delay in enumerate(row) if requester != owner), default=0.0)
            for owner, row in enumerate(self.delay_ms)
        )

    @property
    def owner_mbit(self) -> tuple[float | None, ...]:
        """(P,) rate of each owner: the lowest of its links; None if none is limited."""
        return tuple(
            min((rate for requester, rate in enumerate(row) if requester != owner and rate is not None), default=None)
            for owner, row in enumerate(self.mbit)
        )

    @property
    def slow_links(self) -> int:
        """Number of delayed or throttled links."""
        return sum(
            self.delay_ms[owner][requester] > 0 or self.mbit[owner][requester] is not None
            for owner in range(self.parts)
            for requester in range(self.parts)
            if owner != requester
        )

    @property
    def words(self) -> str:
        """Text such as ``one_slow: part 1 +20 ms, part 2 at 25 Mbit/s``."""
        texts = []
        for owner, (delay, rate) in enumerate(zip(self.owner_delays_ms, self.owner_mbit, strict=True)):
            if delay or rate is not None:
                late = f" +{delay:.3g} ms" if delay else ""
                texts.append(f"part {owner}{late}" + ("" if rate is None else f" at {rate:.4g} Mbit/s"))
        return f"{self.pattern}: {', '.join(texts) or 'nothing is added to any link'}"
