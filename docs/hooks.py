"""Pages that `make docs` generates.

These are the reference, a page for each paper's systems, the lessons with their figures, the gallery of charts, and
tables of what benchmarks measured.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from griffe import Extension
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT)]
import benches  # noqa: E402
import claims  # noqa: E402
import gallery  # noqa: E402
import measured  # noqa: E402
from digest import digest  # noqa: E402
from gallery import figure_html  # noqa: E402

PAGES = {  # file of the repository -> page of the site
    "README.md": "index.md",
    "ALGORITHMS.md": "algorithms.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "data/README.md": "data.md",
    "notebooks/README.md": "lessons/index.md",
    **{
        f"notebooks/solutions/{path.name}": f"lessons/solutions/{path.name}"
        for path in sorted((ROOT / "notebooks" / "solutions").glob("*.md"))
    },
}
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
EXECUTED = ROOT / "build" / "lessons"
WORK = "build/lessons/work"  # where lessons run, as their outputs' links see it


class PlainReferences(Extension):
    """Docstrings name other objects as Sphinx does; here the name alone is shown."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Show names plainly in the docstring of an object that griffe has read."""
        if obj.docstring:
            obj.docstring.value = plain(obj.docstring.value)


def plain(docstring: str) -> str:
    """Return the docstring with names of other objects as code."""
    return re.sub(r":(?:\w+:)?\w+:`~?([^`]+)`", r"`\1`", docstring)


def on_config(config: Any) -> Any:
    """Fill the menus of lessons and papers."""
    for section in config.nav:
        if "Lessons" in section:
            section["Lessons"] = ["lessons/index.md", *(f"lessons/{path.stem}.md" for path in lessons())]
            section["Lessons"].append({"Benches": ["schedule_bench.md", "cache_bench.md"]})
        if "Papers" in section:
            menu = {paper: [f"papers/{name}.md" for name in systems] for paper, systems in by_paper().items()}
            section["Papers"] = ["papers/index.md", *({paper: pages} for paper, pages in menu.items())]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and the libraries they need."""
    import plotly

    from dtdg_lab.cards.card import katex_js

    contents = {uri: content() for uri, content in pages().items()}
    katex = katex_js()
    assert katex is not None, "Panel is not installed: make env"
    contents["assets/katex.min.js"] = katex
    library = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    contents["assets/plotly.min.js"] = library.read_text(encoding="utf-8")
    for uri, content in contents.items():
        former = files.get_file_from_path(uri)
        if former is not None:
            files.remove(former)
        files.append(File.generated(config, uri, content=content))
    return files


def pages() -> Mapping[str, Callable[[], str]]:
    """Return what makes each generated page."""
    from dtdg_lab.cards.card import TEXTS

    result: dict[str, Callable[[], str]] = {page: (ROOT / source).read_text for source, page in PAGES.items()}
    result |= {f"lessons/{path.stem}.md": partial(lesson, path) for path in lessons()}
    result |= {f"papers/{name}.md": partial(paper, name) for name in TEXTS}
    result |= {"papers/index.md": papers, "options.md": options, "events.md": events, "records.md": records}
    result |= {"errors.md": errors, "api.md": api, "gallery.md": gallery.page}
    return result | {"commands.md": lambda: (ROOT / "docs" / "commands.md").read_text() + "\n" + commands()}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Fill in tables and benches, and point links at pages of the site."""
    markdown = benches.placed(claims.placed(measured.placed(markdown)))
    return linked(markdown, page.file.src_uri, {file.src_uri for file in files})


def linked(markdown: str, uri: str, uris: Collection[str]) -> str:
    """Point links at pages of the site; what has none, such as a file of the package, is named without a link.

    Args:
        markdown: text of a page, whose links lead to files of the repository.
        uri: of the page.
        uris: of all pages and pictures.

    Raises:
        PluginError: a link leads nowhere.
    """
    source = next((source for source, target in PAGES.items() if target == uri), f"docs/{uri}")
    if re.fullmatch(r"lessons/[^/]+\.md", uri) and uri != "lessons/index.md":
        source = f"notebooks/{uri.removeprefix('lessons/')}"
    if uri.startswith("papers/"):
        source = uri.removeprefix("papers/")  # cards link from the top

    def link(match: re.Match[str]) -> str:
        text, address = match[1], match[2]
        if re.match(r"[a-z]+:|#", address):
            return match[0]
        path, _, anchor = address.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        target = PAGES.get(file) or re.sub(r"^notebooks/(\w+)\.ipynb$", r"lessons/\1.md", file)
        target = target.removeprefix("docs/")
        if target not in uris:
            if not (ROOT / file).exists():
                raise PluginError(f"{source} links to {address}, and there is no {file}.")
            return text
        relative = posixpath.relpath(target, posixpath.dirname(uri) or ".")
        return f"[{text}]({relative}{'#' + anchor if anchor else ''})"

    fences = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    fences[::2] = [re.sub(r"!\[([^\]]*)\]\(docs/", r"![\1](", LINK.sub(link, text)) for text in fences[::2]]
    return "".join(fences)


# Lessons, as they were run


