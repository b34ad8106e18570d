"""One process of this machine at a time: slow work is done by the first and found by the rest."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from dtdg_lab.graphs.store import cache_folder


@contextlib.contextmanager
def one_at_a_time(what: Path) -> Iterator[bool]:
    """Wait until no other process is inside this block for the same ``what``, a file or folder about to be made.

    The lock is the kernel's and ends with its process, however that ends. No result depends on it: where a file system
    has no locks, or ``fcntl`` is missing, several processes do the same work and one of them puts it in place.

    Yields:
        Whether there is a lock, so that no other process is inside.
    """
    alone = False
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, ImportError):
            import fcntl

            folder = cache_folder() / "locks"
            folder.mkdir(parents=True, exist_ok=True)
            name = hashlib.sha256(str(what.absolute()).encode()).hexdigest()[:32]
            file = held.enter_context((folder / name).open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
            alone = True
        yield alone
