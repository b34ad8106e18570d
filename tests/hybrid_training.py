"""Training with hybrid batches in memory: requests at steps that a rank has made, and runs that are repeated."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ControlError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.testing.training import RecordingRecorder, Script, Trained
from dtdg_lab.training.assembly import assemble_trainer
from dtdg_lab.training.replay import RunReplay
from dtdg_lab.training.resource_monitor import ResourceMonitor

PAUSED_LOOKS = 20
PARTS, TRAIN, OWN = 2, 15, 15
SMALL = {
    "dataset": "growing",
    "generated_nodes": PARTS * OWN,
    "generated_edges": 120,
    "generated_snapshots": 50,
    "hidden": 6,
    "device": "cpu",
    "dtype": "float64",
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "epochs": 2,
    "epoch_batches": 6,
    "evaluate_every": 100,
    "parts": PARTS,
    "ranks": 1,
    "partitioner": "round_robin",
    "batch_nodes": 0.2,
    "generators": "threads",
}
TOGETHER = {"exchange": "gradients", "reservoir": False}
SIZES = {"snapshot_sizes": "0.2 0.4", "node_sizes": "0.2 1"}
SNAPSHOTS, VERTICES = (3, 3, 6, 6), (3, 15, 3, 15)  # of the actions, where parts have 15 nodes


class StepControl:
    """Requests known once a rank has made some steps, however often it is asked; a pause ends after some looks.

    Args:
        script: steps -> request: known in the exchange of that step on, so that it rules after it where steps are made
            together.
        recorder: where steps are written down.
        first_step: the step that training begins with; requests for earlier ones are left out.
        one_by_one: nothing is asked for before the change that was asked for last has been made.
    """

    def __init__(
        self, script: Script, recorder: RecordingRecorder, first_step: int = 0, *, one_by_one: bool = False
    ) -> None:
        self._due = sorted(step for step in script if step >= first_step)
        self._payloads = [dict(script[step]) for step in self._due]
        self._steps, self._first_step = recorder.tables["steps"], first_step
        self._recorder, self._one_by_one = recorder, one_by_one
        self._looks = 0
        self.refused: list[str] = []

    def latest(self) -> int:
        """The newest request."""
        made = self._first_step + len(self._steps)
        known = sum(due <= made for due in self._due)
        if known and self._payloads[known - 1].get("pause"):
            self._looks += 1
            known += self._looks > PAUSED_LOOKS
        return min(known, len(self._recorder.events("settings")) + 1) if self._one_by_one else known

    def payload(self, version: int) -> dict[str, Any]:
        """The request of a version."""
        if not 1 <= version <= len(self._payloads):
            raise ControlError(f"the script has versions 1 to {len(self._payloads)}, not {version}.")
        return self._payloads[version - 1]

    def stops(self) -> bool:
        """A stop is known once its step has come."""
        return False

    def stop_version(self) -> int:
        """As above."""
        return 0

    def refuse(self, reason: str) -> None:
        """Why nothing more is taken."""
        self.refused.append(reason)

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return at once."""


def train(
    config: RunConfig,
    graph: DynamicGraph,
    checkpoint: Path,
    *,
    group: Group | None = None,
    script: Script = MappingProxyType({}),
    first_step: int = 0,
    recorder: RecordingRecorder | None = None,
    resume: bool = False,
    changes: Mapping[str, Any] = MappingProxyType({}),
    replay: RunReplay | None = None,
    one_by_one: bool = False,
) -> Trained:
    """Train one rank to its end, as ``train_in_memory`` does."""
    group = SoloGroup() if group is None else group
    recorder = RecordingRecorder() if recorder is None else recorder
    control = StepControl(script, recorder, first_step, one_by_one=one_by_one)
    resource_monitor = ResourceMonitor(config, "cpu", group.rank, group.size, recorder)
    try:
        trainer = assemble_trainer(
            config,
            graph,
            group,
            recorder=recorder,
            control=control,
            checkpoint=checkpoint,
            resource_monitor=resource_monitor,
            resume=resume,
            changes=changes,
            replay=replay,
        )
        outcome = trainer.run()
    finally:
        resource_monitor.close()
    group.barrier()  # rank 0 has written the last checkpoint, with which a caller may go on at once
    components = trainer.components
    parameters = {name: parameter.detach().clone() for name, parameter in components.model.named_parameters()}
    return Trained(outcome, recorder, parameters, components.optimizer.state_dict(), trainer.live_settings.config)


def repeated(done: Trained) -> RunReplay:
    """What a rank did, to be done again."""
    tables = done.recorder.tables
    return RunReplay.of(tables["rounds"], tables["targets"], tables["steps"])


def drawn(done: Trained) -> list[tuple[Any, ...]]:
    """The batches of every step, without the seconds they took."""
    names = ("step", "part", "action", "index", "source", "first", "snapshots", "targets", "rows", "edges")
    return [tuple(row[name] for name in names) for row in done.recorder.tables["targets"]]


@cache
def small_graph() -> DynamicGraph:
    return load_for(
        RunConfig(
            system="pygt-dist",
            **{name: SMALL[name] for name in SMALL if name.startswith(("d", "g")) and name != "generators"},
        )
    )


def small_config(system: str = "dynahb", **settings: Any) -> RunConfig:
    sizes = SIZES if settings.get("batch_policy", "dqn") != "none" and system == "dynahb" else {}
    small = {name: value for name, value in SMALL.items() if not (system == "dbos" and name == "batch_nodes")}
    return RunConfig(system=system, **{**small, **sizes, **settings})


def train_small(config: RunConfig, folder: Path, **more: Any) -> Trained:
    return train(config, small_graph(), folder / "last.pt", **more)


def targets_of(done: Trained, name: str) -> dict[int, list[Any]]:
    """step -> a column of ``targets``, of all parts."""
    found: dict[int, list[Any]] = {}
    for row in done.recorder.tables["targets"]:
        found.setdefault(row["step"], []).append(row[name])
    return found


def knobs_of(done: Trained) -> list[tuple[int, str, dict[str, Any]]]:
    return [(row["step"], row["data"]["when"], row["data"]["changes"]) for row in done.recorder.events("settings")]


def generator_children() -> list[psutil.Process]:
    """The processes that generate batches for this one; other tests may have left children of their own."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie is one of these
            if "hybrid_batches.generators" in " ".join(child.cmdline()):
                found.append(child)
    return found


def generators_left() -> list[str]:
    """Generators that live on."""
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("generator")]
    return [*threads, *(str(child.pid) for child in generator_children())]