def lessons() -> list[Path]:
    """Return the notebooks."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def lesson(path: Path) -> str:
    """Return a lesson as Markdown: with its outputs where `make docs` has run it, else as it is committed."""
    from nbconvert import MarkdownExporter
    from nbformat import read

    executed = executed_lesson(path)
    notebook = read(executed if executed.exists() else path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/markdown" in data:
                data["text/markdown"] = LINK.sub(_link_from_notebooks, data["text/markdown"])
            if "application/vnd.plotly.v1+json" in data:
                data["text/html"] = figure_html(data.pop("application/vnd.plotly.v1+json"))
            elif "application/vnd.jupyter.widget-view+json" in data:
                data["text/html"] = "<p><em>A widget is here when the lesson is run.</em></p>"
            elif "text/html" in data:
                data["text/html"] = f'<div class="lab-output">\n{data["text/html"]}\n</div>'
            for kind in [kind for kind in data if kind.startswith("application/")]:
                del data[kind]
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    return re.sub(r"!\[([^\]]*)\]\(\.\./docs/", r"![\1](../", str(text))  # pictures lie beside the pages


def _link_from_notebooks(match: re.Match[str]) -> str:
    """Return a link of an output as one from notebooks/.

    A card's links begin in the folder of its notebook, or at the top of the repository.
    """
    path, _, anchor = match[2].partition("#")
    for folder in (WORK, "."):
        target = posixpath.normpath(posixpath.join(folder, path))
        if path and not target.startswith("..") and (ROOT / target).exists():
            return f"[{match[1]}]({posixpath.relpath(target, 'notebooks')}{'#' + anchor if anchor else ''})"
    return match[0]


def executed_lesson(path: Path) -> Path:
    """Return the file of the lesson with outputs, by the contents of the lesson and of what it depends on."""
    return EXECUTED / f"{path.stem}-{digest(path.read_bytes())}.ipynb"


def execute_lessons() -> None:
    """Run every lesson whose outputs are not kept; the first is about the live dashboard and has none.

    Each runs in a folder of its own, so that no run or race of an earlier version is read, and with this repository's
    package, wherever the environment takes another from.
    """
    from dtdg_lab.core.child_process import environment

    common = {name: value for name, value in environment().items() if name != "DTDG_LAB_FAST"}
    EXECUTED.mkdir(parents=True, exist_ok=True)
    for path in lessons()[1:]:
        result = executed_lesson(path)
        if result.exists():
            continue
        print(f"Running {path.stem}", flush=True)
        start = time.monotonic()
        with TemporaryDirectory(dir=EXECUTED, prefix="work-", ignore_cleanup_errors=True) as folder:
            variables = {**common, "DTDG_LAB_UNATTENDED": "1", "DTDG_LAB_STATE": f"{folder}/state"}
            copied = Path(folder) / path.name
            copied.write_bytes(path.read_bytes())
            command = [sys.executable, "-m", "nbconvert", "--to=notebook", "--execute", "--log-level=ERROR"]
            command += ["--ExecutePreprocessor.timeout=900", "--output=executed", str(copied)]
            try:
                subprocess.run(command, check=True, env=variables)
            finally:  # engines outlive their kernel by two minutes
                ending = [sys.executable, "-m", "dtdg_lab", "sessions", "--end-all"]
                subprocess.run(ending, check=True, env=variables, stdout=subprocess.DEVNULL)
            for former in EXECUTED.glob(f"{path.stem}-*.ipynb"):
                former.unlink()
            (Path(folder) / "executed.ipynb").replace(result)
        print(f"{path.stem} took {time.monotonic() - start:.0f} s", flush=True)


# Papers


def paper(name: str) -> str:
    """Return the card of a system, with its pictures."""
    from dtdg_lab.cards.card import TEXTS, Card, card_markdown
    from dtdg_lab.visualization.sheet import standalone

    card = Card(name)
    drawn = "\n\n".join(f"{figure_html(standalone(figure))}\n\n{caption}" for figure, caption in card.pictures)
    text = card_markdown(card.system, TEXTS[name], root="")
    return f"{text}\n\n## Pictures\n\n{card.note}\n\n{drawn}\n"


def by_paper() -> dict[str, list[str]]:
    """Return the systems of each paper."""
    from dtdg_lab.cards.card import PAPERS, TEXTS

    names = [about["name"] for about in PAPERS.values()]
    return {name: [system for system, text in TEXTS.items() if text.paper["name"] == name] for name in names}


def papers() -> str:
    """Return a table of all cards."""
    from dtdg_lab.cards.card import PAPERS
    from dtdg_lab.config import catalogue

    text = (
        "For each system: the idea, the formulas, where its code is, the paper's numbers with their protocol, our "
        "measurements with their command, and what differs."
    )
    sections = [f"# Papers reproduced\n\n{text}\n"]
    for about in PAPERS.values():
        name, reference, protocol = about["name"], about["reference"], about["protocol"]
        rows = ((f"[{each}](papers/{each}.md)", catalogue.system(each).summary) for each in by_paper()[name])
        listed = table(("system", "what it does"), rows)
        sections.append(f"## {name}\n\n{reference}.\n\nSetup of its results: {protocol}.\n\n{listed}")
    return "\n".join(sections)


# Reference


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    escaped = ("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows)
    return "\n".join(("| " + " | ".join(head) + " |", "|" + "---|" * len(head), *escaped)) + "\n"


def options() -> str:
    """Every option of a run."""
    from dtdg_lab.config import catalogue
    from dtdg_lab.config.options import OPTIONS, TAKES_EFFECT

    read = {
        system: set().union(*catalogue.option_owners(system, "collegemsg", "tgcn").values())
        for system in catalogue.names("systems")
    }

    def readers(name: str, owner: str) -> str:
        found = [f"`{system}`" for system, names in read.items() if name in names]
        return "all" if len(found) == len(read) else ", ".join(found) or f"those of `{owner}`"

    rows = (
        (
            f"`{name}`",
            of.meaning,
            of.unit or "-",
            of.allowed.removesuffix(f" ({of.unit})"),
            f"`{of.default!r}`",
            TAKES_EFFECT[of.live],
            readers(name, of.owner),
        )
        for name, of in OPTIONS.items()
    )
    text = "Every setting of `lab.RunConfig`; `lab.options(system)` lists those of one system, with its own defaults."
    head = ("option", "meaning", "unit", "allowed", "default", "a change takes effect", "systems")
    return f"---\nhide: [toc]\n---\n\n# Options\n\n{text}\n\n{table(head, rows)}"


def events() -> str:
    """Every kind of event with the data it records."""
    from dataclasses import fields, is_dataclass

    from dtdg_lab.records.events import Event

    for module in sorted((ROOT / "dtdg_lab" / "systems").glob("*/*.py")):
        if module.stem in ("charts", "strategy"):
            import_module(f"dtdg_lab.systems.{module.parent.name}.{module.stem}")
    found: dict[str, type[Any]] = {}
    for name, module in sorted(sys.modules.items()):
        for of in vars(module).values() if name.startswith("dtdg_lab.") else ():
            if (
                isinstance(of, type)
                and of is not Event
                and is_dataclass(of)
                and isinstance(getattr(of, "kind", None), str)
            ):
                found[of.kind] = of
    rows = (
        (
            f"`{kind}`",
            plain((of.__doc__ or "").split("\n\n")[0]),
            ", ".join(f"`{each.name}`" for each in fields(of)) or "-",
        )
        for kind, of in sorted(found.items())
    )
    text = "Rows of the record table `events`: a step, a time, a kind, and data of that kind."
    return f"# Events\n\n{text}\n\n{table(('kind', 'when', 'data'), rows)}"


def records() -> str:
    """Every record table with its columns."""
    from dtdg_lab.config.record_tables import MEANINGS, TABLES

    text = (
        "What each rank records, one table per kind of record; `run.table(name)` reads one. Every row has `rank` and "
        "`attempt` besides. Columns ending in `_ns` are nanoseconds since 1970-01-01, in `_s` seconds."
    )
    sections = [f"# Record tables\n\n{text}\n"]
    for name, columns in TABLES.items():
        rows = ((f"`{column}`", MEANINGS.get(column, "")) for column in columns)
        sections.append(f"## {name}\n\n{table(('column', 'meaning'), rows)}")
    return "\n".join(sections)


def errors() -> str:
    """Every error the package raises."""
    from dtdg_lab.core import errors as module
    from dtdg_lab.core.errors import LabError

    found = (of for of in vars(module).values() if isinstance(of, type) and issubclass(of, LabError))
    rows = ((f"`{of.__name__}`", f"`{of.__mro__[1].__name__}`", (of.__doc__ or "").split("\n\n")[0]) for of in found)
    text = "All are in `dtdg_lab.core.errors`. A message says what was given, what is allowed and what to do next."
    return f"# Errors\n\n{text}\n\n{table(('error', 'is a', 'raised when'), rows)}"


def commands() -> str:
    """Return the help of every command."""
    from dtdg_lab.cli import _parser

    (subcommands,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    texts = (f"## {name}\n\n```text\n{parser.format_help()}```\n" for name, parser in subcommands.choices.items())
    return "\n".join(texts)


def api() -> str:
    """Every public name, in its group."""
    import dtdg_lab

    groups = ["dtdg_lab"]
    groups += [
        f"dtdg_lab.{name}"
        for name in dtdg_lab.__all__
        if hasattr(getattr(dtdg_lab, name), "__path__")
        or getattr(getattr(dtdg_lab, name), "__name__", "").startswith("dtdg_lab.")
    ]
    sections = ["# Public names\n\n`import dtdg_lab as lab`; names are loaded when first used.\n"]
    for group in groups:
        module = import_module(group)
        short = group.replace("dtdg_lab", "lab", 1)
        sections.append(f"## {short}\n\n{(module.__doc__ or '').strip()}\n")
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType):
                options = f"    options:\n      heading: {short}.{name}\n      toc_label: {short}.{name}\n"
                sections.append(f"::: {value.__module__}.{value.__qualname__}\n{options}")
    return "\n".join(sections)


if __name__ == "__main__":
    execute_lessons()
    gallery.make()
