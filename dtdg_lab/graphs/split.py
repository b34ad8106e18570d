"""Which snapshots train, which validate, which test."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.protocols import Protocol


@dataclass(frozen=True, slots=True)
class Split:
    """Ranges of labelled snapshots, in time order, none empty; snapshots between them belong to no part."""

    train: range
    validation: range
    test: range


def split(num_snapshots: int, edge_life: int, protocol: Protocol) -> Split:
    """Split T labelled snapshots by a protocol.

    The first ``train_share`` of them is the training part, the rest is the test part. The training part ends with the
    purge gap, before it lies the validation part (``validation_share`` of the training part, at least 1), before
    that another gap. A gap is ``edge_life - 1`` snapshots where the protocol purges: with it, the label of the last
    snapshot before the gap shares no base interval with the label of the first one after it. Gaps are taken from the
    training part only, so that the test part is the same under every protocol.

    Args:
        num_snapshots: T.
        edge_life: base intervals an edge lives.
        protocol: shares, and whether to purge.

    Raises:
        DataError: a part would be empty; the message says how many labelled snapshots are needed.

    Source: 40/60 split of DynaHB and FlareDTDG; validation inside the training part and the purge gap are ours.
    """
    gap = edge_life - 1 if protocol.purge else 0
    parts = _parts(num_snapshots, gap, protocol)
    if not all(parts):
        needed = num_snapshots
        while not all(_parts(needed, gap, protocol)):
            needed += 1
            if needed > num_snapshots + 100_000:
                raise DataError(f"protocol {protocol.name!r} leaves a part empty whatever the number of snapshots.")
        raise DataError(
            f"{num_snapshots} labelled snapshots with edge_life={edge_life} leave a part of protocol "
            f"{protocol.name!r} empty; {needed} are needed. Cut more intervals (cut=...), or lower edge_life."
        )
    return Split(*parts)


def _parts(num_snapshots: int, gap: int, protocol: Protocol) -> tuple[range, range, range]:
    """Training, validation and test ranges, perhaps empty."""
    # the small addend keeps 0.4 * 35 at 14, which in binary is a little less
    part = math.floor(num_snapshots * protocol.train_share + 1e-9)
    validation = max(1, math.floor(part * protocol.validation_share + 1e-9))
    end = part - gap
    start = end - validation
    return range(max(0, start - gap)), range(max(0, start), max(0, end)), range(part, num_snapshots)
