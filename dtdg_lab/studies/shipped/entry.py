"""A study that comes with the lab: its question, its runs, and what is read from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtdg_lab.core.config import RunConfig
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.views.layout import Figure

if TYPE_CHECKING:
    from dtdg_lab.studies.study import Study

Panel = tuple[Figure, str]


@dataclass(frozen=True, slots=True)
class Shipped:
    """A study by name.

    Attributes:
        name: in lower case.
        question: that it answers.
        source: paper and figure or table, or ``ours``.
        sweep: ``sweep(base, quick)``: its runs. ``base`` is whose data, model and sizes it takes instead of its own, or
            None; ``quick`` asks for what takes about a minute. The sweep is to carry ``shipped=name``.
        analysis: from the study, done or under way, to figures by name, each with what to look for in words.
    """

    name: str
    question: str
    source: str
    sweep: Callable[[RunConfig | None, bool], Sweep]
    analysis: Callable[[Study], dict[str, Panel]]
