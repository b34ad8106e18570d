"""Counts of partitions in the lesson on partitions."""

from __future__ import annotations

from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.lessons.parts import count_parts, partition_picture, rows_compared

SIZE = {"generated_snapshots": 12, "generated_nodes": 240, "generated_edges": 900}


def test_metis_finds_communities_that_hash_does_not() -> None:
    counted = count_parts(load_dataset("sbm", communities=4, drift=0.0, **SIZE), ["hash", "metis"])
    assert counted["halo rows"]["metis"] < 0.6 * counted["halo rows"]["hash"]
    assert (counted[["load", "nodes"]] >= 1).all().all() and (counted["copied"] <= 1).all()


def test_change_takes_what_metis_gains() -> None:
    sent = rows_compared(SIZE, "metis", "hash")
    assert sent["drift 0"] < sent["drift 0.5"] and sent["zipf 0, churn 0"] < sent["zipf 1.5, churn 0.5"]


def test_the_picture_follows_the_partitioner() -> None:
    figures = [partition_picture(partitioner=name)[0] for name in ("hash", "metis")]
    assert figures[0]["data"] != figures[1]["data"]
