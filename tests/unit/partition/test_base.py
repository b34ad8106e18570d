"""Partitions made by name, cached, and written to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, DataError, PartitionError, PlanError, UnknownNameError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition import simple
from dtdg_lab.partition.base import load_partition, make_partition, save_partition, without_empty_parts
from dtdg_lab.testing.example_graphs import power_law


def test_empty_parts_take_the_lightest_of_the_largest() -> None:
    assigned = without_empty_parts(np.array([0, 0, 0, 2, 2]), 4, np.array([3.0, 1.0, 2.0, 1.0, 1.0]), notes="by hand")
    assert assigned.owner.tolist() == [0, 1, 3, 2, 2]
    assert assigned.notes == "by hand; 2 empty parts were given a node"


def test_a_partition_knows_where_it_is_from() -> None:
    graph = power_law()
    assigned = make_partition("load_aware", graph, 3, hops=2, assignment_order="plain")
    assert assigned.made_by == "load_aware (hops 2, assignment_order plain)"
    assert assigned.data_hash == graph.data_hash
    assert assigned.groups is not None
    assert assigned.seconds > 0


def test_what_was_made_is_read_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = power_law(nodes=31)
    first = make_partition("load_aware", graph, 3, hops=3)
    monkeypatch.setattr(simple, "assign_load_aware", lambda hops, assignment_order: None)  # calling it fails
    second = make_partition("load_aware", graph, 3, hops=3, seed=5, imbalance=0.5)  # it reads neither
    assert second == first
    assert (second.seconds, second.made_by) == (first.seconds, first.made_by)
    assert second.groups is not None
    with pytest.raises(TypeError):
        make_partition("load_aware", graph, 3, hops=4)


def test_each_seed_has_a_partition_of_its_own() -> None:
    graph = power_law(nodes=32)
    assert make_partition("hash", graph, 3, seed=1) != make_partition("hash", graph, 3, seed=2)


def test_a_damaged_file_in_the_cache_is_made_anew() -> None:
    graph = power_law(nodes=33)
    files_before = set((cache_folder() / "partitions").glob("*.npz"))
    first = make_partition("hash", graph, 3)
    (file,) = set((cache_folder() / "partitions").glob("*.npz")) - files_before
    file.write_bytes(file.read_bytes()[:-40])
    assert make_partition("hash", graph, 3) == first
    assert load_partition(file, graph, 3) == first


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "file"))
    assert make_partition("round_robin", power_law(), 2).parts == 2


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (61, "parts=61 must be from 1 to 60, the number of nodes"),
        (0, "parts=0 must be"),
        (-2, "parts=-2 must be"),
        ("two", "parts='two' must be a whole number from 1 to 60"),
        (2.0, "parts=2.0 must be a whole number"),
    ],
)
def test_parts_that_cannot_be_are_refused(parts: Any, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        make_partition("hash", power_law(), parts)


def test_wrong_names_and_settings_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"mettis.*metis"):
        make_partition("mettis", power_law(), 2)
    with pytest.raises(UnknownNameError, match=r"imbalans.*imbalance"):
        make_partition("metis", power_law(), 2, imbalans=0.1)
    with pytest.raises(ConfigError, match="imbalance"):
        make_partition("hash", power_law(), 2, imbalance=-1.0)


def test_a_partition_comes_back_from_its_file(tmp_path: Path) -> None:
    assigned = make_partition("load_aware", power_law(), 3)
    file = save_partition(assigned, tmp_path / "deep" / "mine")
    assert file == tmp_path / "deep" / "mine.npz"
    back = load_partition(file, power_law(), 3)
    assert back == assigned
    assert (back.made_by, back.seconds, back.data_hash) == (assigned.made_by, assigned.seconds, assigned.data_hash)
    assert back.groups.tolist() == assigned.groups.tolist()
    assert [path.name for path in file.parent.iterdir()] == ["mine.npz"]


def test_a_partition_of_another_graph_is_refused_with_both_hashes(tmp_path: Path) -> None:
    graph, other = power_law(), power_law(edges=151)
    file = save_partition(make_partition("hash", graph, 3), tmp_path / "mine.npz")
    with pytest.raises(PartitionError, match=f"(?s){graph.data_hash[:16]}.*{other.data_hash[:16]}"):
        make_partition("file", other, 3, partition_file=str(file))
    with pytest.raises(PartitionError, match="3 parts, but 4 are requested"):
        make_partition("file", graph, 4, partition_file=str(file))
    assigned = make_partition("file", graph, 3, partition_file=str(file))
    assert assigned == make_partition("hash", graph, 3)
    assert "made by hash" in assigned.made_by


def test_a_partition_made_by_hand_fits_graphs_of_its_size(tmp_path: Path) -> None:
    file = save_partition(Partition(np.arange(60) % 2, 2), tmp_path / "hand.npz")
    assert load_partition(file, power_law()).counts.tolist() == [30, 30]
    with pytest.raises(PartitionError, match="60 nodes, but 'power law' has 61"):
        load_partition(file, power_law(nodes=61))


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
