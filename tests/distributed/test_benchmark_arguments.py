"""Benchmarks refuse arguments that they do not know, and name data that is not on this machine."""

from __future__ import annotations

import dataclasses
from types import ModuleType

import pytest

from tests.distributed.benchmark_modules import benchmark

greendygnn, partitions = map(benchmark, ("greendygnn", "partitions"))


def test_an_unknown_argument_is_named_with_those_allowed(
    greendygnn: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        greendygnn.arguments(["nothing"])
    message = capsys.readouterr().err
    assert ended.value.code == 2 and "nothing" in message and "calibration" in message


def test_data_that_is_not_here_is_left_out_by_name(
    partitions: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = [
        dataclasses.replace(known, on_this_machine=known.name == "powerlaw") for known in partitions.list_datasets()
    ]
    monkeypatch.setattr(partitions, "list_datasets", lambda: here)
    workloads = partitions.chosen_workloads(partitions.arguments([]))
    assert [workload.name for workload in workloads] == ["million"]
    message = capsys.readouterr().out
    assert "mathoverflow" in message and ": not here" in message
