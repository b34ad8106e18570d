"""When a run's state is written to its checkpoint, and what of it: on rank 0."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtdg_lab.comm.group import Group
from dtdg_lab.training import windowed
from dtdg_lab.training.build import Built
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.journal import Journal
from dtdg_lab.training.last_good import LastGood


class Keeper:
    """Writes checkpoints of a run.

    Args:
        path: of the file.
        group: the ranks; rank 0 writes.
        journal: told of every checkpoint written.
        take: makes one of the present, given what is carried from step to step.
    """

    def __init__(
        self, path: Path, group: Group, journal: Journal, take: Callable[[dict[str, Any]], Checkpoint]
    ) -> None:
        self._path, self._last_good = path, LastGood(path)
        self._group, self._journal, self._take = group, journal, take

    def forced(self, built: Built, epoch: int) -> None:
        """Write what is now, with what is carried; collective where a system carries anything.

        Args:
            built: what trains.
            epoch: that the writing belongs to.
        """
        carried = windowed.gathered_state(built, self._group)
        if self._group.rank != 0:
            return
        started_ns = time.time_ns()
        written = self._take(carried)
        self._last_good.write(written)
        self._journal.checkpoint(written.position, epoch, started_ns)

    def kept(self, name: str, built: Built, epoch: int) -> None:
        """Write what is now to a file of its own beside the last checkpoint; collective as :meth:`forced` is.

        Args:
            name: of the file, without its ending.
            built: what trains.
            epoch: that the writing belongs to.

        Raises:
            RunStoreError: it cannot be written; the run ends as by one that :meth:`forced` cannot write.
            NotFiniteError: a parameter is not finite.
        """
        carried = windowed.gathered_state(built, self._group)
        if self._group.rank != 0:
            return
        started_ns = time.time_ns()
        written = self._take(carried)
        written.save(self._path.with_name(f"{name}.pt"))
        self._journal.kept(name, written.position, epoch, started_ns)

    def after_step(self, built: Built, loss: float, every_s: float, epoch: int) -> None:
        """Write where it is due, the run has gone well since, and nothing is carried.

        Args:
            built: what trains.
            loss: of the step.
            every_s: least seconds between two checkpoints.
            epoch: that the writing belongs to.
        """
        if self._group.rank != 0:
            return
        started_ns = time.time_ns()
        due_s = every_s if windowed.at_rest(built) else float("inf")
        written = self._last_good.after_step(loss, due_s, lambda: self._take({}))
        if written is not None:
            self._journal.checkpoint(written.position, epoch, started_ns)
