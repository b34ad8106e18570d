"""Sending the ranks of a run to engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.cluster.engine import Task, run_rank
from dtdg_lab.cluster.engines import Engine
from dtdg_lab.cluster.liveness import host_id
from dtdg_lab.cluster.session_files import SessionFiles
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.directory import RunDirectory


def places_of(ranks: int, engines: Sequence[int] | None) -> tuple[int, ...]:
    """The engines that a run asks for, by their places in a session; empty where it is to have the first ones.

    Raises:
        ConfigError: they are not one different engine for each rank.
    """
    if engines is None:
        return ()
    if len(engines) != ranks or len(set(engines)) < ranks or min(engines) < 0:
        raise ConfigError(
            f"engines={tuple(engines)} for ranks={ranks}: one different engine, numbered from 0, is needed for each of "
            "the ranks."
        )
    return tuple(engines)


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt of one run.

    Attributes:
        directory: of the run.
        files: of its session.
        attempt: from 1; a later one goes on from the checkpoint.
        changes: live settings that differ from the checkpoint's.
    """

    directory: RunDirectory
    files: SessionFiles
    attempt: int = 1
    changes: tuple[tuple[str, Any], ...] = ()

    def on(self, client: Any, engines: Sequence[Engine], *, beside: Sequence[Engine]) -> list[Any]:
        """Start a rank on each of the engines; their answers, in order of ranks.

        Args:
            client: of ipyparallel.
            engines: of the run.
            beside: these, and others that may train at the same time: they share processors and GPUs.
        """
        here = {engine.host for engine in engines} == {host_id()}
        device = _device_for_all(self.directory.config().device, engines, beside)
        answers = []
        for rank, engine in enumerate(engines):
            of_machine = [other for other in beside if other.host == engine.host]
            task = Task(
                run_dir=str(self.directory.path), rank=rank, size=len(engines), attempt=self.attempt,
                key=self.files.key, local_rank=of_machine.index(engine), local_size=len(of_machine), device=device,
                resume=self.attempt > 1, changes=self.changes,
                busy_file=str(self.files.busy_file) if self.files.owned else "", host="127.0.0.1" if here else "",
            )  # fmt: skip
            answers.append(client[engine.id].apply_async(run_rank, task))
        return answers


def _device_for_all(wanted: str, engines: Sequence[Engine], beside: Sequence[Engine]) -> str:
    """``cuda`` where every machine has a GPU for each of its ranks, else ``cpu``: one backend for the whole group."""
    if wanted != "auto":
        return wanted
    sharing = Counter(engine.host for engine in beside)
    return "cuda" if all(engine.gpus >= sharing[engine.host] for engine in engines) else "cpu"


def trouble(answers: Sequence[Any]) -> str:
    """Why an engine could not run its rank, where one came back with an error; empty otherwise."""
    for rank, answer in enumerate(answers):
        if answer.ready():
            error = answer.exception()
            if error is not None:
                return f"rank {rank} failed: {error}"
    return ""
