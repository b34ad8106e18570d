"""The partition microscope: what a partition of the vertices makes of work, memory and traffic, as one figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.link_panels import link_panels
from dtdg_lab.views.links import LinkLog
from dtdg_lab.views.partition_facts import PartitionFacts, facts_of
from dtdg_lab.views.partition_load import largest, load_figure
from dtdg_lab.views.partition_maps import MAPS, map_figure
from dtdg_lab.views.partition_matrix import Sent
from dtdg_lab.views.partition_words import load_words, map_words, run_words, title_words

Known = tuple[int, int, PartitionFacts | None]  # attempt, step, facts; none where no vertices are divided
Panel = tuple[Figure, str]
_KEPT = 8  # partitions of a run; a resume may take back some of them


def microscope(
    facts: PartitionFacts, *, before: PartitionFacts | None = None, sent: Sent | None = None, title: str = ""
) -> Figure:
    """Maps of owned, halo and replicated rows, load of the parts, and bytes between them, as one figure of panels.

    Args:
        facts: of the partition.
        before: of the one it replaced: then every map and the load stand beside how they were.
        sent: bytes of a step that were counted, beside the predicted ones.
        title: of the figure; the partition's name when not given.
    """
    return grid(panels(facts, before=before, sent=sent), title=title or title_words(facts))


def panels(facts: PartitionFacts, *, before: PartitionFacts | None = None, sent: Sent | None = None) -> list[Panel]:
    """The panels of the microscope, each with the sentence that stands under it, for two columns."""
    found = _alone(facts) if before is None else _beside(before, facts)
    return [*found, *_matrices(facts, sent)]


def _alone(facts: PartitionFacts) -> list[Panel]:
    maps = [(map_figure(name, facts.maps[name], facts.bounds), map_words(name, facts)) for name in MAPS]
    return [*maps, (load_figure(facts), load_words(facts))]


def _beside(before: PartitionFacts, after: PartitionFacts) -> list[Panel]:
    found: list[Panel] = []
    old, new = f"before: {before.label}", f"now: {after.label}"
    for name in MAPS:
        top = max(float(facts.maps[name].max(initial=0.0)) for facts in (before, after))
        found += [
            (map_figure(name, before.maps[name], before.bounds, top=top, note=old), map_words(name, before)),
            (map_figure(name, after.maps[name], after.bounds, top=top, note=new), map_words(name, after, before)),
        ]
    top = max(largest(before), largest(after))
    found.append((load_figure(before, top=top, note=old), load_words(before)))
    return [*found, (load_figure(after, top=top, note=new), load_words(after))]


def _matrices(facts: PartitionFacts, sent: Sent | None) -> list[Panel]:
    """Bytes between ranks, or parts; none where nothing is sent."""
    if not facts.exchanges or not facts.predicted or facts.ranks == 1:
        return []
    return link_panels(facts.predicted, sent, who="rank" if facts.ranks else "part")


class PartitionView:
    """The partitions of one run, the newest and the one before, and what its ranks sent in the last complete step."""

    def __init__(self) -> None:
        self.links = LinkLog()
        self._known: list[Known] = []
        self._seen: set[tuple[int, int]] = set()  # attempt, time_ns

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``partition``; an attempt that goes on with the same partition changes nothing.

        An event without a ``layout`` says that the run's system divides no vertices any more.
        """
        told = (attempt, int(row["time_ns"]))
        if told in self._seen:
            return
        self._seen.add(told)
        step, left = int(row["step"] or 0), row["data"].get("layout", "") is None
        facts = None if left else facts_of(row["data"])
        self._known = _changes([*self._known, (attempt, step, facts)])[-_KEPT:]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; a change just before ``step`` stays."""
        self.links.truncate(step, attempt)
        self._known = _changes([known for known in self._known if known[1] <= step or known[0] >= attempt])

    @property
    def facts(self) -> PartitionFacts | None:
        """The partition in use; None where the run has none."""
        return self._known[-1][2] if self._known else None

    @property
    def before(self) -> PartitionFacts | None:
        """The one before the last change; None where nothing was changed."""
        return self._known[-2][2] if len(self._known) > 1 else None

    def sent(self) -> Sent | None:
        """Bytes of the last complete step since the last change."""
        facts = self.facts
        if facts is None or not facts.exchanges or not facts.predicted:
            return None
        layers = max(len(each) for each in facts.predicted.values())
        return self.links.last(facts.ranks, layers=layers, first=self._known[-1][1]) if facts.ranks else None

    def panels(self) -> list[Panel]:
        """The panels of the microscope; none where the run has no partition."""
        return [] if self.facts is None else panels(self.facts, before=self.before, sent=self.sent())

    def figure(self) -> Figure:
        """The microscope as one figure."""
        facts = self.facts
        if facts is None:
            raise LookupError("this run has no partition: ask for `facts` first")
        return microscope(facts, before=self.before, sent=self.sent())

    def sentence(self) -> str:
        """The partition, its traffic and its last change, in words."""
        return "" if self.facts is None else run_words(self.facts, self.before, self.sent())


def _changes(known: list[Known]) -> list[Known]:
    """Without those that are as the one before them."""
    return [each for place, each in enumerate(known) if not place or not _same(each[2], known[place - 1][2])]


def _same(facts: PartitionFacts | None, other: PartitionFacts | None) -> bool:
    return facts is other if facts is None or other is None else facts.same(other)
