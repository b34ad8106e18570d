"""DynaHB: hybrid batches of some nodes and some snapshots, their sizes, and the policies that choose them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
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
    Decision,
    DescribesMemory,
    Reconfigurable,
    RunsInBackground,
)
from dtdg_lab.engine.minibatch_blocks import block_shape
from dtdg_lab.engine.replicated import cached_sequences
from dtdg_lab.engine.replicated_part import part_folder
from dtdg_lab.engine.strategy import BuildContext, RecordRows, Step, StepMarks, StepResult, Strategy, check_per_vertex
from dtdg_lab.engine.target_batches import StateCache, TargetRun, add_gradients
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.records.events import Event
from dtdg_lab.systems.hybrid_batches import part_batches
from dtdg_lab.systems.hybrid_batches.batches import TargetSampler, capacity, load_groups
from dtdg_lab.systems.hybrid_batches.events import EmptyReservoir, HybridFacts, SizeFacts
from dtdg_lab.systems.hybrid_batches.policies import BatchDecision, BatchPolicy, make_batch_policy
from dtdg_lab.systems.hybrid_batches.workers import Generators
from dtdg_lab.tasks.base import Task
from dtdg_lab.training.memory import fits_memory
from dtdg_lab.training.partition import partition_event

# Hybrid batches on node parts that hold copies of what their layers reach: nothing but models travels.


BATCH_SETTINGS = {"batch_snapshots", "batch_nodes", "batch_policy", "reservoir"}
MAP_EVERY_S, LEVELS_EVERY_S = 0.2, 0.5  # between rows that are only looked at


GIB = 1 << 30
QUICK_ROWS = 1_000_000  # nodes of all snapshots; a step on six million takes 23 s while its memory is followed
HYBRID, STATES = "hybrid", "hybrid_states"  # in the plan of a checkpoint
# a choice rides with the number of changes of sizes before it: what was said of other sizes is not followed
GENERATIONS = CHOICES = part_batches.MOST_CHOICES


class HybridBatchStrategy(Strategy, Reconfigurable, Adaptive, Carries, DescribesMemory, RunsInBackground):
    """Each step, each part trains one batch: N_S consecutive snapshots of N_V target nodes.

    A batch starts from state zero, or from the states that earlier batches computed for its nodes (truncated BPTT).
    A batch has every neighbour that its layers reach, out of the part's own copies: its loss, the mean over its
    snapshots of the mean over its targets, and its gradients are those of the same targets in the whole graph: exactly
    for memories ``per_vertex``, ``weights`` and ``none``, approximately as
    :class:`dtdg_lab.engine.replicated.ReplicatedStrategy` says for others. A step's gradients are means over
    parts whose batch has labels. With all trained nodes it is a snapshot batch, with all snapshots a node batch.

    Where batches are kept, a step takes one of them by the probability of equation 4, else all nodes of as many
    snapshots, which need no building (where ``stands_in``), else a new batch.

    Args:
        context: what it is built from.
        parts: those of this rank.
        sizing: sizes that batches may have.
        keeping: what is kept.
        epoch_batches: steps of an epoch.

    Attributes:
        step: which one is computed next, of the run; it decides all draws.
        choice: which size it has.
        stands_in: whether a snapshot batch may stand in for one that is not there.
        replay: what each step and part drew in a run that is repeated; None where batches are drawn.

    References: DynaHB sections 4.2 (balanced groups), 5 (hybrid batches), 5.2 (reservoir; algorithms 2 and 3).
    """

    def __init__(
        self,
        context: BuildContext,
        parts: Sequence[part_batches.PartBatches],
        *,
        sizing: part_batches.Sizing,
        keeping: part_batches.BatchKeeping,
        epoch_batches: int,
    ) -> None:
        self.context, self.parts, self.epoch_batches = context, tuple(parts), epoch_batches
        self.step, self.choice, self.stands_in = 0, sizing.initial, False
        self.replay: Mapping[tuple[int, int], tuple[str, int, int]] | None = None
        self.sizing, self.keeping = sizing, keeping
        self._is_open = False
        self._generators: Generators | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._mapped_s = self._levelled_s = 0.0
        self._use()
        self.check_fits()
        assert context.partition is not None
        self._config, self._candidates = context.config, tuple(candidates(context.partition, context.task))
        self._generation = 0
        self._deviation: float | None = None
        self.batch_policy: BatchPolicy | None = self._made_batch_policy()  # on the rank that decides
        self._check_reward(context.config)
        self._put_back(context.state.get(HYBRID, {}))
        states = context.state.get(STATES, {})
        for part in self.parts:
            if part.states is not None and part.number in states:
                part.states.load_state_dict(states[part.number])
        if self._is_quick:
            self._measure()

    # steps

    def epoch(self, epoch: int) -> Sequence[Step]:
        """As many steps in every epoch."""
        own = tuple(part.number for part in self.parts)
        return tuple(Step(number, own, len(self.sizing.sizes)) for number in range(self.epoch_batches))

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Gradients of a batch of each of this rank's parts, one part after another."""
        if self._generators is not None:
            self._generators.check()
        prepared = [self._next(part) for part in self.parts]
        self._note(prepared)
        return self._trained([of.run for of in prepared], marks)

    def _next(self, part: part_batches.PartBatches) -> part_batches.Prepared:
        if self.replay is None:
            return part.next(self.step, self.choice, stands_in=self.stands_in)
        try:
            return part.again(part_batches.Drawn(*self.replay[self.step, part.number]))
        except KeyError as error:
            raise ConfigError(
                f"replay: no batch of step {self.step} and part {part.number} was recorded. Replay the records of one "
                "rank, with the settings, data and ranks of their run."
            ) from error

    def _trained(self, runs: Sequence[TargetRun], marks: StepMarks) -> StepResult:
        marks("batch")
        for run in runs:
            bring(run)
        marks("transfer")
        loss_sum = sum(float(add_gradients(run)) for run in runs)
        labelled = sum(run.num_labelled > 0 for run in runs)
        return StepResult(loss_sum, labelled, sum(run.own * len(run.snapshots) for run in runs))

    def tried(self, source: str, marks: StepMarks) -> None:
        """Compute the largest batches of one kind that steps may have, for their memory; nothing of them is kept.

        Args:
            source: ``new`` or ``snapshot``.
            marks: takes down phases.
        """
        self._trained([replace(of.run, states=None) for of in self._largest(source)], marks)

    def _largest(self, source: str) -> list[part_batches.Prepared]:
        """The largest batch of each part."""
        found = []
        for part in self.parts:
            action = max(range(len(part.sizes)), key=lambda number, of=part.sizes: of[number].targets)  # type: ignore[misc]
            found.append(part.again(part_batches.Drawn(source, action, 0)))
        return found

    # sizes and what is kept, which change while training runs

    def use_sizes(self, sizing: part_batches.Sizing, keeping: part_batches.BatchKeeping) -> None:
        """Use these sizes and this batch reuse from the next step on; the choice restarts where sizes change."""
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

    def _note(self, prepared: Sequence[part_batches.Prepared]) -> None:
        now_s = time.monotonic()
        shows = now_s - self._mapped_s >= MAP_EVERY_S
        for part, of in zip(self.parts, prepared, strict=True):
            self._rows.append(of.row(part.number, part.groups.sixtieths(of.batch.targets) if shows else None))
        if shows:
            self._mapped_s = now_s

    def rows(self) -> RecordRows:
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
                of = (
                    level.held,
                    level.capacity,
                    level.nbytes,
                    made[place][action],
                    busy_s[place][action],
                    level.distinct,
                )
                rows.append((now_ns, part.number, action, *of))
        return rows

    # around training: the first rank chooses sizes

    plan_kinds = ("partition", "hybrid")
    probed_plans = ("hybrid",)

    def on_step_start(self, step: int) -> None:
        """The next batches are those of this step of the run."""
        self.step, self._step_choice = step, self.choice

    def replay_draws(self, drawn: Mapping[tuple[int, int], Any]) -> None:
        """Use the batches of the run that is replayed."""
        self.replay = drawn

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """The largest batches: all nodes where these may stand in for a batch."""
        if not self._is_quick:
            self._measure()
        yield partial(self.tried, part_batches.SNAPSHOT if self.stands_in else part_batches.NEW)
        self._deviation = self._measured_deviation()

    def probes_after(self, before: Strategy) -> bool:
        """Always: the event of the batches says what was measured then."""
        return True

    def settings_events(self, changes: Collection[str]) -> list[Event]:
        """New sizes, and whether the reservoirs of this rank hold nothing of some size."""
        if not BATCH_SETTINGS & set(changes):
            return []
        events: list[Event] = []
        try:
            self.check_fits()
        except ConfigError as error:
            events.append(EmptyReservoir(str(error)))
        if self.context.group.rank == 0:
            events.append(self._event())
        return events

    def plan_events(self) -> list[Event]:
        """The partition, and the sizes of batches."""
        return [partition_event(self.context), self._event()]

    @property
    def share(self) -> float:  # type: ignore[override]
        """Of all nodes that may be targets, those of this rank's parts."""
        return sum(self._candidates[part.number] for part in self.parts) / sum(self._candidates)

    @property
    def requested_choice(self) -> int:
        """The size that the rank which decides wants on all ranks, with the number of changes of sizes before it."""
        choice = self.choice if self.batch_policy is None else self.batch_policy.choice
        return self._generation % GENERATIONS * CHOICES + choice

    def receive_choice(self, choice: int) -> None:
        """Use the size that rank 0 chose from the next step on, unless sizes have changed since it was sent.

        A rank that has applied its own newer choice already ignores the number, which carries an older one.
        """
        if self._applies_own:
            return
        generation, choice = divmod(choice, CHOICES)
        if generation == self._generation % GENERATIONS and choice < len(self.sizing):
            self.choice = choice

    # decisions

    @property
    def _applies_own(self) -> bool:
        """Whether this rank decides, and its choice takes effect at its own next step.

        Sizes are local to a rank, so no exchange is needed. Where gradients are summed over several ranks, all change
        at one step instead: the choice rides with the gradients of the next one.
        """
        return self.batch_policy is not None and (self._config["exchange"] == "models" or self._config.ranks == 1)

    def _decided(self, decision: BatchDecision) -> Decision:
        if self._applies_own:
            self.choice = decision.action
        return decision.row

    def repeat_decision(self, action: Any) -> None:
        """Take a choice of the run that is replayed, at the step at which it was made."""
        if self.batch_policy is not None:
            self.batch_policy.follow(action)
            if self._applies_own:
                self.choice = action

    @property
    def decides(self) -> bool:
        """Whether this rank chooses sizes."""
        return self.batch_policy is not None

    def decide_after_step(self, loss: float | None, seconds: float) -> Decision | None:
        """Tell the batch policy of a step, and have it decide by the losses of batches where it is due.

        Args:
            loss: of the step's batches on this rank; None where they had no labels.
            seconds: the step took.
        """
        if self.batch_policy is None:
            return None
        by_batches = self._config["reward_loss"] == "train"
        self.batch_policy.observe(loss if by_batches else None, seconds, self._step_choice)
        if not by_batches or not self.batch_policy.is_due(self._config["decide_every"]):
            return None
        return self._decided(self.batch_policy.decide())

    def decide_after_evaluation(self, validation_loss: float | None) -> Decision | None:
        """Have the batch policy decide by the validation split, where it is to."""
        if self.batch_policy is None or validation_loss is None or self._config["reward_loss"] != "validation":
            return None
        if not self.batch_policy.is_due(self._config["decide_every"]):
            return None
        return self._decided(self.batch_policy.decide(validation_loss))

    # changes

    def validate_settings(self, config: RunConfig) -> str:
        """Why batches cannot be as a config has them; empty where they can. The same on all ranks."""
        try:
            self._sizing(config)
            self._check_reward(config)
        except LabError as error:
            return str(error)
        return ""

    def _check_reward(self, config: RunConfig) -> None:
        if config["batch_policy"] != "none" and config["reward_loss"] == "validation" and not self.context.validation:
            raise ConfigError(
                f"reward_loss='validation', and protocol={config.protocol!r} leaves no validation split. "
                "Choose another protocol (such as warm), or reward_loss='train'."
            )

    def apply_settings(self, config: RunConfig) -> None:
        """Apply a config from the next step on."""
        before, self._config = self._config, config
        sizing, old = self._sizing(config), self.sizing
        by_hand = (sizing.shares, sizing.initial) != (old.shares, old.initial)
        self._generation += by_hand
        self.use_sizes(sizing, keeping(config))
        if before["batch_policy"] != config["batch_policy"]:
            self.batch_policy = self._made_batch_policy()
        elif self.batch_policy is not None and by_hand:  # a size it chose, which ranks may not use yet, is replaced
            self.batch_policy.follow(self.choice)
        if self.batch_policy is not None:
            self.batch_policy.rewarded_by(config["reward"])
        if config["reservoir"] and not before["reservoir"]:
            self._measure()

    def _sizing(self, config: RunConfig) -> part_batches.Sizing:
        return part_batches.Sizing.of(config, snapshots=len(self.context.train), candidates=self._candidates)

    # generators and memory

    @property
    def _is_quick(self) -> bool:
        """Whether a step on all nodes need not wait until the first epoch is over: it is short, or nothing is kept."""
        return (
            not self.keeping.on or sum(prepared.rows for prepared in self._largest(part_batches.SNAPSHOT)) <= QUICK_ROWS
        )

    def _measure(self) -> None:
        """Measure whether a step on all nodes fits its memory limit, so that it can stand in for another."""
        if not self.keeping.on:
            return
        limit_bytes = self._config["fallback_memory_gib"] * GIB

        def step() -> None:
            self.tried(part_batches.SNAPSHOT, StepMarks())

        self.stands_in = limit_bytes > 0 and fits_memory(step, limit_bytes, device=self.context.device)

    # state

    def state_dict(self) -> dict[str, Any]:
        """The size that steps have, on the rank that decides what chooses it, and the cached states of own parts."""
        batch_policy = None if self.batch_policy is None else self.batch_policy.state_dict()
        shares = [list(share) for share in self.sizing.shares]
        found = {HYBRID: {"shares": shares, "choice": self.choice, "batch_policy": batch_policy}}
        return {**found, STATES: self._states()} if self._states() else found

    def _states(self) -> dict[int, dict[str, Any]]:
        return {part.number: part.states.state_dict() for part in self.parts if part.states is not None}

    @property
    def at_rest(self) -> bool:
        """Whether a checkpoint without :meth:`carried_state` has all that is restored: no rank's states are missing."""
        return not self._states() or self.context.group.size == 1 or self._config["exchange"] == "models"

    def carried_state(self) -> dict[str, Any]:
        """The cached states of all ranks' parts where ranks step together, which is collective; else rank 0's stay."""
        if self.at_rest:
            return {}
        found, share = {}, len(self.parts)
        for place, part in enumerate(self.parts):
            assert part.states is not None
            for rank, state in enumerate(part.states.gathered(self.context.group)):
                found[rank * share + place] = state
        return {STATES: found}

    def _put_back(self, held: Mapping[str, Any]) -> None:
        if held.get("shares") != [list(share) for share in self.sizing.shares]:
            return
        self.choice = held["choice"]
        state = held["batch_policy"]
        if self.batch_policy is not None and state is not None and state["policy"] == self.batch_policy.policy:
            self.batch_policy.load_state_dict(state)

    def _made_batch_policy(self) -> BatchPolicy | None:
        config = self._config
        if config["batch_policy"] == "none" or self.context.group.rank != 0:
            return None
        return make_batch_policy(
            config["batch_policy"],
            choices=len(self.sizing),
            initial=self.choice,
            seed=config.seed,
            discount=config["discount"],
            epsilon_decay=config["epsilon_decay"],
            epsilon_min=config["epsilon_min"],
            rate=config["agent_rate"],
            reward=config["reward"],
            sizes=[(size.snapshots, size.vertices) for size in self.sizing.sizes[0]],
            settings=config.options["control"],
        )

    def _event(self) -> Event:
        """Sizes, and how batches come about."""
        config, sizing, train = self._config, self.sizing, self.context.train
        capacities = tuple(
            tuple(
                capacity(sizes[choice], snapshots=len(train), vertices=number, actions=len(sizing))
                for sizes, number in zip(sizing.sizes, self._candidates, strict=True)
            )
            for choice in range(len(sizing))
        )
        return HybridFacts(
            sizes=tuple(starmap(SizeFacts, sizing.of_choices())),
            snapshots=len(train),
            first=train.start,
            nodes=self.context.graph.num_nodes,
            candidates=self._candidates,
            choice=self.choice,
            batch_policy=config["batch_policy"],
            reservoir=config["reservoir"],
            stands_in=self.stands_in,
            generators=config["generators"],
            exchange=config["exchange"],
            average_every_s=config["average_every_s"],
            capacities=capacities,
            load_groups=config["load_groups"],
            deviation=self._deviation,
            cache_bytes=sum(part.sequence.part.nbytes for part in self.parts),
        )

    def _measured_deviation(self) -> float | None:
        """How far the loss of a batch is from that of the same targets in the whole graph.

        It is the relative difference for the first batch of the present size, under the present parameters:
        rounding, but for models that batches approximate: DCRNN (state from beyond the batch is cut off) and
        EvolveGCN-H (the best nodes are looked for among the targets). None where the batch has no labels. Gradients are
        changed.
        """
        model, sequence = self.context.model, self.context.sequence
        of = self.parts[0].again(part_batches.Drawn(part_batches.NEW, self.choice, 0))
        run = replace(of.run, states=None)
        own, vertices = float(add_gradients(run)), run.sequence.vertices
        state, read = model.initial_state(sequence.own), []
        with torch.no_grad():
            for t in run.snapshots:
                space = sequence.view(t)
                h, state = model.snapshot(space, space.inputs, state)
                read.append(model.readout(h if vertices is None else h[vertices]))
            whole = float(run.loss(torch.stack(read), run.snapshots, slice(0, run.own)))
        return abs(own - whole) / whole if whole > 0 else None


