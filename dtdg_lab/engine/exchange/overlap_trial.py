"""Trial of overlapping exchanges with computing: epochs are timed both ways, in turn."""

from __future__ import annotations

import numpy as np

from dtdg_lab.distributed.group import Group, gather_texts
from dtdg_lab.records.events import OverlapChosen

_PAIRS = 3
TRIED = (False, *(False, True) * _PAIRS)  # whether exchanges overlap in the first epochs; the first warms up
_LEAST_GAIN = 0.97  # of the median time without overlap: differences above are noise of three epochs each


class OverlapTrial:
    """Times the first epochs without and with overlap, in turn. Losses are the same bits either way.

    An epoch takes as long as on its slowest rank. Exchanges overlap if the median epoch with overlap took less than
    97 % of the median epoch without: one disturbed epoch of each kind does not change the choice. All ranks choose the
    same.

    Args:
        group: the ranks.
        device: where tensors that are sent must be.

    Attributes:
        on: whether exchanges overlap in the epoch that comes next.
        chosen: the choice and both medians; None until then.
    """

    def __init__(self, group: Group, device: str) -> None:
        self._group, self._device = group, device
        self._epochs_s = [0.0]
        self.on = TRIED[0]
        self.chosen: OverlapChosen | None = None

    def add(self, seconds: float) -> None:
        """Add the seconds of a step of the current epoch."""
        self._epochs_s[-1] += seconds

    def end_epoch(self) -> None:
        """Go on to the next epoch, or choose; the last is collective."""
        if len(self._epochs_s) < len(TRIED):
            self.on = TRIED[len(self._epochs_s)]
            self._epochs_s.append(0.0)
            return
        texts = gather_texts(self._group, " ".join(map(repr, self._epochs_s)), device=self._device)
        slowest = np.array([text.split() for text in texts], dtype=np.float64).max(axis=0)
        off_s, on_s = float(np.median(slowest[1::2])), float(np.median(slowest[2::2]))
        self.choose(OverlapChosen(on_s < _LEAST_GAIN * off_s, off_s, on_s))

    def choose(self, choice: OverlapChosen) -> None:
        """End the trial with a choice: the measured one, or that of a run which is replayed."""
        self.chosen, self.on = choice, choice.on
