"""Freed memory stays with the process: arrays of the same sizes are made again and again."""

from __future__ import annotations

import ctypes
import functools

KEPT_BYTES = 1 << 30
_LARGEST_FROM_HEAP = 32 << 20  # the most that glibc allows
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_TRIM_THRESHOLD and so on, of malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library give back freed memory only beyond ``KEPT_BYTES``, for the whole process; True where it can.

    By default glibc maps large arrays afresh and returns them when they are freed. Every page is then handed out and
    cleared anew, which took up to half the time of an epoch. Threads share one heap, since those of their own are small
    and returned whole. Other C libraries are left as they are.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = ((_MMAP_THRESHOLD, _LARGEST_FROM_HEAP), (_TRIM_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, 1))
    return all([library.mallopt(name, value) == 1 for name, value in settings])
