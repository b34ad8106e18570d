"""The text of a card as data, used by the page and the tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Formula(NamedTuple):
    """A formula, in the notation of :mod:`dtdg_lab.cards.card`, and its meaning."""

    formula: str
    meaning: str


class Reported(NamedTuple):
    """A result of a paper: what, the value with its unit, and the table, figure or section."""

    what: str
    value: str
    where: str


class Measured(NamedTuple):
    """A result in the README: what, the value, and the command that measures it."""

    what: str
    value: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The source of a system.

    Attributes:
        name: common name.
        reference: authors, title, year.
        protocol: experimental setup of its results.
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
        paper: that describes it, or uses it as a baseline.
        idea: five sentences.
        formulas: at least one.
        reported: by the paper.
        measured: our results, from the README.
        code: further code locations, beside the catalogue's, as ``module:name``.
        differs: differences from the paper, beside those in docstrings of these locations.
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
