"""Published data sets, from small files as their publishers write them."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import warnings
import zipfile

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.datasets.registry import Published
from tests.format_samples import put, tarred, zipped

pytestmark = pytest.mark.usefixtures("alone")


def _lines(separator: str, columns: int) -> bytes:
    """60 edges over 7 nodes and 60 days, with a weight of 2 where there are four columns."""
    rows = [(edge % 7 + 1, edge * 3 % 7 + 1, *([2] if columns == 4 else []), edge * 86_400) for edge in range(60)]
    return "\n".join(separator.join(map(str, row)) for row in rows).encode()


def _repository(name: str, separator: str = " ", head: bytes = b"% asym positive\n% 60 7 7\n", columns: int = 4):
    return {f"{name}.zip": zipped({"readme.html": b"<p>", f"{name}.edges": head + _lines(separator, columns)})}


def _reddit() -> dict[str, bytes]:
    head = "SOURCE_SUBREDDIT\tTARGET_SUBREDDIT\tPOST_ID\tTIMESTAMP\tLINK_SENTIMENT\tPROPERTIES\n"
    row = "{}\t{}\tx\t2014-0{}-01 12:00:00\t-1\t1.0,2.0\n"
    names = ["askreddit", "bestof", "dataisbeautiful"]
    text = head + "".join(row.format(names[i % 3], names[(i + 1) % 3], i % 9 + 1) for i in range(20))
    return {f"soc-redditHyperlinks-{part}.tsv": text.encode() for part in ("title", "body")}


def _elliptic() -> dict[str, bytes]:
    features = "\n".join(f"{100 + node},{node // 4 + 1},0.5,{node}.25" for node in range(12))
    flows = "txId1,txId2\n" + "\n".join(f"{100 + node},{101 + node}" for node in range(11) if node % 4 != 3)
    known = "txId,class\n" + "\n".join(f"{100 + node},{('1', '2', 'unknown')[node % 3]}" for node in range(12))
    texts = {"features": features, "edgelist": flows, "classes": known}
    names = {part: f"elliptic_txs_{part}.csv" for part in texts}
    return {f"{names[part]}.zip": zipped({names[part]: text.encode()}) for part, text in texts.items()}


def _amlsim() -> dict[str, bytes]:
    head = "tran_id,orig_acct,bene_acct,tx_type,base_amt,tran_timestamp,is_sar,alert_id\n"
    row = "{0},{1},{2},TRANSFER,10.5,2017-01-{3:02d}T00:00:00Z,False,-1\n"
    text = head + "".join(row.format(i, i % 5, (i + 2) % 5, i % 28 + 1) for i in range(60))
    member = "data/bank_mixed/transactions.csv.gz"
    return {"amlsim-v2.1.zip": zipped({member: gzip.compress(text.encode()), "data/bank_mixed/accounts.csv.gz": b"x"})}


def _konect(name: str) -> dict[str, bytes]:
    members = {"README": b"x", "out": b"% bip weighted\n" + _lines(" ", 4), "meta": b"y"}
    packed = tarred({f"{name}/{file}.{name}": data for file, data in members.items()})
    return {f"download.tsv.{name}.tar.bz2": packed}


def _ogb(name: str) -> dict[str, bytes]:
    """Seven nodes, 12 edges between them, two features and a class each."""
    texts = {
        "raw/edge": "\n".join(f"{edge % 7},{edge * 3 % 7}" for edge in range(1, 13)),
        "raw/num-node-list": "7",
        "raw/num-edge-list": "12",
        "raw/node-label": "\n".join(str(node % 3) for node in range(7)),
        "raw/node-feat": "\n".join(f"{node},0.5" for node in range(7)),
        "split/time/train": "0\n1\n2",
        "split/time/valid": "3",
        "split/time/test": "4\n5",
    }
    return {
        f"{name}.zip": zipped({f"{name}/{file}.csv.gz": gzip.compress(text.encode()) for file, text in texts.items()})
    }


MADE = {
    "slashdot": _repository("ia-slashdot-reply-dir"),
    "stackexch": _repository("ia-stackexch-user-marks-post-und"),
    "amazon-ratings": _repository("rec-amazon-ratings", ","),
    "flickr": _repository("soc-flickr-growth", " ", b"% asym positive\n"),
    "youtube": _repository("soc-youtube-growth"),
    "soc-bitcoin": _repository("soc-bitcoin", " ", b"", 3),
    "epinions": _repository("rec-epinions-user-ratings"),
    "fb-forum": _repository("fb-forum", ",", b"", 3),
    "enron-employees": _repository("ia-enron-employees", " ", b""),
    "askubuntu": {"sx-askubuntu.txt.gz": gzip.compress(_lines(" ", 3))},
    "stackoverflow": {"sx-stackoverflow.txt.gz": gzip.compress(_lines(" ", 3))},
    "reddit-hyperlinks": _reddit(),
    "elliptic": _elliptic(),
    "amlsim": _amlsim(),
    "ogbn-arxiv-t": _ogb("arxiv"),
    "ogbn-products-t": _ogb("products"),
    "ogbn-papers100m-t": _ogb("papers100M-bin"),
}


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("amazon-ratings", "amazon-ratings"),
        ("epinions", "epinions-rating"),
        ("slashdot", "slashdot-threads"),
        ("stackexch", "stackexchange-stackoverflow"),
        ("flickr", "flickr-growth"),
    ],
)
def test_konect_s_copy_is_the_same_graph(tmp_path, name, called):
    for folder, files in (("konect", _konect(called)), ("repository", MADE[name])):
        for file, data in files.items():
            put(tmp_path / folder, data, file)
    with pytest.warns(UserWarning, match="are published"):
        graphs = [
            load_dataset(name, root=tmp_path / folder, cut=6, min_edges=0, edge_life=1)
            for folder in ("konect", "repository")
        ]
    assert graphs[0].data_hash == graphs[1].data_hash
    assert graphs[0].num_nodes == 7  # users and items are numbered alike


WEIGHTED = (*("slashdot", "stackexch", "amazon-ratings", "flickr", "youtube", "epinions", "amlsim", "enron-employees"),)


@pytest.mark.parametrize("name", MADE)
def test_small_files_like_the_published_ones_are_read(tmp_path, name, monkeypatch):
    for file, data in MADE[name].items():
        put(tmp_path / "data", data, file)
    entry = catalogue.entry("datasets", name)
    definition = dataclasses.replace(entry.load(), rows=None, nodes=None)  # which have other counts
    monkeypatch.setattr(type(entry), "load", lambda self: definition)
    given = {"cut": 6, "edge_life": 2, "min_edges": 1} if "cut" in entry.options else {}
    graph = load_dataset(name, root=tmp_path / "data", **given)
    assert graph.source.startswith(f"file{'s' * (len(MADE[name]) > 1)} {next(iter(MADE[name]))}")
    assert graph.num_nodes == {"reddit-hyperlinks": 3, "elliptic": 12, "amlsim": 5}.get(name, 7)
    snapshots = 2 if name == "elliptic" else 4 if given else 50
    assert graph.num_snapshots == snapshots
    assert graph.tasks == catalogue.tasks_of(entry.name)
    if name.startswith("ogbn"):
        own = load_dataset(name, root=tmp_path / "data", features="given")
        assert own.features.shape == (50, 7, 2)
        assert own.static_features
        assert graph.vertex_split.tolist() == [0, 0, 0, 1, 2, 2, -1]
        degrees = load_dataset(name, root=tmp_path / "data", features="log_degrees")
        assert degrees.features.shape == (50, 7, 2)
        assert degrees.data_hash != own.data_hash
        assert graph.data_hash == (degrees if name == "ogbn-papers100m-t" else own).data_hash
    assert (graph.snapshots[0].weights is not None) == (name in WEIGHTED)
    if name == "reddit-hyperlinks":
        assert graph.node_ids.tolist() == ["askreddit", "bestof", "dataisbeautiful"]


def test_the_defaults_of_the_papers_cut_a_set_of_their_shape(tmp_path):
    """200 equal intervals, edges that live 31, the first time dropped, windows with 50 edges or fewer left out."""
    rng = np.random.default_rng(0)
    early = np.stack([rng.integers(1, 400, 60), rng.integers(1, 400, 60), np.ones(60, int), np.arange(60)], axis=1)
    late = np.stack(
        [
            rng.integers(1, 400, 4000),
            rng.integers(1, 400, 4000),
            np.ones(4000, int),
            np.sort(rng.integers(50_000, 100_000, 4000)),
        ],
        axis=1,
    )
    rows = np.concatenate([early, late])
    put(
        tmp_path / "data",
        "\n".join(" ".join(map(str, row)) for row in rows.tolist()).encode(),
        "ia-slashdot-reply-dir.edges",
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        graph = load_dataset("slashdot", root=tmp_path / "data")
    assert any("140,778 are published" in str(warning.message) for warning in said)
    kept = [(s, d, t) for s, d, _, t in rows.tolist() if t > 0]
    first, last = min(t for *_, t in kept), max(t for *_, t in kept)
    bins = [min(int((t - first) * 200 // (last - first)), 199) for *_, t in kept]
    windows = [
        {(s, d) for (s, d, _), place in zip(kept, bins, strict=True) if start <= place < start + 31}
        for start in range(200 - 31 + 1)
    ]
    sizes = [len(window) for window in windows if len(window) >= 51]
    assert graph.num_edges.tolist() == sizes[:-1]
    assert 51 <= min(sizes) < 70
    assert len(sizes) < 170  # some were left out


def test_pubmed_is_read_from_eight_files(real_data, tmp_path):
    folder = tmp_path / "data"
    with zipfile.ZipFile(real_data / "planetoid-cora.zip") as archive:
        for name in archive.namelist():
            put(folder, archive.read(name), name.replace("cora", "pubmed"))
    with pytest.warns(UserWarning, match="2,708 nodes; 19,717 are published for 'pubmed-t'"):
        graph = load_dataset("pubmed-t", root=folder, generated_snapshots=4)
    assert graph.data_hash == load_dataset("cora-t", root=real_data, generated_snapshots=4).data_hash


def test_definitions_name_no_file_twice_for_different_contents():
    """A file name that two sets look for would make one of them refuse what the other needs."""
    names: dict[str, set[str]] = {}
    for entry in catalogue.ENTRIES:
        definition = entry.load() if entry.kind == "datasets" else None
        if isinstance(definition, Published):
            for file in itertools.chain.from_iterable(form.files for form in definition.forms):
                for name in file.names:
                    names.setdefault(name, set()).add(definition.name)
    assert {name: owners for name, owners in names.items() if len(owners) > 1} == {}
