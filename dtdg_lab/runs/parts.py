"""The parts of a run's sequence in words, from its event ``parts``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Part = Mapping[str, Any]
Runs = Sequence[Sequence[int]]


def parts_line(parts: Mapping[str, Part]) -> str:
    """Which snapshots are which part: ``train: snapshots 0 to 11, test: snapshots 15 to 38``."""
    return ", ".join(f"{name}: {_where(part)}" for name, part in parts.items())


def empty_parts(parts: Mapping[str, Part]) -> list[str]:
    """One sentence for each part that holds snapshots without edges."""
    sentences = []
    for name, part in parts.items():
        runs: Runs = part["without_edges"]
        count, total = sum(last - first + 1 for first, last in runs), part["last"] - part["first"] + 1
        if count:
            named = {"train": "training"}.get(name, name)
            sentences.append(
                f"{count} of {total} {named} snapshots have no edges ({', '.join(map(_ends, runs))}): "
                "read the scores of this part with that in mind."
            )
    return sentences


def _where(part: Part) -> str:
    runs: Runs = part["without_edges"]
    empty = f" (no edges in {', '.join(map(_ends, runs))})" if runs else ""
    return f"snapshots {_ends((part['first'], part['last']))}{empty}"


def _ends(run: Sequence[int]) -> str:
    first, last = run
    return str(first) if first == last else f"{first} to {last}"
