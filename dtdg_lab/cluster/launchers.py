"""Launchers of a session's controller and engines: with a safe import path, and with logs that stay."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import psutil
from ipyparallel.cluster.launcher import LocalControllerLauncher, LocalEngineLauncher, LocalEngineSetLauncher
from traitlets.config import Config

from dtdg_lab.core.child_process import end_of, import_environment, is_running

if TYPE_CHECKING:
    from dtdg_lab.cluster.session_files import SessionFiles

# An engine imports what takes longest while the controller starts, and then waits for that one's connection file
ENGINE = "import torch; from dtdg_lab.cluster.engine_process import main; main()"


class _LogKept:
    """Leaves the log of a process that has ended on disk: ipyparallel removes it."""

    def get_output(self, remove: bool = False) -> str:
        """Return the log's text."""
        return str(super().get_output(remove=False))  # type: ignore[misc]


class ControllerLauncher(_LogKept, LocalControllerLauncher):
    """Starts the controller."""

    entrypoint_name = f"{__name__}.ControllerLauncher"  # in the cluster's file, from which other kernels read it


class EngineLauncher(_LogKept, LocalEngineLauncher):
    """Starts one engine."""

    @property
    def started_s(self) -> float:
        """Unix time at which its process was created."""
        return float(self.process.create_time())


class EngineSetLauncher(LocalEngineSetLauncher):
    """Starts engines."""

    entrypoint_name = f"{__name__}.EngineSetLauncher"
    launcher_class = EngineLauncher

    def ended(self) -> list[str]:
        """Return how those engines ended that have.

        ``state`` and ``stop_data`` change only while ipyparallel's event loop runs, which it does within its calls.
        """
        statuses = [engine["exit_code"] for engine in self.stop_data.get("engines", {}).values()]
        for launcher in list(self.launchers.values()):
            if not is_running(launcher.pid, launcher.started_s):
                with contextlib.suppress(psutil.TimeoutExpired):
                    statuses.append(launcher.process.wait(timeout=1.0))
        return [end_of(status) for status in statuses]


def cluster_settings(files: SessionFiles, timeout_s: float) -> dict[str, Any]:
    """Return the arguments of ``ipyparallel.Cluster`` for processes that outlive this one.

    The controller works in the session's folder, which ipyparallel puts first on its import path.

    Args:
        files: of the session.
        timeout_s: seconds that engines wait for the controller.
    """
    environment = import_environment()
    config = Config(
        LocalControllerLauncher={
            "controller_cmd": [sys.executable, "-P", "-m", "ipyparallel.controller", f"--work-dir={files.folder}"],
            "environment": environment,
        },
        LocalEngineLauncher={
            "engine_cmd": [sys.executable, "-P", "-c", ENGINE],
            "engine_args": [f"--IPEngine.wait_for_url_file={timeout_s}"],
            "environment": environment,
        },
        LocalEngineSetLauncher={"delay": 0.0},
    )
    return {
        "config": config,
        "controller_launcher_class": ControllerLauncher,
        "engine_launcher_class": EngineSetLauncher,
        "shutdown_atexit": False,
        "log_level": 40,
    }
