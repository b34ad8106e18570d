"""Data sets by name: published files of every kind, generators, the cache, stored graphs, and the list of them all."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import option
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ChecksumError, ConfigError, DataError, UnknownNameError, UnsupportedError
from dtdg_lab.datasets import download
from dtdg_lab.datasets.download import find
from dtdg_lab.datasets.names import default_dataset, list_datasets, load_dataset, load_for, load_published
from dtdg_lab.datasets.registry import BITCOIN_OTC, COLLEGEMSG, EMAIL_EU, Form, Published, PublishedFile
from dtdg_lab.datasets.sequences import read, renamed, sequence
from dtdg_lab.datasets.user_data import from_edges
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.intervals import cut_edges
from tests.format_samples import TEXT, put
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("alone")
ROOT = Path(__file__).resolve().parents[3]
EDGES = (
    "cut",
    "cut_by",
    "interval",
    "edge_life",
    "smoothing_window",
    "drop_first",
    "drop_partial",
    "min_edges",
    "features",
)
REAL = {
    # name here: (name in index.json, labelled snapshots, distinct pairs over all time, or None)
    "collegemsg": ("CollegeMsg", 88, 20_296),
    "email-eu": ("email-Eu-core-temporal", 114, 24_929),
    "mathoverflow": ("sx-mathoverflow", 78, 239_978),
    "bitcoin-otc": ("soc-sign-bitcoinotc", 137, 35_592),
    "bitcoin-alpha": ("soc-sign-bitcoinalpha", 136, 24_186),
    "fb-forum": ("fb-forum", 164, 7_089),
    "enron-employees": ("ia-enron-employees", 162, 2_235),
    "wikipedia": ("jodie-wikipedia", 30, 18_257),
    "chickenpox": ("pygt-chickenpox", 517, 102),
    "england-covid": ("pygt-england_covid", 53, None),
    "twitter-tennis": ("pygt-twitter_tennis_rg17", 120, None),
    "cora-t": ("planetoid-cora", 50, None),
}
GENERATED = ["growing", "uniform", "powerlaw", "sbm", "transactions"]


def options_of(**given: object) -> dict[str, object]:
    """All options of a set of edges with times."""
    return {name: given.get(name, option(name).default) for name in EDGES}


def definition_of(*, rows: int = 4, nodes: int = 3, exact: bool = True, parser: str = "snap_text", **more: object):
    file = PublishedFile(name="tiny.txt.gz", also=("tiny.txt",))
    facts = {
        "kind": "edges",
        "page": "https://page",
        "licence": "none",
        "cite": "a test",
        "summary": "",
        "interval": 10,
    }
    counts = {"rows": rows, "nodes": nodes, "exact": exact}
    return Published(name="tiny", forms=(Form(files=(file,), format=parser),), **counts, **{**facts, **more})


# the real files


@pytest.mark.parametrize("name", thinned(REAL, (0, 5, 6, 8)))
def test_real_files_have_the_published_counts(real_data, name):
    called, snapshots, pairs = REAL[name]
    stated = {entry["name"]: entry for entry in json.loads((real_data / "index.json").read_text())["datasets"]}[called]
    definition = catalogue.entry("datasets", name).load()
    assert (definition.rows, definition.nodes) == (stated["rows"], stated["nodes"])
    graph = load_dataset(name, root=real_data)
    assert graph.name == name
    assert graph.tasks == catalogue.tasks_of(name)
    assert (graph.num_snapshots, graph.num_nodes) == (snapshots, stated["nodes"])
    assert graph.source.startswith(f"file {stated['file']} in {real_data.resolve()}")
    table = read(definition, find(definition, real_data))
    if definition.kind == "edges":  # the last window is only a label
        assert graph.num_snapshots == stated["suggested_window"]["snapshots"] - 1
        assert len(table.src) == stated["rows"]
        assert len(np.unique(table.src * 2**31 + table.dst)) == pairs
    elif definition.kind == "steps":
        assert graph.num_snapshots == stated["suggested_window"]["snapshots"]
        if pairs is not None:
            assert set(graph.num_edges.tolist()) == {pairs}


def test_edge_life_and_cut_on_a_real_file(real_data):
    graph = load_dataset("collegemsg", root=real_data, cut=60, edge_life=5, features="degrees")
    assert (graph.num_snapshots, graph.edge_life) == (55, 5)
    strict = load_dataset("collegemsg", root=real_data, cut=60, edge_life=5, features="degrees", strict_label=True)
    assert (strict.targets <= graph.targets).all()
    assert strict.targets.sum() < graph.targets.sum()
    np.testing.assert_array_equal(strict.features, graph.features)
    np.testing.assert_allclose(np.expm1(graph.persistence[1:]), graph.features[1:, :, 0], rtol=1e-5)


def test_ratings_below_zero_are_left_out(real_data):
    graph = load_dataset("bitcoin-otc", root=real_data)
    assert graph.snapshots[0].weights is None
    found = find(BITCOIN_OTC, real_data)
    assert read(BITCOIN_OTC, found).weight.min() == -10  # the parser keeps them
    with pytest.raises(DataError, match="weight"):
        sequence(dataclasses.replace(BITCOIN_OTC, weights="keep"), found, options_of(), seed=0)


@pytest.mark.slow
def test_mathoverflow_with_long_lived_edges_fits_a_gibibyte(real_data, tmp_path):
    code = (
        "import sys\nfrom dtdg_lab.core.units import peak_rss_bytes\nfrom dtdg_lab.datasets.names import load_dataset\n"
        "graph = load_dataset('mathoverflow', root=sys.argv[1], cut=100, edge_life=31)\n"
        "assert graph.num_snapshots == 69, graph\n"
        "print(peak_rss_bytes() // 2**20)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(real_data)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 1024


# how options reach the cut


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"cut": 3},
        {"cut": 4, "cut_by": "edges"},
        {"interval": 12.0},
        {"interval": 1.0, "cut_by": "edges"},
        {"interval": 12.0, "drop_partial": True},
        {"cut": 3, "drop_first": True},
        {"cut": 3, "edge_life": 2},
        {"cut": 3, "smoothing_window": 2},
        {"cut": 3, "features": "constant"},
        {"cut": 4, "min_edges": 1},
    ],
    ids=str,
)
def test_a_file_is_cut_as_its_edges_would_be(tmp_path, given):
    options = options_of(**given)
    graph = load_published(definition_of(), options, root=put(tmp_path / "data"))
    src, dst, when = np.array([[1, 2, 0], [2, 3, 10], [3, 1, 25], [1, 2, 29]]).T
    edges = cut_edges(
        src,
        dst,
        when,
        cut=options["cut"],
        cut_by=options["cut_by"],
        drop_first=options["drop_first"],
        drop_partial=options["drop_partial"],
        window=options["interval"] or 10,
    )
    names = ("edge_life", "smoothing_window", "min_edges", "features")
    expected = build_graph(edges, name="", source="", **{name: options[name] for name in names})
    assert graph.data_hash == expected.data_hash


def test_names_of_vertices_follow_their_numbers():
    edges = renamed(cut_edges([0, 2], [2, 0], [0, 1], cut=2), np.array(["a", "b", "c"]))  # b has no edge
    assert edges.node_ids.tolist() == ["a", "c"]
    assert renamed(edges, None) is edges


def test_an_interval_of_time_is_no_number_of_edges(tmp_path):
    with pytest.raises(ConfigError, match=r"cut_by='edges'.* is a time\. Give cut"):
        load_published(definition_of(), options_of(cut_by="edges"), root=put(tmp_path / "data"))


def test_weights_are_kept_or_dropped(tmp_path):
    folder = put(tmp_path / "data", b"1,2,5,0\n2,3,2,10\n3,1,1,25\n1,2,4,29\n")
    kept = load_published(definition_of(parser="snap_csv"), options_of(cut=2), root=folder)
    assert kept.snapshots[0].weights.tolist() == [5, 2]
    dropped = load_published(definition_of(parser="snap_csv", weights="drop"), options_of(cut=2), root=folder)
    assert dropped.snapshots[0].weights is None


@pytest.mark.parametrize("wrong", [{"rows": 5}, {"nodes": 4}])
def test_other_counts_than_were_counted_are_an_error(tmp_path, wrong):
    folder = put(tmp_path / "data")
    with pytest.raises(DataError, match=r"has \d (rows|nodes); \d are published for 'tiny'"):
        load_published(definition_of(**wrong), options_of(), root=folder)
    assert not (tmp_path / "cache" / "graphs").exists() or not list((tmp_path / "cache" / "graphs").iterdir())
    with pytest.warns(UserWarning, match="are published for 'tiny'"):
        load_published(definition_of(exact=False, **wrong), options_of(), root=folder)


def test_unstated_counts_are_not_compared(tmp_path):
    load_published(definition_of(rows=None, nodes=None), options_of(), root=put(tmp_path / "data"))


# generators


@pytest.mark.parametrize("name", GENERATED)
def test_generators_take_their_options_and_the_seed(name):
    sizes = {"generated_nodes": 100, "generated_edges": 300, "generated_snapshots": 12, "edge_life": 3}
    graph = load_dataset(name, **sizes)
    assert (graph.num_nodes, graph.num_snapshots, graph.edge_life) == (100, 9, 3)
    assert graph.source == "generated (seed 0)"
    assert graph.tasks == catalogue.tasks_of(name)
    assert load_dataset(name, **sizes).data_hash == graph.data_hash
    assert load_dataset(name, seed=4, **sizes).data_hash != graph.data_hash
    others = {"growth": 5.0, "growth_curve": "exponential", "churn": 0.5, "zipf": 1.2, "communities": 2, "drift": 0.5}
    for key in set(others) & set(catalogue.entry("datasets", name).options):
        assert load_dataset(name, **sizes, **{key: others[key]}).data_hash != graph.data_hash, key


# the cache


def test_a_graph_is_built_once_and_mapped(tmp_path, monkeypatch):
    folder = put(tmp_path / "data")
    first = load_published(definition_of(), options_of(), root=folder)
    monkeypatch.setattr("dtdg_lab.datasets.names.build_graph", lambda *a, **k: pytest.fail("built again"))
    again = load_published(definition_of(), options_of(), root=folder)
    assert again.data_hash == first.data_hash
    assert not again.targets.flags.writeable
    base = again.targets
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap) or type(base.base).__name__ == "mmap"


def test_plain_and_packed_files_share_a_cut_graph(tmp_path):
    definition = definition_of()
    digest = __import__("hashlib").sha256(TEXT).hexdigest()
    file = dataclasses.replace(definition.forms[0].files[0], sha256_content=digest)
    definition = dataclasses.replace(definition, forms=(Form(files=(file,), format="snap_text"),))
    made = set()
    for name, data in (
        ("tiny.txt.gz", gzip.compress(TEXT, mtime=0)),
        ("tiny.txt.gz", gzip.compress(TEXT, compresslevel=1, mtime=7)),
        ("tiny.txt", TEXT),
    ):
        folder = put(tmp_path / str(len(data)), data, name)
        graph = load_published(definition, options_of(), root=folder)
        made.add(graph.data_hash)
        assert graph.source == f"file {name} in {folder}"  # also where the cut graph comes from the cache
    assert len(made) == 1
    assert len(list((tmp_path / "cache" / "graphs").iterdir())) == 1


def test_a_file_is_put_on_record_once_it_could_be_read(tmp_path):
    notes = tmp_path / "cache" / "recorded"
    folder = put(tmp_path / "data", b"<p>not found")
    with pytest.raises(DataError):
        load_published(definition_of(), options_of(), root=folder)
    assert not notes.exists()
    put(folder)
    load_published(definition_of(), options_of(), root=folder)
    assert len(list(notes.iterdir())) == 1
    put(folder, TEXT.replace(b"29", b"28"))
    with pytest.raises(ChecksumError, match="first used on this machine"):
        load_published(definition_of(), options_of(), root=folder)


def test_every_option_and_the_data_enter_the_key(tmp_path):
    folder = put(tmp_path / "data")
    given = [
        {},
        {"cut": 3},
        {"cut": 3, "cut_by": "edges"},
        {"interval": 9.0},
        {"edge_life": 2},
        {"drop_first": True},
        {"smoothing_window": 2},
        {"min_edges": 1},
        {"features": "degrees"},
        {"interval": 12.0, "drop_partial": True},
    ]
    for options in given:
        load_published(definition_of(), options_of(**options), root=folder)
    load_published(definition_of(), options_of(), root=folder, strict_label=True)
    load_published(definition_of(interval=9), options_of(), root=folder)
    load_published(definition_of(weights="drop"), options_of(), root=folder)
    graphs = tmp_path / "cache" / "graphs"
    assert len(list(graphs.iterdir())) == len(given) + 3
    load_published(definition_of(), options_of(), root=put(tmp_path / "other", TEXT, "tiny.txt.gz"))
    assert len(list(graphs.iterdir())) == len(given) + 3  # the same content under another name
    (folder / "tiny.txt").write_bytes(TEXT.replace(b"29", b"28"))
    for note in (tmp_path / "cache" / "recorded").iterdir():
        note.unlink()
    load_published(definition_of(), options_of(), root=folder)
    assert len(list(graphs.iterdir())) == len(given) + 4


def test_a_build_that_fails_leaves_nothing_half_done(tmp_path, monkeypatch):
    folder = put(tmp_path / "data")
    real = sequence

    def broken(*given, **named):
        stream = real(*given, **named).stream()

        def snapshots():
            yield next(iter(stream.make()))
            raise KeyboardInterrupt

        return dataclasses.replace(stream, make=snapshots)

    monkeypatch.setattr("dtdg_lab.datasets.names.sequence", broken)
    with pytest.raises(KeyboardInterrupt):
        load_published(definition_of(), options_of(), root=folder)
    assert list((tmp_path / "cache" / "graphs").iterdir()) == []
    monkeypatch.setattr("dtdg_lab.datasets.names.sequence", real)
    assert load_published(definition_of(), options_of(), root=folder).num_snapshots == 2


_RACE = """
import sys, time
from pathlib import Path
from dtdg_lab.datasets.names import load_dataset
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


