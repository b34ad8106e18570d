"""Seconds of a step: rates of a machine fitted to measured steps, and what they predict of other steps.

Each part of a step has a few rates, none negative, found by least squares of relative residuals:

- compute: seconds an edge, a row, an own snapshot, and a snapshot run through time, which does not shrink with ranks
  and costs more as soon as there are several;
- transfer: seconds a snapshot brought, a byte of it, and a byte it takes whole (unpacking);
- communicate: seconds an exchange, times log2 R, and a byte of the busiest rank. Over nodes, what a node sends or
  receives also goes through its link. The growth of the first with log2 R is assumed: two ranks cannot show it.

A step takes the compute and transfer of its straggler, then communicate. Nothing is hidden behind anything else.

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
OWN_SECONDS = ("batch_s", "compute_s", "update_s")  # columns of recorded steps: what a rank computes
STEP_SECONDS = (*OWN_SECONDS, "transfer_s", "communicate_s", "time_s", "cpu_s")


class StepForecast(Protocol):
    """What a step computes, whatever the graph and the ranks."""

    @property
    def model(self) -> str:
        """Name in the catalogue."""

    def work(self, changes: SequenceChanges, ranks: int) -> StepWork:
        """Return what R ranks do in a step on a sequence."""

    def paper_speedup(self, *, weak: bool) -> float | None:
        """Return the paper's speed-up of this model on its most ranks; None where it gives none."""

    def differences(self, other: Any) -> list[str]:
        """Return names of settings for which rates of the one do not hold for the other."""


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """How ranks are connected.

    Attributes:
        per_node: ranks of a node.
        node_bytes_s: bytes a second through a node's link, each way, shared by its ranks. The default is the paper's
            two links of 100 Gb/s.
        rank_bytes_s: bytes a second between ranks of a node; as measured where None.
        message_s: seconds of an exchange between two ranks, beside its bytes; as measured where None.

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
                raise PlanError(f"{name}={value}: a number above 0 is needed.")
        if self.message_s is not None and not self.message_s >= 0:
            raise PlanError(f"message_s={self.message_s}: seconds of at least 0 are needed.")

    def moved(self, sent: Numbers) -> tuple[float, float]:
        """Return bytes that the busiest rank sends or gets within its node, and the busiest node through its link.

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
    """Seconds of a step that was run, medians over steps.

    Attributes:
        name: what tables call it.
        work: of the step.
        compute_s: (R,) of each rank, by the wall clock or by its processor.
        transfer_s: (R,) the same.
        communicate_s: from the last rank's arrival to the end of exchanges, summed; None where ranks shared cores, so
            that no wall time is worth telling.
        step_s: wall time of the whole step, with all else; None likewise.
    """

    name: str
    work: StepWork
    compute_s: Numbers
    transfer_s: Numbers
    communicate_s: float | None = None
    step_s: float | None = None

    @property
    def ranks(self) -> int:
        """R."""
        return self.work.ranks

    @property
    def time(self) -> PredictedStepTime:
        """Its parts, of the slowest rank; communicate is 0 where it is not known."""
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
        """Of all parts."""
        return self.compute_s + self.communicate_s + self.transfer_s


def measured_from(name: str, work: StepWork, by_rank: pd.DataFrame, *, shared: bool) -> MeasuredStep:
    """Return a step as a run recorded it.

    Args:
        name: of the step.
        work: of it.
        by_rank: ``STEP_SECONDS`` of each rank, over the steps that count.
        shared: whether ranks shared cores. Then the processor's seconds count, divided as the wall times were, and
            nothing is known of exchanges.
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
    """Rates of a machine and a model; see the head of this file.

    Attributes:
        compute: (5,) seconds of a unit of each column of ``StepWork.passes``.
        transfer: (3,) seconds of a unit of each column of ``StepWork.brought``; None where no step brought anything.
        message_s: seconds of an exchange between two ranks, beside its bytes; None where none was measured.
        byte_s: seconds of a byte between two ranks; None likewise.
    """

    compute: Numbers
    transfer: Numbers | None
    message_s: float | None
    byte_s: float | None

    def predict(self, work: StepWork, network: NetworkCosts | None = None) -> PredictedStepTime:
        """Return the seconds of a step.

        Raises:
            PlanError: a part of the step was never measured, and the network does not give it.
        """
        compute, transfer = work.passes @ self.compute, np.zeros(work.ranks)
        if work.brought.any():
            if self.transfer is None:
                raise PlanError(
                    "graphs are brought in this step, and were in none that was measured: measure a run with two "
                    "blocks of time or more (blocks=2), or ask for one block."
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
                f"what {work.ranks} ranks exchange takes time, and no run of two ranks or more was measured: measure "
                "one, or give rank_bytes_s and message_s."
            )
        within, between = network.moved(work.sent)
        return message_s * _messages(work) + byte_s * within + between / network.node_bytes_s


def fit_scaling(steps: Sequence[MeasuredStep]) -> ScalingModel:
    """Fit rates to measured steps.

    Ranks of a step whose exchanges were timed are taken to be on one node.

    Raises:
        PlanError: no step is given.
    """
    if not steps:
        raise PlanError("no step was measured: nothing can be fitted.")
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
    """Return exchanges, each as often as its latency counts."""
    return work.exchanges * log2(work.ranks)


def _busiest(sent: Numbers) -> float:
    """Return the most that one of them sends, or gets."""
    return float(max(sent.sum(axis=0).max(), sent.sum(axis=1).max()))


def _non_negative(rows: Numbers, seconds: Numbers) -> Numbers:
    """Return x >= 0 for which ``rows @ x`` comes nearest to ``seconds``, in relative terms."""
    above = seconds > 0
    if not above.any():
        return np.zeros(rows.shape[1])
    relative = rows[above] / seconds[above, None]
    scale = np.abs(relative).max(axis=0)
    scale[scale == 0] = 1.0
    rates: Numbers = nnls(relative / scale, np.ones(len(relative)))[0]
    return rates / scale
