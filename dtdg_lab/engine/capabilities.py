"""What a strategy may do beyond training: small interfaces that it inherits beside :class:`Strategy`.

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
    from dtdg_lab.engine.strategy import RecordRows, Strategy
    from dtdg_lab.network.emulated_network import Slowed
    from dtdg_lab.records.events import Event

RECORDED_PLAN = "recorded_plan"  # in the state of a strategy: the plan that a replayed run had there


class DecisionRow(NamedTuple):
    """A row of the table ``decisions``, without step and epoch.

    Attributes:
        policy: what decided.
        state: its inputs.
        values: what it knows of each choice.
        action: the choice.
        reward: of the choice before; None where there is none yet.
    """

    policy: str
    state: Any
    values: Any
    action: Any
    reward: float | None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A step that is over, as far as a strategy may learn from it.

    Attributes:
        seconds: duration of the whole step.
        communicate_s: duration of the exchange of gradients, without waiting.
        energy_j: joules of this rank, where they are known.
        rows: what the strategy recorded of the step, by table.
    """

    seconds: float
    communicate_s: float
    energy_j: float | None
    rows: RecordRows


class Reconfigurable(ABC):
    """Its live settings may change between two steps.

    Attributes:
        fails_by_rank: whether :meth:`validate_settings` may refuse on some ranks only.
    """

    fails_by_rank: ClassVar[bool] = False

    def validate_settings(self, config: RunConfig) -> str:
        """Return the reason why it cannot train under other live settings; empty where it can."""
        return ""

    @abstractmethod
    def apply_settings(self, config: RunConfig) -> None:
        """Train under other live settings from the next step on."""

    def settings_events(self, changes: Collection[str]) -> list[Event]:
        """Return events that record the effect of changed settings."""
        return []


class Adaptive(ABC):
    """Its batches depend on the number of the step, and on a choice that rank 0 may make while training."""

    @abstractmethod
    def on_step_start(self, step: int) -> None:
        """Prepare to compute this step of the run."""

    @abstractmethod
    def replay_draws(self, batches: Mapping[tuple[int, int], Any]) -> None:
        """Use the batches of the replayed run, by step and part."""

    @property
    @abstractmethod
    def requested_choice(self) -> int:
        """The number that rank 0 sends with its control state, which all ranks then receive."""

    @abstractmethod
    def receive_choice(self, choice: int) -> None:
        """Use what rank 0 chose, from the next step on."""

    @property
    @abstractmethod
    def decides(self) -> bool:
        """Whether this rank makes decisions, which are recorded in ``decisions``."""

    @abstractmethod
    def decide_after_step(self, loss: float | None, seconds: float) -> DecisionRow | None:
        """Return the decision after a step; None where none is due.

        Args:
            loss: of the step on this rank; None where it had no labels.
            seconds: duration of the step.
        """

    @abstractmethod
    def decide_after_evaluation(self, validation_loss: float | None) -> DecisionRow | None:
        """Return the decision after an evaluation of the validation split; None where none is due."""

    @abstractmethod
    def repeat_decision(self, action: Any) -> None:
        """Make the decision of the replayed run."""


class Tunable(ABC):
    """Its settings are tuned at the end of an epoch."""

    @abstractmethod
    def tune(self, epoch: int, config: RunConfig, components: Any) -> tuple[DecisionRow, dict[str, Any]] | None:
        """Return a tuner's decision and the settings that it changes; None where none is due. Collective.

        Every rank returns the same.

        Args:
            epoch: the one that ended.
            config: the present settings.
            components: what trains (:class:`dtdg_lab.training.build.RunComponents`).
        """


class Replannable(ABC):
    """It may adopt another plan at the end of an epoch."""

    @property
    @abstractmethod
    def epoch_changes(self) -> dict[str, Any]:
        """The settings for whose sake :meth:`on_epoch_end` may change the plan; empty where it never does."""

    @abstractmethod
    def on_epoch_end(self) -> tuple[str, ...]:
        """Adopt another plan where the epoch that ended asks for one; collective.

        Returns:
            The kinds of plan events that changed.

        Raises:
            PlanError: another plan was due and could not be made; the old one stays.
        """

    @abstractmethod
    def adopt_plan(self, recorded: Mapping[str, Any]) -> tuple[str, ...]:
        """Use the plan of the replayed run; return the kinds of plan events that changed."""


class Carries(ABC):
    """It carries state from one step to the next, beside the parameters."""

    @property
    @abstractmethod
    def at_rest(self) -> bool:
        """Whether the next step needs nothing of the last one but the parameters."""

    @abstractmethod
    def carried_state(self) -> dict[str, Any]:
        """Return the state that all ranks carry to the next step, for a checkpoint; collective."""


class ObservesSteps(ABC):
    """It learns from the time and energy of steps."""

    @abstractmethod
    def on_step_end(self, outcome: StepOutcome) -> None:
        """Take in a step that is over and recorded."""


class DescribesMemory(ABC):
    """Its plan events say how much memory a step takes.

    Attributes:
        probed_plans: kinds of plan events that are reported again once memory has been probed.
    """

    probed_plans: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def probes_after(self, previous: Strategy) -> bool:
        """Return whether peak memory is measured again after this strategy has replaced another during a run."""


class RunsInBackground(ABC):
    """Something of it runs beside training, until ``close``."""

    @abstractmethod
    def open(self) -> None:
        """Start it."""


class Fetched(NamedTuple):
    """Rows of features that a step read from other ranks.

    Attributes:
        received_bytes: bytes received for training itself.
        wait_s: seconds that the step waited for them.
    """

    received_bytes: int
    wait_s: float


class ServesFeatures(ABC):
    """Processes of its own serve features to other ranks, over links that congestion may slow."""

    @property
    @abstractmethod
    def children(self) -> tuple[int, ...]:
        """Numbers of the processes that work for this rank, whose energy counts as its own."""

    @abstractmethod
    def slowable_links(self, group: Group) -> Slowed:
        """Return the links that emulated congestion slows; collective."""

    @abstractmethod
    def fetched(self, rows: RecordRows) -> Fetched:
        """Return what a step fetched, from the rows recorded of it."""
