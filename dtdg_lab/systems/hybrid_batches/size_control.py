"""SizeControl: the size of a rank's next batches, as its controller or rank 0 chose it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.engine.capabilities import DecisionRow
from dtdg_lab.systems.hybrid_batches.controller import BatchSizeController, make_controller
from dtdg_lab.systems.hybrid_batches.sizes import MAX_CHOICES, SizeChoices

# a choice is sent with the number of changes of sizes before it: a choice among other sizes is not followed
GENERATIONS = CHOICES = MAX_CHOICES


class SizeControl:
    """The size of a rank's next batches: fixed, chosen by its controller, or received from rank 0.

    Args:
        config: of the run.
        sizes: that batches may have.
        rank: of this process.

    Attributes:
        choice: index of the size.
        controller: chooses sizes, on rank 0; None elsewhere and where the size is fixed.
    """

    def __init__(self, config: RunConfig, sizes: SizeChoices, *, rank: int) -> None:
        self._config, self._sizes, self._rank = config, sizes, rank
        self.choice, self._generation = sizes.initial, 0
        self.controller = self._make_controller()

    def _make_controller(self) -> BatchSizeController | None:
        config = self._config
        if config["batch_policy"] == "none" or self._rank != 0:
            return None
        return make_controller(
            config["batch_policy"],
            choices=len(self._sizes),
            initial=self.choice,
            seed=config.seed,
            discount=config["discount"],
            epsilon_decay=config["epsilon_decay"],
            epsilon_min=config["epsilon_min"],
            rate=config["agent_rate"],
            reward=config["reward"],
            sizes=[(size.snapshots, size.vertices) for size in self._sizes.sizes[0]],
            settings=config.options["control"],
        )

    @property
    def _applies_own(self) -> bool:
        """True if this rank decides, and its choice takes effect at its own next step.

        Sizes are local to a rank, so no exchange is needed. Where gradients are summed over several ranks, all change
        at one step instead: the choice is sent with the gradients of the next one.
        """
        return self.controller is not None and (self._config["exchange"] == "models" or self._config.ranks == 1)

    @property
    def requested(self) -> int:
        """The size that the rank which decides wants on all ranks, with the number of changes of sizes before it."""
        choice = self.choice if self.controller is None else self.controller.choice
        return self._generation % GENERATIONS * CHOICES + choice

    def receive(self, requested: int) -> None:
        """Use the size that rank 0 chose from the next step on, unless sizes have changed since it was sent.

        A rank that has applied its own newer choice already ignores the number, which carries an older one.
        """
        if self._applies_own:
            return
        generation, choice = divmod(requested, CHOICES)
        if generation == self._generation % GENERATIONS and choice < len(self._sizes):
            self.choice = choice

    def repeat(self, action: int) -> None:
        """Make a choice of the run that is replayed, at the step at which it was made."""
        if self.controller is not None:
            self.controller.follow(action)
            if self._applies_own:
                self.choice = action

    def decide_after_step(self, loss: float | None, seconds: float, step_choice: int) -> DecisionRow | None:
        """Let the controller observe a step, and decide by the losses of batches where it is due.

        Args:
            loss: of the step's batches on this rank; None where they had no labels.
            seconds: the step took.
            step_choice: index of the step's size.
        """
        if self.controller is None:
            return None
        by_batches = self._config["reward_loss"] == "train"
        self.controller.observe(loss if by_batches else None, seconds, step_choice)
        return self._decide(None) if by_batches else None

    def decide_after_evaluation(self, validation_loss: float | None) -> DecisionRow | None:
        """Let the controller decide by the validation split, where it is to and is due."""
        if validation_loss is None or self._config["reward_loss"] != "validation":
            return None
        return self._decide(validation_loss)

    def _decide(self, loss: float | None) -> DecisionRow | None:
        if self.controller is None or not self.controller.is_due(self._config["decide_every"]):
            return None
        decision = self.controller.decide(loss)
        if self._applies_own:
            self.choice = decision.action
        return decision

    def apply_settings(self, config: RunConfig, sizes: SizeChoices) -> None:
        """Apply a config from the next step on; the choice restarts where sizes change."""
        previous, self._config = self._config, config
        changes_sizes = (sizes.shares, sizes.initial) != (self._sizes.shares, self._sizes.initial)
        self._sizes = sizes
        if changes_sizes:
            self._generation += 1
            self.choice = sizes.initial
        if previous["batch_policy"] != config["batch_policy"]:
            self.controller = self._make_controller()
        elif self.controller is not None and changes_sizes:  # a size it chose, which ranks may not use yet, is replaced
            self.controller.follow(self.choice)
        if self.controller is not None:
            self.controller.rewarded_by(config["reward"])

    def state_dict(self) -> dict[str, Any]:
        """Return the size of steps, and the controller on the rank that decides."""
        controller = None if self.controller is None else self.controller.state_dict()
        return {"shares": self._shares, "choice": self.choice, "batch_policy": controller}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, as far as it fits these sizes and this controller."""
        if state.get("shares") == self._shares:
            self.choice, controller = state["choice"], state["batch_policy"]
            if self.controller is not None and controller and controller["policy"] == self.controller.policy:
                self.controller.load_state_dict(controller)

    @property
    def _shares(self) -> list[list[float]]:
        return [list(share) for share in self._sizes.shares]


def check_reward(config: RunConfig, *, has_validation: bool) -> None:
    """Raise if a controller is to be rewarded by a validation split that does not exist.

    Raises:
        ConfigError: the protocol leaves none.
    """
    if config["batch_policy"] != "none" and config["reward_loss"] == "validation" and not has_validation:
        raise ConfigError(
            f"reward_loss='validation', and protocol={config.protocol!r} leaves no validation split. "
            "Choose another protocol (such as warm), or reward_loss='train'."
        )
