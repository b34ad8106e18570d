"""Code in the text of pages is looked up: options and values, commands, files, variables, attributes, names.

Python snippets run in tests/cluster/test_snippets.py; links are followed in test_docs.py and test_site.py.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pandas as pd
import pytest
from ipyparallel.cluster.app import IPCluster
from nbgrader.apps.nbgraderapp import NbGraderApp
from traitlets.config import Application

import dtdg_lab as lab
from dtdg_lab.cards.card import Card
from dtdg_lab.cli import _parser
from dtdg_lab.cluster.run import Run
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import LabError, UnknownNameError
from dtdg_lab.export.export import KINDS
from dtdg_lab.models.base import GraphView
from dtdg_lab.partition.measured_partition import MeasuredPartition
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.studies.preset import preset
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.study import Study

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "data/README.md"),
    *(
        file.relative_to(ROOT).as_posix()
        for folder in ("docs", "notebooks", "dtdg_lab/cards/texts")
        for file in sorted((ROOT / folder).rglob("*.md"))
    ),
    *(f"notebooks/{file.name}" for file in sorted((ROOT / "notebooks").glob("*.ipynb"))),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
each_page = pytest.mark.parametrize("page", PAGES)


def text_of(page: str) -> str:
    """A page, or the text cells of a notebook."""
    text = (ROOT / page).read_text()
    if page.endswith(".md"):
        return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def spans_of(text: str) -> list[str]:
    """Code within lines."""
    return SPAN.findall(FENCE.sub("", text))


def commands_of(text: str) -> list[list[str]]:
    """Words of each line that may be a command: spans, lines of indented blocks, and of fences without a language."""
    lines = spans_of(text) + re.findall(r"^    (\S.*)$", FENCE.sub("", text), flags=re.M)
    lines += [line for language, code in FENCE.findall(text) if not language for line in code.splitlines()]
    commands = []
    for line in lines:
        with suppress(ValueError):  # a quotation mark in code that is no command
            words = shlex.split(line, comments=True)
            commands += [_without_variables(part) for part in _split(words, "&&")]
    return [words for words in commands if words]


def _split(words: list[str], separator: str) -> Iterator[list[str]]:
    while separator in words:
        place = words.index(separator)
        yield words[:place]
        words = words[place + 1 :]
    yield words


def _without_variables(words: list[str]) -> list[str]:
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return words


# Options and arguments, with their values


@cache
def callables() -> dict[str, Callable[..., Any]]:
    """Public functions, classes and methods of objects that users have, as pages call them."""
    result: dict[str, Callable[..., Any]] = {}
    for name in lab.__all__:
        value = getattr(lab, name)
        if isinstance(value, ModuleType):
            result |= {f"lab.{name}.{inner}": getattr(value, inner) for inner in value.__all__}
        else:
            result |= {f"lab.{name}": value, name: value}
    for name, kinds in OBJECTS.items():
        for kind in kinds:
            for method, value in inspect.getmembers(kind, callable):
                if not method.startswith("_"):
                    result[f"{name}.{method}"] = value
    return result


OBJECTS: Mapping[str, tuple[type, ...]] = {  # what pages call an object of a class
    "card": (Card,),
    "config": (lab.RunConfig,),
    "dashboard": (lab.Dashboard,),
    "graph": (lab.DynamicGraph, GraphView),
    "parts": (MeasuredPartition,),
    "race": (Race,),
    "run": (StoredRun, Run),
    "session": (lab.Session,),
    "study": (Study,),
    "sweep": (lab.Sweep,),
}
TAKE_SETTINGS = ("lab.RunConfig", "RunConfig", "config.replace", "run.set", "session.train", "lab.runs.fork")
OTHERS = {
    "bench.set": {"scheduler"},
    "card": {"unit", "x_title"},
}  # arguments of what pages describe and no public name is
EXAMPLES = {("scheduler", "'shortest_first'"), ("system", "'striped'")}  # of pages on how to add one


@cache
def arguments() -> dict[str, list[Any]]:
    """Names of arguments of everything public, with their types."""
    result: dict[str, list[Any]] = {}
    for function in callables().values():
        with suppress(ValueError):  # no signature
            try:
                types = get_type_hints(function.__init__ if inspect.isclass(function) else function)
            except NameError:  # of an import for types only
                types = {}
            for name in inspect.signature(function).parameters:
                result.setdefault(name, []).append(types.get(name, Any))
    return result


def wrong_settings(code: str) -> list[str]:
    """Arguments ``name=value`` of a piece of code that nothing takes, or whose value is refused."""
    alone = re.match(r"[a-z_]+=[^= ]", code) and "\n" not in code
    try:
        tree = ast.parse(f"_call({code})" if alone else code)
    except SyntaxError:
        return []  # no Python
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        f"{keyword.arg}={ast.unparse(keyword.value)}"
        for call in calls
        for keyword in call.keywords
        if keyword.arg and not _is_taken(ast.unparse(call.func), keyword.arg, keyword.value)
    ]


def _is_taken(function: str, name: str, value: ast.expr) -> bool:
    try:
        literal = ast.literal_eval(value)
    except ValueError:
        literal = ...  # computed
    if (name, repr(literal)) in EXAMPLES or name in OTHERS.get(function, ()):
        return True
    known = callables().get(function)
    if known is not None and function not in TAKE_SETTINGS:
        parameters = inspect.signature(known).parameters
        if name in parameters or not any(each.kind == each.VAR_KEYWORD for each in parameters.values()):
            return name in parameters
    elif function not in ("_call", *TAKE_SETTINGS):
        return True  # of Python or another library
    return _setting_is_allowed(name, literal) or _argument_is_allowed(name, literal)


def _setting_is_allowed(name: str, value: Any) -> bool:
    if name not in OPTIONS and name not in lab.RunConfig.model_fields:
        return False
    if value is ...:
        return True
    with suppress(LabError):
        if name in OPTIONS:
            OPTIONS[name].check(value)
        else:
            lab.RunConfig(**{"dataset": "growing", name: value})
        return True
    dates = pd.DataFrame({"from": [0, 1], "to": [1, 0], "day": pd.to_datetime(["2024-01-01", "2024-02-01"])})
    with suppress(LabError):  # loaders take lengths of time in words
        return name == "interval" and bool(lab.datasets.from_pandas(dates, "from", "to", "day", interval=value))
    return False


def _argument_is_allowed(name: str, value: Any) -> bool:
    if name in OPTIONS or name in lab.RunConfig.model_fields or name not in arguments():
        return False
    choices = [get_args(kind) for kind in arguments()[name] if get_origin(kind) is Literal]
    return value is ... or not choices or any(value in choice for choice in choices)


@each_page
def test_settings_in_text_are_taken_with_their_values(page: str) -> None:
    text = text_of(page)
    code = [code for language, code in FENCE.findall(text) if language == "python"]
    assert [wrong for span in [*spans_of(text), *code] for wrong in wrong_settings(span)] == []


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('backend="torch"', ["backend='torch'"]),
        ('kernel="torch", window=2', []),
        ('kernel="triton"', ["kernel='triton'"]),
        ('RunConfig(sistem="psg")', ["sistem='psg'"]),
        ('lab.train(lab.RunConfig(system="none"))', ["system='none'"]),
        ("lab.Session(rank=2)", ["rank=2"]),
        ("lab.Session(ranks=2)", []),
        ("run.set(alpha=7)", ["alpha=7"]),
        ('interval="1d"', []),
        ('interval="often"', ["interval='often'"]),
        ("bench.set([4], scheduler='psg')", []),
        ("memory = 'any'", []),
    ],
)
def test_a_setting_that_nothing_takes_is_reported(code: str, wrong: list[str]) -> None:
    assert wrong_settings(code) == wrong


# Attributes of objects, and names of the package


@cache
def attributes(kind: type) -> set[str]:
    """What an object of a class has, with what its methods set."""
    sources = [inspect.getsource(base) for base in kind.__mro__ if base.__module__.startswith("dtdg_lab")]
    result = {*dir(kind), *getattr(kind, "model_fields", ())}
    result |= {name for source in sources for name in re.findall(r"\bself\.(\w+)\b.* = ", source)}
    return result | {name for source in sources for name in re.findall(r"^    (\w+): ", source, flags=re.M)}


def unknown_attributes(code: str) -> list[str]:
    """Attributes of a run, a session and others that they do not have."""
    pairs = re.findall(rf"(?<![\w./-])({'|'.join(OBJECTS)})\.([a-z_]\w*)(?!\w*[./])", code)
    suffixes = {"json", "py", "html", "md", "toml"}
    return [
        f"{name}.{attribute}"
        for name, attribute in pairs
        if attribute not in suffixes and not any(attribute in attributes(kind) for kind in OBJECTS[name])
    ]


@each_page
def test_attributes_in_text_exist(page: str) -> None:
    assert [name for span in spans_of(text_of(page)) for name in unknown_attributes(span)] == []


@cache
def vocabulary() -> set[str]:
    """Every word of the sources, which a renamed thing is not among."""
    forms = ("dtdg_lab/**/*", "benchmarks/**/*", "docs/*.py", "tests/outside_family/*.py", "notebooks/*.ipynb")
    files = [file for form in forms for file in ROOT.glob(form)]
    files += [ROOT / "constraints.txt", ROOT / "pyproject.toml", ROOT / "Makefile"]
    kinds = {".py", ".toml", ".json", ".js", ".css", ".html", ".jinja", ".ipynb", ".txt", ""}
    files = [file for file in files if file.is_file() and file.suffix in kinds]
    return {word for file in files for word in re.findall(r"\w+", _code_of(file))}


def _code_of(file: Path) -> str:
    if file.suffix != ".ipynb":
        return file.read_text(errors="replace")
    cells = (cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code")
    return "\n".join("".join(cell["source"]) for cell in cells)


# Of other programs, of a reader's own, or of an example
FOREIGN = re.findall(
    r"\w+",
    """
    ARGS BEGIN CourseDirectory HASH KillWait NAME NCCL_SOCKET_IFNAME REASON SBATCH SOLUTION SmoothedGCN Subsystem TERM
    _w autograde edgelist elliptic_txs_ generate_assignment grades ipcluster_config jupyter_bokeh mpi4py my_blocks
    my_model nbgrader_config node1 node2 pyviz_comms release_feedback renames scancel scp sftp shortest_first srun
    terminationGracePeriodSeconds
    """,
)
PROGRAMS = re.findall(r"\S+", ". conda hub ipcluster ipython jupyter make nbgrader npm pip python ssh")


def unknown_words(code: str) -> list[str]:
    """Words of a piece of code, in no file of the sources."""
    if "/" in code or code.split()[0] in PROGRAMS or re.fullmatch(r"[\w.]+\.(ipynb|py)", code):
        return []  # files and commands have their own tests
    words = re.findall(r"(?<![\w.])[A-Za-z_]\w*", code)
    return [word for word in words if word not in vocabulary() and word not in FOREIGN]


@each_page
def test_words_of_code_in_text_are_in_the_sources(page: str) -> None:
    assert {span: words for span in spans_of(text_of(page)) if (words := unknown_words(span))} == {}


# Commands


PLACEHOLDERS = {"NAME": "figure8", "GRAPH": "mathoverflow", "MODEL": "tgcn"}


def lab_commands(text: str) -> Iterator[list[str]]:
    """Arguments of each call of the lab."""
    for words in commands_of(text):
        if words[:3] == ["python", "-m", "dtdg_lab"]:
            yield words[3:]
        elif words[:1] == ["dtdg-lab"] and len(words) > 1:
            yield words[1:]


def check_lab_command(words: list[str]) -> None:
    """Parse the arguments as the lab does; what the parser leaves to the command is looked up too."""
    words = [PLACEHOLDERS.get(word, word) for word in words]
    (commands,) = (action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    if len(words) == 1 and words[0] in commands.choices:
        return  # named without what it needs
    parsed = _parser().parse_args(words)
    if parsed.command == "study" and not parsed.study.endswith(".json"):
        preset(parsed.study)
    if parsed.command == "export":
        assert parsed.kind in KINDS, f"--kind {parsed.kind}: one of {', '.join(KINDS)}"


@each_page
def test_commands_of_the_lab_are_understood(page: str) -> None:
    for words in lab_commands(text_of(page)):
        check_lab_command(words)


def test_commands_that_messages_advise_are_understood() -> None:
    """The package's own messages, whose braces stand for a path or a number."""
    form = re.compile(r"python -m dtdg_lab ([a-z-]+(?: (?:--[a-z-]+|\{\w+\}|[A-Z][\w.]*))*)")
    texts = [file.read_text() for file in (ROOT / "dtdg_lab").rglob("*.py") if file.name != "cli.py"]
    advised = {re.sub(r"\{\w+\}|\bP\b", "4", words) for text in texts for words in form.findall(text)}
    assert len(advised) > 3
    for words in advised:
        check_lab_command(words.split())


