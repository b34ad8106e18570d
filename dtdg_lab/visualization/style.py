"""Style of all charts: themes, marks, metric names, colours, thinning, and text tables."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.catalogue import metrics_of
from dtdg_lab.records.link_metrics import is_score
from dtdg_lab.visualization.palette import DARK_COLOURS, PAGE_COLOURS

# Vertical marks: changes of settings and resumes, at the step they were applied, checked over all ranks.


def short(value: Any) -> str:
    """A setting's value as marks have it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# Names of metrics in charts and sentences, and which metric of a task stands beside its loss.


_WORDS = {"mrr": "MRR", "auc": "AUC", "mae": "mean absolute error"}
BASELINE = "persistence_"


def words(metric: str) -> str:
    """What a metric is called in a chart."""
    return _WORDS.get(metric, metric.replace("_", " ").replace("f1", "F1"))


def finite(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """The scores of an evaluation that have a value; runs recorded before there were metrics have none."""
    found = {name: float(value) for name, value in (metrics or {}).items() if value is not None and is_score(name)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def main_metric(task: str, metrics: Container[str]) -> str | None:
    """The metric of a task that is drawn beside its loss; None where there is none of them."""
    return next((name for name in metrics_of(task) if name in metrics), None)


# Rows of words as a table in text.


def text_table(lines: Sequence[Sequence[str]], *, words: int = 1, markdown: bool = False) -> str:
    """A table with its head in the first line.

    Args:
        lines: the cells, all lines as many.
        words: columns from the left that hold words; the others hold numbers and stand to the right.
        markdown: with bars and a rule; else columns of fixed width.
    """
    if markdown:
        head, *body = lines
        rule = ["---"] * words + ["---:"] * (len(head) - words)
        return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


# The light and the dark theme for pages: CSS variables, and the script that draws figures in either.


@cache
def theme_script() -> str:
    """JavaScript functions (``theme.js``) with the colours they need: no exports, to be put before other code."""
    dark = {light.upper(): colour for light, colour in DARK_COLOURS.items()}
    page = {theme: dict(colours) for theme, colours in PAGE_COLOURS.items()}
    constants = f"const DL_DARK = {json.dumps(dark)}\nconst DL_PAGE = {json.dumps(page)}\n"
    return constants + (Path(__file__).parent / "theme.js").read_text(encoding="utf-8")


def variables(theme: str) -> str:
    """The colours of a page in ``light`` or ``dark`` as CSS variables ``--dl-...``."""
    return " ".join(f"--dl-{name}: {colour};" for name, colour in PAGE_COLOURS[theme].items())


def coloured(name: str) -> str:
    """A page colour for a style: the theme's where there is one, else that of the light theme."""
    return f"var(--dl-{name}, {PAGE_COLOURS['light'][name]})"


# Long series for small pictures: few points that still show every peak.


MOST = 1000


def shown_indices(values: NDArray[np.floating], most: int = MOST) -> NDArray[np.int64]:
    """Which of T values to draw: all of them, or the smallest and the largest of each of ``most`` / 2 stretches.

    The first and the last are always drawn; NaN counts as neither small nor large.

    Args:
        values: shape (T,).
        most: about how many to draw.

    Returns:
        Increasing indices, at most ``most`` + 2.
    """
    count = len(values)
    if count <= most:
        return np.arange(count)
    bounds = np.linspace(0, count, most // 2 + 1).astype(np.int64)
    low, high = (np.where(np.isnan(values), fill, values) for fill in (np.inf, -np.inf))
    length = int(np.diff(bounds).max())
    # one row a stretch; places after its end repeat its last value
    places = np.minimum(bounds[:-1, None] + np.arange(length), bounds[1:, None] - 1)
    rows = np.arange(len(places))
    found = (places[rows, low[places].argmin(axis=1)], places[rows, high[places].argmax(axis=1)])
    return np.unique(np.concatenate([*found, [0, count - 1]]))


def runs_of(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The stretches in which ``flags`` holds, as (first, last) indices."""
    steps = np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8))
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


# The ways that rows take within a step, and the colours and matrices they are drawn in.


PASS_COLOURS: Mapping[str, str] = MappingProxyType({"forward": "#0072B2", "rerun": "#E69F00", "backward": "#4B2A7B"})
