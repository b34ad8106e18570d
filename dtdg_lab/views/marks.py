"""Vertical marks: knob changes and resumes, at the step they were applied, checked over all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtdg_lab.views.palette import MARK_COLOUR, WARNING_COLOUR
from dtdg_lab.views.series import XAxis

KEPT = 200
LINES = 30
LABELS = 8
ROOM = 0.05  # of the chart, for a label


@dataclass(slots=True)
class Mark:
    """One change: its words, the step at which each rank applied it, and the seconds that the slowest took for it.

    Where ranks average models each is at a step of its own (``apart``), and heard of the change in the same round.
    """

    label: str
    seconds: float
    attempt: int
    took_s: float = 0.0
    steps: dict[int, int] = field(default_factory=dict)
    apart: bool = False

    @property
    def step(self) -> int:
        """The step the change was applied at; the first where ranks differ."""
        return min(self.steps.values())

    @property
    def together(self) -> bool:
        """Whether all ranks that reported applied the change where they should: at one step, unless they are apart."""
        return self.apart or len(set(self.steps.values())) == 1

    @property
    def text(self) -> str:
        """The label, with the steps by rank where they differ."""
        if len(set(self.steps.values())) <= 1:
            return self.label
        where = ", ".join(f"rank {rank} at {step}" for rank, step in sorted(self.steps.items()))
        return f"{self.label} ({where})" if self.apart else f"{self.label} NOT AT ONE STEP: {where}"


class Marks:
    """The changes of a run, by attempt and version; the newest ``KEPT`` of them."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, Any, Any], Mark] = {}  # attempt, version, when

    def __iter__(self) -> Iterator[Mark]:
        return iter(sorted(self._marks.values(), key=lambda mark: (mark.step, mark.seconds)))

    def __len__(self) -> int:
        return len(self._marks)

    def knob(self, data: Mapping[str, Any], rank: int, step: int, seconds: float, attempt: int) -> None:
        """Note that ``rank`` applied the change ``data`` before ``step``."""
        words = ", ".join(f"{name} {short(value)}" for name, value in data.get("changes", {}).items())
        # a change of an epoch's end is told under the newest version by then, which may be that of a step's change
        key = (attempt, data.get("version"), data.get("when"))
        self._note(key, Mark(words, seconds, attempt, apart=bool(data.get("apart"))), rank, step)
        if key in self._marks:
            self._marks[key].took_s = max(self._marks[key].took_s, data.get("took_s", 0.0))

    def resumed(self, rank: int, step: int, seconds: float, attempt: int) -> None:
        """Note that the run was resumed at ``step``."""
        self._note((attempt, "resumed", None), Mark("resumed", seconds, attempt), rank, step)

    def _note(self, key: tuple[int, Any, Any], new: Mark, rank: int, step: int) -> None:
        self._marks.setdefault(key, new).steps[rank] = step
        while len(self._marks) > KEPT:
            self._marks.pop(next(iter(self._marks)))

    def applied(self, version: int) -> Mark | None:
        """The step change that was asked for as ``version``, once a rank has applied it; of the newest attempt."""
        found = [attempt for attempt, its_version, when in self._marks if (its_version, when) == (version, "step")]
        return self._marks[max(found), version, "step"] if found else None

    def truncate(self, step: int, attempt: int) -> None:
        """Drop what earlier attempts changed at ``step`` or later: it is done again, or not."""
        self._marks = {key: mark for key, mark in self._marks.items() if mark.step < step or mark.attempt >= attempt}

    def layout(self, x: XAxis, end: float) -> dict[str, list[dict[str, Any]]]:
        """Shapes and annotations: a line for each of the newest marks, a label for those with room for one.

        Of changes close together, as a slider makes them, the last is labelled; ``end`` is where the chart ends.
        """
        marks = list(self)[-LINES:]
        labelled: list[Mark] = []
        for mark in reversed(marks):
            near = bool(labelled) and _at(labelled[-1], x) - _at(mark, x) < ROOM * end
            if not mark.together or (not near and len(labelled) < LABELS):
                labelled.append(mark)
        return {
            "shapes": [_line(mark, x) for mark in marks],
            "annotations": [_label(mark, x) for mark in reversed(labelled)],
        }

    def over_steps(self, steps: Sequence[int]) -> dict[str, Any]:
        """What a chart over these steps alone needs of the marks: shapes, annotations, and an axis that ends there."""
        if not steps:
            return {}
        low, high = steps[0] - 0.5, steps[-1] + 0.5
        drawn = self.layout("steps", steps[-1] - steps[0])
        shapes = [shape for shape in drawn["shapes"] if low <= shape["x0"] <= high]
        annotations = [note for note in drawn["annotations"] if low <= note["x"] <= high]
        return {"shapes": shapes, "annotations": annotations, "xaxis": {"range": [low, high]}}


def _at(mark: Mark, x: XAxis) -> float:
    return mark.step if x == "steps" else mark.seconds


def _colour(mark: Mark) -> str:
    return MARK_COLOUR if mark.together else WARNING_COLOUR


def _line(mark: Mark, x: XAxis) -> dict[str, Any]:
    line = {"color": _colour(mark), "width": 1.2, "dash": "dot"}
    at = _at(mark, x)
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def _label(mark: Mark, x: XAxis) -> dict[str, Any]:
    return {
        "text": mark.text,
        "x": _at(mark, x),
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "xanchor": "right",
        "yanchor": "top",
        "textangle": -90,
        "showarrow": False,
        "font": {"size": 10, "color": _colour(mark)},
        "bgcolor": "rgba(255,255,255,0.7)",
    }


def short(value: Any) -> str:
    """A setting's value as marks have it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
