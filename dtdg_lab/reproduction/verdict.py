"""The verdict on a claim, from stored rows by the claim's rule; no verdict is typed.

A comparison is one combination of the axes on which ours and the rival agree, such as a data set and a model. Its gain
is computed for each seed (see ``Claim``), and the pooled gain of a seed is the mean over comparisons. Its interval is
the 95 % t-interval over seeds. Then:

=================== ====================================================================================================
holds               ``less``, ``times``, ``points``: the pooled gain is at least half of the paper's size (of ``times``,
                    half of what is above 1), its interval is above zero (1), and the gain is positive in more than half
                    of the comparisons. ``equal``, ``no_more``: the pooled interval and the gain of every comparison
                    keep the tolerance. ``at_most``, ``at_least``: the interval of every comparison keeps the limit.
holds partly        the pooled gain is positive, and that of at least half of the comparisons; ``equal``, ``no_more``
                    and limits: the pooled gain, and that of at least half of the comparisons, keep the tolerance or
                    limit. Nothing better is said of the best of several rivals if one of them failed, and of energy
                    that is modelled, since it follows seconds.
does not hold here  otherwise.
cannot be tested    the experiment says why, or no comparison counts: cells failed, or no compared system predicts
                    better than persistence.
not run             rows are missing, or were measured when the claim had another rule, or on several machines where a
                    clock decides.
=================== ====================================================================================================

A claim that holds partly or does not hold is established to do so if its pooled interval leaves out what decides: a
gain of zero (a ratio of 1), or the tolerance or limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from scipy import stats

from dtdg_lab.reproduction.cells import ExperimentCell, cells_of
from dtdg_lab.reproduction.experiment import Claim, Experiment, listed
from dtdg_lab.reproduction.rows import MeasuredRow
from dtdg_lab.reproduction.time_to_loss import NEAR, near_costs

HOLDS, PARTLY, FAILS = "holds", "holds partly", "does not hold here"
UNTESTABLE, MISSING = "cannot be tested here", "not run"
VERDICTS = (HOLDS, PARTLY, FAILS, UNTESTABLE, MISSING)
LEVEL = 0.95
LIMITS = ("at_most", "at_least")
ENERGY = ("joules", "_j", "robustness")  # ends of the names of values that are made of joules
Interval = tuple[float, float | None, float | None]  # mean, low and high


@dataclass(frozen=True, slots=True)
class ClaimComparison:
    """Ours beside one rival, or ours by itself for a limit, where all other axes agree.

    Attributes:
        labels: value on each axis, without those that only ours or the rival has.
        rival: value on each axis of the rival; empty for a limit.
        ours_values: value of each seed.
        rival_values: the same for the rival.
        gains: gain of each seed.
        gain: their mean; of ratios the geometric one.
        left_out: why it does not count; empty if it does.
        failed: a cell of it failed.
        censored: ours or the rival did not reach the loss with some seed, so its time is a lower bound.
    """

    labels: Mapping[str, Any]
    rival: Mapping[str, Any]
    ours_values: tuple[float, ...] = ()
    rival_values: tuple[float, ...] = ()
    gains: tuple[float, ...] = ()
    gain: float = math.nan
    left_out: str = ""
    failed: bool = False
    censored: bool = False


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The decision on a claim by stored rows.

    Attributes:
        claim: the claim.
        decision: one of ``VERDICTS``.
        reason: why it cannot be tested, or what is missing; empty otherwise.
        comparisons: all comparisons, also those that do not count.
        gain: pooled gain; None without a decision by rows.
        low: lower end of its interval; None if there is one seed only.
        high: upper end.
        seeds: number of seeds.
        is_modelled: the compared energy was modelled, at least in part.
    """

    claim: Claim
    decision: str
    reason: str = ""
    comparisons: tuple[ClaimComparison, ...] = ()
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    is_modelled: bool = False

    @property
    def is_open(self) -> bool:
        """Tell whether it holds partly or does not hold, and an interval over seeds includes what decides.

        A limit that holds partly is also open if the interval of no comparison is wholly beyond it.
        """
        if self.decision not in (PARTLY, FAILS) or self.low is None or self.high is None:
            return False
        size = self.claim.paper.size
        assert size is not None  # claims with a rule have one
        bounds = _bounds(self.claim, size)
        if any(self.low <= bound <= self.high for bound in bounds or (self.claim.neutral,)):
            return True
        if bounds is None or self.claim.rule not in LIMITS or self.decision != PARTLY or not self.counted:
            return False
        intervals = [_interval(self.claim, each.gains, deterministic=False) for each in self.counted]
        return not any(low is None or high is None or high < bounds[0] or bounds[1] < low for _, low, high in intervals)

    @property
    def counted(self) -> tuple[ClaimComparison, ...]:
        """The comparisons that count."""
        return tuple(comparison for comparison in self.comparisons if not comparison.left_out)


