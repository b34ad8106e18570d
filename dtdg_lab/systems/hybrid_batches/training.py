"""Hybrid batches of a run: the sizes they have, who chooses them, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError
from dtdg_lab.distributed.model_averaging import ControlState
from dtdg_lab.engine.strategy import Unmarked
from dtdg_lab.systems.hybrid_batches.batches import capacity
from dtdg_lab.systems.hybrid_batches.policies import BatchAdjuster, BatchDecision, make_adjuster
from dtdg_lab.systems.hybrid_batches.strategy import MOST_CHOICES, SNAPSHOT, HybridBatchStrategy, Sizing
from dtdg_lab.training.layouts import GIB, keeping
from dtdg_lab.training.memory import peak_bytes

HYBRID = "hybrid"  # in the plan of a checkpoint
# a choice rides with the number of changes of sizes before it: what was said of other sizes is not followed
GENERATIONS = CHOICES = MOST_CHOICES


class Hybrid:
    """What the loop does beside steps where batches are hybrid.

    Args:
        layout: that draws the batches.
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
        adjuster: what chooses sizes, on the rank that decides; None where they are set.
    """

    def __init__(
        self,
        layout: HybridBatchStrategy,
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
        self._layout, self._config, self._candidates = layout, config, tuple(candidates)
        self._validation = validation
        self._snapshots, self._leads, self._nodes, self._device = snapshots, leads, nodes, device
        self._generation, self._deviation = 0, cache(deviation)
        self.adjuster = self._made_adjuster()
        self._check_reward(config)
        self._put_back(state.get(HYBRID, {}))
        self.measure()

    def begin(self, step: int) -> None:
        """What is computed next is this step of the run."""
        self._layout.step = step

    @property
    def share(self) -> float:
        """Of all nodes that may be targets, those of this rank's parts."""
        return sum(self._candidates[part.number] for part in self._layout.parts) / sum(self._candidates)

    # what the word says

    @property
    def asked(self) -> int:
        """What the rank that decides wants all to follow."""
        choice = self._layout.choice if self.adjuster is None else self.adjuster.choice
        return self._generation % GENERATIONS * CHOICES + choice

    def follow(self, word: ControlState) -> None:
        """Use the size of a word from the next step on, unless sizes have changed since it was said.

        A rank that has applied its own newer choice already ignores the word, which is the echo of an older one.
        """
        if self._applies_own:
            return
        generation, choice = divmod(word.choice, CHOICES)
        if generation == self._generation % GENERATIONS and choice < len(self._layout.sizing):
            self._layout.choice = choice

    # decisions

    @property
    def _applies_own(self) -> bool:
        """Whether this rank decides, and its choice takes effect at its own next step.

        Sizes are local to a rank, so no exchange is needed. Where gradients are summed over several ranks, all change
        at one step instead: the choice rides with the gradients of the next one.
        """
        return self.adjuster is not None and (self._config["exchange"] == "models" or self._config.ranks == 1)

    def _decided(self, decision: BatchDecision) -> BatchDecision:
        if self._applies_own:
            self._layout.choice = decision.action
        return decision

    def repeat(self, action: int) -> None:
        """Take a choice of the run that is repeated, at the step at which it was made."""
        if self.adjuster is not None:
            self.adjuster.follow(action)
            if self._applies_own:
                self._layout.choice = action

    def after_step(self, loss: float | None, seconds: float, choice: int) -> BatchDecision | None:
        """Tell the adjuster of a step, and have it decide when it is due.

        Args:
            loss: of the step's batches on this rank; None where they had no labels.
            seconds: the step took.
            choice: the size it had.
        """
        if self.adjuster is None:
            return None
        by_batches = self._config["reward_loss"] == "train"
        self.adjuster.observe(loss if by_batches else None, seconds, choice)
        if not by_batches or not self.adjuster.is_due(self._config["decide_every"]):
            return None
        return self._decided(self.adjuster.decide())

    def after_evaluation(self, validation_loss: float | None) -> BatchDecision | None:
        """Have the adjuster decide by the validation split, where it is to."""
        if self.adjuster is None or validation_loss is None or self._config["reward_loss"] != "validation":
            return None
        if not self.adjuster.is_due(self._config["decide_every"]):
            return None
        return self._decided(self.adjuster.decide(validation_loss))

    @property
    def choice(self) -> int:
        """The size that steps have now."""
        return self._layout.choice

    # changes

    def validate_settings(self, config: RunConfig) -> str:
        """Why batches cannot be as a config has them; empty where they can. The same on all ranks."""
        try:
            self._sizing(config)
            self._check_reward(config)
        except LabError as error:
            return str(error)
        return ""

    def too_small(self) -> str:
        """Why the reservoirs of this rank hold nothing of some size; empty where they hold what they may."""
        try:
            self._layout.check_fits()
        except ConfigError as error:
            return str(error)
        return ""

    def _check_reward(self, config: RunConfig) -> None:
        if config["adjuster"] != "none" and config["reward_loss"] == "validation" and not self._validation:
            raise ConfigError(
                f"reward_loss='validation', and protocol={config.protocol!r} leaves no validation split. "
                "Choose another "
                "protocol (such as warm), or reward_loss='train'."
            )

    def apply_settings(self, config: RunConfig) -> None:
        """Have what a config asks for, from the next step on."""
        before, self._config = self._config, config
        sizing, old = self._sizing(config), self._layout.sizing
        by_hand = (sizing.shares, sizing.initial) != (old.shares, old.initial)
        self._generation += by_hand
        self._layout.apply_settings(sizing, keeping(config))
        if before["adjuster"] != config["adjuster"]:
            self.adjuster = self._made_adjuster()
        elif self.adjuster is not None and by_hand:  # what it chose, and ranks may not follow yet, is overruled
            self.adjuster.follow(self._layout.choice)
        if self.adjuster is not None:
            self.adjuster.rewarded_by(config["reward"])
        if config["reservoir"] and not before["reservoir"]:
            self.measure()

    def _sizing(self, config: RunConfig) -> Sizing:
        return Sizing.of(config, snapshots=len(self._snapshots), candidates=self._candidates)

    # generators and memory

    def open(self) -> None:
        """Begin to generate batches, where they are kept."""
        self._layout.open()

    def close(self) -> None:
        """End that."""
        self._layout.close()

    def measure(self) -> None:
        """See whether a step on all nodes takes no more memory than it may, so that it can stand in for another."""
        layout = self._layout
        if not layout.keeping.on:
            return
        limit_bytes = self._config["stand_in_gib"] * GIB

        def step() -> None:
            layout.tried(SNAPSHOT, Unmarked())

        try:
            layout.stands_in = limit_bytes > 0 and peak_bytes(step, device=self._device) <= limit_bytes
        except torch.OutOfMemoryError:  # it may not, on this device
            layout.stands_in = False

    # state

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint's plan: the size that steps have, and on the rank that decides what chooses it."""
        adjuster = None if self.adjuster is None else self.adjuster.state_dict()
        shares = [list(share) for share in self._layout.sizing.shares]
        return {HYBRID: {"shares": shares, "choice": self._layout.choice, "adjuster": adjuster}}

    def _put_back(self, held: Mapping[str, Any]) -> None:
        if held.get("shares") != [list(share) for share in self._layout.sizing.shares]:
            return
        self._layout.choice = held["choice"]
        state = held["adjuster"]
        if self.adjuster is not None and state is not None and state["policy"] == self.adjuster.policy:
            self.adjuster.load_state_dict(state)

    def _made_adjuster(self) -> BatchAdjuster | None:
        config = self._config
        if config["adjuster"] == "none" or not self._leads:
            return None
        return make_adjuster(
            config["adjuster"],
            choices=len(self._layout.sizing),
            initial=self._layout.choice,
            seed=config.seed,
            discount=config["discount"],
            epsilon_decay=config["epsilon_decay"],
            epsilon_min=config["epsilon_min"],
            rate=config["agent_rate"],
            reward=config["reward"],
            sizes=[(size.snapshots, size.vertices) for size in self._layout.sizing.sizes[0]],
        )

    # what is told

    def to_dict(self) -> dict[str, Any]:
        """The event ``hybrid``: sizes and how batches come about."""
        layout, config, sizing = self._layout, self._config, self._layout.sizing
        capacities = [
            [
                capacity(sizes[choice], snapshots=len(self._snapshots), vertices=number, actions=len(sizing))
                for sizes, number in zip(sizing.sizes, self._candidates, strict=True)
            ]
            for choice in range(len(sizing))
        ]
        return {
            "sizes": sizing.to_dict(),
            "shares": [list(share) for share in sizing.shares],
            "snapshots": len(self._snapshots),
            "first": self._snapshots.start,
            "nodes": self._nodes,
            "candidates": list(self._candidates),
            "choice": layout.choice,
            "adjuster": config["adjuster"],
            "reservoir": config["reservoir"],
            "stands_in": layout.stands_in,
            "generators": config["generators"],
            "exchange": config["exchange"],
            "average_every_s": config["average_every_s"],
            "capacities": capacities,
            "load_groups": config["load_groups"],
            "deviation": self._deviation(),
            "cache_bytes": sum(part.sequence.part.nbytes for part in layout.parts),
        }
