"""Print the test files that `make check` runs: those of what changed since `main`, nearest first, while time allows.

A test file is as near to a change as the number of imports between them. Its seconds are those of its last run
(pytest's cache); a file that never ran counts ``UNKNOWN_S``. What is left out is named on stderr.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grimp

from tests.budget import SECONDS

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 90.0  # processor seconds of tests: some 50 of two processes, the rest is lint and start
UNKNOWN_S = 3.0
ALWAYS = ("tests/house/test_files.py", "tests/house/test_docs.py")


def changed_files(since: str = "main") -> list[str]:
    """Files that differ from the common ancestor with ``since``, committed or not; on it, from the commit before."""
    base = _git("merge-base", "HEAD", since).strip()
    if base == _git("rev-parse", "HEAD").strip():
        base = "HEAD~1"
    return sorted({*_git("diff", "--name-only", base).split(), *_git("ls-files", "-o", "--exclude-standard").split()})


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def module_of(file: str, modules: Iterable[str]) -> str:
    """The module of a source file; of another file (TOML, Markdown, a template): the nearest package above it."""
    path = Path(file)
    parts = list(path.with_suffix("").parts if path.suffix == ".py" else path.parent.parts)
    known = set(modules)
    while parts and ".".join(parts) not in known:
        parts.pop()
    return ".".join(parts)


def imported(file: Path, modules: set[str]) -> set[str]:
    """Modules of the package that a test file imports, and other test files by their path."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        else:
            continue
        found |= names & modules
        paths = [Path(*name.split(".")).with_suffix(".py") for name in names if name.startswith("tests.")]
        found |= {str(path) for path in paths if (ROOT / path).is_file()}
    return found


def nearest_tests(changes: Iterable[str]) -> dict[str, int]:
    """Test file -> imports between it and a changed file, nearest first."""
    graph = grimp.build_graph("dtdg_lab", exclude_type_checking_imports=True)
    modules = set(graph.modules)
    changes = list(changes)
    distance = {module_of(file, modules): 0 for file in changes if file.startswith("dtdg_lab/")}
    front = list(distance)
    while front:
        importers = {one for module in front for one in graph.find_modules_that_directly_import(module)} - set(distance)
        distance |= dict.fromkeys(importers, distance[front[0]] + 1)
        front = sorted(importers)
    distance |= {file: 0 for file in changes if file.startswith("tests/")}
    near = {}
    for test in sorted((ROOT / "tests").glob("*/**/test_*.py")):
        name = str(test.relative_to(ROOT))
        steps = [distance[one] + 1 for one in imported(test, modules) if one in distance]
        if name in changes or steps:
            near[name] = 0 if name in changes else min(steps)
    return dict(sorted(near.items(), key=lambda one: one[1]))


def chosen(near: dict[str, int], seconds: dict[str, float], limit_s: float = LIMIT_S) -> tuple[list[str], list[str]]:
    """Files to run and files left out: nearest first, then shortest first, until the seconds are spent."""
    run, left, spent_s = [], [], 0.0
    for file in sorted(near, key=lambda one: (near[one], seconds.get(one, UNKNOWN_S))):
        spent_s += seconds.get(file, UNKNOWN_S)
        (run if spent_s <= limit_s else left).append(file)
    return run, left


def main() -> None:
    """Print the files to run; name on stderr what is left out."""
    cache = ROOT / ".pytest_cache" / "v" / SECONDS
    seconds = json.loads(cache.read_text()) if cache.is_file() else {}
    near = dict.fromkeys(ALWAYS, 0) | nearest_tests(changed_files())
    run, left = chosen(near, seconds)
    if left:
        left_s = sum(seconds.get(file, UNKNOWN_S) for file in left)
        print(f"Left to `make test`: {len(left)} farther test files ({left_s:.0f} s)", file=sys.stderr)
    print(" ".join(run))


if __name__ == "__main__":
    main()
