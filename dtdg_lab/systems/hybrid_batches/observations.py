"""Hybrid batches in the tables of a run: newest batches, decisions, rounds of averaging, times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows, known
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, SizeFacts
from dtdg_lab.visualization.runs.timeline import is_over

RECENT_BATCHES = 100  # batches per part whose visits are drawn
RECENT_SOURCES = 200  # batches of all parts that the reservoir's share is computed from
RECENT_ROUNDS = 10  # rounds per rank whose staleness is averaged
DECISIONS = 2_000  # maximum number of decisions read
RECENT_DECISIONS, SPREAD_DECISIONS = 100, 500


def is_hybrid(tables: RunTables) -> bool:
    """Return True if a run trains hybrid batches."""
    return catalogue.system(tables.system).family == "hybrid_batches"


# Seconds at which ranks ended their steps. Tables of batches only have steps, and each rank counts its own.


CLOCK = Rollup("steps", by=("rank",), most=("step", "seconds"), points=75)


def step_clock(tables: RunTables) -> Mapping[int, tuple[Array, Array]]:
    """Return, by rank, the steps in order and the seconds of training at which they ended."""
    clocks = {rank: _rank_clock(tables, rank) for rank in sorted(tables.steps)}
    return {rank: clock for rank, clock in clocks.items() if len(clock[0])}


def _rank_clock(tables: RunTables, rank: int) -> tuple[Array, Array]:
    def clock() -> tuple[Array, Array]:
        recent, older = tables.rows("steps"), tables.rollup(CLOCK)
        recent, older = recent.where(recent["rank"] == rank), older.where(older["rank"] == rank)
        steps, seconds = recent["step"].astype(np.float64), recent["seconds"]
        if len(steps) and len(older):
            is_before = older["step_most"] < steps[0]
            steps = np.concatenate([older["step_most"][is_before], steps])
            seconds = np.concatenate([older["seconds_most"][is_before], seconds])
        order = np.argsort(steps, kind="stable")
        return steps[order], np.maximum.accumulate(seconds[order])

    return tables.once(("hybrid: clock", rank), clock)


def seconds_at(tables: RunTables, rank: int, steps: Array) -> Array:
    """Return the seconds of training at which a rank had done these numbers of steps; NaN if it has done none."""
    clock = _rank_clock(tables, rank)
    if not len(clock[0]):
        return np.full(len(steps), np.nan)
    # before step 3, steps 0 to 2 have ended
    return np.interp(np.asarray(steps, np.float64) - 1, *clock)


def steps_per_second(tables: RunTables, window_s: float = 5.0) -> Mapping[int, float]:
    """Return the steps per second of each rank over its last seconds; ranks with fewer than two steps are left out.

    For an ended run these are the seconds before its last step, since it does not train afterwards.
    """
    clock, rates = step_clock(tables), {}
    now_s = max((float(seconds[-1]) for _, seconds in clock.values()), default=0.0)
    now_s = now_s if is_over(tables) else tables.seconds
    for rank, (steps, seconds) in clock.items():
        begin_s = max(now_s - window_s, seconds[0])
        if len(steps) > 1 and now_s > begin_s:
            rates[rank] = float(steps[-1] - np.interp(begin_s, seconds, steps)) / (now_s - begin_s)
    return rates


# Batches of the parts.


@dataclass(frozen=True, slots=True)
class PartBatch:
    """The batch of one part in one step.

    Attributes:
        part: index of the part.
        action: index of its size.
        source: ``reservoir``, ``new`` or ``snapshot``.
        snapshots: its snapshots.
        targets: number of targets in each snapshot.
        edges: edges of its blocks.
        counts: number of targets in each sixtieth of the part's candidates, heaviest first; None if not recorded.
    """

    part: int
    action: int
    source: str
    snapshots: range
    targets: int
    edges: int
    counts: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Number of targets over all its snapshots."""
        return self.targets * len(self.snapshots)