# names and options


def test_unknown_names_suggest_the_closest():
    with pytest.raises(UnknownNameError, match="Did you mean 'collegemsg'"):
        load_dataset("colegemsg")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("growing", {"cut": 5}, "cut=5 has no meaning for data set 'growing'"),
        ("collegemsg", {"growth": 2.0}, "growth=2.0 has no meaning for data set 'collegemsg'"),
        ("chickenpox", {"min_edges": 2}, "min_edges=2 has no meaning for data set 'chickenpox'"),
        ("cora-t", {"cut": 3}, "cut=3 has no meaning for data set 'cora-t'"),
        ("graph:0123456789abcdef", {"edge_life": 2}, "a stored graph is cut already"),
        ("growing", {"edge_life": 0}, "edge_life=0 is out of range"),
        ("growing", {"features": "degree"}, "Did you mean 'degrees'"),
        ("growing", {"generated_nodes": 8, "generated_edges": 15}, "Lower generated_edges|at most"),
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
    assert load_for(RunConfig(dataset="chickenpox")).num_features == 4  # features="given" comes with the set
    flare = load_for(RunConfig(dataset="collegemsg", protocol="flare-2026", cut=40, edge_life=3))
    expected = load_dataset("collegemsg", cut=40, edge_life=3, features="degrees", drop_first=True, min_edges=51)
    assert flare.data_hash == expected.data_hash


