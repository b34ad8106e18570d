"""Captions of the charts of fetched features, and words for policies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dtdg_lab.visualization import numbers

REPLACED = "Parts replace their caches every {every}, and {rate} of remote rows are found there."
CAME_LATE = "{count} of the last {caches} caches came late, so training waited {wait} per step."
MISSED = "Caches held {rate} of remote rows, and training waited {wait} per step for the others."
NO_CACHE = "Every remote row is fetched when needed: {wait} of waiting per step."
FETCHED_AHEAD = "Every remote row is fetched ahead: {wait} of waiting per step."
FIRST_BATCHES = "Batches are fetched, and no cache has been swapped in yet."
ONE_PART = "One part holds every row, so nothing is fetched."
HIT_RATE = "The hit rate is {rate} over the last {steps} steps."
HIT_RATE_CHANGED = "The hit rate is {rate}, against {before} before change {number}."
HIT_RATE_NO_CACHE = "Without a cache, every remote row is fetched."
REPLY_DELAYED = "Part {part} takes {reply} to reply; {added} of it are added."
REPLY_SLOWEST = "Part {part} is slowest to reply: it takes {reply}, and nothing is added."
ALL_CACHED = "Nothing is fetched: all rows were found in caches."
SLOW_LINKS = "{slow} of {links} links are slowed down."
ASKED_MOST = "Part {part} is asked for most rows: {rows} per step."
BYTES_MOVED = "Batches fetched {missed} per step and caches {rebuilt}."
DECISIONS = "{share} of decisions kept W at {window}."
BEST_ACTION = "Part {part} rates W {window} best."
CHOSEN_BY: Mapping[str, str] = MappingProxyType(
    {
        "epoch_hot": "one cache per epoch",
        "fixed": "fixed",
        "threshold": "chosen by a rule",
        "random": "drawn at random",
        "double_dqn": "chosen by the Double DQN",
        "double_dqn_plus": "chosen by our Double DQN",
        "planner": "chosen by the planner",
        "clairvoyant": "chosen with hindsight",
    }
)
IDEAS: Mapping[str, str] = MappingProxyType(
    {
        "dgl-default": "Every remote row is fetched when a batch needs it, and training waits for it.",
        "bgl": "Every remote row is fetched ahead of the step that needs it, and none is kept.",
        "rapidgnn": "Each block is one cache: it holds the rows that an epoch reads most often.",
        "fixed-window": "Each block is one cache: its width is the window W, which you choose.",
        "threshold-window": "Each block is one cache: a rule shortens the window W where replies are late.",
        "greendygnn": "Each block is one cache: its width is the window W, its colours show whose rows it holds.",
        "clairvoyant": "Each block is one cache: its window W is the best for the congestion to come.",
    }
)


def ms_text(seconds: float | None) -> str:
    """Return a time in milliseconds: waiting and replies of all sizes stand in one unit."""
    return numbers.UNKNOWN if seconds is None else f"{numbers.three_digits(1e3 * seconds)} ms"
