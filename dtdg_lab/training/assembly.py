"""Assembly of a trainer from a config, a graph, a process group, and a checkpoint to start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.records.events import Resumed
from dtdg_lab.training.best_model import BestModel
from dtdg_lab.training.build import build
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.checkpointing import CheckpointManager
from dtdg_lab.training.clock import PhaseClock
from dtdg_lab.training.control import Control, ControlSource
from dtdg_lab.training.coordination import RankCoordinator
from dtdg_lab.training.epoch_end import Decisions, EpochEnd, EvaluationRunner
from dtdg_lab.training.live_settings import LiveSettings, check_changes, live_names, readable
from dtdg_lab.training.loop import Trainer
from dtdg_lab.training.memory import MemoryProbe
from dtdg_lab.training.position import Position
from dtdg_lab.training.rebuilding import Rebuilder
from dtdg_lab.training.recorder import Recorder
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.replay import ReplayedControl, RunReplay
from dtdg_lab.training.requests import RequestHandler
from dtdg_lab.training.resource_monitor import ResourceMonitor
from dtdg_lab.training.state import TrainingState


def assemble_trainer(
    config: RunConfig,
    graph: DynamicGraph,
    group: Group,
    *,
    recorder: Recorder,
    control: ControlSource,
    checkpoint: Path,
    resource_monitor: ResourceMonitor,
    device: str = "cpu",
    resume: bool = False,
    changes: Mapping[str, Any] = MappingProxyType({}),
    show_progress: bool = False,
    begin: Path | None = None,
    replay: RunReplay | None = None,
) -> Trainer:
    """Return the trainer of one rank of a run; collective.

    Args:
        config: the run's settings.
        graph: the data, the same on all ranks.
        group: the processes.
        recorder: writer of this rank's records.
        control: source of requests; only rank 0's ``latest`` counts.
        checkpoint: file of the run's last checkpoint, written by rank 0.
        resource_monitor: memory and energy of this rank.
        device: device of this rank.
        resume: whether to continue from the checkpoint.
        changes: changes of live settings, against the checkpoint with ``resume``, else against ``config``.
        show_progress: whether to show a progress bar over epochs, in cells and terminals.
        begin: checkpoint of another run to start from: its parameters, position and plan, under ``config``.
        replay: records of this rank in an earlier run with the same settings, to repeat.

    Raises:
        LabError: the config cannot be built on this graph and machine, or the checkpoint belongs to other data or does
            not fit.
    """
    is_fork = begin is not None and not resume
    start_file = checkpoint if resume else begin
    stored = None if start_file is None else Checkpoint.load(start_file, device=device)
    data_checked = stored is not None and stored.check_graph(graph)
    if not resume:
        config = check_changes(config, dict(changes))
    settings, position = LiveSettings(config), Position()
    if stored is not None:
        position = stored.position
        settings = _forked_settings(stored, config) if is_fork else _resumed_settings(stored, dict(changes))
    run_control = Control(control, group) if replay is None else ReplayedControl(replay, control, group, device)
    plan = {**({} if stored is None else stored.plan), **run_control.recorded_plan(position)}
    components = build(settings.config, graph, group, device=device, plan=plan)
    state = TrainingState(graph, group, device, resource_monitor, components, settings, position)
    clock = PhaseClock(group.device_clock)
    step_recorder = StepRecorder(recorder, clock, resource_monitor, group.rank)
    requests = RequestHandler(state, run_control, step_recorder)
    try:
        if stored is not None:
            stored.restore(components.model, components.optimizer if stored.has_moments_for(config) else None)
            state.apply_settings()
            if resume and group.rank == 0 and stored.best is not None:
                state.best = BestModel.read(stored.best)
        coordinator = RankCoordinator(state, run_control, requests, step_recorder)
    except BaseException:
        components.close()
        raise
    memory_probe, decisions = MemoryProbe(state, step_recorder), Decisions(state, run_control, step_recorder)
    evaluation = EvaluationRunner(state, decisions, step_recorder)
    resumed = None
    if resume or changes:
        live = {name: settings.config.flat[name] for name in live_names(settings.config)}
        resumed = Resumed(live, dict(changes), position.iteration, data_checked)
    return Trainer(
        state=state,
        control=run_control,
        clock=clock,
        recorder=step_recorder,
        coordinator=coordinator,
        rebuilder=Rebuilder(
            state=state,
            control=run_control,
            requests=requests,
            coordinator=coordinator,
            recorder=step_recorder,
            memory_probe=memory_probe,
        ),
        checkpoints=CheckpointManager(checkpoint, state, step_recorder),
        decisions=decisions,
        evaluation=evaluation,
        epoch_end=EpochEnd(
            state=state,
            control=run_control,
            requests=requests,
            recorder=step_recorder,
            memory_probe=memory_probe,
            evaluation=evaluation,
        ),
        resumed=resumed,
        saves_start=position.step == 0 or is_fork,
        show_progress=show_progress,
    )


def _resumed_settings(stored: Checkpoint, changes: dict[str, Any]) -> LiveSettings:
    """Return the settings of a resumed run; within an epoch, changes of epoch settings wait for its end."""
    config = RunConfig.from_json(stored.config_json)
    changed = check_changes(config, changes)
    waiting = _without(stored.waiting, changes)
    if stored.position.iteration == 0:
        return LiveSettings(changed, requests=waiting)
    settings = LiveSettings(config, requests=waiting)
    settings.apply({"set": changes})
    return settings


def _forked_settings(stored: Checkpoint, config: RunConfig) -> LiveSettings:
    """Return the settings of a run that starts from another run's checkpoint, with its waiting requests.

    A request is dropped where ``config`` sets the option itself, or the system does not read it.
    """
    stored_settings = RunConfig.from_json(stored.config_json, stored=True).flat
    read = readable(config.system, config)
    set_again = {
        name for name, value in config.flat.items() if name not in stored_settings or stored_settings[name] != value
    }
    unread = {name for changes in stored.waiting for name in changes if name not in read}
    return LiveSettings(config, requests=_without(stored.waiting, set_again | unread))


def _without(requests: list[dict[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Remove some settings from requests, and then empty requests."""
    remaining = [{name: value for name, value in changes.items() if name not in names} for changes in requests]
    return [changes for changes in remaining if changes]
