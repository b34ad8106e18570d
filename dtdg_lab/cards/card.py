"""``lab.card``: one page about a system: idea, formulas, code locations, and reported and measured results."""

from __future__ import annotations

import ast
import html
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dtdg_lab.cards.pictures import drawn_pictures, picture_note, run_pictures
from dtdg_lab.cards.text import CardText
from dtdg_lab.cards.texts import (
    DYGNEX_CARDS,
    DYNAHB_CARDS,
    ESDG_CARDS,
    FLAREDTDG_CARDS,
    GREENDYGNN_CARDS,
    PAPERS,
    REFERENCE_CARDS,
)
from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import System, option_owners
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, NotAvailableError, RunStoreError, UnknownNameError, shortened
from dtdg_lab.core.options import OPTIONS, default
from dtdg_lab.runs.directory import write_text
from dtdg_lab.runs.html import document
from dtdg_lab.runs.html import text as escaped
from dtdg_lab.runs.run import open_run
from dtdg_lab.visualization.cards import Panel
from dtdg_lab.visualization.grid import grid
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.svg import figure_svg

# How to run a system: a cell as text, and its settings.


EPOCHS = 5


def card_config(text: CardText) -> RunConfig:
    """The settings of the cell: small, on one rank if possible.

    Args:
        text: of the card.
    """
    return RunConfig(**_settings(text))


def run_cell(text: CardText) -> str:
    """A cell that trains the system and draws the run: in this process, or on a session if it needs several ranks.

    Args:
        text: of the card.
    """
    settings = _settings(text)
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    lines = ["import dtdg_lab as lab", "", f"config = lab.RunConfig({given})"]
    if settings["ranks"] > 1:
        return "\n".join([*lines, *_session("config"), "lab.plot(run)"])
    lines += ["run = lab.train(config)", "lab.plot(run)"]
    if text.system != "single":
        lines += ["# on two processes, live:", *(f"# {line}" for line in _session("config.replace(ranks=2)"))]
    return "\n".join(lines)


def _session(config: str) -> list[str]:
    return ["with lab.Session(ranks=2) as session:", f"    run = session.train({config})", "    run.wait()"]


def _settings(text: CardText) -> dict[str, Any]:
    return {"system": text.system, "dataset": "growing", "ranks": 1, **text.settings, "epochs": EPOCHS}


# Location of a system in our code: file and line of the catalogue's targets, found without importing them.


_ROOT = Path(__file__).resolve().parents[2]  # the package's parent folder
_END = r"(?:\n\s*\n|\n\s*(?:Args|Raises|Returns|Attributes):|$)"
_DIFFERS = re.compile(r"Differs from the papers?[:,] ?(.*?)" + _END, re.S)
_BEGINS = (("it ", "The paper "), ("its ", "The paper's "), ("they ", "The papers "))


class CodePlace(NamedTuple):
    """A class or function.

    Attributes:
        role: section of the catalogue, or ``also``.
        name: in the catalogue, or in its module.
        file: relative to the root of the repository, with ``/``.
        line: first line, counted from 1.
        summary: one sentence.
    """

    role: str
    name: str
    file: str
    line: int
    summary: str

    @property
    def link(self) -> str:
        """Path from the root of the repository, as on GitHub."""
        return f"{self.file}#L{self.line}"


class Difference(NamedTuple):
    """The difference from its paper that a docstring states; ``file`` and ``line`` locate the described object."""

    file: str
    line: int
    text: str


def code_places(system: System, more: tuple[str, ...] = ()) -> list[CodePlace]:
    """The components of the system in the catalogue, then further code worth reading.

    Args:
        system: of the catalogue.
        more: targets as text, ``module:name``, or a module alone.

    Raises:
        ConfigError: a file is missing, or does not define the name.
    """
    entries = [catalogue.entry(room, name) for room, name in system.parts.items()]
    found = [_place(entry.target, entry.kind, entry.name, entry.summary) for entry in entries]
    return found + [_place(target, "also", "", "") for target in more]


