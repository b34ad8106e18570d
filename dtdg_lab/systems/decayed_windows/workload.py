"""Work of an epoch whose steps are windows of snapshots, and the memory of such a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dtdg_lab.config.model_facts import ModelFacts, Pull
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.minibatch.neighbour_sampling import sampled_edges, sampling_key
from dtdg_lab.graphs.snapshot import Snapshot, read_only
from dtdg_lab.partition.measures import Counts, pulled_rows
from dtdg_lab.partition.volume import Volume, pulled_volume
from dtdg_lab.systems.decayed_windows.window import WHOLE_CHUNKS, Trapezoid, Window, epoch_windows, fitting_chunks
from dtdg_lab.systems.workload import EpochWork, Facts, Numbers, on_largest, on_ranks, plain_work

EPOCHS = 4  # number of epochs whose random cuts are averaged
DRAWN = 3  # number of snapshots in which sampled neighbours are counted


def window_work(facts: Facts) -> EpochWork:
    """Predict the work of an epoch with a window for each snapshot, on nodes owned by ranks.

    Rows follow from the windows of a few epochs. The share of edges in a decayed snapshot is estimated as the square of
    its share of rows, as if chunks were random. A clustering chunker keeps more edges.

    References: FlareDTDG sections 3.2 to 3.5.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    placed = partition if partition.parts == ranks else partition.on_ranks(ranks)
    chunks = _chunks(facts, partition)
    shape = Trapezoid.of(config, chunks=chunks)
    if shape.window > len(facts.train):
        raise PlanError(
            f"window={shape.window} exceeds the {len(facts.train)} training snapshots. Set a smaller window, or use "
            "more snapshots (cut=...)."
        )
    per_epoch = [epoch_windows(facts.train, shape, seed=config.seed, epoch=epoch) for epoch in range(EPOCHS)]
    windows = [window for windows_of_epoch in per_epoch for window in windows_of_epoch]
    share = 1 / EPOCHS
    owned, measures = placed.counts.astype(float), facts.measured(placed)
    rows_share = share * sum(_rows_share(window, chunks) for window in windows)
    of_snapshots = measures.edges.astype(float)
    edges_by_window = np.array([_edges(window, chunks, of_snapshots, facts.train.start) for window in windows])
    edges = share * edges_by_window.sum(axis=0)
    largest = max(windows, key=lambda window: _rows_share(window, chunks))
    alive = np.stack(
        [owned * _rows_share(largest, chunks), _edges(largest, chunks, of_snapshots, facts.train.start)], axis=1
    )
    snapshots = share * sum(len(window.snapshots) for window in windows)
    halo = windows_volume(
        facts.snapshots,
        placed,
        facts.model,
        windows,
        first=facts.train.start,
        loss_at=config["loss_at"],
        reuse=config["halo_reuse"],
    )
    return plain_work(
        facts,
        steps=len(per_epoch[0]),
        edges=np.asarray(edges, float),
        rows=owned * rows_share,
        snapshots=snapshots,
        sent=sum((sent.sum(axis=0) for sent in halo.bytes(facts.itemsize).values()), np.zeros((ranks, ranks))) * share,
        alive=alive,
        exchanges=0 if ranks == 1 else round(share * 2 * len(facts.pulled) * sum(window.full for window in windows)),
        held_bytes=measures.halo_bytes.astype(float),
        notes=(
            f"means over the windows of {EPOCHS} epochs",
            *(("edges of decayed snapshots are an estimate",) if shape.counts else ()),
        ),
    )


