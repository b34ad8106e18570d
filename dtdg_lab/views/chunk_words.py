"""The chunks of a run's parts in words: by whom, how large, what they cut, how long it took, what went otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import share


def chunks_words(data: Mapping[str, Any]) -> str:
    """The data of an event ``chunks`` in a sentence or two.

    Raises:
        DataError: something is missing.
    """
    try:
        chunks, parts, sizes = int(data["chunks"]), int(data["parts"]), list(data["sizes"])
        text = (
            f"{chunks:,} chunk{'s' * (chunks > 1)} in {'each of ' if parts > 1 else ''}{parts} "
            f"part{'s' * (parts > 1)} by {data['made_by'] or data['chunker']}, {sizes[0]:,} to {sizes[2]:,} vertices "
            f"each, made in {format_seconds(float(data['seconds']))}; {share(float(data['cut_share']))} of the edges "
            "within parts join two chunks."
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"chunks cannot be told from what is told of them ({error!r}): were they recorded by another version?"
        ) from error
    note = str(data.get("note") or "").rstrip(".")
    return f"{text} NOTE: {note}." if note else text
