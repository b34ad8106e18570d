"""Energy of GPUs and processors, and seconds of an epoch, by data set, batch size and method: Table I as text.

Rows are those of :mod:`dtdg_lab.views.energy_by_method`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from dtdg_lab.views.text_table import text_table

Row = Mapping[str, Any]
Setting = tuple[str, str, str]  # data set, condition, batch size
_BLOCKS = (("gpu_j", "GPU"), ("cpu_j", "CPU"), ("joules", "all"), ("epoch_s", "epoch"))
_NAMES = 4  # columns that are words
_FEW_SEEDS = 2  # from which there is a spread
_KILO = 1e4  # joules from which a column is in kJ


def energy_table(rows: Sequence[Row], *, markdown: bool = False) -> str:
    """The table: a line for each data set, condition, batch size and method; means with the spread of the seeds.

    The least joules of all methods in a setting have a star, in the column of all joules. What is unknown is a dash,
    never 0.

    Args:
        rows: one for each run.
        markdown: with bars and a rule; else columns of fixed width.
    """
    cells: dict[Setting, dict[str, list[Row]]] = {}
    for row in rows:
        setting = (str(row.get("dataset", "")), str(row.get("condition", "")), _size(row))
        cells.setdefault(setting, {}).setdefault(str(row["method"]), []).append(row)
    kilo = max((float(row["joules"]) for row in rows if row.get("joules") is not None), default=0.0) >= _KILO
    unit = "kJ" if kilo else "J"
    heads = ["data set", "condition", "batch", "method", "seeds"]
    heads += [f"{name} (s)" if column == "epoch_s" else f"{name} ({unit})" for column, name in _BLOCKS]
    lines = [heads]
    for (dataset, condition, size), methods in cells.items():
        means = {name: fmean(known) for name, each in methods.items() if (known := _known(each, "joules"))}
        least = min(means, key=lambda name: means[name]) if len(means) > 1 else None
        for name, each in methods.items():
            told = [_told(_known(each, column), 1e3 if kilo and column != "epoch_s" else 1.0) for column, _ in _BLOCKS]
            told[2] += " *" if name == least else ""
            lines.append([dataset, condition, size, name, str(len(each)), *told])
    return text_table(lines, words=_NAMES, markdown=markdown)


def _size(row: Row) -> str:
    return "" if row.get("batch_size") is None else str(row["batch_size"])


def _known(rows: Sequence[Row], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row.get(column) is not None]


def _told(values: Sequence[float], factor: float) -> str:
    if not values:
        return "-"
    scaled = [value / factor for value in values]
    spread = f" ± {stdev(scaled):.2g}" if len(scaled) >= _FEW_SEEDS else ""
    return f"{fmean(scaled):.4g}{spread}"
