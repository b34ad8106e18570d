"""Whose rows caches hold, and what they are good for: by owner, now and over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.views.cache_windows import NO_CACHE, NO_WINDOW, STEP
from dtdg_lab.views.congestion_log import CongestionLog, shaded
from dtdg_lab.views.feature_log import CacheWindow, Resolved
from dtdg_lab.views.layout import Figure, frame, join_words, percent, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import BASELINE_COLOUR, MARK_COLOUR, series_colour

Panel = tuple[Figure, str]
Windows = Mapping[tuple[int, ...], Sequence[CacheWindow]]
_POINTS = 300
_RECENT = 50  # steps that hits by owner are counted over
_MISSED = "#D5DAE0"


def contents_panel(windows: Windows, *, cached: bool) -> Panel:
    """The newest cache of every part: rows by owner, and a mark at what it may hold."""
    newest = {part[0]: each[-1] for part, each in windows.items() if each}
    names = [f"part {part}" for part in newest]
    layout = frame(
        "Caches now", "rows held", "", barmode="stack", bargap=0.35, xaxis={"rangemode": "tozero"},
        yaxis={"type": "category", "categoryarray": names[::-1], "categoryorder": "array", "showgrid": False},
        showlegend=True,
    )  # fmt: skip
    if not newest:
        note = NO_WINDOW if cached else NO_CACHE
        plain = {**layout, "yaxis": {**layout["yaxis"], "type": "linear", "categoryorder": "trace"}}
        return {"data": [], "layout": with_note(plain, note)}, _CONTENTS
    owners = 1 + max((owner for window in newest.values() for owner in range(len(window.by_owner))), default=0)
    data: list[dict[str, Any]] = []
    for owner in range(owners):
        held = [window.by_owner[owner] if owner < len(window.by_owner) else 0 for window in newest.values()]
        if any(held):
            data.append({
                "type": "bar", "orientation": "h", "name": f"rows of part {owner}", "y": names, "x": held,
                "marker": {"color": series_colour(owner)},
                "hovertemplate": "%{y} holds %{x:,} rows of part " + str(owner) + "<extra></extra>",
            })  # fmt: skip
    data.append({
        "type": "scatter", "mode": "markers", "name": "at most", "y": names,
        "x": [window.capacity for window in newest.values()],
        "marker": {"symbol": "line-ns", "size": 16, "line": {"width": 2, "color": BASELINE_COLOUR}},
        "hovertemplate": "%{y} may hold %{x:,}<extra></extra>",
    })  # fmt: skip
    return {"data": data, "layout": layout}, _contents_words(newest)


_CONTENTS = "A cache holds the rows that its part is about to ask others for most often."


def _contents_words(newest: Mapping[int, CacheWindow]) -> str:
    held, room = (sum(getattr(window, name) for window in newest.values()) for name in ("held", "capacity"))
    kept = sum(window.copied for window in newest.values())
    liked = [f"part {part} prefers part {window.biased}" for part, window in newest.items() if window.biased >= 0]
    text = f"{held:,} of {room:,} rows are held"
    text += f", {percent(kept / held)} of them kept from the cache before" if held else ""
    return f"{text}. {join_words(liked) + '. ' if liked else ''}{_CONTENTS}"


def shares_panel(windows: Windows, congestion: CongestionLog, marks: Marks, *, cached: bool) -> Panel:
    """Share of the rows held that each owner has, over all caches, at every swap; marked where one is preferred."""
    swaps = sorted((window for each in windows.values() for window in each), key=lambda window: window.step)
    now: dict[int, tuple[int, ...]] = {}
    at: dict[int, list[int]] = {}
    for window in swaps:
        now[window.part] = window.by_owner
        owners = max(len(each) for each in now.values())
        at[window.step] = [sum(each[owner] for each in now.values() if owner < len(each)) for owner in range(owners)]
    shown = sorted(at)[-_POINTS:]
    span = [shown[0], shown[-1]] if shown else []
    layout = frame(
        "Shares of the cache", STEP, "of the rows held (%)", showlegend=True, yaxis={"range": [0, 101]},
        **marks.over_steps(span),
    )  # fmt: skip
    if not shown:
        return {"data": [], "layout": with_note(layout, NO_WINDOW if cached else NO_CACHE)}, _SHARES
    data: list[dict[str, Any]] = []
    for owner in range(max(len(at[step]) for step in shown)):
        y = [_percent_of(at[step], owner) for step in shown]
        data.append({
            "type": "scatter", "mode": "lines" if len(shown) > 1 else "markers", "name": f"part {owner}", "x": shown,
            "y": y, "line": {"color": series_colour(owner), "width": 2, "shape": "hv"},
            "marker": {"color": series_colour(owner)},
            "hovertemplate": "step %{x}: %{y:.0f} %<extra>rows of part " + str(owner) + "</extra>",
        })  # fmt: skip
    liked = [window for window in swaps if window.biased >= 0 and window.step >= shown[0]]
    if liked:
        data.append({
            "type": "scatter", "mode": "markers", "name": "preferred", "x": [window.step for window in liked],
            "y": [_percent_of(at[window.step], window.biased) for window in liked],
            "marker": {"color": MARK_COLOUR, "symbol": "star", "size": 8},
            "customdata": [f"part {window.part} prefers part {window.biased}" for window in liked],
            "hovertemplate": "step %{x}: %{customdata}<extra></extra>",
        })  # fmt: skip
    return {"data": data, "layout": shaded(layout, congestion, span)}, _SHARES


_SHARES = "Shaded: links are congested. A star: the policy gives most of the cache to that owner's rows."


def _percent_of(counts: Sequence[int], owner: int) -> float | None:
    whole = sum(counts)
    return round(100 * counts[owner] / whole, 2) if whole and owner < len(counts) else None


def owners_panel(steps: Mapping[int, Sequence[Resolved]]) -> Panel:
    """Rows asked for in the newest steps by owner: those that caches had, and those that were fetched."""
    recent = [row for step in list(steps)[-_RECENT:] for row in steps[step]]
    owners = max((len(row.hits) for row in recent), default=0)
    layout = frame(
        "Rows asked for by owner", "owner", "rows of a step, all parts", barmode="stack", bargap=0.35,
        yaxis={"rangemode": "tozero"}, xaxis={"dtick": 1, "showgrid": False}, showlegend=True,
    )  # fmt: skip
    count = min(len(steps), _RECENT)
    hits, misses = (
        [sum(getattr(row, name)[owner] for row in recent if owner < len(getattr(row, name))) for owner in range(owners)]
        for name in ("hits", "misses")
    )
    if not any(hits) and not any(misses):
        return {"data": [], "layout": with_note(layout, "no batch was resolved yet")}, _OWNERS
    data = [
        {
            "type": "bar", "name": name, "x": list(range(owners)), "y": [round(each / count, 2) for each in counts],
            "marker": {"color": colour},
            "hovertemplate": "of part %{x}: %{y:,.4~g} rows of a step<extra>" + name + "</extra>",
        }
        for name, counts, colour in (("in the cache", hits, series_colour(0)), ("fetched", misses, _MISSED))
    ]  # fmt: skip
    told = [
        f"part {owner} {percent(hits[owner] / (hits[owner] + misses[owner]))}"
        for owner in range(owners) if hits[owner] + misses[owner]
    ]  # fmt: skip
    return {"data": data, "layout": layout}, f"In the cache, of the last {count} steps: {join_words(told)}. {_OWNERS}"


_OWNERS = "The slowest owner decides how long a batch waits: look whether its grey part is small."
