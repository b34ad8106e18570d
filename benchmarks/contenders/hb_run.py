"""One rank of a run, step by step as the training loop makes them, with what each step took; for benchmarks/dynahb.py.

Imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so that nothing here imports torch at once.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from contenders.esdg_steps import BothClocks
from dtdg_lab.config.record_tables import TABLES

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.distributed.averager import ControlState
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.engine.strategy import Step

# the paper's names of Table 3 -> phases; ``rsv`` is generators' processor time, ``rl`` is timed by itself
NAMED = {"gen_bat": ("batch",), "to_gpu": ("transfer",), "comp": ("compute",), "comm": ("wait", "communicate"),
         "upda": ("update",)}  # fmt: skip
FULL_S, LOOK_S = 20.0, 0.02  # most that is waited for full reservoirs; between two looks
Row = dict[str, Any]
_numbers = itertools.count()


class RankRun:
    """A run whose ranks train in stretches, and come together after each.

    A stretch ends as a run stops: rank 0 raises its word, which rides with gradients or in a round of averaging, and
    each rank hears it after a step. So nothing is added to a step that training has not.

    Args:
        config: of the run.
        group: the ranks.
        slowed: rank whose steps take longer; none where negative.
        slow_s: that it sleeps in a step.

    Attributes:
        graph: the data.
        built: what trains.
        group: the ranks.
        seconds: of this rank's steps, by the clock on the wall.
        steps: of this rank.
        spent: seconds by the paper's names, of this rank.
        sources: how often batches came from where.
        levels: what was last told of its reservoirs, by part and action.
        bytes_sent: by this rank in its steps.
        evaluate_steps: steps after which rank 0 evaluates the validation split in its own seconds; 0: never.
        decided_s: its seconds at each decision of a batch policy.
    """

    def __init__(self, config: RunConfig, group: Group, *, slowed: int = -1, slow_s: float = 0.0) -> None:
        from dtdg_lab.datasets.names import load_for
        from dtdg_lab.engine.capabilities import Adaptive
        from dtdg_lab.training.build import build

        self.graph = load_for(config)
        self.built, self.group = build(config, self.graph, group), group
        self._adaptive = self.built.strategy if isinstance(self.built.strategy, Adaptive) else None
        self.seconds, self.steps, self.bytes_sent = 0.0, 0, 0
        self.evaluate_steps, self.decided_s = 0, list[float]()
        self.spent: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self.levels: dict[tuple[int, int], Row] = {}
        self._slow_s = slow_s if group.rank == slowed else 0.0
        self._wanted = self._heard = 0
        self._works, self._epoch = iter(()), itertools.count()
        self._name = f"benchmark-{next(_numbers)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # generators

    def open(self) -> None:
        """Let generators of batches begin, where the run has any."""
        from dtdg_lab.engine.capabilities import RunsInBackground

        if isinstance(self.built.strategy, RunsInBackground):
            self.built.strategy.open()

    def close(self) -> None:
        """Let them end."""
        self.built.strategy.close()

    def filled(self) -> float:
        """The share of what this rank's reservoirs may hold that they hold; 1 where there is none, or bytes are out."""
        parts = [part for part in getattr(self.built.strategy, "parts", ()) if part.reservoir is not None]
        held = room = 0
        for part in parts:
            for action, level in enumerate(part.reservoir.levels()):
                held += level.held
                room += level.capacity if part.reservoir.has_room(action) else level.held
        return held / room if room else 1.0

    def fill(self) -> float:
        """Wait until reservoirs are full, and return the seconds that took."""
        began_s = time.perf_counter()
        while self.filled() < 1 and time.perf_counter() - began_s < FULL_S:
            time.sleep(LOOK_S)
        return time.perf_counter() - began_s

    # stretches

    def train(self, *, seconds: float = float("inf"), steps: int = 0) -> Iterator[Row]:
        """Steps of this rank, one after another, until rank 0 has spent its seconds or steps; collective.

        Args:
            seconds: of rank 0's steps since it was built.
            steps: of this stretch, on rank 0; any number where 0.
        """
        from dtdg_lab.training.pacing import pacing_for

        number = self._wanted + 1
        self._pacing = pacing_for(
            self.built, self.group, self._asked, name=f"{self._name}-{number}", start=self._asked()
        )
        try:
            for count in itertools.count(1):
                if count == steps or self.seconds >= seconds:
                    self._wanted = number  # others' are not asked for
                yield self._step()
                if self._heard >= number:
                    break
            self._pacing.gather(self._follow)
        except BaseException as error:
            self._pacing.close(f"{type(error).__name__}: {error}")
            raise
        self._wanted = self._heard = number

    def _asked(self) -> ControlState:
        from dtdg_lab.distributed.averager import ControlState

        return ControlState(self._wanted, 0 if self._adaptive is None else self._adaptive.requested_choice)

    def _follow(self, word: ControlState) -> None:
        self._heard = word.version
        if self._adaptive is not None:
            self._adaptive.receive_choice(word.choice)

    def _next(self) -> Step:
        work = next(self._works, None)
        while work is None:
            self._works = iter(self.built.strategy.epoch(next(self._epoch)))
            work = next(self._works, None)
        return work

    def _step(self) -> Row:
        built, sent = self.built, self.group.bytes_sent
        choice = getattr(built.strategy, "choice", 0)
        if self._adaptive is not None:
            self._adaptive.on_step_start(self.steps)
        work, began_s, cpu_s = self._next(), time.perf_counter(), time.process_time()
        clocks = BothClocks()  # read after the step's own, so that phases sum to no more than the step
        built.gradients.zero()
        computed = built.strategy.compute(work, clocks)
        if self._slow_s:
            time.sleep(self._slow_s)
        clocks("compute")
        agreed = self._pacing.exchange(computed)
        clocks.exchange(agreed.times)
        built.optimizer.step()
        clocks("update")
        word = self._pacing.agreed()
        clocks("communicate")
        loss_sum, groups = agreed.sums()
        loss = loss_sum / max(groups, 1)
        decided = None
        if self._adaptive is not None:
            decided = self._adaptive.decide_after_step(loss, time.perf_counter() - began_s)
        if self.evaluate_steps and (self.steps + 1) % self.evaluate_steps == 0:
            decided = self._evaluated() or decided
        self._follow(word)
        clocks("rl")
        seconds = time.perf_counter() - began_s
        self._pacing.rounds()
        self._take_down(clocks, seconds)
        if decided is not None:
            self.decided_s.append(self.seconds)
        self.bytes_sent += self.group.bytes_sent - sent
        own = sum(clocks.cpu[phase] for phase in ("batch", "transfer", "compute", "update", "rl"))
        return {"seconds": seconds, "loss": loss, "choice": choice, "batch_s": clocks.wall["batch"], "own_s": own,
                "cpu_s": time.process_time() - cpu_s}  # fmt: skip

    def _evaluated(self) -> tuple[Any, ...] | None:
        """Evaluate as a run does: all ranks together where gradients are summed, else rank 0 alone."""
        built = self.built
        evaluator = built.evaluator if self._pacing.synchronous else built.own_evaluator
        if evaluator is None or not (self._pacing.synchronous or self.group.rank == 0):
            return None
        (scores,) = evaluator.evaluate(built.model, ("validation",))
        return None if self._adaptive is None else self._adaptive.decide_after_evaluation(scores.loss)

    def _take_down(self, clocks: BothClocks, seconds: float) -> None:
        from dtdg_lab.engine.strategy import read_rows

        self.seconds, self.steps = self.seconds + seconds, self.steps + 1
        for name, phases in NAMED.items():
            self.spent[name] += sum(clocks.wall[phase] for phase in phases)
        if self._adaptive is not None and self._adaptive.decides:
            self.spent["rl"] += clocks.wall["rl"]
        rows = read_rows(self.built.strategy.rows())
        source = TABLES["targets"].index("source") - 2  # step and epoch are the loop's
        self.sources.update(row[source] for row in rows.get("targets", ()))
        for row in rows.get("reservoir", ()):
            described = dict(zip(TABLES["reservoir"][2:], row, strict=True))
            self.levels[described["part"], described["action"]] = described
        if self.levels:
            self.spent["rsv"] = sum(described["busy_s"] for described in self.levels.values())
