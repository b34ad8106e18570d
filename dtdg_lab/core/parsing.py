"""Parsing of Python source in threads."""

from __future__ import annotations

import ast
import threading

# Python 3.11 counts depths of ast for all threads together: of two that parse at a time, numpy's reading of an array's
# header included, either may fail with SystemError (python/cpython issue 106905)
PARSING = threading.Lock()


def parsed(source: str) -> ast.Module:
    """Return the syntax tree, in any thread."""
    with PARSING:
        try:
            return ast.parse(source)
        except SystemError:  # another package parsed at the same time, without the lock
            return ast.parse(source)
