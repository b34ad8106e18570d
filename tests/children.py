"""Programs in Python processes of their own, because what they register or import stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def run_python(
    *arguments: str | Path, folder: Path, paths: Sequence[Path] = (), code: int = 0, **environment: str
) -> str:
    """Return what a program prints, or its errors where it is to end with a code.

    Args:
        arguments: of ``python``.
        folder: in which it runs and where its sessions are.
        paths: folders of modules, beside the package's.
        code: with which it is to end.
        environment: more variables.
    """
    importable = os.pathsep.join([*map(str, (TESTS.parent, *paths)), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": importable, "DTDG_LAB_STATE": str(folder / "state"), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr[-4000:]
    return done.stderr if code else done.stdout