def sampled_window_work(facts: Facts) -> EpochWork:
    """Predict the work of windows with sampled in-neighbours; copies of neighbours are sampled, nothing is sent.

    References: DynaGraph, as FlareDTDG sections 2.2 and 4.1 describe it.
    """
    config = facts.config
    length, fanout = int(config["window"]), int(config["fanout"])
    targets = range(len(facts.train))
    windows = [range(max(0, target - length + 1), target + 1) for target in targets]
    counted = sum(len(window) if facts.memory == "per_vertex" else 1 for window in windows)
    partition = facts.partition()
    order = generator(config.seed, "dynagraph/deal", 0).permutation(len(partition.owner))
    dealt = Partition(partition.owner[order], partition.parts)
    copies, edges = _copies(facts, dealt, fanout)
    inner = (facts.reach - 1) / facts.reach  # the outermost copies are only read, not computed
    rows = (partition.counts + copies * inner) * float(counted)
    pulled = edges * float(counted)
    per_step = max(len(window) for window in windows) / max(counted, 1)
    ranks = facts.ranks
    alive = np.stack([on_largest(rows * per_step, ranks), on_largest(pulled * per_step, ranks)], axis=1)
    parts_of_rank = config.parts // ranks
    snapshots = float(sum(map(len, windows)) * parts_of_rank)
    return plain_work(
        facts,
        steps=len(windows),
        edges=on_ranks(pulled, ranks),
        rows=on_ranks(rows, ranks),
        snapshots=snapshots,
        pieces=float(len(windows) * parts_of_rank),
        alive=alive,
        exact=frozenset({"bytes"}),
        notes=(f"copies of sampled neighbours are those drawn in {DRAWN} snapshots",),
    )


def _chunks(facts: Facts, partition: Partition) -> int:
    """Return C per part, with the default of a run if chunks is not set."""
    if "chunks" not in facts.config.options["batching"]:
        return 1
    return int(facts.config["chunks"]) or fitting_chunks(partition)


def _rows_share(batch: Window, chunks: int) -> float:
    """Return the rows of a batch as a multiple of a full snapshot."""
    return batch.full + sum(batch.counts) / chunks


def _edges(batch: Window, chunks: int, edges: Numbers, first: int) -> Numbers:
    """Return the (R,) edges of a batch by rank; ``edges`` is (S, R) of whole snapshots."""
    shares = np.array([*((count / chunks) ** 2 for count in batch.counts), *[1.0] * batch.full])
    of_batch = edges[batch.snapshots.start - first : batch.snapshots.stop - first]
    return np.asarray(shares @ of_batch, float)


def windows_volume(
    snapshots: Sequence[Snapshot],
    placed: Partition,
    facts: ModelFacts,
    windows: Iterable[Window],
    *,
    first: int,
    loss_at: str,
    reuse: bool,
) -> Volume:
    """Count the halo rows of windows, short ones included: full snapshots exchange rows, decayed ones do not.

    With the loss at the last snapshot, models without states of nodes compute it alone, and if weights evolve with the
    nodes, nothing else reads the last layer. No gradient of a state is sent for the oldest snapshot of a window.

    Args:
        snapshots: the training snapshots.
        placed: partition of their nodes onto the ranks.
        facts: facts of the model.
        windows: windows of training snapshots.
        first: number of the first training snapshot.
        loss_at: ``last`` or ``all``, the snapshots of a window that have a loss.
        reuse: whether pulls of the data alone are cached.
    """
    exchanged, newest, oldest = np.zeros((3, len(snapshots)), np.int64)
    is_last = loss_at == "last"
    for window in windows:
        full = 1 if is_last and facts.memory in ("weights", "none") else window.full
        target = window.target - first
        exchanged[target + 1 - full : target + 1] += 1
        newest[target] += 1
        oldest[window.snapshots.start - first] += full == len(window.snapshots)
    last_layer = len(facts.layer_hops) - 1 if is_last and facts.memory == "weights_from_data" else None

    def times(pull: Pull) -> dict[str, Counts]:
        returned = newest if pull.layer == last_layer else exchanged - oldest * (not pull.at_first)
        return {
            "forward": exchanged * (not (reuse and pull.of_features)),
            "backward": returned * pull.learned,
        }

    return pulled_volume(snapshots, placed, facts.pulls, times)


def _copies(facts: Facts, dealt: Partition, fanout: int) -> tuple[Numbers, Numbers]:
    """Return the (P,) copies of remote neighbours and the edges of a mean snapshot, over all layers."""
    places = np.unique(np.linspace(0, len(facts.train) - 1, DRAWN).astype(int))
    copies, edges = np.zeros(dealt.parts), np.zeros(dealt.parts)
    everyone = np.arange(facts.graph.num_nodes)
    for index in places:
        snapshot = facts.snapshots[index]
        for layer in range(facts.config.layers):
            key = sampling_key(facts.config.seed, 0, facts.train.start + int(index), layer)
            sampled = sampled_edges(snapshot, everyone, fanout=fanout, key=key)
            owners = np.repeat(dealt.owner, np.diff(sampled.indptr))
            edges += np.bincount(owners, minlength=dealt.parts) / len(places)
            if layer == 0:
                pulled = Snapshot.trusted(read_only(sampled.indptr), read_only(sampled.indices))
                copies += pulled_rows([pulled], dealt, "in")[0].sum(axis=0) / len(places)
    return copies * facts.config.layers, edges


