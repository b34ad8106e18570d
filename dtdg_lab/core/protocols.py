"""Named evaluation protocols: how the sequence is split, what state the evaluator starts with, what a label counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What an evaluation number means.

    The first ``train_share`` of the T labelled snapshots is the training part, or all but the last
    ``test_snapshots`` where that is not 0; its last ``validation_share`` is held out for validation (0: none).
    Where ``purge`` is set, ``edge_life - 1`` snapshots are left out at each boundary, because a snapshot shares edges
    with that many successors. ``state`` is ``warm`` (the recurrent state runs from the first snapshot) or ``cold``
    (zero at the start of each part). ``strict_label`` counts only edges of the newest base interval in the label.
    ``settings`` are defaults that the protocol brings for options of the run; given values win, and a data set with
    features of its own keeps them.
    """

    name: str
    meaning: str
    source: str = "ours"
    train_share: float = 0.4
    validation_share: float = 0.25
    test_snapshots: int = 0
    purge: bool = True
    state: str = "warm"
    strict_label: bool = False
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def leaky(self) -> bool:
        """Whether parts share edges where edges live longer than one interval."""
        return not self.purge

    def gap(self, edge_life: int) -> int:
        """Snapshots left out at each boundary between parts, where edges live ``edge_life`` intervals."""
        return edge_life - 1 if self.purge else 0


_PAPER_CUT: Mapping[str, Any] = MappingProxyType({"features": "degrees", "drop_first": True, "min_edges": 51})

_ALL = (
    Protocol(name="warm", meaning="purged split, warm state: the default"),
    Protocol(name="cold", meaning="purged split, state zero at the start of each part", state="cold"),
    Protocol(name="strict", meaning="purged split, and only edges new in the next snapshot count in the label",
             strict_label=True),
    Protocol(name="leaky", meaning="no purge gap, as the papers' code: parts share edges where edge_life > 1",
             purge=False),
    Protocol(
        name="flare-2026", source="FlareDTDG, released loader and evaluation",
        meaning="40/60, leaky, warm state; raw degrees; edges scaled by in- and out-degree, no self loops; no "
        "validation part",
        validation_share=0.0, purge=False,
        settings=MappingProxyType({**_PAPER_CUT, "norm": "in_out", "self_loops": False}),
    ),
    Protocol(
        name="dynahb-2024", source="DynaHB, released loader and evaluation, with features and label put right",
        meaning="40/60, leaky, cold state; raw degrees; self loops, scaled by in-degree; no validation part",
        validation_share=0.0, purge=False, state="cold",
        settings=MappingProxyType({**_PAPER_CUT, "norm": "in", "self_loops": True}),
    ),
    Protocol(
        name="esdg-2021", source="ESDG section 6 (link prediction of its experiments)",
        meaning="links: train on all snapshots but the last, test on it; raw degrees; a tenth of the edges and as many "
        "random pairs; accuracy; no validation part; a last interval that is not full is left out",
        test_snapshots=1, validation_share=0.0, purge=False,
        settings=MappingProxyType({"features": "degrees", "drop_partial": True, "task": "link", "link_share": 0.1,
                                   "negatives": 1, "link_head": "concat", "norm": "in", "self_loops": True}),
    ),
    Protocol(
        name="evolvegcn-2020", source="EvolveGCN section 4, released settings",
        meaning="links: 70/10/20; one-hot degree; all edges against 100 random pairs each (the paper takes all pairs); "
        "average precision and MRR; edges keep their direction (the paper adds reversed ones)",
        train_share=0.8, validation_share=0.125, purge=False,
        settings=MappingProxyType({"features": "one_hot_degree", "drop_partial": True, "task": "link",
                                   "link_share": 1.0, "negatives": 100, "ranking_negatives": 1000,
                                   "link_head": "concat", "norm": "in", "self_loops": True}),
    ),
    Protocol(
        name="roland-2022", source="ROLAND section 5, fixed split",
        meaning="links: 70/10/20; constant features; every edge ranked against 1000 random targets; "
        "MRR; edges keep their direction (the paper's code hears both ends)",
        train_share=0.8, validation_share=0.125, purge=False,
        settings=MappingProxyType({"features": "constant", "drop_partial": True, "task": "link", "link_share": 1.0,
                                   "negatives": 1, "ranking_negatives": 1000, "link_head": "dot", "norm": "in",
                                   "self_loops": True}),
    ),
    Protocol(
        name="tgb", source="TGB 2023, section 4, cut to snapshots",
        meaning="links: 70/15/15 by snapshots; every edge ranked against 100 fixed targets; MRR, ties at the mean "
        "rank",
        train_share=0.85, validation_share=15 / 85, purge=False,
        settings=MappingProxyType({"drop_partial": True, "task": "link", "link_share": 1.0, "negatives": 1,
                                   "ranking_negatives": 100,
                                   "link_head": "dot"}),
    ),
)  # fmt: skip

PROTOCOLS: Mapping[str, Protocol] = MappingProxyType({protocol.name: protocol for protocol in _ALL})
