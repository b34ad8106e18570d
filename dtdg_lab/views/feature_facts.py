"""What pictures of fetched features are made of: the facts of an event ``features``, and what they are in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import percent

CACHELESS = ("on_demand", "prefetch")
POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "on_demand": "sampled and fetched in the step, without a cache",
        "prefetch": "sampled and fetched ahead, without a cache",
        "epoch_hot": "fetched ahead, with a cache of the epoch's hottest rows",
        "fixed": "fetched ahead, with a cache that is rebuilt at a fixed pace",
        "threshold": "fetched ahead, with a cache rebuilt faster the later replies are",
        "random": "fetched ahead, with a cache whose window is drawn",
        "double_dqn": "fetched ahead, with a cache whose window and allocation a Double DQN chooses",
        "planner": "fetched ahead, with a cache whose window and allocation are planned from the batches to come",
        "clairvoyant": "fetched ahead, with a cache chosen by the plan that is best in the cost model, delays known",
    }
)


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """A run whose parts ask each other for features.

    Attributes:
        parts: P.
        rows: keys that can be asked for: vertices, times snapshots where features change.
        row_bytes: of one row.
        remote_share: of the first layers' inputs, those that another part owns; None where it was not told.
        policy: of the cache, a key of ``POLICIES``.
        window: steps between two rebuilds that the policy begins with; 0 where it has none.
        cache_rows: rows that a cache holds at most.
        steps_per_epoch: steps of an epoch.
        batch_size: seed vertices of a part and step.
        batch_length: consecutive snapshots of a batch.
        fanouts: neighbours drawn at most, layer by layer.
    """

    parts: int
    rows: int
    row_bytes: int
    remote_share: float | None
    policy: str
    window: int
    cache_rows: int
    steps_per_epoch: int
    batch_size: int
    batch_length: int
    fanouts: str

    @property
    def cached(self) -> bool:
        """Whether the policy keeps a cache."""
        return self.policy not in CACHELESS


def feature_facts(data: Mapping[str, Any]) -> FeatureFacts:
    """The facts in the data of an event ``features``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        fanouts = data["fanouts"]
        told = data.get("remote_share")
        facts = FeatureFacts(
            parts=int(data["parts"]), rows=int(data["rows"]), row_bytes=int(data["row_bytes"]),
            remote_share=None if told is None else float(told), policy=str(data["policy"]),
            window=int(data["window"] or 0), cache_rows=int(data["cache_rows"] or 0),
            steps_per_epoch=int(data["steps_per_epoch"]), batch_size=int(data["batch_size"]),
            batch_length=int(data["batch_length"]),
            fanouts=fanouts if isinstance(fanouts, str) else " ".join(map(str, fanouts)),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"fetched features cannot be drawn from what is told of them ({error!r}): were they recorded by another "
            "version?"
        ) from error
    if facts.parts < 1 or facts.row_bytes < 1 or facts.steps_per_epoch < 1:
        raise DataError(
            f"an event told features of {facts.parts} parts, {facts.row_bytes} bytes a row and "
            f"{facts.steps_per_epoch} steps an epoch, all of which are at least 1: was it recorded by another version?"
        )
    return facts


def features_left(data: Mapping[str, Any]) -> bool:
    """Whether an event ``features`` says that the run went on with features that are at hand."""
    return "layout" in data and data["layout"] is None


def feature_words(facts: FeatureFacts) -> str:
    """The feature path in a few sentences, as a row of a table of events."""
    length = f" in each of {facts.batch_length} snapshots" if facts.batch_length > 1 else ""
    text = (
        f"{facts.parts} part{'s' * (facts.parts > 1)} with batches of {facts.batch_size:,} seeds{length}, at most "
        f"{' and '.join(facts.fanouts.split())} neighbours by layer. Features are "
        f"{POLICIES.get(facts.policy, f'fetched by {facts.policy}')}"
    )
    if facts.cached:
        held = format_bytes(facts.cache_rows * facts.row_bytes)
        text += f"; a part holds at most {facts.cache_rows:,} rows ({held})"
    if facts.remote_share is not None:
        text += f". {percent(facts.remote_share)} of what a batch reads belongs to other parts"
    return text + "."
