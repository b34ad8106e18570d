"""Events of families: read as they were written, and refused where they lack something."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.records.events import Event, MemoryFacts
from dtdg_lab.systems.decayed_windows.events import ChunkFacts, TrapezoidFacts
from dtdg_lab.systems.feature_cache.events import Congestion, FeatureFacts
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from tests import feature_tables, hybrid_tables, plan_events, schedule_records, window_tables

CHUNKS = {
    "chunker": "metis",
    "made_by": "metis (seed 0)",
    "chunks": 128,
    "parts": 2,
    "nodes": 640,
    "sizes": [2, 2.5, 4],
    "cut_edges": 30,
    "cut_share": 0.3,
    "edges": 100,
    "seconds": 0.5,
    "note": "",
}
EVENTS: list[tuple[type[Event], dict[str, Any], tuple[str, ...]]] = [  # with names that cannot be missing
    (BlockFacts, plan_events.blocks_data(plan_events.plan()), ("bounds", "nodes", "layout")),
    (ChunkFacts, CHUNKS, ("sizes",)),
    (Congestion, feature_tables.congestion(0, {1: 20.0}, {2: 25.0})["data"], ("mbit",)),
    (FeatureFacts, feature_tables.features()["data"], ("parts", "row_bytes", "policy", "steps_per_epoch", "fanouts")),
    (HybridFacts, hybrid_tables.plan(), ("sizes", "candidates", "choice", "exchange")),
    (MemoryFacts, plan_events.memory_data(), ("seconds",)),
    (
        ScheduleFacts,
        schedule_records.schedule_data([0.1, 0.2, 0.3], [[[0], [1]], [[2], []]]),
        ("times_s", "assignment", "bound_s", "scheduler"),
    ),
    (TrapezoidFacts, window_tables.trapezoid_data(RunConfig(system="flaredtdg")), ("window",)),
]
each_event = pytest.mark.parametrize(("kind", "data", "needed"), EVENTS, ids=[kind.__name__ for kind, *_ in EVENTS])


@each_event
def test_an_event_is_read_as_it_was_written(kind: type[Event], data: dict[str, Any], needed: tuple[str, ...]) -> None:
    written = json.loads(json.dumps(kind.read(data).write()))
    assert json.loads(json.dumps(kind.read(written).write())) == written


@each_event
def test_an_event_that_lacks_something_is_refused_by_its_name(
    kind: type[Event], data: dict[str, Any], needed: tuple[str, ...]
) -> None:
    for name in needed:
        with pytest.raises(DataError, match=f"'{name}'"):
            kind.read({other: value for other, value in data.items() if other != name})


@pytest.mark.parametrize("kind", [kind for kind, *_ in EVENTS if kind.ended], ids=lambda kind: kind.__name__)
def test_the_end_of_a_plan_has_a_sentence(kind: type[Event]) -> None:
    assert kind.read_plan({"layout": None}) is None and kind.text({"layout": None}) == kind.ended


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (BlockFacts, plan_events.blocks_data(plan_events.plan()), ("3 blocks of 4 to 5 snapshots on 2 ranks",)),
        (
            ChunkFacts,
            CHUNKS | {"note": "METIS is missing."},
            ("2 parts by metis", "30% of the edges", "METIS is missing"),
        ),
        (FeatureFacts, feature_tables.features(policy="double_dqn")["data"], ("512 seeds", "Double DQN", "351.6 KiB")),
        (HybridFacts, hybrid_tables.plan(cache_bytes=3 << 20), ("4 of 20 snapshots", "10 to 12 of 200 to 240 nodes")),
        (HybridFacts, hybrid_tables.controlled_plan(average_every_s=0.5), ("dqn among 9 sizes", "every 0.5 s")),
        (MemoryFacts, plan_events.memory_data(3), ("1.2 KiB", "backward of block 2")),
        (
            ScheduleFacts,
            schedule_records.schedule_data([0.1, 0.2, 0.2, 0.1, 0.4], [[[0, 1], [2]], [[3], [4]]], psg_makespan_s=0.8),
            ("5 groups on 2 ranks in 2 iterations", "700 ms", "40% above the bound", "12% less than round robin"),
        ),
        (
            TrapezoidFacts,
            window_tables.trapezoid_data(RunConfig(system="flaredtdg")),
            ("13, 8, 5, 3, 2, 1 of 128 chunks", "28.1% of the rows", "1.8 MiB"),
        ),
    ],
)
def test_the_sentence_of_a_plan_has_its_numbers(
    kind: type[Event], data: dict[str, Any], words: tuple[str, ...]
) -> None:
    assert [part for part in words if part not in kind.text(data)] == []
