"""Sizes of hybrid batches: shares and numbers, grids of a controller, and what is refused."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.systems.hybrid_batches.sizes import batch_size, grid, nearest, resolved


@pytest.mark.parametrize(
    ("value", "whole", "number"),
    [
        (1, 30, 30),
        (1.0, 1, 1),
        (0.2, 30, 6),
        (0.05, 7, 1),
        (0.07, 100, 7),
        (0.3, 10, 3),
        (1e-6, 10**6, 1),
        (0.34, 3, 2),
        (2, 30, 2),
        (30.0, 30, 30),
    ],
)
def test_shares_are_rounded_up_and_whole_numbers_kept(value: float, whole: int, number: int) -> None:
    assert resolved(value, whole, "batch_nodes") == number


@pytest.mark.parametrize(
    ("value", "whole", "name", "said"),
    [
        (31, 30, "batch_snapshots", "batch_snapshots=31 .* 30 snapshots .* from 2 to 30"),
        (0, 30, "batch_nodes", "batch_nodes=0 .* 30 nodes"),
        (41, 40, "batch_nodes", "batch_nodes=41 .* 40 nodes"),
        (2.5, 30, "batch_nodes", "batch_nodes=2.5 .* whole number"),
        (-0.1, 30, "batch_snapshots", "batch_snapshots=-0.1"),
        (float("nan"), 30, "batch_snapshots", "batch_snapshots=nan"),
        (float("inf"), 30, "batch_nodes", "batch_nodes=inf"),
        (2, 1, "batch_nodes", "share above 0 and up to 1"),
    ],
)
def test_a_size_that_is_none_is_refused(value: float, whole: int, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolved(value, whole, name)


def test_a_batch_is_refused_by_the_option_that_asked_for_it() -> None:
    assert batch_size(0.2, 0.05, snapshots=30, candidates=100) == BatchSize(6, 5)
    with pytest.raises(ConfigError, match=r"batch_snapshots=40 .* 30"):
        batch_size(40, 1, snapshots=30, candidates=100)
    with pytest.raises(ConfigError, match=r"node_sizes=200 .* 100 nodes"):
        batch_size(1, 200, snapshots=30, candidates=100, options=("snapshot_sizes", "node_sizes"))


def test_actions_count_vertex_sizes_first() -> None:
    sizes = grid("0.1 0.2,0.3", " 0.01 0.05  0.1")
    assert len(sizes) == 9
    assert [sizes[action] for action in (0, 1, 3, 8)] == [(0.1, 0.01), (0.1, 0.05), (0.2, 0.01), (0.3, 0.1)]
    assert grid("5", "0.5 7") == ((5.0, 0.5), (5.0, 7.0))


@pytest.mark.parametrize(
    ("snapshots", "vertices", "said"),
    [
        ("", "0.1", "snapshot_sizes='' .*such as snapshot_sizes='0.1 0.2 0.3'"),
        ("0.1", " , ", "node_sizes=' , ' .*such as node_sizes='0.01 0.05 0.1'"),
        ("0.1 often", "0.1", "could not convert string to float: 'often'"),
        ("0.1 0.10", "0.1", "repeats a size"),
        ("0.1", "0.1 0", "0.0 is not a size"),
        ("0.1 -2", "0.1", "-2.0 is not a size"),
        ("0.1", "2.5", "2.5"),
        ("nan", "0.1", "nan is not a size"),
        ("0.1", "inf", "inf is not a size"),
    ],
)
def test_sizes_that_are_none_are_refused(snapshots: str, vertices: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        grid(snapshots, vertices)


def test_the_nearest_action_is_so_by_ratio() -> None:
    sizes = grid("0.1 0.2 0.4", "0.01 0.1")
    assert [sizes[nearest(sizes, *asked)] for asked in ((0.2, 0.1), (0.27, 0.02), (0.29, 0.05), (9.0, 1e-9))] == [
        (0.2, 0.1),
        (0.2, 0.01),
        (0.4, 0.1),
        (0.4, 0.01),
    ]
    assert nearest(grid("0.1 0.4", "1"), 0.2, 1) == 0  # equally near: the first
