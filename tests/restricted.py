"""Python code in a process of its own: as another user, with few file descriptors or little memory, or elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dtdg_lab.core.child_process import environment as child_environment

NOBODY = 65534
AS_NOBODY = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
TIMEOUT_S = 120


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that every user may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="dtdg-lab-restricted-"))
    folder.chmod(0o755)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run code as another user")


def limit(name: str, value: int) -> str:
    """Return code that sets a soft limit of this process, such as ``RLIMIT_NOFILE``."""
    return f"import resource; resource.setrlimit(resource.{name}, ({value}, resource.getrlimit(resource.{name})[1]))\n"


def said(
    code: str, *arguments: str | Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Return the message of the LabError that code ends with in a fresh interpreter.

    Args:
        code: imports what it needs before it restricts itself.
        arguments: ``sys.argv[1:]`` of the code.
        environment: changed variables; an empty value removes one.
        cwd: where it runs.
    """
    variables = {**child_environment(), **(environment or {})}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CATCH + code.replace("\n", "\n    ").rstrip() + _SHOW, *map(str, arguments)],
        env={name: value for name, value in variables.items() if value},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused: "), f"no error of the lab: {done.stdout[:2000]}{done.stderr[-2000:]}"
    return done.stdout.removeprefix("refused: ").strip()


_CATCH = "import sys, traceback\nfrom dtdg_lab.core.errors import LabError\ntry:\n    "
_SHOW = '\n    print("done")\nexcept LabError as error:\n    print("refused:", error)\n'