def largest_piece(heights: Sequence[float], full: int, max_nodes: int) -> float:
    """Return the maximum rows of a piece, summed over all snapshots of a whole window.

    The nodes of a piece enter the window together.

    Args:
        heights: rows of a full snapshot and of the decayed ones, newest first.
        full: K, number of full snapshots.
        max_nodes: maximum nodes of a piece.
    """
    entering = pairwise([*heights, 0])
    return max(min(newer - older, max_nodes) * (full + age) for age, (newer, older) in enumerate(entering))


@dataclass(frozen=True, slots=True)
class RowMemory:
    """Peak bytes of a step on the largest rank as a linear function of the window's rows.

    The peak is ``base_bytes``, plus ``row_bytes`` per row of each snapshot, plus ``piece_bytes`` per row and snapshot
    of the largest piece: the nodes that run through time at once, at most ``piece_rows``.

    Attributes:
        base_bytes: constant part.
        row_bytes: per row and snapshot.
        piece_bytes: per row and snapshot of the largest piece.
        nodes: own nodes of the largest rank.
        chunks: C per part.
        piece_rows: maximum number of nodes that run through time at once.
    """

    base_bytes: float
    row_bytes: float
    piece_bytes: float
    nodes: int
    chunks: int
    piece_rows: int

    @classmethod
    def through(
        cls, steps: Sequence[tuple[Trapezoid, float]], *, nodes: int, chunks: int, piece_rows: int
    ) -> RowMemory:
        """Fit the terms to the shapes and peak bytes of some steps; no term is negative, no prediction too low.

        Args:
            steps: (shape, peak bytes), at least one.
            nodes: own nodes of the largest rank.
            chunks: C.
            piece_rows: maximum number of nodes that run through time at once.
        """
        from scipy.optimize import nnls  # here: charts read this module, and scipy takes 0.3 s to import

        shapes = cls(0.0, 0.0, 0.0, nodes, chunks, piece_rows)
        sizes = np.array([[1.0, shapes.rows(shape), shapes.piece(shape)] for shape, _ in steps])
        peaks, scale = np.array([peak for _, peak in steps]), sizes.max(axis=0)
        terms = nnls(sizes / scale, peaks)[0] / scale
        terms = terms * max(1.0, float(np.max(peaks / (sizes @ terms))))
        base, row, piece = terms.tolist()
        return cls(base, row, piece, nodes, chunks, piece_rows)

    def rows(self, shape: Trapezoid) -> float:
        """Return the rows of all snapshots of a whole window, for chunks of equal size."""
        return self.nodes * (shape.full + sum(shape.counts) / self.chunks)

    def piece(self, shape: Trapezoid) -> float:
        """Return the rows of the largest piece in all snapshots."""
        heights = [self.nodes, *(self.nodes * count / self.chunks for count in shape.counts)]
        return largest_piece(heights, shape.full, self.piece_rows)

    def peak_bytes(self, shape: Trapezoid) -> float:
        """Return the predicted peak of a step of a whole window; a shorter window needs no more."""
        return self.base_bytes + self.row_bytes * self.rows(shape) + self.piece_bytes * self.piece(shape)


def probe_shapes(shape: Trapezoid, *, decays: bool) -> list[Trapezoid]:
    """Return the windows to measure: they differ in rows, and in the size of their largest piece.

    They do not depend on the K and alpha of ``shape``, so a resumed or tuned run measures the same windows.

    Args:
        shape: the shape of the run's windows.
        decays: False if all snapshots are full.
    """
    window = shape.window
    fulls = sorted({1, min(2, window), window})
    if shape.chunks == WHOLE_CHUNKS or not decays:
        return [replace(shape, window=full, full=full) for full in fulls]
    return [
        *(replace(shape, full=full, alpha=OPTIONS["alpha"].low or 0.0, decay="ladder") for full in fulls),
        *(replace(shape, full=1, alpha=alpha, decay="text") for alpha in (0.1, 0.5)),
    ]
