"""Arguments of the functions that load graphs, where they are no options of a run; and what is wrong with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from dtdg_lab.core.errors import ConfigError, DataError, UnknownNameError, shortened
from dtdg_lab.core.options import Option

STRICT_LABEL = Option(
    name="strict_label", owner="datasets", kind=bool, default=False,
    meaning="Count only edges of the newest base interval in the label.",
)  # fmt: skip
_NAME = Option(name="name", owner="datasets", kind=str, default="mine", meaning="What runs and reports call the graph.")
_LENGTH = {"W": 604_800e9, "D": 86_400e9, "h": 3600e9, "m": 60e9, "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0,
           "ps": 1e-3, "fs": 1e-6, "as": 1e-9}  # of numpy's units, in nanoseconds  # fmt: skip


def graph_name(given: Any) -> str:
    """What a graph is to be called.

    Raises:
        ConfigError: it is no text, or empty.
    """
    name: str = _NAME.check(given)
    if not name.strip():
        raise ConfigError(f"name={shortened(name)} is empty: give the graph a name, or leave it out.")
    return name


def check_one_way(cut: int, interval: float) -> None:
    """Refuse a number of intervals and a length of them at once: one of the two would be ignored.

    Raises:
        ConfigError: both are given.
    """
    if cut and interval:
        raise ConfigError(
            f"cut={cut} and interval={interval:g} are both given: cut is how many intervals there are, interval how "
            "long each is. Give one, and 0 for the other."
        )


def nanoseconds(length: timedelta | np.timedelta64) -> float:
    """A length of time in nanoseconds.

    Raises:
        DataError: it is in months or years, which have no fixed length, or in no unit.
    """
    if isinstance(length, timedelta):
        return length / timedelta(microseconds=1) * 1000
    unit, step = np.datetime_data(length.dtype)
    if unit not in _LENGTH or np.isnat(length):
        raise DataError(f"interval={length!r} has no fixed length; give one in days, hours or shorter units.")
    return int(length.astype(np.int64)) * step * _LENGTH[unit]


def known_only(
    given: Mapping[str, Any], function: Callable[..., Any], passed_to: Callable[..., Any], but: Iterable[str] = ()
) -> None:
    """Refuse keyword arguments that nobody reads, in place of Python's words about a function inside.

    Args:
        given: what somebody gave by keyword beside the parameters of ``function``.
        function: what they called.
        passed_to: the function whose keyword-only parameters are taken too.
        but: those of them that are not.

    Raises:
        UnknownNameError: the closest match is suggested.
    """
    own, others = inspect.signature(function).parameters, inspect.signature(passed_to).parameters
    known = {one.name for one in own.values() if one.kind is not one.VAR_KEYWORD}
    taken = {one.name for one in others.values() if one.kind is one.KEYWORD_ONLY} - set(but)
    for name in given:
        if name not in taken:
            raise UnknownNameError(f"argument of {function.__name__}()", name, known | taken)


def check_column(role: str, column: Any) -> None:
    """Refuse what is no column of a text file.

    Raises:
        DataError: it is neither a whole number nor text.
    """
    if isinstance(column, bool) or not isinstance(column, (int, str, np.integer)):
        raise DataError(
            f"{role}={shortened(column)} is of type {type(column).__name__}; a column is its number, from 0, or its "
            "name in the header."
        )


def different_columns(columns: Mapping[str, Any]) -> None:
    """Refuse one column in two roles: a weight that is the time, or sources that are the targets, is a slip.

    Args:
        columns: role -> column.

    Raises:
        DataError: naming both roles.
    """
    seen: dict[Any, str] = {}
    for role, column in columns.items():
        if column in seen:
            raise DataError(
                f"{seen[column]} and {role} are both column {column!r}: give each its own, by src=, dst=, time= and "
                "weight=."
            )
        seen[column] = role
