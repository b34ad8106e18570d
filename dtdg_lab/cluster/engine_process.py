"""The process of an engine: ipyparallel's, with its working folder last on the import path."""

from __future__ import annotations

import sys
from typing import Any

from ipyparallel.engine.app import IPEngine

import dtdg_lab.cluster.worker  # noqa: F401  (here, before modules of the working folder can stand in for others)


class EngineProcess(IPEngine):
    """An engine that does not import a user's ``random.py`` beside the notebook instead of the standard library's.

    The user's own modules, such as a registered model's, are found last.
    """

    def to_work_dir(self) -> None:
        """Change to the working folder."""
        super().to_work_dir()
        search_working_folder_last()

    def init_engine(self, *arguments: Any) -> None:
        """Read the connection file and the configuration."""
        super().init_engine(*arguments)
        search_working_folder_last()


def search_working_folder_last() -> None:
    """Move the working folder, which ipyparallel puts first, to the end of the import path."""
    sys.path[:] = [*filter(None, sys.path), ""]


main = EngineProcess.launch_instance