def differences(places: list[CodePlace]) -> list[Difference]:
    """The differences from the papers that docstrings of these files state, each once."""
    found = [each for file in dict.fromkeys(place.file for place in places) for each in _to_dict(file)]
    return list({each.text: each for each in found}.values())


def _place(target: str, role: str, name: str, summary: str) -> CodePlace:
    module, _, attribute = target.partition(":")
    file = module.replace(".", "/") + ".py"
    tree = _tree(file)
    node: ast.AST = tree
    if attribute:
        defined = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
        if attribute not in defined:
            raise ConfigError(f"{file} defines no {attribute!r}: a card or the catalogue names it. Correct the name.")
        node = defined[attribute]
    line = getattr(node, "lineno", 1)
    return CodePlace(role, name or attribute or Path(file).stem, file, line, summary or _first_sentence(node))


@cache
def _tree(file: str) -> ast.Module:
    path = _ROOT / file
    if not path.is_file():
        raise ConfigError(f"{file} is missing: a card or the catalogue names it. Correct the name.")
    return ast.parse(path.read_text(encoding="utf-8"))


def _first_sentence(node: ast.AST) -> str:
    text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else ""
    return " ".join((text or "").split("\n\n")[0].replace("``", "").split())


def _to_dict(file: str) -> Iterator[Difference]:
    for node in ast.walk(_tree(file)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        for described in _DIFFERS.findall(ast.get_docstring(node) or ""):
            text = " ".join(described.replace("``", "").split())
            if text and not text.startswith("nothing known"):
                yield Difference(file, getattr(node, "lineno", 1), _as_sentence(text))


def _as_sentence(text: str) -> str:
    """The text after *Differs from the paper:*, if it forms its own paragraph."""
    for word, instead in _BEGINS:
        if text.startswith(word):
            return instead + text[len(word) :]
    return text[0].upper() + text[1:]


# Formulas of cards: written in a subset of TeX notation, shown as MathML or as a line of text.


SYMBOLS: Mapping[str, str] = MappingProxyType(
    {
        "alpha": "α",
        "beta": "β",
        "gamma": "γ",
        "delta": "δ",
        "epsilon": "ε",
        "theta": "θ",
        "lambda": "λ",
        "mu": "μ",
        "pi": "π",
        "rho": "ρ",
        "sigma": "σ",
        "tau": "τ",
        "xi": "ξ",
        "phi": "φ",
        "Delta": "Δ",
        "Gamma": "Γ",
        "ell": "ℓ",
        "cdot": "·",
        "times": "×",
        "le": "≤",
        "ge": "≥",
        "ne": "≠",
        "approx": "≈",
        "in": "∈",
        "notin": "∉",
        "cup": "∪",
        "subseteq": "⊆",
        "to": "→",
        "gets": "←",
        "infty": "∞",
        "forall": "∀",
        "lfloor": "⌊",
        "rfloor": "⌋",
        "lceil": "⌈",
        "rceil": "⌉",
        "langle": "⟨",
        "rangle": "⟩",
        "circ": "∘",
        "ldots": "…",
        "nabla": "∇",
        "pm": "±",
        "|": "‖",
        "{": "{",
        "}": "}",
    }
)
LARGE = MappingProxyType({"sum": "∑", "max": "max", "min": "min", "bigcup": "⋃", "argmax": "arg max"})
# the sign above in MathML, and the mark that follows a letter in text
_ACCENTS = MappingProxyType({"hat": ("^", "\u0302"), "tilde": ("~", "\u0303"), "bar": ("¯", "\u0304")})
_TOKEN = re.compile(r"\\([A-Za-z]+|[|{},])|([A-Za-z])|(\d+(?:\.\d+)?)|(\s+)|(.)")
_LETTERS = frozenset("αβγδεθλμπρσταξφℓΔΓ∞")


class Piece(NamedTuple):
    """A part of a formula, as MathML and as text; ``large`` if limits stand below and above it."""

    mathml: str
    text: str
    large: bool = False


def mathml(formula: str) -> str:
    """A ``<math>`` element of its own line.

    Args:
        formula: such as ``T = sum_{i=1}^{m} T_i``, with a backslash before each command.

    Raises:
        ConfigError: a brace is not closed, or a command is unknown.
    """
    piece = _Reader(formula).all()
    return (
        '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block" '
        f'aria-label="{html.escape(piece.text, quote=True)}">{piece.mathml}</math>'
    )


def plain(formula: str) -> str:
    """The formula as a line of text.

    Raises:
        ConfigError: as of :func:`mathml`.
    """
    return _Reader(formula).all().text


class _Reader:
    """Reads one formula from left to right."""

    def __init__(self, formula: str) -> None:
        self._formula = formula
        self._tokens = [match for match in _TOKEN.finditer(formula) if not match[4]]
        self._at = 0

    def all(self) -> Piece:
        found = self._row(until="")
        if self._at < len(self._tokens):
            raise self._error("there is a closing brace without an opening one")
        return found

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"formula {self._formula!r}: {what}. Known commands: {', '.join([*SYMBOLS, *LARGE])}.")

    def _next(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _row(self, until: str) -> Piece:
        pieces: list[Piece] = []
        while (token := self._next()) not in ("", "}", until):
            pieces.append(self._scripted(self._piece()) if token not in "_^" else self._scripted(Piece("<mrow/>", "")))
        return Piece(f"<mrow>{''.join(each.mathml for each in pieces)}</mrow>", "".join(each.text for each in pieces))

    def _scripted(self, base: Piece) -> Piece:
        """The piece with its subscript and superscript."""
        scripts: dict[str, Piece] = {}
        while (mark := self._next()) in ("_", "^") and mark:
            if mark in scripts:
                raise self._error(f"one piece has two {mark}")
            self._at += 1
            scripts[mark] = self._piece()
        if not scripts:
            return base
        text = base.text.rstrip() + "".join(mark + _bracketed(piece.text) for mark, piece in scripts.items())
        text += " " if base.large else ""
        kind = {"_": "under", "^": "over"} if base.large else {"_": "sub", "^": "sup"}
        name = "m" + "".join(kind[mark] for mark in "_^" if mark in scripts)
        inner = base.mathml + "".join(scripts[mark].mathml for mark in "_^" if mark in scripts)
        return Piece(f"<{name}>{inner}</{name}>", text)

    def _group(self) -> Piece:
        if self._next() != "{":
            raise self._error("a group in braces is missing")
        self._at += 1
        found = self._row(until="}")
        if self._next() != "}":
            raise self._error("a brace is not closed")
        self._at += 1
        return found

    def _piece(self) -> Piece:
        token = self._next()
        if token == "{":
            return self._group()
        if not token or token == "}":
            raise self._error("it is incomplete")
        match = self._tokens[self._at]
        self._at += 1
        if match[1]:
            return self._command(match[1])
        if match[2]:
            return Piece(f"<mi>{match[2]}</mi>", match[2])
        if match[3]:
            return Piece(f"<mn>{match[3]}</mn>", match[3])
        return _operator(match[5])

    def _command(self, name: str) -> Piece:
        if name == "text":
            return self._words()
        if name == "frac":
            over, under = self._group(), self._group()
            text = f"{_bracketed(over.text, '()')}/{_bracketed(under.text, '()')}"
            return Piece(f"<mfrac>{over.mathml}{under.mathml}</mfrac>", text)
        if name in _ACCENTS:
            inner, (sign, mark) = self._group(), _ACCENTS[name]
            accent = f'<mover accent="true">{inner.mathml}<mo>{sign}</mo></mover>'
            return Piece(accent, inner.text + mark)
        if name in LARGE:
            return Piece(f"<mo>{LARGE[name]}</mo>", f"{LARGE[name]} ", large=True)
        if name in ("quad", ","):
            return Piece(f'<mspace width="{1 if name == "quad" else 0.3}em"/>', "   " if name == "quad" else " ")
        if name not in SYMBOLS:
            raise self._error(f"the command {name!r} is not known")
        return _operator(SYMBOLS[name])

    def _words(self) -> Piece:
        """The content of braces, literally."""
        start = self._tokens[self._at].end() if self._next() == "{" else -1
        stop = self._formula.find("}", start)
        if start < 0 or stop < 0:
            raise self._error("\\text needs a group in braces")
        while self._tokens[self._at].start() < stop:
            self._at += 1
        self._at += 1
        words = self._formula[start:stop]
        return Piece(f"<mtext>{html.escape(words).replace(' ', '&#160;')}</mtext>", words)


def _operator(sign: str) -> Piece:
    """A sign; relations and sums get spaces in text."""
    if sign in _LETTERS:
        return Piece(f"<mi>{sign}</mi>", sign)
    roomy = sign in "=+−≤≥≠≈∈∉∪⊆→←<>·×"
    sign = "−" if sign == "-" else sign
    roomy = roomy or sign == "−"
    still = ' stretchy="false"' if sign in "()[]{}|⌊⌋⌈⌉" else ""
    return Piece(f"<mo{still}>{html.escape(sign)}</mo>", f" {sign} " if roomy else f"{sign} " if sign == "," else sign)


def _bracketed(text: str, brackets: str = "{}") -> str:
    return text if len(text) == 1 else f"{brackets[0]}{text}{brackets[1]}"


# The page of a card: HTML without scripts or external content, and plain text.


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
_NO_NUMBER = "The README has no results for this system yet."


def card_html(
    system: System, text: CardText, pictures: Sequence[Panel], *, note: str = "", root: str | None = ""
) -> str:
    """The whole card as one element with its style; pictures are static.

    Args:
        system: of the catalogue.
        text: of the card.
        pictures: charts with their captions; without any, the section shows only ``note``.
        note: text before the pictures, such as the run that they show.
        root: prefix of links into the code, such as ``../``: they are relative to the repository; None for no
            links, on a page without files beside it.
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
        _section("Pictures", f"<p class='quiet'>{escaped(note)}</p><div class='pictures'>{drawn}</div>")
        if drawn or note
        else "",
        _section("Code", _code(system, text, places, root)),
        _section("Results in the paper", _reported(text)),
        _section("Our measurements", _measured(text)),
        _section("Differences from the paper", _differs(text, _docstring_differences(system, places), root)),
        _section("How to run it", f"<pre>{escaped(run_cell(text))}</pre>"),
    ]
    return f"<div class='dtdg-card'><style>{STYLE}</style>{''.join(sections)}</div>"


def card_plain(system: System, text: CardText) -> str:
    """The card without pictures and lists of options, as lines of text."""
    places = code_places(system, text.code)
    lines = [f"{system.name}: {system.summary}", f"Source: {system.source}. {text.paper.reference}.", ""]
    lines += [f"{number}. {caption}" for number, caption in enumerate(text.idea, start=1)]
    lines += ["", *(f"{plain(each.formula)}    ({each.meaning})" for each in text.formulas)]
    lines += ["", "Code:", *(f"  {place.file}:{place.line}  {place.name}" for place in places)]
    lines += ["", f"Reported ({text.paper.protocol}):" if text.reported else "The paper reports no results for it."]
    lines += [f"  {each.what}: {each.value} ({each.where})" for each in text.reported]
    lines += ["", "Measured here:" if text.measured else _NO_NUMBER]
    lines += [f"  {each.what}: {each.value} ({each.command})" for each in text.measured]
    described = [*text.differs, *(each.text for each in _docstring_differences(system, places))]
    lines += ["", "Differences from the paper:" if described else "", *(f"  {each}" for each in described)]
    return "\n".join([*(textwrap.fill(line, 118, subsequent_indent="    ") for line in lines), "", run_cell(text)])


def _docstring_differences(system: System, places: Sequence[CodePlace]) -> list[Difference]:
    """The differences stated in docstrings; those of congestion patterns only if these are part of the idea."""
    remote = system.parts["parallel"] == "remote_feature"
    return differences([place for place in places if remote or place.role != "congestion"])


def _section(title: str, body: str) -> str:
    return f"<section><h3>{escaped(title)}</h3>{body}</section>"


def _items(captions: Sequence[str]) -> str:
    return "".join(f"<li>{escaped(caption)}</li>" for caption in captions)


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
    """A table whose cells are HTML."""
    names = "".join(f"<th>{escaped(name)}</th>" for name in head)
    lines = (
        "<tr>" + "".join(f"<td class='{kind}'>{cell}</td>" for kind, cell in zip(classes, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{names}</tr>{''.join(lines)}</table>"


def _code(system: System, text: CardText, places: Sequence[CodePlace], root: str | None) -> str:
    rows = [
        (
            escaped(place.role),
            f"<code>{escaped(place.name)}</code>",
            _link(root, place.file, place.line),
            escaped(place.summary),
        )
        for place in places
    ]
    made = _table(("section", "name", "file and line", "description"), rows, ("place", "place", "place", ""))
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
        usual = default(name, system=system.name, dataset=config.dataset, protocol=config.protocol)
        when = {"step": "at the next step", "epoch": "at the next epoch", "no": "in a new run"}[option.live]
        unit = f" {option.unit}" if option.unit else ""
        rows.append((f"<code>{escaped(name)}</code>", escaped(f"{usual}{unit}"), when, escaped(option.meaning)))
    return rows


def _link(root: str | None, file: str, line: int) -> str:
    named = f"{escaped(file)}:{line}"
    return named if root is None else f"<a href='{escaped(f'{root}{file}#L{line}')}'>{named}</a>"


def _reported(text: CardText) -> str:
    protocol = f"<p class='quiet'>Setup: {escaped(text.paper.protocol)}.</p>"
    if not text.reported:
        return "<p>The paper reports no results for this system.</p>"
    rows = [(escaped(each.what), escaped(each.value), escaped(each.where)) for each in text.reported]
    return protocol + _table(("what", "reported", "where"), rows, ("", "figure", ""))


def _measured(text: CardText) -> str:
    if not text.measured:
        return f"<p>{_NO_NUMBER}</p>"
    rows = [
        (escaped(each.what), escaped(each.value), f"<code>{escaped(each.command)}</code>") for each in text.measured
    ]
    said = "<p class='quiet'>Measured on two cores without a GPU, see the README; results depend on the machine.</p>"
    return said + _table(("what", "measured", "command"), rows, ("", "figure", ""))


def _differs(text: CardText, described: Sequence[Difference], root: str | None) -> str:
    own = [escaped(each) for each in text.differs]
    places = [_link(root, each.file, each.line) for each in described]
    read = [
        f"{escaped(each.text)} <span class='quiet'>{place}</span>"
        for each, place in zip(described, places, strict=True)
    ]
    if not own and not read:
        return "<p>None known.</p>"
    return f"<ul>{''.join(f'<li>{each}</li>' for each in (*own, *read))}</ul>"


# The texts of all cards, by system.


TEXTS: Mapping[str, CardText] = MappingProxyType(
    {
        text.system: text
        for text in (*REFERENCE_CARDS, *DYGNEX_CARDS, *ESDG_CARDS, *DYNAHB_CARDS, *FLAREDTDG_CARDS, *GREENDYGNN_CARDS)
    }
)

# names of papers, and the main system of each
_NAMES = {paper.name.lower(): paper.main for paper in PAPERS}
MAIN: Mapping[str, str] = MappingProxyType({**_NAMES, "flare": "flaredtdg"})


def card(name: str, *, run: Any = None) -> Card:
    """A page about a system of the catalogue; it renders in a notebook, and prints as text elsewhere.

    Args:
        name: of the system, or of a paper, which selects its main system (``esdg``, ``dynahb``, ``dygnex``,
            ``flaredtdg``,
            ``greendygnn``).
        run: of this system, whose charts replace those of a small graph: a run, or its folder.

    Raises:
        UnknownNameError: there is no such system or paper; the closest match is named.
        ConfigError: the run is of another system, or has recorded nothing yet.
    """
    known = name.strip().lower() if isinstance(name, str) else name
    system = MAIN.get(known, known) if isinstance(known, str) else known
    if not isinstance(system, str) or system not in TEXTS:
        raise UnknownNameError("card", name, {*TEXTS, *MAIN})
    opened = open_run(run) if isinstance(run, str | Path) else run
    if opened is not None and not hasattr(opened, "live"):
        raise ConfigError(f"run={shortened(run)}: give a run or its folder.")
    return Card(system, opened)


class Card:
    """A page about a system: see :func:`card`.

    Args:
        name: of the system.
        run: whose charts are shown; None for those of a small graph.

    Raises:
        ConfigError: as of :func:`card`.
    """

    def __init__(self, name: str, run: Any = None) -> None:
        self.system = catalogue.system(name)
        self.text = TEXTS[name]
        self.run = run
        if run is not None:
            self.pictures = self._of_run(run)

    def __repr__(self) -> str:
        return card_plain(self.system, self.text)

    @cached_property
    def pictures(self) -> list[Panel]:
        """Charts with their captions, computed on first use; none if a required library is missing."""
        try:
            return drawn_pictures(self.system)
        except NotAvailableError as error:
            self._lacks = str(error)
            return []

    _lacks = ""

    @property
    def note(self) -> str:
        """The source of the pictures."""
        if self.run is not None:
            return f"Of run {self.run.id}."
        return f"No pictures: {self._lacks}" if self._lacks else picture_note(self.system)

    @property
    def figure(self) -> Figure:
        """All pictures in one, for ``lab.plot``.

        Raises:
            ConfigError: there is none, because a library is missing.
        """
        if not self.pictures:
            raise ConfigError(self.note)
        return grid(self.pictures, title=self.system.name)

    @property
    def code(self) -> list[CodePlace]:
        """Its location in our code."""
        return code_places(self.system, self.text.code)

    @property
    def cell(self) -> str:
        """A cell that runs it."""
        return run_cell(self.text)

    def html(self, root: str = "") -> str:
        """The card as an HTML element without scripts.

        Args:
            root: prefix of links into the code; they are relative to the repository.
        """
        pictures = self.pictures  # first: the note depends on it
        return card_html(self.system, self.text, pictures, note=self.note, root=root)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the card as a self-contained page.

        Args:
            path: of the file.
            overwrite: whether an existing file may be overwritten.

        Raises:
            RunStoreError: it cannot be written, or exists already.
        """
        file = Path(path)
        if file.exists() and not overwrite:
            raise RunStoreError(f"{file} exists already: give another name, or overwrite=True to overwrite it.")
        return write_text(file, document(f"{self.system.name} · DTDG Lab", self.html()))

    def _of_run(self, run: Any) -> list[Panel]:
        lock = getattr(run, "lock", None)
        if lock is None:
            return run_pictures(self.system, run)
        with lock:
            return run_pictures(self.system, run)

    def _repr_html_(self) -> str:
        return self.html(_way_to_repository())


def _way_to_repository() -> str:
    """Path from the notebook's folder to the repository, if the package is in one nearby: ``../`` in a lesson."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "pyproject.toml").is_file():
        return ""
    for up, folder in enumerate((Path.cwd(), *Path.cwd().parents)):
        if folder == root:
            return "../" * up
    return ""
