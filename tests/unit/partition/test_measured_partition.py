"""Partitions of a graph together with their cost."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PartitionError, UnknownNameError
from dtdg_lab.core.plans import Partition
from dtdg_lab.partition.measured_partition import compare_partitions, partition_graph
from tests.factories import HALVES, drawn_graph


def test_a_measured_partition(tmp_path):
    graph = drawn_graph()
    measured = partition_graph(graph, "round_robin", 3, model="dcrnn", layers=2, diffusion_steps=1)
    assert (measured.measures.hops, measured.measures.directions, measured.measures.static) == (4, ("in", "out"), True)
    assert measured.measures.snapshots.start == 0
    assert measured.measures.snapshots.stop < graph.num_snapshots
    assert measured.predicted["forward"].shape == measured.predicted["backward"].shape == (2, 3, 3)
    assert 0 < measured.predicted["backward"].sum() < measured.predicted["forward"].sum()
    assert measured.bytes_per_step == sum(sent.sum() for sent in measured.predicted.values())
    assert "'drawn' in 3 parts by round_robin, made in" in repr(measured)
    assert "dcrnn of 2 layers, hidden 32" in repr(measured)
    assert json.loads(json.dumps(measured.to_dict()))["measures"]["parts"] == 3
    file = measured.save(tmp_path / "three.npz")
    second = partition_graph(graph, "file", 3, partition_file=str(file))
    assert second.partition == measured.partition


def test_partitions_side_by_side():
    measured = compare_partitions(drawn_graph(), ("hash", "round_robin"), 4, layers=2)
    assert [partition.partitioner for partition in measured] == ["hash", "round_robin"]
    assert {partition.measures.parts for partition in measured} == {4}


def test_a_partition_made_by_hand():
    graph = drawn_graph()
    half = Partition(np.arange(20, dtype=np.int32) % 2, 2)
    assert "by by hand" not in repr(partition_graph(graph, half))
    assert partition_graph(graph, half).to_dict()["partitioner"] == "manual"
    with pytest.raises(PartitionError, match="made for another graph: its data hash is ffff"):
        partition_graph(graph, dataclasses.replace(half, data_hash="f" * 64))
    with pytest.raises(PartitionError, match="the partition has 6 nodes, but 'drawn' has 20"):
        partition_graph(graph, HALVES)


def test_wrong_names_of_a_measured_partition():
    graph = drawn_graph()
    with pytest.raises(UnknownNameError, match="Did you mean 'warm'"):
        partition_graph(graph, "hash", protocol="warmm")
    with pytest.raises(UnknownNameError, match="Did you mean 'assignment_order'"):
        partition_graph(graph, "hash", assigment_order="plain")

    with pytest.raises(ConfigError, match=r"lab\.datasets\.load"):
        partition_graph("collegemsg")

    with pytest.raises(ConfigError, match="layers=0 is out of range"):
        partition_graph(graph, "hash", layers=0)
