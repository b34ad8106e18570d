"""``lab.card``: one page about a system: idea, formulas, code locations, and reported and measured results."""

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

# The texts of all cards: a Markdown file for each system, after TOML with its paper, code and settings.


_HERE = Path(__file__).resolve().parent
_FILE = re.compile(r"\+\+\+\n(.*?)\+\+\+\n(.*)", re.S)


class CardText(NamedTuple):
    """The text of one system's card.

    Attributes:
        system: its name in the catalogue.
        paper: name, reference, protocol and main system of the paper that describes it, or uses it as a baseline.
        sections: Markdown by heading; formulas stand between double dollar signs.
        code: further code locations, beside the catalogue's, as ``module:name``.
        settings: of the cell that runs it.
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
# names of papers, and the main system of each
MAIN: Mapping[str, str] = {
    name: paper["main"] for paper in PAPERS.values() for name in (paper["name"].lower(), *paper.get("aliases", ()))
}


# How to run a system: a cell as text, and its settings.


EPOCHS = 5


def card_config(text: CardText) -> RunConfig:
    """Return the settings of the cell: small, on one rank if possible.

    Args:
        text: of the card.
    """
    return RunConfig(**_settings(text))


def run_cell(text: CardText) -> str:
    """Return a cell that trains the system and draws the run, on a session if it needs several ranks.

    Args:
        text: of the card.
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


# Location of a system in our code: file and line of the catalogue's targets, found without importing them.


_ROOT = _HERE.parents[1]  # the package's parent folder
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


def code_places(system: catalogue.System, further: tuple[str, ...] = ()) -> list[CodePlace]:
    """Return the components of the system in the catalogue, then further code worth reading.

    Args:
        system: of the catalogue.
        further: targets as text, ``module:name``, or a module alone.

    Raises:
        ConfigError: a file is missing, or does not define the name.
    """
    entries = [catalogue.entry(room, name) for room, name in system.parts.items()]
    places = [_place(entry.target, entry.kind, entry.name, entry.summary) for entry in entries]
    return places + [_place(target, "also", "", "") for target in further]


def differences(places: list[CodePlace]) -> list[Difference]:
    """Return the differences from the papers that docstrings of these files state, each once."""
    stated = [difference for file in dict.fromkeys(code.file for code in places) for difference in _to_dict(file)]
    return list({difference.text: difference for difference in stated}.values())


def _place(target: str, role: str, name: str, summary: str) -> CodePlace:
    module, _, attribute = target.partition(":")
    file = module.replace(".", "/") + ".py"
    tree = _tree(file)
    node: ast.AST = tree
    if attribute:
        defined = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
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
    return parsed(path.read_text(encoding="utf-8"))


def _first_sentence(node: ast.AST) -> str:
    text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else ""
    return " ".join((text or "").split("\n\n")[0].replace("``", "").split())


