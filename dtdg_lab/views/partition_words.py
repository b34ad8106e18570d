"""What to look for in the pictures of a partition, in a sentence or two for each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.layout import join_words, share
from dtdg_lab.views.link_panels import sent_words
from dtdg_lab.views.partition_facts import PartitionFacts
from dtdg_lab.views.partition_load import largest, measured_of, memory_of, over_mean
from dtdg_lab.views.partition_matrix import Sent

_EVEN = 1.05  # largest part over the mean up to which a share of the work is called even


def map_words(name: str, facts: PartitionFacts, before: PartitionFacts | None = None) -> str:
    """What a heat map shows, and against the partition before."""
    said = {"edges": _edges, "halo": _halo, "replicated": _replicated}[name](facts)
    if before is None:
        return said
    key = {"edges": "cut_edges"}.get(name, name)
    what = {"edges": "Cut edges", "halo": "Halo rows", "replicated": "Replicated rows"}[name]
    return f"{what}: {_change(before.totals[key], facts.totals[key])}. {said}"


def load_words(facts: PartitionFacts) -> str:
    """Which part does most, and what a part holds."""
    kinds = measured_of(facts)
    name, values = max(kinds.items(), key=lambda item: over_mean(item[1]).max())
    if largest(facts) < _EVEN:
        text = "Marks at 1 are an even share, as they are here."
    else:
        text = "Marks at 1 are an even share. "
        text += f"Part {int(values.argmax())} has {over_mean(values).max():.2f} times the mean in {name}."
        if facts.imbalance["edges"] >= _EVEN:
            text += " A step ends when the slowest part is done."
    held = join_words([f"{_range(values)} of {name}" for name, values in memory_of(facts).items()])
    return f"{text} A part holds {held}."


def title_words(facts: PartitionFacts, of: str = "") -> str:
    """The partition in a title: what of, by which partitioner, how many parts, and what making it took."""
    used = [f"{facts.ranks} rank{'s' if facts.ranks > 1 else ''}, {facts.layout}"] if facts.ranks else []
    return " · ".join([*([of] if of else []), facts.label, *used, _took(facts)])


def head_words(facts: PartitionFacts) -> str:
    """The partition in one sentence."""
    cache = "a cache would hold" if facts.exchanges else "the caches hold"
    return (
        f"{facts.label[:1].upper()}{facts.label[1:]} ({_took(facts)}): {share(facts.shares['cut'])} of the edges are "
        f"cut, {share(facts.shares['halo'])} of the rows read come from other parts; {cache} "
        f"{share(facts.shares['replicated'])} copies."
    )


def run_words(facts: PartitionFacts, before: PartitionFacts | None, sent: Sent | None) -> str:
    """What a run's partition is, what its last step sent, and what the last change brought."""
    text = head_words(facts)
    if facts.exchanges and facts.ranks > 1:
        predicted = sum(float(each.sum()) for each in facts.predicted.values())
        text += " " + sent_words(predicted, sent, None if sent is None else sent.total, runs=True)
    if not facts.exchanges:
        text += " Parts hold copies and exchange no rows."
    if before is not None:
        changed = _change(before.totals["halo"], facts.totals["halo"])
        text += f" Before: {before.label}. Halo rows: {changed}."
    return text


def _took(facts: PartitionFacts) -> str:
    took = f"made in {format_seconds(facts.seconds)}"
    return took if facts.rebuild_s is None else f"{took}, the change took {format_seconds(facts.rebuild_s)}"


def _edges(facts: PartitionFacts) -> str:
    sums = facts.maps["edges"] @ np.diff(facts.bounds)
    text = f"{share(facts.shares['cut'])} of the edges come from another part. Each column should have one colour: "
    ratio = facts.imbalance["edges"]
    if ratio < _EVEN:
        return text + "over all snapshots the parts share the edges evenly."
    return text + f"part {int(sums.argmax())} has {ratio:.2f} times the mean, and the others wait for it."


def _halo(facts: PartitionFacts) -> str:
    rows = facts.maps["halo"]
    if not facts.totals["halo"]:
        return "No part reads rows of another: nothing is exchanged."
    column = int(rows.sum(axis=0).argmax())
    come = "are received" if facts.exchanges else "would be received"
    return (
        f"{share(facts.shares['halo'])} of the rows that parts read {come}. Strong columns are snapshots that cost "
        f"most, here {_span(facts.bounds, column)}; strong rows are parts that read most from others."
    )


def _replicated(facts: PartitionFacts) -> str:
    if not facts.totals["replicated"]:
        return "No part would copy rows of another."
    held = "would hold without any exchange" if facts.exchanges else "holds"
    text = f"Of the rows a part {held}, {share(facts.shares['replicated'])} are copies"
    if facts.shares["replicated"] >= 0.5:
        return f"{text}: over half. Parts {'would ' if facts.exchanges else ''}repeat the work more than they share it."
    return f"{text}. What is copied {'would be' if facts.exchanges else 'is'} computed several times."


def _change(before: float, after: float) -> str:
    if before == after:
        return f"{after:,.0f}, as before"
    text = f"{before:,.0f} before, {after:,.0f} now"
    if not before:
        return text
    return f"{text} ({share(abs(after / before - 1))} {'more' if after > before else 'less'})"


def _span(bounds: NDArray[np.int64], column: int) -> str:
    first, last = int(bounds[column]), int(bounds[column + 1]) - 1
    return f"snapshot {first}" if first == last else f"snapshots {first} to {last}"


def _range(values: NDArray[np.float64]) -> str:
    low, high = format_bytes(float(values.min())), format_bytes(float(values.max()))
    return low if low == high else f"{low} to {high}"
