"""Split snapshots into training, validation and test ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dtdg_lab.config.catalogue import Protocol
from dtdg_lab.core.errors import DataError

LEAST_TRAINED = 2  # with fewer there is no step from one snapshot to the next


@dataclass(frozen=True, slots=True)
class Split:
    """Ranges of labelled snapshots, in time order. Snapshots between them belong to no split.

    ``validation`` is empty where the protocol has none; the other two never are.
    """

    train: range
    validation: range
    test: range


def split(num_snapshots: int, edge_life: int, protocol: Protocol) -> Split:
    """Split T labelled snapshots by a protocol.

    The order is training, gap, validation, gap, test. The test split is the last ``test_snapshots``, or, where that is
    0, all after the first ``train_share``. The validation split is ``validation_share`` of the snapshots before it, at
    least 1, or none where that is 0. A gap is ``edge_life - 1`` snapshots where the protocol purges. Labels on its two
    sides then share no base interval. Gaps do not change the test split.

    Args:
        num_snapshots: T.
        edge_life: base intervals an edge lives.
        protocol: shares, and whether to purge.

    Raises:
        DataError: fewer than 2 snapshots would train, or a part that the protocol has would be empty; the message
            says how many labelled snapshots are needed.

    Source: 40/60 split of DynaHB and FlareDTDG, test on the last snapshot of ESDG; validation inside the training split
    and the purge gap are ours.
    """
    gap = protocol.gap(edge_life)
    parts = _parts(num_snapshots, gap, protocol)
    if not _enough(parts, protocol):
        needed = num_snapshots
        while not _enough(_parts(needed, gap, protocol), protocol):
            needed += 1
            if needed > num_snapshots + 100_000:
                raise DataError(
                    f"protocol {protocol.name!r} leaves a part empty, or fewer than {LEAST_TRAINED} snapshots to train "
                    "on, whatever the number of snapshots."
                )
        train, validation, test = (len(part) for part in parts)
        raise DataError(
            f"{num_snapshots} labelled snapshots with edge_life={edge_life} give protocol {protocol.name!r} {train} "
            f"to train on, {validation} to validate and {test} to test; at least {LEAST_TRAINED} must train, and "
            f"{needed} labelled snapshots are needed. Cut more intervals (cut=...), or lower edge_life."
        )
    return Split(*parts)


def _enough(parts: tuple[range, range, range], protocol: Protocol) -> bool:
    train, validation, test = parts
    return len(train) >= LEAST_TRAINED and bool(validation or not protocol.validation_share) and bool(test)


def _parts(num_snapshots: int, gap: int, protocol: Protocol) -> tuple[range, range, range]:
    """Return the training, validation and test ranges, which may be empty."""
    # the small addend keeps 0.4 * 35 at 14, which in binary is a little less
    part = math.floor(num_snapshots * protocol.train_share + 1e-9)
    if protocol.test_snapshots:
        part = max(0, num_snapshots - protocol.test_snapshots)
    end = part - gap
    if not protocol.validation_share:
        return range(max(0, end)), range(max(0, end), max(0, end)), range(part, num_snapshots)
    validation = max(1, math.floor(part * protocol.validation_share + 1e-9))
    start = end - validation
    return range(max(0, start - gap)), range(max(0, start), max(0, end)), range(part, num_snapshots)
