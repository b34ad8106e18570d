"""The joules of a run: summed over nodes and devices, each once, by summary, live view, race and energy table alike."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.energy.total import total_of
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.studies.objective import values_of
from dtdg_lab.studies.race_table import joules_of
from dtdg_lab.visualization.runs.curves import joules_at
from dtdg_lab.visualization.runs.energy import energy_total
from tests.stored_runs import STEPS_PER_EPOCH, row, write_steps
from tests.thinning import thinned

CONFIG = RunConfig(system="psg", dataset="growing", ranks=2)
S = 1_000_000_000
GPU = {"device": "gpu", "scope": "rank", "source": "counter"}
RAPL = {"reader": "rapl", "device": "processor", "scope": "node", "source": "counter"}
MODEL = {"reader": "processor-model", "device": "processor", "scope": "rank", "source": "modelled"}
GPU_MODEL = {"reader": "gpu-model", "device": "gpu", "scope": "rank", "source": "modelled"}
UNREAD = {"reader": None, "device": "processor", "scope": "rank", "source": None}


def described(
    rank: int, joules: float | None, node: str = "a", *, seconds: int = 10, **of: Any
) -> list[dict[str, Any]]:
    """A row a second; its joules in all."""
    each = None if joules is None else joules / seconds
    usual = {"rank": rank, "attempt": 1, "interval_s": 1.0, "joules": each, "watts": each, "cpu_s": 0.1, "node": node}
    return [{**usual, "time_ns": (1 + second) * S, **of} for second in range(seconds)]


def gpu(rank: int, joules: float, uuid: str, node: str = "a", **more: Any) -> list[dict[str, Any]]:
    return described(rank, joules, node, **{**GPU, "reader": f"nvml:{uuid}"}, **more)


# what was read and modelled: rows; joules by source; coverage: read, modelled, unknown
MIXES: dict[str, tuple[list[list[dict[str, Any]]], dict[str, float], tuple[float, float, float]]] = {
    "a GPU and the processors of its node": (
        [gpu(0, 120.7, "X"), described(0, 362.1, **RAPL)],
        {"counter": 482.8},
        (1, 0, 0),
    ),
    "two GPUs beside the processors, which one rank reads": (
        [gpu(0, 100, "X"), gpu(1, 50, "Y"), described(0, 30, **RAPL), described(1, None, **UNREAD)],
        {"counter": 180},
        (1, 0, 0),
    ),
    "GPUs read, processors modelled by rank": (
        [gpu(0, 100, "X"), gpu(1, 50, "Y"), described(0, 7, **MODEL), described(1, 8, **MODEL)],
        {"counter": 150, "modelled": 15},
        (2 / 3, 1 / 3, 0),
    ),
    "GPUs modelled, processors read": (
        [described(0, 9, **GPU_MODEL), described(1, 9, **GPU_MODEL), described(0, 30, **RAPL)],
        {"counter": 30, "modelled": 18},
        (1 / 3, 2 / 3, 0),
    ),
    "a GPU that nobody reads": (
        [described(0, 40, **RAPL), described(0, None, **{**UNREAD, "device": "gpu"})],
        {"counter": 40},
        (0.5, 0, 0.5),
    ),
    "all modelled on one node": ([described(0, 3, **MODEL), described(1, 4, **MODEL)], {"modelled": 7}, (0, 1, 0)),
    "two nodes, both read": (
        [described(0, 40, "a", **RAPL), described(1, 50, "b", **RAPL)],
        {"counter": 90},
        (1, 0, 0),
    ),
    "two nodes, one read and one modelled": (
        [described(0, 40, "a", **RAPL), described(1, 5, "b", **MODEL)],
        {"counter": 40, "modelled": 5},
        (0.5, 0.5, 0),
    ),
    "two nodes, GPUs on one of them": (
        [gpu(0, 10, "X", "a"), described(0, 5, "a", **MODEL), described(1, 40, "b", **RAPL)],
        {"counter": 50, "modelled": 5},
        (2 / 3, 1 / 3, 0),
    ),
    "two nodes, one unknown": (
        [described(0, 40, "a", **RAPL), described(1, None, "b", **UNREAD)],
        {"counter": 40},
        (0.5, 0, 0.5),
    ),
    "two ranks on one GPU": (
        [gpu(0, 100, "X"), gpu(1, 100, "X"), described(0, 30, **RAPL)],
        {"counter": 130},
        (1, 0, 0),
    ),
    "two ranks on one GPU, one of which came late": (
        [gpu(0, 30, "X", seconds=3), gpu(1, 100, "X"), described(0, 6, **MODEL), described(1, 6, **MODEL)],
        {"counter": 100, "modelled": 12},
        (0.5, 0.5, 0),
    ),
    "a counter that was lost half way": (
        [described(0, 20, seconds=5, **RAPL), gpu(0, 100, "X")],
        {"counter": 120},
        (0.75, 0, 0.25),
    ),
    "shares of what the node's counter has": (
        [described(0, 40, **RAPL), described(0, 15, **{**MODEL, "reader": "rapl-share", "source": "counter"})],
        {"counter": 40},
        (1, 0, 0),
    ),
}


def recorded(root: Path, rows: list[dict[str, Any]], *, steps: bool = False) -> RunDirectory:
    run = RunDirectory.create(CONFIG, root=root)
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            if steps:
                write_steps(writer, 0, STEPS_PER_EPOCH)
            for each in rows:
                if each["rank"] == rank:
                    values = {name: value for name, value in each.items() if name not in ("rank", "attempt")}
                    writer.row("energy", row("energy", **values))
    return run


@pytest.mark.parametrize("name", thinned(MIXES, (4, 6)))
def test_every_device_counts_once_everywhere(name: str, tmp_path: Path) -> None:
    parts, joules, coverage = MIXES[name]
    run = recorded(tmp_path, list(itertools.chain(*parts)))
    summary = finish(run, "stopped")
    assert summary["energy_j"] == pytest.approx(joules)
    assert summary["total_j"] == pytest.approx(sum(joules.values()))
    assert tuple(summary["energy_coverage"].values()) == pytest.approx(coverage)
    assert (summary["gpu_j"] or 0) + (summary["processor_j"] or 0) == pytest.approx(summary["total_j"])
    stored = open_run(run.path)
    assert energy_total(stored.live).joules() == pytest.approx(joules)
    assert joules_at(stored.live, [1e6]) == pytest.approx([sum(joules.values())])
    assert energy_total(stored.live).coverage() == pytest.approx(summary["energy_coverage"])
    assert joules_of(stored) == values_of(stored)["energy_j"] == pytest.approx(sum(joules.values()))


def test_the_order_of_rows_and_their_repetition_change_nothing() -> None:
    rows = [*described(0, 40, "a", **RAPL), *described(1, 5, "b", **MODEL), *gpu(0, 10, "X")]
    forward, again = total_of(rows), total_of([*reversed(rows), *rows])
    assert forward.joules() == again.joules() == pytest.approx({"counter": 50.0, "modelled": 5.0})


def test_attempts_are_spent_one_after_the_other_whoever_reads_in_them() -> None:
    second = [{**each, "rank": 1, "attempt": 2, "time_ns": each["time_ns"] + 100 * S} for each in gpu(0, 30, "X")]
    assert total_of([*gpu(0, 10, "X"), *gpu(1, 10, "X"), *second]).joules() == pytest.approx({"counter": 40.0})


def test_records_that_name_neither_node_nor_device_are_placed_by_their_readers() -> None:
    rows = [
        {name: value for name, value in each.items() if name not in ("node", "device")}
        for each in (*gpu(0, 120.7, "X"), *gpu(1, 10, "Y"), *described(0, 362.1, **RAPL))
    ]
    total = total_of(rows)
    assert total.joules("gpu") == pytest.approx({"counter": 130.7})
    assert total.joules("processor") == pytest.approx({"counter": 362.1})
    assert total.coverage() == pytest.approx({"read": 1.0, "modelled": 0.0, "unknown": 0.0})


def test_joules_of_steps_stand_in_where_no_reader_tells_of_the_processors(tmp_path: Path) -> None:
    run = recorded(tmp_path, gpu(0, 10, "X"), steps=True)
    summary = finish(run, "stopped")
    assert summary["energy_j"] == pytest.approx({"counter": 10.0, "modelled": 2 * STEPS_PER_EPOCH * 0.5})
    assert energy_total(open_run(run.path).live).joules() == pytest.approx(summary["energy_j"])


def test_the_caption_says_for_how_much_of_the_time_energy_is_known(tmp_path: Path) -> None:
    lost = recorded(tmp_path, [*described(0, 20, seconds=10, **RAPL), *gpu(0, 100, "X", seconds=40)])
    assert open_run(lost.path).captions()["energy"] == "Energy is known for 62% of the time; the rest is missing."
