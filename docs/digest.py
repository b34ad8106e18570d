"""The content hash under which results of lessons and charts are kept."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def digest(*texts: bytes) -> str:
    """Return 12 digits for the texts and for what every result depends on.

    That is the package with its data, line by line since cards name lines; the pinned versions; the version of Python;
    and which data sets are on this machine, because lessons take a generated graph in place of one that is not. The
    package's version would not do: it stays while the code changes. Clocks and the machine are left out.
    """
    from dtdg_lab.datasets.names import list_datasets

    present = sorted(info.name for info in list_datasets() if info.on_this_machine)
    result = hashlib.sha256(repr((sys.version_info[:2], present)).encode())
    for content in (*texts, *(file.read_bytes() for file in _files())):
        result.update(hashlib.sha256(content).digest())
    return result.hexdigest()[:12]


def _files() -> Iterable[Path]:
    yield ROOT / "constraints.txt"
    for file in sorted((ROOT / "dtdg_lab").rglob("*.*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file
