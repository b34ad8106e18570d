"""Generators beside training: the same batches from threads and processes, no more than asked for, and a clean end."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest

from dtdg_lab.core.errors import NotAvailableError, RunFailedError
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.engine.minibatch.blocks import BlockShape, BuiltBatch
from dtdg_lab.engine.views.replicated_part import CachedPart, Reach, cached_part, part_folder
from dtdg_lab.systems.hybrid_batches import generators as generator_process
from dtdg_lab.systems.hybrid_batches.generators import BatchMaker, Generators, Source
from dtdg_lab.systems.hybrid_batches.reservoir import Reservoir
from dtdg_lab.systems.hybrid_batches.sampler import TargetSampler, load_groups
from tests.hybrid_training import generator_children

SIZES = (BatchSize(2, 5), BatchSize(4, 9))
PLENTY = 1 << 30

each_kind = pytest.mark.parametrize("kind", ["threads", "processes"])


@pytest.fixture(scope="module")
def makers(tmp_path_factory: pytest.TempPathFactory) -> list[BatchMaker]:
    """Of the two halves of a small growing graph."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTDG_LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        graph = load_dataset("growing", generated_nodes=120, generated_edges=900, generated_snapshots=12)
        reach, made = Reach(range(10), 2), []
        for part in (0, 1):
            own = np.arange(part, graph.num_nodes, 2)
            cached_part(graph, own, reach)
            groups = load_groups(np.arange(len(own), dtype=np.float64), np.arange(len(own)), 5)
            sampler = TargetSampler(7, part, groups, reach.snapshots)
            folder = part_folder(graph, own, reach)
            made.append(BatchMaker(part, folder, reach, sampler, SIZES, BlockShape(2, 1, "per_vertex")))
        return made


def _sources(makers: list[BatchMaker], capacities: tuple[int, ...], limit_bytes: int = PLENTY) -> list[Source]:
    return [Source(maker, Reservoir[BuiltBatch](capacities, limit_bytes)) for maker in makers]


def _until(done: Callable[[], bool], generators: Generators | None = None) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end, "it did not come to pass within 30 s"
        if generators is not None:
            generators.check()
        time.sleep(0.005)


def _full(sources: list[Source]) -> bool:
    return not any(source.reservoir.has_room(action) for source in sources for action in range(len(SIZES)))


def _nothing_is_left() -> bool:
    names = [thread.name for thread in threading.enumerate() if "generator" in thread.name]
    return names == [] and generator_children() == []


@each_kind
def test_batches_equal_those_built_here(makers: list[BatchMaker], kind: str) -> None:
    sources = _sources(makers, (6, 4))
    with closing(Generators(sources, kind=kind)) as generators:
        _until(lambda: _full(sources), generators)
        assert generators.made == ((6, 4), (6, 4))
        assert all(busy_s > 0 for of in generators.busy_s for busy_s in of)
    for source in sources:
        part = source.maker.opened()
        for action, count in enumerate((6, 4)):
            for index in range(count):
                built, here = source.reservoir.get(action, index), source.maker.make(part, action, index)
                assert built is not None
                assert built.batch == here.batch
                assert built.blocks.arrays.keys() == here.blocks.arrays.keys()
                for name, array in here.blocks.arrays.items():
                    assert np.array_equal(built.blocks.arrays[name], array), name
                assert built.nbytes == here.nbytes
                assert built.built_s > 0


@each_kind
def test_no_more_is_made_than_the_reservoir_takes(makers: list[BatchMaker], kind: str) -> None:
    nbytes = makers[0].make(makers[0].opened(), 0, 0).nbytes
    sources = _sources(makers[:1], (1000, 2), limit_bytes=2 * 8 * nbytes)
    reservoir = sources[0].reservoir
    with closing(Generators(sources, kind=kind)) as generators:
        _until(lambda: _full(sources), generators)
        by_bytes, by_number = reservoir.levels()
        assert 1 <= by_bytes.held < 100
        assert by_number.held == 2
        busy_s = generators.busy_s
        time.sleep(0.3)
        assert generators.made == ((by_bytes.held, 2),)
        assert generators.busy_s == busy_s  # not even built and thrown away
        reservoir.clear()
        _until(lambda: _full(sources), generators)
        assert generators.made[0][1] == 4
    assert reservoir.get(1, 0) is None
    assert reservoir.get(1, 3) is not None  # new ones