def test_a_command_that_the_lab_refuses_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("train", "study figure8 --fast", "sessions --end-al ID", "export RUN --kid html", "dash --port 9e9"):
        with pytest.raises(SystemExit):
            check_lab_command(words.split())
    with pytest.raises(AssertionError, match="--kind pdf"):
        check_lab_command(["export", "RUN", "--kind", "pdf"])
    with pytest.raises(UnknownNameError):
        check_lab_command(["study", "figure80"])
    assert list(lab_commands("run `dtdg-lab env`, or\n\n    python -m dtdg_lab dash --port 1  # served\n")) == [
        ["env"],
        ["dash", "--port", "1"],
    ]


TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
READ_BY_MAKE = set(re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(), flags=re.M))
TAKES_ARGS = {"soak": "tests/soak.py", "bench": "benchmarks/quick.py"}


def check_make(words: list[str]) -> None:
    """Look up targets and variables, and the options in ARGS where a script of ours reads them."""
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    targets = [word for word in words if "=" not in word and not word.startswith("-")]
    assert set(targets) <= TARGETS and set(variables) <= READ_BY_MAKE, words
    for target in set(targets) & set(TAKES_ARGS):
        source = (ROOT / TAKES_ARGS[target]).read_text()
        for option in re.findall(r"--[a-z-]+", variables.get("ARGS", "")):
            assert f'"{option}"' in source, f"{TAKES_ARGS[target]} has no {option}"


