"""``lab.card``: one page about a system, with its idea, formulas, code, and reported and measured results."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cache, cached_property, lru_cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS, WHEN, default
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, NotAvailableError, RunStoreError, UnknownNameError, shortened
from dtdg_lab.core.source_code import parsed
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.charts import drawn_charts
from dtdg_lab.runs.html import plotly_js, render, templates
from dtdg_lab.runs.json_files import write_text
from dtdg_lab.runs.plot import plot
from dtdg_lab.runs.report import page_cards
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.visualization.chart import CaptionedFigure, Chart, ChartOptions, Figure
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# The texts of all cards: one Markdown file per system, after a TOML header with its paper, code and settings.


_HERE = Path(__file__).resolve().parent
_FILE = re.compile(r"\+\+\+\n(.*?)\+\+\+\n(.*)", re.S)


class CardText(NamedTuple):
    """The text of one system's card.

    Attributes:
        system: the system's name in the catalogue.
        paper: name, reference, protocol and main system of the paper that describes it or uses it as a baseline.
        sections: heading -> Markdown, with formulas between double dollar signs.
        code: further places in the code, besides those in the catalogue, as ``module:name``.
        settings: settings of the cell that trains it.
    """

    system: str
    paper: Mapping[str, Any]
    sections: Mapping[str, str]
    code: tuple[str, ...] = ()
    settings: Mapping[str, Any] = MappingProxyType({})


def _read(file: Path) -> CardText:
    match = _FILE.fullmatch(file.read_text(encoding="utf-8"))
    assert match is not None, f"{file} does not begin with TOML between lines of +++"
    facts = tomllib.loads(match[1])
    _, *parts = re.split(r"^## (.+)\n", match[2], flags=re.M)
    sections = {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return CardText(
        file.stem, PAPERS[facts["paper"]], sections, tuple(facts.get("code", ())), facts.get("settings", {})
    )


PAPERS: Mapping[str, Mapping[str, Any]] = tomllib.loads((_HERE / "papers.toml").read_text(encoding="utf-8"))
_TEXTS = {file.stem: _read(file) for file in (_HERE / "texts").glob("*.md")}
TEXTS: Mapping[str, CardText] = {name: _TEXTS[name] for name in catalogue.names("systems") if name in _TEXTS}
# the main system of each paper, by the paper's names
MAIN: Mapping[str, str] = {
    name: paper["main"] for paper in PAPERS.values() for name in (paper["name"].lower(), *paper.get("aliases", ()))
}


# How to train a system: the code of a notebook cell, and its settings.


EPOCHS = 5


def card_config(text: CardText) -> RunConfig:
    """Return the settings of the cell: a small run, on one rank if possible.

    Args:
        text: the card's text.
    """
    return RunConfig(**_settings(text))


def run_cell(text: CardText) -> str:
    """Return code that trains the system and plots the run, in a session if it needs several ranks.

    Args:
        text: the card's text.
    """
    settings = _settings(text)
    arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    lines = ["import dtdg_lab as lab", "", f"config = lab.RunConfig({arguments})"]
    if settings["ranks"] > 1:
        return "\n".join([*lines, *_session("config"), "lab.plot(run)"])
    lines += ["run = lab.train(config)", "lab.plot(run)"]
    if catalogue.system(text.system).family != "single":
        lines += ["# on two processes, live:", *(f"# {line}" for line in _session("config.replace(ranks=2)"))]
    return "\n".join(lines)


def _session(config: str) -> list[str]:
    return ["with lab.Session(ranks=2) as session:", f"    run = session.train({config})", "    run.wait()"]


def _settings(text: CardText) -> dict[str, Any]:
    return {"system": text.system, "dataset": "growing", "ranks": 1, **text.settings, "epochs": EPOCHS}


# Where a system is in our code: the file and line of each target of the catalogue, found without importing it.


_ROOT = _HERE.parents[1]  # the folder that contains the package
_END = r"(?:\n\s*\n|\n\s*(?:Args|Raises|Returns|Attributes):|$)"
_DIFFERS = re.compile(r"Differs from the papers?[:,] ?(.*?)" + _END, re.S)
_BEGINS = (("it ", "The paper "), ("its ", "The paper's "), ("they ", "The papers "))


class CodePlace(NamedTuple):
    """The place of a class or function in the code.

    Attributes:
        role: its section of the catalogue, or ``also``.
        name: its name in the catalogue, or in its module.
        file: its file, relative to the root of the repository, with ``/``.
        line: its first line, counted from 1.
        summary: one sentence about it.
    """

    role: str
    name: str
    file: str
    line: int
    summary: str

    @property
    def link(self) -> str:
        """The path from the root of the repository, with the line, as GitHub writes it."""
        return f"{self.file}#L{self.line}"


class Difference(NamedTuple):
    """A difference from the paper that a docstring states; ``file`` and ``line`` say where."""

    file: str
    line: int
    text: str


def code_places(system: catalogue.System, further: tuple[str, ...] = ()) -> list[CodePlace]:
    """Return the places of the system's components in the catalogue, then of further code worth reading.

    Args:
        system: an entry of the catalogue.
        further: targets written as ``module:name``, or as a module alone.

    Raises:
        ConfigError: a file is missing, or does not define the name.
    """
    entries = [catalogue.entry(room, name) for room, name in system.parts.items()]
    places = [_place(entry.target, entry.kind, entry.name, entry.summary) for entry in entries]
    return places + [_place(target, "also", "", "") for target in further]


def differences(places: list[CodePlace]) -> list[Difference]:
    """Return the differences from the papers that docstrings in these files state, each once."""
    stated = [difference for file in dict.fromkeys(code.file for code in places) for difference in _stated_in(file)]
    return list({difference.text: difference for difference in stated}.values())


def _place(target: str, role: str, name: str, summary: str) -> CodePlace:
    module, _, attribute = target.partition(":")
    file = module.replace(".", "/") + ".py"
    tree = _tree(file)
    node: ast.AST = tree
    if attribute:
        defined = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        if attribute not in defined:
            raise ConfigError(
                f"{file} does not define {attribute!r}, which a card or the catalogue names. Correct the name there."
            )
        node = defined[attribute]
    line = getattr(node, "lineno", 1)
    return CodePlace(role, name or attribute or Path(file).stem, file, line, summary or _first_sentence(node))


@cache
def _tree(file: str) -> ast.Module:
    path = _ROOT / file
    if not path.is_file():
        raise ConfigError(f"{file} is missing, but a card or the catalogue names it. Correct the name there.")
    return parsed(path.read_text(encoding="utf-8"))


def _first_sentence(node: ast.AST) -> str:
    text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else ""
    return " ".join((text or "").split("\n\n")[0].replace("``", "").split())


def _stated_in(file: str) -> Iterator[Difference]:
    for node in ast.walk(_tree(file)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        for paragraph in _DIFFERS.findall(ast.get_docstring(node) or ""):
            text = " ".join(paragraph.replace("``", "").split())
            if text and not text.startswith("nothing known"):
                yield Difference(file, getattr(node, "lineno", 1), _as_sentence(text))


def _as_sentence(text: str) -> str:
    """Return the text that follows *Differs from the paper:* as a sentence of its own."""
    for word, instead in _BEGINS:
        if text.startswith(word):
            return instead + text[len(word) :]
    return text[0].upper() + text[1:]


# The card as Markdown, which notebooks show with MathJax, and the HTML rendered from it.


_SPECIAL = re.compile(r"[\\`*\[\]<|$]|(?<![^\W_])_|_(?![^\W_])")


def card_markdown(system: catalogue.System, text: CardText, *, root: str | None = "", options: bool = True) -> str:
    """Return the whole card except its pictures.

    Args:
        system: an entry of the catalogue.
        text: the card's text.
        root: what to put before links into the code, which are relative to the repository, such as ``../``. None makes
            no links, for a page that is not next to the repository's files.
        options: whether to list the options that the system reads.
    """
    from markupsafe import Markup

    def link(location: CodePlace | Difference) -> str:
        named = f"{location.file}:{location.line}"
        return named if root is None else Markup(f"[{_escaped(named)}]({root}{location.file}#L{location.line})")

    places = code_places(system, text.code)
    # differences of congestion patterns are shown only if congestion is part of the system's idea
    remote = system.parts["parallel"] == "remote_feature"
    template = _markdown_templates().get_template("cards/templates/card.md.jinja")
    return template.render(
        system=system,
        paper=text.paper,
        sections=text.sections,
        places=places,
        link=link,
        options=_options(system, text) if options else [],
        differences=differences([code for code in places if remote or code.role != "congestion"]),
        cell=run_cell(text),
    )


@cache
def _markdown_templates() -> Any:
    """Return templates of Markdown, in which all values except trusted Markdown are escaped."""
    return templates().overlay(autoescape=False, finalize=_escaped)


def _escaped(value: Any) -> str:
    return value if hasattr(value, "__html__") else _SPECIAL.sub(r"\\\g<0>", str(value))


def _options(system: catalogue.System, text: CardText) -> list[tuple[str, str, str, str]]:
    config = card_config(text)
    owners = catalogue.option_owners(system.name, config.dataset, config.model)
    rows = []
    for name in dict.fromkeys(name for room in system.parts for name in owners[room]):
        option = OPTIONS[name]
        usual = default(name, system=system.name, dataset=config.dataset, protocol=config.protocol)
        rows.append((name, f"{usual} {option.unit}".rstrip(), WHEN[option.live], option.meaning))
    return rows


def card_html(markdown: str) -> str:
    """Render a card's Markdown as one HTML element with its style; formulas stay as TeX."""
    style = (_HERE / "templates" / "card.css").read_text(encoding="utf-8")
    return f"<div class='dtdg-card'><style>{style}</style>{_parser().render(markdown)}</div>"


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def formula(tex: str, _: Any) -> str:
        # MathJax draws formulas as images without a label, so screen readers get the TeX instead
        hidden = f"<span aria-hidden='true'>$${escape(tex, quote=False)}$$</span>"
        return f"<span role='math' aria-label='{escape(tex.strip())}'>{hidden}</span>"

    return MarkdownIt().enable("table").use(dollarmath_plugin, renderer=formula)