def _to_dict(file: str) -> Iterator[Difference]:
    for node in ast.walk(_tree(file)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        for paragraph in _DIFFERS.findall(ast.get_docstring(node) or ""):
            text = " ".join(paragraph.replace("``", "").split())
            if text and not text.startswith("nothing known"):
                yield Difference(file, getattr(node, "lineno", 1), _as_sentence(text))


def _as_sentence(text: str) -> str:
    """Return the text after *Differs from the paper:*, if it forms its own paragraph."""
    for word, instead in _BEGINS:
        if text.startswith(word):
            return instead + text[len(word) :]
    return text[0].upper() + text[1:]


# The card as Markdown, which notebooks show with MathJax, and as HTML made of it.


_SPECIAL = re.compile(r"[\\`*\[\]<|$]|(?<![^\W_])_|_(?![^\W_])")


def card_markdown(system: catalogue.System, text: CardText, *, root: str | None = "", options: bool = True) -> str:
    """Return the whole card but its pictures.

    Args:
        system: of the catalogue.
        text: of the card.
        root: prefix of links into the code, such as ``../``: they are relative to the repository; None for no
            links, on a page without files beside it.
        options: whether to list the options that the system reads.
    """
    from markupsafe import Markup

    def link(location: CodePlace | Difference) -> str:
        named = f"{location.file}:{location.line}"
        return named if root is None else Markup(f"[{_escaped(named)}]({root}{location.file}#L{location.line})")

    places = code_places(system, text.code)
    # those of congestion patterns only if these are part of the idea
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
    """Templates of Markdown, in which everything but trusted Markdown is escaped."""
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
    """Render a card's Markdown as one element with its style; formulas stay TeX."""
    style = (_HERE / "templates" / "card.css").read_text(encoding="utf-8")
    return f"<div class='dtdg-card'><style>{style}</style>{_parser().render(markdown)}</div>"


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def formula(tex: str, _: Any) -> str:
        # MathJax draws an image without a name: screen readers get the TeX instead
        hidden = f"<span aria-hidden='true'>$${escape(tex, quote=False)}$$</span>"
        return f"<span role='math' aria-label='{escape(tex.strip())}'>{hidden}</span>"

    return MarkdownIt().enable("table").use(dollarmath_plugin, renderer=formula)


@cache
def katex_js() -> str | None:
    """Return the source of KaTeX, which Panel brings along; None if CaptionedFigure is not installed."""
    panel = find_spec("panel")
    folder = Path(str(panel.origin)).parent / "dist" / "bundled" / "katex" if panel else _HERE
    file = next(folder.glob("katex@*/dist/katex.min.js"), None)
    return None if file is None else file.read_text(encoding="utf-8")


def card(name: str, *, run: Any = None) -> Card:
    """Return a page about a system of the catalogue; it renders in a notebook, and prints as text elsewhere.

    Args:
        name: of the system, or of a paper, which selects its main system (``esdg``, ``dynahb``, ``dygnex``,
            ``flaredtdg``,
            ``greendygnn``).
        run: of this system, whose charts replace those of a small graph: a run, or its folder.

    Raises:
        UnknownNameError: there is no such system or paper; the closest match is named.
        ConfigError: the run is of another system, or has recorded nothing yet.
    """
    key = name.strip().lower() if isinstance(name, str) else name
    system = MAIN.get(key, key) if isinstance(key, str) else key
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
        """The source of the pictures."""
        if self.run is not None:
            return f"Of run {self.run.id}."
        if self._lacks:
            return f"No pictures: {self._lacks}"
        if not self.pictures:
            return f"No pictures: the family of {self.system.name!r} draws none. Give a run of it: card(..., run=run)."
        return str(catalogue.family(self.system.family).pictures_note)

    @property
    def figure(self) -> Figure:
        """All pictures in one, for ``lab.plot``.

        Raises:
            ConfigError: there is none: a library is missing, or the family draws none.
        """
        if not self.pictures:
            raise ConfigError(self.note)
        return sheet(self.pictures, title=self.system.name, plot_height=STUDY_HEIGHT)

    @property
    def code(self) -> list[CodePlace]:
        """Its location in our code."""
        return code_places(self.system, self.text.code)

    @property
    def cell(self) -> str:
        """A cell that runs it."""
        return run_cell(self.text)

    def html(self, root: str | None = "") -> str:
        """Render the card without pictures as an HTML element, whose formulas are TeX.

        Args:
            root: prefix of links into the code; they are relative to the repository; None for no links.
        """
        return card_html(card_markdown(self.system, self.text, root=root))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the card with its pictures as a self-contained page.

        Args:
            path: of the file.
            overwrite: whether an existing file may be overwritten.

        Raises:
            RunStoreError: it cannot be written, or exists already.
        """
        file = Path(path)
        if file.exists() and not overwrite:
            raise RunStoreError(f"{file} exists already: give another name, or overwrite=True to overwrite it.")
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
        """Return the text, whose formulas a notebook shows with MathJax, and the pictures below it."""
        from IPython.display import display

        pictures, note = self.pictures, _escaped(self.note)  # the first decides on the second
        text = f"{self._repr_markdown_()}\n## Pictures\n\n{note}\n"
        display({"text/markdown": text, "text/plain": repr(self)}, raw=True)
        if pictures:
            display(plot(self.figure))


def _way_to_repository() -> str | None:
    """Path from the notebook's folder to the repository, such as ``../`` in a lesson; None where it is in none."""
    if (_ROOT / "pyproject.toml").is_file():
        for up, folder in enumerate((Path.cwd(), *Path.cwd().parents)):
            if folder == _ROOT:
                return "../" * up
    return None


# The pictures of a system's card: computed by our planners from a small synthetic graph, or taken from a run.


MOST = 4  # charts of a run
SMALL: Mapping[str, Any] = MappingProxyType(
    {"generated_nodes": 240, "generated_edges": 1600, "generated_snapshots": 24, "growth": 6.0}
)


def drawn_pictures(system: catalogue.System) -> list[CaptionedFigure]:
    """One to four charts with their captions, computed now from the small graph.

    Args:
        system: of the catalogue.
    """
    pictures: list[CaptionedFigure] = catalogue.family(system.family).pictures(system, small_graph())
    return pictures


def run_cards(system: catalogue.System, run: Any) -> dict[Chart, CaptionedFigure]:
    """Return the charts of a run of the system as cards that have their words beside the plot, in order.

    Args:
        system: of the catalogue.
        run: with ``config`` and ``live``, such as that of ``lab.runs.open``.

    Raises:
        ConfigError: the run is of another system, or has recorded nothing that can be drawn yet.
    """
    if run.config.system != system.name:
        raise ConfigError(
            f"run {run.id} trained system {run.config.system!r}, and this is the card of {system.name!r}: "
            f"card({run.config.system!r}, run=...) draws it."
        )
    cards = drawn_charts(run.live, ChartOptions(whole_run=True))
    if not cards:
        raise ConfigError(f"run {run.id} has recorded nothing that can be drawn: wait for its first epoch.")
    return cards


@lru_cache(maxsize=1)
def small_graph() -> DynamicGraph:
    """Return a graph of 240 nodes whose 24 snapshots grow sixfold, from seed 0."""
    return load_dataset("growing", **SMALL)


def _shows(figure: Figure) -> bool:
    """Return whether it contains anything but a note."""
    return any(value is not None for trace in figure["data"] for value in trace.get("x") or ())