@each_page
def test_targets_of_make_exist(page: str) -> None:
    for words in commands_of(text_of(page)):
        if words[0] == "make":
            check_make(words[1:])


def test_options_that_pages_give_to_make_exist() -> None:
    """Where a line of text names ARGS beside its target."""
    lines = [line for page in PAGES for line in text_of(page).splitlines() if "ARGS=" in line]
    lines += [line for line in (ROOT / "Makefile").read_text().splitlines() if "@echo" in line and "ARGS=" in line]
    pairs = {
        (target, option)
        for line in lines
        for target in re.findall(r"make (soak|bench)", line)
        for option in re.findall(r"ARGS=\"?(--[a-z-]+)", line)
    }
    assert len(pairs) >= 2
    for target, option in pairs:
        check_make([target, f"ARGS={option}"])


@cache
def benchmark(name: str) -> ModuleType:
    folder = str(ROOT / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None, name
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def check_python(words: list[str]) -> None:
    """Look up a script, a module or tests that Python is called with, and the options of a benchmark."""
    if words[:2] == ["-m", "pytest"]:
        for test in (word for word in words[2:] if "/" in word):
            file, _, name = test.partition("::")
            assert (ROOT / file).exists() and (not name or f"def {name}(" in (ROOT / file).read_text()), test
    elif words[:1] == ["-m"]:
        assert words[1] in ("venv", "dtdg_lab"), words
    elif words and words[0].endswith(".py"):
        script = ROOT / words[0]
        assert script.is_file(), words
        if script.parent.name == "benchmarks":
            benchmark(script.stem).arguments([PLACEHOLDERS.get(word, word) for word in words[1:]])


@each_page
def test_scripts_and_their_options_exist(page: str) -> None:
    for program, *words in commands_of(text_of(page)):
        if re.fullmatch(r"(.*/)?python(3\.11)?", program):
            check_python(words)


def test_commands_under_tables_of_measurements_exist() -> None:
    results = (json.loads(file.read_text()) for file in sorted((ROOT / "benchmarks/results").rglob("*.json")))
    commands = {part["command"] for result in results for part in result.values() if "command" in part}
    assert commands
    for command in sorted(commands):
        program, *words = command.split()
        assert program == "python", command
        check_python(words)


def check_application(application: type[Application], words: list[str]) -> None:
    """Look up a command of Jupyter's kind, and its options."""
    while words and words[0] in (named := application().subcommands):
        loaded = named[words[0]][0]
        if isinstance(loaded, str):
            module, _, name = loaded.rpartition(".")
            loaded = getattr(importlib.import_module(module), name)
        application, words = loaded, words[1:]
    made = application()
    known = {
        name for names in (*made.aliases, *made.flags) for name in (names if isinstance(names, tuple) else (names,))
    }
    known |= {f"{kind.__name__}.{name}" for kind in made.classes for name in kind.class_trait_names(config=True)}
    for option in (word.split("=")[0].lstrip("-") for word in words if word.startswith("-")):
        assert option in known, f"{application.__name__} has no option {option}"
    if made.subcommands:
        raise AssertionError(f"{application.__name__} has no command {words[:1]}")


@each_page
def test_commands_of_nbgrader_and_ipyparallel_exist(page: str) -> None:
    for program, *words in commands_of(text_of(page)):
        if program in ("nbgrader", "ipcluster") and words:
            check_application({"nbgrader": NbGraderApp, "ipcluster": IPCluster}[program], words)


def test_a_command_of_another_program_that_does_not_exist_is_reported() -> None:
    wrong = {NbGraderApp: ("generat 14", "autograde 14 --students A"), IPCluster: ("begin", "start --engine-timeout=9")}
    for application, words in ((application, words) for application, lines in wrong.items() for words in lines):
        with pytest.raises(AssertionError):
            check_application(application, words.split())
    check_application(IPCluster, ["start", "--profile=many", "-n", "8"])


def test_files_and_extras_that_installations_name_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    seen = 0
    for program, *words in (words for page in PAGES for words in commands_of(text_of(page))):
        if program.rpartition("/")[2] in ("pip", "conda"):
            named = [words[place + 1] for place, word in enumerate(words[:-1]) if word in ("-c", "-r", "-f")]
            assert [file for file in named if not (ROOT / file).is_file()] == []
            asked = re.findall(r"\.\[([\w,]+)\]", " ".join(words))
            assert {extra for group in asked for extra in group.split(",")} <= set(extras)
            seen += len(named)
    assert seen >= 3


# Files and variables


# of a reader, of another program, or of an example
OTHER_FILES = re.compile(r"(runs|amlsim|submitted|feedback|autograded|shared)/|.*\b(NAME|shortest_first)\b|data/raw$")
TOP = tuple(f"{folder}/" for folder in ("benchmarks", "docs", "dtdg_lab", "etc", "notebooks", "tests"))
PACKAGES = tuple(f"{folder.name}/" for folder in (ROOT / "dtdg_lab").iterdir() if folder.is_dir())


def missing_files(code: str) -> list[str]:
    """Paths that exist neither in the repository nor in the package, if they begin as such or end as a file."""
    result = []
    for path in re.findall(r"(?<![\w./<~-])[\w.-]+/[\w./*-]*", code):
        if OTHER_FILES.match(path):
            continue
        ours = path.startswith((*TOP, *PACKAGES)) or re.search(r"\.(py|toml|js|json|md|ipynb|npz|css)$", path)
        if ours and not any(any(folder.glob(path.rstrip("/"))) for folder in (ROOT, ROOT / "dtdg_lab")):
            result.append(path)
    return result


@each_page
def test_files_in_text_exist(page: str) -> None:
    assert [file for span in spans_of(text_of(page)) for file in missing_files(span)] == []


@each_page
def test_variables_in_text_are_read(page: str) -> None:
    source = "\n".join(file.read_text() for file in (ROOT / "dtdg_lab").rglob("*.py"))
    named = set(re.findall(r"\bDTDG_LAB_[A-Z_]+", text_of(page)))
    assert {name for name in named if f'"{name}"' not in source} == set()


@each_page
def test_pictures_exist(page: str) -> None:
    text = text_of(page)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)", text) + re.findall(r"<img[^>]+src=\"([^\"]+)", text)
    folder = (ROOT / page).parent
    assert [picture for picture in pictures if not (folder / picture).is_file()] == []


