"""HTML pages of the lab: jinja2 templates with automatic escaping."""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.units import format_bytes, format_joules, format_seconds, join_words, percent
from dtdg_lab.runs.json_files import dumps
from dtdg_lab.visualization.metrics import BASELINE, metric_name
from dtdg_lab.visualization.palette import theme_script, variables

if TYPE_CHECKING:
    from jinja2 import Environment, Template


@cache
def templates() -> Environment:
    """Return the package's templates; an undefined name is an error, and None is shown as ``unknown``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parents[1]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: "unknown" if value is None else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies |= {"json.dumps_function": dumps, "json.dumps_kwargs": {}}
    environment.globals |= {"variables": variables, "theme_script": theme_script, "BASELINE": BASELINE}
    environment.filters |= {
        "seconds": format_seconds,
        "bytes": format_bytes,
        "joules": format_joules,
        "number": lambda value: None if value is None else f"{value:.4g}",
        "share": lambda value: None if value is None else f"{100 * value:.1f}%",
        "metric": metric_name,
        "words": join_words,
        "percent": percent,
    }
    return environment


def render(template: str, **values: Any) -> str:
    """Render a template of the package, such as ``runs/templates/report.html``.

    Raises:
        AttributeError: a value lacks an attribute that the template reads, for example because a file is damaged.
    """
    from jinja2 import UndefinedError

    try:
        return templates().get_template(template).render(values)
    except UndefinedError as error:
        raise AttributeError(str(error)) from error


@cache
def template(path: str) -> Template:
    """Return a template of code, without escaping."""
    return templates().overlay(autoescape=False).get_template(path)


def text(value: Any) -> str:
    """Return a value as escaped text; None gives ``unknown``."""
    return html.escape("unknown" if value is None else str(value), quote=True)


def plotly_js() -> str | None:
    """Return the source of plotly.js; None if plotly is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return None
    return str(get_plotlyjs())
