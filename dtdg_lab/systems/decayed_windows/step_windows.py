"""Windows of steps, read from a run's tables: the newest steps, and the current shape of a window."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.rows import Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.systems.decayed_windows.window import RULES

RECENT = 50  # captions and tiles show means over this many steps
AUTO_CHUNKS = 128
LAYOUTS = ("halo_window", "sampled_window")
SHAPE = ("full_snapshots", "alpha", "decay")


def layout_of(system: str) -> str:
    """Return a system's way of parallel steps, ``halo_window`` or ``sampled_window``; empty for other families."""
    parallel = catalogue.system(system).parts["parallel"]
    return parallel if parallel in LAYOUTS else ""


def has_windows(tables: RunTables) -> bool:
    """Return True if the steps of a run are windows."""
    return bool(layout_of(tables.system))


def is_sampled(tables: RunTables) -> bool:
    """Return True if windows have sampled edges of all nodes."""
    return layout_of(tables.system) == "sampled_window"


def has_halo(tables: RunTables) -> bool:
    """Return True if ranks exchange rows of full snapshots."""
    return layout_of(tables.system) == "halo_window"


def has_decay(tables: RunTables) -> bool:
    """Return True if older snapshots are decayed."""
    return has_halo(tables) and "alpha" in tables.config.flat


@dataclass(frozen=True, slots=True)
class StepWindow:
    """The window of one step, summed over ranks.

    Attributes:
        step: number of the step.
        target: its newest snapshot.
        first: its oldest snapshot.
        full: number of newest snapshots that are full.
        counts: chunks of every part in the decayed snapshots, oldest first.
        rows: node rows in all its snapshots.
        edges: edges of its decayed or sampled snapshots.
        sampled: edges sampled in each snapshot, oldest first; empty without sampling.
    """

    step: int
    target: int
    first: int
    full: int
    counts: tuple[int, ...]
    rows: int
    edges: int
    sampled: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Number of its snapshots."""
        return self.target - self.first + 1

    def shares(self, chunks: int) -> tuple[float, ...]:
        """Return the share of nodes that every snapshot has, oldest first."""
        return (*(min(1.0, count / chunks) for count in self.counts), *[1.0] * self.full)


def step_windows(tables: RunTables, until: int | None = None) -> Sequence[StepWindow]:
    """Return the windows of the newest steps, up to step ``until``, that all ranks have recorded, in order."""
    return tables.once(("windows of steps", until), lambda: _step_windows(tables, until))


def newest_window(tables: RunTables, until: int | None = None) -> StepWindow | None:
    """Return the window of the newest step, up to step ``until``, that all ranks have recorded."""
    windows = step_windows(tables, until)
    return windows[-1] if windows else None


def mean_rows(tables: RunTables) -> float | None:
    """Return the mean rows of the newest steps over all ranks; None before the first step."""
    windows = step_windows(tables)
    return sum(window.rows for window in windows) / len(windows) if windows else None


def held_share(tables: RunTables) -> float | None:
    """Return the rows of the newest steps' windows as a share of full windows; None if unknown."""
    windows, facts = step_windows(tables), facts_now(tables)
    if facts is None or not windows:
        return None
    return sum(window.rows for window in windows) / (facts.nodes * sum(window.length for window in windows))


def _step_windows(tables: RunTables, until: int | None) -> list[StepWindow]:
    if until is None:
        rows = tables.last("batches", RECENT)
    else:
        rows = tables.rows("batches")
        rows = rows.where((rows["step"] <= until) & (rows["step"] > until - RECENT))
    steps, numbers, ranks = np.unique(rows["step"], return_inverse=True, return_counts=True)
    sums = {name: np.bincount(numbers, rows[name], len(steps)) for name in ("rows", "edges")}
    windows = []
    for number, row in enumerate(rows.once("step").sort("step").to_dicts()):
        if ranks[number] >= tables.ranks:
            step, target, first, full = (int(row[name]) for name in ("step", "target", "first", "full"))
            counts = tuple(int(count) for count in row["chunks"] if count is not None)
            totals = (int(sums["rows"][number]), int(sums["edges"][number]))
            windows.append(StepWindow(step, target, first, full, counts, *totals, sampled=_sampled(rows, step)))
    return windows


def _sampled(rows: Rows, step: int) -> tuple[int, ...]:
    """Return the edges that all ranks sampled in each snapshot of a step."""
    if "sampled" not in rows or rows["sampled"].dtype != object:
        return ()
    by_rank = [edges for edges in rows.where(rows["step"] == step)["sampled"] if edges is not None]
    return tuple(map(sum, zip(*by_rank, strict=True)))


# The shape of windows.


def facts_now(tables: RunTables) -> TrapezoidFacts | None:
    """Return the shape of a whole window under the current settings; None before a run has recorded it."""

    def current_facts() -> TrapezoidFacts | None:
        recorded, flat = tables.event(TrapezoidFacts), tables.config.flat
        return None if recorded is None else recorded.changed({name: flat[name] for name in SHAPE if name in flat})

    return tables.once("shape of windows", current_facts)


def chunks_at(tables: RunTables, step: int) -> int:
    """Return the chunks of each part at a step."""
    plans = [(event["step"] or 0, facts.chunks) for event, facts in tables.typed(TrapezoidFacts) if facts is not None]
    if not plans:
        return AUTO_CHUNKS
    return plans[max(0, bisect_right(plans, step, key=lambda plan: plan[0]) - 1)][1]


def planned_facts(config: RunConfig) -> TrapezoidFacts:
    """Return the shape of a whole window from the settings alone, with one node per chunk and unknown bytes."""
    flat = config.flat
    window, chunks = int(flat["window"]), int(flat.get("chunks") or AUTO_CHUNKS)
    shape = Shape(int(flat.get("full_snapshots", window)), float(flat.get("alpha", 1.0)), flat.get("decay", RULES[0]))
    nodes = np.arange(chunks + 1, dtype=np.float64)
    return TrapezoidFacts(window, shape, chunks, chunks, nodes, nodes, None, None)


# The training snapshots.


def training_snapshots(tables: RunTables) -> range | None:
    """Return the snapshots of the training split; None before a run has recorded them."""
    events = tables.events("parts")
    if not events:
        return None
    train = events[-1]["data"]["train"]
    return range(int(train["first"]), int(train["last"]) + 1)