@cache
def katex_js() -> str | None:
    """Return the source of KaTeX, which is included in Panel; None if Panel is not installed."""
    panel = find_spec("panel")
    folder = Path(str(panel.origin)).parent / "dist" / "bundled" / "katex" if panel else _HERE
    file = next(folder.glob("katex@*/dist/katex.min.js"), None)
    return None if file is None else file.read_text(encoding="utf-8")


def card(name: str, *, run: Any = None) -> Card:
    """Return a page about a system of the catalogue. A notebook renders it; elsewhere it prints as text.

    Args:
        name: a system, or a paper (``esdg``, ``dynahb``, ``dygnex``, ``flaredtdg``, ``greendygnn``), which selects the
            paper's main system.
        run: a run of this system, or its folder; its charts are shown instead of those of a small graph.

    Raises:
        UnknownNameError: there is no such system or paper; the message names the closest match.
        ConfigError: the run trained another system, or has recorded nothing yet.
    """
    key = name.strip().lower() if isinstance(name, str) else name
    system = MAIN.get(key, key) if isinstance(key, str) else key
    if not isinstance(system, str) or system not in TEXTS:
        raise UnknownNameError("card", name, {*TEXTS, *MAIN})
    opened = open_run(run) if isinstance(run, str | Path) else run
    if opened is not None and not hasattr(opened, "live"):
        raise ConfigError(f"run={shortened(run)} is not a run. Give a run or its folder.")
    return Card(system, opened)


