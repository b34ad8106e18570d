"""Namespaces that load a name when it is first used, so that importing them is light."""

from __future__ import annotations

import ast
import inspect
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

# Python 3.11 counts depths of ast for all threads together: of two that parse at a time, numpy's reading of an array's
# header included, either may fail with SystemError (python/cpython issue 106905)
PARSING = threading.Lock()


def lazy_namespace(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a module whose names are imported when they are first used.

    The names are those that its source imports under ``if TYPE_CHECKING:``, so that type checkers, editors and
    this function read the same list. Its ``__all__`` must name them too. Completion lists nothing else.

    Args:
        module: the module's ``__name__``.

    Example::

        if TYPE_CHECKING:
            from dtdg_lab.runs.exports import open_run as open

        __all__ = ["open"]
        __getattr__, __dir__ = lazy_namespace(__name__)
    """
    where = _imported_for_types(inspect.getsource(sys.modules[module]))

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"{module} has no {name!r}; it has {', '.join(sorted(where))}", name=name)
        home, original = where[name]
        return import_module(f"{home}.{original}") if home == module else getattr(import_module(home), original)

    return load, lambda: sorted(where)


def parsed(source: str) -> ast.Module:
    """The syntax tree, in any thread."""
    with PARSING:
        try:
            return ast.parse(source)
        except SystemError:  # another package parsed at the same time, without the lock
            return ast.parse(source)


def _imported_for_types(source: str) -> dict[str, tuple[str, str]]:
    """Name -> module and original name of every ``from ... import ...`` under ``if TYPE_CHECKING:``."""
    guarded = [
        node
        for node in parsed(source).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    imports = [each for node in guarded for each in node.body if isinstance(each, ast.ImportFrom)]
    return {each.asname or each.name: (line.module or "", each.name) for line in imports for each in line.names}