def recent_batches(tables: RunTables, facts: HybridFacts) -> Mapping[int, Rows]:
    """Return, by part, the newest rows of ``targets`` whose snapshots and parts belong to ``facts``.

    Ranks may be at different steps. A new size changes neither snapshots nor parts, so no step is left out for it.
    """

    def batches() -> dict[int, Rows]:
        rows = tables.last("targets", RECENT_BATCHES)
        first, last = rows["first"], rows["first"] + rows["snapshots"]
        is_of_facts = (first >= facts.first) & (last <= facts.first + facts.snapshots)
        is_of_facts &= rows["part"] < len(facts.candidates)
        by_part = rows.where(is_of_facts).by("part")
        return {int(part): some.where(slice(-RECENT_BATCHES, None)) for part, some in by_part.items()}

    return tables.once(("hybrid: recent batches", facts), batches)


def newest_batches(tables: RunTables, facts: HybridFacts) -> Mapping[int, PartBatch]:
    """Return the newest batch of every part, with target counts if available; few batches have them."""

    def newest() -> dict[int, PartBatch]:
        return {part: _newest_counted(rows) for part, rows in recent_batches(tables, facts).items()}

    return tables.once(("hybrid: newest batches", facts), newest)


def _newest_counted(rows: Rows) -> PartBatch:
    counted = [number for number, counts in enumerate(rows["map"].tolist()) if isinstance(counts, list)]
    (row,) = rows.where(np.array([counted[-1] if counted else len(rows) - 1])).to_dicts()
    first, counts = int(row["first"]), row["map"]
    return PartBatch(
        part=int(row["part"]),
        action=int(row["action"]),
        source=str(row["source"]),
        snapshots=range(first, first + int(row["snapshots"])),
        targets=int(row["targets"]),
        edges=int(row["edges"] or 0),
        counts=tuple(counts) if isinstance(counts, list) else None,
    )


def newest_sources(tables: RunTables) -> Sequence[str]:
    """Return the sources of the newest batches of all parts."""
    return [str(source) for source in tables.rows("targets")["source"][-RECENT_SOURCES:].tolist()]


