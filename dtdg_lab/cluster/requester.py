"""The name under which this process changes settings, for the log of changes."""

from __future__ import annotations

import sys
from pathlib import Path

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.records.events import NOTEBOOK

LONGEST = 80


def requester(by: str | None = None) -> str:
    """Return ``by`` if it is given, else ``notebook`` in a kernel, else the name of the program.

    Raises:
        ConfigError: ``by`` is not a short text in one line.
    """
    if by is None:
        return NOTEBOOK if _is_kernel() else _program()
    if not isinstance(by, str) or not 0 < len(by) <= LONGEST or not by.isprintable():
        raise ConfigError(f"by={by!r}: give a name in one line, of at most {LONGEST} characters.")
    return by


def _is_kernel() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")


def _program() -> str:
    """Return the file name of the program, or the name of the module that ``python -m`` runs."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return "python" if file is None else Path(file).name[:LONGEST]
