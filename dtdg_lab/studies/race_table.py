"""The table of a race: medians and spreads over seeds, data and protocol, and clear winners."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.options import OPTIONS, default
from dtdg_lab.core.units import format_bytes, format_joules, format_seconds
from dtdg_lab.runs.html import text
from dtdg_lab.runs.run import StoredRun, open_run
from dtdg_lab.studies.race_rules import Check
from dtdg_lab.studies.race_store import RacePlan
from dtdg_lab.studies.trials import FAILED, FINISHED, INTERRUPTED, RUNNING
from dtdg_lab.visualization.layout import join_words
from dtdg_lab.visualization.style import coloured

if TYPE_CHECKING:
    import pandas as pd


UNDER_WAY = "under way"
STATES: Mapping[str, str] = {RUNNING: UNDER_WAY, INTERRUPTED: "left"}  # of a trial -> of a run of a race


@dataclass(frozen=True, slots=True)
class RaceRun:
    """One run of a race.

    Attributes:
        label: of the contestant.
        seed: of the run.
        state: ``finished``, ``under way``, ``failed``, or ``left`` if it was interrupted.
        why: reason for an early end or a failure.
        path: of its folder; None if it could not be started.
        keeper: object that keeps the folder alive while it is read.
    """

    label: str
    seed: int
    state: str
    why: str
    path: Path | None
    keeper: object = field(default=None, repr=False, compare=False)

    def open(self) -> StoredRun:
        """The run's records.

        Raises:
            RunStoreError: there is no run at its path, or it was never started.
        """
        found = open_run(self.path or Path(f"{self.label}, seed {self.seed}"))
        found.keeper = self.keeper
        return found


# Medians and spreads over seeds, and the rule for calling a contestant the best.


RULE = (
    "Bold marks the best median if its range over the seeds does not overlap the range of any other contestant. With "
    "one "
    "seed nothing is bold, nor is a contestant with a failed run."
)


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity over the seeds of one contestant.

    Attributes:
        middle: the median; infinite if half of the seeds never reached the target; None if unknown for all seeds.
        low, high: minimum and maximum over the seeds for which it is known.
        count: seeds that count, including those that never reached the target.
        missed: seeds that never reached the target.
    """

    middle: float | None
    low: float | None
    high: float | None
    count: int
    missed: int = 0


def spread(values: Sequence[float | None]) -> Spread:
    """The spread of one value per seed: None is unknown and left out, infinite means never reached."""
    known = sorted(float(value) for value in values if value is not None and not math.isnan(value))
    if not known:
        return Spread(None, None, None, 0)
    finite = [value for value in known if math.isfinite(value)]
    low, high = (finite[0], finite[-1]) if finite else (None, None)
    return Spread(median(known), low, high, len(known), len(known) - len(finite))


def best(spreads: Mapping[str, Spread], *, high_is_good: bool = False) -> str | None:
    """The contestant all of whose seeds beat all seeds of every other one; None if there is none.

    One seed shows no spread, so a contestant with fewer than two is neither best nor beaten. A contestant without
    known values is left out; a seed that never reached the target beats none.

    Args:
        spreads: by contestant.
        high_is_good: whether higher is better.
    """
    known = {label: each for label, each in spreads.items() if each.count}
    if len(known) < 2 or any(each.count < 2 for each in known.values()):
        return None
    ends = {label: _ends(each, high_is_good=high_is_good) for label, each in known.items()}
    first = min(ends, key=lambda label: ends[label][1])
    others = [good for label, (good, _) in ends.items() if label != first]
    worst = ends[first][1]
    return first if math.isfinite(worst) and all(worst < good for good in others) else None


def _ends(each: Spread, *, high_is_good: bool) -> tuple[float, float]:
    """The best and the worst seed, as numbers where lower is better."""
    if each.low is None or each.high is None:
        return math.inf, math.inf
    good, bad = (-each.high, -each.low) if high_is_good else (each.low, each.high)
    return good, math.inf if each.missed else bad