class Card:
    """A page about a system (see :func:`card`).

    Args:
        name: the system's name.
        run: the run whose charts are shown; None for charts of a small graph.

    Raises:
        ConfigError: the run trained another system, or has recorded nothing yet.
    """

    def __init__(self, name: str, run: Any = None) -> None:
        self.system = catalogue.system(name)
        self.text = TEXTS[name]
        self.run = run
        if run is not None:
            with getattr(run, "lock", nullcontext()):
                self.pictures = list(run_cards(self.system, run).values())[:MOST]

    def __repr__(self) -> str:
        return card_markdown(self.system, self.text, root=None, options=False)

    @cached_property
    def pictures(self) -> list[CaptionedFigure]:
        """Charts with their captions, computed on first use; none if a required library is missing."""
        try:
            return drawn_pictures(self.system)
        except NotAvailableError as error:
            self._lacks = str(error)
            return []

    _lacks = ""

    @property
    def note(self) -> str:
        """A sentence that says where the pictures come from."""
        if self.run is not None:
            return f"Pictures of run {self.run.id}."
        if self._lacks:
            return f"No pictures: {self._lacks}"
        if not self.pictures:
            return f"{self.system.name!r} has pictures only of a run. Show them with card(..., run=run)."
        return str(catalogue.family(self.system.family).pictures_note)

    @property
    def figure(self) -> Figure:
        """All pictures in one figure, for ``lab.plot``.

        Raises:
            ConfigError: there are no pictures, since a library is missing or the system's family has none.
        """
        if not self.pictures:
            raise ConfigError(self.note)
        return sheet(self.pictures, title=self.system.name, plot_height=STUDY_HEIGHT)

    @property
    def code(self) -> list[CodePlace]:
        """The places of the system in our code."""
        return code_places(self.system, self.text.code)

    @property
    def cell(self) -> str:
        """The code of a cell that trains the system."""
        return run_cell(self.text)

    def html(self, root: str | None = "") -> str:
        """Render the card without pictures as an HTML element whose formulas are TeX.

        Args:
            root: what to put before links into the code, which are relative to the repository; None makes no links.
        """
        return card_html(card_markdown(self.system, self.text, root=root))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the card with its pictures as a page that needs no other files.

        Args:
            path: the file to write.
            overwrite: whether an existing file may be overwritten.

        Raises:
            RunStoreError: the file cannot be written, or exists already.
        """
        file = Path(path)
        if file.exists() and not overwrite:
            raise RunStoreError(f"{file} exists already. Give another name, or overwrite=True to overwrite it.")
        pictures = {f"{self.system.name}-{number}": panel for number, panel in enumerate(self.pictures)}
        return write_text(
            file,
            render(
                "cards/templates/card.html",
                title=f"{self.system.name} · DTDG Lab",
                card=self.html(),
                note=self.note,
                library=plotly_js(),
                figures={name: figure for name, (figure, _) in pictures.items()},
                cards=page_cards(pictures),
                katex=katex_js(),
            ),
        )

    def _repr_markdown_(self) -> str:
        return card_markdown(self.system, self.text, root=_way_to_repository())

    def _ipython_display_(self) -> None:
        """Display the text, whose formulas a notebook shows with MathJax, and the pictures below it."""
        from IPython.display import display

        pictures, note = self.pictures, _escaped(self.note)  # in this order: the note depends on the pictures
        text = f"{self._repr_markdown_()}\n## Pictures\n\n{note}\n"
        display({"text/markdown": text, "text/plain": repr(self)}, raw=True)
        if pictures:
            display(plot(self.figure))


def _way_to_repository() -> str | None:
    """Return the path from the notebook's folder to the repository, such as ``../``; None if it is not in one."""
    if (_ROOT / "pyproject.toml").is_file():
        for up, folder in enumerate((Path.cwd(), *Path.cwd().parents)):
            if folder == _ROOT:
                return "../" * up
    return None


