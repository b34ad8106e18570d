"""One file among those of a data set of several."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from dtdg_lab.core.errors import DataError


def find_part(data: Mapping[str, bytes], pattern: str, where: str) -> str | None:
    """The name of the one file whose name, after its last slash, fits a pattern such as ``*.graph``; or None.

    Raises:
        DataError: several fit.
    """
    fits = [
        name for name in data
        if fnmatchcase(name.rpartition("/")[2], pattern)
        and not name.rpartition("/")[2].startswith("._") and not name.startswith("__MACOSX/")
    ]  # fmt: skip
    if len(fits) > 1:
        raise DataError(f"{where} holds {len(fits)} files that fit {pattern!r}: {', '.join(fits[:5])}; one is needed.")
    return fits[0] if fits else None


def part(data: Mapping[str, bytes], pattern: str, where: str) -> bytes:
    """The content of the one file whose name, after its last slash, fits a pattern.

    Raises:
        DataError: none fits, or several do.
    """
    name = find_part(data, pattern, where)
    if name is None:
        raise DataError(
            f"{where} has no file {pattern!r}; it has {', '.join(list(data)[:12]) or 'none'}. Fetch the file again."
        )
    return data[name]
