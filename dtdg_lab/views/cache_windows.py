"""Windows and hit rates over time, with the congestion behind them (Figure 7 of GreenDyGNN)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from dtdg_lab.core.feature_path import WINDOWS
from dtdg_lab.views.congestion_log import CongestionLog, shaded
from dtdg_lab.views.feature_log import CacheWindow, Resolved
from dtdg_lab.views.hit_sums import EpochHits
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import STEP_COLOUR, WARNING_COLOUR, series_colour

Panel = tuple[Figure, str]
STEP = "step (model updates)"
_POINTS = 300  # of a line, so that pictures stay small
NO_CACHE = "this policy keeps no cache"
NO_WINDOW = "no cache was swapped in yet"
_ENOUGH = 2  # epochs from which there is a line


def windows_panel(
    windows: Mapping[tuple[int, ...], Sequence[CacheWindow]], congestion: CongestionLog, marks: Marks, *,
    cached: bool, now: int | None = None,
) -> Panel:  # fmt: skip
    """W of every part over steps, congestion behind; crosses where a cache came late.

    Args:
        windows: by part, in order.
        congestion: of the run.
        marks: of the run's changes.
        cached: whether the policy has windows at all.
        now: the newest step, up to which the last window is drawn.
    """
    steps = [window.step for each in windows.values() for window in each]
    span = [min(steps), max([*steps, now or 0])] if steps else []
    layout = frame(
        "Window of the cache", STEP, "W (steps between rebuilds)", showlegend=True, **marks.over_steps(span),
    )  # fmt: skip
    layout["yaxis"] |= {"type": "log", "tickvals": list(WINDOWS)}
    if not steps:
        return {"data": [], "layout": with_note(_linear(layout), NO_WINDOW if cached else NO_CACHE)}, _WINDOWS_READING
    lengths = [window.length for each in windows.values() for window in each]
    layout["yaxis"]["range"] = [log10(max(min(lengths), 1) / 1.4), log10(max(*lengths, 1) * 1.4)]
    data: list[dict[str, Any]] = []
    for (part, *_), each in windows.items():
        shown = each[-_POINTS:]
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": f"part {part}",
            "x": [*(window.step for window in shown), span[1]], "y": [*(w.length for w in shown), shown[-1].length],
            "line": {"color": series_colour(part), "width": 2, "shape": "hv"}, "marker": {"size": 4},
            "customdata": [*(_window_words(window) for window in shown), _window_words(shown[-1])],
            "hovertemplate": "%{customdata}<extra>part " + str(part) + "</extra>",
        })  # fmt: skip
    late = [window for each in windows.values() for window in each[-_POINTS:] if window.late_steps > 0]
    if late:
        data.append({
            "type": "scatter", "mode": "markers", "name": "came late", "x": [window.step for window in late],
            "y": [window.length for window in late],
            "marker": {"color": WARNING_COLOUR, "symbol": "x", "size": 8},
            "customdata": [_window_words(window) for window in late],
            "hovertemplate": "%{customdata}<extra>late</extra>",
        })  # fmt: skip
    return {"data": data, "layout": shaded(layout, congestion, span)}, _windows_words(windows, congestion)


_WINDOWS_READING = "Shaded: links are congested, the stronger the slower. Look whether W follows."


def _linear(layout: dict[str, Any]) -> dict[str, Any]:
    """Without an axis of powers, on which a note could not stand."""
    return {**layout, "yaxis": {key: each for key, each in layout["yaxis"].items() if key not in ("type", "tickvals")}}


def _window_words(window: CacheWindow) -> str:
    late = f", {window.late_steps} steps late" if window.late_steps > 0 else ""
    liked = f", most for part {window.biased}" if window.biased >= 0 else ""
    return (
        f"window {window.number} from step {window.step}: W {window.length}{late}{liked}; {window.held:,} rows, "
        f"{window.copied:,} kept, {window.fetched:,} fetched"
    )


def _windows_words(windows: Mapping[tuple[int, ...], Sequence[CacheWindow]], congestion: CongestionLog) -> str:
    every = [window for each in windows.values() for window in each]
    calm, slow = (
        [w.length for w in every if _is_congested(congestion, w.step) is wanted] for wanted in (False, True)
    )  # fmt: skip
    late = sum(window.late_steps > 0 for window in every)
    text = f"{len(every):,} caches were swapped in, {late:,} of them late."
    if calm and slow:
        text += f" W is {_mean(calm):.3g} in the mean where links are free and {_mean(slow):.3g} where they are not."
    return f"{text} {_WINDOWS_READING}"


def _is_congested(congestion: CongestionLog, step: int) -> bool:
    links = congestion.at(step)
    return links is not None and bool(links.congested)


def hits_panel(
    steps: Mapping[int, Sequence[Resolved]], epochs: Mapping[int, EpochHits], congestion: CongestionLog, marks: Marks,
    *, cached: bool,
) -> Panel:  # fmt: skip
    """Share of the remote rows that caches had: by epoch, and of the newest steps; congestion behind.

    Args:
        steps: of the newest steps, what every part asked for.
        epochs: of all epochs, the sums.
        congestion: of the run.
        marks: of the run's changes.
        cached: whether the policy has a cache.
    """
    ended = {epoch: each for epoch, each in epochs.items() if each.rate is not None}
    ends = [*(each.first for each in ended.values()), *(each.last for each in ended.values())]
    span = [min(ends), max(ends)] if ends else []
    layout = frame(
        "Hit rate", STEP, "rows found in the cache (%)", showlegend=True, yaxis={"range": [0, 101]},
        **marks.over_steps(span),
    )  # fmt: skip
    if not ended:
        return {"data": [], "layout": with_note(layout, "no batch was resolved yet")}, _hits_words(ended, cached)
    x, y = _binned(steps)
    epoch_y = [round(100 * (each.rate or 0.0), 2) for each in ended.values()]
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": "newest steps", "x": x, "y": y,
         "line": {"color": STEP_COLOUR, "width": 1.2}, "hovertemplate": "step %{x}: %{y:.1f} %<extra></extra>"},
        {"type": "scatter", "mode": "lines+markers" if len(ended) >= _ENOUGH else "markers", "name": "epochs",
         "x": [each.middle for each in ended.values()], "y": epoch_y, "customdata": list(ended),
         "line": {"color": series_colour(0), "width": 2}, "marker": {"size": 5, "color": series_colour(0)},
         "hovertemplate": "epoch %{customdata}: %{y:.1f} %<extra></extra>"},
    ]  # fmt: skip
    return {"data": data, "layout": shaded(layout, congestion, span)}, _hits_words(ended, cached)


def _binned(steps: Mapping[int, Sequence[Resolved]]) -> tuple[list[float], list[float]]:
    """Hit rates of stretches of the newest steps: about ``_POINTS`` of them."""
    span = max(1, -(-len(steps) // _POINTS))
    sums: dict[int, tuple[float, int, int, int]] = {}
    for number, (step, rows) in enumerate(steps.items()):
        at, count, hit, remote = sums.get(number // span, (0.0, 0, 0, 0))
        sums[number // span] = (
            at + step, count + 1, hit + sum(row.hit for row in rows), remote + sum(row.remote for row in rows),
        )  # fmt: skip
    known = [(at / count, 100 * hit / remote) for at, count, hit, remote in sums.values() if remote]
    return [round(at, 1) for at, _ in known], [round(rate, 2) for _, rate in known]


def _hits_words(epochs: Mapping[int, EpochHits], cached: bool) -> str:
    if not cached:
        return "Without a cache every remote row is fetched: the hit rate is 0 %."
    if not epochs:
        return "Share of other parts' rows that the cache had; the rest is fetched while training may wait."
    newest = max(epochs)
    best = max(epochs, key=lambda epoch: epochs[epoch].rate or 0.0)
    return (
        f"Epoch {newest}: {percent(epochs[newest].rate or 0.0)} of {epochs[newest].remote:,} remote rows were in a "
        f"cache; the most was {percent(epochs[best].rate or 0.0)}, in epoch {best}. A smaller window knows better what "
        "is asked next, and costs more rebuilds."
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
