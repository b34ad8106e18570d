"""Seconds of a step: rates of a machine are fitted to measured steps, and predict other steps.

Each part of a step has a few non-negative rates, fitted by least squares of relative residuals:

- compute: seconds per edge, row and own snapshot, and per snapshot of the temporal part, which does not shrink with
more ranks and costs more with several;
- transfer: seconds per transferred snapshot, per transferred byte, and per byte unpacked;
- communicate: seconds per exchange, times log2 R, and per byte of the busiest rank. With several machines, the bytes
that a machine sends or receives also pass its link. The growth with log2 R is assumed: two ranks cannot show it.

A step takes the compute and transfer of its straggler, then communicate. Nothing overlaps.

References: ESDG section 6.3 separates these three parts (Figures 5 and 7); the model is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy.optimize import nnls

from dtdg_lab.core.errors import PlanError
from dtdg_lab.graphs.delta import SequenceChanges
from dtdg_lab.systems.workload import Numbers, StepWork

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("compute", "communicate", "transfer")
_OF_RANKS = ("compute_s", "transfer_s")
OWN_SECONDS = ("batch_s", "compute_s", "update_s")  # columns of recorded steps: a rank's own computation
STEP_SECONDS = (*OWN_SECONDS, "transfer_s", "communicate_s", "time_s", "cpu_s")


class StepForecast(Protocol):
    """The settings that determine the work of a step, apart from graph and ranks."""

    @property
    def model(self) -> str:
        """Name in the catalogue."""

    def work(self, changes: SequenceChanges, ranks: int) -> StepWork:
        """Return the work of R ranks in a step on a sequence."""

    def paper_speedup(self, *, weak: bool) -> float | None:
        """Return the paper's speed-up of this model on its largest number of ranks, if reported."""

    def differences(self, other: Any) -> list[str]:
        """Return the names of settings for which measured rates cannot be transferred."""


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """The connections between ranks.

    Attributes:
        per_node: ranks per machine.
        node_bytes_s: bytes per second through a machine's link, each way, shared by its ranks. The default is the
            paper's two links of 100 Gb/s.
        rank_bytes_s: bytes per second between ranks of a machine; None for the measured rate.
        message_s: seconds of an exchange between two ranks, besides its bytes; None for the measured time.

    Raises:
        PlanError: a number is not above 0.
    """

    per_node: int = 8
    node_bytes_s: float = 25e9
    rank_bytes_s: float | None = None
    message_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("per_node", "node_bytes_s", "rank_bytes_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise PlanError(f"{name}={value}: give a number above 0.")
        if self.message_s is not None and not self.message_s >= 0:
            raise PlanError(f"message_s={self.message_s}: give seconds of at least 0.")

    def moved(self, sent: Numbers) -> tuple[float, float]:
        """Return the bytes of the busiest rank within its machine, and of the busiest machine's link.

        Args:
            sent: (R, R) bytes from rank to rank.
        """
        node = np.arange(len(sent)) // self.per_node
        is_between = node[:, None] != node
        within = np.where(is_between, 0.0, sent)
        between = np.zeros((node[-1] + 1, node[-1] + 1))
        np.add.at(between, (node[:, None], node[None, :]), np.where(is_between, sent, 0.0))
        return _busiest(within), _busiest(between)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredStep:
    """Measured seconds of a step, medians over steps.

    Attributes:
        name: name in tables.
        work: work of the step.
        compute_s: (R,) seconds of each rank, by the wall clock or by its processor.
        transfer_s: (R,) likewise.
        communicate_s: seconds from the last rank's arrival to the end of exchanges, summed; None if ranks shared cores,
            which makes wall times meaningless.
        step_s: wall time of the whole step; None likewise.
    """

    name: str
    work: StepWork
    compute_s: Numbers
    transfer_s: Numbers
    communicate_s: float | None = None
    step_s: float | None = None

    @property
    def ranks(self) -> int:
        """Number of ranks R."""
        return self.work.ranks

    @property
    def time(self) -> PredictedStepTime:
        """Times of the slowest rank by part; communicate is 0 if unknown."""
        slowest = int(np.argmax(self.compute_s + self.transfer_s))
        return PredictedStepTime(
            float(self.compute_s[slowest]), self.communicate_s or 0.0, float(self.transfer_s[slowest])
        )


@dataclass(frozen=True, slots=True)
class PredictedStepTime:
    """Seconds of a step by its parts."""

    compute_s: float
    communicate_s: float
    transfer_s: float

    @property
    def total_s(self) -> float:
        """Seconds of all parts."""
        return self.compute_s + self.communicate_s + self.transfer_s


def measured_from(name: str, work: StepWork, by_rank: pd.DataFrame, *, shared: bool) -> MeasuredStep:
    """Build the measured step of a recorded run.

    Args:
        name: name of the step.
        work: work of the step.
        by_rank: ``STEP_SECONDS`` of each rank, over the steps that count.
        shared: True if ranks shared cores. Then processor seconds count, divided in proportion to wall times, and the
            times of exchanges are unknown.
    """
    compute, transfer = by_rank[list(OWN_SECONDS)].sum(axis=1).to_numpy(float), by_rank["transfer_s"].to_numpy(float)
    if shared:
        cpu, share = by_rank["cpu_s"].to_numpy(float), compute / np.maximum(compute + transfer, 1e-12)
        return MeasuredStep(name, work, cpu * share, cpu * (1 - share))
    return MeasuredStep(
        name, work, compute, transfer, float(by_rank["communicate_s"].max()), float(by_rank["time_s"].max())
    )


@dataclass(frozen=True, slots=True, eq=False)
class ScalingModel:
    """Fitted rates of a machine and a model; see the module's docstring.

    Attributes:
        compute: (5,) seconds per unit of each column of ``StepWork.passes``.
        transfer: (3,) seconds per unit of each column of ``StepWork.brought``; None if no measured step transferred
            graphs.
        message_s: seconds of an exchange between two ranks, besides its bytes; None if not measured.
        byte_s: seconds per byte between two ranks; None if not measured.
    """

    compute: Numbers
    transfer: Numbers | None
    message_s: float | None
    byte_s: float | None

    def predict(self, work: StepWork, network: NetworkCosts | None = None) -> PredictedStepTime:
        """Return the seconds of a step.

        Raises:
            PlanError: a part of the step was never measured, and ``network`` lacks its rate.
        """
        compute, transfer = work.passes @ self.compute, np.zeros(work.ranks)
        if work.brought.any():
            if self.transfer is None:
                raise PlanError(
                    "this step transfers graphs, but no measured step did. Measure a run with at least two blocks of "
                    "time (blocks=2), or predict one block."
                )
            transfer = work.brought @ self.transfer
        slowest = int(np.argmax(compute + transfer))
        exchanged = self._exchanged(work, network or NetworkCosts()) if work.exchanges else 0.0
        return PredictedStepTime(float(compute[slowest]), exchanged, float(transfer[slowest]))

    def _exchanged(self, work: StepWork, network: NetworkCosts) -> float:
        message_s = self.message_s if network.message_s is None else network.message_s
        byte_s = self.byte_s if network.rank_bytes_s is None else 1 / network.rank_bytes_s
        if message_s is None or byte_s is None:
            raise PlanError(
                f"no run of two ranks or more was measured, so the exchanges of {work.ranks} ranks cannot be timed. "
                "Measure one, or give rank_bytes_s and message_s."
            )
        within, between = network.moved(work.sent)
        return message_s * _messages(work) + byte_s * within + between / network.node_bytes_s


def fit_scaling(steps: Sequence[MeasuredStep]) -> ScalingModel:
    """Fit rates to measured steps.

    The ranks of steps with timed exchanges are assumed to be on one machine.

    Raises:
        PlanError: no step is given.
    """
    if not steps:
        raise PlanError("steps is empty. Measure at least one step.")
    passes, brought = (np.concatenate([getattr(step.work, name) for step in steps]) for name in ("passes", "brought"))
    compute_s, transfer_s = (np.concatenate([getattr(step, name) for step in steps]) for name in _OF_RANKS)
    compute = _non_negative(passes, compute_s)
    has_transfer = brought.any(axis=1)
    transfer = _non_negative(brought[has_transfer], transfer_s[has_transfer]) if has_transfer.any() else None
    timed = [step for step in steps if step.communicate_s is not None and step.work.exchanges]
    if not timed:
        return ScalingModel(compute, transfer, None, None)
    moved = np.array([(_messages(step.work), _busiest(step.work.sent)) for step in timed])
    message_s, byte_s = _non_negative(moved, np.array([step.communicate_s for step in timed], float))
    return ScalingModel(compute, transfer, float(message_s), float(byte_s))


def _messages(work: StepWork) -> float:
    """Return the number of exchanges, weighted by their latency."""
    return work.exchanges * log2(work.ranks)


def _busiest(sent: Numbers) -> float:
    """Return the maximum bytes that one of them sends or receives."""
    return float(max(sent.sum(axis=0).max(), sent.sum(axis=1).max()))


def _non_negative(rows: Numbers, seconds: Numbers) -> Numbers:
    """Return x >= 0 that minimises the relative error of ``rows @ x`` from ``seconds``."""
    above = seconds > 0
    if not above.any():
        return np.zeros(rows.shape[1])
    relative = rows[above] / seconds[above, None]
    scale = np.abs(relative).max(axis=0)
    scale[scale == 0] = 1.0
    rates: Numbers = nnls(relative / scale, np.ones(len(relative)))[0]
    return rates / scale
