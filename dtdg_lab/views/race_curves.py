"""What a race is drawn from: the losses of each of its runs, with what had been spent for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtdg_lab.views.metrics import LOSSES
from dtdg_lab.views.time_to_loss import NEAR

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow

COSTS = ("seconds", "joules", "bytes", "peak")


@dataclass(frozen=True, slots=True)
class Curve:
    """Evaluations of one run in order, each with what had been spent until then.

    Attributes:
        label: of the contestant.
        seed: of the run.
        losses: of the validation part; of the training part where a protocol has no validation.
        seconds: since the run began, evaluations among them.
        joules: of all ranks; empty where unknown.
        bytes: that all ranks have sent, features that they fetched among them; empty where unknown.
        peak: largest peak of tensor memory of any rank so far, bytes; None where unknown.
        judged: ``validation`` or ``train``.
        loss_name: with its unit.
        sources: of the joules.
        over: whether the run has ended.
    """

    label: str
    seed: int
    losses: tuple[float, ...]
    seconds: tuple[float, ...]
    joules: tuple[float, ...]
    bytes: tuple[float, ...]
    peak: int | None
    judged: str
    loss_name: str
    sources: tuple[str, ...]
    over: bool

    def cost(self, name: str) -> tuple[float, ...]:
        """What had been spent at every evaluation, one of ``COSTS``; empty where unknown."""
        if name == "peak":
            return () if self.peak is None else (float(self.peak),) * len(self.losses)
        return {"seconds": self.seconds, "joules": self.joules, "bytes": self.bytes}[name]


def curve_of(label: str, seed: int, window: RunWindow, *, over: bool) -> Curve:
    """The curve of a run as far as it is; whoever feeds the window from another thread is kept out by its lock."""
    loss = window.loss
    points = [point for point in loss.splits[loss.judged].points if point.value is not None]
    seconds = [point.seconds for point in points]
    joules = window.energy.joules_at(seconds)
    sent = window.spent.bytes_at(seconds, [point.step for point in points])
    return Curve(
        label=label, seed=seed, losses=tuple(float(point.value or 0.0) for point in points), seconds=tuple(seconds),
        joules=() if joules is None else tuple(joules.tolist()), bytes=() if sent is None else tuple(sent.tolist()),
        peak=window.spent.peak_bytes, judged=loss.judged, loss_name=LOSSES.get(loss.task, "loss"),
        sources=tuple(sorted(window.energy.joules())), over=over,
    )  # fmt: skip


def labels_of(curves: Sequence[Curve]) -> tuple[str, ...]:
    """The contestants in the order in which they came."""
    return tuple(dict.fromkeys(curve.label for curve in curves))


def near_losses(
    curves: Sequence[Curve], labels: Sequence[str], lost: Collection[tuple[str, int]] = ()
) -> dict[int, float]:
    """By seed, the least loss that any contestant reached and 5 % more; seeds that some contestant lacks are left out.

    What is near follows the seed, since graph and first parameters do.

    Args:
        curves: of all runs as far as they are; one that is over without a finite loss is waited for no longer.
        labels: the contestants.
        lost: contestant and seed of runs that failed: they too are not waited for.
    """
    found: dict[int, dict[str, float]] = {}
    gone = {*lost, *((curve.label, curve.seed) for curve in curves if curve.over and not curve.losses)}
    for curve in curves:
        if curve.losses:
            found.setdefault(curve.seed, {})[curve.label] = min(curve.losses)
    return {
        seed: min(least.values()) * (1 + NEAR)
        for seed, least in found.items()
        if all(label in least or (label, seed) in gone for label in labels)
    }


def reached(curve: Curve, near: Mapping[int, float], cost: str) -> float | None:
    """What the run had spent when it was near the best for the first time; None where it never was, or is unknown."""
    spent = curve.cost(cost)
    if curve.seed not in near or not spent:
        return None
    at = next((place for place, loss in enumerate(curve.losses) if loss <= near[curve.seed]), None)
    return None if at is None else spent[at]
