"""Several runs against one target: which reached it first, at what cost, and in what the runs differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS, default
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import join_words
from dtdg_lab.records.events import TUNER, EpochEnded
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.changes.log import has_ended, requested_changes
from dtdg_lab.visualization.numbers import bytes_text, joules_text, percent_text, seconds_text, three_digits
from dtdg_lab.visualization.palette import PURGE_COLOUR, series_colour
from dtdg_lab.visualization.run_names import sentence_case, setting_label, value_text
from dtdg_lab.visualization.runs.curves import (
    Evaluation,
    bytes_at,
    evaluations_of,
    joules_at,
    judged_evaluations,
    steps_sent,
)
from dtdg_lab.visualization.runs.energy import joules_so_far

Labelled = Sequence[tuple[str, RunTables]]

BELOW_PERSISTENCE = 0.2  # where the target starts
ABOVE_LOWEST = 0.05  # likewise, where persistence is unknown
IN_A_ROW = 3  # evaluations at or below the target
EVEN = 1.05  # ratio of times up to which no run was first
NOT_COMPARED = frozenset({"system", "epochs"})  # neither is a difference beside the system
LISTED = 5  # settings in a notice
NOT_REACHED = "not reached"
CHANGED = "changes while training"

NOBODY, NOBODY_YET = "No run reached a loss of {target}.", "No run has reached a loss of {target} yet."
ALONE = "Only {first} has reached a loss of {target}: {at}."
SINGLE = "{first} reached a loss of {target} {at}."
FIRST = "{first} was first to reach a loss of {target}: {at}, {times} times as fast as {second}."
LEAST = "{first} reached a loss of {target} with the {least}: {spent}; {second} needed {times} times as {much}."
TOGETHER = "{first} and {second} reached a loss of {target} {alike}."
NOTICE = "These runs differ in more than the system: {settings}."
SAME_SYSTEM_NOTICE = "These runs differ in more than one setting: {settings}."


Spending = Literal["seconds", "joules", "bytes", "steps"]  # what runs spend until they reach the target


@dataclass(frozen=True, slots=True)
class _Words:
    """Phrases of a headline for one kind of spending."""

    text: Callable[[float], str]
    when: str
    alike: str
    superlative: str = ""
    much: str = "many"


_WORDS: Mapping[Spending, _Words] = MappingProxyType(
    {
        "seconds": _Words(seconds_text, "after {spent}", "at about the same time: after {spent}"),
        "joules": _Words(
            joules_text,
            "with {spent} used",
            "with about the same energy: {spent}",
            superlative="least energy",
            much="much",
        ),
        "bytes": _Words(
            bytes_text, "with {spent} sent", "with about as much sent: {spent}", superlative="fewest bytes sent"
        ),
        "steps": _Words(
            "{:,.0f}".format, "after {spent} steps", "after about as many steps: {spent}", superlative="fewest steps"
        ),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRun:
    """One run against the target.

    Attributes:
        name: of the run.
        colour: of its line.
        tables: its records.
        evaluations: by which it is judged, with finite losses.
        reached: the first of the evaluations in a row that reached the target; None where none did.
        reason: why it cannot be compared with the first run; empty where it can.
    """

    name: str
    colour: str
    tables: RunTables
    evaluations: tuple[Evaluation, ...]
    reached: Evaluation | None = None
    reason: str = ""

    @property
    def seconds(self) -> float | None:
        """Seconds of training until it reached the target."""
        return None if self.reached is None else self.reached.seconds

    @property
    def joules(self) -> float | None:
        """Joules of all devices until it reached the target; None where they are unknown."""
        spent = None if self.reached is None else joules_at(self.tables, [self.reached.seconds])
        return None if spent is None else float(spent[0])

    def spent(self, over: Spending) -> float | None:
        """Return what it had spent when it reached the target; None where it did not, or where that is unknown."""
        if self.reached is None or over == "seconds":
            return self.seconds
        if over == "joules":
            return self.joules
        if over == "steps":
            return float(self.reached.step)
        sent = bytes_at(self.tables, [self.reached.seconds], [self.reached.step])
        return None if sent is None else float(sent[0])

    @property
    def lowest(self) -> float | None:
        """The lowest loss so far."""
        return min((float(evaluation.loss or 0.0) for evaluation in self.evaluations), default=None)

    @property
    def steps_per_second(self) -> float | None:
        """Steps in a second of training, evaluations and rebuilds included; of all ranks where each has its own."""
        tables = self.tables
        steps = [step + 1 for step in tables.steps.values()]
        count = sum(steps) if tables.own_steps else max(steps, default=0)
        return count / tables.seconds if count and tables.seconds else None

    @property
    def joules_per_epoch(self) -> float | None:
        """Mean joules of the completed epochs; None before there is one, or where joules are unknown."""
        epoch = self.tables.complete_epoch
        if epoch is None or joules_so_far(self.tables) is None:
            return None
        ends = [event["seconds"] for event in self.tables.events(EpochEnded.kind) if event["data"]["epoch"] == epoch]
        spent = joules_at(self.tables, [max(ends)]) if ends else None
        return None if spent is None else float(spent[0]) / (epoch + 1)

    @property
    def bytes_per_step(self) -> float | None:
        """Mean bytes that all ranks send in a step; None where no rank recorded any."""
        sent, steps = bytes_at(self.tables, [np.inf], [np.inf]), steps_sent(self.tables)
        return None if sent is None or not steps else float(sent[0]) / steps


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRuns:
    """Several runs against one target.

    Attributes:
        runs: those that can be compared.
        excluded: those of other data, of another task or split.
        target: a loss; None before the first evaluation.
        persistence: what persistence reaches; None where unknown.
    """

    runs: tuple[ComparedRun, ...]
    excluded: tuple[ComparedRun, ...]
    target: float | None
    persistence: float | None

    @property
    def arrived(self) -> tuple[ComparedRun, ...]:
        """The runs that reached the target, the first one first."""
        return tuple(sorted((run for run in self.runs if run.seconds is not None), key=lambda run: run.seconds or 0.0))

    @property
    def missing(self) -> tuple[ComparedRun, ...]:
        """The runs that have not reached the target."""
        return tuple(run for run in self.runs if run.seconds is None)


def compare_runs(runs: Labelled, target: float | None = None, colours: Sequence[str] = ()) -> ComparedRuns:
    """Return how runs stand against a target.

    A run reached it where it was at or below it in three evaluations in a row, with a training loss below its own
    persistence: on quiet validation snapshots an untrained model may score well.

    Args:
        runs: name and tables of each; those that cannot be compared with the first are kept apart.
        target: a loss; by default 20% below persistence, or 5% above the lowest loss where persistence is unknown.
        colours: of each run; by default those of a series.
    """
    colours = colours or [series_colour(index) for index in range(len(runs))]
    reasons = [difference_of_data(tables.config, runs[0][1].config) for _, tables in runs]
    losses = [
        tuple(evaluation for evaluation in judged_evaluations(tables) if evaluation.loss is not None)
        for _, tables in runs
    ]
    comparable = [some for some, reason in zip(losses, reasons, strict=True) if not reason]
    persistence = _persistence(comparable)
    aim = _first_target(comparable, persistence) if target is None else target
    compared_runs = [
        ComparedRun(
            name=name,
            colour=PURGE_COLOUR if reason else colour,
            tables=tables,
            evaluations=evaluations,
            reached=None if reason or aim is None else first_at(tables, aim),
            reason=reason,
        )
        for (name, tables), evaluations, reason, colour in zip(runs, losses, reasons, colours, strict=True)
    ]
    compared = tuple(run for run in compared_runs if not run.reason)
    return ComparedRuns(compared, tuple(run for run in compared_runs if run.reason), aim, persistence)


def first_at(tables: RunTables, target: float) -> Evaluation | None:
    """Return the first of three evaluations in a row at or below a loss, once training is below its persistence."""
    judged, trained = judged_evaluations(tables), evaluations_of(tables, "train")
    is_low = [evaluation.loss is not None and evaluation.loss <= target for evaluation in judged]
    for first in range(len(judged) - IN_A_ROW + 1):
        if all(is_low[first : first + IN_A_ROW]) and _has_learned(trained, judged[first].step):
            return judged[first]
    return None


def _has_learned(trained: Sequence[Evaluation], step: int) -> bool:
    """Return whether the training loss was below its own persistence; True where that was never measured."""
    measured = [
        evaluation for evaluation in trained if evaluation.loss is not None and evaluation.persistence_loss is not None
    ]
    until = [evaluation for evaluation in measured if evaluation.step <= step]
    return not measured or bool(until and (until[-1].loss or 0.0) < (until[-1].persistence_loss or 0.0))


def _persistence(losses: Sequence[Sequence[Evaluation]]) -> float | None:
    values = [evaluation.persistence_loss for some in losses for evaluation in some[-1:] if evaluation.persistence_loss]
    return values[0] if values else None


def _first_target(losses: Sequence[Sequence[Evaluation]], persistence: float | None) -> float | None:
    if persistence is not None:
        return (1 - BELOW_PERSISTENCE) * persistence
    lowest = min((float(evaluation.loss or 0.0) for some in losses for evaluation in some), default=None)
    return None if lowest is None else (1 + ABOVE_LOWEST) * lowest


# What runs differ in.


def difference_of_data(config: RunConfig, reference: RunConfig) -> str:
    """Return why the losses of two runs cannot be compared: ``other data``; empty where they can."""
    if _data(config) != _data(reference):
        return "other data"
    if config["task"] != reference["task"]:
        return "another task"
    return "" if config.protocol == reference.protocol else "another protocol"


def _data(config: RunConfig) -> tuple[Any, ...]:
    """Return what decides the data of a run: of generated data also the seed."""
    is_generated = "generated_snapshots" in config.flat
    options = sorted(config.options.get("datasets", {}).items())
    return (config.dataset, *options, config.seed if is_generated else 0)


def differing_settings(configs: Sequence[RunConfig]) -> list[str]:
    """Return the settings beside the system in which runs differ.

    A setting that each run has from its own system's defaults does not count.
    """
    flats = [config.flat for config in configs]
    names = dict.fromkeys(name for flat in flats for name in flat)
    return [name for name in names if name not in NOT_COMPARED and _differs(name, configs)]


def _differs(name: str, configs: Sequence[RunConfig]) -> bool:
    having = [config for config in configs if name in config.flat]
    values = [config.flat[name] for config in having]
    if all(value == values[0] for value in values):
        return False
    return name not in OPTIONS or any(
        value != default(name, system=config.system, dataset=config.dataset, protocol=config.protocol)
        for config, value in zip(having, values, strict=True)
    )


def count_changes(tables: RunTables) -> int:
    """Return how many changes of settings were applied while the run trained, without those of its own tuner."""
    return sum(change.outcome == "applied" and change.by != TUNER for change in requested_changes(tables))


def notice(comparison: ComparedRuns) -> str:
    """Return in what the runs differ beside what is compared; empty where it is nothing."""
    configs = [run.tables.started_config for run in comparison.runs]
    settings = differing_settings(configs)
    changed = [CHANGED] if any(count_changes(run.tables) for run in comparison.runs) else []
    has_one_system = len({config.system for config in configs}) < 2
    if has_one_system:
        settings = [name for name in settings if name != "seed"]
    if len(settings) + len(changed) <= has_one_system or len(configs) < 2:
        return ""
    labels = [setting_label(name) for name in settings]
    if len(labels) > LISTED:
        labels = [*labels[:LISTED], f"{len(labels) - LISTED} more"]
    differences = join_words([*labels, *changed])
    return (SAME_SYSTEM_NOTICE if has_one_system else NOTICE).format(settings=differences)


def settings_table(comparison: ComparedRuns) -> list[list[str]]:
    """Return what differs as a table: a line with the names of the runs, then one for each setting."""
    runs = comparison.runs
    configs = [run.tables.started_config for run in runs]
    lines = [["Setting", *(run.name for run in runs)]]
    for name in ("system", *differing_settings(configs)):
        values = [value_text(name, config.flat[name]) if name in config.flat else "–" for config in configs]
        lines.append([sentence_case(setting_label(name)), *values])
    counts = [count_changes(run.tables) for run in runs]
    return [*lines, [sentence_case(CHANGED), *map(str, counts)]] if any(counts) else lines


# Who was first.


def headline(comparison: ComparedRuns, over: Spending = "seconds") -> str:
    """Return which run was first to reach the target, or spent least until then.

    Args:
        comparison: the runs.
        over: what counts; time does where it is not known of all that reached the target.
    """
    if comparison.target is None:
        return "No run has been evaluated yet."
    arrived, target = comparison.arrived, three_digits(comparison.target)
    if not arrived:
        is_over = all(has_ended(run.tables) for run in comparison.runs)
        return (NOBODY if is_over else NOBODY_YET).format(target=target)
    if any(run.spent(over) is None for run in arrived):
        over = "seconds"
    (spent, first), *slower = sorted(((run.spent(over) or 0.0, run) for run in arrived), key=itemgetter(0))
    phrases, text = _WORDS[over], _WORDS[over].text(spent)
    texts = {"first": first.name, "target": target, "spent": text, "at": phrases.when.format(spent=text)}
    if not slower:
        return (SINGLE if len(comparison.runs) == 1 else ALONE).format(**texts)
    second_spent, second = slower[0]
    texts["second"] = second.name
    if second_spent <= EVEN * spent:
        return TOGETHER.format(alike=phrases.alike.format(spent=text), **texts)
    times = _times_text(second_spent / spent) if spent > 0 else "many"
    return (LEAST if phrases.superlative else FIRST).format(
        times=times, least=phrases.superlative, much=phrases.much, **texts
    )


def _times_text(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 99.5 else f"{ratio:,.0f}"


def verdicts(comparison: ComparedRuns) -> str:
    """Return what families of systems say of their runs against the target; empty where they say nothing."""
    if comparison.target is None:
        return ""
    sentences = (family.comparison(comparison.runs, comparison.target) for family in catalogue.families())
    return " ".join(filter(None, sentences))


def target_text(comparison: ComparedRuns) -> str:
    """Return the target, with its place below or above persistence where that is known."""
    target, persistence = comparison.target, comparison.persistence
    if target is None or persistence is None:
        return three_digits(target)
    gain = 1 - target / persistence
    return f"{three_digits(target)}, {percent_text(abs(gain))} {'below' if gain >= 0 else 'above'} persistence"


# The table "Who got there first".


COLUMNS = (
    "Time to target",
    "Energy to target",
    "Lowest loss",
    "Steps per second",
    "Energy per epoch",
    "Sent per step",
)


@dataclass(frozen=True, slots=True)
class TableCell:
    """A number in the table.

    Attributes:
        text: with its unit.
        share: of the largest in its column, for a bar behind it; None for no bar.
        is_best: whether no other run has a better one.
    """

    text: str
    share: float | None = None
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A line of the table: a run, and its numbers by column."""

    name: str
    colour: str
    has_arrived: bool
    cells: tuple[TableCell, ...]