# Numbers


GENERATORS = sum(".generators." in catalogue.entry("datasets", name).target for name in catalogue.names("datasets"))
NUMBERS = {"five": 5, "eight": 8, "fifteen": 15}


def test_numbers_of_things_are_those_of_the_catalogue() -> None:
    counts = {
        r"(\d+) baselines and variants": len(catalogue.names("systems")) - 5,  # those of the five papers
        r"(\d+) models": len(catalogue.names("models")),
        r"(\d+) schedulers": len(catalogue.names("scheduling")),
        r"(\d+) partitioners": len(catalogue.names("partition")),
        r"(\d+) published (?:data )?sets": len(catalogue.names("datasets")) - GENERATORS,
        r"(\w+) seeded generators": GENERATORS,
        r"(\w+) lessons\]": len(list((ROOT / "notebooks").glob("*.ipynb"))),
        r"about (\d+) lines": round(len((ROOT / "tests/outside_family/striped.py").read_text().splitlines()), -1),
        r"(\w+) names are in `lab`": sum(not isinstance(getattr(lab, name), ModuleType) for name in lab.__all__),
    }
    text = "\n".join((ROOT / page).read_text() for page in PAGES if page.endswith(".md") and "solutions" not in page)
    for pattern, count in counts.items():
        found = re.findall(pattern, text, flags=re.I)
        assert found, pattern
        assert {NUMBERS.get(number.lower()) or int(number) for number in found} == {count}, pattern


