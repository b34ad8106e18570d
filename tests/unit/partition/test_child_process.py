"""Child processes of partitioning libraries: reports, failures and time limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest

from dtdg_lab.core.errors import NotAvailableError, PartitionError, StoppedError
from dtdg_lab.core.preparation import preparation
from dtdg_lab.partition import metis
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.child_process import in_child, needs_library
from tests.factories import two_groups


def test_a_partitioner_is_reported_and_ends_with_a_run_that_is_stopped() -> None:
    reports: list[tuple[str, float | None]] = []
    files_before = set(psutil.Process().children())

    def report(what: str, left_s: float | None) -> None:
        reports.append((what, left_s))
        if what.startswith("metis"):
            raise StoppedError("stopped")

    with pytest.raises(StoppedError), preparation(report):
        metis.assign_metis(two_groups(), 2)
    assert reports[-1][0] == "metis divides 24 nodes in 2 parts" and (reports[-1][1] or 0) > 0
    assert set(psutil.Process().children()) <= files_before
    metis.assign_metis(two_groups(), 2)  # without a report


def fake_pymetis(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let the child import a pymetis of our own in place of the real one."""
    (folder / "pymetis.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


ANSWERS = """
import numpy as np
from types import SimpleNamespace
zero_copy_dtype = lambda: np.int64
Options = CSRAdjacency = lambda *_, **__: None
part_graph = lambda *_, **__: SimpleNamespace(vertex_part={})
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os; os.kill(os.getpid(), 11)", r"metis was ended by SIGSEGV.*24 nodes in 2 parts"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL.*memory"),
        ("import sys; sys.exit('no licence')", "exit status 1. Its last output: no licence"),
        ("1 / 0", "Its last output: ZeroDivisionError"),
        ("import os; os._exit(0)", "wrote no readable result"),
        (ANSWERS.format("[0, 1]"), r"returned int64 of shape \(2,\)"),
        (ANSWERS.format("[0] * 23 + [2]"), "from 0 to 2, instead of one part from 0 to 1"),
    ],
)
def test_metis_may_fail_without_harm(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pymetis(tmp_path, monkeypatch, text)
    with pytest.raises(PartitionError, match=f"(?s){message}") as caught:
        make_partition("metis", two_groups(), 2, seed=777)
    assert "Choose another partitioner" in str(caught.value)
    monkeypatch.delenv("PYTHONPATH")
    assert make_partition("load_aware", two_groups(), 2).parts == 2


def test_a_child_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pymetis(tmp_path, monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(PartitionError, match=r"did not divide 3 nodes in 2 parts within 0.3 s and was stopped"):
        in_child("metis", {"parts": np.array(2)}, vertices=3, parts=2, time_limit_s=0.3)


def test_a_missing_library_is_named_with_its_remedy() -> None:
    needs_library("numpy")
    with pytest.raises(NotAvailableError, match="pip install no_such_library"):
        needs_library("no_such_library")
