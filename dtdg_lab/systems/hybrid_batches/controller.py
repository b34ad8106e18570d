"""Hybrid batches of a run: the sizes they have, who chooses them, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import starmap
from typing import TYPE_CHECKING, Any

import torch

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError
from dtdg_lab.core.events import Event
from dtdg_lab.core.plans import Partition
from dtdg_lab.engine.graph_view import DeviceSequence
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.engine.target_batches import TargetRun, add_gradients
from dtdg_lab.models.base import DynamicModel, run_straight
from dtdg_lab.systems.hybrid_batches.batches import capacity
from dtdg_lab.systems.hybrid_batches.part_batches import MOST_CHOICES, NEW, SNAPSHOT, BatchKeeping, Drawn, Sizing
from dtdg_lab.systems.hybrid_batches.policies import BatchDecision, BatchPolicy, make_batch_policy
from dtdg_lab.tasks.base import Task
from dtdg_lab.training.memory import peak_bytes

if TYPE_CHECKING:
    from dtdg_lab.systems.hybrid_batches.strategy import HybridBatchStrategy

GIB = 1 << 30
HYBRID = "hybrid"  # in the plan of a checkpoint
# a choice rides with the number of changes of sizes before it: what was said of other sizes is not followed
GENERATIONS = CHOICES = MOST_CHOICES


class BatchController:
    """What the loop does beside steps where batches are hybrid.

    Args:
        strategy: that draws the batches.
        config: the run's settings.
        candidates: nodes that may be targets, of each of all P parts.
        snapshots: the training split.
        validation: the validation split.
        leads: whether this rank decides; one does.
        nodes: N.
        device: where this rank computes.
        state: of an earlier one, from a checkpoint, to be gone on with as far as it fits.
        deviation: measures how far a batch's loss is from that of its targets in the whole graph.

    Attributes:
        batch_policy: what chooses sizes, on the rank that decides; None where they are set.
    """

    def __init__(
        self,
        strategy: HybridBatchStrategy,
        config: RunConfig,
        *,
        candidates: Sequence[int],
        snapshots: range,
        validation: range,
        leads: bool,
        nodes: int,
        device: str,
        state: Mapping[str, Any],
        deviation: Callable[[], float | None],
    ) -> None:
        self._strategy, self._config, self._candidates = strategy, config, tuple(candidates)
        self._validation = validation
        self._snapshots, self._leads, self._nodes, self._device = snapshots, leads, nodes, device
        self._generation, self._deviation = 0, cache(deviation)
        self.batch_policy = self._made_batch_policy()
        self._check_reward(config)
        self._put_back(state.get(HYBRID, {}))
        self.measure()

    @property
    def share(self) -> float:
        """Of all nodes that may be targets, those of this rank's parts."""
        return sum(self._candidates[part.number] for part in self._strategy.parts) / sum(self._candidates)

    # what the word says

    @property
    def asked(self) -> int:
        """What the rank that decides wants all to follow."""
        choice = self._strategy.choice if self.batch_policy is None else self.batch_policy.choice
        return self._generation % GENERATIONS * CHOICES + choice

    def receive(self, number: int) -> None:
        """Use the size of a control state from the next step on, unless sizes have changed since it was sent.

        A rank that has applied its own newer choice already ignores the number, which carries an older one.
        """
        if self._applies_own:
            return
        generation, choice = divmod(number, CHOICES)
        if generation == self._generation % GENERATIONS and choice < len(self._strategy.sizing):
            self._strategy.choice = choice

    # decisions

    @property
    def _applies_own(self) -> bool:
        """Whether this rank decides, and its choice takes effect at its own next step.

        Sizes are local to a rank, so no exchange is needed. Where gradients are summed over several ranks, all change
        at one step instead: the choice rides with the gradients of the next one.
        """
        return self.batch_policy is not None and (self._config["exchange"] == "models" or self._config.ranks == 1)

    def _decided(self, decision: BatchDecision) -> BatchDecision:
        if self._applies_own:
            self._strategy.choice = decision.action
        return decision

    def repeat(self, action: int) -> None:
        """Take a choice of the run that is repeated, at the step at which it was made."""
        if self.batch_policy is not None:
            self.batch_policy.follow(action)
            if self._applies_own:
                self._strategy.choice = action

    def after_step(self, loss: float | None, seconds: float, choice: int) -> BatchDecision | None:
        """Tell the batch policy of a step, and have it decide when it is due.

        Args:
            loss: of the step's batches on this rank; None where they had no labels.
            seconds: the step took.
            choice: the size it had.
        """
        if self.batch_policy is None:
            return None
        by_batches = self._config["reward_loss"] == "train"
        self.batch_policy.observe(loss if by_batches else None, seconds, choice)
        if not by_batches or not self.batch_policy.is_due(self._config["decide_every"]):
            return None
        return self._decided(self.batch_policy.decide())

    def after_evaluation(self, validation_loss: float | None) -> BatchDecision | None:
        """Have the batch policy decide by the validation split, where it is to."""
        if self.batch_policy is None or validation_loss is None or self._config["reward_loss"] != "validation":
            return None
        if not self.batch_policy.is_due(self._config["decide_every"]):
            return None
        return self._decided(self.batch_policy.decide(validation_loss))

    @property
    def choice(self) -> int:
        """The size that steps have now."""
        return self._strategy.choice

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
        if config["batch_policy"] != "none" and config["reward_loss"] == "validation" and not self._validation:
            raise ConfigError(
                f"reward_loss='validation', and protocol={config.protocol!r} leaves no validation split. "
                "Choose another "
                "protocol (such as warm), or reward_loss='train'."
            )

    def apply_settings(self, config: RunConfig) -> None:
        """Have what a config asks for, from the next step on."""
        before, self._config = self._config, config
        sizing, old = self._sizing(config), self._strategy.sizing
        by_hand = (sizing.shares, sizing.initial) != (old.shares, old.initial)
        self._generation += by_hand
        self._strategy.use_sizes(sizing, keeping(config))
        if before["batch_policy"] != config["batch_policy"]:
            self.batch_policy = self._made_batch_policy()
        elif self.batch_policy is not None and by_hand:  # what it chose, and ranks may not follow yet, is overruled
            self.batch_policy.follow(self._strategy.choice)
        if self.batch_policy is not None:
            self.batch_policy.rewarded_by(config["reward"])
        if config["reservoir"] and not before["reservoir"]:
            self.measure()

    def _sizing(self, config: RunConfig) -> Sizing:
        return Sizing.of(config, snapshots=len(self._snapshots), candidates=self._candidates)

    # generators and memory

    def measure(self) -> None:
        """See whether a step on all nodes takes no more memory than it may, so that it can stand in for another."""
        strategy = self._strategy
        if not strategy.keeping.on:
            return
        limit_bytes = self._config["fallback_memory_gib"] * GIB

        def step() -> None:
            strategy.tried(SNAPSHOT, StepMarks())

        try:
            strategy.stands_in = limit_bytes > 0 and peak_bytes(step, device=self._device) <= limit_bytes
        except torch.OutOfMemoryError:  # it may not, on this device
            strategy.stands_in = False

    # state

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint's plan: the size that steps have, and on the rank that decides what chooses it."""
        batch_policy = None if self.batch_policy is None else self.batch_policy.state_dict()
        shares = [list(share) for share in self._strategy.sizing.shares]
        return {HYBRID: {"shares": shares, "choice": self._strategy.choice, "batch_policy": batch_policy}}

    def _put_back(self, held: Mapping[str, Any]) -> None:
        if held.get("shares") != [list(share) for share in self._strategy.sizing.shares]:
            return
        self._strategy.choice = held["choice"]
        state = held["batch_policy"]
        if self.batch_policy is not None and state is not None and state["policy"] == self.batch_policy.policy:
            self.batch_policy.load_state_dict(state)

    def _made_batch_policy(self) -> BatchPolicy | None:
        config = self._config
        if config["batch_policy"] == "none" or not self._leads:
            return None
        return make_batch_policy(
            config["batch_policy"],
            choices=len(self._strategy.sizing),
            initial=self._strategy.choice,
            seed=config.seed,
            discount=config["discount"],
            epsilon_decay=config["epsilon_decay"],
            epsilon_min=config["epsilon_min"],
            rate=config["agent_rate"],
            reward=config["reward"],
            sizes=[(size.snapshots, size.vertices) for size in self._strategy.sizing.sizes[0]],
        )

    # events

    def event(self) -> Event:
        """Sizes, and how batches come about."""
        from dtdg_lab.systems.hybrid_batches.charts import HybridFacts, SizeFacts

        strategy, config, sizing = self._strategy, self._config, self._strategy.sizing
        capacities = tuple(
            tuple(
                capacity(sizes[choice], snapshots=len(self._snapshots), vertices=number, actions=len(sizing))
                for sizes, number in zip(sizing.sizes, self._candidates, strict=True)
            )
            for choice in range(len(sizing))
        )
        return HybridFacts(
            sizes=tuple(starmap(SizeFacts, sizing.of_choices())),
            snapshots=len(self._snapshots),
            first=self._snapshots.start,
            nodes=self._nodes,
            candidates=tuple(self._candidates),
            choice=strategy.choice,
            batch_policy=config["batch_policy"],
            reservoir=config["reservoir"],
            stands_in=strategy.stands_in,
            generators=config["generators"],
            exchange=config["exchange"],
            average_every_s=config["average_every_s"],
            capacities=capacities,
            load_groups=config["load_groups"],
            deviation=self._deviation(),
            cache_bytes=sum(part.sequence.part.nbytes for part in strategy.parts),
        )