def arrivals(comparison: ComparedRuns) -> list[Arrival]:
    """Return the lines of the table: runs in order of their arrival, then those that did not get there."""
    order = (*comparison.arrived, *comparison.missing)
    columns = (
        _barred(order, [run.seconds for run in order], seconds_text),
        _barred(order, [run.joules for run in order], joules_text),
        _plain([run.lowest for run in order], three_digits),
        _plain([run.steps_per_second for run in order], three_digits, best=max),
        _plain([run.joules_per_epoch for run in order], joules_text),
        _plain([run.bytes_per_step for run in order], bytes_text),
    )
    return [
        Arrival(run.name, run.colour, run.seconds is not None, cells)
        for run, cells in zip(order, zip(*columns, strict=True), strict=True)
    ]


Text = Callable[[float | None], str]
Values = Sequence[float | None]


def _plain(values: Values, text: Text, *, best: Callable[[Iterable[float]], float] = min) -> list[TableCell]:
    """Return a column; those are best that read the same as the best."""
    numbers = [value for value in values if value is not None]
    best_text = text(best(numbers)) if len(values) > 1 and numbers else ""
    return [TableCell(text(value), is_best=text(value) == best_text) for value in values]


def _barred(runs: Sequence[ComparedRun], values: Values, text: Text) -> list[TableCell]:
    largest = max((value or 0.0 for value in values), default=0.0)
    return [
        TableCell(NOT_REACHED)
        if run.seconds is None
        else replace(cell, share=value / largest if value is not None and largest > 0 else None)
        for run, value, cell in zip(runs, values, _plain(values, text), strict=True)
    ]
