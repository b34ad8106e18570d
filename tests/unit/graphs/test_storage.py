"""Graphs that are written while they are made: crashes, memory, what loading reads."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import keys_of, snapshot_of_keys
from dtdg_lab.graphs.storage import ArrayFile, Draft, read

PEAK = "from dtdg_lab.core.units import peak_rss_bytes; print(peak_rss_bytes() // 2**20)"  # MiB

# children import this module for make_stream
CHILD = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r}); "
    "from tests.unit.graphs.test_storage import *\n"
)


def make_stream(intervals, nodes, edges, *, pause_at=None):
    """Random edges, drawn anew for every interval; stands still before ``pause_at``, saying so."""

    def make():
        for interval in range(intervals):
            if interval == pause_at:
                print("here", flush=True)
                time.sleep(60)
            draws = np.random.default_rng(interval)
            keys = keys_of(draws.integers(0, nodes, edges), draws.integers(0, nodes, edges))
            yield snapshot_of_keys(keys, None, nodes)

    return IntervalStream(num_intervals=intervals, num_nodes=nodes, weighted=False, make=make)


def build(stream, **options):
    return build_graph(stream, name="x", source="a test", edge_life=3, **options)


def child(code, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def output(code, *arguments):
    with child(code, *arguments) as process:
        text = process.stdout.read()
    assert process.returncode == 0
    return text.split()


def test_a_killed_writer_leaves_nothing_in_place_and_its_draft_goes_next_time(tmp_path):
    folder = tmp_path / "g"
    with child("build(make_stream(9, 50, 200, pause_at=6), into=Path(sys.argv[1]))", folder) as process:
        assert process.stdout.readline() == "here\n"
        (draft,) = tmp_path.iterdir()
        assert draft.name.startswith(".g.")
        assert {"indices.npy", "features.npy", "targets.npy"} <= {path.name for path in draft.iterdir()}
        # while its writer lives, others leave the draft alone
        graph = build(make_stream(9, 50, 200), into=tmp_path / "g.other")
        assert draft.is_dir()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert draft.is_dir()
    with pytest.raises(DataError, match="holds no stored graph"):
        DynamicGraph.load(folder)
    assert build(make_stream(9, 50, 200), into=folder).data_hash == graph.data_hash
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "g.other"]


def test_a_graph_in_place_stays_until_the_new_one_is_whole(tmp_path):
    first = build(make_stream(5, 50, 200), into=tmp_path / "g")
    features = first.features.copy()

    def broken():
        yield from make_stream(3, 40, 200).make()
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        build(IntervalStream(num_intervals=9, num_nodes=40, weighted=False, make=broken), into=tmp_path / "g")
    assert DynamicGraph.load(tmp_path / "g").data_hash == first.data_hash
    second = build(make_stream(6, 40, 200), into=tmp_path / "g")
    assert DynamicGraph.load(tmp_path / "g").data_hash == second.data_hash != first.data_hash
    np.testing.assert_array_equal(first.features, features)  # readers keep what they mapped
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


@pytest.mark.slow
def test_writing_a_large_graph_takes_the_memory_of_a_few_windows(tmp_path):
    before, after, size = output(
        f"""
        small = build(make_stream(8, 20_000, 4_000), into=Path(sys.argv[1]) / "small")
        {PEAK}
        build(make_stream(150, 20_000, 4_000), into=Path(sys.argv[1]) / "large")
        {PEAK}
        print(sum(path.stat().st_size for path in (Path(sys.argv[1]) / "large").iterdir()) >> 20)
        """,
        tmp_path,
    )
    assert int(size) > 70
    assert int(after) - int(before) < 15


@pytest.mark.slow
def test_loading_reads_no_page_of_the_arrays(tmp_path):
    folder = build(make_stream(40, 20_000, 4_000), into=tmp_path / "g") and tmp_path / "g"
    sizes = sum(path.stat().st_size for path in folder.iterdir())
    touched, after = map(
        int,
        output(
            """
            def resident():
                text = Path("/proc/self/smaps").read_text()
                parts = re.split(r"^[0-9a-f]+-[0-9a-f]+ ", text, flags=re.M)
                mapped = [part for part in parts if sys.argv[1] in part and "edges.npy" not in part]
                assert len(mapped) >= 5
                print(sum(int(re.search(r"Rss: +([0-9]+) kB", part)[1]) for part in mapped))

            graph = DynamicGraph.load(Path(sys.argv[1]))
            assert (graph.num_snapshots, graph.num_nodes, len(graph.following)) == (37, 20_000, 37)
            assert graph.data_hash
            resident()
            graph.features.sum()
            resident()
            """,
            folder,
        ),
    )
    assert touched == 0
    assert after * 1024 > sizes / 4  # and the measure sees pages that are read


def test_a_growing_array_is_a_npy_file_of_its_final_length(tmp_path):
    file = ArrayFile(tmp_path / "a.npy", np.int32, (3,))
    empty = ArrayFile(tmp_path / "b.npy", "<U5", ())
    parts = [np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((0, 3), np.int32), np.ones((1, 3), np.int32)]
    for part in parts:
        file.extend(part)
    with pytest.raises(DataError, match="int64 of shape"):
        file.extend(np.zeros((1, 3), np.int64))
    with pytest.raises(DataError, match=r"int32 of shape \(1, 2\)"):
        file.extend(np.zeros((1, 2), np.int32))
    for each in (file, empty):
        each.close()
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.concatenate(parts))
    assert np.load(tmp_path / "b.npy").shape == (0,)
    assert b"".join(piece.tobytes() for piece in file.pieces()) == np.concatenate(parts).tobytes()


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    with (
        Path("/dev/full").open("wb", buffering=0) as device,
        pytest.raises(DataError, match="No space left on device"),
        Draft(tmp_path / "g") as draft,
    ):
        draft.put("a", np.zeros(3))
        file = draft.file("a", np.float64)
        file.file.close()
        file.file = device
        file.extend(np.zeros(3))
    assert list(tmp_path.iterdir()) == []


def test_many_may_put_different_graphs_into_one_place(tmp_path):
    def write(number):
        for turn in range(10):
            with Draft(tmp_path / "g") as draft:
                draft.put("a", np.full(3, number))
                draft.close_files()
                draft.finish({"data_hash": f"{number} {turn}"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    arrays, meta = read(tmp_path / "g", mmap=False)
    assert arrays["a"].tolist() == [int(meta["data_hash"].split()[0])] * 3


def test_a_damaged_description_is_replaced(tmp_path):
    graph = build(make_stream(5, 50, 200), into=tmp_path / "g")
    (tmp_path / "g" / "meta.json").write_text("{")
    assert build(make_stream(5, 50, 200), into=tmp_path / "g").data_hash == graph.data_hash


def test_what_killed_writers_left_goes_with_the_next(tmp_path):
    with Draft(tmp_path / "g") as draft:
        draft.put("a", np.zeros(3))
        draft.close_files()
        draft.finish({"data_hash": "x"})
    assert sorted(path.name for path in (tmp_path / "g").iterdir()) == ["a.npy", "meta.json"]
    unseen = tmp_path / ".new.g.1.abc"  # killed before its lock was held
    unseen.mkdir()
    with Draft(tmp_path / "g"):
        assert unseen.exists()  # it may be at work
    os.utime(unseen, (0, 0))
    with Draft(tmp_path / "g"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_odd_folder_names_are_only_names(tmp_path):
    folder = tmp_path / "a [b] * (1)"
    build(make_stream(5, 50, 200), into=folder)
    build(make_stream(6, 50, 200), into=folder)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


@pytest.mark.parametrize("name", ["indptr", "indices", "edges", "features", "targets", "classes", "following_indices"])
@pytest.mark.parametrize("damage", ["short", "gone", "other"])
def test_damaged_arrays_are_noticed_by_their_sizes(tmp_path, name, damage):
    stream = make_stream(6, 50, 200)
    classes = np.zeros((6, 50), np.int16)
    stream = IntervalStream(num_intervals=6, num_nodes=50, weighted=False, make=stream.make, classes=classes)
    folder = tmp_path / "g"
    build(stream, into=folder)
    path = folder / f"{name}.npy"
    if damage == "short":
        os.truncate(path, path.stat().st_size - 4)
    if damage == "gone":
        path.unlink()
    if damage == "other":
        array = np.load(path)
        np.save(path, array[:-1])
    for mmap in (True, False):
        with pytest.raises(DataError, match=re.escape(f"the graph in {folder} is damaged")):
            DynamicGraph.load(folder, mmap)


@pytest.fixture
def switching():
    """Threads change within whatever collects garbage, parsers of array headers included."""

    def change(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(change)
    gc.set_threshold(3)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(change)


@pytest.mark.slow
def test_threads_that_open_a_graph_do_not_disturb_each_other(tmp_path: Path, switching: None) -> None:
    folder, failures = tmp_path / "graph", []
    load_dataset("growing", generated_nodes=16, generated_edges=32, generated_snapshots=12).save(folder)

    def open_it() -> None:
        try:
            for _ in range(15):
                read(folder, mmap=True)
        except Exception as error:  # a thread has nobody to raise to
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
