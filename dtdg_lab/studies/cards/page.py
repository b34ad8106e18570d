"""The page of a card: HTML that needs no script and asks for nothing, and plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dtdg_lab.core.catalogue import System, option_owners
from dtdg_lab.core.defaults import default
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.runs.page import text as escaped
from dtdg_lab.studies.cards.cell import card_config, run_cell
from dtdg_lab.studies.cards.code_places import CodePlace, Difference, code_places, differences
from dtdg_lab.studies.cards.formula import mathml, plain
from dtdg_lab.studies.cards.text import CardText
from dtdg_lab.views.card_pictures import Panel
from dtdg_lab.views.svg import figure_svg

STYLE = """
.dtdg-card { font: 14px/1.5 Helvetica, Arial, sans-serif; max-width: 1120px; color: inherit; }
.dtdg-card h2 { font-size: 21px; margin: 0; }
.dtdg-card h3 { font-size: 15px; margin: 22px 0 6px; padding-bottom: 3px;
  border-bottom: 1px solid rgba(128,128,128,.35); }
.dtdg-card p { margin: 0 0 6px; }
.dtdg-card .quiet { opacity: .78; font-size: 13px; }
.dtdg-card ol, .dtdg-card ul { margin: 4px 0 4px 22px; padding: 0; }
.dtdg-card li { margin: 2px 0; }
.dtdg-card .formulas { display: grid; grid-template-columns: minmax(300px, 1.1fr) 1fr; gap: 8px 22px;
  align-items: center; }
.dtdg-card math { font-size: 17px; text-align: left; }
.dtdg-card .pictures { display: flex; flex-wrap: wrap; gap: 12px 16px; }
.dtdg-card figure { margin: 0; width: 512px; max-width: 100%; }
.dtdg-card figure svg { border-radius: 4px; }
.dtdg-card figcaption { font-size: 13px; margin-top: 2px; }
.dtdg-card table { border-collapse: collapse; font-size: 13px; margin: 2px 0 6px; }
.dtdg-card th, .dtdg-card td { text-align: left !important; padding: 3px 18px 3px 0; vertical-align: top;
  border-bottom: 1px solid rgba(128,128,128,.25); background: none; white-space: normal; max-width: 640px; }
