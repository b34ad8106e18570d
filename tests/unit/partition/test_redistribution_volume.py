"""What a step of ESDG sends: by hand, against a count of every row, against the real models, against the paper."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import PASSES as WAYS
from dtdg_lab.config.model_facts import model_facts
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.measures import measure, pulled_rows
from dtdg_lab.partition.redistribution_volume import (
    AllToAllCost,
    collective_rows,
    collectives,
    pulled_by_groups,
    redistributed,
    sent,
)
from dtdg_lab.partition.volume import between_parts, predicted_bytes
from dtdg_lab.systems.snapshot_blocks.volume_study import PAPER
from dtdg_lab.training.build import build, make_task
from dtdg_lab.training.partition import blocks_event
from dtdg_lab.training.plan_reports import plan_events

FEATURES, HIDDEN = 3, 4
SETTINGS = [*((name, {}) for name in catalogue.names("models")), ("tgcn", {"gc_layers": 2}), ("gatlstm", {"heads": 4})]
SMALL = {
    "dataset": "growing",
    "generated_nodes": 23,
    "generated_edges": 80,
    "generated_snapshots": 40,
    "hidden": 6,
    "layers": 2,
    "dtype": "float64",
    "device": "cpu",
}
BLOCKS = [
    SnapshotBlocks(range(12), 1, 1, 8),
    SnapshotBlocks(range(12), 3, 4, 8),
    SnapshotBlocks(range(2, 13), 3, 4, 23),
    SnapshotBlocks(range(5), 3, 4, 9),  # more ranks than snapshots in a block
    SnapshotBlocks(range(11), 2, 6, 23, row_ranks=2),
    SnapshotBlocks(range(7), 7, 4, 23, row_ranks=4),
]


@pytest.fixture(scope="module")
def graph():
    return load_for(RunConfig(**SMALL))


# legs


def _widths(some):
    return [(leg.layer, leg.pass_name, leg.collective, leg.width) for leg in sent(some)]


def test_cdgcn_by_hand():
    forward = [(0, "to_vertices", 2), (0, "to_snapshots", 6), (1, "to_vertices", 6)]
    backward = [(1, "backward", "to_snapshots", 6), (1, "backward", "to_vertices", 6)]
    wanted = [(layer, way, leg, width) for way in ("forward", "rerun") for layer, leg, width in forward] + backward
    assert _widths(collectives("cdgcn", 2, 6, 2, blocks=3)) == wanted
    assert _widths(collectives("cdgcn", 2, 6, 2)) == [leg for leg in wanted if leg[1] != "rerun"]
    kept = [leg for leg in wanted if leg[0] or leg[2] == "to_snapshots"]
    assert _widths(collectives("cdgcn", 2, 6, 2, blocks=3, reuse=True)) == kept


def test_pairs_send_the_readout_and_its_gradient():
    (one, two) = (collectives("tmgcn", 2, 6, 1, pairs=2, blocks=blocks) for blocks in (1, 2))
    assert _widths(one) == [
        (0, "forward", "to_vertices", 2),
        (0, "forward", "to_snapshots", 2),
        (0, "backward", "to_vertices", 2),
    ]
    assert [leg.only_last for leg in sent(one)] == [False] * 3
    assert [leg.only_last for leg in sent(two)] == [False, True, False, False, False]


@pytest.mark.parametrize(("name", "options"), [("gatlstm", {}), ("mpnn-lstm", {}), ("tgcn", {"gc_layers": 2})])
def test_spatial_parts_with_parameters_get_their_gradient_in_the_first_layer_too(name, options):
    (first,) = [leg for leg in sent(collectives(name, 2, 6, 1, reuse=True, **options)) if leg.pass_name == "backward"]
    assert (first.collective, first.width) == ("to_snapshots", 12 if name == "mpnn-lstm" else 6)


def test_models_whose_vertices_remember_nothing():
    assert collectives("evolvegcn-o", 2, 6, 2, pairs=2, blocks=4) == collectives("graphsage", 2, 6, 2) == ()
    with pytest.raises(UnsupportedError, match="depends on neighbours"):
        collectives("dcrnn", 2, 6, 2)


def test_summaries_of_evolvegcn_h():
    again = [(layer, way, "summaries", width) for way in ("forward", "rerun") for layer, width in ((0, 12), (1, 36))]
    back = [(1, "backward", "summaries", 36), (0, "backward", "summaries", 12)]
    assert _widths(collectives("evolvegcn-h", 2, 6, 2, blocks=2)) == again + back
    assert _widths(collectives("evolvegcn-h", 2, 6, 2)) == again[:2] + back


@pytest.mark.parametrize("name", ["tgcn", "cdgcn", "gatlstm", "mpnn-lstm", "tmgcn", "evolvegcn-h"])
@pytest.mark.parametrize(("pairs", "blocks", "reuse"), [*product((0, 2, 6), (1, 3), (False, True))])
def test_every_difference_from_the_paper_has_a_reason(name, pairs, blocks, reuse):
    for leg in collectives(name, 2, 6, 2, pairs=pairs, blocks=blocks, reuse=reuse):
        assert bool(leg.why) == (leg.width != leg.paper or leg.only_last), leg


def test_the_papers_rule_is_six_legs_a_layer():
    some = collectives("tmgcn", 2, 6, 3, blocks=4)
    assert len(some) == 3 * 6
    assert {leg.paper for leg in some} == {6}


@pytest.mark.parametrize("ranks", [4, 16, 64])
def test_the_papers_rule_gives_its_table_2(ranks):
    """T N = 192 million, which is 192 snapshots of its million nodes: as many as 64 ranks share evenly of its 200.

    TM-GCN there has one transform to redistribute for, between its two layers: that of the input is preprocessing.
    """
    rows = 192e6 * (ranks - 1) / ranks
    counts = {name: rows * sum(leg.paper for leg in collectives(name, 2, 6, 2, pairs=2)) / 1e9 for name in PAPER}
    assert counts["cdgcn"] == pytest.approx(PAPER["cdgcn"][ranks][0], abs=0.05)
    assert counts["tmgcn"] / 2 == pytest.approx(PAPER["tmgcn"][ranks][0], abs=0.05)
    assert counts["evolvegcn-o"] == PAPER["evolvegcn-o"][ranks][0] == 0


# rows


def _row_by_row(blocks, leg, way):
    """Every row of every snapshot goes from where it is to where it is wanted."""
    found = np.zeros((blocks.ranks, blocks.ranks), int)
    for block in range(blocks.blocks - (way == "rerun")):
        for here, there in product(range(blocks.ranks), repeat=2):
            if here % blocks.row_ranks != there % blocks.row_ranks or here == there:
                continue
            for t, v in product(blocks.block(block), range(blocks.nodes)):
                mixed_by = [rank for rank in (here, there) if t in blocks.own(block, rank) and v in blocks.rows(rank)]
                runs = [rank for rank in (here, there) if v in blocks.chunk(rank)]
                ends = [here, there] if leg == "to_vertices" else [there, here]
                found[here, there] += mixed_by == ends[:1] and runs == ends[1:]
    return found


@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
@pytest.mark.parametrize(("leg", "way"), [*product(("to_vertices", "to_snapshots"), WAYS)])
def test_rows_of_a_leg_are_those_counted_one_by_one(blocks, leg, way):
    assert collective_rows(blocks, leg, pass_name=way).tolist() == _row_by_row(blocks, leg, way).tolist()


@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
def test_back_is_the_way_there_turned_round(blocks):
    for way in WAYS:
        there, back = (collective_rows(blocks, leg, pass_name=way) for leg in ("to_vertices", "to_snapshots"))
        assert there.tolist() == back.T.tolist()
    forward, backward = (collective_rows(blocks, "summaries", pass_name=way) for way in ("forward", "backward"))
    assert forward.tolist() == backward.T.tolist()
    last = collective_rows(blocks, "to_vertices", only_last=True)
    assert (last + collective_rows(blocks, "to_vertices", pass_name="rerun")).tolist() == collective_rows(
        blocks, "to_vertices"
    ).tolist()


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_even_shares_send_t_n_less_one_share(ranks):
    blocks = SnapshotBlocks(range(32), 4, ranks, 16)
    assert collective_rows(blocks, "to_vertices").sum() == 32 * 16 * (ranks - 1) // ranks
    assert collective_rows(blocks, "to_vertices", pass_name="rerun").sum() == 24 * 16 * (ranks - 1) // ranks
    assert collective_rows(blocks, "summaries").sum() == 32 * (ranks - 1)


def test_uneven_shares_send_the_exact_sum():
    blocks = SnapshotBlocks(range(5), 1, 3, 7)  # shares of 1, 2 and 2 snapshots, of 2, 2 and 3 nodes
    assert collective_rows(blocks, "to_vertices").tolist() == [[0, 2, 3], [4, 0, 6], [4, 4, 0]]


def test_volume_adds_legs_of_a_layer_and_way():
    blocks = SnapshotBlocks(range(4), 2, 2, 6)
    some = (
        AllToAllCost(0, "forward", "to_vertices", 3, 0),
        AllToAllCost(0, "forward", "to_snapshots", 5, 0),
        AllToAllCost(1, "rerun", "to_vertices", 2, 0),
        AllToAllCost(1, "backward", "to_vertices", 0, 9),
    )
    found = redistributed(blocks, some, 2)
    assert found.rows["forward"].tolist() == [[[0, 12], [12, 0]], [[0, 0], [0, 0]]]
    assert found.bytes(8)["forward"][0].tolist() == [[0, 8 * 6 * 8], [8 * 6 * 8, 0]]
    assert found.numbers["rerun"][1].tolist() == [[0, 6], [6, 0]]
    assert found.total == 2 * 6 * 8 + 12 and not found.rows["backward"].any()


# pulls


def test_pulled_rows_by_sets(graph):
    owner = generator(0, "test/owner").integers(0, 3, graph.num_nodes).astype(np.int32)
    owner[:3] = range(3)
    found = pulled_rows(graph.snapshots[-3:], Partition(owner, 3))
    for t, snapshot in enumerate(graph.snapshots[-3:]):
        wanted = np.zeros((3, 3), int)
        pairs = {(int(u), int(owner[v])) for u, v in zip(snapshot.indices, snapshot.rows(), strict=True)}
        for u, part in pairs:
            wanted[owner[u], part] += owner[u] != part
        assert found[t].tolist() == wanted.tolist()
    assert found.sum() > 0


@pytest.mark.parametrize("name", ["cdgcn", "mpnn-lstm", "dcrnn", "evolvegcn-h"])
@pytest.mark.parametrize("reuse", [False, True])
def test_halo_volume_is_what_partitions_predict(graph, name, reuse):
    train = range(2, 14)
    owner = (np.arange(graph.num_nodes) % 4).astype(np.int32)
    partition, asked = Partition(owner, 4), model_facts(name, graph.num_features, 6, 2).pulls
    found = between_parts(graph.snapshots[2:14], partition, asked, rerun_before=9, reuse=reuse)
    described = predicted_bytes(
        measure(graph, partition, snapshots=train, directions=("in", "out")), asked, reuse=reuse
    )
    one_block = between_parts(graph.snapshots[2:14], partition, asked, reuse=reuse)
    assert found.bytes()["forward"].tolist() == described["forward"].tolist()
    for way in ("forward", "backward"):
        assert one_block.bytes()[way].tolist() == described[way].tolist()
    assert not one_block.rows["rerun"].any()
    more = found.numbers["backward"].sum() - one_block.numbers["backward"].sum()
    assert (more > 0) == (name == "dcrnn")  # whose state before the first snapshot is a leaf of the first block
    before = predicted_bytes(
        measure(graph, partition, snapshots=range(2, 11), directions=("in", "out")), asked, reuse=reuse
    )
    assert found.bytes()["rerun"].tolist() == before["forward"].tolist()
    assert found.total > 0


@pytest.mark.parametrize("blocks", [b for b in BLOCKS if b.row_ranks > 1], ids=str)
def test_groups_of_ranks_pull_within_themselves(graph, blocks):
    asked = model_facts("cdgcn", graph.num_features, 6, 2).pulls
    blocks = SnapshotBlocks(blocks.snapshots, blocks.blocks, blocks.ranks, graph.num_nodes, blocks.row_ranks)
    found = pulled_by_groups(graph.snapshots, blocks, asked, rerun=True)
    wanted = np.zeros((blocks.ranks, blocks.ranks), int)
    again = np.zeros_like(wanted)
    for block in range(blocks.blocks):
        for here, there in product(range(blocks.ranks), repeat=2):
            if here // blocks.row_ranks != there // blocks.row_ranks or here == there:
                continue
            for t in blocks.own(block, here):
                snapshot = graph.snapshots[t]
                ends = zip(snapshot.indices.tolist(), snapshot.rows().tolist(), strict=True)
                rows = len({u for u, v in ends if u in blocks.rows(here) and v in blocks.rows(there)})
                wanted[here, there] += rows
                again[here, there] += rows * (block < blocks.blocks - 1)
    assert wanted.any()
    assert found.rows["forward"].tolist() == [wanted.tolist()] * 2
    assert found.rows["rerun"].tolist() == [again.tolist()] * 2
    assert found.rows["backward"].tolist() == [np.zeros_like(wanted).tolist(), wanted.T.tolist()]
    assert found.numbers["forward"][0].sum() == graph.num_features * wanted.sum()
    kept = pulled_by_groups(graph.snapshots, blocks, asked, rerun=False, reuse=True)
    assert not kept.rows["forward"][0].any() and not kept.rows["rerun"].any() and kept.rows["forward"][1].any()


def test_whole_snapshots_on_a_rank_pull_nothing(graph):
    asked = model_facts("cdgcn", graph.num_features, 6, 2).pulls
    blocks = SnapshotBlocks(range(9), 2, 3, graph.num_nodes)
    assert pulled_by_groups(graph.snapshots, blocks, asked, rerun=True).total == 0


# the event


def test_what_a_run_is_told_of_its_blocks(graph):
    config = RunConfig(**SMALL, system="esdg-hybrid", model="cdgcn", ranks=4, blocks=3)
    parts = split(40, 1, PROTOCOLS["warm"])
    train = parts.train
    blocks = SnapshotBlocks(train, 3, 4, graph.num_nodes, 2)
    described = blocks_event(config, graph, blocks, make_task(config, graph, parts)).write()
    assert (described["layout"], described["ranks"], described["row_ranks"], described["nodes"]) == (
        "snapshot",
        4,
        2,
        23,
    )
    assert (described["blocks"], described["requested"], described["bounds"][0], described["bounds"][-1]) == (
        3,
        3,
        train.start,
        train.stop,
    )
    assert [stop - start for start, stop in described["chunks"]] == [len(blocks.chunk(rank)) for rank in range(4)]
    covered = sorted(t for block in described["own"] for start, stop in block[::2] for t in range(start, stop))
    assert covered == list(train)
    sizes = np.array([described["predicted"][way] for way in WAYS])
    assert sizes.shape == (3, 2, 4, 4) and (sizes[0] >= sizes[1]).all()
    halo = pulled_by_groups(graph.snapshots, blocks, model_facts("cdgcn", graph.num_features, 6, 2).pulls, rerun=True)
    some = collectives("cdgcn", graph.num_features, 6, 2, blocks=3)
    moved = redistributed(blocks, some, 2) + halo
    assert sizes.tolist() == [(8 * moved.numbers[way]).tolist() for way in WAYS]
    assert described["collectives"] == tuple(
        (leg.layer, leg.pass_name, leg.collective, leg.width) for leg in sent(some)
    )


def test_the_note_says_what_was_chosen_and_what_is_uneven(graph):
    config = RunConfig(**SMALL, system="esdg", model="cdgcn", ranks=4, blocks=0, memory_gib=0.5)
    parts = split(40, 1, PROTOCOLS["warm"])
    task = make_task(config, graph, parts)
    note = blocks_event(config, graph, SnapshotBlocks(range(11), 4, 4, 23), task).note
    assert "4 blocks: the fewest whose step is estimated to fit memory_gib=0.5 GiB" in note
    assert "blocks hold 2 or 3 snapshots" in note and "without one of their own" in note
    even = RunConfig(**SMALL, system="esdg", model="cdgcn", ranks=4, blocks=2)
    assert blocks_event(even, graph, SnapshotBlocks(range(16), 2, 4, 23), task).note == ""


def test_ranks_that_own_vertices_are_told_blocks_without_legs(graph):
    config = RunConfig(**SMALL, system="hypergraph-vertex", model="cdgcn", ranks=2, parts=4, blocks=3)
    parts = split(40, 1, PROTOCOLS["warm"])
    blocks = SnapshotBlocks(parts.train, 3, 2, 23, 2)
    partition = Partition((np.arange(23) % 4).astype(np.int32), 4)
    described = blocks_event(config, graph, blocks, make_task(config, graph, parts), partition=partition).write()
    assert (described["layout"], described["row_ranks"], described["blocks"]) == ("halo_vertex", 1, 3)
    assert described["own"] == described["rows"] == described["chunks"] == described["collectives"] == ()
    sizes = {way: np.array(sent) for way, sent in described["predicted"].items()}
    measured = measure(graph, partition.on_ranks(2), snapshots=parts.train)
    wanted = predicted_bytes(measured, model_facts("cdgcn", graph.num_features, 6, 2).pulls, itemsize=8)
    assert all(sizes[way].tolist() == wanted[way].tolist() for way in wanted)
    assert 0 < sizes["rerun"].sum() < sizes["forward"].sum()


def test_events_follow_a_run_from_system_to_system(graph):
    group = SoloGroup()
    made = {
        name: build(RunConfig(**SMALL, **more), graph, group)
        for name, more in {
            "esdg": {"system": "esdg", "blocks": 2},
            "single": {"system": "single"},
            "parts": {"system": "adgnn-t", "parts": 2, "partitioner": "hash"},
            "parts in blocks": {"system": "adgnn-t", "parts": 2, "partitioner": "hash", "blocks": 2},
        }.items()
    }

    def kinds(now, before=None):
        described = plan_events(made[now], group, made[before] if before else None)
        return {kind: data.get("layout") for kind, data in described}

    assert kinds("esdg") == {"blocks": "snapshot"}
    assert kinds("single") == kinds("single", "single") == {"snapshot_times": None}, "it has no layout"
    assert kinds("single", "esdg") == {"snapshot_times": None, "blocks": None}
    assert kinds("parts", "esdg") == {"partition": "halo_vertex", "blocks": None}
    assert kinds("parts") == {"partition": "halo_vertex"}
    assert kinds("parts in blocks") == {"partition": "halo_vertex", "blocks": "halo_vertex"}
    assert kinds("esdg", "parts in blocks") == {"partition": None, "blocks": "snapshot"}
