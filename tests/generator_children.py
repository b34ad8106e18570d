"""The processes that generate batches for this one; other tests may have left children of their own."""

from __future__ import annotations

from contextlib import suppress

import psutil


def generator_children() -> list[psutil.Process]:
    """Those that live."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie is one of these
            if "hybrid_batches.generators" in " ".join(child.cmdline()):
                found.append(child)
    return found
