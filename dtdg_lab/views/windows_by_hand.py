"""Windows of a cache chosen by hand on a simulated run: what was chosen, what was heard, what it cost so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtdg_lab.control.cache_episode import CacheEpisode
from dtdg_lab.core.links import LinkState
from dtdg_lab.views.congestion_log import CongestionLog
from dtdg_lab.views.feature_log import CacheChoice
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, join_words
from dtdg_lab.views.link_latency import estimates_panel
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.policy_values import actions_panel, regret_panel
from dtdg_lab.views.regret import regret_lines

BY_HAND = "by hand"
_ASKER = 0  # the part that decides, in the simulator


@dataclass(frozen=True, slots=True)
class Move:
    """One choice.

    Attributes:
        first: step that it holds from.
        window: W.
        preferred: part that gets most of the cache; None for none.
        heard_at: step of the boundary where it was chosen.
        late_ms: what was heard there of each other part, (P - 1,).
    """

    first: int
    window: int
    preferred: int | None
    heard_at: int
    late_ms: tuple[float, ...]


def windows_by_hand_figure(
    episode: CacheEpisode,
    moves: Sequence[Move],
    played: Mapping[str, Sequence[tuple[int, int]]],
    *,
    late_ms: tuple[float, ...],
    now: int,
) -> Figure:
    """Choices over the congestion, what is heard of it, and joules beyond the clairvoyant; nothing that is to come.

    Args:
        episode: what the run meets.
        moves: so far, in order.
        played: windows by name, those by hand among them: see ``regret_lines``; empty before the first choice.
        late_ms: what is heard now, (P - 1,).
        now: the step up to which all is shown.
    """
    congestion = _congestion(episode, now)
    chosen = [_choice(move.first, move, move.late_ms) for move in moves]
    heard = [_choice(move.heard_at, move, move.late_ms) for move in moves]
    if moves:
        heard.append(_choice(now, moves[-1], late_ms))
    lines = {name: each[:now] for name, each in regret_lines(episode, played).items()} if played else {}
    links = congestion.now
    slow = links.words if links is not None else ""
    panels = [
        (actions_panel({(_ASKER,): chosen} if chosen else {}, congestion, Marks())[0],
         f"Shaded: links are slow, the stronger the slower. At step {now}: {slow or 'nothing is added'}."),
        (estimates_panel({(_ASKER,): heard} if heard else {}, congestion, Marks())[0],
         "What a policy hears: medians of the last 30 calls. Of a throttled link it hears how long its bytes take. "
         "Dashed: delays that are added."),
        (regret_panel(lines, title="Beyond the clairvoyant")[0], _regret_words(lines, now)),
    ]  # fmt: skip
    return grid(panels, title="Your run", columns=2, wide=(2,))


def _regret_words(lines: Mapping[str, Sequence[float]], now: int) -> str:
    ends = sorted((each[-1], name) for name, each in lines.items() if len(each))
    told = join_words([f"{name} {joules:,.0f} J" for joules, name in ends])
    return f"Up to step {now}: {told or 'nothing yet'}. Flat: as good as hindsight; steep: this is where it loses."


def _choice(step: int, move: Move, late_ms: tuple[float, ...]) -> CacheChoice:
    biased = -1 if move.preferred is None else move.preferred
    return CacheChoice(step, _ASKER, BY_HAND, (), 0, move.window, biased, 0.0, True, None, late_ms)


def _congestion(episode: CacheEpisode, now: int) -> CongestionLog:
    """The links up to a step, as a run would have told of them."""
    log, trace = CongestionLog(), episode.trace
    changes = np.flatnonzero(np.diff(trace.which[: max(now, 1)], prepend=-1))
    pattern = "" if episode.case is None else episode.case.name
    for step in changes.tolist():
        delay_s = np.zeros((trace.parts, trace.parts))
        bytes_per_s = np.full((trace.parts, trace.parts), np.inf)
        delay_s[1:, _ASKER] = trace.delay_s[trace.which[step]]
        bytes_per_s[1:, _ASKER] = trace.bytes_per_s[trace.which[step]]
        told = LinkState(delay_s, bytes_per_s).told()
        log.event({"step": step, "data": {"pattern": pattern, "by": "emulated", **told}}, attempt=0)
    return log
