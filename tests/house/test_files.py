"""Rules about the files of the package: typed, documented, without prints, with true ``__all__`` lists."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "dtdg_lab"
FILES = sorted(PACKAGE.rglob("*.py"))
MAY_PRINT = {"__main__.py", "cluster/idle_watchdog.py"}
ALGORITHM_PACKAGES = (
    "datasets",
    "distributed",
    "energy",
    "engine",
    "graphs",
    "kernels",
    "models",
    "network",
    "partition",
    "rl",
    "systems",
    "training",
)

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


@each_file
def test_only_the_command_line_prints(file: Path) -> None:
    names = {node.id for node in ast.walk(_tree(file)) if isinstance(node, ast.Name)}
    assert "print" not in names or str(file.relative_to(PACKAGE)) in MAY_PRINT


@each_file
def test_no_file_is_called_after_nothing(file: Path) -> None:
    assert file.name not in {"utils.py", "helpers.py", "util.py", "helper.py", "misc.py", "common.py"}


@each_file
def test_no_exception_is_swallowed(file: Path) -> None:
    """No bare ``except``, and no handler for everything whose body is ``pass``."""
    for handler in (node for node in ast.walk(_tree(file)) if isinstance(node, ast.ExceptHandler)):
        assert handler.type is not None, f"bare except in line {handler.lineno}"
        broad = isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"}
        empty = all(isinstance(statement, ast.Pass) for statement in handler.body)
        assert not (broad and empty), f"swallowed exception in line {handler.lineno}"


def _with_all() -> list[Path]:
    return [file for file in FILES if "\n__all__ = " in file.read_text()]


@pytest.mark.parametrize("file", _with_all(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_names_in_all_can_be_imported(file: Path) -> None:
    name = ".".join(("dtdg_lab", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    module = importlib.import_module(name)
    assert module.__all__
    assert [exported for exported in module.__all__ if not hasattr(module, exported)] == []


@pytest.mark.parametrize("package", ALGORITHM_PACKAGES)
def test_everything_public_is_documented(package: str) -> None:
    bare = []
    for file in sorted((PACKAGE / package).rglob("*.py")):
        tree = _tree(file)
        bare += [] if ast.get_docstring(tree) else [str(file)]
        for node in _public(tree):
            if not ast.get_docstring(node):
                bare.append(f"{file.name}:{node.lineno} {node.name}")
    assert bare == []


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public functions and classes of a module, and public methods of its public classes."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, kinds) and not node.name.startswith("_"):
            yield node
            inner = node.body if isinstance(node, ast.ClassDef) else []
            yield from (part for part in inner if isinstance(part, kinds) and not part.name.startswith("_"))
