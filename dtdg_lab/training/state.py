"""The current state of a rank's training, shared by all components of the trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.averager import ControlState
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.capabilities import Adaptive, Reconfigurable, RunsInBackground, ServesFeatures
from dtdg_lab.engine.strategy import Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.best_model import BestModel
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.compute_choice import COMPUTE
from dtdg_lab.training.live_settings import LiveSettings
from dtdg_lab.training.position import Position
from dtdg_lab.training.resource_monitor import ResourceMonitor


@dataclass(slots=True)
class TrainingState:
    """Components, settings and position of a rank.

    Attributes:
        graph: the data, the same on all ranks.
        group: the processes.
        device: device of this rank.
        resource_monitor: memory and energy of this rank.
        components: model, optimizer, strategy and so on; a change of epoch settings replaces them.
        settings: the live settings and the waiting requests.
        position: the next epoch, iteration and step.
        save_requested: whether a request asks for a checkpoint in its own file.
        best: the model with the lowest validation loss, on rank 0 of a run with ``test_model="best"``; None elsewhere.
    """

    graph: DynamicGraph
    group: Group
    device: str
    resource_monitor: ResourceMonitor
    components: RunComponents
    settings: LiveSettings
    position: Position
    save_requested: bool = False
    best: BestModel | None = None

    def __post_init__(self) -> None:
        self.resource_monitor.children = self._children

    @property
    def config(self) -> RunConfig:
        """The current settings."""
        return self.settings.config

    @property
    def strategy(self) -> Strategy:
        """The current strategy."""
        return self.components.strategy

    @property
    def synchronous(self) -> bool:
        """Whether all ranks make every step together; else they average their models periodically."""
        return bool(self.components.config["exchange"] == "gradients")

    @property
    def has_epochs(self) -> bool:
        """Whether there are epochs left."""
        return self.position.epoch < self.config.epochs

    @property
    def is_last_epoch_over(self) -> bool:
        """Whether no epoch is left, including the waiting requests."""
        return self.position.epoch >= self.settings.waiting.get("epochs", self.config.epochs)

    @property
    def control_state(self) -> ControlState:
        """The control state that this rank follows."""
        return ControlState(self.settings.version, self.requested_choice)

    @property
    def requested_choice(self) -> int:
        """The choice that this rank's strategy requests; only rank 0's counts."""
        return self.strategy.requested_choice if isinstance(self.strategy, Adaptive) else 0

    def apply_settings(self) -> None:
        """Apply the current settings to all components."""
        if self.components.network is not None:
            self.components.network.use(self.config)
        if isinstance(self.strategy, Reconfigurable):
            self.strategy.apply_settings(self.config)
        self.resource_monitor.use(self.config)
        for options in self.components.optimizer.param_groups:
            options["lr"] = self.config.learning_rate

    def open(self) -> None:
        """Start the strategy's background work."""
        if isinstance(self.strategy, RunsInBackground):
            self.strategy.open()

    def checkpoint(self, carried: dict[str, Any] | None = None) -> Checkpoint:
        """Return a checkpoint of the current state, which shares its tensors.

        Args:
            carried: the strategy's carried state.
        """
        return Checkpoint(
            self.components.model.state_dict(),
            self.components.optimizer.state_dict(),
            self.position,
            self.config.to_json(),
            self.settings.requests,
            self.graph.data_hash,
            {COMPUTE: self.components.compute.write(), **self.strategy.state_dict(), **(carried or {})},
            None if self.best is None else self.best.write(),
        )

    def _children(self) -> tuple[int, ...]:
        return self.strategy.children if isinstance(self.strategy, ServesFeatures) else ()
