"""What a tuner of K and alpha saw and chose: losses of the neighbours at each look, and its path over K x alpha."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.decay_map import DecayMap, Setting, decay_map_panels
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, MARK_COLOUR, series_colour

Panel = tuple[Figure, str]
POLICY = "greedy"
NO_LOOK = "the tuner has not looked yet"
_KEPT = 200


@dataclass(frozen=True, slots=True)
class Look:
    """One decision.

    Attributes:
        step: updates of the model before it.
        epoch: after which it was made, from 0.
        state: the setting it found.
        action: the setting it left.
        losses: of the settings it asked about; finite ones only.
        bytes: predicted peaks of all neighbours.
        over: neighbours that it did not ask about, as they need more than the budget.
        most_bytes: the budget; None where there was none.
    """

    step: int
    epoch: int
    state: Setting
    action: Setting
    losses: Mapping[Setting, float]
    bytes: Mapping[Setting, float]
    over: tuple[Setting, ...]
    most_bytes: float | None


class DecisionLog:
    """Rows of the table ``decisions`` whose policy is the tuner of K and alpha; other policies' are passed over."""

    def __init__(self) -> None:
        self._looks: dict[int, tuple[int, Look]] = {}  # step -> attempt, look

    def row(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row; that every rank tells the same changes nothing."""
        if row["policy"] != POLICY:
            return
        self._looks[int(row["step"])] = (attempt, _look(row))
        while len(self._looks) > _KEPT:
            del self._looks[min(self._looks)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt decided from ``step`` on."""
        self._looks = {known: found for known, found in self._looks.items() if known < step or found[0] >= attempt}

    def looks(self) -> list[Look]:
        """The decisions in order."""
        return [self._looks[step][1] for step in sorted(self._looks)]

    def path(self) -> list[Setting]:
        """The settings that the tuner went through; empty before its first look."""
        return path(self.looks())


def path(looks: Sequence[Look]) -> list[Setting]:
    """Settings in order, each once where it stayed; what was changed by hand in between is in it too."""
    found: list[Setting] = []
    for look in looks:
        for setting in (look.state, look.action):
            if not found or found[-1] != setting:
                found.append(setting)
    return found


def decision_panels(looks: Sequence[Look]) -> dict[str, Panel]:
    """``tuner-losses``: losses of each look; ``tuner-path``: the newest loss of every setting, and the path."""
    return {
        "tuner-losses": (_losses_figure(looks), decision_words(looks)),
        "tuner-path": _path_panel(looks),
    }


def decision_words(looks: Sequence[Look]) -> str:
    """What the newest look found, in a sentence or two."""
    if not looks:
        return (
            "At the end of every so many epochs the tuner asks what its neighbours would lose on the validation part."
        )
    last = looks[-1]
    text = f"After epoch {last.epoch + 1} the tuner "
    if last.action == last.state:
        text += f"stayed at {_named(last.state)}: no neighbour it asked about was better"
    else:
        text += f"went from {_named(last.state)} to {_named(last.action)}"
        before, after = last.losses.get(last.state), last.losses.get(last.action)
        if before is not None and after is not None:
            text += f", validation loss {before:.4g} to {after:.4g}"
    if last.over and last.most_bytes is not None:
        text += (
            f"; {len(last.over)} neighbour{'s' * (len(last.over) > 1)} would need more than "
            f"{format_bytes(last.most_bytes)}"
        )
    moves = sum(look.action != look.state for look in looks)
    return f"{text}. {moves} move{'' if moves == 1 else 's'} in {len(looks)} look{'' if len(looks) == 1 else 's'}."


def _losses_figure(looks: Sequence[Look]) -> Figure:
    """Neighbours as points, the chosen ones joined by a line."""
    layout = frame("What the tuner saw", "epoch after which it looked", "validation loss", xaxis={"tickformat": "d"})
    if not looks:
        return {"data": [], "layout": with_note(layout, NO_LOOK)}
    kinds = (
        ("stay", BASELINE_COLOUR, "circle"), ("K + 1", series_colour(0), "triangle-right"),
        ("K - 1", series_colour(5), "triangle-left"), ("alpha up", series_colour(1), "triangle-up"),
        ("alpha down", series_colour(4), "triangle-down"),
    )  # fmt: skip
    data: list[dict[str, Any]] = []
    for name, colour, symbol in kinds:
        points = [
            (look.epoch + 1, loss, _named(setting))
            for look in looks for setting, loss in look.losses.items() if _kind(look.state, setting) == name
        ]  # fmt: skip
        if points:
            data.append({
                "type": "scatter", "mode": "markers", "name": name, "x": [at for at, _, _ in points],
                "y": [loss for _, loss, _ in points], "customdata": [words for *_, words in points],
                "marker": {"color": colour, "symbol": symbol, "size": 9},
                "hovertemplate": "epoch %{x}, %{customdata}: %{y:.4g}<extra>" + name + "</extra>",
            })  # fmt: skip
    chosen = [look for look in looks if look.action in look.losses]
    data.append({
        "type": "scatter", "mode": "lines", "name": "chosen", "x": [look.epoch + 1 for look in chosen],
        "y": [look.losses[look.action] for look in chosen], "line": {"color": MARK_COLOUR, "width": 2},
        "hoverinfo": "skip",
    })  # fmt: skip
    return {"data": data, "layout": layout}


def _path_panel(looks: Sequence[Look]) -> Panel:
    """Losses of different looks are of different models: the newest of each setting is drawn."""
    newest = {setting: loss for look in looks for setting, loss in look.losses.items()}
    rows = [{"full_snapshots": k, "alpha": alpha, "mse": loss} for (k, alpha), loss in newest.items()]
    figure, _ = decay_map_panels(DecayMap(rows, path=path(looks), loss="newest validation loss of each setting"))["mse"]
    text = "The way over K and alpha, from the circle to the star; the faintest has least loss. Cells were asked about "
    return {**figure, "layout": {**figure["layout"], "shapes": []}}, text + "at different times of training."


def _kind(state: Setting, setting: Setting) -> str:
    if setting == state:
        return "stay"
    if setting[0] != state[0]:
        return "K + 1" if setting[0] > state[0] else "K - 1"
    return "alpha up" if setting[1] > state[1] else "alpha down"


def _look(row: Mapping[str, Any]) -> Look:
    values = list(row["values"])
    losses = {_setting(each): float(each["loss"]) for each in values if each.get("loss") is not None}
    budget = row["state"].get("most_bytes")
    return Look(
        int(row["step"]), int(row["epoch"]), _setting(row["state"]), _setting(row["action"]),
        {setting: loss for setting, loss in losses.items() if math.isfinite(loss)},
        {_setting(each): float(each["bytes"]) for each in values if each.get("bytes") is not None},
        tuple(_setting(each) for each in values if each.get("loss") is None),
        None if budget is None else float(budget),
    )  # fmt: skip


def _setting(named: Mapping[str, Any]) -> Setting:
    return int(named["full_snapshots"]), float(named["alpha"])


def _named(setting: Setting) -> str:
    return f"K {setting[0]}, alpha {setting[1]:g}"
