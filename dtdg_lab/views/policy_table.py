"""Policies of the cache beside each other, case by case: how far each is from the optimum and the best fixed window.

Rows are mappings, one for each policy, case and seed: ``policy``, ``case`` and ``joules`` of the episode, and where
there are several data sets, ``costs``, whose they are. The policies ``clairvoyant`` and those whose names begin with
``fixed`` are what the others are measured by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.units import format_joules
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.palette import TEXT_COLOUR
from dtdg_lab.views.partition_maps import colour_bar
from dtdg_lab.views.text_table import text_table

if TYPE_CHECKING:
    from dtdg_lab.control.cache_comparison import ComparedPolicy

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
CLAIRVOYANT, FIXED, BEST = "clairvoyant", "fixed", "best fixed"
NOTHING = "no policy was compared yet"
TOLERANCE = 0.01  # of the best fixed window's joules, beyond which a policy loses to it
_NEAR = 0.5  # percent under which a distance has the palest colour
_APART = 10  # cases up to which each has its name under the axis
_WRITTEN = 160  # cells up to which each has its number
_DARK = 0.6
_NAMED = 2  # cases that a sentence names
# better than what it is measured by: blue; worse: red; white: as good
_SCALE = ((0.0, "#2166AC"), (0.5, "#FFFFFF"), (1.0, "#B2182B"))


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """Mean joules of policies by case.

    Attributes:
        cases: in order.
        joules: policy -> case -> mean joules over the seeds.
    """

    cases: tuple[str, ...]
    joules: Mapping[str, Mapping[str, float]]

    @property
    def fixed(self) -> list[str]:
        """Policies with a fixed window."""
        return [name for name in self.joules if name.startswith(FIXED)]

    def best_fixed(self, case: str) -> tuple[str, float] | None:
        """The fixed window that needs least in a case, which only hindsight knows; None where none was tried."""
        found = [(self.joules[name][case], name) for name in self.fixed if case in self.joules[name]]
        return (min(found)[1], min(found)[0]) if found else None

    def beyond_optimum(self, policy: str, case: str) -> float | None:
        """Joules over the clairvoyant's, less 1; None where either is not known."""
        return self._beyond(policy, case, self.joules.get(CLAIRVOYANT, {}).get(case))

    def beyond_fixed(self, policy: str, case: str) -> float | None:
        """Joules over those of the best fixed window of the case, less 1; None where either is not known."""
        best = self.best_fixed(case)
        return self._beyond(policy, case, None if best is None else best[1])

    def _beyond(self, policy: str, case: str, measure: float | None) -> float | None:
        joules = self.joules.get(policy, {}).get(case)
        return None if joules is None or not measure else joules / measure - 1

    def losses(self, policy: str) -> list[tuple[float, str]]:
        """Cases in which a policy needs more than the best fixed window, beyond the tolerance; the worst first."""
        told = [(beyond, case) for case in self.cases if (beyond := self.beyond_fixed(policy, case)) is not None]
        return sorted(((beyond, case) for beyond, case in told if beyond > TOLERANCE), reverse=True)

    def mean_beyond_optimum(self, policy: str) -> float | None:
        """Mean over the cases; None where no case has both."""
        told = [beyond for case in self.cases if (beyond := self.beyond_optimum(policy, case)) is not None]
        return fmean(told) if told else None


