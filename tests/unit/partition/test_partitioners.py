"""What is special about each partitioner, on graphs small enough to read, and what goes wrong around them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dtdg_lab.core.errors import (
    ConfigError,
    DataError,
    NotAvailableError,
    PartitionError,
    PlanError,
    StoppedError,
    UnknownNameError,  # fmt: skip
)
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.preparation import preparation
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition import libraries
from dtdg_lab.partition import simple as from_file
from dtdg_lab.partition import simple as hash_
from dtdg_lab.partition import simple as load_aware
from dtdg_lab.partition import simple as round_robin
from dtdg_lab.partition.base import load_partition, make_partition, save_partition, without_empty_parts
from dtdg_lab.partition.child_process import in_child, needs_library
from dtdg_lab.partition.libraries import merged_nets, union_graph
from dtdg_lab.partition.simple import mixed, vertex_loads
from dtdg_lab.testing.example_graphs import graph_of, power_law


def dynahb_figure_4() -> Any:
    """Two snapshots of four nodes; an edge (source, target); the paper counts from 1."""
    first = [(3, 1), (1, 2), (3, 2), (1, 4), (3, 4)]
    second = [(1, 3), (1, 2), (3, 2), (1, 4), (3, 4)]
    return graph_of(4, [[(u - 1, v - 1) for u, v in edges] for edges in (first, second)], name="figure 4")


def two_groups(size: int = 12) -> Any:
    """Two complete graphs joined by one edge, in two snapshots."""
    near = [(u, v) for u in range(size) for v in range(u)]
    edges = [*near, *((u + size, v + size) for u, v in near), (0, size)]
    return graph_of(2 * size, [edges, edges[::2]], name="two groups")


def part_loads(owner: Any, loads: Any) -> list[float]:
    return np.bincount(owner, weights=loads).tolist()


# loads and assignment_order


def test_loads_are_those_of_dynahb_figure_4() -> None:
    loads = vertex_loads(dynahb_figure_4(), 2)
    assert loads.tolist() == [2, 10, 2, 10]
    assert part_loads(round_robin.assign_round_robin(dynahb_figure_4(), 2).owner, loads) == [4, 20]
    assert part_loads([0, 0, 0, 1], loads) == [14, 10]


@pytest.mark.parametrize("assignment_order", ["plain", "boustrophedon"])
def test_load_aware_is_even_on_dynahb_figure_4(assignment_order: str) -> None:
    graph = dynahb_figure_4()
    owner = load_aware.assign_load_aware(graph, 2, hops=2, assignment_order=assignment_order).owner
    assert part_loads(owner, vertex_loads(graph, 2)) == [12, 12]


def test_loads_of_no_hop_are_refused() -> None:
    with pytest.raises(PartitionError, match="hops=0 must be at least 1"):
        vertex_loads(dynahb_figure_4(), 0)


def test_dealing_turns_round_or_starts_again() -> None:
    falling = graph_of(5, [[(u, v) for v in range(5) for u in range(5 - v)]])  # in-degrees 5, 4, 3, 2, 1
    assert load_aware.assign_load_aware(falling, 2, assignment_order="plain").owner.tolist() == [0, 1, 0, 1, 0]
    assert load_aware.assign_load_aware(falling, 2).owner.tolist() == [0, 1, 1, 0, 0]


def test_an_unknown_dealing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'cards'.*boustrophedon or plain"):
        load_aware.assign_load_aware(dynahb_figure_4(), 2, assignment_order="cards")


def test_groups_are_equal_runs_of_like_load() -> None:
    graph = power_law(nodes=47)
    made, loads = load_aware.assign_load_aware(graph, 2, hops=2), vertex_loads(graph, 2)
    assert made.groups is not None
    for part in range(2):
        own = np.flatnonzero(made.owner == part)
        sizes = np.bincount(made.groups[own])
        assert len(sizes) == 10
        assert sizes.max() - sizes.min() <= 1
        heaviest = [loads[own[made.groups[own] == group]].max() for group in range(10)]
        assert heaviest == sorted(heaviest, reverse=True)


def test_a_part_of_few_vertices_has_a_group_for_each() -> None:
    made = load_aware.assign_load_aware(dynahb_figure_4(), 2)
    assert made.groups is not None
    assert sorted(made.groups[made.owner == 0].tolist()) == [0, 1]


# hash and round robin


def test_hash_is_the_same_on_every_machine() -> None:
    assert hash_.assign_hash(graph_of(12, [[]]), 4, seed=0).owner.tolist() == [3, 1, 3, 1, 2, 1, 3, 2, 3, 0, 0, 3]


def test_mixing_gives_the_published_sequence_of_splitmix64() -> None:
    given = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mixed(np.arange(1, 4), 0).tolist() == given


def test_hash_looks_at_numbers_and_seed_alone() -> None:
    graph, empty = power_law(nodes=200), graph_of(200, [[]])
    assert hash_.assign_hash(graph, 4).owner.tolist() == hash_.assign_hash(empty, 4).owner.tolist()
    assert hash_.assign_hash(graph, 4, seed=1).owner.tolist() != hash_.assign_hash(graph, 4).owner.tolist()
    assert np.bincount(hash_.assign_hash(graph_of(40_000, [[]]), 4).owner).min() > 9_700


def test_round_robin_deals_by_number() -> None:
    assert round_robin.assign_round_robin(graph_of(7, [[]]), 3).owner.tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_empty_parts_take_the_lightest_of_the_largest() -> None:
    made = without_empty_parts(np.array([0, 0, 0, 2, 2]), 4, np.array([3.0, 1.0, 2.0, 1.0, 1.0]), notes="by hand")
    assert made.owner.tolist() == [0, 1, 3, 2, 2]
    assert made.notes == "by hand; 2 empty parts were given a node"


def test_hash_says_that_it_filled_parts() -> None:
    made = hash_.assign_hash(graph_of(8, [[]]), 8)
    assert sorted(made.owner.tolist()) == list(range(8))
    assert "empty part" in made.notes


# the union graph, METIS


def test_the_union_counts_the_snapshots_of_each_pair() -> None:
    graph = graph_of(4, [[(0, 1), (1, 0), (2, 2)], [(1, 0), (3, 0)], [(0, 3)]])
    union = union_graph(graph.snapshots)
    assert union.indptr.tolist() == [0, 2, 3, 3, 4]
    assert union.indices.tolist() == [1, 3, 0, 0]
    assert union.snapshots.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_union_is_that_of_sets_of_pairs(seed: int) -> None:
    draws = np.random.default_rng(seed)
    snapshots = [[(int(a), int(b)) for a, b in draws.integers(0, 9, (14, 2))] for _ in range(5)]
    counts = Counter(pair for edges in snapshots for pair in {(a, b) for e in edges for a, b in (e, e[::-1]) if a != b})
    union = union_graph(graph_of(9, snapshots).snapshots)
    rows = np.repeat(np.arange(9), np.diff(union.indptr))
    found = dict(zip(zip(rows.tolist(), union.indices.tolist(), strict=True), union.snapshots.tolist(), strict=True))
    assert found == dict(sorted(counts.items())) and list(found) == sorted(found)


def test_a_partitioner_is_reported_and_ends_with_a_run_that_is_stopped() -> None:
    reports: list[tuple[str, float | None]] = []
    before = set(psutil.Process().children())

    def report(what: str, left_s: float | None) -> None:
        reports.append((what, left_s))
        if what.startswith("metis"):
            raise StoppedError("stopped")

    with pytest.raises(StoppedError), preparation(report):
        libraries.assign_metis(two_groups(), 2)
    assert reports[-1][0] == "metis divides 24 nodes in 2 parts" and (reports[-1][1] or 0) > 0
    assert set(psutil.Process().children()) <= before
    libraries.assign_metis(two_groups(), 2)  # without a report


def test_metis_cuts_where_there_is_one_edge() -> None:
    owner = libraries.assign_metis(two_groups(), 2).owner
    assert sorted(set(owner[:12].tolist()) | {10 + part for part in owner[12:].tolist()}) in ([0, 11], [1, 10])


def test_a_vertex_weighs_its_edges_and_whether_it_is_labelled() -> None:
    classes = np.array([0, -1, -1, 1], np.int16)
    graph = graph_of(4, [[(0, 1), (2, 1)], [(0, 1)]], classes=classes)
    edges = np.array([2, 3, 1, 0]) / 6
    assert np.allclose(libraries.vertex_weights(graph), edges + np.array([0.5, 0, 0, 0.5]))
    assert np.allclose(libraries.vertex_weights(graph_of(4, [[(0, 1), (2, 1)], [(0, 1)]])), edges + 0.25)


def test_labels_at_any_time_count() -> None:
    classes = np.array([[0, -1, -1], [-1, -1, 1]], np.int16)
    weights = libraries.vertex_weights(graph_of(3, [[], []], classes=classes))
    assert weights.tolist() == [0.5, 0, 0.5]


def test_isolated_vertices_even_out_the_counts() -> None:
    graph = graph_of(40, [[(u, v) for u in range(6) for v in range(u)], [(30, 31)]])
    made = libraries.assign_metis(graph, 4)
    assert np.bincount(made.owner).tolist() == [10, 10, 10, 10]


# nets


def test_equal_nets_are_merged_and_lonely_ones_dropped() -> None:
    # node 0 sends to 1 in both snapshots, and 1 to 0 in the second: the same two pins each time
    nets = merged_nets(graph_of(4, [[(0, 1), (2, 2), (3, 0), (3, 1)], [(0, 1), (1, 0)]]).snapshots)
    found = {frozenset(nets.pins[a:b].tolist()): n for a, b, n in zip(nets.starts, nets.starts[1:], nets.counts)}  # noqa: B905
    assert found == {frozenset({0, 1}): 3, frozenset({0, 1, 3}): 1}


def test_a_sequence_without_edges_has_no_net() -> None:
    nets = merged_nets(graph_of(3, [[], [(1, 1)]]).snapshots)
    assert (nets.starts.tolist(), len(nets.pins), len(nets.counts)) == ([0], 0, 0)


def test_hypergraph_parts_hold_what_pulls_from_each_other() -> None:
    """Two complete groups and one edge: one row is sent in each of two snapshots, and no partition sends fewer."""
    graph = two_groups()
    owner = libraries.assign_hypergraph(graph, 2).owner
    nets = merged_nets(graph.snapshots)
    pins = np.split(owner[nets.pins], nets.starts[1:-1])
    sent = sum(int(count) * (len(set(net.tolist())) - 1) for count, net in zip(nets.counts, pins, strict=True))
    assert np.bincount(owner).tolist() == [12, 12]
    assert sent == sum((12, 0) in pulls(snapshot) for snapshot in graph.snapshots) == 2


def pulls(snapshot: Any) -> set[tuple[int, int]]:
    return set(zip(snapshot.rows().tolist(), snapshot.indices.tolist(), strict=True))


# the child process


def fake_pymetis(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let the child import a pymetis of our own in place of the real one."""
    (folder / "pymetis.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


ANSWERS = """
import numpy as np
from types import SimpleNamespace
zero_copy_dtype = lambda: np.int64
Options = CSRAdjacency = lambda *_, **__: None
part_graph = lambda *_, **__: SimpleNamespace(vertex_part={})
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os; os.kill(os.getpid(), 11)", r"metis was ended by SIGSEGV.*24 nodes in 2 parts"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL.*memory"),
        ("import sys; sys.exit('no licence')", "exit status 1. Its last output: no licence"),
        ("1 / 0", "Its last output: ZeroDivisionError"),
        ("import os; os._exit(0)", "wrote no readable result"),
        (ANSWERS.format("[0, 1]"), r"returned int64 of shape \(2,\)"),
        (ANSWERS.format("[0] * 23 + [2]"), "from 0 to 2, instead of one part from 0 to 1"),
    ],
)
def test_metis_may_fail_without_harm(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pymetis(tmp_path, monkeypatch, text)
    with pytest.raises(PartitionError, match=f"(?s){said}") as caught:
        make_partition("metis", two_groups(), 2, seed=777)
    assert "Choose another partitioner" in str(caught.value)
    monkeypatch.delenv("PYTHONPATH")
    assert make_partition("load_aware", two_groups(), 2).parts == 2


def test_a_child_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pymetis(tmp_path, monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(PartitionError, match=r"did not divide 3 nodes in 2 parts within 0.3 s and was stopped"):
        in_child("metis", {"parts": np.array(2)}, vertices=3, parts=2, time_limit_s=0.3)


def test_a_missing_library_is_named_with_its_remedy() -> None:
    needs_library("numpy")
    with pytest.raises(NotAvailableError, match="pip install no_such_library"):
        needs_library("no_such_library")


# making and keeping


def test_a_partition_knows_where_it_is_from() -> None:
    graph = power_law()
    made = make_partition("load_aware", graph, 3, hops=2, assignment_order="plain")
    assert made.made_by == "load_aware (hops 2, assignment_order plain)"
    assert made.data_hash == graph.data_hash
    assert made.groups is not None
    assert made.seconds > 0


def test_what_was_made_is_read_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = power_law(nodes=31)
    first = make_partition("load_aware", graph, 3, hops=3)
    monkeypatch.setattr(load_aware, "assign_load_aware", lambda hops, assignment_order: None)  # calling it fails
    again = make_partition("load_aware", graph, 3, hops=3, seed=5, imbalance=0.5)  # it reads neither
    assert again == first
    assert (again.seconds, again.made_by) == (first.seconds, first.made_by)
    assert again.groups is not None
    with pytest.raises(TypeError):
        make_partition("load_aware", graph, 3, hops=4)


def test_each_seed_has_a_partition_of_its_own() -> None:
    graph = power_law(nodes=32)
    assert make_partition("hash", graph, 3, seed=1) != make_partition("hash", graph, 3, seed=2)


def test_a_damaged_file_in_the_cache_is_made_anew() -> None:
    graph = power_law(nodes=33)
    before = set((cache_folder() / "partitions").glob("*.npz"))
    first = make_partition("hash", graph, 3)
    (file,) = set((cache_folder() / "partitions").glob("*.npz")) - before
    file.write_bytes(file.read_bytes()[:-40])
    assert make_partition("hash", graph, 3) == first
    assert load_partition(file, graph, 3) == first


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "file"))
    assert make_partition("round_robin", power_law(), 2).parts == 2


@pytest.mark.parametrize(
    ("parts", "said"),
    [(61, "parts=61 must be from 1 to 60, the number of nodes"), (0, "parts=0 must be"), (-2, "parts=-2 must be"),
     ("two", "parts='two' must be a whole number from 1 to 60"), (2.0, "parts=2.0 must be a whole number")],
)  # fmt: skip
def test_parts_that_cannot_be_are_refused(parts: Any, said: str) -> None:
    with pytest.raises(PartitionError, match=said):
        make_partition("hash", power_law(), parts)


def test_wrong_names_and_settings_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"mettis.*metis"):
        make_partition("mettis", power_law(), 2)
    with pytest.raises(UnknownNameError, match=r"imbalans.*imbalance"):
        make_partition("metis", power_law(), 2, imbalans=0.1)
    with pytest.raises(ConfigError, match="imbalance"):
        make_partition("hash", power_law(), 2, imbalance=-1.0)


# files


def test_a_partition_comes_back_from_its_file(tmp_path: Path) -> None:
    made = make_partition("load_aware", power_law(), 3)
    file = save_partition(made, tmp_path / "deep" / "mine")
    assert file == tmp_path / "deep" / "mine.npz"
    back = load_partition(file, power_law(), 3)
    assert back == made
    assert (back.made_by, back.seconds, back.data_hash) == (made.made_by, made.seconds, made.data_hash)
    assert back.groups is not None and made.groups is not None
    assert back.groups.tolist() == made.groups.tolist()
    assert [path.name for path in file.parent.iterdir()] == ["mine.npz"]


def test_a_partition_of_another_graph_is_refused_with_both_hashes(tmp_path: Path) -> None:
    graph, other = power_law(), power_law(edges=151)
    file = save_partition(make_partition("hash", graph, 3), tmp_path / "mine.npz")
    with pytest.raises(PartitionError, match=f"(?s){graph.data_hash[:16]}.*{other.data_hash[:16]}"):
        make_partition("file", other, 3, partition_file=str(file))
    with pytest.raises(PartitionError, match="3 parts, but 4 are requested"):
        make_partition("file", graph, 4, partition_file=str(file))
    made = make_partition("file", graph, 3, partition_file=str(file))
    assert made == make_partition("hash", graph, 3)
    assert "made by hash" in made.made_by


def test_a_partition_made_by_hand_fits_graphs_of_its_size(tmp_path: Path) -> None:
    file = save_partition(Partition(np.arange(60) % 2, 2), tmp_path / "hand.npz")
    assert load_partition(file, power_law()).counts.tolist() == [30, 30]
    with pytest.raises(PartitionError, match="60 nodes, but 'power law' has 61"):
        load_partition(file, power_law(nodes=61))


def test_partitioner_file_needs_a_file() -> None:
    with pytest.raises(ConfigError, match="needs the option partition_file"):
        from_file.assign_from_file(power_law(), 2)


def test_files_that_hold_no_partition_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*nowhere.npz"):
        load_partition(tmp_path / "nowhere.npz")
    (tmp_path / "text.npz").write_text("0 1 0 1")
    with pytest.raises(DataError, match="damaged or not a partition"):
        load_partition(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", owner=np.zeros(3))
    with pytest.raises(DataError, match="KeyError: 'format'"):
        load_partition(tmp_path / "other.npz")
    file = save_partition(make_partition("hash", power_law(), 3), tmp_path / "mine.npz")
    with np.load(file) as arrays:
        entries = dict(arrays)
    np.savez(tmp_path / "newer.npz", **{**entries, "format": np.array("dtdg-lab partition 9")})
    with pytest.raises(DataError, match="its format is 'dtdg-lab partition 9'"):
        load_partition(tmp_path / "newer.npz")
    np.savez(tmp_path / "parts.npz", **{**entries, "parts": np.array(2)})
    with pytest.raises(DataError, match="is not a valid partition: owners run from 0 to 2") as caught:
        load_partition(tmp_path / "parts.npz")
    assert isinstance(caught.value.__cause__, PlanError)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot write the partition to"):
        save_partition(make_partition("hash", power_law(), 3), tmp_path / "file" / "mine.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DataError, match="cannot write the partition to"):
        save_partition(make_partition("hash", power_law(), 3), tmp_path / "folder.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.npz"]


def test_a_rank_gets_consecutive_parts() -> None:
    partition = Partition(np.array([3, 0, 2, 1, 5, 4], np.int32), 6)
    assert partition.on_ranks(2).owner.tolist() == [1, 0, 0, 0, 1, 1]
    assert partition.on_ranks(3).owner.tolist() == [1, 0, 1, 0, 2, 2]
