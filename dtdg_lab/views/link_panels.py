"""Panels of bytes from rank to rank: what was predicted of each layer beside what the last complete step sent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import Figure, share
from dtdg_lab.views.partition_matrix import Sent, in_layers, layers_of, matrix_figure
from dtdg_lab.views.ways import Matrix

Panel = tuple[Figure, str]
READING = (
    "Rows send, columns receive; the diagonal is empty. A strong row or column is a rank that many need: the exchange "
    "ends when it is done. Beside it, in the same colours, is what was predicted."
)


def link_panels(predicted: Mapping[str, Matrix], sent: Sent | None, *, who: str = "rank") -> list[Panel]:
    """Predicted on the left, measured on the right, in the same colours, for each layer.

    Args:
        predicted: way -> (L, R, R) bytes of a step.
        sent: the step that was counted, where there is one.
        who: ``rank``, or ``part`` where nothing runs.
    """
    found: list[Panel] = []
    for name, layers in layers_of(predicted):
        told = in_layers(predicted, layers)
        counted = None if sent is None else in_layers(sent.bytes, layers)
        total, top = _sum_and_top(told)
        said, highest = (None, 0.0) if counted is None else _sum_and_top(counted)
        top, words = max(top, highest), sent_words(total, sent, said, runs=who == "rank")
        found.append((matrix_figure(f"Bytes predicted, {name}", told, who=who, top=top), words))
        if counted is not None and sent is not None:
            title = f"Bytes measured in step {sent.step}, {name}"
            found.append((matrix_figure(title, counted, who=who, top=top), READING))
    return found


def sent_words(predicted: float, measured: Sent | None, said: float | None, *, runs: bool) -> str:
    """Bytes predicted beside those counted, with the difference in words.

    Args:
        predicted: bytes in a step.
        measured: the step that was counted, where there is one.
        said: its bytes.
        runs: whether there is a run that could count.
    """
    if measured is None or said is None:
        where = "No step is complete yet." if runs else "A run counts what it sends beside this."
        return f"Predicted: {format_bytes(predicted)} in a step. {where}"
    text = f"Step {measured.step} sent {format_bytes(said)}; predicted were {format_bytes(predicted)}"
    if said == predicted:
        return f"{text}: equal to the byte."
    if not predicted:
        return f"{text}. More is sent than was predicted: look at what the model pulls."
    more = "more" if said > predicted else "less"
    return f"{text}: {format_bytes(abs(said - predicted))} ({share(abs(said / predicted - 1))}) {more}."


def _sum_and_top(sent: Mapping[str, Matrix]) -> tuple[float, float]:
    """All bytes, and the most from one rank to another, all ways together."""
    whole = np.sum(list(sent.values()), axis=0)
    return float(whole.sum()), float(whole.max(initial=0.0))
