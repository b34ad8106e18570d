"""Generators and edge deletion: known bits, planted structure, memory, refusals."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.generators.base import growing_counts
from dtdg_lab.datasets.generators.communities import COMMUNITIES
from dtdg_lab.datasets.generators.synthetic import GROWING, POWERLAW, UNIFORM, uniform_keys
from dtdg_lab.datasets.generators.transactions import KINDS, TRANSACTIONS, plant
from dtdg_lab.datasets.sequences import grow
from dtdg_lab.datasets.tables import StaticTable
from dtdg_lab.graphs.snapshot import edge_keys, sources, targets
from tests.thinning import thinned

ROOT = Path(__file__).resolve().parents[3]
SMALL = {"seed": 0, "nodes": 600, "edges": 3000, "snapshots": 20}


def generated(definition, **settings):
    more = {"growth": 10.0} if definition is GROWING else {}
    return definition.generate(**{**SMALL, **more, **settings})


# growing: what it gave before it was streamed


@pytest.mark.parametrize(
    ("settings", "sha256"),
    [
        (
            {"seed": 0, "nodes": 600, "edges": 3000, "snapshots": 50, "growth": 10.0},
            "e2cb0fc195cbe42b988495d8c976bc0072c855d5db8c9fd1dabf638d0ff01f6a",
        ),
        (
            {"seed": 3, "nodes": 5000, "edges": 20_000, "snapshots": 12, "growth": 4.0},
            "74bbb96cf1bb6d7603c7e27ee2fecfeeb380e01dc840c3f1a0b94a4fec2d8805",
        ),
        (
            {"seed": 7, "nodes": 8, "edges": 14, "snapshots": 4, "growth": 1.0},
            "ecc11dd43aa647d12d9c2618037006991c27d74ace1f024a0582029631c24bae",
        ),
    ],
)
def test_growing_gives_the_graphs_it_always_gave(settings, sha256):
    stream = GROWING.generate(**settings)
    digest = hashlib.sha256()
    for snapshot in stream.make():
        digest.update((snapshot.rows() * stream.num_nodes + snapshot.indices).tobytes())
    assert digest.hexdigest() == sha256


def test_growing_has_noise_renewal_and_popular_vertices():
    nodes, snapshots = 5_000, 40
    stream = GROWING.generate(seed=1, nodes=nodes, edges=20_000, snapshots=snapshots, growth=10.0)
    keys = [edge_keys(snapshot) for snapshot in stream.make()]
    off = np.array([len(each) for each in keys]) / np.linspace(2_000, 20_000, snapshots) - 1
    assert 0.03 < off.std() < 0.07
    kept = [len(np.intersect1d(a, b)) / len(a) for a, b in itertools.pairwise(keys)]
    assert 0.87 < np.mean(kept) < 0.91
    in_degrees = np.sort(np.bincount(targets(keys[-1]), minlength=nodes))[::-1]
    expected = np.arange(1, nodes + 1) ** -0.6
    assert in_degrees[:50].sum() / in_degrees.sum() == pytest.approx(expected[:50].sum() / expected.sum(), rel=0.15)


# uniform


def test_uniform_has_three_edges_a_vertex_and_independent_snapshots():
    stream = UNIFORM.generate(seed=2, nodes=1000, snapshots=30)
    keys = [edge_keys(snapshot) for snapshot in stream.make()]
    assert {len(each) for each in keys} == {3000}
    shared = [len(np.intersect1d(a, b)) for a, b in itertools.pairwise(keys)]
    assert 5 < np.mean(shared) < 13  # 3000^2 / (1000 x 999) = 9


def test_every_pair_is_equally_likely():
    """Each of the 56 pairs of 8 nodes is in a set of 14 a quarter of the time."""
    times = 4000
    draws = generator(0, "a test of pairs")
    keys = np.concatenate([uniform_keys(draws, 8, 14) for _ in range(times)])
    found = np.zeros((8, 8))
    np.add.at(found, (targets(keys), sources(keys)), 1)
    assert not found.diagonal().any()
    share = found[~np.eye(8, dtype=bool)] / times
    assert np.abs(share - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / times)
    assert np.square((share - 0.25) / np.sqrt(0.25 * 0.75 / times)).mean() < 1.7


# power law


def reference_workload(nodes, edges, steps, seed):
    """The lab's definition of its benchmark workloads, as ../shared/tools/workload.py has it."""
    draws = np.random.default_rng(seed)
    share = np.cumsum((draws.permutation(nodes) + 10.0) ** -0.6)
    share /= share[-1]

    def some(count):
        dst = np.searchsorted(share, draws.random(count)).clip(max=nodes - 1)
        src = draws.integers(0, nodes, count)
        return np.unique((dst * nodes + src)[dst != src])

    current = np.sort(draws.permutation(some(int(edges * 1.02)))[:edges])
    for _ in range(steps):
        yield current
        stay = draws.permutation(current)[: round(0.9 * edges)]
        new = np.setdiff1d(some(int((edges - len(stay)) * 1.1)), stay)
        current = np.sort(np.concatenate([stay, draws.permutation(new)[: edges - len(stay)]]))