@each_kind
def test_closing_in_full_work_is_quick(makers: list[BatchMaker], kind: str) -> None:
    sources = _sources(makers, (10**6, 10**6))
    generators = Generators(sources, kind=kind)
    _until(lambda: sum(map(sum, generators.made)) > 10, generators)
    begin = time.monotonic()
    generators.close()
    assert time.monotonic() - begin < 3
    assert _nothing_is_left()
    made = generators.made
    time.sleep(0.05)
    assert generators.made == made
    generators.check()


def test_a_batch_in_work_is_left_when_they_close(makers: list[BatchMaker], monkeypatch: pytest.MonkeyPatch) -> None:
    joined = CachedPart.joined  # as slow as in a large graph: a batch takes ten seconds
    monkeypatch.setattr(CachedPart, "joined", lambda *given: (time.sleep(1.0), joined(*given))[1])
    generators = Generators(_sources(makers[:1], (10**6, 10**6)), kind="threads")
    with closing(generators):
        time.sleep(0.1)
        begin = time.monotonic()
    assert time.monotonic() - begin < 3
    assert _nothing_is_left()
    assert generators.made == ((0, 0),)
    generators.check()  # which is no failure


@each_kind
def test_what_a_generator_failed_with_is_told(makers: list[BatchMaker], kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "part"
    shutil.copytree(makers[1].folder, folder)
    (folder / "bounds.npy").write_bytes(b"")
    damaged = BatchMaker(1, folder, makers[1].reach, makers[1].sampler, SIZES, makers[1].shape)
    sources = _sources([makers[0], damaged], (5, 5))
    with closing(Generators(sources, kind=kind)) as generators:
        with pytest.raises(RunFailedError, match=r"part 1 failed: DataError: the graph in .* is damaged"):
            _until(lambda: False, generators)
        _until(lambda: not _full(sources[1:]) and _full(sources[:1]))  # the other part's go on
    assert _nothing_is_left()


def test_a_process_that_is_killed_is_told(makers: list[BatchMaker]) -> None:
    sources = _sources(makers[:1], (10**6, 10**6))
    with closing(Generators(sources, kind="processes")) as generators:
        _until(lambda: sum(map(sum, generators.made)) > 0, generators)
        generator_children()[0].send_signal(signal.SIGKILL)
        with pytest.raises(RunFailedError, match=r"was ended by SIGKILL \(.* GiB of memory are free now"):
            _until(lambda: False, generators)
    assert _nothing_is_left()


PARENT = """
import os, pickle, psutil, signal, sys, time
from dtdg_lab.systems.hybrid_batches.reservoir import Reservoir
from dtdg_lab.systems.hybrid_batches.generators import Generators
from dtdg_lab.systems.hybrid_batches.generators import Source
maker = pickle.loads(open(sys.argv[1], "rb").read())
generators = Generators([Source(maker, Reservoir([10**6] * 2, 1 << 30))], kind="processes")
while not sum(generators.made[0]):
    generators.check()
    time.sleep(0.01)
print(psutil.Process().children()[0].pid, "torch" in sys.modules, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_ends_when_its_parent_is_killed(makers: list[BatchMaker], tmp_path: Path) -> None:
    file = tmp_path / "maker"
    file.write_bytes(pickle.dumps(makers[0]))
    done = subprocess.run(
        [sys.executable, "-c", PARENT, file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, torch_there = done.stdout.split()
    assert torch_there == "False"
    _until(lambda: not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.slow
def test_generators_give_way_to_training(makers: list[BatchMaker]) -> None:
    if sys.platform != "linux":
        pytest.skip("threads have priorities of their own on Linux alone")
    sources = _sources(makers[:1], (10**6, 10**6))
    with closing(Generators(sources, kind="threads")) as generators:
        _until(lambda: sum(map(sum, generators.made)) > 0, generators)
        own = [thread.native_id for thread in threading.enumerate() if "generator" in thread.name]
        assert len(own) == 1
        assert all(os.getpriority(os.PRIO_PROCESS, thread or 0) > 0 for thread in own)
    assert os.getpriority(os.PRIO_PROCESS, 0) == 0
    with closing(Generators(sources, kind="processes")) as generators:
        made = sum(map(sum, generators.made))
        _until(lambda: sum(map(sum, generators.made)) > made, generators)
        assert generator_children()[0].nice() > 0


def test_a_process_that_cannot_start_is_told(makers: list[BatchMaker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_process.sys, "executable", "/nowhere/python")
    with pytest.raises(NotAvailableError, match="Set generators='threads'"):
        Generators(_sources(makers, (5, 5)), kind="processes")
    assert _nothing_is_left()
