"""The size of a rank's next batches: fixed, chosen by its controller, or received from rank 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.engine.capabilities import DecisionRow
from dtdg_lab.systems.hybrid_batches.controller import BatchSizeController, make_controller
from dtdg_lab.systems.hybrid_batches.sizes import MAX_CHOICES, SizeChoices

# A choice is sent with the number of earlier changes of sizes: a choice among other sizes is ignored.
GENERATIONS = CHOICES = MAX_CHOICES


class SizeControl:
    """The size of a rank's next batches: fixed, chosen by its controller, or received from rank 0.

    Args:
        config: config of the run.
        sizes: the possible sizes of batches.
        rank: rank of this process.

    Attributes:
        choice: index of the size.
        controller: chooses sizes on rank 0; None on other ranks, and if the size is fixed.
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

        That needs no exchange, since sizes are local to a rank. If several ranks sum gradients, all change at the
        same step instead: the choice is sent with the gradients of the next one.
        """
        return self.controller is not None and (self._config["exchange"] == "models" or self._config.ranks == 1)

    @property
    def requested(self) -> int:
        """The size chosen for all ranks, combined with the number of earlier changes of sizes."""
        choice = self.choice if self.controller is None else self.controller.choice
        return self._generation % GENERATIONS * CHOICES + choice

    def receive(self, requested: int) -> None:
        """Use the size that rank 0 chose from the next step on, unless sizes have changed since it was sent.

        A rank that applies its own choices ignores it, because its own choice is newer.
        """
        if self._applies_own:
            return
        generation, choice = divmod(requested, CHOICES)
        if generation == self._generation % GENERATIONS and choice < len(self._sizes):
            self.choice = choice

    def repeat(self, action: int) -> None:
        """Make a choice of the replayed run, at its step."""
        if self.controller is not None:
            self.controller.follow(action)
            if self._applies_own:
                self.choice = action

    def decide_after_step(self, loss: float | None, seconds: float, step_choice: int) -> DecisionRow | None:
        """Let the controller observe a step, and decide by the batches' losses if a decision is due.

        Args:
            loss: loss of the step's batches on this rank; None without labels.
            seconds: duration of the step.
            step_choice: index of the step's size.
        """
        if self.controller is None:
            return None
        by_batches = self._config["reward_loss"] == "train"
        self.controller.observe(loss if by_batches else None, seconds, step_choice)
        return self._decide(None) if by_batches else None

    def decide_after_evaluation(self, validation_loss: float | None) -> DecisionRow | None:
        """Let the controller decide by the validation loss, if configured and due."""
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
        """Apply a config from the next step on; the choice is reset if sizes change."""
        previous, self._config = self._config, config
        changes_sizes = (sizes.shares, sizes.initial) != (self._sizes.shares, self._sizes.initial)
        self._sizes = sizes
        if changes_sizes:
            self._generation += 1
            self.choice = sizes.initial
        if previous["batch_policy"] != config["batch_policy"]:
            self.controller = self._make_controller()
        elif self.controller is not None and changes_sizes:  # replaces a chosen size that ranks may not use yet
            self.controller.follow(self.choice)
        if self.controller is not None:
            self.controller.set_reward(config["reward"])

    def state_dict(self) -> dict[str, Any]:
        """Return the sizes and the choice, and the controller on the deciding rank."""
        controller = None if self.controller is None else self.controller.state_dict()
        return {"shares": self._shares, "choice": self.choice, "batch_policy": controller}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state dict as far as it matches these sizes and this controller."""
        if state.get("shares") == self._shares:
            self.choice, controller = state["choice"], state["batch_policy"]
            if self.controller is not None and controller and controller["policy"] == self.controller.policy:
                self.controller.load_state_dict(controller)

    @property
    def _shares(self) -> list[list[float]]:
        return [list(share) for share in self._sizes.shares]


def check_reward(config: RunConfig, *, has_validation: bool) -> None:
    """Raise if a controller is rewarded by the validation loss, but there is no validation split.

    Raises:
        ConfigError: the protocol has no validation split.
    """
    if config["batch_policy"] != "none" and config["reward_loss"] == "validation" and not has_validation:
        raise ConfigError(
            f"reward_loss='validation' needs a validation split, but protocol={config.protocol!r} has none. "
            "Choose another protocol (such as warm), or set reward_loss='train'."
        )
