"""Every Python snippet of the README and the documentation runs; tests/house/test_inline_code.py looks up other code.

A comment before a snippet says what is special: ``<!-- run: slow -->`` leaves it to ``make test-full``, ``<!-- not run:
REASON -->`` leaves it out. Of a slow snippet a run that is changed live is stopped when its changes have been applied,
in place of ``run.wait()``; other trainings have three epochs, and those of quick snippets five.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dtdg_lab as lab
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from tests.factories import small_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
FENCE = re.compile(r"^(?:<!-- (run|not run): ([^\n]+) -->\n+)?```(\w*)\n(.*?)^```$", re.M | re.S)
SHORT, QUICK = 3, 5  # epochs; a change must reach the run before it ends
# what a page's snippets find already there
Names = dict[str, Any]


class Snippet(NamedTuple):
    """A fence of a page."""

    page: str
    line: int
    mark: tuple[str, str]
    code: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def snippets() -> list[Snippet]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        for fence in FENCE.finditer(text):
            if fence[3] == "python":
                line = text[: fence.start(4)].count("\n") + 1
                found.append(Snippet(page, line, (fence[1] or "", fence[2] or ""), fence[4]))
    return found


def cases() -> list[Any]:
    """The snippets as cases of a test, with their marks."""
    made = []
    for snippet in snippets():
        if snippet.page == "README.md":
            continue  # test_session runs it, without data and network
        marks = []
        if snippet.mark == ("run", "slow"):
            marks.append(pytest.mark.slow)
        elif snippet.mark[0] == "not run":
            marks.append(pytest.mark.skip(reason=snippet.mark[1]))
        made.append(pytest.param(snippet, id=snippet.name, marks=marks))
    return made


def changes(run: Run) -> tuple[set[str], set[str], list[Any]]:
    """Settings that were asked for, those that were applied, and refusals."""
    events = lab.runs.open(run.path).table("events")
    asked = [row["request"].get("set", {}) for row in events[events.kind == "control_received"].data]
    applied = [row["changes"] for row in events[events.kind == "settings"].data]
    return set().union(*asked), set().union(*applied), list(events[events.kind == "refused"].data)


def ended(run: Run) -> Run:
    """Stop a run when all its live changes are applied."""
    deadline = time.monotonic() + 200
    asked, applied, refused = changes(run)
    while not (asked and asked <= applied) and not refused and time.monotonic() < deadline:
        time.sleep(0.2)
        asked, applied, refused = changes(run)
    run.stop()
    run.wait(120)
    assert asked and asked <= applied and not refused, (asked, applied, refused)
    return run


def small(session: Session) -> Names:
    """A finished run with checkpoints."""
    config = small_config(ranks=2, epochs=SHORT, keep_every=10, generated_nodes=200, generated_edges=800, threads=1)
    return {"run": session.train(config).wait(120), "config": config}


def features(_: Session) -> Names:
    """A static graph with features and classes."""
    draw = np.random.default_rng(0)
    return {
        "src": draw.integers(0, 2000, 20_000),
        "dst": draw.integers(0, 2000, 20_000),
        "features": draw.random((2000, 16), dtype=np.float32),
        "classes": draw.integers(0, 4, 2000),
    }


def configuration(_: Session) -> Names:
    """What the configuration files of Jupyter and nbgrader have."""
    from traitlets.config import Config

    return {"c": Config(), "get_config": Config}


def notebook(session: Session) -> Names:
    """The same, and a notebook."""
    import nbformat

    cells = [nbformat.v4.new_markdown_cell("text") for _ in range(4)]
    return configuration(session) | {"nbformat": nbformat, "notebook": nbformat.v4.new_notebook(cells=cells)}


PREPARED: dict[str, Callable[[Session], Names]] = {
    "docs/environments.md": configuration,
    "docs/forks_and_exports.md": small,
    "docs/greendygnn.md": features,
    "docs/instructor.md": notebook,
    "docs/studies.md": small,
}


def shortened(code: str) -> str:
    """The snippet without long waits."""
    if "run.set(" in code:
        code = re.sub(r"^(\s*)run\.wait\(\)", r"\1ended(run)", code, flags=re.M)
        code = re.sub(r"epochs=\d+", "epochs=2000", code, count=1)
        code = code.replace("replace(ranks=1)", f"replace(ranks=1, epochs={SHORT})")
    return re.sub(r"epochs=(?!2000)\d+", f"epochs={SHORT}", code)


def run(snippet: Snippet, code: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Names:
    names: Names = {"lab": lab, "ended": ended, "__name__": "snippet"}
    own = re.search(r"^with lab\.Session", code, flags=re.M)
    session = None
    if "session" in code and not own:
        session = request.getfixturevalue("two_engines")
        monkeypatch.setenv("DTDG_LAB_STATE", str(request.getfixturevalue("shared_state")))
        names["session"] = request.getfixturevalue("session")
        if not session.ready:  # its engines have ended meanwhile: other snippets start their own
            session.repair()
    if snippet.page in PREPARED:
        names |= PREPARED[snippet.page](session)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # a reader sees them and goes on
        exec(compile("\n" * (snippet.line - 1) + code, str(ROOT / snippet.page), "exec"), names)
    return names


@pytest.mark.parametrize("snippet", cases())
def test_a_snippet_runs(
    snippet: Snippet, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if any(f'"{each.name}"' in snippet.code for each in lab.datasets.list() if each.bytes):
        monkeypatch.setenv("DTDG_LAB_DATA", str(request.getfixturevalue("real_data")))
    slow = snippet.mark[0] == "run"
    code = shortened(snippet.code) if slow else re.sub(r"epochs=\d+", f"epochs={QUICK}", snippet.code)
    names = run(snippet, code, request, monkeypatch)
    done = names.get("run")
    assert done is None or done.status in ("finished", "stopped") or "session" not in snippet.code


def test_a_snippet_that_fails_is_found(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttributeError, match="nothing"):
        run(Snippet("docs/none.md", 3, ("", ""), "lab.nothing()\n"), "lab.nothing()\n", request, monkeypatch)
    assert {snippet.mark[0] for snippet in snippets()} <= {"", "run", "not run"}
    assert all(snippet.mark[1] == "slow" for snippet in snippets() if snippet.mark[0] == "run")