# stored graphs


def test_a_graph_of_the_user_s_goes_through_a_config(tmp_path):
    graph = from_edges([1, 2, 3, 1], [2, 3, 1, 2], [0, 1, 2, 3], cut=4, edge_life=2, features="degrees")
    config = RunConfig(dataset=graph)
    assert config.dataset == f"graph:{graph.data_hash[:16]}"
    assert load_for(config).data_hash == graph.data_hash
    with pytest.raises(UnsupportedError, match="strict_label=True"):
        load_for(config.replace(protocol="strict"))
    once = from_edges([1, 2, 3, 1], [2, 3, 1, 2], [0, 1, 2, 3], cut=4)
    assert load_for(RunConfig(dataset=once, protocol="strict")).data_hash == once.data_hash


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


# the list


def test_the_list_is_the_catalogue_s_and_reads_no_file(real_data, monkeypatch):
    monkeypatch.setattr(download, "_computed", lambda path: pytest.fail(f"hashed {path}"))
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail(f"read {self}"))
    listed = {info.name: info for info in list_datasets(real_data)}
    assert list(listed) == list(catalogue.names("datasets"))
    assert {name for name, info in listed.items() if info.on_this_machine} == {*REAL, *GENERATED}
    for name, info in listed.items():
        assert info.tasks == catalogue.tasks_of(name)
        assert info.licence
        assert info.source
    here = listed["collegemsg"]
    assert (here.rows, here.nodes, here.bytes) == (59_835, 1_899, 345_339)
    assert listed["fb-forum"].bytes == 200_668  # of the file here; no size is published
    assert listed["askubuntu"].bytes is None
    assert here.where == f"file CollegeMsg.txt.gz in {real_data.resolve()}"
    assert listed["askubuntu"].where == "to be downloaded from https://snap.stanford.edu/data/sx-askubuntu.txt.gz"
    assert listed["growing"].where == "generated when asked for"


def test_nothing_is_here_without_files(tmp_path):
    listed = {info.name: info for info in list_datasets()}
    assert {name for name, info in listed.items() if info.on_this_machine} == set(GENERATED)
    assert listed["email-eu"].where == f"to be downloaded from {EMAIL_EU.address}"
    assert default_dataset() == "growing"
    put(tmp_path, b"", COLLEGEMSG.forms[0].files[0].name)
    assert default_dataset(root=tmp_path) == "collegemsg"
    assert default_dataset("email-eu", root=tmp_path) == "growing"
    with pytest.raises(UnknownNameError, match=r"'emial-eu'.*Did you mean 'email-eu'"):
        default_dataset("emial-eu")


def test_a_folder_that_is_none_is_said_in_the_list(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"root=.*is not a folder"):
        load_dataset("collegemsg", root=tmp_path / "typo")
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match=r"DTDG_LAB_DATA=.*is not a folder"):
        default_dataset()
    listed = {info.name: info for info in list_datasets()}
    assert not listed["collegemsg"].on_this_machine
    assert "is not a folder" in listed["collegemsg"].where
    assert load_dataset("growing").num_nodes == 600
