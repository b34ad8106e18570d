"""Numbers as people read them: three significant digits, with units, and a dash where nothing is known."""

from __future__ import annotations

from math import floor, isfinite, log10
from typing import Any

UNKNOWN = "–"
MINUS = "\N{MINUS SIGN}"


def three_digits(value: float | None) -> str:
    """Return a number with three significant digits, or all before the point: ``0.0311``, ``94.6``, ``10,497``."""
    if value is None or not isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-4:
        text = f"{size:.2e}"
    elif size >= 100:
        text = f"{size:,.0f}"
    else:
        decimals = 2 - floor(log10(size))
        text = f"{size:.{decimals}f}"
        if float(text) >= 10 ** (floor(log10(size)) + 1):  # 9.999 is 10.0
            text = f"{size:.{decimals - 1}f}"
    return f"{MINUS}{text}" if value < 0 else text


def percent_text(share: float | None) -> str:
    """Return a share in percent, with a decimal below 10%: ``28%``, ``5.2%``."""
    if share is None or not isfinite(share):
        return UNKNOWN
    size = abs(100 * share)
    text = f"{size:.1f}".removesuffix(".0") if 0 < size < 9.95 else f"{size:.0f}"
    return f"{MINUS if share < 0 and float(text) else ''}{text}%"


def seconds_text(seconds: float | None) -> str:
    """Return a length of time: ``69.7 ms``, ``3.20 s``, ``2 min 5 s``, ``1 h 2 min``."""
    if seconds is None or not isfinite(seconds):
        return UNKNOWN
    if abs(seconds) < 0.9995:  # more is 1.00 s
        small = 0 < abs(seconds) < 0.9995e-3
        return f"{three_digits(seconds * (1e6 if small else 1e3))} {'µs' if small else 'ms'}"
    if abs(seconds) < 99.95:
        return f"{three_digits(seconds)} s"
    whole_seconds = round(seconds)
    if whole_seconds < 3600:
        return f"{whole_seconds // 60} min {whole_seconds % 60} s"
    return f"{whole_seconds // 3600} h {whole_seconds % 3600 // 60} min"


def bytes_text(count: float | None) -> str:
    """Return an amount of memory in binary units, of bytes a whole number: ``12 B``, ``349 KiB``, ``3.50 MiB``."""
    if count is not None and isfinite(count) and abs(count) < 1024:
        return f"{count:.0f} B".replace("-0 ", "0 ")
    return _scaled(count, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB"))


def joules_text(joules: float | None) -> str:
    """Return an energy: ``165 J``, ``1.46 kJ``."""
    return _scaled(joules, 1000.0, ("J", "kJ", "MJ", "GJ"))


def _scaled(value: float | None, base: float, units: tuple[str, ...]) -> str:
    if value is None or not isfinite(value):
        return UNKNOWN
    power = 0
    while abs(value) >= base and power < len(units) - 1:
        value, power = value / base, power + 1
    return f"{three_digits(value)} {units[power]}"


def clock_text(seconds: float) -> str:
    """Return a time since the start as minutes and seconds: ``0:34``, ``1:02:05``."""
    whole_seconds = int(seconds)
    hours, minutes = divmod(whole_seconds // 60, 60)
    return f"{hours}:{minutes:02}:{whole_seconds % 60:02}" if hours else f"{minutes}:{whole_seconds % 60:02}"


def short(value: Any) -> str:
    """Return a setting's value with at most four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
