"""Programs in processes of their own, because what they register or import stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent


def run_program(
    *command: str | Path, folder: Path, paths: Sequence[Path] = (TESTS.parent,), code: int = 0, **environment: str
) -> str:
    """Return what a program prints, or its errors where it is to end with a code.

    Args:
        command: the program and its arguments.
        folder: in which it runs and where its sessions are.
        paths: folders of modules that it may import.
        code: with which it is to end.
        environment: more variables.
    """
    importable = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, "PYTHONPATH": importable, "DTDG_LAB_STATE": str(folder / "state"), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr[-4000:]
    return done.stderr if code else done.stdout


def run_python(*arguments: str | Path, folder: Path, paths: Sequence[Path] = (), **how: Any) -> str:
    """Run a program of Python that may import the package, and modules of more folders."""
    return run_program(sys.executable, *arguments, folder=folder, paths=[TESTS.parent, *paths], **how)
