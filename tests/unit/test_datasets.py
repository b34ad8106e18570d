"""Data sets by name: published files, download, generator, cache, the user's own edges."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ChecksumError, ConfigError, DataError, UnknownNameError, UnsupportedError
from dtdg_lab.datasets import datasets, default_dataset, from_edges, load_dataset, load_for
from dtdg_lab.datasets.fetch import fetch, find, raw_folder, verified
from dtdg_lab.datasets.growing import GROWING
from dtdg_lab.datasets.names import load_text
from dtdg_lab.datasets.snap import COLLEGEMSG, EMAIL_EU, MATHOVERFLOW, SnapText, parse, read_edges

ROOT = Path(__file__).resolve().parents[2]
TEXT = b"# a comment\n1 2 0\n2\t3 10\n\n3 1 25\n% another\n1 2 29\n"


def definition_of(text=TEXT, *, name="tiny", url="http://127.0.0.1:1/tiny.txt.gz", rows=4, nodes=3):
    return SnapText(
        name=name,
        files=("tiny.txt.gz", "tiny.txt"),
        urls=(url,),
        sha256_gz=hashlib.sha256(gzip.compress(text, mtime=0)).hexdigest(),
        sha256_text=hashlib.sha256(text).hexdigest(),
        window_s=10,
        rows=rows,
        nodes=nodes,
        licence="none",
        cite="a test",
    )


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Every test has a cache of its own and no folder from the environment; loopback never goes to a proxy."""
    monkeypatch.delenv("DTDG_LAB_DATA", raising=False)
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)