@each_page
def test_versions_in_text_are_the_pinned_ones(page: str) -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    named = re.findall(r"(?<![\w-])([a-z][\w-]*)[ =]=?(\d+\.\d+\.\d+)", text_of(page), flags=re.I)
    named = [(name.lower().replace("_", "-"), version) for name, version in named]
    assert [(name, version) for name, version in named if pins.get(name, version) != version] == []


# What is wrong is found


@pytest.mark.parametrize(
    ("check", "code", "wrong"),
    [
        (unknown_attributes, "run.reason, session.json, my_run.x, run.summry", ["run.summry"]),
        (unknown_words, "learning_rate of adjusted_batchinator", ["adjusted_batchinator"]),
        (missing_files, "config/*.toml, runs/<id>/, views/theme.js", ["views/theme.js"]),
    ],
)
def test_code_of_nothing_is_named(check: Callable[[str], list[str]], code: str, wrong: list[str]) -> None:
    assert check(code) == wrong


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (check_make, ["labs"]),
        (check_make, ["bench", "ARGS=--quickly"]),
        (check_python, ["benchmarks/none.py"]),
        (check_python, ["-m", "pytest", "tests/none"]),
    ],
)
def test_commands_of_nothing_are_refused(check: Callable[[list[str]], None], words: list[str]) -> None:
    with pytest.raises(AssertionError):
        check(words)
