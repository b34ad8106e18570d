"""What other schedulers would have made of the same group times: bars of makespan over the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import WARNING_COLOUR
from dtdg_lab.views.schedule_facts import ScheduleFacts, share, unit_of

Row = Mapping[str, Any]
PSG = "psg"
_USED, _OTHER = "#F2B089", "#8CC7E8"


def rows_told(facts: ScheduleFacts) -> list[dict[str, Any]]:
    """What is known without solving anything: the schedule in use, and round robin's makespan (PSG)."""
    rows = [
        {
            "scheduler": name_of(facts),
            "makespan_s": facts.makespan_s,
            "solve_s": facts.solve_s,
            "targets": facts.targets,
        }
    ]
    if facts.round_robin_s is not None and name_of(facts) != PSG:
        rows.insert(0, {"scheduler": PSG, "makespan_s": facts.round_robin_s})
    return rows


def name_of(facts: ScheduleFacts) -> str:
    """The scheduler as a replay names it: round robin with one group a rank is the system ``psg``."""
    return PSG if (facts.scheduler, facts.per_rank) == ("round_robin", 1) else facts.scheduler


def what_if_figure(rows: Sequence[Row], *, bound_s: float, used: str = "", scale: float | None = 1.0) -> Figure:
    """A bar for each scheduler, with how far it is above the bound and how long it took to solve.

    Args:
        rows: of ``scheduling.replay``: ``scheduler``, ``makespan_s``, and where known ``solve_s`` and ``imbalance``.
        bound_s: no schedule is shorter.
        used: the scheduler in use, in another colour.
        scale: seconds of a unit of the times; None where that is unknown, and 1.0 is the bound.
    """
    title, factor, unit = "What would the others have done", 1 / bound_s if bound_s > 0 else 1.0, "bound = 1"
    if scale is not None:
        unit, factor = unit_of(scale * max((row["makespan_s"] for row in rows), default=1.0))
        factor *= scale
    names = [_name(row, used) for row in rows]
    bars = {
        "type": "bar", "orientation": "h", "y": names, "x": [round(row["makespan_s"] * factor, 5) for row in rows],
        "name": "predicted epoch", "showlegend": False,
        "text": [_said(row, bound_s) for row in rows], "textposition": "inside", "insidetextanchor": "start",
        "textfont": {"size": 11}, "width": 0.7,
        "marker": {"color": [_USED if row["scheduler"] == used else _OTHER for row in rows]},
        "customdata": [_hover(row) for row in rows],
        "hovertemplate": "%{y}: %{x:.4g} " + unit + "%{customdata}<extra></extra>",
    }  # fmt: skip
    bound = {
        "type": "scatter", "mode": "lines", "name": "no schedule is shorter", "x": [bound_s * factor] * 2,
        "y": names[:1] * 2, "showlegend": True, "hoverinfo": "name",
        "line": {"color": WARNING_COLOUR, "width": 2, "dash": "dash"},
    }  # fmt: skip
    edge = {"type": "line", "xref": "x", "yref": "paper", "x0": bound_s * factor, "x1": bound_s * factor, "y0": 0,
            "y1": 1, "line": bound["line"]}  # fmt: skip
    layout = frame(
        title, f"time of an epoch's groups and exchanges ({unit})", "", xaxis={"rangemode": "tozero"},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False, "ticksuffix": " "},
        bargap=0.3, shapes=[edge] if bound_s > 0 and rows else [],
    )  # fmt: skip
    return {"data": [bars, bound], "layout": layout if rows else with_note(layout, "no schedule yet")}


def what_if_words(rows: Sequence[Row], *, bound_s: float, used: str = "") -> str:
    """The best, against the one in use and round robin."""
    if not rows:
        return "No schedule yet."
    best = min(rows, key=lambda row: float(row["makespan_s"]))
    mine = next((row for row in rows if row["scheduler"] == used), None)
    even = next((row for row in rows if row["scheduler"] in (PSG, "round_robin")), None)
    words = []
    if mine is not None and best["makespan_s"] < mine["makespan_s"] * (1 - 1e-9):
        saved = share(1 - best["makespan_s"] / mine["makespan_s"])
        words.append(f"For the same times {best['scheduler']} would need {saved} less than {used}.")
    elif mine is not None and len(rows) > 1:
        words.append(f"None of the others would be shorter than {used} for the same times.")
    if even is not None and best is not even and best["makespan_s"] < even["makespan_s"]:
        saved = share(1 - best["makespan_s"] / even["makespan_s"])
        words.append(f"{best['scheduler']} needs {saved} less than round robin ({even['scheduler']}).")
    if bound_s > 0:
        left = best["makespan_s"] / bound_s - 1
        words.append(f"No schedule could save more than {share(max(0.0, left / (1 + left)))} of what it needs.")
    return " ".join(words)


def _name(row: Row, used: str) -> str:
    return f"{row['scheduler']}<br>(in use)" if row["scheduler"] == used else str(row["scheduler"])


def _said(row: Row, bound_s: float) -> str:
    text = f"{share(max(0.0, row['makespan_s'] / bound_s - 1))} above the bound" if bound_s > 0 else ""
    text += f" · {row['targets']:,} targets" if row.get("targets") is not None else ""
    return text + (f" · solved in {format_seconds(row['solve_s'])}" if row.get("solve_s") is not None else "")


def _hover(row: Row) -> str:
    text = "" if row.get("imbalance") is None else f", imbalance {row['imbalance']:.3f}"
    return text + (f"<br>{row['notes']}" if row.get("notes") else "")
