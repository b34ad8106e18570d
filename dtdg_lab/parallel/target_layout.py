"""Hybrid batches on vertex parts that hold copies of what their layers reach: nothing but models travels."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnsupportedError
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.batch_generators import Generators
from dtdg_lab.parallel.grouped import bring
from dtdg_lab.parallel.layout import Computed, Marks, Work
from dtdg_lab.parallel.part_batches import Drawn, PartBatches, Prepared
from dtdg_lab.parallel.sizing import Sizing
from dtdg_lab.parallel.target_run import TargetRun, add_gradients
from dtdg_lab.tasks.task import Task

MAP_EVERY_S, LEVELS_EVERY_S = 0.2, 0.5  # between rows that are only looked at


@dataclass(frozen=True, slots=True)
class BatchKeeping:
    """What is generated beside training and kept.

    Attributes:
        on: whether there are reservoirs.
        limit_bytes: most that the batches kept by a rank may take.
        generators: ``threads`` or ``processes``.
        most_uses: steps after which a batch makes room for another; 0: never.
    """

    on: bool
    limit_bytes: int
    generators: str
    most_uses: int = 0


class TargetBatchLayout:
    """Each step, each part trains one batch: N_S consecutive snapshots of N_V target vertices, from state zero.

    A batch has every neighbour that its layers reach, out of the part's own copies: its loss, the mean over its
    snapshots of the mean over its targets, and its gradients are those of the same targets in the whole graph: exactly
    for memories ``per_vertex``, ``weights`` and ``none``, approximately as
    :class:`dtdg_lab.parallel.cached_vertex.CachedVertexLayout` says for others. A step's gradients are means over
    parts whose batch has labels. With all trained vertices it is a snapshot batch, with all snapshots a vertex batch.

    Where batches are kept, a step takes one of them by the probability of equation 4, else all vertices of as many
    snapshots, which need no building (where ``stands_in``), else a new batch.

    Args:
        model: any model.
        parts: those of this rank.
        task: what is predicted.
        sizing: sizes that batches may have.
        keeping: what is kept.
        epoch_batches: steps of an epoch.

    Attributes:
        step: which one is computed next, of the run; it decides all draws.
        choice: which size it has.
        stands_in: whether a snapshot batch may stand in for one that is not there.
        replay: what each step and part drew in a run that is repeated; None where batches are drawn.

    Raises:
        UnsupportedError: the task needs all vertices at once.

    References: DynaHB sections 4.2 (balanced groups), 5 (hybrid batches), 5.2 (reservoir; algorithms 2 and 3).
    """

    def __init__(
        self, model: DynamicModel, parts: Sequence[PartBatches], task: Task, *, sizing: Sizing, keeping: BatchKeeping,
        epoch_batches: int,
    ) -> None:  # fmt: skip
        if not task.per_vertex:
            raise UnsupportedError(
                f"task={task.name!r} with batches of vertices: its loss needs all vertices at once. "
                "Choose system='adgnn-t' (halo_vertex), or another task."
            )
        self._model, self.parts, self._task, self.epoch_batches = model, tuple(parts), task, epoch_batches
        self.step, self.choice, self.stands_in = 0, sizing.initial, False
        self.replay: Mapping[tuple[int, int], Drawn] | None = None
        self.sizing, self.keeping = sizing, keeping
        self._is_open = False
        self._generators: Generators | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._mapped_s = self._levelled_s = 0.0
        self._use()
        self.check_fits()

    # steps

    def epoch(self, epoch: int) -> Sequence[Work]:
        """As many steps in every epoch."""
        own = tuple(part.number for part in self.parts)
        return tuple(Work(number, own, len(self.sizing.sizes)) for number in range(self.epoch_batches))

    def compute(self, work: Work, marks: Marks) -> Computed:
        """Gradients of a batch of each of this rank's parts, one part after another."""
        if self._generators is not None:
            self._generators.check()
        prepared = [self._next(part) for part in self.parts]
        self._note(prepared)
        return self._trained(prepared, marks)

    def _next(self, part: PartBatches) -> Prepared:
        if self.replay is None:
            return part.next(self.step, self.choice, stands_in=self.stands_in)
        try:
            return part.again(self.replay[self.step, part.number])
        except KeyError as error:
            raise ConfigError(
                f"replay: no batch of step {self.step} and part {part.number} was recorded. Replay the records of one "
                "rank, with the settings, data and ranks of their run."
            ) from error

    def _trained(self, prepared: Sequence[Prepared], marks: Marks) -> Computed:
        runs = [TargetRun(self._model, of.sequence, self._task, of.batch.snapshots, "all") for of in prepared]
        marks("batch")
        for run in runs:
            bring(run)
        marks("transfer")
        loss_sum = sum(float(add_gradients(run)) for run in runs)
        labelled = sum(run.num_labelled > 0 for run in runs)
        return Computed(loss_sum, labelled, sum(run.own * len(run.snapshots) for run in runs))

    def tried(self, source: str, marks: Marks) -> None:
        """Compute the largest batches of one kind that steps may have, for their memory; not noted down.

        Args:
            source: ``new`` or ``snapshot``.
            marks: takes down phases.
        """
        prepared = []
        for part in self.parts:
            action = max(range(len(part.sizes)), key=lambda number, of=part.sizes: of[number].targets)  # type: ignore[misc]
            prepared.append(part.again(Drawn(source, action, 0)))
        self._trained(prepared, marks)

    # sizes and what is kept, which change while training runs

    def steer(self, sizing: Sizing, keeping: BatchKeeping) -> None:
        """Have these sizes, and keep batches so, from the next step on; the choice begins anew where sizes change."""
        if (sizing, keeping) == (self.sizing, self.keeping):
            return
        if sizing.initial != self.sizing.initial or sizing.shares != self.sizing.shares:
            self.choice = sizing.initial
        remade = (sizing.sizes, keeping) != (self.sizing.sizes, self.keeping)
        self.sizing, self.keeping = sizing, keeping
        if remade:
            self._stop_generating()
            self._use()
            self._generate()

    def open(self) -> None:
        """Let generators begin, where batches are kept."""
        self._is_open = True
        self._generate()

    def close(self) -> None:
        """Let generators end; a second call does nothing."""
        self._is_open = False
        self._stop_generating()

    def check_fits(self) -> None:
        """Refuse reservoirs that cannot hold one batch of each size.

        Raises:
            ConfigError: one of this rank's parts has batches that are larger.
        """
        for part in self.parts if self.keeping.on else ():
            part.check_fits(self._share_bytes)

    @property
    def _share_bytes(self) -> int:
        return max(1, self.keeping.limit_bytes // len(self.parts))

    def _use(self) -> None:
        limit = self._share_bytes if self.keeping.on else None
        for part in self.parts:
            part.use(self.sizing.sizes[part.number], limit, self.keeping.most_uses)

    def _generate(self) -> None:
        if self.keeping.on and self._is_open and self.replay is None:
            self._generators = Generators([part.source() for part in self.parts], kind=self.keeping.generators)
            self._generators.start()

    def _stop_generating(self) -> None:
        if self._generators is not None:
            self._generators.close()
            self._generators = None

    # what is taken down

    def _note(self, prepared: Sequence[Prepared]) -> None:
        now_s = time.monotonic()
        shows = now_s - self._mapped_s >= MAP_EVERY_S
        for part, of in zip(self.parts, prepared, strict=True):
            self._rows.append(of.row(part.number, part.groups.sixtieths(of.batch.targets) if shows else None))
        if shows:
            self._mapped_s = now_s

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """``targets``: batches trained since this was last asked; ``reservoir``: what is held, twice a second."""
        taken, self._rows = self._rows, []
        found = {"targets": taken}
        now_s = time.monotonic()
        if self._generators is not None and now_s - self._levelled_s >= LEVELS_EVERY_S:
            self._levelled_s = now_s
            found["reservoir"] = self._levels()
        return found

    def _levels(self) -> list[tuple[Any, ...]]:
        assert self._generators is not None
        now_ns, rows = time.time_ns(), []
        made, busy_s = self._generators.made, self._generators.busy_s
        for place, part in enumerate(self.parts):
            assert part.reservoir is not None
            for action, level in enumerate(part.reservoir.levels()):
                of = (level.held, level.capacity, level.nbytes, made[place][action], busy_s[place][action],
                      level.distinct)  # fmt: skip
                rows.append((now_ns, part.number, action, *of))
        return rows