def policy_table(rows: Sequence[Row]) -> PolicyTable:
    """Rows as a table; seeds of one policy and case are averaged."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row.get("joules") is not None:
            found.setdefault(str(row["policy"]), {}).setdefault(str(row["case"]), []).append(float(row["joules"]))
    cases = tuple(dict.fromkeys(str(row["case"]) for row in rows))
    return PolicyTable(cases, {name: {case: fmean(each) for case, each in by.items()} for name, by in found.items()})


def policy_table_panels(table: PolicyTable) -> dict[str, Panel]:
    """``optimum`` and ``fixed``: distance of every policy to the clairvoyant and to the best fixed window, by case."""
    return {
        "optimum": (_map(table, "Beyond the clairvoyant optimum", optimum=True), policy_words(table)),
        "fixed": (_map(table, "Against the best fixed window of each case", optimum=False), _losers_words(table)),
    }


def policy_rows(compared: Sequence[ComparedPolicy]) -> list[dict[str, Any]]:
    """What :func:`dtdg_lab.control.cache_comparison.compare` gives, as rows."""
    return [{"policy": each.policy, "case": each.case, "costs": each.costs, "joules": each.joules} for each in compared]


def policy_table_figure(rows: Sequence[Row], *, title: str = "Policies of the cache, case by case") -> Figure:
    """Both maps of each data set, one under the other."""
    panels: list[Panel] = []
    names = list(dict.fromkeys(str(row.get("costs", "")) for row in rows)) or [""]
    for name in names:
        for figure, words in policy_table_panels(_of(rows, name)).values():
            if len(names) > 1:
                head = figure["layout"]["title"]
                figure["layout"]["title"] = {**head, "text": f"{head['text']}, {name}"}
            panels.append((figure, words))
    return grid(panels, title=title, columns=1)


def _of(rows: Sequence[Row], costs: str) -> PolicyTable:
    return policy_table([row for row in rows if str(row.get("costs", "")) == costs])


def _map(table: PolicyTable, title: str, *, optimum: bool) -> Figure:
    rows = [name for name in _ranked(table) if name != CLAIRVOYANT or not optimum]
    layout = frame(title, "", "", margin={"l": 96, "r": 14, "t": 34, "b": 78})
    distance = table.beyond_optimum if optimum else table.beyond_fixed
    cells = [[distance(name, case) for case in table.cases] for name in rows]
    known = [abs(each) for row in cells for each in row if each is not None]
    if not known:
        missing = "no clairvoyant was run" if optimum else "no fixed window was run"
        return {"data": [], "layout": with_note(layout, missing if table.joules else NOTHING)}
    # one bad policy must not make all others look alike
    top = max(_NEAR, 100 * sorted(known)[int(0.9 * (len(known) - 1))])
    layout["xaxis"] |= _case_axis(table.cases, layout["xaxis"])
    layout["shapes"] = [_between(at) for at in _begins(table.cases)[1:]] if len(table.cases) > _APART else []
    layout["yaxis"] |= {**_names(rows), "range": [len(rows) - 0.5, -0.5]}
    data: list[dict[str, Any]] = [{
        "type": "heatmap", "name": title, "x": list(range(len(table.cases))), "y": list(range(len(rows))),
        "z": [[None if each is None else round(100 * each, 3) for each in row] for row in cells],
        "zmin": -top, "zmax": top, "colorscale": [list(stop) for stop in _SCALE],
        "colorbar": {**colour_bar("% more joules"), "tickformat": ".3~g"}, "xgap": 1, "ygap": 1, "hoverongaps": False,
        "customdata": [[f"{name}, {case}: {_joules(table, name, case)}" for case in table.cases] for name in rows],
        "hovertemplate": "%{customdata}, %{z:+.2f} %<extra></extra>",
    }]  # fmt: skip
    if len(rows) * len(table.cases) <= _WRITTEN:
        layout["annotations"] = [
            {"text": f"{round(100 * each, 1) + 0.0:+.1f}", "x": column, "y": row, "xref": "x", "yref": "y",
             "showarrow": False,
             "font": {"size": 9, "color": "white" if abs(100 * each) > _DARK * top else TEXT_COLOUR}}
            for row, values in enumerate(cells) for column, each in enumerate(values) if each is not None
        ]  # fmt: skip
    return {"data": data, "layout": layout}


def _begins(cases: Sequence[str]) -> list[int]:
    """Where another pattern begins: what stands before the first ``/`` of a case's name."""
    return [at for at, case in enumerate(cases) if not at or case.split("/")[0] != cases[at - 1].split("/")[0]]


def _between(at: int) -> dict[str, Any]:
    line = {"color": TEXT_COLOUR, "width": 1}
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": at - 0.5,
        "x1": at - 0.5,
        "y0": 0,
        "y1": 1,
        "line": line,
    }


def _case_axis(cases: Sequence[str], axis: Mapping[str, Any]) -> dict[str, Any]:
    """Names of cases, or where these are many, of their patterns, with what all of these have under the axis."""
    named, begins = _names(cases), _begins(cases)
    if len(cases) <= _APART or len(begins) == len(cases):
        return named
    ends = [*begins[1:], len(cases)]
    kinds = [[case.partition("/")[2].replace("/", " ") for case in cases[first:end]]
             for first, end in zip(begins, ends, strict=True)]  # fmt: skip
    alike = f"each from left to right: {', '.join(kinds[0])}" if all(each == kinds[0] for each in kinds) else "case"
    return {
        **named, "tickvals": [(first + end - 1) / 2 for first, end in zip(begins, ends, strict=True)],
        "ticktext": [cases[first].split("/")[0].replace("_", " ") for first in begins],
        "title": {**axis["title"], "text": alike},
    }  # fmt: skip