# The pictures of a system's card: computed by our planners for a small synthetic graph, or taken from a run.


MOST = 4  # maximum number of a run's charts on a card
SMALL: Mapping[str, Any] = MappingProxyType(
    {"generated_nodes": 240, "generated_edges": 1600, "generated_snapshots": 24, "growth": 6.0}
)


def drawn_pictures(system: catalogue.System) -> list[CaptionedFigure]:
    """Return one to four charts with their captions, computed now for the small graph.

    Args:
        system: an entry of the catalogue.
    """
    pictures: list[CaptionedFigure] = catalogue.family(system.family).pictures(system, small_graph())
    return pictures


def run_cards(system: catalogue.System, run: Any) -> dict[Chart, CaptionedFigure]:
    """Return the charts of a run of the system in order, without captions inside the plots.

    Args:
        system: an entry of the catalogue.
        run: an object with ``config`` and ``live``, such as the result of ``lab.runs.open``.

    Raises:
        ConfigError: the run trained another system, or has recorded nothing to draw yet.
    """
    if run.config.system != system.name:
        raise ConfigError(
            f"run {run.id} trained system {run.config.system!r}, but this is the card of {system.name!r}. Show the "
            f"run with card({run.config.system!r}, run=...)."
        )
    cards = drawn_charts(run.live, ChartOptions(whole_run=True))
    if not cards:
        raise ConfigError(f"run {run.id} has recorded nothing to draw yet. Wait for its first epoch.")
    return cards


@lru_cache(maxsize=1)
def small_graph() -> DynamicGraph:
    """Return a graph with 240 nodes whose 24 snapshots grow sixfold, made from seed 0."""
    return load_dataset("growing", **SMALL)


def _shows(figure: Figure) -> bool:
    """Return whether the figure contains anything besides a note."""
    return any(value is not None for trace in figure["data"] for value in trace.get("x") or ())
