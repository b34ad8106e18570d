"""Recorded traces of links: saving and replay."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.core.files import replacing
from dtdg_lab.core.system_errors import explain, reading
from dtdg_lab.core.units import as_path
from dtdg_lab.network.links import BITS, LinkState, check_delay, check_rate


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """Links that change as in a recorded run; clean before the first change.

    Attributes:
        times: (epoch, share of it) of each change, ascending.
        states: links after each change.
        parts: number of parts, P.
    """

    times: tuple[tuple[int, float], ...]
    states: tuple[LinkState, ...]
    parts: int

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links after a ``share`` of an epoch, 0 to less than 1."""
        number = bisect_right(self.times, (epoch, share))
        return self.states[number - 1] if number else LinkState.clean(self.parts)


def save_trace(events: Iterable[Mapping[str, Any]], file: str | Path, *, steps_per_epoch: int) -> Path:
    """Write the trace of a run: a JSON line for each change of its links.

    Args:
        events: rows of the run's table ``events``. The ``data`` of kind ``congestion`` has ``delay_ms`` and ``mbit``,
            (P, P) each, with None for an unlimited rate.
        file: file to write or replace.
        steps_per_epoch: steps of an epoch of the run.

    Raises:
        DataError: there is no such event, or the file cannot be written.
    """
    lines = []
    for event in events:
        if event["kind"] == "congestion":
            share = (event["step"] - event["epoch"] * steps_per_epoch) / steps_per_epoch
            when = {"epoch": event["epoch"], "share": min(max(share, 0.0), 1 - 1e-9)}
            lines.append(json.dumps({**when, **{name: event["data"][name] for name in ("delay_ms", "mbit")}}))
    if not lines:
        raise DataError("there is no event of kind congestion: the run had no slow links. Choose another run.")
    path = as_path(file, "file")
    try:
        with replacing(path) as draft:
            draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write the trace {path}: {explain(error, path, setting='file=')}") from error
    return path


def load_trace(file: str | Path, parts: int) -> RecordedTrace:
    """Read a trace file of :func:`save_trace`, or one of the same format.

    Each line is a JSON object of ``epoch``, ``share`` (0 to less than 1; 0 by default), and ``delay_ms``, ``mbit``:
    (P, P), a row for each owner and a column for each requester; ``mbit`` or a rate may be null.

    Args:
        file: file of JSON lines, ordered by time; empty lines are ignored.
        parts: number of parts of the run, P.

    Raises:
        ConfigError: no file is given, or it has another number of parts.
        DataError: the file cannot be read or is empty, or a line is no such object or out of order.
    """
    if not file:
        raise ConfigError("congestion=recorded needs the file of a trace: set congestion_file, or another pattern.")
    path = as_path(file, "congestion_file")
    with reading(path, f"congestion_file={str(file)!r}", remedy="Give a trace's file."):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    changes = [_change(line, number, path, parts) for number, line in enumerate(lines, start=1)]
    times = tuple(when for when, _ in changes)
    if not times or list(times) != sorted(times):
        raise DataError(f"{path} is no trace: it needs at least one line, and lines in order of epoch and share.")
    return RecordedTrace(times, tuple(links for _, links in changes), parts)


def _change(line: str, number: int, path: Path, parts: int) -> tuple[tuple[int, float], LinkState]:
    try:
        change = json.loads(line)
        when = (int(change["epoch"]), float(change.get("share", 0.0)))
        delay_s = np.array(change["delay_ms"], dtype=np.float64) / 1e3
        limits = change.get("mbit") or [[None] * len(row) for row in change["delay_ms"]]
        rates = np.array([[np.inf if limit is None else limit for limit in row] for row in limits], dtype=float) / BITS
        if not 0 <= when[1] < 1:
            raise ValueError(f"share={when[1]} is not between 0 and less than 1")
        check_delay(float(delay_s.max()) * 1e3, "its greatest delay")
        if np.isfinite(rates).any():
            check_rate(float(rates.min()) * BITS, "its least rate")
        links = LinkState(delay_s, rates)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"line {number} of {path} is no change of links ({type(error).__name__}: {error}). Each is a JSON object "
            "of epoch, share, and (P, P) lists delay_ms and mbit."
        ) from error
    if links.parts != parts:
        raise ConfigError(
            f"{path} is a trace of {links.parts} parts, this run has {parts}. Run it with parts={links.parts}, or give "
            "another trace."
        )
    return when, links
