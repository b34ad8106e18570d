"""Applies each fault of this folder to a copy of the project and reports which test sees it.

Usage: python tests/faults/run.py [numbers ...] [--tests quick|all]
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import hypothesis  # noqa: F401 - imported once for all runs of pytest, as the next ones are
import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pydantic  # noqa: F401
import pytest
import scipy.optimize  # noqa: F401
import torch.distributed  # noqa: F401

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
HOUSE = "--ignore=tests/house/test_planted_faults.py"  # it sees that a patch is applied, not what it does
LIMIT_S = 900  # a fault may make ranks wait for each other for ever
FIRST = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


class FaultError(Exception):
    """A fault cannot be tried; the message says what to do."""


@dataclass(frozen=True)
class Fault:
    """One patch: ``number``, ``title`` and the tests that are expected to see it (header ``Seen by:``)."""

    path: Path

    @property
    def number(self) -> int:
        return int(self.path.name.partition("_")[0])

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def seen_by(self) -> list[str]:
        return [test for line in re.findall(r"^Seen by: (.+)$", self.text, re.MULTILINE) for test in line.split()]

    @property
    def changed(self) -> list[str]:
        """Files of the package that it changes."""
        return re.findall(r"^\+\+\+ b/(\S+)$", self.text, re.MULTILINE)


def faults(numbers: Sequence[int] = ()) -> list[Fault]:
    """All faults in order of their numbers, or those of some numbers."""
    found = sorted((Fault(path) for path in FOLDER.glob("*.patch")), key=lambda fault: fault.number)
    unknown = set(numbers) - {fault.number for fault in found}
    if unknown:
        raise FaultError(f"there is no fault {sorted(unknown)}: give numbers of the patches in {FOLDER}.")
    return [fault for fault in found if not numbers or fault.number in numbers]


def apply(fault: Fault, project: Path, *options: str) -> None:
    """Apply a patch to a project (``-R``: take it back, ``--check``: only try)."""
    done = subprocess.run(
        ["git", "apply", *options, str(fault.path)],
        cwd=project,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(project.parent)},  # a copy is not part of any repository
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FaultError(
            f"{fault.path.name} no longer applies, because the code around it has changed. Plant the same fault in "
            f"the present code, and replace the patch by `git diff` of it, under its header.\n{done.stderr.strip()}"
        )


def copy_to(folder: Path) -> Path:
    """A copy of the working tree without ignored files, beside a link to ``shared`` where there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    project = folder / "project"
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, project / name)
    if (ROOT.parent / "shared").is_dir():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    return project


def importers(changed: Sequence[str]) -> list[str]:
    """Files of tests that import one of the changed modules; those that start processes come last."""
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in changed}
    folders = ("house", "unit", "properties", "contracts", "*")  # the fast ones first
    files = dict.fromkeys(file for name in folders for file in sorted((ROOT / "tests").glob(f"{name}/**/test_*.py")))
    return [str(file.relative_to(ROOT)) for file in files if modules & set(_imported(file.read_text()))]


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rounds_of(fault: Fault, tests: str) -> list[list[str]]:
    """Tests to run one after the other, until one of them fails: those expected to see it come first."""
    rest = ["tests"] if tests == "all" else [file for file in importers(fault.changed) if file not in fault.seen_by]
    return [some for some in (fault.seen_by, rest) if some]


def first_failure(project: Path, tests: Sequence[str]) -> str:
    """The first test that fails, or that there is no end; empty where all pass."""
    with tempfile.TemporaryFile("w+") as output:
        began_s, child = time.monotonic(), os.fork()  # importing torch takes longer than most tests
        if not child:
            _run_pytest(project, tests, output.fileno())
        status = None
        try:
            while status is None and time.monotonic() - began_s < LIMIT_S:
                ended, found = os.waitpid(child, os.WNOHANG)
                status = os.waitstatus_to_exitcode(found) if ended else None
                time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # ranks that wait for each other, too
            if status is None:
                os.waitpid(child, 0)
        output.seek(0)
        text = output.read()
    if status is None:
        return f"no end after {LIMIT_S} s"
    failed = FIRST.search(text)
    if status and failed is None:
        raise FaultError(f"pytest ended with {status}, and no test failed. Look at it:\n{text[-2000:]}")
    return failed[1] if status and failed else ""


def _run_pytest(project: Path, tests: Sequence[str], output: int) -> NoReturn:
    """Run tests in this child process, in a session of its own, and exit with pytest's status."""
    status = 70
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.path[:0] = paths = [str(project), str(project / "tests")]
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # no test needs them, and they take seconds
        os.chdir(project)
        options = ["-x", "-q", "--tb=no", "-rfE", "--no-budget", "-p", "no:cacheprovider", HOUSE]
        status = int(pytest.main([*tests, *options, "-m", "not slow and not network"]))
        sys.stdout.flush()
    finally:
        os._exit(status)


def seen(fault: Fault, project: Path, tests: str) -> str:
    """The first test that fails with the fault; empty where it is missed."""
    apply(fault, project)
    try:
        return next(filter(None, (first_failure(project, some) for some in rounds_of(fault, tests))), "")
    finally:
        apply(fault, project, "-R")


def main() -> int:
    """Print a row for each fault, and return how many were missed or could not be tried."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, help="of faults; all by default")
    parser.add_argument(
        "--tests", choices=["quick", "all"], default="quick", help="quick: those that import the module"
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: nothing is left behind
    bad, witnesses = 0, set()
    print("| fault | what | result | first failing test | seconds |\n| --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory(prefix="dtdg-faults-") as folder:
        project = copy_to(Path(folder))
        for fault in faults(asked.numbers):
            began_s, failed, problem = time.monotonic(), "", ""
            try:
                failed = seen(fault, project, asked.tests)
            except FaultError as error:
                problem = f"{error}\n"
            bad += not failed
            witnesses |= {failed} if "::" in failed else set()
            result = "found" if failed else "BROKEN" if problem else "MISSED"
            took_s = time.monotonic() - began_s
            print(f"| {fault.number} | {fault.title} | {result} | {failed} | {took_s:.0f} |", flush=True)
            print(problem, end="", file=sys.stderr, flush=True)
        if witnesses and (failed := first_failure(project, sorted(witnesses))):
            raise FaultError(f"{failed} fails without any fault, too: repair it, and run this again.")
    return bad


if __name__ == "__main__":
    try:
        sys.exit(min(main(), 100))
    except FaultError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted: the copy is removed, and nothing else was changed.")
