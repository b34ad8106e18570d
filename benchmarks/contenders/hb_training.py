"""Trainings until the validation loss stays, with all evaluations apart from the clock; for benchmarks/dynahb.py.

Imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so that nothing here imports torch at once.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contenders.flare_steps import placed
from contenders.hb_run import RankRun
from dtdg_lab.core.errors import LabError

if TYPE_CHECKING:
    from torch import Tensor

    from contenders.hb_plan import Limits
    from dtdg_lab.config.run_config import RunConfig

MEETINGS = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the seconds: when ranks come together, and what was copied is evaluated
LAST_LINE = 160  # characters of a failure that a row tells
Row = dict[str, Any]


@dataclass(slots=True)
class Curve:
    """Validation losses of a run over the seconds of rank 0's steps, and where they were lowest.

    Attributes:
        points: seconds, steps of rank 0, loss; the first is of the untrained model, and is never the best.
        best: the lowest loss.
        at: its place in ``points``.
        without: evaluations since then.
    """

    points: list[tuple[float, int, float]] = field(default_factory=list)
    best: float = float("inf")
    at: int = 0
    without: int = 0

    def add(self, seconds: float, steps: int, loss: float, better: float) -> bool:
        """Whether this one is the best so far, by ``better`` of the best before."""
        self.points.append((seconds, steps, loss))
        if not steps:
            return False
        if loss < self.best * (1 - better):
            self.best, self.at, self.without = loss, len(self.points) - 1, 0
            return True
        self.without += 1
        return False


def trained(
    rank: int, ranks: int, address: str, configs: Sequence[RunConfig], limits: Limits, cores: tuple[int, ...]
) -> list[Row]:
    """Each run trained until its validation loss stays or its seconds are over; one that cannot be built says so.

    The seconds are those of rank 0's steps. Rank 0 copies its model now and then, which is not timed; the copies are
    evaluated when ranks come together, four times at most, by all of them. Generators of batches go on meanwhile.
    """
    group = placed(rank, ranks, address, cores)
    found = []
    for config in configs:
        try:
            run = RankRun(config, group, slowed=config["slow_rank"], slow_s=1e-3 * config["slow_ms"])
        except LabError as error:  # the same on all ranks
            found.append({"failed": f"{type(error).__name__}: {error}"[:LAST_LINE]})
            continue
        with run:
            found.append(until_it_stays(run, limits))
        del run
        gc.collect()
    group.barrier()
    group.close()
    return found


def until_it_stays(run: RankRun, limits: Limits) -> Row:
    """Train, and score the test split by the parameters that were best by the validation split."""
    curve, best, phases = Curve(), parameters(run), []
    run.evaluate_steps = limits.evaluate_steps
    curve.add(0.0, 0, _validation(run), limits.better)
    run.open()
    next_s, ended = limits.first_s, False
    for share in MEETINGS:
        copies: list[tuple[float, int, Tensor]] = []
        for _ in run.train(seconds=share * limits.seconds):
            if run.group.rank == 0 and run.seconds >= next_s:
                copies.append((run.seconds, run.steps, parameters(run)))
                phases.append(dict(run.spent))
                next_s = max(next_s * limits.growth, run.seconds)
        here = parameters(run)
        for seconds, steps, copy in shared(run, copies):
            put(run, copy)
            if curve.add(seconds, steps, _validation(run), limits.better):
                best = copy
            ended = curve.without >= limits.evaluations and steps >= curve.points[curve.at][1] + limits.updates
            if ended:
                break
        put(run, here)
        if ended:
            break
    filled = run.filled()
    run.close()
    put(run, best)
    (test,) = run.built.evaluator.evaluate(run.built.model, ("test",), final=True)
    converged_s, converged_steps, _ = curve.points[curve.at]
    return {
        "validation": curve.best, "curve": curve.points, "converged_s": converged_s, "converged_steps": converged_steps,
        "stays": ended, "seconds": run.seconds, "steps": run.steps, "step_s": run.seconds / run.steps,
        "phases": phases[curve.at - 1] if curve.at and phases else {}, "sources": dict(run.sources), "filled": filled,
        "test": test.loss, "persistence": test.persistence_loss, "mean": test.mean_loss,
        "metrics": dict(test.metrics), "bytes_sent": run.bytes_sent,
        "decided_s": run.decided_s,
    }  # fmt: skip


def _validation(run: RankRun) -> float:
    """The validation split's loss; infinite where it is no number."""
    (scores,) = run.built.evaluator.evaluate(run.built.model, ("validation",))
    loss = scores.loss
    return loss if loss is not None and loss < float("inf") else float("inf")


def parameters(run: RankRun) -> Tensor:
    """All of this rank's, (n,)."""
    import torch

    return torch.cat([parameter.detach().reshape(-1) for parameter in run.built.model.parameters()])


def put(run: RankRun, flat: Tensor) -> None:
    """Have these parameters, in place: others hold views of them."""
    import torch

    at = 0
    with torch.no_grad():
        for parameter in run.built.model.parameters():
            parameter.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()


def shared(run: RankRun, copies: Sequence[tuple[float, int, Tensor]]) -> list[tuple[float, int, Tensor]]:
    """Rank 0's copies on every rank; collective."""
    import numpy as np
    import torch

    size = sum(parameter.numel() for parameter in run.built.model.parameters())
    described = None
    if run.group.rank == 0:
        described = np.array([[at, steps, *copy.double().tolist()] for at, steps, copy in copies]).reshape(-1, 2 + size)
    dtype = next(iter(run.built.model.parameters())).dtype
    rows = run.group.broadcast_array(described)
    return [(float(row[0]), round(row[1]), torch.from_numpy(row[2:].copy()).to(dtype)) for row in rows]
