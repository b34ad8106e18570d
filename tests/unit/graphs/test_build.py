"""The papers' S, V, E and EL, on generated files of the same shape as theirs, against a plain reading of their cut.

The reading is loops over intervals, written after the released loaders: drop the first distinct time, snapshot i holds
[first + i·itv, first + (i + 1 + lags)·itv) with itv = (last - first)/window, i = 0 .. window - lags - 1; leave out
snapshots of few edges.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.intervals import cut_edges
from tests.thinning import thinned

#       name        window lags  scale  few     V          S    E (M)  EL (M)
TABLE = [
    ("slashdot", 200, 30, 1, 50, 51_083, 80, 0.14, 3.69),
    ("stackexch", 200, 30, 100, 0, 545_196, 170, 1.30, 33.6),
    ("amazon", 100, 30, 500, 0, 2_146_057, 70, 5.84, 125),
    ("flickr", 100, 30, 2000, 0, 2_302_925, 70, 33.1, 263),
    ("bitcoin", 100, 10, 5000, 0, 24_575_382, 90, 122, 1050),
]


def file_of_the_shape(window, lags, rows, vertices, silent, alive):
    """Rows (src, dst, time) without duplicates: ``vertices`` ids, ``silent`` first bins nearly empty, and edges that
    are in ``alive`` snapshots on average. Times are whole numbers; a bin is 1000 long; the first row is alone.
    """
    draws = np.random.default_rng(window + lags)
    first_kept = max(0, silent - lags)
    bins = np.arange(silent, window)
    lives = np.array([len(range(max(first_kept, b - lags), min(b, window - lags - 1) + 1)) for b in bins])
    # two groups of bins, mixed so that the mean of the lives is as wished
    low, high = bins[lives <= alive], bins[lives > alive]
    mean_low, mean_high = lives[lives <= alive].mean(), lives[lives > alive].mean()
    free = rows - window  # besides one edge in every bin, so that none is empty
    wished = (alive * rows - lives.sum()) / free
    busy = round(free * (wished - mean_low) / (mean_high - mean_low))
    where = np.concatenate([draws.choice(high, busy), draws.choice(low, free - busy), np.arange(window)])
    times = 1000 * where + draws.integers(1, 1000, len(where))
    times[-window], times[-1] = 0, 1000 * window
    # a ring over all nodes, again and again with a longer step: no pair twice
    place = np.arange(rows)
    src, dst = place % vertices, (place + 1 + place // vertices) % vertices
    order = draws.permutation(rows)
    rows = np.stack([src, dst, times[order]], axis=1)
    return np.concatenate([[[0, 0, -(10**6)]], rows])


def reading(rows, window, lags, few):
    """Edges of every base interval and of every snapshot, by the loops of the released loaders; and V."""
    vertices = {*rows[:, 0].tolist(), *rows[:, 1].tolist()}
    times = np.unique(rows[:, 2])[1:]
    first, last = int(times[0]), int(times[-1])
    step = Fraction(last - first, window)

    def between(low, high):
        inside = (rows[:, 2] >= low) & (rows[:, 2] < high)
        if high == last:
            inside |= rows[:, 2] == last  # the loaders leave these out: see the last test
        return np.unique(rows[inside][:, 0] * 2**32 + rows[inside][:, 1])

    bins = [between(float(first + i * step), float(first + (i + 1) * step)) for i in range(window)]
    snapshots = [between(float(first + i * step), float(first + (i + 1 + lags) * step)) for i in range(window - lags)]
    return bins, [edges for edges in snapshots if len(edges) > few], len(vertices)


def cut(rows, window, lags, few, **options):
    edges = cut_edges(*rows.T[:3], cut=window, drop_first=True, **options)
    return build_graph(edges, name="x", source="a test", edge_life=lags + 1, min_edges=few + 1, features="degrees")


@pytest.mark.parametrize(
    ("window", "lags", "scale", "few", "v", "s", "e", "el"),
    thinned([pytest.param(*row[1:], id=row[0]) for row in TABLE], [4]),
)
def test_the_numbers_of_the_papers_tables(window, lags, scale, few, v, s, e, el):
    silent = 120 if few else 0
    exact = {0.14: 140_778}.get(e, round(e * 1e6)) // scale
    rows = file_of_the_shape(window, lags, exact - 1, v // scale, silent, el / e if scale > 1 else 3.69e6 / exact)
    bins, snapshots, vertices = reading(rows, window, lags, few)
    graph = cut(rows, window, lags, few)
    found = graph.describe()
    # ours are the reading's, exactly
    edges, alive = sum(map(len, bins)), sum(map(len, snapshots))
    assert (found.S, found.V, found.E, found.rows, found.EL) == (len(snapshots), vertices, edges, edges, alive)
    assert graph.num_edges.tolist() == [len(edges) for edges in snapshots[:-1]]  # the last is only a label
    assert graph.following[-1].num_edges == len(snapshots[-1])
    # and the papers', to their digits
    assert (s, v // scale) == (found.S, found.V)
    assert found.E * scale / 1e6 == pytest.approx(e, rel=0.01)
    assert found.EL * scale / 1e6 == pytest.approx(el, rel=0.01)


def test_no_file_of_these_sizes_gives_the_published_el_of_youtube():
    """332 M edges alive of 12.22 M edges that live 21 intervals at most: the bound is 256.7 M, and is met."""
    rows = file_of_the_shape(100, 20, 12_220, 3_223, 0, 20.4)
    found = cut(rows, 100, 20, 0).describe()
    assert (found.S, found.V) == (80, 3_223)
    assert 240_000 < found.EL <= 21 * found.E < 332_000


def test_features_and_labels_are_weighted_degrees_as_the_loaders_sum_them():
    """FIELD 3.2: x = (in, out) sums of the third column, raw; y = log(1 + in-degree of the next snapshot)."""
    draws = np.random.default_rng(3)
    rows = np.stack([draws.integers(0, 12, 400), draws.integers(0, 12, 400), draws.integers(0, 3000, 400)], axis=1)
    weight = draws.integers(1, 6, 400)
    graph = cut(rows, 10, 3, 0, weight=weight)
    names = np.unique(rows[:, :2])
    late = rows[:, 2] > rows[:, 2].min()
    times, first, last = rows[:, 2], rows[late, 2].min(), rows[late, 2].max()
    step = Fraction(int(last - first), 10)
    sums = []
    for i in range(7):
        inside = late & (times >= float(first + i * step)) & ((times < float(first + (i + 4) * step)) | (times == last))
        inside &= (times < last) | (i == 6)
        degrees = [[weight[inside & (rows[:, side] == name)].sum() for side in (1, 0)] for name in names]
        sums.append(np.array(degrees, dtype=np.float32))
    np.testing.assert_array_equal(graph.features, sums[:-1])
    np.testing.assert_array_equal(graph.targets, np.log1p(np.float64([x[:, 0] for x in sums[1:]])).astype(np.float32))


def test_edges_at_the_very_last_time_are_the_only_ones_the_loaders_leave_out():
    rows = np.array([(i, i + 1, time) for i, time in enumerate([0, 10, 12, 19, 20, 25, 30, 30])])
    graph = cut(rows, 2, 0, 0)
    literal = [{(1, 2), (2, 3), (3, 4)}, {(4, 5), (5, 6)}]  # [10, 20) and [20, 30)
    ours = [
        set(zip(graph.node_ids[s.indices].tolist(), graph.node_ids[s.rows()].tolist(), strict=True))
        for s in (*graph.snapshots, graph.following[-1])
    ]
    assert ours == [literal[0], literal[1] | {(6, 7), (7, 8)}]
