"""Volume of a step: rows, numbers and bytes that ranks exchange, computed before training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtdg_lab.config.model_facts import PASSES, Pull
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.snapshot import Snapshot, read_only
from dtdg_lab.partition.measures import Counts, PartitionMeasures, pulled_rows


def predicted_bytes(
    measures: PartitionMeasures, pulls: Sequence[Pull], *, itemsize: int = 4, reuse: bool = False
) -> dict[str, Counts]:
    """Return the bytes of halo rows in one full-batch step over the measured snapshots.

    This is for a single time block. :func:`between_parts` also counts rows that several time blocks send again. If
    DCRNN or EvolveGCN-H would keep more for backward than the memory allows (option ``memory_share``), each snapshot is
    recomputed (:mod:`dtdg_lab.engine.backprop.time_blocks`) and exchanged again, which is not counted.

    Rows received forward are sent back as gradients, so backward is the transpose of forward for learned inputs. Not
    counted are parameter gradients and ``top``, whose candidates are all-gathered.

    Args:
        measures: measures of the partition over the training snapshots. If ranks run several parts each, measure
            ``partition.on_ranks(R)``.
        pulls: pulls of the model, see :class:`dtdg_lab.config.model_facts.ModelFacts`.
        itemsize: bytes per number: 4 for float32, 8 for float64.
        reuse: whether halo rows of input features are cached (option ``halo_reuse``).

    Returns:
        ``forward`` and ``backward``, each (L, P, P) int64: [l, q, p] bytes that part q sends to part p for layer l.

    Raises:
        PlanError: the model uses an edge direction that was not measured.
    """
    along = [pull for pull in pulls if pull.direction != "top"]
    unknown = {pull.direction for pull in along} - set(measures.directions)
    if unknown:
        raise PlanError(
            f"the model aggregates over {', '.join(sorted(unknown))}, but directions={measures.directions} were "
            "measured. Measure the partition with the directions of dtdg_lab.config.model_facts.model_facts."
        )
    layers = 1 + max((pull.layer for pull in along), default=0)
    forward, backward = np.zeros((2, layers, measures.parts, measures.parts), np.int64)
    for pull in along:
        rows = measures.matrix[pull.direction]
        if not (reuse and pull.of_features):
            forward[pull.layer] += rows * (pull.width * itemsize)
        if pull.learned:
            returned = rows if pull.at_first else rows - measures.first_matrix[pull.direction]
            backward[pull.layer] += returned.T * (pull.width * itemsize)
    return {"forward": forward, "backward": backward}


RERUN_MEMORIES = (
    "per_vertex",
    "weights_from_data",
    "neighbourhood",
)  # other memories rerun a block without the previous one


@dataclass(frozen=True, slots=True, eq=False)
class Volume:
    """Rows that ranks exchange in one step: for each pass (L, R, R), from q to p for layer l at [l, q, p].

    Attributes:
        rows: pass -> rows, over all collectives of a layer.
        numbers: pass -> numbers in these rows.
    """

    rows: Mapping[str, Counts]
    numbers: Mapping[str, Counts]

    def __post_init__(self) -> None:
        for counts in (*self.rows.values(), *self.numbers.values()):
            read_only(counts)

    def __add__(self, other: Volume) -> Volume:
        return Volume(
            {pass_name: self.rows[pass_name] + other.rows[pass_name] for pass_name in PASSES},
            {pass_name: self.numbers[pass_name] + other.numbers[pass_name] for pass_name in PASSES},
        )

    @property
    def total(self) -> int:
        """Numbers sent in a step, over all ranks, layers and passes."""
        return sum(int(numbers.sum()) for numbers in self.numbers.values())

    def bytes(self, itemsize: int = 4) -> dict[str, Counts]:
        """Return bytes, (L, R, R) for each pass; ``itemsize`` is 4 for float32, 8 for float64."""
        return {pass_name: numbers * itemsize for pass_name, numbers in self.numbers.items()}


def between_parts(
    snapshots: Sequence[Snapshot],
    partition: Partition,
    pulls: Sequence[Pull],
    *,
    rerun_before: int = 0,
    reuse: bool = False,
) -> Volume:
    """Count the volume of a step if ranks own nodes and exchange halo rows.

    Args:
        snapshots: the trained snapshots.
        partition: partition of their nodes into R parts, one for each rank.
        pulls: pulls of the model.
        rerun_before: number of first snapshots that backward pulls again: those of all time blocks but the last; 0 with
            one block or without rerun. If above 0, gradients of states reach the first snapshot too.
        reuse: whether pulls of the data alone are cached from an earlier step.
    """

    def times(pull: Pull) -> dict[str, Counts]:
        first = 0 if pull.at_first or rerun_before else 1
        return times_sent(pull, len(snapshots), rerun_before=rerun_before, first_backward=first, reuse=reuse)

    return pulled_volume(snapshots, partition, pulls, times)


def times_sent(
    pull: Pull, snapshots: int, *, rerun_before: int, first_backward: int = 0, reuse: bool = False
) -> dict[str, Counts]:
    """Return pass -> (T,) 0 or 1: whether a step sends a pull's halo rows of each of T snapshots.

    Args:
        pull: pull of the model.
        snapshots: number of snapshots, T.
        rerun_before: number of first snapshots that backward pulls again.
        first_backward: first snapshot that a gradient is sent back for.
        reuse: whether pulls of the data alone are cached from an earlier step.
    """
    index, ahead = np.arange(snapshots), not (reuse and pull.of_features)
    sent = {
        "forward": (index >= 0) & ahead,
        "rerun": (index < rerun_before) & ahead,
        "backward": (index >= first_backward) & pull.learned,
    }
    return {pass_name: where.astype(np.int64) for pass_name, where in sent.items()}


def pulled_volume(
    snapshots: Sequence[Snapshot],
    partition: Partition,
    pulls: Sequence[Pull],
    times: Callable[[Pull], Mapping[str, Counts]],
) -> Volume:
    """Count the volume of the pulls of a step, without rows that ``top`` gathers.

    ``times`` returns pass -> (T,) numbers of times that a step sends a pull's halo rows of each snapshot. Memory is
    (R, R) for each layer and pass, for any number of snapshots.
    """
    layers = 1 + max(pull.layer for pull in pulls)
    rows, numbers = empty_counts(layers, partition.parts), empty_counts(layers, partition.parts)
    along = [pull for pull in pulls if pull.direction != "top"]
    for direction in dict.fromkeys(pull.direction for pull in along):
        moves = [
            (pull, pass_name, sent)
            for pull in along
            if pull.direction == direction
            for pass_name, sent in times(pull).items()
        ]
        different, which = np.unique(np.array([sent for *_, sent in moves]), axis=0, return_inverse=True)
        totals = _summed_rows(snapshots, partition, direction, different)
        for (pull, pass_name, _), index in zip(moves, which, strict=True):
            moved = totals[index].T if pass_name == "backward" else totals[index]
            rows[pass_name][pull.layer] += moved
            numbers[pass_name][pull.layer] += moved * pull.width
    return Volume(rows, numbers)


def _summed_rows(snapshots: Sequence[Snapshot], partition: Partition, direction: str, times: Counts) -> Counts:
    """Return (K, P, P) halo rows, summed over T snapshots that count (K, T) ``times``."""
    total = np.zeros((len(times), partition.parts**2), np.int64)
    for snapshot, often in zip(snapshots, times.T, strict=True):
        rows = pulled_rows([snapshot], partition, direction).reshape(-1)
        pairs = np.flatnonzero(rows)
        total[:, pairs] += often[:, None] * rows[pairs]
    return total.reshape(-1, partition.parts, partition.parts)


def empty_counts(layers: int, ranks: int) -> dict[str, Counts]:
    """Return pass -> (L, R, R) zeros."""
    return {pass_name: np.zeros((layers, ranks, ranks), np.int64) for pass_name in PASSES}
