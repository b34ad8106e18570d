"""The assembly of one rank of a run, for lab.train and for engines."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.control import ControlServer, StoredControl
from dtdg_lab.cluster.preparing import Preparation
from dtdg_lab.cluster.run_start import RunStart
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.preparation import preparation as prepared_by
from dtdg_lab.records.events import AttemptStarted, RegisteredCode
from dtdg_lab.records.requests import Request, SetLive
from dtdg_lab.runs.directory import RunDirectory

if TYPE_CHECKING:
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.training.control import LocalControl
    from dtdg_lab.training.loop import Trainer
    from dtdg_lab.training.recorder import Recorder
    from dtdg_lab.training.recording import ResourceMonitor


def end_stopped(
    control: ControlServer | StoredControl | LocalControl, directory: RunDirectory, attempt: int, *, rank: int = 0
) -> str:
    """Return the state of a run after a request to stop: stopped, or interrupted by a signal.

    Rank 0 records an interruption at once, since a signal may leave no time for Parquet files and the report.
    """
    request = control.stop_request()
    if request is None or request.signal is None:
        return "stopped"
    if rank == 0:
        directory.mark_interrupted(attempt, request.signal, rank=request.rank)
    return "interrupted"


def assemble_rank(
    directory: RunDirectory,
    group: Group,
    start: RunStart,
    stack: ExitStack,
    *,
    recorder: Recorder,
    control: LocalControl | ControlServer | StoredControl,
    preparation: Preparation,
    device: str,
    local_rank: int = 0,
    local_size: int = 1,
    attempt: int = 1,
    shares_gpus: bool = False,
    **options: Any,
) -> tuple[Trainer, ResourceMonitor]:
    """Build the trainer and the resource monitor of a rank; rank 0 records the start of the attempt.

    Args:
        directory: folder of the run.
        group: the ranks.
        start: start of this rank.
        stack: closes resources at the end.
        recorder: recorder of this rank.
        control: source of requests.
        preparation: reports progress before the first step.
        device: device of this rank.
        local_rank: index among the ranks of this machine.
        local_size: number of ranks on this machine.
        attempt: number of the attempt, from 1.
        shares_gpus: whether ranks of the run share a GPU.
        options: passed to :func:`dtdg_lab.training.assembly.assemble_trainer`.
    """
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.training.assembly import assemble_trainer
    from dtdg_lab.training.resource_monitor import ResourceMonitor

    config = directory.config()
    monitor = ResourceMonitor(config, device, local_rank, local_size, recorder, shares_gpu=shares_gpus)
    stack.callback(monitor.close)
    monitor.start()
    with prepared_by(preparation):
        graph = load_for(config)
        if group.rank == 0:
            _record_start(directory, graph, start, recorder, monitor, size=group.size, attempt=attempt)
        trainer = assemble_trainer(
            config,
            graph,
            group,
            recorder=recorder,
            control=control,
            checkpoint=directory.checkpoint_file,
            resource_monitor=monitor,
            device=device,
            begin=start.begin,
            replay=start.replay,
            **options,
        )
        if group.rank == 0:
            directory.write_status("running", attempt=attempt)
    return trainer, monitor


def _record_start(
    directory: RunDirectory,
    graph: DynamicGraph,
    start: RunStart,
    recorder: Recorder,
    monitor: ResourceMonitor,
    *,
    size: int,
    attempt: int,
) -> None:
    dataset = directory.config().dataset
    facts = {"dataset": dataset, "source": graph.source, "sha256": graph.data_hash}
    directory.add_environment(data=facts, energy_notes=monitor.notes)
    code = (RegisteredCode(extension.title, extension.target, extension.sha256) for extension in directory.extensions())
    for event in (AttemptStarted(size, attempt, dataset, graph.source), *code):
        recorder.row("events", (0, 0, time.time_ns(), event.kind, event.write()))
    start.report(recorder)


def check_request(config: RunConfig, request: Request) -> None:
    """Raise if a run with these settings cannot execute a request.

    Raises:
        ConfigError: a change is not allowed.
    """
    from dtdg_lab.training.live_settings import check_changes

    if isinstance(request, SetLive):
        check_changes(config, dict(request.changes))