# Decisions of a batch-size controller.


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of a batch-size controller.

    Attributes:
        step: number of steps of rank 0 before it.
        seconds: seconds of training before it.
        facts: the sizes it chose from.
        policy: name of the controller.
        action: index of the size.
        values: estimated value of each size; None if unknown.
        reward: reward of the previous size, if any.
        is_best: True if it took the best value, False if it explored.
    """

    step: int
    seconds: float
    facts: HybridFacts
    policy: str
    action: int
    values: tuple[float | None, ...]
    reward: float | None
    is_best: bool

    @property
    def size(self) -> str:
        """Name of the size."""
        return self.facts.name(self.action)


def decisions(tables: RunTables) -> Sequence[Decision]:
    """Return the newest decisions on batch sizes in order, without those of other controllers."""
    return tables.once("hybrid: decisions", lambda: _read_decisions(tables, slice(-DECISIONS, None)))


def recent_decisions(tables: RunTables) -> Sequence[Decision]:
    """Return the newest decisions on batch sizes, a few."""
    return tables.once("hybrid: recent decisions", lambda: _read_decisions(tables, slice(-RECENT_DECISIONS, None)))


def spread_decisions(tables: RunTables) -> Sequence[Decision]:
    """Return decisions evenly spread over all known ones, including the newest."""

    def spread() -> Sequence[Decision]:
        count = len(_decision_rows(tables))
        stride = max(1, -(-count // SPREAD_DECISIONS))
        return _read_decisions(tables, slice((count - 1) % stride, None, stride) if count else slice(0))

    return tables.once("hybrid: spread decisions", spread)


def _decision_rows(tables: RunTables) -> Rows:
    """Return the rows of decisions on batch sizes."""

    def of_sizes() -> Rows:
        rows = tables.rows("decisions")
        is_of_sizes = [isinstance(state, dict) and "loss_reduction" in state for state in rows["state"].tolist()]
        return rows.where(np.array(is_of_sizes, bool))

    return tables.once("hybrid: decision rows", of_sizes)


def _read_decisions(tables: RunTables, selection: slice) -> list[Decision]:
    plans = [(event["step"] or 0, facts) for event, facts in tables.typed(HybridFacts) if facts is not None]
    rows = _decision_rows(tables).where(selection)
    if not plans or not len(rows):
        return []
    begins, seconds = [step for step, _ in plans], seconds_at(tables, 0, rows["step"])
    columns = (rows["step"].tolist(), seconds.tolist(), rows["policy"].tolist(), rows["action"].tolist())
    outcomes = (rows["values"].tolist(), known(rows["reward"]), rows["state"].tolist())
    result = []
    for step, at_s, policy, action, values, reward, state in zip(*columns, *outcomes, strict=True):
        facts = plans[max(0, bisect_left(begins, step) - 1)][1]  # a change at this step follows the decision
        is_best = state.get("greedy") is not False
        listed = tuple(values) if isinstance(values, list) else ()
        result.append(Decision(step, at_s, facts, policy, int(action), listed, reward, is_best))
    return result


def in_use(choices: Sequence[Decision], facts: HybridFacts) -> Sequence[Decision]:
    """Return the decisions of the current controller among the current sizes."""
    return [choice for choice in choices if (choice.policy, choice.facts.sizes) == (facts.batch_policy, facts.sizes)]


def values_now(tables: RunTables, facts: HybridFacts) -> Mapping[int, float]:
    """Return the known values of sizes by index, as estimated in the newest decision."""
    choices = in_use(recent_decisions(tables), facts)
    values = choices[-1].values[: len(facts.sizes)] if choices else ()
    return {action: value for action, value in enumerate(values) if value is not None}


def controlled_facts(tables: RunTables) -> HybridFacts | None:
    """Return the batches of the newest controller, even if a fixed size has replaced it; None without any."""
    plans = (facts for _, facts in reversed(tables.typed(HybridFacts)) if facts is not None and facts.is_controlled)
    return next(plans, None)


def moment_text(tables: RunTables, decision: Decision) -> str:
    """Return the time of a decision, such as ``at step 1,930``; in seconds if ranks count their own steps."""
    in_seconds = tables.own_steps and np.isfinite(decision.seconds)
    return f"at {decision.seconds:.1f} s" if in_seconds else f"at step {decision.step:,}"


def action_now(tables: RunTables, facts: HybridFacts) -> int:
    """Return the index of the current size: the newest decision's if a controller chose, otherwise the set one."""
    choices = in_use(recent_decisions(tables), facts)
    return choices[-1].action if choices else facts.choice


def size_now(tables: RunTables, facts: HybridFacts) -> SizeFacts:
    """Return the current size."""
    return facts.sizes[min(action_now(tables, facts), len(facts.sizes) - 1)]


# Rounds of model averaging.


@dataclass(frozen=True, slots=True)
class Averaging:
    """The rounds in which a rank took over an averaged model, in order.

    Attributes:
        seconds: seconds of training.
        staleness: number of steps between handing in its model and taking over the average.
    """

    seconds: Array
    staleness: Array

    @property
    def recent(self) -> float:
        """Mean staleness of the newest rounds."""
        return float(self.staleness[-RECENT_ROUNDS:].mean())


def averaging(tables: RunTables) -> Mapping[int, Averaging]:
    """Return the rounds of each rank that it contributed to."""

    def rounds() -> dict[int, Averaging]:
        rows = tables.rows("rounds")
        rows = rows.where(~(rows["weight"] <= 0) & (rows["number"] > 0))
        return {
            int(rank): Averaging(
                seconds_at(tables, int(rank), some["applied_step"]),
                (some["applied_step"] - some["joined_step"]).astype(np.float64),
            )
            for rank, some in rows.by("rank").items()
        }

    return tables.once("hybrid: averaging", rounds)


def staleness_text(steps: float) -> str:
    """Return a mean staleness as text, such as ``1.7``."""
    return f"{steps:.1f}" if steps < 100 else f"{steps:,.0f}"
