"""A generator of communities between which nodes drift. The community is the class of a node.

Source: the stochastic block model of Holland, Laskey, Leinhardt 1983, made dynamic as by Goyal et al. 2018 (DynGEM): at
every snapshot some nodes change their community and their edges are drawn again; the others keep theirs.
EvolveGCN (Pareja et al. 2020) takes its SBM data from that family.

Differs from the papers: edges are directed, and their number is constant, where the papers draw every pair with a
probability. Communities keep their size: as many nodes arrive as leave. Communities attract different numbers of edges,
from 1 to ``contrast``: otherwise no degree and no constant feature could distinguish them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.generators import base
from dtdg_lab.datasets.generators.base import Generated, Keys, Propose, checked_settings
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import Snapshot, keys_of, read_only, sources, targets

Classes = NDArray[np.int16]
MOST_BYTES = 16 << 30  # limit of the classes
Members = NDArray[np.int64]  # nodes sorted by community; _starts has where each begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Communities(Generated):
    """Block models with C communities of equal size, which attract edges in even steps from 1 to ``contrast``.

    Attributes:
        inside: share of the edges within a community. For two communities 10/11 is the ratio of 0.1 within to 0.01
            across, the default of the code that Goyal et al. released.
        contrast: edges into a node of the last community over those into one of the first.
    """

    inside: float = 10 / 11
    contrast: float = 4.0
    cite: str = "Holland et al. 1983; Goyal et al. 2018 (DynGEM); Pareja et al. 2020 (EvolveGCN)"

    @checked_settings
    def generate(
        self, *, seed: int, nodes: int, edges: int, snapshots: int, communities: int = 3, drift: float = 0.02
    ) -> IntervalStream:
        """Generate B = ``snapshots`` base intervals without self loops or duplicates, with classes.

        Args:
            seed: seed of the random streams.
            nodes: N, at least twice ``communities``.
            edges: edges of each snapshot; at most a quarter of the pairs within any community are taken.
            snapshots: B.
            communities: C, classes 0 .. C - 1; sizes differ by 1 at most.
            drift: share of the nodes that change their community at every snapshot. Equally many leave each
                community. Fractions are carried over, so that the mean over time is exact.

        Returns:
            Intervals with ``classes`` of shape (B, N), which need 2 B N bytes. Where ``drift`` is 0, of shape (N,),
            with a ``vertex_split``: of the nodes, 60 % train, 20 % validate and 20 % test.

        Raises:
            ConfigError: a setting is out of its bounds, or the communities are too small for so many edges.
        """
        attraction = np.linspace(1.0, self.contrast, communities)
        attraction /= attraction.sum()
        self._check_room(nodes, edges, communities, float(attraction[-1]))
        _check_memory(nodes, snapshots, drift)
        cells = np.full((communities, communities), (1 - self.inside) / (communities - 1))
        np.fill_diagonal(cells, self.inside)
        cells *= attraction[:, None]  # row: community of the target; column: of the source
        classes = _drifting(seed, nodes, snapshots, communities, drift)
        return IntervalStream(
            num_intervals=snapshots,
            num_nodes=nodes,
            weighted=False,
            rows=edges * snapshots,
            make=partial(_snapshots, seed, cells, classes, edges),
            classes=classes if drift else classes[0],
            vertex_split=None if drift else read_only(base.random_parts(generator(seed, "communities/parts"), nodes)),
        )

    def _check_room(self, nodes: int, edges: int, communities: int, largest: float) -> None:
        """Refuse communities of one node, and more edges than a quarter of the pairs within the busiest community."""
        size = nodes // communities
        limit = int(size * (size - 1) / 4 / (largest * self.inside))
        if size < 2 or edges > limit:
            raise ConfigError(
                f"communities={communities} with generated_nodes={nodes} and generated_edges={edges}: communities of "
                f"{size} have room for {limit} edges. Lower communities or generated_edges, or raise generated_nodes."
            )


def _check_memory(nodes: int, snapshots: int, drift: float) -> None:
    """Refuse classes that fill the memory: unlike edges they are not streamed."""
    need = 2 * nodes * snapshots
    if drift and need > MOST_BYTES:
        raise ConfigError(
            f"generated_nodes={nodes} and generated_snapshots={snapshots} with drift={drift}: the classes of all times "
            f"would take {need / 2**30:.1f} GiB; at most {MOST_BYTES >> 30} are allowed. Lower one of the two, or give "
            "drift=0."
        )


def _drifting(seed: int, nodes: int, snapshots: int, communities: int, drift: float) -> Classes:
    """Return the community of every node at every interval, shape (B, N)."""
    first = np.empty(nodes, dtype=np.int16)
    first[generator(seed, "communities/first").permutation(nodes)] = np.arange(nodes) % communities
    if not drift:
        return np.broadcast_to(read_only(first), (snapshots, nodes))
    classes = np.empty((snapshots, nodes), dtype=np.int16)
    classes[0] = first
    leave = np.floor(np.arange(snapshots) * (drift * nodes / communities) + 1e-9).astype(np.int64)
    for interval, count in enumerate(np.diff(leave).clip(max=nodes // communities).tolist(), start=1):
        classes[interval] = classes[interval - 1]
        if count:
            draws = generator(seed, "communities/drift", interval)
            members = _by_community(draws.permutation(nodes), classes[interval - 1])
            movers = members[_starts(nodes, communities)[:-1, None] + np.arange(count)]
            # the j-th movers of all communities move by the same number of communities: as many arrive as leave
            far = draws.integers(1, communities, count)
            classes[interval, movers] = (np.arange(communities)[:, None] + far) % communities
    return read_only(classes)


def _starts(nodes: int, communities: int) -> NDArray[np.int64]:
    """Return where each community begins among N nodes sorted by community, and the end; shape (C + 1,)."""
    size, larger = divmod(nodes, communities)  # the first ``larger`` communities have one node more
    steps = np.arange(communities + 1)
    return steps * size + np.minimum(steps, larger)


def _by_community(vertices: NDArray[np.int64], classes: Classes) -> Members:
    """Return the nodes in a stable order by community."""
    return vertices[np.argsort(classes[vertices], kind="stable")]


def _snapshots(seed: int, cells: NDArray[np.float64], classes: Classes, edges: int) -> Iterator[Snapshot]:
    nodes = classes.shape[1]
    current = np.empty(0, dtype=np.int64)
    for interval, community in enumerate(classes):
        draws = generator(seed, "communities/edges", interval)
        if not interval:
            members = _by_community(np.arange(nodes), community)
            current = base.new_keys(draws, _pairs(cells, members, members), current, edges)
        else:
            current = _drawn_again(draws, cells, current, community != classes[interval - 1], community)
        yield base.snapshot_of_rising(current, nodes)


def _drawn_again(
    draws: np.random.Generator, cells: NDArray[np.float64], keys: Keys, moved: NDArray[np.bool_], classes: Classes
) -> Keys:
    """Draw the edges of moved nodes again, with equal in-degrees and out-degrees; keep the others."""
    into = moved[targets(keys)]
    out = moved[sources(keys)] & ~into
    keys = keys[~(into | out)]
    members = _by_community(np.arange(len(moved)), classes)
    movers = _by_community(np.flatnonzero(moved), classes)
    for count, to, by in ((into.sum(), movers, members), (out.sum(), members, movers)):
        keys = base.merged(keys, base.new_keys(draws, _pairs(cells, to, by), keys, int(count)))
    return keys


def _pairs(cells: NDArray[np.float64], to: Members, by: Members) -> Propose:
    """Return a function that proposes edges from ``by`` into ``to``, without self loops.

    Communities are drawn in proportion to ``cells``, and their nodes uniformly.
    """
    communities = len(cells)
    cumulated = np.cumsum(cells)
    cumulated /= cumulated[-1]
    starts_to, starts_by = _starts(len(to), communities), _starts(len(by), communities)

    def one(draws: np.random.Generator, members: Members, starts: Members, community: Members) -> Members:
        size = starts[community + 1] - starts[community]
        return members[starts[community] + (draws.random(len(community)) * size).astype(np.int64)]

    def propose(draws: np.random.Generator, tries: int) -> Keys:
        cell = np.searchsorted(cumulated, draws.random(tries), side="right").clip(max=communities**2 - 1)
        of_target, of_source = np.divmod(cell, communities)
        dst = one(draws, to, starts_to, of_target)
        src = one(draws, by, starts_by, of_source)
        return keys_of(src, dst)[dst != src]

    return propose


COMMUNITIES = Communities(name="sbm")
