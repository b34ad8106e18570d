"""What a card says: text as data, which the page and the tests read alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Formula(NamedTuple):
    """A formula, in the notation of :mod:`dtdg_lab.cards.card`, and what it says."""

    formula: str
    meaning: str


class Reported(NamedTuple):
    """What a paper says it measured: what, the value with its unit, and the table, figure or section."""

    what: str
    value: str
    where: str


class Measured(NamedTuple):
    """What the README says was measured here: what, the value, and the command that measures it."""

    what: str
    value: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """Where a system comes from.

    Attributes:
        name: by which people know it.
        reference: authors, title, year.
        protocol: how its numbers were measured.
        main: the system that ``card(name)`` shows.
    """

    name: str
    reference: str
    protocol: str
    main: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CardText:
    """The text of one system's card.

    Attributes:
        system: its name in the catalogue.
        paper: that describes it, or compares with it.
        idea: five sentences.
        formulas: at least one.
        reported: by the paper.
        measured: here, as the README has it.
        code: further places in the code, beside the catalogue's, as ``module:name``.
        differs: from the paper, beside what docstrings of these places say.
        settings: of the cell that runs it.
    """

    system: str
    paper: Paper
    idea: tuple[str, str, str, str, str]
    formulas: tuple[Formula, ...]
    reported: tuple[Reported, ...] = ()
    measured: tuple[Measured, ...] = ()
    code: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
