"""Changes of settings that lower the memory of a rank."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.systems.step_memory import lower_memory, setting_changes, stored_values
from dtdg_lab.systems.workload import count_work

SIZES = {"generated_nodes": 200, "generated_edges": 800, "generated_snapshots": 30, "hidden": 8}


def config_of(system: str, **settings: object) -> RunConfig:
    return RunConfig(system=system, dataset="growing", ranks=2, **{**SIZES, **settings})


def test_changes_are_made_in_steps_and_only_of_options_that_the_system_has() -> None:
    assert list(setting_changes(config_of("psg", group_window=8))) == [
        {"group_window": 4},
        {"group_window": 2},
        {"group_window": 1},
    ]
    assert list(setting_changes(config_of("esdg", blocks=0)))[:2] == [{"blocks": 2}, {"blocks": 4}]
    assert list(setting_changes(RunConfig(system="single", dataset="growing", **SIZES))) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_first_change_that_halves_the_memory_is_taken(dtype: str) -> None:
    config = config_of("psg", group_window=8, hidden=64, dtype=dtype)
    graph = load_for(config)
    remedy = lower_memory(config, graph)
    work, facts = count_work(config, graph)
    size = np.dtype(dtype).itemsize
    assert remedy.before_bytes == (stored_values(work, facts) * size + work.held_bytes).max()
    assert remedy.changes == {"group_window": 4} or remedy.after_bytes <= remedy.before_bytes / 2
    assert remedy.after_bytes < remedy.before_bytes and remedy.is_live
    assert str(remedy).startswith(f"group_window={remedy.changes['group_window']} lowers the predicted memory")


def test_without_a_change_that_lowers_the_memory_there_is_no_remedy() -> None:
    config = RunConfig(system="single", dataset="growing", **SIZES)
    assert lower_memory(config, load_for(config)) is None