def candidates(partition: Partition, task: Task) -> list[int]:
    """How many nodes of each part may be targets of batches."""
    trained = task.trains()
    return [int(trained[partition.vertices(part)].sum()) for part in range(partition.parts)]


def keeping(config: RunConfig) -> BatchKeeping:
    """What a config has kept of the batches."""
    limit_bytes = int(config["reservoir_gib"] * GIB)
    return BatchKeeping(config["reservoir"], limit_bytes, config["generators"], config["reservoir_uses"])


# How far the loss of a batch is from that of the same targets in the whole graph.


def batch_deviation(
    strategy: HybridBatchStrategy, model: DynamicModel, task: Task, sequence: DeviceSequence
) -> float | None:
    """The relative difference for the first batch of the present size, under the present parameters.

    Rounding, but for models that batches approximate: DCRNN (state from beyond the batch is cut off) and EvolveGCN-H
    (the best nodes are looked for among the targets). None where the batch has no labels. Gradients are changed.

    Args:
        strategy: that draws batches.
        model: as it is.
        task: what is predicted.
        sequence: the whole graph.
    """
    of = strategy.parts[0].again(Drawn(NEW, strategy.choice, 0))
    run = TargetRun(model, of.sequence, task, of.batch.snapshots, "all")
    own, vertices = float(add_gradients(run)), of.sequence.vertices
    state, read = model.initial_state(sequence.own), []
    with torch.no_grad():
        for t in run.snapshots:
            space = sequence.view(t)
            h, state = run_straight(model.snapshot(space, space.inputs, state))
            read.append(model.readout(h if vertices is None else h[vertices]))
        whole = float(run.loss(torch.stack(read), run.snapshots, slice(0, run.own)))
    return abs(own - whole) / whole if whole > 0 else None
