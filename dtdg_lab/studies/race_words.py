"""A race in sentences: how far it is, who is best, and what must be known before believing it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dtdg_lab.studies.coincide import Check
from dtdg_lab.studies.race_store import FAILED, FINISHED, UNDER_WAY, Entry, Plan
from dtdg_lab.studies.race_table import MEASURES, Row, winners
from dtdg_lab.views.layout import join_words


def race_words(plan: Plan, entries: Iterable[Entry], rows: Sequence[Row], found: Sequence[Check]) -> list[str]:
    """Sentences about a race; one that says DIFFER is an alarm.

    Args:
        plan: what is raced.
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
    """A warning where link metrics rest on few pairs, with the contestants that they are of."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for said in dict.fromkeys(run.summary.get("link_warning") for run in row.runs):
            if said:
                found.setdefault(said, []).append(row.label)
    return [f"{join_words(labels)}: {said}" for said, labels in found.items()]


def _wanted(plan: Plan) -> int:
    return len(plan.configs) * len(plan.seeds)


def _what(plan: Plan) -> str:
    one = next(iter(plan.configs.values()))
    models = dict.fromkeys(f"{config.model}" for config in plan.configs.values())
    seeds = "seed" if len(plan.seeds) == 1 else "seeds"
    rule = "" if plan.stop is None or not plan.stop.judges else f" at most; runs end after {plan.stop.in_words()}"
    return (
        f"{join_words(list(plan.configs))} race on {one.dataset}, {one['task']} with {join_words(list(models))}, "
        f"{len(plan.seeds)} {seeds}, {one.epochs} epochs{rule}."
    )


def _how_far(plan: Plan, entries: Sequence[Entry]) -> str:
    finished = [each for each in entries if each.state == FINISHED]
    text = f"{len(finished)} of {_wanted(plan)} runs have finished"
    running = [f"{each.label} with seed {each.seed}" for each in entries if each.state == UNDER_WAY]
    text += f"; {join_words(running)} {'is' if len(running) == 1 else 'are'} under way" if running else ""
    early = [each for each in finished if each.why]
    text += f"; {len(early)} ended before all epochs were over" if early else ""
    failed = [f"{each.label} with seed {each.seed} ({each.why})" for each in entries if each.state == FAILED]
    return text + (f". Failed: {'; '.join(failed)}." if failed else ".")


def _verdict(plan: Plan, rows: Sequence[Row], *, over: bool) -> list[str]:
    if len(plan.seeds) < 2:
        return ["One seed shows no spread: nothing here can be called the best. Add seeds."]
    won: dict[str, list[str]] = {}
    titles = {measure.name: measure.title for measure in MEASURES}
    for name, label in winners(rows).items():
        won.setdefault(label, []).append(titles[name])
    so_far = "" if over else " so far"
    if won:
        told = "; ".join(f"{label} in {join_words(names)}" for label, names in won.items())
        return [f"Best{so_far} beyond the spread of the seeds: {told}."]
    if not any(row.runs for row in rows):
        return []
    return [f"Nobody is the best in anything{so_far} beyond the spread of the seeds."]


def _coinciding(found: Sequence[Check]) -> list[str]:
    told = [check.in_words() for check in found if check.ok is False]
    agreed: dict[tuple[str, ...], list[Check]] = {}
    for check in found:
        if check.ok:
            agreed.setdefault(check.labels, []).append(check)
    pairs = [f"{join_words(labels)} ({_worst(checks)})" for labels, checks in agreed.items()]
    if pairs:
        verb = "are" if not told else "elsewhere are"
        told.append(f"Losses that should be the same {verb}: {'; '.join(pairs)}.")
    return told


def _worst(found: Collection[Check]) -> str:
    first = max((check.first for check in found if check.first is not None), default=None)
    curve = max((check.curve for check in found if check.curve is not None), default=None)
    told = [f"{value:.1g} {where}" for value, where in ((first, "at first"), (curve, "at most")) if value is not None]
    return "apart by " + join_words(told)


def _conditions(plan: Plan, entries: Sequence[Entry]) -> list[str]:
    told = []
    if plan.at_once and any(each.beside for each in entries):
        told.append(
            "Two runs were under way at a time, on halves of the engines: they shared the cores, caches and memory of "
            "this machine, so that their seconds are longer than those of a run alone, and noisier."
        )
    ranks = sorted({config.ranks for config in plan.configs.values()})
    if len(ranks) > 1:
        told.append(
            f"Contestants have {join_words([str(count) for count in ranks])} ranks: seconds and joules are those of "
            "as many processes."
        )
    if len(set(plan.data.values())) > 1:
        told.append("Every seed has data of its own, the same for all contestants: their spread is in the losses too.")
    return told
