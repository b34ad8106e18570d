"""Record tables: what each rank writes, one narrow table per kind of record.

A rank writes lines of JSON, each ``{"v", "rank", "attempt", "seq", "table", "columns", "rows"}``: rows of one table
with the names of their columns, so that readers keep unknown columns. Rank and attempt (how many times the
run was started, from 1) hold for all rows of a line. Times ending in ``_ns`` are nanoseconds since 1970-01-01.
``core/records.toml`` has the shared tables, and ``family.toml`` of a family of systems its own.

The names that link metrics have in an evaluation's row, with their sample sizes and intervals, come last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dtdg_lab.core.catalogue import DECLARED


def rows_of(line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a line, by the names of their columns."""
    return (dict(zip(line["columns"], row, strict=True)) for row in line["rows"])


SCHEMA = 3  # 1 and 2, with other names of events and columns, are not read any more

MAX_CONTROL_VERSION = 2**24 - 1  # sent in a float32 slot, which is exact up to here

PHASES = ("batch", "transfer", "compute", "wait", "communicate", "update", "control")
BETWEEN_STEPS = ("evaluate", "checkpoint", "rebuild")  # rows of `phases` that belong to no step's sum

# table -> its columns, and column -> what it means; each family of systems adds its own
TABLES: dict[str, tuple[str, ...]] = {
    table: tuple(columns) for declared in DECLARED.values() for table, columns in declared.get("tables", {}).items()
}
MEANINGS: dict[str, str] = {}
for _declared in DECLARED.values():
    for _column, _meaning in _declared.get("meanings", {}).items():
        MEANINGS[_column] = f"{MEANINGS[_column]}; {_meaning}" if _column in MEANINGS else _meaning
STEPS = TABLES["steps"]


# Sample size and confidence intervals of link metrics: their names in the metrics of an evaluation.


PAIRS, RANKED = "pairs", "ranked"  # node pairs scored in the split; positives that were ranked
LOW, HIGH = "_low", "_high"  # suffixes of a metric's bootstrap interval
FEW_PAIRS = 100  # below it a link metric is unreliable


def is_score(name: str) -> bool:
    """Whether a metric is a score, not a sample size or an interval bound."""
    return name not in (PAIRS, RANKED) and not name.endswith((LOW, HIGH))


def interval_of(metrics: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """The 95 % interval of a metric; None where there is none."""
    low, high = metrics.get(name + LOW), metrics.get(name + HIGH)
    return None if low is None or high is None else (float(low), float(high))


def few_pairs(metrics: Mapping[str, Any] | None, part: str | None) -> str:
    """A warning if a split's link metrics rest on fewer than ``FEW_PAIRS`` pairs; empty otherwise."""
    pairs = (metrics or {}).get(PAIRS)
    if pairs is None or pairs >= FEW_PAIRS:
        return ""
    plural = "pair" if pairs == 1 else "pairs"
    return (
        f"The link metrics of the {part} split rest on {pairs:.0f} {plural}, fewer than {FEW_PAIRS}, and are "
        "unreliable. Raise link_share or negatives, use longer intervals, or choose another protocol."
    )
