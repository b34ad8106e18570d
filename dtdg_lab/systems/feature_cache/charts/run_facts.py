"""Facts of a run that fetches features: parts, policy and steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.config import catalogue
from dtdg_lab.records.rows import Rows
from dtdg_lab.systems.feature_cache.events import CACHELESS, FeatureFacts

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables


STACKED_PARTS = 8  # parts up to which caches are drawn by whose rows they hold
RECENT = 100  # steps of numbers "now"


def fetches_features(tables: RunTables) -> bool:
    """Return whether the run's system fetches features of other parts."""
    return "features" in catalogue.system(tables.system).parts


def part_count(tables: RunTables) -> int:
    """Return P."""
    facts = tables.event(FeatureFacts)
    return tables.config.parts if facts is None else facts.parts


def policy_in_use(tables: RunTables) -> str:
    """Return the cache policy in use; before the first step, the one that is set."""
    facts = tables.event(FeatureFacts)
    return str(tables.setting("cache_policy")) if facts is None else facts.policy


def has_cache(tables: RunTables) -> bool:
    """Return whether the policy in use keeps caches."""
    return policy_in_use(tables) not in CACHELESS


def first_step(tables: RunTables) -> int:
    """Return the step from which numbers of parts mean the present parts."""

    def find() -> int:
        plans, since = tables.typed(FeatureFacts), 0
        for (record, facts), (_, previous) in zip(plans[:0:-1], plans[-2::-1], strict=True):
            if facts is None or previous is None or (facts.parts, facts.rows) != (previous.parts, previous.rows):
                since = int(record["step"] or 0)
                break
        return since

    return tables.once("features since", find)


def recent_rows(tables: RunTables, table: str, steps: int | None = None) -> Rows:
    """Return the exact rows of a table of the present parts, of the newest steps or all in memory."""
    rows, first = tables.rows(table), first_step(tables)
    if steps is not None:
        first = max(first, newest_step(tables) + 1 - steps)
    return rows.where(rows["step"] >= first)


def newest_step(tables: RunTables) -> int:
    """Return the newest step that any rank has done; -1 before there is one."""
    return max(tables.steps.values(), default=-1)
