"""The style of the lab's HTML pages, and helpers that escape their content."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from dtdg_lab.visualization.style import variables

# Pages may not load external content; browsers enforce it, so a report looks the same offline.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)

# printed pages are light
STYLE = f"""
:root {{ {variables("light")} color-scheme: light; }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables("dark")} color-scheme: dark; }} }}
"""
STYLE += """
* { box-sizing: border-box; }
body { font: 14px/1.45 Helvetica, Arial, sans-serif; color: var(--dl-text); background: var(--dl-page); margin: 0 auto;
       max-width: 1100px; padding: 28px 24px 48px; }
h1 { font-size: 22px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 30px 0 8px; padding-bottom: 4px; border-bottom: 1px solid var(--dl-line); }
p { margin: 0 0 8px; }
.soft { color: var(--dl-soft); }
.state { font-weight: bold; }
.state.finished { color: var(--dl-good); }
.state.failed { color: var(--dl-bad); }
.numbers { display: grid; grid-template-columns: repeat(5, 1fr); gap: 8px; margin: 16px 0 4px; }
.number { background: var(--dl-back); border-radius: 4px; padding: 8px 10px; break-inside: avoid; }
.number b { display: block; font-size: 18px; font-weight: bold; white-space: nowrap; }
.number span { color: var(--dl-soft); font-size: 12px; display: block; }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 18px 20px; }
.chart { break-inside: avoid; min-width: 0; }
.chart p { font-size: 13px; margin: 2px 0 0; }
.plot { height: 340px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; font-weight: bold; color: var(--dl-soft); }
th, td { padding: 3px 14px 3px 0; border-bottom: 1px solid var(--dl-line); vertical-align: top;
         overflow-wrap: anywhere; }
td.value { max-width: 330px; font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 12.5px; }
td.tight, th.tight { white-space: nowrap; overflow-wrap: normal; }
tr { break-inside: avoid; }
tr.changed td { background: var(--dl-changed); }
pre { background: var(--dl-back); border-radius: 4px; padding: 10px 12px; font-size: 12.5px; overflow-x: auto;
      margin: 4px 0 12px; font-family: ui-monospace, Menlo, Consolas, monospace; break-inside: avoid; }
@media (max-width: 800px) { .charts { grid-template-columns: 1fr; }
                            .numbers { grid-template-columns: repeat(3, 1fr); } }
@media print { body { padding: 0; } pre { white-space: pre-wrap; } }
"""


def text(value: Any) -> str:
    """A value as escaped text; None is ``unknown``."""
    return html.escape("unknown" if value is None else str(value), quote=True)


def section(title: str, body: str) -> str:
    """A headed part of the page; ``body`` is HTML."""
    return f"<section><h2>{text(title)}</h2>{body}</section>\n"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    value: int | None = None,
    changed: frozenset[int] = frozenset(),
) -> str:
    """A table of escaped cells.

    Args:
        head: names of the columns.
        rows: the cells, row by row.
        value: the column that holds values, set in a monospaced font.
        changed: numbers of the rows to mark.
    """
    last = len(head) - 1
    cells = [" class='tight'" if place not in (last, value) else "" for place in range(len(head))]
    if value is not None:
        cells[value] = " class='value'"
    names = "".join(f"<th{kind}>{text(name)}</th>" for kind, name in zip(cells, head, strict=True))
    lines = [f"<tr>{names}</tr>"]
    for number, row in enumerate(rows):
        mark = " class='changed'" if number in changed else ""
        lines.append(
            f"<tr{mark}>" + "".join(f"<td{kind}>{text(cell)}</td>" for kind, cell in zip(cells, row, strict=True))
        )
    return "<table>" + "</tr>\n".join(lines) + "</tr></table>"


def document(title: str, body: str, *, scripts: Iterable[str] = ()) -> str:
    """A whole page; ``body`` is HTML, scripts are trusted and placed at the end."""
    code = "".join(f"<script>{script}</script>\n" for script in scripts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n<title>{text(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style></head>\n'
        f"<body>\n{body}\n{code}</body></html>\n"
    )
