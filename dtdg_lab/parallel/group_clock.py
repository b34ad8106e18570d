"""How long each snapshot group took, as the rows of table ``groups``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

Row = tuple[int, int, int, float]


class GroupClock:
    """Times groups; on a GPU the device is waited for around each.

    Args:
        device: where groups are computed.
    """

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._rows: list[Row] = []

    @contextmanager
    def of(self, groups: Sequence[int]) -> Iterator[None]:
        """Time a block that computes some groups; where they are several at once, each is given an equal share."""
        self._wait()
        start_ns, cpu_s = time.time_ns(), time.process_time()
        yield
        self._wait()
        end_ns, cpu_s = time.time_ns(), time.process_time() - cpu_s
        share_ns = (end_ns - start_ns) // max(len(groups), 1)
        for place, group in enumerate(groups):
            begin_ns = start_ns + place * share_ns
            self._rows.append((group, begin_ns, begin_ns + share_ns, cpu_s / len(groups)))

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()

    def drain(self) -> list[Row]:
        """(group, start_ns, end_ns, cpu_s) of every group since this was last asked, which it forgets."""
        rows, self._rows = self._rows, []
        return rows
