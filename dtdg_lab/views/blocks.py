"""The view of blocks of time: who owns what, what ranks send, what is hidden, what is held, what is brought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.block_facts import BlockFacts, block_facts, blocks_left, blocks_words
from dtdg_lab.views.block_memory import MemoryFacts, memory_facts, memory_figure, memory_words
from dtdg_lab.views.exchanges import exchange_log, exchange_panels, share_words
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.link_panels import link_panels, sent_words
from dtdg_lab.views.links import LinkLog
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.ownership import ownership_panels
from dtdg_lab.views.partition_matrix import Sent
from dtdg_lab.views.transfers import transfer_log, transfers_figure, transfers_words

Panel = tuple[Figure, str]
Known = tuple[int, int, BlockFacts | None]  # attempt, step; None where the run went on without blocks
_KEPT = 16
GIB = 1024**3


class BlocksView:
    """The blocks of one run as its newest plan has them, and what its ranks told of the steps since.

    Args:
        links: rows that the run's ranks sent, which the view of its partition reads too.
        marks: the run's changes.
        memory_gib: what the blocks are to fit where they are chosen.
    """

    def __init__(self, links: LinkLog, marks: Marks, memory_gib: float | None = None) -> None:
        self.exchanges, self.transfers = exchange_log(), transfer_log()
        self.memory_gib = memory_gib
        self._links, self._marks = links, marks
        self._known: list[Known] = []
        self._seen: set[tuple[str, int, int]] = set()  # kind, attempt, time_ns
        self._memory: list[tuple[int, int, MemoryFacts]] = []  # attempt, step

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``blocks``."""
        if self._is_new("blocks", row, attempt):
            facts = None if blocks_left(row["data"]) else block_facts(row["data"])
            if not self._known or not _same(facts, self.facts):  # an attempt that goes on tells it again
                self._known = [*self._known, (attempt, int(row["step"] or 0), facts)][-_KEPT:]

    def memory(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``memory_trace``."""
        if self._is_new("memory", row, attempt):
            self._memory = [*self._memory, (attempt, int(row["step"] or 0), memory_facts(row["data"]))][-_KEPT:]

    def _is_new(self, kind: str, row: Mapping[str, Any], attempt: int) -> bool:
        told = (kind, attempt, int(row["time_ns"]))
        if told in self._seen:
            return False
        self._seen.add(told)
        return True

    def step(self, rank: int, step: int) -> None:
        """Note that a rank has recorded a step."""
        self.exchanges.step(rank, step)
        self.transfers.step(rank, step)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; a plan made just before ``step`` stays."""
        self.exchanges.truncate(step, attempt)
        self.transfers.truncate(step, attempt)
        self._known = [known for known in self._known if known[1] <= step or known[0] >= attempt]
        self._memory = [known for known in self._memory if known[1] <= step or known[0] >= attempt]

    @property
    def facts(self) -> BlockFacts | None:
        """The blocks in use; None where the run has none."""
        return self._known[-1][2] if self._known else None

    @property
    def probed(self) -> MemoryFacts | None:
        """Memory over the step that was probed last."""
        return self._memory[-1][2] if self._memory else None

    @property
    def _probed_earlier(self) -> bool:
        """Whether the run has changed since."""
        return bool(self._known and self._memory) and self._known[-1][:2] > self._memory[-1][:2]

    def sent(self) -> Sent | None:
        """Bytes of the last complete step of these blocks."""
        facts = self.facts
        if facts is None or not facts.predicted:
            return None
        layers = max(len(each) for each in facts.predicted.values())
        return self._links.last(facts.ranks, layers=layers, first=self._known[-1][1])

    def panels(self) -> list[Panel]:
        """Ownership, memory, hidden share, bytes from rank to rank, transfers; none where the run has no blocks."""
        return list(self.named_panels().values())

    def named_panels(self) -> dict[str, Panel]:
        """The panels by names that stay theirs where others come and go."""
        facts = self.facts
        if facts is None:
            return {}
        since, memory = self._known[-1][1], self.probed
        budget = None if facts.asked or self.memory_gib is None else GIB * self.memory_gib
        found = ownership_panels(facts)
        note = f"{memory.count} blocks" if memory is not None and memory.count > 1 else ""
        found["memory"] = (
            memory_figure(memory, budget_bytes=budget, note=note),
            memory_words(memory, blocks=facts.blocks, earlier=self._probed_earlier),
        )
        brought = self.transfers.steps(facts.ranks)
        found["transfers"] = (transfers_figure(brought, self._marks), transfers_words(brought, since=since))
        if facts.ranks > 1 and facts.sends:
            if facts.redistributes:
                steps = self.exchanges.steps(facts.ranks)
                found |= exchange_panels(steps, facts.ranks, marks=self._marks, since=since)
            links = link_panels(facts.predicted, self.sent())
            last = {"flight": found.pop("flight")} if len(found) % 2 and "flight" in found else {}
            found |= {f"links-{place}": panel for place, panel in enumerate(links)}  # two and two beside each other
            found |= last
        return found

    def figure(self) -> Figure:
        """All panels as one figure."""
        facts = self.facts
        if facts is None:
            raise LookupError("this run has no blocks of time: ask for `facts` first")
        return grid(self.panels(), title=f"Blocks: {facts.label}")

    def sentence(self) -> str:
        """The blocks, what a step sends and hides, and its peak, in words."""
        facts = self.facts
        if facts is None:
            return ""
        text = blocks_words(facts)
        if facts.ranks > 1 and facts.sends:
            sent = self.sent()
            predicted = sum(float(each.sum()) for each in facts.predicted.values())
            text += " " + sent_words(predicted, sent, None if sent is None else sent.total, runs=True)
            steps = self.exchanges.steps(facts.ranks, first=self._known[-1][1])
            text += f" {share_words(steps)}" if steps else ""
        if self.probed is not None and len(self.probed.bytes):
            when = ", probed before these blocks" if self._probed_earlier else ""
            text += f" A step's peak: {format_bytes(float(self.probed.bytes.max()))}{when}."
        return text


def _same(facts: BlockFacts | None, other: BlockFacts | None) -> bool:
    return facts is other if facts is None or other is None else facts.same(other)
