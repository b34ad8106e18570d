"""Every lesson runs from top to bottom without a browser; every notebook is committed without outputs."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from dtdg_lab.cluster.session_files import end_session, list_sessions
from tests.lesson_solutions import answer_cells, blocks, solved
from tests.thinning import thinned

PLOTLY = "application/vnd.plotly.v1+json"
NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
CLAIMS = Path(__file__).parent / "claims"  # what each lesson says, checked by its variables
LONG = ("07", "09", "10", "11", "13", "14")  # two thirds of the time that all lessons take
HARD_TO_READ = (ast.NamedExpr, ast.Assert, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LIMIT_S = 300  # of a cell: only a hang takes as long, on a loaded machine too

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::RuntimeWarning"
)


# Run after a notebook in the shared kernel
CLEAR = """
if "dashboard" in globals():
    dashboard.close()
if "session" in globals():
    for run in session.under_way:
        run.stop()
        run.wait(30)
    session.detach()
%reset -f
"""


class SharedKernel:
    """One kernel, and one session of two engines, for all notebooks; after a failure the next one starts both again."""

    def __init__(self, folder: Path) -> None:
        self._resources, self._runner = {"metadata": {"path": str(folder)}}, asyncio.Runner()
        self._manager = AsyncKernelManager()

    def run(self, notebook: nbformat.NotebookNode) -> None:
        """Run a notebook, with the shared session in place of its own."""
        for cell in notebook.cells:
            cell.source = re.sub(r'(Session\(ranks=2, name=)"[\w-]+"', r'\1"shared"', cell.source)
            cell.source = cell.source.replace("session.close()", "session.detach()")
        try:
            self._execute(notebook)
            self._execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CLEAR)]))
        except BaseException:
            self._end()
            raise

    def _execute(self, notebook: nbformat.NotebookNode) -> None:
        client = NotebookClient(notebook, km=self._manager, timeout=LIMIT_S, resources=self._resources)
        try:
            self._runner.run(client.async_execute())
        finally:
            if client.kc is not None:
                client.kc.stop_channels()

    def _end(self) -> None:
        if self._manager.has_kernel:
            self._runner.run(self._manager.shutdown_kernel(now=True))
        self._manager = AsyncKernelManager()
        end_sessions()

    def close(self) -> None:
        """End the kernel and the engines."""
        self._end()
        self._runner.close()


@pytest.fixture(scope="module")
def shared_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedKernel]:
    folder = tmp_path_factory.mktemp("notebooks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTDG_LAB_FAST", "1")
        patch.setenv("DTDG_LAB_STATE", str(folder / "state"))
        patch.setenv("DTDG_LAB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        kernel = SharedKernel(folder)
        yield kernel
        kernel.close()


@pytest.mark.parametrize(  # the first notebook runs in the browser
    "path",
    thinned(NOTEBOOKS, [place for place, path in enumerate(NOTEBOOKS) if not path.stem.startswith(("00", *LONG))]),
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_with_its_solutions(path: Path, shared_kernel: SharedKernel) -> None:
    notebook = _with_claims(solved(nbformat.read(path, as_version=4), path.stem), path)
    shared_kernel.run(notebook)
    _has_no_errors(notebook)
    _has_clear_figures(notebook)
    _accepts_its_solutions(notebook)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem.startswith(LONG)], ids=lambda path: path.stem)
def test_a_long_notebook_runs_with_its_solutions(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTDG_LAB_FAST", "1")
    _accepts_its_solutions(_run(path, tmp_path, monkeypatch, with_solutions=True))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_a_kernel_of_its_own(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTDG_LAB_FAST", "1")
    said = _feedback(_run(path, tmp_path, monkeypatch))
    assert not any(words.startswith("done") for words in said), "nothing is done as committed"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "whole"])
def test_a_lesson_is_true_without_real_data_and_at_full_length(
    path: Path, fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a lesson says must hold on the generated graph, and for its longer runs."""
    monkeypatch.delenv("DTDG_LAB_DATA" if fast else "DTDG_LAB_FAST", raising=False)
    monkeypatch.setenv("DTDG_LAB_FAST" if fast else "DTDG_LAB_UNATTENDED", "1")
    _run(path, tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_lesson_stops_where_nothing_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DTDG_LAB_FAST", raising=False)
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    notebook = nbformat.read(next(path for path in NOTEBOOKS if path.stem.startswith("05")), as_version=4)
    client = NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(tmp_path)}})
    try:
        with pytest.raises(CellExecutionError, match="No prediction yet: What share of all rows"):
            asyncio.run(client.async_execute())
    finally:
        end_sessions()


