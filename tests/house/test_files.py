"""Rules about the files of the package: typed, documented, without prints, with true ``__all__`` lists."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "dtdg_lab"
MAY_PRINT = {"cli.py", "cluster/keeper.py"}
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

TREES = {file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_only_the_command_line_prints() -> None:
    nodes = {path: (node for node in ast.walk(tree) if isinstance(node, ast.Name)) for path, tree in TREES.items()}
    assert {path for path in nodes if any(node.id == "print" for node in nodes[path])} <= MAY_PRINT


def test_no_file_is_called_after_nothing() -> None:
    nothing = {"utils.py", "helpers.py", "util.py", "helper.py", "misc.py", "common.py"}
    assert [path for path in TREES if Path(path).name in nothing] == []


def test_no_exception_is_swallowed() -> None:
    """No bare ``except``, and no handler for everything whose body is ``pass``."""
    swallowed = []
    for path, tree in TREES.items():
        for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
            broad = isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"}
            empty = all(isinstance(statement, ast.Pass) for statement in handler.body)
            if handler.type is None or (broad and empty):
                swallowed.append(f"{path}:{handler.lineno}")
    assert swallowed == []


def test_names_in_all_can_be_imported() -> None:
    missing, found = [], 0
    for path in (path for path in TREES if "\n__all__ = " in (PACKAGE / path).read_text()):
        module = importlib.import_module(
            ".".join(("dtdg_lab", *Path(path).with_suffix("").parts)).removesuffix(".__init__")
        )
        found += bool(module.__all__)
        missing += [f"{path}: {name}" for name in module.__all__ if not hasattr(module, name)] or [path] * (
            not module.__all__
        )
    assert found
    assert missing == []


def test_everything_public_is_documented() -> None:
    bare = []
    for path, tree in TREES.items():
        if path.split("/")[0] in ALGORITHM_PACKAGES:
            bare += [] if ast.get_docstring(tree) else [path]
            bare += [f"{path}:{node.lineno} {node.name}" for node in _public(tree) if not ast.get_docstring(node)]
    assert bare == []


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public functions and classes of a module, and public methods of its public classes; an overload has no body."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, kinds) and not node.name.startswith("_") and not _is_overload(node):
            yield node
            inner = node.body if isinstance(node, ast.ClassDef) else []
            yield from (part for part in inner if isinstance(part, kinds) and not part.name.startswith("_"))


def _is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list)
