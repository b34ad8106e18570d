"""Turns what a run of ours recorded into what costs are calibrated from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dtdg_lab.control.calibration_files import Fetches
from dtdg_lab.core.errors import DataError, shortened


def fetches_of(rows: Iterable[Mapping[str, Any]], dataset: str, *, condition: str = "clean") -> dict[str, Fetches]:
    """Fetches of a run, as ``calibrate(..., fetches=)`` takes them.

    Args:
        rows: of the table ``fetches``: part, owner, rows, bytes and rtt_s are read. A run asks all owners at once.
        dataset: its name.
        condition: the links' condition all the while.

    Raises:
        DataError: no rows, or one without these columns.
    """
    names = ("part", "owner", "rows", "bytes", "rtt_s")
    taken = []
    for number, row in enumerate(rows, 1):
        try:
            taken.append([float(row[name]) for name in names])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"fetch {number}, {shortened(dict(row))}: {', '.join(names)} are needed.") from error
    if not taken:
        raise DataError(f"no fetches of {dataset} were recorded: train it with a system that fetches features.")
    requester, owner, asked, nbytes, rtt_s = np.array(taken).T
    whole = [column.astype(np.int64) for column in (requester, owner, asked)]
    named, at_once = np.full(len(taken), condition), np.ones(len(taken), dtype=np.bool_)
    return {dataset: Fetches(dataset, named, at_once, whole[0], whole[1], whole[2], nbytes, rtt_s)}


def cells_of(steps: Iterable[tuple[int, float]], dataset: str, *, condition: str = "clean") -> list[dict[str, Any]]:
    """Cells of a run, as :func:`dtdg_lab.control.calibrate` takes them: the mean of a step by window.

    Args:
        steps: window that served it, and seconds, of every step that counts.
        dataset: its name.
        condition: the links' condition all the while: "clean", or what one owner's links were set to; where these are
            given by link, X Mbit/s of ``c1_X`` are P - 1 times the rate of one.
    """
    by_window: dict[int, list[float]] = {}
    for window, seconds in steps:
        by_window.setdefault(window, []).append(seconds)
    return [
        {"dataset": dataset, "condition": condition, "window": window, "measured_ms": 1e3 * float(np.mean(own))}
        for window, own in sorted(by_window.items())
    ]
