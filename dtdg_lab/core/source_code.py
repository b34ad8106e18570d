"""Source code of a class or function: its text with the imports and helpers that it needs, and a hash."""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import linecache
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import FunctionType, ModuleType
from typing import Any

_LITERALS = (bool, int, float, str, bytes, type(None))


def source_of(what: Any) -> str:
    """Return the text of a class or function; empty if it is not known.

    A class of a notebook cell has no file: its text is cut out of the cell of one of its methods.
    """
    try:
        return textwrap.dedent(inspect.getsource(what))
    except (OSError, TypeError):
        pass  # a class of a notebook cell, or an object that is neither class nor function
    for method in vars(what).values() if isinstance(what, type) else ():
        function = getattr(method, "__func__", method)
        if not isinstance(function, FunctionType):
            continue
        cell = "".join(linecache.getlines(function.__code__.co_filename))
        for node in ast.walk(ast.parse(cell)) if cell else ():
            if isinstance(node, ast.ClassDef) and node.name == what.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return textwrap.dedent("\n".join(cell.splitlines()[first - 1 : node.end_lineno]) + "\n")
    return ""


def source_hash(what: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the text; empty if the text is not known.

    For an object that is neither class nor function, the text is that of its class.
    """
    text = source_of(what) or source_of(type(what))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def variable_of(what: Any) -> str:
    """Return the name of a class or function, or that of a variable of ``__main__``; empty if it has none."""
    name = getattr(what, "__qualname__", "")
    if name and not name.endswith("<lambda>"):
        return str(name)
    return next((name for name, value in vars(sys.modules["__main__"]).items() if value is what), "")


def defining_code(what: Any) -> str:
    """Return statements that define a class, a function or an instance of ``__main__``, with its imports and helpers.

    A name that can be neither imported nor defined becomes a comment. An instance is made as its ``repr`` says.

    Returns:
        The statements; empty if the text of ``what`` or its class is not known.
    """
    imports: dict[str, None] = {}
    helpers: dict[str, str] = {}
    is_instance = not hasattr(what, "__qualname__")
    call = f"{what!r}" if is_dataclass(what) else f"{type(what).__qualname__}()"
    has_name = is_instance or variable_of(what)  # a lambda may have none
    if not has_name or not _collect(type(what) if is_instance else what, imports, helpers):
        return ""
    if is_instance:
        helpers[""] = f"{variable_of(what) or 'registered'} = {call}\n"
    return "\n".join([*sorted(imports), "", *helpers.values()])


def _collect(what: Any, imports: dict[str, None], helpers: dict[str, str]) -> bool:
    """Add what a definition needs, then itself; return False if its text is not known."""
    text = source_of(what)
    if not text or not _is_definition(text):
        return False
    helpers[what.__name__] = ""  # a helper may refer back to it
    module = sys.modules.get(what.__module__)
    for name, value in _globals_of(text, {} if module is None else vars(module)):
        if name in helpers:
            continue
        if isinstance(value, ModuleType):
            imports[_import_module(value, name)] = None
        elif isinstance(value, _LITERALS):
            helpers[name] = f"{name} = {value!r}\n"
        elif getattr(value, "__module__", "__main__") != what.__module__ and hasattr(value, "__qualname__"):
            renamed = "" if value.__name__ == name else f" as {name}"
            imports[f"from {value.__module__} import {value.__name__}{renamed}"] = None
        elif not (hasattr(value, "__name__") and _collect(value, imports, helpers)):
            helpers[name] = f"# {name} (of type {type(value).__name__}) must be defined here\n"
    # after its helpers; annotations of a cell may have been text
    helpers.pop(what.__name__)
    helpers[what.__name__] = text
    return True


def _is_definition(text: str) -> bool:
    """Return whether a text defines something; that of a lambda may be a part of a call."""
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return False
    return isinstance(statements[0], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign)


def _globals_of(text: str, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the global names that a definition reads, with their values."""
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    for name in sorted(names):
        if name in values and not hasattr(builtins, name):
            yield name, values[name]


def _import_module(module: ModuleType, name: str) -> str:
    if module.__name__ == name:
        return f"import {name}"
    package, _, last = module.__name__.rpartition(".")
    if last == name:
        return f"from {package} import {name}"
    return f"import {module.__name__} as {name}"