@pytest.mark.slow
def test_powerlaw_is_the_family_of_the_benchmark_workloads():
    nodes, edges, steps = 20_000, 100_000, 6
    stream = POWERLAW.generate(seed=1, nodes=nodes, edges=edges, snapshots=steps, churn=0.1, zipf=0.6)
    ours = [snapshot.rows() * nodes + snapshot.indices for snapshot in stream.make()]
    theirs = list(reference_workload(nodes, edges, steps, seed=1))

    def figures(keys):
        degrees = np.bincount(keys[-1] // nodes, minlength=nodes)
        top = np.sort(degrees)[-nodes // 100 :]
        overlap = np.mean([len(np.intersect1d(a, b)) / len(a) for a, b in itertools.pairwise(keys)])
        tail = 1 + len(top) / np.log(top / top[0]).sum()
        return [*np.percentile(degrees, [50, 90, 99, 99.9]), overlap, tail, (degrees == 0).mean()]

    np.testing.assert_allclose(figures(ours), figures(theirs), rtol=0.06)
    assert {len(each) for each in ours} == {len(each) for each in theirs} == {edges}


# communities


def test_only_vertices_that_moved_change_their_edges():
    stream = generated(COMMUNITIES, drift=0.05)
    assert stream.classes.shape == (20, 600)
    made = list(stream.make())
    for (before, then), (after, now) in itertools.pairwise(zip(made, stream.classes, strict=True)):
        moved = then != now
        assert moved.sum() == 30
        old, new = edge_keys(before), edge_keys(after)
        touched = [moved[targets(keys)] | moved[sources(keys)] for keys in (old, new)]
        np.testing.assert_array_equal(old[~touched[0]], new[~touched[1]])
        in_moved = moved[targets(old)].sum()
        assert moved[targets(new)].sum() == pytest.approx(in_moved, rel=0.3)  # they are as busy as before
        assert len(np.intersect1d(old[touched[0]], new[touched[1]])) < 0.3 * len(new[touched[1]])


def test_communities_can_be_told_from_degrees_around_a_vertex():
    """Means of neighbours' log-degrees, and centres fitted on the first snapshot, know most classes of the last."""
    stream = generated(COMMUNITIES, communities=3, drift=0.02, snapshots=30)
    rows = []
    for snapshot in stream.make():
        degrees = np.log1p(snapshot.in_degrees())
        around = np.bincount(snapshot.rows(), weights=degrees[snapshot.indices], minlength=600) + degrees
        rows.append(around / (np.diff(snapshot.indptr) + 1))
    centres = np.array([rows[0][stream.classes[0] == c].mean() for c in range(3)])
    guessed = np.abs(rows[-1][:, None] - centres).argmin(axis=1)
    assert (guessed == stream.classes[-1]).mean() > 0.7
    assert (stream.classes[-1] == stream.classes[0]).mean() < 0.65  # not the same answer as then


# transactions


def test_planted_schemes_have_their_shapes():
    """Each scheme alone: who pays whom, and in what order."""
    schemes = plant(generator(4, "a test of schemes"), 2000, share=0.05, snapshots=50)
    src, dst = sources(schemes.keys), targets(schemes.keys)
    of = {account: scheme for account, scheme in zip(schemes.accounts.tolist(), schemes.scheme.tolist(), strict=True)}
    assert len(of) == len(schemes.accounts)  # nobody is in two
    assert {schemes.scheme.max() + 1} == {17}
    seen = set()
    for scheme in range(17):
        mine = np.array([of[account] == scheme for account in dst.tolist()])
        assert all(of[account] == scheme for account in src[mine].tolist())
        size = list(of.values()).count(scheme)
        order = np.argsort(schemes.step[mine], kind="stable")
        pays, paid, step, amount = (x[mine][order] for x in (src, dst, schemes.step, schemes.amount))
        assert 4 <= size <= 8
        assert ((step >= 0) & (step < schemes.period[mine])).all()
        kind = KINDS[scheme % 4]
        seen.add(kind)
        if kind == "fan-in":
            assert len(set(paid)) == 1
            assert len(set(pays)) == len(pays) == size - 1
        elif kind == "fan-out":
            assert len(set(pays)) == 1
            assert len(set(paid)) == len(paid) == size - 1
        elif kind == "cycle":
            following = dict(zip(pays.tolist(), paid.tolist(), strict=True))
            walk = [int(pays[0])]
            while len(walk) <= size:
                walk.append(following[walk[-1]])
            assert walk[size] == walk[0]
            assert len(set(walk)) == size
            hops = np.argsort(-amount)
            np.testing.assert_allclose(amount[hops], amount.max() * 0.9 ** np.arange(size), rtol=1e-5)
            assert (paid[hops][:-1] == pays[hops][1:]).all()
            assert (np.diff(step[hops]) >= 0).all()  # the money goes round in the order of time
        else:
            (origin,), (collector,) = set(pays) - set(paid), set(paid) - set(pays)
            first, second = pays == origin, paid == collector
            assert first.sum() == second.sum() == size - 2
            assert step[first].max() < step[second].min()
            assert amount[second].mean() == pytest.approx(0.9 * amount[first].mean())
    assert seen == set(KINDS)


def test_schemes_are_paid_on_time_among_normal_payments():
    stream = generated(TRANSACTIONS)
    schemes = plant(generator(0, "transactions/schemes"), 600, share=0.05, snapshots=20)
    assert np.flatnonzero(stream.classes == 1).tolist() == sorted(schemes.accounts.tolist())
    assert 0.03 < stream.classes.mean() < 0.08
    met = np.zeros(len(schemes.keys), dtype=int)
    normal = []
    for interval, snapshot in enumerate(stream.make()):
        keys = edge_keys(snapshot)
        there = np.isin(schemes.keys, keys)
        np.testing.assert_array_equal(there, (interval + schemes.phase) % schemes.period == schemes.step)
        met += there
        np.testing.assert_array_equal(
            snapshot.weights[np.searchsorted(keys, schemes.keys[there])], schemes.amount[there]
        )
        normal.append(np.setdiff1d(keys, schemes.keys))
        assert snapshot.weights[~np.isin(keys, schemes.keys)].min() >= 100
        assert 900 < snapshot.weights[~np.isin(keys, schemes.keys)].max() <= 1000
        assert len(keys) == 3000
    assert (met >= 1).all()
    assert len(set(schemes.phase.tolist())) > 1  # not all schemes begin at once
    assert ((met == 20 // schemes.period) | (met == 20 // schemes.period + 1)).all()
    partners = np.unique(np.concatenate(normal))
    assert len(partners) < 9_001  # the same pairs again and again: without partners it would be nearly 60,000
    repeated = [len(np.intersect1d(a, b)) / len(a) for a, b in itertools.pairwise(normal)]
    assert np.mean(repeated) == pytest.approx(1 / 3, abs=0.03)


def test_fixed_classes_are_tested_on_vertices_of_which_nothing_was_told():
    payments = generated(TRANSACTIONS, nodes=2000, edges=6000)
    schemes = plant(generator(0, "transactions/schemes"), 2000, share=0.05, snapshots=20)
    parts_of_schemes = [set(payments.vertex_split[schemes.accounts[schemes.scheme == i]].tolist()) for i in range(17)]
    assert all(len(parts) == 1 for parts in parts_of_schemes)
    assert sorted(part for parts in parts_of_schemes for part in parts) == [0] * 11 + [1] * 3 + [2] * 3
    still = generated(COMMUNITIES, drift=0.0)
    assert np.bincount(still.vertex_split).tolist() == [360, 120, 120]
    assert np.bincount(payments.vertex_split)[1:] == pytest.approx([400, 400], abs=25)
    assert generated(COMMUNITIES).vertex_split is None  # there the future is not told


# edge deletion


def table_of(edges=20_000, nodes=3000, seed=0):
    draws = np.random.default_rng(seed)
    src, dst = draws.integers(0, nodes, edges), draws.integers(0, nodes, edges)
    return StaticTable(
        src=np.concatenate([src, dst]),
        dst=np.concatenate([dst, src]),
        num_nodes=nodes,
        features=draws.random((nodes, 7), dtype=np.float32),
        classes=draws.integers(0, 7, nodes).astype(np.int16),
        vertex_split=draws.integers(-1, 3, nodes).astype(np.int8),
    )


def test_what_a_static_graph_knows_of_its_vertices_stays():
    table = table_of()
    stream = grow(table, seed=1, snapshots=50, growth=10.0)
    for name in ("features", "classes", "vertex_split"):
        assert getattr(stream, name) is getattr(table, name)  # neither copied nor spread over time
    assert (stream.num_intervals, stream.num_nodes, stream.weighted) == (50, 3000, False)


def test_what_is_deleted_is_random_and_depends_on_the_seed():
    table = table_of()
    whole = np.unique((table.dst << 32) + table.src)
    halves = []
    for seed in range(4):
        stream = grow(table, seed=seed, snapshots=9, growth=1000.0)
        made = [edge_keys(snapshot) for snapshot in stream.make()]
        np.testing.assert_array_equal(made[-1], whole)
        halves.append(made[4])
        assert len(made[4]) == pytest.approx(len(whole) / 2, rel=0.01)
        degrees = np.bincount(targets(made[4]), minlength=3000) / np.bincount(targets(whole), minlength=3000)
        assert degrees.std() < 0.2  # 1/2 +- 0.14 where each of 13 edges is there or not
    for one, other in itertools.combinations(halves, 2):
        assert len(np.intersect1d(one, other)) / len(one) == pytest.approx(0.5, abs=0.02)


def test_noise_never_takes_an_edge_away():
    counts = np.array([s.num_edges for s in grow(table_of(), seed=3, snapshots=200, growth=2.0, noise=0.05).make()])
    noisy = growing_counts(
        (3, "edge_deletion/counts"), counts[-1], snapshots=200, growth=2.0, growth_curve="linear", noise=0.05
    )
    wanted = np.maximum.accumulate(noisy).clip(max=counts[-1])
    assert (np.diff(noisy) < 0).sum() > 50
    assert np.isin(counts[:-1] - wanted[:-1], [0, 1]).all()  # one more where a pair would be torn
    assert (np.diff(counts) >= 0).all()


# memory

_COUNT = """
import sys
from dtdg_lab.core.units import peak_rss_bytes as peak
import numpy as np
from dtdg_lab.datasets.sequences import grow
from dtdg_lab.datasets.generators.communities import COMMUNITIES
from dtdg_lab.datasets.generators.synthetic import POWERLAW
from dtdg_lab.datasets.tables import StaticTable

SIZE = {"seed": 0, "nodes": 20_000, "edges": 200_000, "snapshots": 100}
ends = np.random.default_rng(0).integers(0, 20_000, (2, 400_000))
TABLE = StaticTable(src=ends[0], dst=ends[1], num_nodes=20_000)
before = peak()
edges = sum(snapshot.num_edges for snapshot in STREAM.make())
print(edges, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "stream",
    thinned(
        ["POWERLAW.generate(**SIZE)", "COMMUNITIES.generate(**SIZE)", "grow(TABLE, seed=0, snapshots=100, growth=1.0)"]
    ),
)
def test_a_long_sequence_needs_the_memory_of_a_snapshot(stream):
    """20 million edges and more, 80 MB as int32 sources alone, in a process that may grow by 40 MB."""
    code = _COUNT.replace("STREAM", stream)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    edges, grown = map(int, done.stdout.split())
    assert edges >= 20_000_000
    assert grown < 40 * 2**20


# refusals


@pytest.mark.parametrize(
    ("definition", "settings", "message"),
    [
        (GROWING, {"nodes": 8, "edges": 15}, r"generated_edges=15 with generated_nodes=8: at most 14"),
        (GROWING, {"growth_curve": "cubic"}, r"growth_curve.*'cubic'.*Allowed: exponential, linear, logistic"),
        (GROWING, {"growth": 0.5}, r"growth=0.5 is out of range: allowed a number from 1 to 1000"),
        (GROWING, {"nodes": 600.5}, r"generated_nodes=600.5 has type float: allowed a whole number"),
        (GROWING, {"zipf": float("nan")}, r"zipf=nan is not a finite number"),
        (GROWING, {"seed": 1.5}, r"seed=1.5 has type float: allowed a whole number"),
        (UNIFORM, {"seed": -1}, r"seed=-1 is out of range"),
        (UNIFORM, {"edges": 10**6}, r"at most 89850, a quarter of all pairs"),
        (POWERLAW, {"zipf": 4.0, "edges": 80_000}, r"zipf=4.0 with generated_edges=80000.*popular nodes are full"),
        (COMMUNITIES, {"communities": 301}, r"communities of 1 have room for 0 edges"),
        (COMMUNITIES, {"edges": 60_000}, r"communities of 200 have room for 20521 edges"),
        (COMMUNITIES, {"drift": -0.1}, r"drift=-0.1 is out of range"),
        (COMMUNITIES, {"nodes": 10**8, "snapshots": 10**5}, r"would take 18626.5 GiB; at most 16 are allowed"),
        (TRANSACTIONS, {"nodes": 63}, r"generated_nodes=63: at least 64 accounts"),
        (TRANSACTIONS, {"edges": 40}, r"generated_edges=40 with generated_nodes=600: allowed \d\d, twice"),
        (TRANSACTIONS, {"edges": 50_000}, r"generated_edges=50000 .* to 29950, for which"),
    ],
)
def test_settings_that_cannot_be_are_refused(definition, settings, message):
    with pytest.raises(ConfigError, match=message):
        generated(definition, **settings)


@pytest.mark.slow
def test_the_most_edges_a_message_promises_can_be_generated():
    with pytest.raises(ConfigError) as caught:
        generated(POWERLAW, zipf=3.0, edges=80_000)
    most = int(str(caught.value).split("(to ")[1].split(")")[0])
    stream = generated(POWERLAW, zipf=3.0, edges=most, snapshots=4, churn=1.0)
    assert [snapshot.num_edges for snapshot in stream.make()] == [most] * 4


def test_whole_numbers_of_any_type_are_taken():
    stream = generated(COMMUNITIES, nodes=600.0, edges=np.int32(3000), seed=np.uint8(0), communities=np.float64(3))
    for one, two in zip(stream.make(), generated(COMMUNITIES, communities=3).make(), strict=True):
        np.testing.assert_array_equal(edge_keys(one), edge_keys(two))


@pytest.mark.parametrize("settings", [{"noise": -0.1}, {"noise": float("nan")}, {"snapshots": 2}, {"seed": "one"}])
def test_what_edge_deletion_refuses(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        grow(table_of(), **{"seed": 0, "snapshots": 9, "growth": 2.0, **settings})
