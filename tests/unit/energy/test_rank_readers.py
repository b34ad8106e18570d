"""The readers of a rank: each device is counted once, and where nothing can be read a model and a note say so."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest import mock

import pynvml
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.energy.modelled import BusySeconds
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.rank_readers import NodeShareReader, readers_for
from dtdg_lab.energy.readers import EnergyReader, PowerModel
from tests.energy_doubles import PACKAGE, Powercap, ReplayClock, ReplayReader, Scripted


def chosen(device: str, ranks: int, root: Path, **more: Any) -> list[tuple[list[EnergyReader], list[str]]]:
    """Return the readers and the notes of each rank of a node."""
    given = {"local_ranks": ranks, "idle_w": 20.0, "max_w": 100.0, "rapl_root": root, **more}
    return [readers_for(device, local_rank=rank, **given) for rank in range(ranks)]


def names(readers: list[EnergyReader]) -> list[str]:
    return [reader.name for reader in readers]


def test_ranks_of_a_node_count_the_node_once(powercap: Powercap) -> None:
    ranks = chosen("cpu", 4, powercap.root)
    assert [names(readers) for readers, _ in ranks] == [["rapl"], [], [], []]
    assert all("read once for the node" in notes[0] for _, notes in ranks[1:])


def test_where_rapl_cannot_be_read_each_rank_models_its_share(tmp_path: Path) -> None:
    for readers, notes in chosen("cpu", 4, tmp_path):
        assert [(reader.source, reader.scope) for reader in readers] == [("modelled", "rank")]
        assert "modelled from 20 W idle and 100 W busy" in notes[0]


def test_each_gpu_is_read_by_its_rank_and_the_processors_once(nvml: mock.Mock, powercap: Powercap) -> None:
    ranks = chosen("cuda", 2, powercap.root)
    assert [names(readers) for readers, _ in ranks] == [["nvml:GPU-aaaa-1", "rapl"], ["nvml:GPU-bbbb-2"]]


@pytest.mark.parametrize("reason", ["driver", "permission", "mig"])
def test_a_gpu_that_cannot_be_read_is_modelled_where_its_power_is_known(
    nvml: mock.Mock, tmp_path: Path, reason: str
) -> None:
    if reason == "driver":
        nvml.nvmlInit.side_effect = pynvml.NVMLError_LibraryNotFound()
    elif reason == "permission":
        nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_NoPermission()
    else:
        nvml.nvmlDeviceGetMigMode.return_value = [nvml.NVML_DEVICE_MIG_ENABLE, 1]
    busy = BusySeconds()
    ((readers, notes),) = chosen("cuda", 1, tmp_path, gpu_busy=busy, gpu_idle_w=30.0, gpu_max_w=250.0)
    assert [(each.name, each.source) for each in readers] == [
        ("gpu-model", "modelled"),
        ("processor-model", "modelled"),
    ]
    assert notes[0].startswith("GPU energy is modelled from 30 W idle and 250 W busy")
    ((unknown, notes),) = chosen("cuda", 1, tmp_path, gpu_busy=busy)
    assert notes[0].startswith("GPU energy is unknown")
    time.sleep(0.001)
    assert unknown[0].read() is None
    ((readers, _),) = chosen("cuda", 1, tmp_path)
    assert names(readers) == ["processor-model"]
    assert nvml.nvmlShutdown.call_count == (0 if reason == "driver" else nvml.nvmlInit.call_count)


@pytest.mark.parametrize("wrong", [{"device": "tpu"}, {"local_rank": 2}, {"local_rank": -1}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        readers_for(**{"device": "cpu", "local_rank": 0, "local_ranks": 2, "idle_w": 1, "max_w": 2, **wrong})


def test_shares_of_a_node_sum_to_what_its_ranks_drew() -> None:
    clock, total = ReplayClock(), ReplayClock()
    cpus, power = [ReplayClock(), ReplayClock()], PowerModel(idle_w=40, max_w=200)
    readers = [
        NodeShareReader(
            ReplayReader([Scripted(2.0, 240.0)], clock, name="rapl", scope="node"),
            power,
            ranks_on_node=2,
            processor=cpu,
            node_processor=total,
        )
        for cpu in cpus
    ]
    clock.advance(2.0)
    for cpu, busy_s in zip(cpus, (3.0, 1.0), strict=True):
        cpu.advance(busy_s)
    total.advance(5.0)  # another program had one more
    readings = [reader.read() for reader in readers]
    assert [reading.joules for reading in readings] == pytest.approx([40 + 160 * 3 / 5, 40 + 160 * 1 / 5])
    assert {(each.scope, each.source, each.reader) for each in readings} == {("rank", "counter", "rapl-share")}
    assert readers[0].read() is None


@pytest.mark.parametrize(("scope", "ranks", "words"), [("rank", 1, "whole node"), ("node", 0, "at least 1")])
def test_only_a_node_is_shared_out(scope: str, ranks: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        NodeShareReader(
            ReplayReader([], ReplayClock(), scope=scope), PowerModel(idle_w=1, max_w=2), ranks_on_node=ranks
        )


def test_each_rank_has_its_share_beside_the_one_reader_of_the_node(powercap: Powercap) -> None:
    (first, _), (second, _) = chosen("cpu", 2, powercap.root, shares=True)
    assert (names(first), names(second)) == (["rapl", "rapl-share"], ["rapl-share"])
    meter = EnergyMeter(first)
    meter.begin_window("w")
    time.sleep(0.02)
    powercap.set(PACKAGE, 2_000_000)
    node, own = meter.end_window("w").readers
    assert (node.joules, node.scope) == (pytest.approx(1.0, rel=0.5), "node")
    assert 0.05 < own.joules <= 1.0  # at least its part of the idle power, 20 W for 20 ms, and at most all