def _names(names: Sequence[str]) -> dict[str, Any]:
    return {"tickvals": list(range(len(names))), "ticktext": list(names), "range": [-0.5, len(names) - 0.5],
            "showgrid": False}  # fmt: skip


def _joules(table: PolicyTable, name: str, case: str) -> str:
    return format_joules(table.joules.get(name, {}).get(case))


def _ranked(table: PolicyTable) -> list[str]:
    """Policies, the one nearest to the optimum first; by their joules where there is no clairvoyant."""

    def rank(name: str) -> tuple[float, float]:
        beyond = table.mean_beyond_optimum(name)
        return (float("inf") if beyond is None else beyond, fmean(table.joules[name].values()))

    return sorted(table.joules, key=rank)


def policy_words(table: PolicyTable) -> str:
    """How far every policy is from the optimum in the mean, and who beats what nobody may beat."""
    if not table.joules:
        return "Nobody may need less than the clairvoyant, who knows the whole trace."
    told = [
        f"{name} {100 * beyond:.1f} %" for name in _ranked(table)
        if name != CLAIRVOYANT and (beyond := table.mean_beyond_optimum(name)) is not None
    ]  # fmt: skip
    impossible = [
        f"{name} in {case}" for name in table.joules for case in table.cases
        if (beyond := table.beyond_optimum(name, case)) is not None and beyond < -1e-9
    ]  # fmt: skip
    wrong = f" Something is wrong: {join_words(impossible)} needs less than the optimum." if impossible else ""
    if not told:
        return f"Without a clairvoyant nobody knows how much there was to gain.{wrong}"
    return f"Joules beyond the optimum, mean of {len(table.cases)} cases: {join_words(told)}.{wrong}"


def _losers_words(table: PolicyTable) -> str:
    """Which policies lose to a fixed window that needs no thought, and where."""
    if not table.fixed:
        return "Without fixed windows nobody knows whether choosing one was worth the trouble."
    lost = {name: losses for name in table.joules if not name.startswith(FIXED) and (losses := table.losses(name))}
    others = [name for name in table.joules if not name.startswith(FIXED) and name not in (CLAIRVOYANT, BEST)]
    fine = [name for name in others if name not in lost]
    told = [
        f"{name} loses in {len(losses)} of {len(table.cases)} cases, by up to {100 * losses[0][0]:.1f} % "
        f"({', '.join([case for _, case in losses[:_NAMED]])}{', ...' if len(losses) > _NAMED else ''})"
        for name, losses in sorted(lost.items(), key=lambda item: len(item[1]))
    ]  # fmt: skip
    text = f"{'; '.join(told)}." if told else "Nobody loses to the best fixed window by more than 1 %."
    return f"{text} Never by more than 1 %: {join_words(fine)}." if told and fine else text


def policy_text(rows: Sequence[Row], *, markdown: bool = False) -> str:
    """The same as a table in text: a line a policy, with the mean and the worst of its distances.

    Args:
        rows: see the module.
        markdown: with bars and a rule; else columns of fixed width.
    """
    several = len({row.get("costs") for row in rows}) > 1
    # a case of one data set is not that of another
    table = policy_table([{**row, "case": f"{row.get('costs')}, {row['case']}"} for row in rows] if several else rows)
    lines = [["policy", "beyond optimum (mean)", "(worst)", "against best fixed (mean)", "(worst)", "cases lost"]]
    for name in _ranked(table):
        cells = [name]
        for distance in (table.beyond_optimum, table.beyond_fixed):
            told = [beyond for case in table.cases if (beyond := distance(name, case)) is not None]
            cells += [f"{100 * fmean(told):+.1f} %", f"{100 * max(told):+.1f} %"] if told else ["-", "-"]
        lines.append([*cells, str(len(table.losses(name))) if table.fixed else "-"])
    return text_table(lines, markdown=markdown)
