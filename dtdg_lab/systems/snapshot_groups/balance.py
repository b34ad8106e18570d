"""Balance of the ranks: imbalance, waiting and own work, by iteration and by epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtdg_lab.config.record_tables import OWN_PHASES
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Rows
from dtdg_lab.records.tables import RunTables


def iterations(rows: Rows) -> Rows:
    """Return one row per step that all ranks have made, from rows of table ``steps``.

    Columns are means over ranks, ``own_s`` and ``wait_s``, and maxima over ranks, ``critical_s`` and ``time_s``;
    ``iterations`` is 1, to be summed.
    """
    rows = rows.sort("step", "rank")
    steps = rows["step"]
    starts = np.flatnonzero(np.diff(steps, prepend=-1)) if len(steps) else np.empty(0, np.int64)
    counts = np.diff(starts, append=len(steps))
    starts, ranks = starts[counts == counts.max(initial=0)], counts.max(initial=1)
    own_s = sum(np.nan_to_num(rows[f"{phase}_s"].astype(np.float64)) for phase in OWN_PHASES)
    grid = starts[:, None] + np.arange(ranks)
    own_s, wait_s, time_s = (
        np.asarray(values, np.float64)[grid] for values in (own_s, np.nan_to_num(rows["wait_s"]), rows["time_s"])
    )
    first = rows.where(starts)
    return Rows.of(
        {
            "step": first["step"],
            "epoch": first["epoch"],
            "seconds": first["seconds"],
            "own_s": own_s.mean(axis=1),
            "wait_s": wait_s.mean(axis=1),
            "critical_s": own_s.max(axis=1, initial=0),
            "time_s": time_s.max(axis=1, initial=0),
            "iterations": np.ones(len(starts)),
        }
    )


BALANCE = Rollup(
    "steps",
    sums=("own_s", "wait_s", "critical_s", "time_s", "iterations"),
    most=("epoch", "step", "seconds"),
    along="epoch",
    points=200,
    prepare=iterations,
)


@dataclass(frozen=True, slots=True)
class Balance:
    """Balance of the ranks in an epoch, or in several epochs of a long run.

    Attributes:
        epoch: index of the epoch; the last one of several.
        iterations: number of iterations made by all ranks.
        own_s: own work of a rank, mean over ranks; like all seconds here, the sum over iterations.
        wait_s: waiting of a rank, mean over ranks.
        critical_s: own work of the slowest rank of each iteration.
        time_s: total time of the slowest rank.
    """

    epoch: int
    iterations: int
    own_s: float
    wait_s: float
    critical_s: float
    time_s: float

    @property
    def imbalance(self) -> float | None:
        """Own work of the slowest rank over the mean, weighted by time; None if there was no work."""
        return self.critical_s / self.own_s if self.own_s > 0 else None

    @property
    def own_share(self) -> float:
        """Share of the ranks' time that is own work."""
        return self.own_s / self.time_s if self.time_s > 0 else 0.0

    @property
    def waiting_share(self) -> float:
        """Share of the ranks' time that is waiting."""
        return self.wait_s / self.time_s if self.time_s > 0 else 0.0


def balance_of(tables: RunTables, epoch: int) -> Balance | None:
    """Return the balance of the steps of an epoch that all ranks have made; None if they are not in memory."""

    def balance() -> Balance | None:
        rows = tables.rows("steps")
        rows = rows.where(rows["epoch"] == epoch)
        steps = iterations(rows)
        if not len(steps) or len(np.unique(rows["rank"])) < tables.ranks:
            return None
        sums = {name: float(steps[name].sum()) for name in ("own_s", "wait_s", "critical_s", "time_s")}
        return Balance(epoch, len(steps), **sums)

    return tables.once(("balance of an epoch", epoch), balance)


def last_balance(tables: RunTables) -> Balance | None:
    """Return the balance of the last complete epoch, or of the first one while it runs; None before its first step."""
    complete = tables.complete_epoch
    return balance_of(tables, max(tables.position.epochs.values(), default=0) if complete is None else complete)


def balance_by_epoch(tables: RunTables) -> Rows:
    """Return sums per epoch, or per several epochs of a long run, without the current epoch."""
    rows, epoch = tables.rollup(BALANCE), tables.complete_epoch
    if epoch is None or not len(rows) or tables.width(BALANCE) > 1:
        return rows
    return rows.where(rows["epoch_most"] <= epoch)
