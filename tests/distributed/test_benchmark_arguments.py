"""Benchmarks refuse arguments that they do not know, and name data that is not on this machine."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from types import ModuleType
from typing import Any

import pytest

from tests.distributed.benchmark_modules import benchmark

dygnex, dynahb, esdg, flaredtdg, greendygnn, partitions = map(
    benchmark, ("dygnex", "dynahb", "esdg", "flaredtdg", "greendygnn", "partitions")
)
REFUSED = [
    ("dygnex", ["cora"], "simulation"),
    ("dygnex", ["--only", "cora"], "mathoverflow"),
    ("dynahb", ["nothing"], "convergence"),
    ("dynahb", ["--layers", "0"], "from 1"),
    ("esdg", ["--models", "gru"], "tmgcn"),
    ("esdg", ["--ranks", "0"], "from 1"),
    ("flaredtdg", ["table"], "training"),
    ("flaredtdg", ["--seeds", "0"], "from 1"),
    ("greendygnn", ["nothing"], "table1"),
    ("greendygnn", ["--epochs", "0"], ""),
]


@pytest.mark.parametrize(("name", "given", "allowed"), REFUSED)
def test_an_unknown_argument_is_named_with_those_allowed(
    name: str, given: list[str], allowed: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        request.getfixturevalue(name).arguments(given)
    message = capsys.readouterr().err
    assert ended.value.code == 2 and given[-1] in message and allowed in message


@pytest.mark.parametrize(
    ("name", "here", "given", "workloads", "absent"),
    [
        ("dygnex", ["growing"], ["epochs"], {"workloads": ["grown"]}, "mathoverflow"),
        ("esdg", ["powerlaw", "transactions"], [], {"linked": ["transactions"], "transfers": ["powerlaw"]}, "college"),
        ("flaredtdg", ["powerlaw", "sbm"], ["memory"], {"measured": ["W1", "W2"], "trained": []}, "mathoverflow"),
        ("partitions", ["powerlaw"], [], {"": ["million"]}, "mathoverflow"),
    ],
)
def test_data_that_is_not_here_is_left_out_by_name(
    name: str,
    here: list[str],
    given: list[str],
    workloads: dict[str, list[str]],
    absent: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script: ModuleType = request.getfixturevalue(name)
    known = [dataclasses.replace(known, on_this_machine=known.name in here) for known in script.list_datasets()]
    monkeypatch.setattr(script, "list_datasets", lambda: known)
    plan: Any = (script.chosen_workloads if name == "partitions" else script.planned)(script.arguments(given))
    for part, names in workloads.items():
        assert [workload.name for workload in (attrgetter(part)(plan) if part else plan)] == names
    message = capsys.readouterr().out
    assert absent in message and ": not here" in message


@pytest.mark.parametrize("name", ["dynahb", "flaredtdg", "greendygnn"])
def test_a_graph_that_no_plan_has_is_refused(name: str, request: pytest.FixtureRequest) -> None:
    script = request.getfixturevalue(name)
    with pytest.raises(SystemExit, match="no such graph"):
        script.planned(script.arguments(["--only", "W9"]))
