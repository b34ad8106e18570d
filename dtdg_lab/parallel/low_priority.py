"""Work that leaves the cores to others as long as they want them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

NICE = 10  # of 19: a tenth of a core that somebody else wants; at 19 hardly anything gets done on a busy machine


def give_way() -> None:
    """Take a low priority for this thread; on other systems than Linux, where only processes have one, for all.

    Nothing happens where the system has no priorities or allows no change.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id() if sys.platform == "linux" else 0, NICE)
