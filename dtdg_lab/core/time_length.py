"""Parse lengths of time: ``"6h"``, ``"1d"``, a timedelta, or dates of the calendar."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import numpy as np

from dtdg_lab.core.errors import ConfigError, shortened

LENGTHS = (
    "a length such as '6h', '1d', '1w', '90min' or a timedelta; or days, weeks, months, quarters or years of the "
    "calendar as pandas calls them: 'D', 'W', 'MS', 'QS', 'YS', also as in '2MS' or 'W-WED'"
)
_NO_LENGTH = ("Y", "M", "generic")  # of numpy's units


def is_offset(length: Any) -> bool:
    """Return True if a length is an offset of pandas, which counts dates of the calendar."""
    return hasattr(length, "rollback") and hasattr(length, "freqstr")


def parse_length(length: Any, called: str) -> Any:
    """Return a length of time as a timedelta or an offset of pandas; return other values unchanged.

    Args:
        length: a text, a timedelta of Python, NumPy or pandas, an offset of pandas, or a number.
        called: its name in error messages.

    Raises:
        ConfigError: the text is no length, or months or years are not those of the calendar.
    """
    if isinstance(length, str):
        length = _parse_text(length.strip(), called)
    if isinstance(length, np.timedelta64):
        unit, _ = np.datetime_data(length.dtype)
        if unit in _NO_LENGTH or np.isnat(length):
            raise ConfigError(f"{called}={length!r} has no fixed length; {LENGTHS}, is allowed.")
        import pandas as pd

        try:
            return pd.Timedelta(length)
        except (OverflowError, ValueError) as error:
            raise ConfigError(f"{called}={shortened(length)} is too long; at most 292 years are allowed.") from error
    if is_offset(length):
        import pandas as pd

        if isinstance(length, pd.offsets.Tick) and not isinstance(length, pd.offsets.Day):  # of fixed length
            return pd.Timedelta(length.nanos, unit="ns")
    return length


def seconds_of(length: Any, called: str) -> Any:
    """Return a length of time in seconds; return other values unchanged. Arguments as for :func:`parse_length`.

    Raises:
        ConfigError: the text is no length, or the length depends on the calendar.
    """
    parsed = parse_length(length, called)
    if is_offset(parsed):
        raise ConfigError(
            f"{called}={shortened(length)} is of the calendar, and seconds are needed: give a length such as '30d', "
            "or a number."
        )
    return parsed.total_seconds() if isinstance(parsed, timedelta) else length


def _parse_text(text: str, called: str) -> Any:
    """Return a timedelta or an offset of pandas."""
    import pandas as pd

    if re.fullmatch(r"[\d.+-]+", text):  # nanoseconds for pandas
        raise ConfigError(f"{called}={shortened(text)} is a text without a unit; a number, or {LENGTHS}, is allowed.")
    attempts: list[tuple[Any, str]] = [(pd.tseries.frequencies.to_offset, text), (pd.Timedelta, text)]
    if not re.search("[A-Z]", text):  # pandas writes lengths in small letters, but soon days and weeks in capitals
        length = re.sub(r"(?<![a-z])(d|w|weeks?)(?![a-z])", lambda unit: unit[0][0].upper(), text)
        attempts = [(pd.Timedelta, length if re.search(r"\d", length) else f"1{length}")]
    for read, written in attempts if text else ():
        try:
            return read(written)
        except ValueError:
            continue
    raise ConfigError(f"{called}={shortened(text)} is no length of time; {LENGTHS}, is allowed.")
