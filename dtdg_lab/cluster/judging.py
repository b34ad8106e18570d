"""Judging a run while it trains: by evaluations of its validation part, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dtdg_lab.core.errors import ConfigError

VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One evaluation of the validation part.

    Attributes:
        step: updates made before it.
        epoch: epochs done before it.
        seconds: since the run was started, all that passed.
        loss: of the validation part; None where it was not finite.
    """

    step: int
    epoch: int
    seconds: float
    loss: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a run.

    Attributes:
        what: ``finish``: it ends after its present epoch as if that had been the last one, so that its final evaluation
            is made; ``stop``: it is stopped at once, with a checkpoint and without a final evaluation.
        why: in words.

    Raises:
        ConfigError: it is neither.
    """

    what: Literal["finish", "stop"]
    why: str

    def __post_init__(self) -> None:
        if self.what not in ("finish", "stop"):
            raise ConfigError(f"a verdict says {self.what!r}: 'finish' and 'stop' are allowed.")

    def request(self, epochs_done: int) -> dict[str, Any]:
        """The control request that carries it out after ``epochs_done`` epochs."""
        if self.what == "stop":
            return {"stop": True}
        return {"set": {"epochs": epochs_done + 1}}  # the present one has begun when the ranks hear of it


Judge = Callable[[tuple[Evaluated, ...]], Verdict | None]


class Bench:
    """Hands a judge every validation evaluation of one run, until there is a verdict.

    Args:
        judge: asked after each evaluation with all of them.
        epochs: that the run is to make: where none is left, nobody needs to end it.

    Attributes:
        verdict: once there is one.
    """

    def __init__(self, judge: Judge, epochs: int) -> None:
        self._judge, self._epochs = judge, epochs
        self._began_ns: int | None = None
        self._seen: list[Evaluated] = []
        self.verdict: Verdict | None = None

    def started(self, time_ns: int) -> None:
        """The run began; the first time counts."""
        if self._began_ns is None:
            self._began_ns = time_ns

    def evaluated(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take in a row of the table ``evaluations``; the request that a verdict makes of it, where it makes one.

        Other parts than validation are not looked at.
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