@pytest.fixture
def server():
    """A web server on loopback: `server.answers` are the (status, body) still to give, `server.asked` what came."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append((self.path, self.headers["Accept-Encoding"]))
            answers = self.server.answers
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked, running.answers = [], []
        running.url = f"http://127.0.0.1:{running.server_port}/tiny.txt.gz"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


# published files


@pytest.mark.parametrize(
    ("definition", "windows", "non_empty", "pairs"),
    [(COLLEGEMSG, 89, 89, 20_296), (EMAIL_EU, 115, 78, 24_929), (MATHOVERFLOW, 79, 79, 239_978)],
    ids=lambda value: getattr(value, "name", None),
)
def test_published_files_have_the_published_counts(real_data, definition, windows, non_empty, pairs):
    graph = load_dataset(definition.name, root=real_data)
    assert graph.num_snapshots == windows - 1
    assert graph.num_nodes == definition.nodes
    text = verified(definition, real_data / definition.files[0])
    edges = read_edges(definition, text)
    assert len(edges.src) == definition.rows
    assert len(set(zip(edges.src.tolist(), edges.dst.tolist(), strict=True))) == pairs
    assert edges.num_intervals == windows
    assert len(np.unique(edges.interval)) == non_empty
    # the last window is only a label, and is not empty in any of them
    assert (graph.num_edges > 0).sum() == non_empty - 1
    assert graph.source == f"file {definition.files[0]} in {real_data.resolve()}"


def test_empty_weeks_of_the_emails_are_where_they_should_be(real_data):
    graph = load_dataset("email-eu", root=real_data)
    assert np.flatnonzero(graph.num_edges == 0).tolist() == list(range(76, 113))


def test_edge_life_and_cut_on_a_published_file(real_data):
    graph = load_dataset("collegemsg", root=real_data, cut=60, edge_life=5, features="degrees")
    assert (graph.num_snapshots, graph.edge_life) == (55, 5)
    strict = load_dataset("collegemsg", root=real_data, cut=60, edge_life=5, features="degrees", strict_label=True)
    assert (strict.targets <= graph.targets).all()
    assert strict.targets.sum() < graph.targets.sum()
    np.testing.assert_array_equal(strict.features, graph.features)
    np.testing.assert_allclose(np.expm1(graph.persistence[1:]), graph.features[1:, :, 0], rtol=1e-5)


def test_plain_text_and_repacked_files_are_taken(tmp_path):
    definition = definition_of()
    hashes = set()
    for name, data in (
        ("tiny.txt.gz", gzip.compress(TEXT, mtime=0)),
        ("tiny.txt.gz", gzip.compress(TEXT, compresslevel=1, mtime=7)),
        ("tiny.txt", TEXT),
    ):
        folder = tmp_path / hashlib.sha256(data).hexdigest()[:8]
        folder.mkdir()
        (folder / name).write_bytes(data)
        graph = load_text(definition, root=folder)
        hashes.add(graph.data_hash)
        assert graph.source == f"file {name} in {folder}"  # also where the cut graph comes from the cache
    assert len(hashes) == 1
    assert graph.num_edges.tolist() == [1, 1]  # 1->2 at 0; 2->3 at 10; the window 20..29 is only a label
    assert len(list((tmp_path / "cache" / "graphs").iterdir())) == 1


@pytest.mark.parametrize(
    "data", [b"1 2 3\n", gzip.compress(b"1 2 3\n"), gzip.compress(TEXT, mtime=0)[:-9], b"\x1f\x8b no gzip"]
)
def test_a_wrong_file_is_refused_with_both_hashes(tmp_path, data):
    definition = definition_of()
    (tmp_path / "tiny.txt.gz").write_bytes(data)
    with pytest.raises(ChecksumError) as caught:
        load_text(definition, root=tmp_path)
    expected = definition.sha256_gz if data[:2] == b"\x1f\x8b" else definition.sha256_text
    for part in (hashlib.sha256(data).hexdigest(), expected, str(tmp_path / "tiny.txt.gz"), "delete it"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "number"),
    [
        ("1 2", 3), ("1 2 3 4", 3), ("1 two 3", 3), ("1 2 3.5", 3), ("1 2 99999999999999999999", 3), ("1,2,3", 3),
        ("caf\xe9 2 3", 3),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(bad, number):
    with pytest.raises(DataError) as caught:
        parse(f"# head\n1 2 3\n{bad}\n4 5 6\n".encode("latin-1"), "some.txt")
    for part in (f"line {number} of some.txt", repr(bad), "three whole numbers"):
        assert part in str(caught.value)


def test_all_lines_with_too_many_columns_are_bad_too():
    with pytest.raises(DataError, match=r"line 1 of some\.txt is '1 2 3 4'"):
        parse(b"1 2 3 4\n5 6 7 8\n", "some.txt")


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# only\n% comments\n"])
def test_a_file_without_edges_says_so(text):
    with pytest.raises(DataError, match="holds no edges"):
        parse(text, "some.txt")


def test_parse_reads_what_is_there():
    assert parse(TEXT, "t").tolist() == [[1, 2, 0], [2, 3, 10], [3, 1, 25], [1, 2, 29]]
    assert parse(TEXT.replace(b"\n", b"\r\n"), "t").tolist() == parse(TEXT, "t").tolist()
    assert parse(b"7 8 9", "t").tolist() == [[7, 8, 9]]


@pytest.mark.parametrize("wrong", [{"rows": 5}, {"nodes": 4}])
def test_other_counts_than_published_are_an_error(wrong):
    with pytest.raises(DataError, match="are published"):
        read_edges(definition_of(**wrong), TEXT)


# where files are looked for


def test_order_of_the_places(tmp_path, monkeypatch):
    definition = definition_of()
    places = [tmp_path / "root", tmp_path / "environment", raw_folder()]
    assert find(definition, None) is None
    monkeypatch.setenv("DTDG_LAB_DATA", str(places[1]))
    for folder in reversed(places):
        folder.mkdir(parents=True)
    for folder in reversed(places):
        (folder / "tiny.txt").write_bytes(TEXT)
        assert find(definition, places[0]) == folder / "tiny.txt"


def test_a_folder_that_is_none_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"root=.*is not a folder"):
        load_dataset("collegemsg", root=tmp_path / "typo")
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match=r"DTDG_LAB_DATA=.*is not a folder"):
        default_dataset()
    listed = {info.name: info for info in datasets()}
    assert not listed["collegemsg"].on_this_machine
    assert "is not a folder" in listed["collegemsg"].where
    assert load_dataset("growing").num_nodes == 600


def test_list_and_default(real_data, monkeypatch):
    listed = {info.name: info for info in datasets()}
    assert list(listed) == ["collegemsg", "email-eu", "mathoverflow", "growing"]
    assert [info.on_this_machine for info in listed.values()] == [False, False, False, True]
    assert listed["email-eu"].where == f"to be downloaded from {EMAIL_EU.urls[0]}"
    assert default_dataset() == "growing"
    monkeypatch.setenv("DTDG_LAB_DATA", str(real_data))
    assert default_dataset() == default_dataset(real_data) == "collegemsg"
    here = datasets()[0]
    assert (here.rows, here.nodes, here.on_this_machine) == (59_835, 1_899, True)
    assert here.where == str(real_data.resolve() / "CollegeMsg.txt.gz")
    assert all(url.startswith("https://") for one in (COLLEGEMSG, EMAIL_EU, MATHOVERFLOW) for url in one.urls)


# download


def test_download_once_then_from_the_cache(server):
    server.answers.append((200, gzip.compress(TEXT, mtime=0)))
    definition = definition_of(url=server.url)
    graph = load_text(definition)
    assert graph.num_nodes == 3
    assert graph.source == f"file tiny.txt.gz in {raw_folder().resolve()}"
    assert load_text(definition).data_hash == graph.data_hash
    assert server.asked == [("/tiny.txt.gz", "identity")]


def test_download_is_tried_again(server, no_waiting):
    server.answers += [(503, b"busy"), (200, b"cut short"), (200, gzip.compress(TEXT, mtime=0))]
    assert fetch(definition_of(url=server.url)).read_bytes() == gzip.compress(TEXT, mtime=0)
    assert len(server.asked) == 3


def test_a_wrong_download_is_refused_and_not_kept(server, no_waiting):
    server.answers.append((200, b"something else"))
    definition = definition_of(url=server.url)
    with pytest.raises(ChecksumError) as caught:
        load_text(definition)
    for part in (definition.sha256_gz, hashlib.sha256(b"something else").hexdigest(), server.url, "DTDG_LAB_DATA"):
        assert part in str(caught.value)
    assert list(raw_folder().iterdir()) == []


def test_a_second_address_is_tried(server, no_waiting):
    server.answers.append((200, gzip.compress(TEXT, mtime=0)))
    definition = dataclasses.replace(definition_of(), urls=("http://127.0.0.1:1/tiny.txt.gz", server.url))
    assert fetch(definition).name == "tiny.txt.gz"


def test_no_network_says_what_to_do(no_waiting):
    with pytest.raises(DataError) as caught:
        load_text(definition_of())
    for part in ("'tiny'", "tiny.txt.gz or tiny.txt", str(raw_folder()), "DTDG_LAB_DATA", 'dataset="growing"'):
        assert part in str(caught.value)


# generator


def test_same_seed_same_graph_and_another_seed_another():
    def generated(seed):
        return GROWING.generate(seed=seed, nodes=300, edges=900, snapshots=10, growth=5.0)

    first, again, other = generated(3), generated(3), generated(4)
    np.testing.assert_array_equal(first.src, again.src)
    np.testing.assert_array_equal(first.dst, again.dst)
    assert not np.array_equal(np.bincount(first.dst, minlength=300), np.bincount(other.dst, minlength=300))
    assert load_dataset("growing", seed=3).data_hash == load_dataset("growing", seed=3).data_hash
    assert load_dataset("growing", seed=3).data_hash != load_dataset("growing", seed=4).data_hash
    assert load_dataset("growing", seed=3).source == "generated (seed 3)"


def test_growth_noise_renewal_and_popularity():
    nodes, snapshots = 5_000, 40
    edges = GROWING.generate(seed=1, nodes=nodes, edges=20_000, snapshots=snapshots, growth=10.0)
    counts = np.bincount(edges.interval)
    off = counts / np.linspace(2_000, 20_000, snapshots) - 1
    assert len(counts) == snapshots
    assert 0.03 < off.std() < 0.07
    assert np.abs(off).max() < 0.16
    assert not (edges.src == edges.dst).any()
    keys = [set() for _ in range(snapshots)]
    for u, v, t in zip(edges.src.tolist(), edges.dst.tolist(), edges.interval.tolist(), strict=True):
        keys[t].add((u, v))
    assert [len(pairs) for pairs in keys] == counts.tolist()  # no duplicates
    kept = [len(a & b) / len(a) for a, b in itertools.pairwise(keys)]
    assert 0.87 < np.mean(kept) < 0.91
    in_degrees = np.sort(np.bincount(edges.dst[edges.interval == snapshots - 1], minlength=nodes))[::-1]
    expected = np.arange(1, nodes + 1) ** -0.6
    assert in_degrees[:50].sum() / in_degrees.sum() == pytest.approx(expected[:50].sum() / expected.sum(), rel=0.15)


def test_the_fullest_graph_the_generator_allows():
    edges = GROWING.generate(seed=0, nodes=8, edges=14, snapshots=4, growth=1.0)
    assert len({*zip(edges.src.tolist(), edges.dst.tolist(), edges.interval.tolist(), strict=True)}) == len(edges.src)
    with pytest.raises(ConfigError, match="at most 14"):
        GROWING.generate(seed=0, nodes=8, edges=15, snapshots=4, growth=1.0)


def test_generated_options_are_read():
    graph = load_dataset(
        "growing", generated_nodes=50, generated_edges=200, generated_snapshots=12, growth=2.0, edge_life=3
    )
    assert (graph.num_nodes, graph.num_snapshots, graph.edge_life) == (50, 9, 3)


# names and options


def test_unknown_names_suggest_the_closest():
    with pytest.raises(UnknownNameError, match="Did you mean 'collegemsg'"):
        load_dataset("colegemsg")
    with pytest.raises(UnknownNameError, match="Did you mean 'generated_nodes'"):
        load_dataset("growing", generated_node=5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("growing", {"cut": 5}, "cut=5 has no meaning for data set 'growing'"),
        ("collegemsg", {"growth": 2.0}, "growth=2.0 has no meaning for data set 'collegemsg'"),
        ("graph:0123456789abcdef", {"edge_life": 2}, "a stored graph is cut already"),
        ("growing", {"edge_life": 0}, "edge_life=0 is out of range"),
        ("growing", {"features": "degree"}, "Did you mean 'degrees'"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        load_dataset(name, **options)


def test_load_for_reads_options_seed_and_protocol(real_data, monkeypatch):
    monkeypatch.setenv("DTDG_LAB_DATA", str(real_data))
    config = RunConfig(dataset="collegemsg", cut=40, edge_life=3, features="degrees", protocol="strict")
    expected = load_dataset("collegemsg", cut=40, edge_life=3, features="degrees", strict_label=True)
    assert load_for(config).data_hash == expected.data_hash
    config = RunConfig(dataset="growing", seed=5, generated_nodes=40, generated_edges=90, growth=3.0)
    expected = load_dataset("growing", seed=5, generated_nodes=40, generated_edges=90, growth=3.0)
    assert load_for(config).data_hash == expected.data_hash


# the user's own


def test_from_edges_and_back_through_a_config():
    graph = from_edges([1, 2, 3, 1], [2, 3, 1, 2], [0, 1, 2, 3], cut=4, edge_life=2, features="degrees")
    assert (graph.name, graph.num_snapshots, graph.source) == ("mine", 2, "given in memory (4 rows)")
    assert [snapshot.indices.tolist() for snapshot in graph.snapshots] == [[0, 1], [2, 1]]
    config = RunConfig(dataset=graph)
    assert config.dataset == f"graph:{graph.data_hash[:16]}"
    assert load_for(config).data_hash == graph.data_hash
    with pytest.raises(UnsupportedError, match="strict_label=True"):
        load_for(config.replace(protocol="strict"))
    once = from_edges([1, 2, 3, 1], [2, 3, 1, 2], [0, 1, 2, 3], cut=4)
    assert load_for(RunConfig(dataset=once, protocol="strict")).data_hash == once.data_hash


def test_from_edges_takes_columns_of_a_table():
    import pandas

    table = pandas.DataFrame(
        {
            "who": ["ann", "bob", "cem", "ann"],
            "whom": ["bob", "cem", "ann", "cem"],
            "when": pandas.date_range("2024-01-01", periods=4, freq="D"),
            "much": [1, 2, 3, 4],
        }
    )
    graph = from_edges(table.who, table.whom, table.when, weight=table.much, cut=3)
    assert graph.node_ids.tolist() == ["ann", "bob", "cem"]
    assert [snapshot.weights.tolist() for snapshot in graph.snapshots] == [[1], [2]]
    assert load_dataset(graph.store()).node_ids.tolist() == ["ann", "bob", "cem"]


def test_a_graph_that_is_not_stored(tmp_path):
    with pytest.raises(DataError, match=r"graph\.store\(\)"):
        load_dataset("graph:0123456789abcdef")
    with pytest.raises(DataError, match="is not stored"):
        load_dataset("graph:../../etc")
    graph = from_edges([1, 2, 3], [2, 3, 1], [0, 1, 2], cut=3)
    name = graph.store(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="is not stored"):
        load_dataset(name)
    assert load_dataset(name, root=tmp_path / "elsewhere").data_hash == graph.data_hash
    wrong = tmp_path / "elsewhere" / "graphs" / "0123456789abcdef"
    graph.save(wrong)
    with pytest.raises(DataError, match="another hash"):
        load_dataset("graph:0123456789abcdef", root=tmp_path / "elsewhere")


# several processes, and what an import costs

_RACE = """
import sys, time
from pathlib import Path
from dtdg_lab.datasets import load_dataset
ready, go = Path(sys.argv[1]), Path(sys.argv[2])
ready.touch()
while not go.exists():
    time.sleep(0.001)
for seed in range(8):
    graph = load_dataset("growing", seed=seed, generated_nodes=400, generated_edges=4000, generated_snapshots=10)
    print(graph.data_hash)
"""


def test_two_processes_write_the_cache_at_once(tmp_path):
    ready = [tmp_path / "ready0", tmp_path / "ready1"]
    command = [sys.executable, "-W", "error", "-c", _RACE]
    running = [
        subprocess.Popen([*command, str(mark), str(tmp_path / "go")], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for mark in ready
    ]
    deadline = time.monotonic() + 60
    while not all(mark.exists() for mark in ready) and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    said = [process.communicate(timeout=120)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert said[0] == said[1]
    assert len(set(said[0])) == 8
    folders = [path.name for path in (tmp_path / "cache" / "graphs").iterdir()]
    assert len(folders) == 8
    assert not any(name.startswith(".") for name in folders)


def test_import_is_light():
    heavy = "torch", "dgl", "pandas", "pooch", "requests"
    code = f"import sys, dtdg_lab.datasets as d; d.datasets(); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
