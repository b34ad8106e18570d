"""DynaHB: training on hybrid batches of some nodes in some snapshots, and the control of their size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError
from dtdg_lab.core.plans import Partition
from dtdg_lab.engine.backprop.reference import bring
from dtdg_lab.engine.capabilities import (
    Adaptive,
    Carries,
    DecisionRow,
    DescribesMemory,
    Reconfigurable,
    RunsInBackground,
)
from dtdg_lab.engine.minibatch.blocks import block_shape
from dtdg_lab.engine.minibatch.state_cache import StateCache
from dtdg_lab.engine.minibatch.target_sequence import TargetRun, add_gradients
from dtdg_lab.engine.strategy import (
    BuildContext,
    RecordRows,
    Step,
    StepMarks,
    StepResult,
    Strategy,
    check_per_vertex,
    loss_sum,
)
from dtdg_lab.engine.views.replicated_part import part_folder
from dtdg_lab.engine.views.replicated_sequence import cached_sequences
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.records.events import Event
from dtdg_lab.systems.hybrid_batches.events import EmptyReservoir, HybridFacts, SizeFacts
from dtdg_lab.systems.hybrid_batches.part_batches import NEW, SNAPSHOT, Draw, PartBatches
from dtdg_lab.systems.hybrid_batches.reservoir import GIB, ReservoirSettings, capacity
from dtdg_lab.systems.hybrid_batches.sampler import TargetSampler, load_groups
from dtdg_lab.systems.hybrid_batches.size_control import SizeControl, check_reward
from dtdg_lab.systems.hybrid_batches.sizes import SizeChoices
from dtdg_lab.systems.hybrid_batches.supply import BatchSupply
from dtdg_lab.tasks.base import Task
from dtdg_lab.training.memory import fits_memory
from dtdg_lab.training.partition import partition_event

BATCH_SETTINGS = {"batch_snapshots", "batch_nodes", "batch_policy", "reservoir"}
QUICK_ROWS = 1_000_000  # rows over all snapshots; a step on six million takes 23 s while its memory is measured
HYBRID, STATES = "hybrid", "hybrid_states"  # keys in the state of a checkpoint


class HybridBatchStrategy(Strategy, Reconfigurable, Adaptive, Carries, DescribesMemory, RunsInBackground):
    """Each part trains one batch per step: N_S consecutive snapshots of N_V target nodes.

    A batch starts from a zero state, or from the states that earlier batches computed for its nodes (truncated BPTT).
    It has every neighbour that its layers reach, from the part's own copies. Its loss is the mean over its snapshots of
    the mean over its targets. Loss and gradients equal those of the same targets in the whole graph: exactly for
    memories ``per_vertex``, ``weights`` and ``none``, approximately for others (see ``ReplicatedStrategy`` of
    vertex_parts). A step's gradients are means over parts whose batch has labels. With all trained nodes it is a
    snapshot batch, with all snapshots a node batch.

    With a reservoir, a step takes one of its batches with the probability of equation 4. Otherwise it takes all nodes
    of as many snapshots, which need no building, if ``stands_in``, or builds a new batch.

    Args:
        context: the run's model, graph, task and settings.
        parts: the parts of this rank.

    Attributes:
        step: the next step of the run; it determines all draws.
        size: size of the next batches.

    References: DynaHB sections 4.2 (balanced groups), 5 (hybrid batches), 5.2 (reservoir; algorithms 2 and 3).
    """

    plan_kinds = ("partition", "hybrid")
    probed_plans = ("hybrid",)

    def __init__(self, context: BuildContext, parts: Sequence[PartBatches]) -> None:
        assert context.partition is not None
        self.context, self._config = context, context.config
        self._candidates = candidates(context.partition, context.task)
        self._size_choices = partial(SizeChoices.of, snapshots=len(context.train), candidates=self._candidates)
        sizes = self._size_choices(context.config)
        self.supply = BatchSupply(parts, sizes, ReservoirSettings.of(context.config))
        self.parts = self.supply.parts
        self.step = 0
        self._step_choices: deque[int] = deque(maxlen=2)  # sizes of the last steps, by index
        self._deviation: float | None = None
        self.size = SizeControl(context.config, sizes, rank=context.group.rank)
        check_reward(context.config, has_validation=bool(context.validation))
        self._restore(context.state)
        if self._is_quick:
            self._measure_fallback()

    # steps

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return the steps of an epoch; every epoch has the same number."""
        own = tuple(part.number for part in self.parts)
        return tuple(Step(number, own, len(self._candidates)) for number in range(self.context.config["epoch_batches"]))

    def compute(self, step: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of a batch of each of this rank's parts, one part after another."""
        return self._train([batch.run for batch in self.supply.next(self.step, self.size.choice)], marks)

    def _train(self, runs: Sequence[TargetRun], marks: StepMarks) -> StepResult:
        marks("batch")
        for run in runs:
            bring(run)
        marks("transfer")
        losses = [add_gradients(run) for run in runs]
        labelled = sum(run.num_labelled > 0 for run in runs)
        return StepResult(
            loss_sum(losses, self.context.device), labelled, sum(run.own * len(run.snapshots) for run in runs)
        )

    def try_largest(self, source: str, marks: StepMarks) -> None:
        """Compute the largest possible batches to measure their memory; keep nothing of them.

        Args:
            source: ``new`` or ``snapshot``.
            marks: records phases.
        """
        self._train([replace(batch.run, states=None) for batch in self.supply.largest(source)], marks)

    def rows(self) -> RecordRows:
        """Return the rows of ``targets`` and ``reservoir``, and forget them."""
        return self.supply.rows()

    def open(self) -> None:
        """Start the generators if there is a reservoir."""
        self.supply.open()

    def close(self) -> None:
        """Stop the generators; idempotent."""
        self.supply.close()

    def on_step_start(self, step: int) -> None:
        """Draw the next batches for this step of the run."""
        self.step = step
        self._step_choices.append(self.size.choice)

    def replay_draws(self, batches: Mapping[tuple[int, int], Any]) -> None:
        """Use the batches of the replayed run."""
        self.supply.replay = batches

    @property
    def share(self) -> float:  # type: ignore[override]
        """This rank's share of all nodes that may be targets."""
        return sum(self._candidates[part.number] for part in self.parts) / sum(self._candidates)

    # memory

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """Yield the largest batches: all nodes if these may stand in for a batch."""
        if not self._is_quick:
            self._measure_fallback()
        yield partial(self.try_largest, SNAPSHOT if self.supply.stands_in else NEW)
        self._deviation = loss_deviation(self.context, self.parts[0].again(Draw(NEW, self.size.choice, 0)).run)

    def probes_after(self, previous: Strategy) -> bool:
        """Return True: the event of the batches contains the measured deviation."""
        return True

    @property
    def _is_quick(self) -> bool:
        """True if a step on all nodes is fast enough to be measured before the first epoch, or is not needed."""
        return not self.supply.settings.on or sum(batch.rows for batch in self.supply.largest(SNAPSHOT)) <= QUICK_ROWS

    def _measure_fallback(self) -> None:
        """Measure if a step on all nodes fits its memory limit, so that it can stand in for another."""
        if not self.supply.settings.on:
            return
        limit_bytes = self._config["fallback_memory_gib"] * GIB

        def step() -> None:
            self.try_largest(SNAPSHOT, StepMarks())

        self.supply.stands_in = limit_bytes > 0 and fits_memory(step, limit_bytes, device=self.context.device)

    # events

    def plan_events(self) -> list[Event]:
        """Return the partition, and the sizes of batches."""
        return [partition_event(self.context), self._batch_event()]

    def settings_events(self, changes: Collection[str]) -> list[Event]:
        """Return the new sizes, and this rank's reservoirs that cannot hold any batch of some size."""
        if not BATCH_SETTINGS & set(changes):
            return []
        events: list[Event] = []
        try:
            self.supply.check_fits()
        except ConfigError as error:
            events.append(EmptyReservoir(str(error)))
        if self.context.group.rank == 0:
            events.append(self._batch_event())
        return events

    def _batch_event(self) -> Event:
        """Return the event of the batches."""
        config, sizes, train = self._config, self.supply.sizes, self.context.train
        facts, capacities = [], []
        for share, *part_sizes in zip(sizes.shares, *sizes.sizes, strict=True):
            targets = [size.vertices for size in part_sizes]
            facts.append(SizeFacts(part_sizes[0].snapshots, min(targets), max(targets), share))
            counts = zip(part_sizes, self._candidates, strict=True)
            room = [capacity(size, snapshots=len(train), vertices=n, actions=len(sizes)) for size, n in counts]
            capacities.append(tuple(room))
        return HybridFacts(
            sizes=tuple(facts),
            snapshots=len(train),
            first=train.start,
            nodes=self.context.graph.num_nodes,
            candidates=self._candidates,
            choice=self.size.choice,
            batch_policy=config["batch_policy"],
            reservoir=config["reservoir"],
            stands_in=self.supply.stands_in,
            generators=config["generators"],
            exchange=config["exchange"],
            average_every_s=config["average_every_s"],
            capacities=tuple(capacities),
            load_groups=config["load_groups"],
            deviation=self._deviation,
            cache_bytes=sum(part.sequence.part.nbytes for part in self.parts),
        )

    # decisions: rank 0 chooses sizes

    @property
    def decides(self) -> bool:
        """True if this rank chooses sizes."""
        return self.size.controller is not None

    @property
    def requested_choice(self) -> int:
        """The size chosen for all ranks, combined with the number of earlier changes of sizes."""
        return self.size.requested

    def receive_choice(self, choice: int) -> None:
        """Use the size that rank 0 chose from the next step on, unless sizes have changed since it was sent."""
        self.size.receive(choice)

    def repeat_decision(self, action: Any) -> None:
        """Make a choice of the replayed run, at its step."""
        self.size.repeat(action)

    def decide_after_step(self, loss: float | None, seconds: float, *, steps_ago: int = 0) -> DecisionRow | None:
        """Let the controller observe a step, and decide by the batches' losses if a decision is due.

        Args:
            loss: loss of the step's batches on this rank; None without labels.
            seconds: duration of the step.
            steps_ago: steps made since; 0 or 1.
        """
        return self.size.decide_after_step(loss, seconds, self._step_choices[-1 - steps_ago])

    def decide_after_evaluation(self, validation_loss: float | None) -> DecisionRow | None:
        """Let the controller decide by the validation loss, if configured and due."""
        return self.size.decide_after_evaluation(validation_loss)

    # changes

    def validate_settings(self, config: RunConfig) -> str:
        """Return why a config's batches are impossible, empty if they are possible; the same on all ranks."""
        try:
            self._size_choices(config)
            check_reward(config, has_validation=bool(self.context.validation))
        except LabError as error:
            return str(error)
        return ""

    def apply_settings(self, config: RunConfig) -> None:
        """Apply a config from the next step on; the choice is reset if sizes change."""
        previous, self._config = self._config, config
        sizes = self._size_choices(config)
        self.size.apply_settings(config, sizes)
        self.supply.use(sizes, ReservoirSettings.of(config))
        if config["reservoir"] and not previous["reservoir"]:
            self._measure_fallback()

    # state

    def state_dict(self) -> dict[str, Any]:
        """Return the sizes, the controller on the deciding rank, and the cached states of own parts."""
        state: dict[str, Any] = {HYBRID: self.size.state_dict()}
        states = {part.number: part.states.state_dict() for part in self.parts if part.states is not None}
        return {**state, STATES: states} if states else state

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint as far as it matches the sizes, the policy and the parts."""
        self.size.load_state_dict(state.get(HYBRID, {}))
        states = state.get(STATES, {})
        for part in self.parts:
            if part.states is not None and part.number in states:
                part.states.load_state_dict(states[part.number])

    @property
    def at_rest(self) -> bool:
        """True if a checkpoint is complete without :meth:`carried_state`: no other rank has states of its own."""
        has_states = any(part.states is not None for part in self.parts)
        return not has_states or self.context.group.size == 1 or self._config["exchange"] == "models"

    def carried_state(self) -> dict[str, Any]:
        """Return the cached states of all ranks' parts if ranks step together (collective); otherwise nothing."""
        if self.at_rest:
            return {}
        states = {}
        for number, part in enumerate(self.parts):
            assert part.states is not None
            for rank, state in enumerate(part.states.gathered(self.context.group)):
                states[rank * len(self.parts) + number] = state
        return {STATES: states}


def loss_deviation(context: BuildContext, run: TargetRun) -> float | None:
    """Return the relative deviation of a batch's loss from that of the same targets in the whole graph.

    Under the current parameters it is due to rounding, except for models that batches approximate: DCRNN (state from
    beyond the batch is cut off) and EvolveGCN-H (the best nodes are chosen among the targets). None if the batch has no
    labels. Gradients are modified.
    """
    model, sequence = context.model, context.sequence
    run = replace(run, states=None)
    batch_loss, vertices = float(add_gradients(run)), run.sequence.vertices
    state, readouts = model.initial_state(sequence.own), []
    with torch.no_grad():
        for t in run.snapshots:
            view = sequence.view(t)
            h, state = model.snapshot(view, view.inputs, state)
            readouts.append(model.readout(h if vertices is None else h[vertices]))
        graph_loss = float(run.loss(torch.stack(readouts), run.snapshots, slice(0, run.own)))
    return abs(batch_loss - graph_loss) / graph_loss if graph_loss > 0 else None


def build(context: BuildContext) -> HybridBatchStrategy:
    """Build hybrid batches of node partitions with copies of their neighbours.

    Raises:
        UnsupportedError: the task needs all nodes at once.
        LabError: the copies, the reservoirs or the cached states do not fit their budgets, or the model has no state
            per node to cache.
    """
    config, model, partition, task = context.config, context.model, context.partition, context.task
    assert partition is not None
    check_per_vertex(task, "with batches of nodes")
    graph, settings = context.sequence.graph, context.sequence.settings
    sequences = cached_sequences(
        graph, partition, context.parts, model, context.train, cache_gib=config["cache_gib"], settings=settings
    )
    trained, is_cached = task.trains(), config["batch_state"] == "cached"
    limit_bytes = int(config["batch_state_gib"] * GIB) // len(context.parts)
    shape = replace(block_shape(model.facts, norm=config["norm"]), places=is_cached)
    run = partial(TargetRun, model, task=task, loss_at="all")
    loads = vertex_loads(context.graph, shape.hops)
    parts = []
    for number, sequence in zip(context.parts, sequences, strict=True):
        own = partition.vertices(number)
        groups = load_groups(loads[own], np.flatnonzero(trained[own]), config["load_groups"])
        sampler = TargetSampler(config.seed, number, groups, context.train)
        folder = part_folder(graph, own, sequence.part.reach)
        states = StateCache(model, sequence.part, limit_bytes) if is_cached else None
        parts.append(PartBatches(sequence, sampler, folder, shape=shape, settings=settings, run=run, states=states))
    return HybridBatchStrategy(context, parts)


def candidates(partition: Partition, task: Task) -> tuple[int, ...]:
    """Return the number of possible targets of each part."""
    trained = task.trains()
    return tuple(int(trained[partition.vertices(part)].sum()) for part in range(partition.parts))
