"""Optional capabilities of a strategy: small interfaces that it inherits beside :class:`Strategy`.

The trainer asks ``isinstance(strategy, Tunable)`` and so on, and leaves out what a strategy does not inherit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.energy.readers import Reading
    from dtdg_lab.engine.strategy import ReadRows, Strategy
    from dtdg_lab.network.emulated_network import SlowableLinks
    from dtdg_lab.records.events import Event

RECORDED_PLAN = "recorded_plan"  # key in a strategy's state: the plan of the replayed run


class DecisionRow(NamedTuple):
    """A row of the table ``decisions``, without step and epoch.

    Attributes:
        policy: name of the policy.
        state: its inputs.
        values: its estimate of each action.
        action: the chosen action.
        reward: reward of the previous action; None before the first.
    """

    policy: str
    state: Any
    values: Any
    action: Any
    reward: float | None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """Measurements of a finished step.

    Attributes:
        step: its number.
        seconds: duration of the whole step.
        communicate_s: duration of the exchange of gradients, without waiting.
        readings: energy of this rank's devices that became known in the step; empty unless the strategy reads energy.
        rows: rows that the strategy recorded in the step, by table.
    """

    step: int
    seconds: float
    communicate_s: float
    readings: tuple[Reading, ...]
    rows: ReadRows


class Reconfigurable(ABC):
    """A strategy whose live settings may change between two steps.

    Attributes:
        fails_by_rank: whether :meth:`validate_settings` may refuse on some ranks only.
    """

    fails_by_rank: ClassVar[bool] = False

    def validate_settings(self, config: RunConfig) -> str:
        """Return why the strategy cannot train with these live settings; empty if it can."""
        return ""

    @abstractmethod
    def apply_settings(self, config: RunConfig) -> None:
        """Use these live settings from the next step on."""

    def settings_events(self, changes: Collection[str]) -> list[Event]:
        """Return events that record the effect of changed settings."""
        return []


class Adaptive(ABC):
    """A strategy whose batches depend on the step number and on choices that rank 0 makes during training."""

    @abstractmethod
    def on_step_start(self, step: int) -> None:
        """Prepare to compute this step of the run."""

    @abstractmethod
    def replay_draws(self, batches: Mapping[tuple[int, int], Any]) -> None:
        """Use the batches of the replayed run, by step and part."""

    @property
    @abstractmethod
    def requested_choice(self) -> int:
        """The choice that rank 0 broadcasts with its control state."""

    @abstractmethod
    def receive_choice(self, choice: int) -> None:
        """Use rank 0's choice from the next step on."""

    @property
    @abstractmethod
    def decides(self) -> bool:
        """Whether this rank makes decisions, which are recorded in ``decisions``."""

    @abstractmethod
    def decide_after_step(self, loss: float | None, seconds: float, *, steps_ago: int = 0) -> DecisionRow | None:
        """Return the decision after a step; None if none is due.

        Args:
            loss: loss of the step on this rank; None if it had no labels.
            seconds: duration of the step.
            steps_ago: steps made since; 1 on a GPU, whose times and losses are read one step later.
        """

    @abstractmethod
    def decide_after_evaluation(self, validation_loss: float | None) -> DecisionRow | None:
        """Return the decision after an evaluation of the validation split; None if none is due."""

    @abstractmethod
    def repeat_decision(self, action: Any) -> None:
        """Make the decision of the replayed run."""


class Tunable(ABC):
    """A strategy whose settings are tuned at the end of an epoch."""

    @abstractmethod
    def tune(self, epoch: int, config: RunConfig, components: Any) -> tuple[DecisionRow, dict[str, Any]] | None:
        """Return a tuner's decision and the settings that it changes; None if none is due. Collective.

        Every rank returns the same.

        Args:
            epoch: the epoch that ended.
            config: the current settings.
            components: the run's :class:`dtdg_lab.training.build.RunComponents`.
        """


class Replannable(ABC):
    """A strategy that may adopt another plan at the end of an epoch."""

    @property
    @abstractmethod
    def epoch_changes(self) -> dict[str, Any]:
        """The settings that let :meth:`on_epoch_end` change the plan; empty if it never does."""

    @abstractmethod
    def on_epoch_end(self) -> tuple[str, ...]:
        """Adopt another plan if the finished epoch calls for one; collective.

        Returns:
            The kinds of plan events that changed.

        Raises:
            PlanError: a new plan was due but could not be built; the old one stays.
        """

    @abstractmethod
    def adopt_plan(self, recorded: Mapping[str, Any]) -> tuple[str, ...]:
        """Use the plan of the replayed run; return the kinds of plan events that changed."""


class Carries(ABC):
    """A strategy that carries state from step to step, beside the parameters."""

    @property
    @abstractmethod
    def at_rest(self) -> bool:
        """Whether the next step needs only the parameters, no carried state."""

    @abstractmethod
    def carried_state(self) -> dict[str, Any]:
        """Return the state that all ranks carry to the next step, for a checkpoint; collective."""


class ObservesSteps(ABC):
    """A strategy that learns from the time and energy of its steps."""

    @property
    def reads_energy(self) -> bool:
        """Whether its outcomes have readings of energy, which costs a query of the counters in each step."""
        return False

    @abstractmethod
    def on_step_end(self, outcome: StepOutcome) -> None:
        """Learn from a finished, recorded step."""


class DescribesMemory(ABC):
    """A strategy whose plan events report the memory of a step.

    Attributes:
        probed_plans: kinds of plan events to report again after memory has been probed.
    """

    probed_plans: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def probes_after(self, previous: Strategy) -> bool:
        """Return whether to measure peak memory again after this strategy replaced another one during a run."""


class RunsInBackground(ABC):
    """A strategy with background work, which runs until ``close``."""

    @abstractmethod
    def open(self) -> None:
        """Start the background work."""


class Fetched(NamedTuple):
    """Feature rows that a step fetched from other ranks.

    Attributes:
        received_bytes: bytes received for training itself.
        wait_s: seconds that the step waited for them.
    """

    received_bytes: int
    wait_s: float


class ServesFeatures(ABC):
    """A strategy whose own processes serve features to other ranks, over links that congestion may slow."""

    @property
    @abstractmethod
    def children(self) -> tuple[int, ...]:
        """Process ids of this rank's helpers; their energy counts for the rank."""

    @abstractmethod
    def slowable_links(self, group: Group) -> SlowableLinks:
        """Return the links that emulated congestion slows; collective."""

    @abstractmethod
    def fetched(self, rows: ReadRows) -> Fetched:
        """Return the features that a step fetched, computed from its recorded rows."""