GAP = 0.05  # share of the devices' time without energy data above which it is reported, and joules are not compared


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class RaceMeasure:
    """A column of the table: its name in data and on the page, its format, and which direction is better.

    Times and energies of a run are totals or means over its epochs; medians over epochs are shown but not compared.
    """

    name: str
    title: str
    words: Callable[[float | None], str] = _number
    high_is_good: bool = False
    judged: bool = True
    where_known: bool = False  # shown on the page only if some contestant has it


MEASURES: tuple[RaceMeasure, ...] = (
    RaceMeasure("test_loss", "test loss"),
    RaceMeasure("validation_loss", "validation loss"),
    RaceMeasure("skill", "skill", high_is_good=True),
    RaceMeasure("persistence_loss", "persistence", judged=False),
    RaceMeasure("mean_loss", "mean baseline", judged=False),
    RaceMeasure("near_best_s", "time to near best", format_seconds),
    RaceMeasure("total_time_s", "training time", format_seconds),
    RaceMeasure("epoch_time_s", "epoch time, mean", format_seconds),
    RaceMeasure("epoch_time_spread_s", "± over epochs", format_seconds, judged=False),
    RaceMeasure("epoch_time_median_s", "epoch time, median", format_seconds, judged=False),
    RaceMeasure("epoch_time_clean_s", "clean epochs", format_seconds, judged=False, where_known=True),
    RaceMeasure("epoch_time_congested_s", "congested epochs", format_seconds, judged=False, where_known=True),
    RaceMeasure("joules", "energy", format_joules),
    RaceMeasure("epoch_j", "energy per epoch, mean", format_joules, judged=False),
    RaceMeasure("epoch_j_clean", "energy, clean epochs", format_joules, judged=False, where_known=True),
    RaceMeasure("epoch_j_congested", "energy, congested epochs", format_joules, judged=False, where_known=True),
    RaceMeasure("bytes", "bytes sent", format_bytes),
    RaceMeasure("peak_bytes", "peak memory", format_bytes),
    RaceMeasure("imbalance", "imbalance"),
)
MEANINGS: Mapping[str, str] = {
    "near_best_s": "seconds from the start of a run to a validation loss within 5 % of the lowest that any "
    "contestant reached with that seed",
    "joules": "of all nodes and devices, counted once, over the whole run",
    "bytes": "sent by all ranks in steps, and those of features fetched by RPC",
    "imbalance": "own time of an epoch, maximum over the ranks divided by minimum; 1 is balanced",
    "coincides": "whether losses that should be equal are; empty if there is no such pair, or no comparison yet",
    "purge": "snapshots left out at each boundary between the splits",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant.

    Attributes:
        label: of it.
        config: of its runs, except for the seed.
        settings: those in which contestants differ.
        runs: that have finished.
        failed: reasons of those that failed.
        wanted: runs that it should have.
        spreads: by name of a measure.
        sources: of the joules.
        coincides: see ``MEANINGS``.
        grounds: data and protocol of each finished run; see ``runs.provenance``.
    """

    label: str
    config: RunConfig
    settings: Mapping[str, Any]
    runs: tuple[StoredRun, ...]
    failed: tuple[str, ...]
    wanted: int
    spreads: Mapping[str, Spread]
    sources: tuple[str, ...]
    coincides: bool | None
    grounds: tuple[Mapping[str, Any], ...] = ()


def spreads_of(runs: Sequence[StoredRun], near: Sequence[float | None]) -> dict[str, Spread]:
    """Every measure over the seeds of one contestant.

    Args:
        runs: finished ones.
        near: seconds to a loss close to the best, by seed: infinite if never reached, None if unknown.
    """
    described = [run.summary for run in runs]
    found = {each.name: spread([one.get(each.name) for one in described]) for each in MEASURES}
    for name, part, never in _OF_PARTS:
        found[name] = spread([_scored(*pair, name, part, never) for pair in zip(runs, described, strict=True)])
    return found | {
        "near_best_s": spread(near),
        "joules": spread([joules_of(run) for run in runs]),
        "bytes": spread([bytes_of(run) for run in runs]),
    }


_OF_PARTS = (("test_loss", "test", math.inf), ("validation_loss", "validation", math.inf), ("skill", "test", -math.inf))


def _scored(run: StoredRun, described: Mapping[str, Any], name: str, part: str, never: float) -> float | None:
    """A result of a run on a split: ``never`` if its last loss is not finite, None if it has no such split."""
    last = run.live.loss.splits[part].last
    return never if last is not None and last.value is None else described.get(name)


def joules_of(run: StoredRun) -> float | None:
    """Joules of the whole run over all sources; None if unknown."""
    by_source = run.summary.get("energy_j")
    return sum(by_source.values()) if by_source else None


def unknown_energy(runs: Sequence[StoredRun]) -> float:
    """The largest share of a run's device time with neither measured nor modelled energy; 0 if not recorded."""
    return max(((run.summary.get("energy_coverage") or {}).get("unknown", 0.0) for run in runs), default=0.0)


def bytes_of(run: StoredRun) -> float | None:
    """Bytes sent by all ranks in steps, plus those of fetched features; None if unknown."""
    sent, features = run.summary.get("bytes_sent"), run.summary.get("feature_bytes")
    return None if sent is None else float(sent) + float(features or 0.0)


def differing(configs: Mapping[str, RunConfig]) -> tuple[str, ...]:
    """Settings in which contestants differ, the system first.

    Settings that only some of them have are left out, and those at their system's defaults.
    """
    flats = [config.flat for config in configs.values()]
    names = dict.fromkeys(["system", *(name for flat in flats for name in flat)])
    found = []
    for name in names:
        values = {str(flat.get(name)) for flat in flats if name in flat}
        everywhere = all(name in flat for flat in flats)
        if everywhere and len(values) > 1 and (name in _ALWAYS or any(_chosen(name, of) for of in configs.values())):
            found.append(name)
    return tuple(found)


_ALWAYS = ("system", "model", "ranks", "parts")


def _chosen(name: str, config: RunConfig) -> bool:
    """Whether the value was set explicitly: it is not a default of system, data set or protocol."""
    if name not in OPTIONS:
        return True
    usual = default(name, system=config.system, dataset=config.dataset, protocol=config.protocol)
    return bool(config.flat[name] != usual)


def winners(rows: Sequence[Row]) -> dict[str, str]:
    """Measure -> contestant that is best with non-overlapping seed ranges; see ``significance.RULE``."""
    found = {}
    for measure in MEASURES:
        if not measure.judged or (measure.name == "joules" and len({row.sources for row in rows}) > 1):
            continue  # measured and modelled joules are not comparable
        if measure.name == "joules" and any(unknown_energy(row.runs) > GAP for row in rows):
            continue  # an unknown value cannot win
        spreads = {row.label: row.spreads[measure.name] for row in rows}
        label = best(spreads, high_is_good=measure.high_is_good)
        lost = {row.label for row in rows if row.failed}  # their spread over all seeds is unknown
        if label is not None and label not in lost and all(row.spreads[measure.name].count for row in rows):
            found[measure.name] = label
    return found


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """One row per contestant, in numbers: the median of a measure, and its range in ``_min`` and ``_max``.

    ``best_in`` names the measures in which it is best with non-overlapping seed ranges.
    """
    import pandas as pd

    won = winners(rows)
    described = []
    for row in rows:
        line: dict[str, Any] = {**row.settings, "seeds": len(row.runs), "failed": len(row.failed)}
        for measure in MEASURES:
            each = row.spreads[measure.name]
            line |= {measure.name: each.middle, f"{measure.name}_min": each.low, f"{measure.name}_max": each.high}
        line |= {
            "energy_source": ", ".join(row.sources) or None,
            "coincides": row.coincides,
            "best_in": ", ".join(name for name, label in won.items() if label == row.label),
            **_ground(row),
        }
        described.append(line)
    return pd.DataFrame(described, index=pd.Index([row.label for row in rows], name="contestant"))


def _ground(row: Row) -> dict[str, Any]:
    """Protocol, purge gap and data, as in every table of results; all data if they differ between seeds."""
    if not row.grounds:
        return {"protocol": row.config.protocol, "leaky": None, "purge": None, "data": None}
    joined = {name: row.grounds[0][name] for name in ("protocol", "leaky", "purge")}
    return {**joined, "data": ", ".join(dict.fromkeys(str(each["data"]) for each in row.grounds))}


def page(rows: Sequence[Row]) -> str:
    """The table as HTML: bold for clear winners, red for losses that should coincide and do not."""
    won = winners(rows)
    settings = list(rows[0].settings) if rows else []
    shown = [each for each in MEASURES if not each.where_known or any(row.spreads[each.name].count for row in rows)]
    if all(row.settings.get("system") == row.label for row in rows):
        settings = [name for name in settings if name != "system"]
    heads = ["contestant", *settings, "seeds", *(measure.title for measure in shown)]
    heads += ["same losses", "protocol", "purge", "data"]
    lines = ["<tr>" + "".join(f"<th style='text-align:left'>{text(head)}</th>" for head in heads) + "</tr>"]
    for row in rows:
        ground = _ground(row)
        cells = [text(row.label), *(text(row.settings[name]) for name in settings), _seeds(row)]
        cells += [_cell(measure, row, bold=won.get(measure.name) == row.label) for measure in shown]
        cells += [_coincides(row), text(ground["protocol"]), _purge(ground), _data(ground)]
        lines.append(
            "<tr>" + "".join(f"<td style='text-align:left;white-space:nowrap'>{cell}</td>" for cell in cells) + "</tr>"
        )
    return f"<div style='overflow-x:auto'><table class='dtdg-race' style='font-size:90%'>{''.join(lines)}</table></div>"


def _purge(ground: Mapping[str, Any]) -> str:
    if ground["data"] is None:
        return ""
    return "unknown" if ground["purge"] is None else f"{ground['purge']}{' (leaky)' * bool(ground['leaky'])}"


def _data(ground: Mapping[str, Any]) -> str:
    """A line for the data of each seed, if they differ."""
    return text(ground["data"] or "").replace(", ", "<br>")


def _red(words: str) -> str:
    return f"<span style='color:{coloured('bad')};font-weight:bold'>{words}</span>"


def _seeds(row: Row) -> str:
    described = f"{len(row.runs)} of {row.wanted}"
    return f"{described}, {_red(f'{len(row.failed)} failed')}" if row.failed else described


def _coincides(row: Row) -> str:
    return "" if row.coincides is None else "yes" if row.coincides else _red("NO")


def _cell(measure: RaceMeasure, row: Row, *, bold: bool) -> str:
    each = row.spreads[measure.name]
    if each.middle is None:
        known = row.runs and measure.name != "near_best_s"  # the best loss is not known before all have results
        return "<span style='opacity:0.8'>unknown</span>" if known else ""
    if math.isinf(each.middle):
        return f"not reached ({each.missed} of {each.count})"
    described = measure.words(each.middle)
    if each.low is not None and each.high is not None and each.count > 1 and each.low < each.high:
        ends = f"[{measure.words(each.low)} .. {measure.words(each.high)}]"
        described += f"<br><small style='opacity:0.8'>{ends}</small>"
    if measure.name == "joules" and (unknown := unknown_energy(row.runs)) > GAP:
        described += f" <small>({100 * unknown:.0f} % of the devices' time unknown)</small>"
    if each.missed:
        described += f" <small>({each.missed} never)</small>"
    if "loss" in measure.name and measure.judged and row.coincides is False:
        return _red(described)
    return f"<b>{described}</b>" if bold else described


# A race in sentences: progress, winners, and caveats.


def race_words(plan: RacePlan, entries: Iterable[RaceRun], rows: Sequence[Row], found: Sequence[Check]) -> list[str]:
    """Captions of a race; one that says DIFFER is an alarm.

    Args:
        plan: of the race.
        entries: the newest of every contestant and seed.
        rows: of the table.
        found: checks of losses that should coincide.
    """
    known = list(entries)
    return [
        _what(plan),
        _how_far(plan, known),
        *_verdict(plan, rows, over=sum(each.state == FINISHED for each in known) == _wanted(plan)),
        *_coinciding(found),
        *_conditions(plan, known),
        *_few_pairs(rows),
    ]


def _few_pairs(rows: Sequence[Row]) -> list[str]:
    """A warning if link metrics rest on few pairs, with the contestants concerned."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for said in dict.fromkeys(run.summary.get("link_warning") for run in row.runs):
            if said:
                found.setdefault(said, []).append(row.label)
    return [f"{join_words(labels)}: {said}" for said, labels in found.items()]


def _wanted(plan: RacePlan) -> int:
    return len(plan.configs) * len(plan.seeds)


def _what(plan: RacePlan) -> str:
    one = next(iter(plan.configs.values()))
    models = dict.fromkeys(f"{config.model}" for config in plan.configs.values())
    seeds = "seed" if len(plan.seeds) == 1 else "seeds"
    rule = "" if plan.stop is None or not plan.stop.judges else f" at most; runs end after {plan.stop.summary()}"
    return (
        f"{join_words(list(plan.configs))} race on {one.dataset}, {one['task']} with {join_words(list(models))}, "
        f"{len(plan.seeds)} {seeds}, {one.epochs} epochs{rule}."
    )


def _how_far(plan: RacePlan, entries: Sequence[RaceRun]) -> str:
    finished = [each for each in entries if each.state == FINISHED]
    text = f"{len(finished)} of {_wanted(plan)} runs have finished"
    running = [f"{each.label} with seed {each.seed}" for each in entries if each.state == UNDER_WAY]
    text += f"; {join_words(running)} {'is' if len(running) == 1 else 'are'} running" if running else ""
    early = [each for each in finished if each.why]
    text += f"; {len(early)} ended early" if early else ""
    failed = [f"{each.label} with seed {each.seed} ({each.why})" for each in entries if each.state == FAILED]
    return text + (f". Failed: {'; '.join(failed)}." if failed else ".")


def _verdict(plan: RacePlan, rows: Sequence[Row], *, over: bool) -> list[str]:
    if len(plan.seeds) < 2:
        return ["With one seed there is no spread, so no contestant can be called the best. Add seeds."]
    won: dict[str, list[str]] = {}
    titles = {measure.name: measure.title for measure in MEASURES}
    for name, label in winners(rows).items():
        won.setdefault(label, []).append(titles[name])
    so_far = "" if over else " so far"
    if won:
        described = "; ".join(f"{label} in {join_words(names)}" for label, names in won.items())
        return [f"Best{so_far}, with no overlap between seeds: {described}."]
    if not any(row.runs for row in rows):
        return []
    return [f"No contestant is the best in any measure{so_far}: the ranges over seeds overlap."]


def _coinciding(found: Sequence[Check]) -> list[str]:
    described = [check.summary() for check in found if check.ok is False]
    agreed: dict[tuple[str, ...], list[Check]] = {}
    for check in found:
        if check.ok:
            agreed.setdefault(check.labels, []).append(check)
    pairs = [f"{join_words(labels)} ({_worst(checks)})" for labels, checks in agreed.items()]
    if pairs:
        verb = "are" if not described else "elsewhere are"
        described.append(f"Losses that should be the same {verb}: {'; '.join(pairs)}.")
    return described


def _worst(found: Collection[Check]) -> str:
    first = max((check.first for check in found if check.first is not None), default=None)
    curve = max((check.curve for check in found if check.curve is not None), default=None)
    described = [
        f"{value:.1g} {where}" for value, where in ((first, "at first"), (curve, "at most")) if value is not None
    ]
    return "apart by " + join_words(described)


def _conditions(plan: RacePlan, entries: Sequence[RaceRun]) -> list[str]:
    described = []
    if plan.parallel and len(entries) > 1:
        described.append(
            "Two runs executed in parallel, on halves of the engines. They shared the cores, caches and memory of "
            "this machine, so their times are longer and noisier than those of a single run."
        )
    ranks = sorted({config.ranks for config in plan.configs.values()})
    if len(ranks) > 1:
        described.append(
            f"Contestants have {join_words([str(count) for count in ranks])} ranks: seconds and joules are those of "
            "as many processes."
        )
    if len(set(plan.data.values())) > 1:
        described.append(
            "Each seed has its own data, the same for all contestants, so the spread includes differences of the data."
        )
    return described
