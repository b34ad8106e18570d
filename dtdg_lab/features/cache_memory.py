"""Whether a cache fits into memory."""

from __future__ import annotations

import psutil

from dtdg_lab.core.errors import ConfigError

BUFFERS = 2  # the cache that serves, and the one being built


def check_cache_memory(capacity: int, row_bytes: int, *, caches: int = 1, available: int | None = None) -> None:
    """Refuse a cache larger than memory before anything is fetched.

    Args:
        capacity: rows of a cache.
        row_bytes: of a row.
        caches: on this machine.
        available: bytes of memory; None asks the operating system.

    Raises:
        ConfigError: the rows of both buffers would take more than is available.
    """
    available = int(psutil.virtual_memory().available) if available is None else available
    needed = capacity * row_bytes * BUFFERS * caches
    if needed > available:
        most = available // (row_bytes * BUFFERS * caches)
        raise ConfigError(
            f"cache_rows={capacity} is larger than memory: {BUFFERS} buffers of {capacity} rows of {row_bytes} bytes"
            f"{f' for each of {caches} parts' if caches > 1 else ''} need {needed / 1e9:.3g} GB, and "
            f"{available / 1e9:.3g} GB are available. Choose at most {most} rows."
        )