.dtdg-card td.figure { white-space: nowrap; font-variant-numeric: tabular-nums; font-weight: bold; }
.dtdg-card td.place { white-space: nowrap; }
.dtdg-card code, .dtdg-card pre { font: 12.5px ui-monospace, Menlo, Consolas, monospace; }
.dtdg-card pre { padding: 10px 12px; border: 1px solid rgba(128,128,128,.35); border-radius: 4px; overflow-x: auto; }
.dtdg-card a { color: inherit; }
@media (max-width: 760px) { .dtdg-card .formulas { grid-template-columns: 1fr; } }
"""
_WIDTH = 512
_NO_NUMBER = "The README has no number of this system yet."


def card_html(
    system: System, text: CardText, pictures: Sequence[Panel], *, note: str = "", root: str | None = ""
) -> str:
    """The whole card as one element with its style; pictures stand still.

    Args:
        system: of the catalogue.
        text: of the card.
        pictures: charts with their sentences; none leaves the section out but for ``note``.
        note: what stands before the pictures, such as which run they are of.
        root: what links into the code begin with, such as ``../``: they are relative to the repository; None for no
            links, where a page has no files beside it.
    """
    places = code_places(system, text.code)
    drawn = "".join(
        f"<figure>{figure_svg(figure, width=_WIDTH, height=270)}<figcaption>{escaped(words)}</figcaption></figure>"
        for figure, words in pictures
    )
    sections = [
        _head(system, text),
        _section("The idea in five sentences", f"<ol>{_items(text.idea)}</ol>"),
        _section("In formulas", _formulas(text)),
        _section("As a picture", f"<p class='quiet'>{escaped(note)}</p><div class='pictures'>{drawn}</div>")
        if drawn or note else "",
        _section("In our code", _code(system, text, places, root)),
        _section("What the paper reports", _reported(text)),
        _section("What was measured here", _measured(text)),
        _section("Where we differ, and why", _differs(text, _told(system, places), root)),
        _section("How to run it", f"<pre>{escaped(run_cell(text))}</pre>"),
    ]  # fmt: skip
    return f"<div class='dtdg-card'><style>{STYLE}</style>{''.join(sections)}</div>"


def card_plain(system: System, text: CardText) -> str:
    """The card without pictures and lists of options, as lines of text."""
    places = code_places(system, text.code)
    lines = [f"{system.name}: {system.summary}", f"Source: {system.source}. {text.paper.reference}.", ""]
    lines += [f"{number}. {sentence}" for number, sentence in enumerate(text.idea, start=1)]
    lines += ["", *(f"{plain(each.formula)}    ({each.meaning})" for each in text.formulas)]
    lines += ["", "In our code:", *(f"  {place.file}:{place.line}  {place.name}" for place in places)]
    lines += ["", f"Reported ({text.paper.protocol}):" if text.reported else "The paper reports no number of it."]
    lines += [f"  {each.what}: {each.value} ({each.where})" for each in text.reported]
    lines += ["", "Measured here:" if text.measured else _NO_NUMBER]
    lines += [f"  {each.what}: {each.value} ({each.command})" for each in text.measured]
    told = [*text.differs, *(each.text for each in _told(system, places))]
    lines += ["", "Where we differ:" if told else "", *(f"  {each}" for each in told)]
    return "\n".join([*(textwrap.fill(line, 118, subsequent_indent="    ") for line in lines), "", run_cell(text)])


def _told(system: System, places: Sequence[CodePlace]) -> list[Difference]:
    """What docstrings say; of patterns of congestion only where these are part of the idea."""
    remote = system.parts["parallel"] == "remote_feature"
    return differences([place for place in places if remote or place.role != "congestion"])


def _section(title: str, body: str) -> str:
    return f"<section><h3>{escaped(title)}</h3>{body}</section>"


def _items(sentences: Sequence[str]) -> str:
    return "".join(f"<li>{escaped(sentence)}</li>" for sentence in sentences)


def _head(system: System, text: CardText) -> str:
    return (
        f"<h2>{escaped(system.name)}</h2><p>{escaped(system.summary)}</p>"
        f"<p class='quiet'>{escaped(system.source)}. {escaped(text.paper.reference)}.</p>"
    )


def _formulas(text: CardText) -> str:
    cells = (
        f"<div>{mathml(each.formula)}</div><div class='quiet'>{escaped(each.meaning)}</div>" for each in text.formulas
    )
    return f"<div class='formulas'>{''.join(cells)}</div>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], classes: Sequence[str]) -> str:
    """A table whose cells are HTML already."""
    names = "".join(f"<th>{escaped(name)}</th>" for name in head)
    lines = (
        "<tr>" + "".join(f"<td class='{kind}'>{cell}</td>" for kind, cell in zip(classes, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{names}</tr>{''.join(lines)}</table>"


def _code(system: System, text: CardText, places: Sequence[CodePlace], root: str | None) -> str:
    rows = [
        (escaped(place.role), f"<code>{escaped(place.name)}</code>", _link(root, place.file, place.line),
         escaped(place.summary))
        for place in places
    ]  # fmt: skip
    made = _table(("room", "name", "file and line", "what it does"), rows, ("place", "place", "place", ""))
    options = _options(system, text)
    if not options:
        return made
    names = ("option", "default here", "changes", "meaning")
    listed = _table(names, options, ("place", "", "place", ""))
    return f"{made}<details><summary>{len(options)} options that it reads</summary>{listed}</details>"


def _options(system: System, text: CardText) -> list[tuple[str, str, str, str]]:
    config = card_config(text)
    owners = option_owners(system.name, config.dataset, config.model)
    rows = []
    for name in dict.fromkeys(name for room in system.parts for name in owners[room]):
        option = OPTIONS[name]
        brought = default(name, system=system.name, dataset=config.dataset, protocol=config.protocol)
        when = {"step": "at the next step", "epoch": "at the next epoch", "no": "in a new run"}[option.live]
        unit = f" {option.unit}" if option.unit else ""
        rows.append((f"<code>{escaped(name)}</code>", escaped(f"{brought}{unit}"), when, escaped(option.meaning)))
    return rows


def _link(root: str | None, file: str, line: int) -> str:
    named = f"{escaped(file)}:{line}"
    return named if root is None else f"<a href='{escaped(f'{root}{file}#L{line}')}'>{named}</a>"


def _reported(text: CardText) -> str:
    protocol = f"<p class='quiet'>Measured there: {escaped(text.paper.protocol)}.</p>"
    if not text.reported:
        return "<p>Nothing: it reports no number of this system.</p>"
    rows = [(escaped(each.what), escaped(each.value), escaped(each.where)) for each in text.reported]
    return protocol + _table(("what", "reported", "where"), rows, ("", "figure", ""))


def _measured(text: CardText) -> str:
    if not text.measured:
        return f"<p>{_NO_NUMBER}</p>"
    rows = [
        (escaped(each.what), escaped(each.value), f"<code>{escaped(each.command)}</code>") for each in text.measured
    ]
    said = "<p class='quiet'>On two cores without a GPU, as the README has it; other machines give other numbers.</p>"
    return said + _table(("what", "measured", "command"), rows, ("", "figure", ""))


def _differs(text: CardText, told: Sequence[Difference], root: str | None) -> str:
    own = [escaped(each) for each in text.differs]
    places = [_link(root, each.file, each.line) for each in told]
    read = [
        f"{escaped(each.text)} <span class='quiet'>{place}</span>" for each, place in zip(told, places, strict=True)
    ]
    if not own and not read:
        return "<p>Nothing that is known.</p>"
    return f"<ul>{''.join(f'<li>{each}</li>' for each in (*own, *read))}</ul>"
