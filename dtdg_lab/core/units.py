"""Numbers as people read them."""

from __future__ import annotations


def format_bytes(count: float | None) -> str:
    """Bytes with a binary prefix, such as ``1.5 MiB``; ``unknown`` for None."""
    if count is None:
        return "unknown"
    if round(abs(count)) < 1024:
        return f"{count:.0f} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if round(abs(value), 1) < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def format_seconds(seconds: float | None) -> str:
    """A duration with a fitting unit, such as ``12 ms``, ``3.4 s`` or ``1 h 02 min``; ``unknown`` for None."""
    if seconds is None:
        return "unknown"
    if abs(seconds) < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def format_joules(joules: float | None) -> str:
    """Energy with a fitting unit, such as ``12.3 J`` or ``4.56 kJ``; ``unknown`` for None (never 0)."""
    if joules is None:
        return "unknown"
    if abs(joules) < 999.5:
        return f"{joules:.3g} J"
    return f"{joules / 1e3:.2f} kJ" if abs(joules) < 999_995 else f"{joules / 1e6:.2f} MJ"
