"""Training in this process, without a cluster: for debugging, tests and the command line."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.beginning import Beginning
from dtdg_lab.cluster.judging import Bench
from dtdg_lab.cluster.local_run import LocalRun
from dtdg_lab.congestion.netem import undo_left_over
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError
from dtdg_lab.core.paths import NETEM, state_root
from dtdg_lab.core.records import TABLES
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.open import StoredRun, open_run
from dtdg_lab.runs.writer import RecordWriter

if TYPE_CHECKING:
    from dtdg_lab.training.interfaces import LocalControl, Recorder


def train(config: RunConfig, *, runs_dir: str | Path = "runs", progress: bool = True) -> StoredRun:
    """Run all P parts of a plan in this process, one after another, and return the finished run.

    This is the one place where torch is imported into the calling process; a Session trains on engines.

    Args:
        config: with ``ranks=1``; P may be larger.
        runs_dir: folder that holds runs.
        progress: show a progress bar.

    Raises:
        ConfigError: the config asks for more than one rank.
        LabError: what ended the run; its folder keeps everything until then.
    """
    return train_here(config, runs_dir=runs_dir, progress=progress)


def train_here(
    config: RunConfig,
    *,
    runs_dir: str | Path = "runs",
    progress: bool = False,
    bench: Bench | None = None,
    on_start: Callable[[LocalRun], None] | None = None,
    make: Callable[..., RunDirectory] | None = None,
) -> StoredRun:
    """As :func:`train`, watched: ``bench`` may end the run early, and ``on_start`` is handed what can be seen of it.

    ``make`` makes the run's folder in the folder ``root``, where it is to be a fork's or a replay's.
    """
    if config.ranks != 1:
        raise ConfigError(
            f"lab.train runs in this process, and ranks={config.ranks}: use config.replace(ranks=1), which keeps the "
            "same plan, or Session(ranks=...).train(config)."
        )
    undo_left_over(state_root() / NETEM)  # by a run that was killed
    directory = (make or partial(RunDirectory.create, config))(root=runs_dir)
    try:
        with ExitStack() as stack:
            if on_start is not None:
                seen = LocalRun(directory)
                stack.callback(seen.close)
                on_start(seen)
            state = _train(config, directory, stack, progress, bench)
    except BaseException as error:
        finish(
            directory, "failed", str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}", 0
        )
        raise
    finish(directory, state)
    return open_run(directory.path)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A recorder that shows a bench the evaluations, between two steps: a verdict comes at the same step each time."""

    to: Recorder
    bench: Bench
    control: LocalControl

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        self.to.row(table, values)
        if table == "evaluations":
            request = self.bench.evaluated(dict(zip(TABLES[table], values, strict=True)))
            if request is not None:
                self.control.request(request)

    def check(self) -> None:
        self.to.check()


def _train(config: RunConfig, directory: RunDirectory, stack: ExitStack, progress: bool, bench: Bench | None) -> str:
    import torch

    from dtdg_lab.comm.group import SoloGroup, share_cores
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.training.interfaces import LocalControl
    from dtdg_lab.training.loop import Trainer
    from dtdg_lab.training.vitals import Vitals

    beginning = Beginning.of(directory, 0)
    if config.threads or beginning.threads:
        before = torch.get_num_threads()
        stack.callback(torch.set_num_threads, before)
        torch.set_num_threads(beginning.threads or share_cores(config.threads, 1))
    device = "cuda:0" if config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available()) else "cpu"
    writer = RecordWriter(directory.record_file(0), 0, 1)
    stack.callback(writer.close)
    graph = load_for(config)
    vitals = Vitals(config, device, 0, 1, writer)
    stack.callback(vitals.close)
    vitals.start()
    facts = {"dataset": config.dataset, "source": graph.source, "sha256": graph.data_hash}
    directory.add_environment(data=facts, energy_notes=vitals.notes)
    begun = {"ranks": 1, "attempt": 1, "dataset": config.dataset, "source": graph.source}
    writer.row("events", (0, 0, time.time_ns(), "started", begun))
    beginning.tell(writer)
    directory.write_status("running")
    control = LocalControl()
    recorder: Recorder = writer
    if bench is not None:
        bench.started(time.time_ns())
        recorder = _Watched(writer, bench, control)
    trainer = Trainer(
        config, graph, SoloGroup(), recorder=recorder, control=control, checkpoint=directory.checkpoint_file,
        vitals=vitals, device=device, show_progress=progress, begin=beginning.begin, replay=beginning.replay,
    )  # fmt: skip
    return trainer.run().state
