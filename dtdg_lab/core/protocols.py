"""Named evaluation protocols: how the sequence is split and what state the evaluator starts with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What an evaluation number means.

    The first ``train_share`` of the T labelled snapshots is the training part; its last ``validation_share`` is held
    out for validation. Where ``purge`` is set, ``edge_life - 1`` snapshots are left out at each boundary, because a
    snapshot shares edges with that many successors. ``state`` is ``warm`` (the recurrent state runs from the first
    snapshot) or ``cold`` (zero at the start of each part). ``strict_label`` counts only edges of the newest base
    interval in the target.
    """

    name: str
    meaning: str
    train_share: float = 0.4
    validation_share: float = 0.25
    purge: bool = True
    state: str = "warm"
    strict_label: bool = False


_ALL = (
    Protocol(name="warm", meaning="purged split, warm state: the default"),
    Protocol(name="cold", meaning="purged split, state zero at the start of each part", state="cold"),
    Protocol(name="strict", meaning="purged split, and only edges new in the next snapshot count in the label",
             strict_label=True),
    Protocol(name="leaky", meaning="no purge gap, as the papers' code: parts share edges where edge_life > 1",
             purge=False),
)  # fmt: skip

PROTOCOLS: Mapping[str, Protocol] = MappingProxyType({protocol.name: protocol for protocol in _ALL})
