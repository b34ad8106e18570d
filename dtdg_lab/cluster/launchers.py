"""Launchers of a session's controller and engines: with a safe import path, and with logs that are kept."""

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

# An engine imports torch, the slowest module, while the controller starts, then waits for the connection file.
ENGINE = "import torch; from dtdg_lab.cluster.engine_process import main; main()"


class _LogKept:
    """Keeps the log of an ended process, which ipyparallel would remove."""

    def get_output(self, remove: bool = False) -> str:
        """Return the log's text."""
        return str(super().get_output(remove=False))  # type: ignore[misc]


class ControllerLauncher(_LogKept, LocalControllerLauncher):
    """Starts the controller."""

    entrypoint_name = f"{__name__}.ControllerLauncher"  # stored in the cluster's file for other kernels


class EngineLauncher(_LogKept, LocalEngineLauncher):
    """Starts one engine."""

    @property
    def started_s(self) -> float:
        """Unix time at which the process was created."""
        return float(self.process.create_time())


class EngineSetLauncher(LocalEngineSetLauncher):
    """Starts engines."""

    entrypoint_name = f"{__name__}.EngineSetLauncher"
    launcher_class = EngineLauncher

    def ended(self) -> list[str]:
        """Return the exit reasons of engines that have ended.

        ``state`` and ``stop_data`` only change while ipyparallel's event loop runs, within its calls.
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
        files: files of the session.
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