def judge(experiment: Experiment, rows: Sequence[MeasuredRow], device: str = "cpu") -> list[ClaimVerdict]:
    """Return the verdict on each claim of an experiment.

    Args:
        experiment: the experiment.
        rows: its stored rows; those of other cells are ignored.
        device: ``cpu`` or ``cuda``.
    """
    cells = cells_of(experiment, device)
    compared = _of_one_machine(rows) if experiment.timed else rows
    return [
        judge_claim(
            claim, experiment, cells, {row.key: row for row in compared if experiment.rule_digest(claim) in row.rules}
        )
        for claim in experiment.claims
    ]


def _of_one_machine(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Return the rows of the machine that measured most of them."""
    machines = Counter(row.machine_text for row in rows)
    return [row for row in rows if row.machine_text == machines.most_common(1)[0][0]]


def judge_claim(
    claim: Claim, experiment: Experiment, cells: Sequence[ExperimentCell], rows: Mapping[str, MeasuredRow]
) -> ClaimVerdict:
    """Return the verdict on one claim; ``rows`` are those measured under its rule, by their cell's key."""
    if claim.untestable:
        return ClaimVerdict(claim, UNTESTABLE, claim.untestable)
    compared = [cell for cell in cells if cell.matches(claim.where)]
    ours = [cell for cell in compared if cell.matches(claim.ours)]
    rivals = [cell for cell in compared if claim.rival and cell.matches(claim.rival)]
    needed = {cell.key: cell for cell in (*ours, *rivals)}
    missing = sum(key not in rows for key in needed)
    if missing or not ours:
        return ClaimVerdict(claim, MISSING, f"{missing} of {len(needed)} cells are missing")
    comparisons = _comparisons(claim, experiment, ours, rivals, rows)
    counted = [comparison for comparison in comparisons if not comparison.left_out]
    if not counted:
        reasons = dict.fromkeys(comparison.left_out for comparison in comparisons)
        return ClaimVerdict(claim, UNTESTABLE, "; ".join(reasons) or "no cells of the rival", tuple(comparisons))
    by_seed = [_pool(claim, gains) for gains in zip(*(comparison.gains for comparison in counted), strict=True)]
    pooled = _interval(claim, by_seed, deterministic=experiment.deterministic)
    intervals = [_interval(claim, each.gains, deterministic=experiment.deterministic) for each in counted]
    decision = _decide(claim, intervals, pooled)
    if decision == HOLDS and claim.best_rival and any(comparison.failed for comparison in comparisons):
        decision = PARTLY
    is_modelled = claim.value.endswith(ENERGY) and any(_is_modelled(claim.value, rows[key]) for key in needed)
    if decision == HOLDS and is_modelled:
        decision = PARTLY
    return ClaimVerdict(claim, decision, "", tuple(comparisons), *pooled, len(by_seed), is_modelled)


def _is_modelled(value: str, row: MeasuredRow) -> bool:
    """Return whether the energy of a row is not known to be measured."""
    share = "clean_measured_share" if value.startswith("clean_") else "measured_share"
    return not row.failed and row.values.get(share) != 1


def _comparisons(
    claim: Claim,
    experiment: Experiment,
    ours: Sequence[ExperimentCell],
    rivals: Sequence[ExperimentCell],
    rows: Mapping[str, MeasuredRow],
) -> list[ClaimComparison]:
    """Return one comparison for each combination of shared axes and each rival; with ``best_rival``, the best only."""
    shared = [axis for axis in experiment.over if not (axis in claim.rival and axis in claim.ours)]
    own = [axis for axis in experiment.over if axis in claim.ours]
    groups = _grouped(ours, [*shared, *(axis for axis in own if axis not in shared)])
    rival_groups = _grouped(rivals, list(experiment.over))
    comparisons = []
    for labels, our_cells in groups.items():
        fixed = dict(labels)
        chosen = {
            key: group for key, group in rival_groups.items() if all(dict(key)[axis] == fixed[axis] for axis in shared)
        }
        context = [*our_cells, *(cell for group in chosen.values() for cell in group)]
        values = _values(claim, [rows[cell.key] for cell in context])
        visible = {axis: value for axis, value in fixed.items() if axis in shared or len(listed(claim.ours[axis])) > 1}
        beside = [
            _comparison(claim, visible, dict(key), our_cells, group, rows=rows, values=values)
            for key, group in (chosen.items() if claim.rival else [((), [])])
        ]
        counted = [comparison for comparison in beside if not comparison.left_out]
        if claim.best_rival and counted:
            best = min(counted, key=lambda comparison: _margin(claim, comparison.gain))
            beside = [best, *(comparison for comparison in beside if comparison.left_out)]
        comparisons += beside
    return comparisons


def _grouped(
    cells: Sequence[ExperimentCell], axes: Sequence[str]
) -> dict[tuple[tuple[str, Any], ...], list[ExperimentCell]]:
    groups: dict[tuple[tuple[str, Any], ...], list[ExperimentCell]] = {}
    for cell in cells:
        groups.setdefault(tuple((axis, cell.labels[axis]) for axis in axes), []).append(cell)
    return groups


@dataclass(frozen=True, slots=True)
class _Values:
    """The compared value of each row by its key, and why they do not count."""

    by_key: Mapping[str, float | None]
    unreached: frozenset[str] = frozenset()
    left_out: str = ""


def _values(claim: Claim, rows: Sequence[MeasuredRow]) -> _Values:
    if claim.value not in NEAR:
        return _Values({row.key: row.values.get(claim.value) for row in rows})
    near = near_costs(rows, claim.value)
    reason = "" if near.below_persistence or not claim.needs_skill else "the loss is not below that of persistence"
    return _Values(near.costs, near.unreached, reason)


def _comparison(
    claim: Claim,
    labels: Mapping[str, Any],
    rival: Mapping[str, Any],
    our_cells: Sequence[ExperimentCell],
    rival_cells: Sequence[ExperimentCell],
    *,
    rows: Mapping[str, MeasuredRow],
    values: _Values,
) -> ClaimComparison:
    distinct = {axis: value for axis, value in rival.items() if axis in claim.rival}
    both = [rows[cell.key] for cell in (*our_cells, *rival_cells)]
    failed = [row.failed for row in both if row.failed]
    ours, theirs = ([values.by_key.get(cell.key) for cell in cells] for cells in (our_cells, rival_cells))
    left_out = values.left_out
    if failed:
        left_out = failed[0]
    elif any(value is None for value in (*ours, *theirs)):
        known_values = sorted({name for row in both for name in row.values})
        left_out = f"no {claim.value} is known; rows have {', '.join(known_values)}"
    elif claim.needs_skill and not left_out and not _is_skilled(our_cells, rows) and not _is_skilled(rival_cells, rows):
        left_out = "no compared system predicts better than persistence"
    elif 0 in (
        theirs if claim.rule in ("less", "equal", "no_more") else (*ours, *theirs) if claim.rule == "times" else ()
    ):
        left_out = f"there is no ratio, since {claim.value} is 0"
    if left_out:
        return ClaimComparison(labels, distinct, left_out=left_out, failed=bool(failed))
    known, rival_known = (
        [float(value) for value in ours if value is not None],
        [float(value) for value in theirs if value is not None],
    )
    censored = any(cell.key in values.unreached for cell in (*our_cells, *rival_cells))
    paired = zip(known, rival_known, strict=True) if claim.rival else ((value, 0.0) for value in known)
    gains = [_gain(claim, value, rival_value) for value, rival_value in paired]
    if claim.value in NEAR and claim.rival:  # what ours would still need is unknown, so it is no gain
        ours_unreached = [cell.key in values.unreached for cell in our_cells]
        gains = [min(gain, claim.neutral) if lost else gain for gain, lost in zip(gains, ours_unreached, strict=True)]
    return ClaimComparison(
        labels, distinct, tuple(known), tuple(rival_known), tuple(gains), _pool(claim, gains), censored=censored
    )


def _is_skilled(cells: Sequence[ExperimentCell], rows: Mapping[str, MeasuredRow]) -> bool:
    """Return whether the mean test loss is below that of persistence."""
    losses = [(rows[cell.key].values.get("test_loss"), rows[cell.key].values.get("persistence_loss")) for cell in cells]
    known = [(loss, persistence) for loss, persistence in losses if loss is not None and persistence is not None]
    return bool(known) and fmean(loss for loss, _ in known) < fmean(persistence for _, persistence in known)


def _gain(claim: Claim, ours: float, rival: float) -> float:
    match claim.rule:
        case "less":
            return 1 - ours / rival
        case "times":
            return rival / ours
        case "points":
            return ours - rival
        case "equal" | "no_more":
            return ours / rival - 1
    return ours


def _margin(claim: Claim, gain: float) -> float:
    """Return how well ours does beside a rival; the least of several is that beside the best rival."""
    return -abs(gain) if claim.rule == "equal" else -gain if claim.rule == "no_more" else gain


def _pool(claim: Claim, gains: Sequence[float]) -> float:
    return math.exp(fmean(math.log(gain) for gain in gains)) if claim.rule == "times" else fmean(gains)


def _interval(claim: Claim, by_seed: Sequence[float], *, deterministic: bool) -> Interval:
    """Return the mean over seeds, and the ends of its 95 % t-interval; None for one seed of a random result."""
    gain = _pool(claim, by_seed)
    if deterministic:
        return gain, gain, gain
    if len(by_seed) < 2:
        return gain, None, None
    if claim.rule == "times":
        half = half_interval([math.log(value) for value in by_seed])
        return gain, gain * math.exp(-half), gain * math.exp(half)
    half = half_interval(by_seed)
    return gain, gain - half, gain + half


def half_interval(values: Sequence[float]) -> float:
    """Return half of the 95 % t-interval of the mean of two values or more."""
    return float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def _decide(claim: Claim, comparisons: Sequence[Interval], pooled: Interval) -> str:
    """Return the decision by the interval of each comparison and the pooled one."""
    size = claim.paper.size
    assert size is not None  # claims with a rule have one
    gain, low, _ = pooled
    bounds = _bounds(claim, size)
    if bounds is not None:
        least, most = bounds
        kept = [least <= value <= most for value, _, _ in comparisons]
        strict = comparisons if claim.rule in LIMITS else [pooled]
        is_certain = all(
            lower is not None and upper is not None and least <= lower and upper <= most for _, lower, upper in strict
        )
        if all(kept) and is_certain:
            return HOLDS
        return PARTLY if least <= gain <= most and 2 * sum(kept) >= len(kept) else FAILS
    positive = sum(value > claim.neutral for value, _, _ in comparisons)
    enough = gain - claim.neutral >= (size - claim.neutral) / 2
    if enough and low is not None and low > claim.neutral and 2 * positive > len(comparisons):
        return HOLDS
    return PARTLY if gain > claim.neutral and 2 * positive >= len(comparisons) else FAILS


def _bounds(claim: Claim, size: float) -> tuple[float, float] | None:
    """Return the least and the greatest gain that a limit or tolerance allows; None for the other rules."""
    match claim.rule:
        case "at_most" | "no_more":
            return -math.inf, size
        case "at_least":
            return size, math.inf
        case "equal":
            return -size, size
    return None
