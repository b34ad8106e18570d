"""Training without a run's folder or a cluster: records stay in memory, and requests come at chosen steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ControlError
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.assembly import assemble_trainer
from dtdg_lab.training.loop import TrainingOutcome
from dtdg_lab.training.replay import RunReplay
from dtdg_lab.training.resource_monitor import ResourceMonitor


class RecordingRecorder:
    """A recorder in memory: every row is a dict of its table's columns, in the order of writing.

    Args:
        failure: error that :meth:`check` raises, as a recorder whose disk is full does; None for no error.
    """

    def __init__(self, failure: Exception | None = None) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.failure = failure

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        """Store one row.

        Raises:
            ValueError: the row does not have a value for each column of the table.
        """
        self.tables[table].append(dict(zip(TABLES[table], values, strict=True)))

    def check(self) -> None:
        """Raise the recorder's failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def flush(self) -> None:
        """Do nothing, since no row is waiting."""

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        """Return True, since rows of other ranks are not here."""
        return True

    def column(self, table: str, name: str) -> list[Any]:
        """Return one column of a table, in the order written."""
        return [row[name] for row in self.tables[table]]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind, in the order written."""
        return [row for row in self.tables["events"] if row["kind"] == kind]


Script = Mapping[int, Mapping[str, Any]]


class ScriptedControl:
    """Requests that arrive at chosen exchanges, so that a test always sees the same.

    A trainer asks once per step, and once per control round while it is paused. Entry k of the script is known from the
    exchange of step k on (counted from ``first_step``), so it takes effect at step k + 1.

    Args:
        script: exchange -> request, such as ``{3: {"set": {"learning_rate": 0.1}}, 5: {"stop": True}}``.
        first_step: the trainer's first step; requests for earlier steps are left out.
    """

    def __init__(self, script: Script, *, first_step: int = 0) -> None:
        self._due = sorted(step for step in script if step >= first_step)
        self._payloads = [dict(script[step]) for step in self._due]
        self._exchange = first_step - 1

    def latest(self) -> int:
        """Return the number of requests known at this exchange; every call is the next exchange."""
        self._exchange += 1
        return sum(due <= self._exchange for due in self._due)

    def payload(self, version: int) -> dict[str, Any]:
        """Return the request of a version.

        Raises:
            ControlError: the script has no such version.
        """
        if not 1 <= version <= len(self._payloads):
            raise ControlError(f"the script has versions 1 to {len(self._payloads)}, but not {version}.")
        return self._payloads[version - 1]

    def stops(self) -> bool:
        """Return False, since a stop is only known from its exchange on."""
        return False

    def stop_version(self) -> int:
        """Return 0, since a stop is only known from its exchange on."""
        return 0

    def refuse(self, reason: str) -> None:
        """Do nothing, since the script has ended by then."""

    def wait(self, version: int, timeout_s: float) -> None:
        """Return at once, since a script does not wait for anything."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a training in memory."""

    outcome: TrainingOutcome
    recorder: RecordingRecorder
    parameters: dict[str, Tensor]
    optimizer: dict[str, Any]
    config: RunConfig

    @property
    def losses(self) -> list[float]:
        """The losses of all steps."""
        return self.recorder.column("steps", "global_loss")


def train_in_memory(
    config: RunConfig,
    graph: DynamicGraph,
    checkpoint: Path,
    *,
    group: Group | None = None,
    device: str = "cpu",
    script: Script = MappingProxyType({}),
    first_step: int = 0,
    recorder: RecordingRecorder | None = None,
    resume: bool = False,
    changes: Mapping[str, Any] = MappingProxyType({}),
    replay: RunReplay | None = None,
) -> Trained:
    """Train one rank to its end and return the result.

    Args:
        config: the run's settings; a resumed run uses those of the checkpoint.
        graph: the data.
        checkpoint: the file of the last checkpoint.
        group: the processes; by default only this one.
        device: device of this rank.
        script: requests (see :class:`ScriptedControl`).
        first_step: the first step of a resumed training, for the script.
        recorder: recorder of the rows; give one to read them even if training fails.
        resume: whether to continue from the checkpoint.
        changes: live settings that differ from the checkpoint's.
        replay: records of an earlier run to repeat.

    Raises:
        LabError: the error that ended training.
    """
    group = SoloGroup(device) if group is None else group
    recorder = RecordingRecorder() if recorder is None else recorder
    resource_monitor = ResourceMonitor(config, device, group.rank, group.size, recorder)
    try:
        trainer = assemble_trainer(
            config,
            graph,
            group,
            recorder=recorder,
            control=ScriptedControl(script, first_step=first_step),
            checkpoint=checkpoint,
            resource_monitor=resource_monitor,
            device=device,
            resume=resume,
            changes=changes,
            replay=replay,
        )
        outcome = trainer.run()
    finally:
        resource_monitor.close()
    group.barrier()  # from here on a caller can use the last checkpoint, which rank 0 has written
    components = trainer.components
    parameters = {name: parameter.detach().clone() for name, parameter in components.model.named_parameters()}
    return Trained(outcome, recorder, parameters, components.optimizer.state_dict(), trainer.live_settings.config)
