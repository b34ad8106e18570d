"""Early stopping of a run, by evaluations of the validation split only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dtdg_lab.core.errors import (
    ConfigError,
)
from dtdg_lab.records.requests import SetLive, Stop

if TYPE_CHECKING:
    pass


VALIDATION = "validation"


BY = "stopping rule"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One evaluation of the validation split.

    Attributes:
        step: number of updates before it.
        epoch: number of completed epochs before it.
        seconds: total time since the start of the run.
        loss: validation loss; None if it was not finite.
    """

    step: int
    epoch: int
    seconds: float
    loss: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision about a run.

    Attributes:
        what: ``finish`` to end it after its current epoch, with the final evaluation; ``stop`` to stop it at once, with
            a checkpoint and without a final evaluation.
        why: the reason.

    Raises:
        ConfigError: ``what`` is unknown.
    """

    what: Literal["finish", "stop"]
    why: str

    def __post_init__(self) -> None:
        if self.what not in ("finish", "stop"):
            raise ConfigError(f"what={self.what!r} is unknown: choose 'finish' or 'stop'.")

    def request(self, epochs_done: int) -> Stop | SetLive:
        """Return the control request that executes the verdict after ``epochs_done`` epochs."""
        if self.what == "stop":
            return Stop()
        return SetLive({"epochs": epochs_done + 1}, BY)  # the current epoch has begun when the ranks receive it


Judge = Callable[[tuple[Evaluated, ...]], Verdict | None]


class Bench:
    """Passes every validation evaluation of a run to a judge, until there is a verdict.

    Args:
        judge: called after each evaluation with all evaluations so far.
        epochs: epochs of the run; after the last one, no verdict is needed.

    Attributes:
        verdict: the verdict, if any.
    """

    def __init__(self, judge: Judge, epochs: int) -> None:
        self._judge, self._epochs = judge, epochs
        self._began_ns: int | None = None
        self._seen: list[Evaluated] = []
        self.verdict: Verdict | None = None

    def started(self, time_ns: int) -> None:
        """Record the start time of the run; only the first call counts."""
        if self._began_ns is None:
            self._began_ns = time_ns

    def evaluated(self, row: Mapping[str, Any]) -> Stop | SetLive | None:
        """Process a row of the table ``evaluations``, and return the request of a verdict, if there is one.

        Splits other than validation are ignored.
        """
        if row["split"] != VALIDATION or self.verdict is not None:
            return None
        if self._seen and row["step"] <= self._seen[-1].step:
            return None  # the same model, evaluated again at the end or after a resume
        self.started(row["time_ns"])
        assert self._began_ns is not None
        seconds = (row["time_ns"] - self._began_ns) * 1e-9
        self._seen.append(Evaluated(row["step"], row["epoch"], seconds, row["loss"]))
        verdict = self._judge(tuple(self._seen))
        if verdict is None or row["epoch"] + (verdict.what == "finish") >= self._epochs:
            return None
        self.verdict = verdict
        return verdict.request(row["epoch"])