def _run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_solutions: bool = False
) -> nbformat.NotebookNode:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    notebook = nbformat.read(path, as_version=4)
    notebook = _with_claims(solved(notebook, path.stem) if with_solutions else notebook, path)
    client = NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(tmp_path)}})
    try:
        asyncio.run(client.async_execute())
    finally:
        end_sessions()
    _has_no_errors(notebook)
    _has_clear_figures(notebook)
    return notebook


def _with_claims(notebook: nbformat.NotebookNode, path: Path) -> nbformat.NotebookNode:
    """The notebook with a last cell that checks what it says."""
    claims = CLAIMS / f"{path.stem}.py"
    if claims.exists():
        notebook.cells.append(nbformat.v4.new_code_cell(claims.read_text()))
    return notebook


def _has_clear_figures(notebook: nbformat.NotebookNode) -> None:
    """At most four panels a figure, and something drawn in each."""
    data = [o.get("data", {}) for cell in notebook.cells for o in cell.get("outputs", [])]
    for figure in (each[PLOTLY] for each in data if PLOTLY in each):
        axes = {name.replace("axis", "") for name in figure["layout"] if name.startswith("xaxis")}
        drawn = {
            trace.get("xaxis", "x")
            for trace in figure["data"]
            if any(len(trace.get(key) or ()) and trace[key] != [None] for key in ("x", "y", "z"))
        }
        title = figure["layout"].get("title", {})
        assert len(axes) <= 4, f"{title}: {len(axes)} panels"
        assert axes <= drawn, f"{title}: nothing is drawn in {sorted(axes - drawn)}"


def _feedback(notebook: nbformat.NotebookNode) -> list[str]:
    """What the checks of exercises say, line by line."""
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    text = "\n".join(o.get("text", "") + "\n" + str(o.get("data", {}).get("text/plain", "")) for o in outputs)
    return [line for line in text.splitlines() if line.startswith(("done   ", "not yet "))]


def _accepts_its_solutions(notebook: nbformat.NotebookNode) -> None:
    said = _feedback(notebook)
    assert [words for words in said if not words.startswith("done")] == []
    assert len(said) >= len(answer_cells(notebook))


def _has_no_errors(notebook: nbformat.NotebookNode) -> None:
    errors = [o for cell in notebook.cells for o in cell.get("outputs", []) if o.output_type == "error"]
    assert errors == []


def end_sessions() -> None:
    for session in list_sessions():
        end_session(session.id)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_clean(path: Path) -> None:
    notebook = json.loads(path.read_text())
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    assert path.stat().st_size < 200_000
    first, last = "".join(cells[0]["source"]), "".join(cells[-1]["source"])
    assert "**Question: " in first.splitlines()[2] and last.startswith("## What was learned")
    if not path.stem.startswith("00"):
        minutes = re.fullmatch(r"\*\*(\d+) minutes\*\* · before this: .+ · two CPU cores, .+", first.splitlines()[4])
        assert minutes, "minutes and prerequisites stand below the question"
        assert int(minutes[1]) <= 20


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_exercise_has_a_solution_outside_the_lesson(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    asked, text = answer_cells(notebook), "".join(cell.source for cell in notebook.cells)
    assert len(asked) == len(blocks(path.stem)), "in the order of the cells"
    assert (f"solutions/{path.stem}.md" in text) == bool(asked)
    assert len(asked) or "**Exercise" not in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_student_can_read_a_lesson(path: Path) -> None:
    assert (CLAIMS / f"{path.stem}.py").read_text().count("assert ") >= 5, "what it says is checked here"
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) <= 14
    for source in code:
        assert len(source.splitlines()) <= 8 and max(map(len, source.splitlines())) <= 120, source
        tree = compile(source, str(path), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert not [node for node in ast.walk(tree) if isinstance(node, HARD_TO_READ)], source
        loops = [node for node in ast.walk(tree) if isinstance(node, COMPREHENSIONS)]
        assert all(len(node.generators) == 1 for node in loops), source
        inner = [one for node in loops for one in ast.walk(node) if one is not node]
        assert not any(isinstance(one, COMPREHENSIONS) for one in inner), source
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not [name for name in names if name.startswith("_")], source
    for cell in cells[1:]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and not text.startswith(("## Going further", "## What was learned")):
            assert len(re.sub(r"[(][^)]*[)]", "", text).split()) <= 100, text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_the_lab_and_its_lessons_only(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = compile("".join(cell["source"]), str(path), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= {"dtdg_lab", "os"}
            if isinstance(node, ast.ImportFrom):
                assert (node.module, [alias.name for alias in node.names]) == ("dtdg_lab", ["lessons"])
