"""Devices of a session's engines: what it lists, warns of, and refuses before a run has a folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dtdg_lab.cluster.devices import Gpu
from dtdg_lab.cluster.engines import Engines
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.directory import RunDirectory
from tests.following import stop, until_step

GPU = Gpu(0, "GPU-1", "NVIDIA H200", 140 << 30)


@pytest.fixture
def report(session: Session, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let both engines report other devices."""
    alive = Engines.alive

    def change(**facts: object) -> None:
        changed = lambda self: [replace(one, report=replace(one.report, **facts)) for one in alive(self)]  # noqa: E731
        monkeypatch.setattr(Engines, "alive", changed)

    return change


def test_engines_report_their_processor_and_its_memory(session: Session) -> None:
    for engine in session.engines().values():
        assert engine.is_alive and engine.device == "cpu" and engine.name and engine.memory_bytes > 1 << 28


def test_too_few_gpus_are_refused_or_left_unused_with_a_warning(
    session: Session, config: RunConfig, report: Callable[..., None]
) -> None:
    report(gpus=(GPU,))
    assert [engine.device for engine in session.engines().values()] == ["cuda:0", "cpu"]
    runs = len(session.runs)
    with pytest.raises(ConfigError, match="1 usable GPU for 2 ranks"):
        session.train(config.replace(device="cuda"))
    assert len(session.runs) == runs
    with pytest.warns(UserWarning, match="Ranks compute on CPUs, since the machine has 1 usable GPU for 2 ranks"):
        run = session.train(config.replace(epochs=1))
    assert run.wait(60).status == "finished"
    report_text = (run.path / "report.html").read_text()
    assert "Ranks compute on CPUs" in report_text


def test_a_resumed_run_gets_the_devices_of_now_and_a_refused_one_stays_elsewhere(
    session: Session, config: RunConfig, report: Callable[..., None], tmp_path: Path
) -> None:
    report(gpus=(GPU,))
    with pytest.warns(UserWarning, match="Ranks compute on CPUs"):
        run = until_step(session.train(config), 12)
    run.stop()
    run.wait(60)
    copy = shutil.copytree(run.path, tmp_path / "elsewhere" / run.path.name)
    (copy / "config.json").write_text(run.config.replace(device="cuda").to_json())
    with pytest.raises(ConfigError, match="1 usable GPU for 2 ranks"):
        session.resume(copy)
    assert copy not in [known.path for known in session.runs]
    report(gpus=())
    resumed = run.resume()
    assert RunDirectory.open(run.path).environment()["device_note"] == ""
    stop(resumed)


def test_gpus_that_torch_cannot_use_are_named_when_a_session_starts(
    session: Session, report: Callable[..., None]
) -> None:
    report(problem="the driver is too old.")
    with pytest.warns(UserWarning, match="Engines 0, 1 use no GPU: the driver is too old"):
        again = Session.attach(session.name)
    again.detach()
    report(gpus=(GPU,), problem="GPU0 has an old capability.")
    with pytest.warns(UserWarning, match="Engines 0 may fail on their GPUs: GPU0 has an old capability"):
        Session.attach(session.name).detach()