def build(of: BuildContext) -> HybridBatchStrategy:
    """Hybrid batches of node partitions with copies of their neighbours.

    Raises:
        UnsupportedError: the task needs all nodes at once.
        LabError: the copies, the reservoirs or the cached states do not fit their budgets, or the model has no state
            per node that could be cached.
    """
    assert of.partition is not None
    check_per_vertex(of.task, "with batches of nodes")
    config, graph, settings = of.config, of.sequence.graph, of.sequence.settings
    sequences = cached_sequences(
        graph,
        of.partition,
        of.parts,
        of.model,
        of.train,
        cache_gib=config["cache_gib"],
        settings=settings,
    )
    trained, cached = of.task.trains(), config["batch_state"] == "cached"
    limit_bytes = int(config["batch_state_gib"] * GIB) // len(of.parts)
    states = [StateCache(of.model, each.part, limit_bytes) if cached else None for each in sequences]
    shape = replace(block_shape(of.model.facts, norm=config["norm"]), places=cached)
    run = partial(TargetRun, of.model, task=of.task, loss_at="all")
    loads = vertex_loads(graph, shape.hops)
    parts = []
    for number, sequence, held in zip(of.parts, sequences, states, strict=True):
        own = of.partition.vertices(number)
        groups = load_groups(loads[own], np.flatnonzero(trained[own]), config["load_groups"])
        sampler = TargetSampler(config.seed, number, groups, of.train)
        folder = part_folder(graph, own, sequence.part.reach)
        made = part_batches.PartBatches(sequence, sampler, folder, shape=shape, settings=settings, run=run, states=held)
        parts.append(made)
    sizing = part_batches.Sizing.of(config, snapshots=len(of.train), candidates=candidates(of.partition, of.task))
    return HybridBatchStrategy(of, parts, sizing=sizing, keeping=keeping(config), epoch_batches=config["epoch_batches"])


def candidates(partition: Partition, task: Task) -> list[int]:
    """How many nodes of each part may be targets of batches."""
    trained = task.trains()
    return [int(trained[partition.vertices(part)].sum()) for part in range(partition.parts)]


def keeping(config: RunConfig) -> part_batches.BatchKeeping:
    """What a config has kept of the batches."""
    limit_bytes = int(config["reservoir_gib"] * GIB)
    return part_batches.BatchKeeping(config["reservoir"], limit_bytes, config["generators"], config["reservoir_uses"])
