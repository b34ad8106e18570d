"""The catalogue's ways to come by remote features, and patterns of congestion."""

from __future__ import annotations

from dtdg_lab.core.entry import Entry

_CACHING = (
    "cache_policy", "cache_window", "cache_bias", "cache_rows", "queue_depth", "fetch_timeout_s", "policy_file",
)  # fmt: skip


def _path(name: str, target: str, summary: str, source: str) -> Entry:
    # all name the same options: the policy changes in the middle of a run, and one ignores what it does not read
    return Entry(
        name=name, room="features", target=f"dtdg_lab.features.{target}", summary=summary, source=source,
        options=_CACHING,
    )  # fmt: skip


FEATURE_PATHS: tuple[Entry, ...] = (
    _path(
        "on_demand", "paths:on_demand", "Sampling and fetching take turns with training; nothing is kept.",
        "GreenDyGNN section VI-A, baseline Default DGL",
    ),
    _path(
        "prefetch", "paths:prefetch", "Batches are sampled and fetched ahead of training; nothing is kept.",
        "GreenDyGNN section VI-A, baseline BGL (Liu et al. 2023)",
    ),
    _path(
        "epoch_hot", "paths:epoch_hot", "A cache of the rows that an epoch will ask for most, rebuilt once an epoch.",
        "GreenDyGNN section VI-A, baseline RapidGNN (2025)",
    ),
    _path(
        "fixed", "paths:fixed", "A cache rebuilt every W steps for what the next W will ask for.",
        "GreenDyGNN section VI-H, the ablation without RL",
    ),
    _path(
        "threshold", "paths:threshold", "W by a rule: shorter where a link is found slow.",
        "GreenDyGNN equation 7, whose text is lost; the thresholds are ours",
    ),
    _path(
        "random", "paths:random", "Any window and allocation, as likely as another.",
        "ours, for comparison",
    ),
    _path(
        "double_dqn", "paths:double_dqn", "W and allocation by a Double DQN trained in the calibrated simulator.",
        "GreenDyGNN section IV-C",
    ),
    _path(
        "double_dqn_plus", "paths:double_dqn_plus", "As double_dqn, rewarded by the steps that a decision holds for, "
        "and with what was seen before.", "ours, after GreenDyGNN section IV-C",
    ),
    _path(
        "planner", "paths:planner", "The window and allocation that the cost model forecasts to be cheapest, for what "
        "the next batches ask for and the delays found.", "ours: model-predictive control",
    ),
    _path(
        "clairvoyant", "paths:clairvoyant", "Windows that are optimal in the cost model, congestion known.",
        "ours: dynamic programming over rebuilds",
    ),
)  # fmt: skip

_CONGESTING = (
    "congestion", "links", "congestion_ms", "congestion_mbit", "congestion_from", "congestion_cycle",
    "congestion_table", "congestion_file", "congestion_by",
)  # fmt: skip


def _pattern(name: str, attribute: str, summary: str, source: str) -> Entry:
    return Entry(
        name=name, room="congestion", target=f"dtdg_lab.congestion.{attribute}", summary=summary, source=source,
        options=_CONGESTING,
    )  # fmt: skip


_CASES = "GreenDyGNN section IV-C2, archetypes (their shapes are ours)"

CONGESTIONS: tuple[Entry, ...] = (
    _pattern("none", "patterns:none", "No link is slow, but those set by hand.", _CASES),
    _pattern("one_slow", "patterns:one_slow", "One owner's links are slow for epochs on end.", _CASES),
    _pattern("one_fast", "patterns:one_fast", "One owner's links are slow in bursts shorter than an epoch.", _CASES),
    _pattern("two_symmetric", "patterns:two_symmetric", "Two owners' links are slow alike.", _CASES),
    _pattern("two_asymmetric", "patterns:two_asymmetric", "Two owners' links are slow, one half as much.", _CASES),
    _pattern("oscillating", "patterns:oscillating", "Slowness comes and goes, and moves between owners.", _CASES),
    _pattern("rotating", "patterns:rotating", "One owner after another is slow.", "ours"),
    _pattern("markov", "patterns:markov", "Each owner becomes slow and clean again by itself, at random.", "ours"),
    _pattern("all_slow", "patterns:all_slow", "All owners' links are slow for epochs on end.", "ours"),
    _pattern(
        "schedule", "patterns:schedule", "Clean epochs, then a cycle of epochs with one or two slow owners by a table.",
        "GreenDyGNN section VI-A",
    ),
    _pattern("recorded", "patterns:recorded", "What a trace says, such as one recorded in another run.", "ours"),
)  # fmt: skip
