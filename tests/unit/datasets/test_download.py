"""Files of published data sets: where they are looked for, how they are downloaded, how the right ones are known."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pooch
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ChecksumError, DataError
from dtdg_lab.datasets import download
from dtdg_lab.datasets.archives import Together, content
from dtdg_lab.datasets.download import fetch, find, one_at_a_time, raw_folder, remember, verified
from dtdg_lab.datasets.registry import Form, Published, PublishedFile
from tests.format_samples import zipped

ROOT = Path(__file__).resolve().parents[3]
TEXT = b"1 2 0\n2 3 10\n3 1 25\n1 2 29\n"
GZ = gzip.compress(TEXT, mtime=0)
NOWHERE = "http://127.0.0.1:1/tiny.txt.gz"  # nothing listens there
PUBLISHED = [
    definition
    for definition in (entry.load() for entry in catalogue.ENTRIES if entry.kind == "datasets")
    if isinstance(definition, Published)
]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def published(*files: PublishedFile, parser: str = "snap_text", **more: object) -> Published:
    form = Form(files=files, format=parser, by_name=len(files) > 1)
    facts = {
        "kind": "edges",
        "page": "https://page",
        "licence": "none",
        "cite": "a test",
        "summary": "",
        "interval": 10,
    }
    return Published(name="tiny", forms=(form,), **{**facts, **more})


def known(*urls: str, data: bytes = GZ) -> Published:
    return published(
        PublishedFile(
            name="tiny.txt.gz", also=("tiny.txt",), urls=urls, sha256=sha256(data), sha256_content=sha256(TEXT)
        )
    )


def unknown(*urls: str, name: str = "tiny.txt.gz") -> Published:
    return published(PublishedFile(name=name, also=("tiny.txt",), urls=urls))


def in_raw() -> list[str]:
    return sorted(path.name for path in raw_folder().iterdir()) if raw_folder().is_dir() else []


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every test has a cache of its own, waits for nothing, and never asks a proxy for loopback."""
    monkeypatch.delenv("DTDG_LAB_DATA", raising=False)
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(pooch.core, "time", SimpleNamespace(sleep=lambda seconds: None))


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        server.asked.append((self.path, self.headers["Accept-Encoding"]))
        kind, body = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        self.send_response(kind if isinstance(kind, int) else 200)
        self.send_header("Content-Length", str(len(body) + (100 if kind == "truncated" else 0)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if kind == "stalls" else body)
        self.wfile.flush()
        if kind == "stalls":
            server.over.wait(20)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server():
    """A web server on loopback.

    `server.answers` are the (kind, body) still to give, the last for ever; a kind is a status, "truncated" (the header
    promises more) or "stalls" (half of it, then silence). `server.asked` is what was asked for.
    """
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        running.asked, running.answers, running.over = [], [], threading.Event()
        running.base = f"http://127.0.0.1:{running.server_port}"
        running.url = f"{running.base}/tiny.txt.gz"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


# where files are looked for


def test_order_of_the_places(tmp_path, monkeypatch):
    definition = known()
    places = [tmp_path / "root", tmp_path / "environment", raw_folder()]
    assert find(definition) is None
    monkeypatch.setenv("DTDG_LAB_DATA", str(places[1]))
    for folder in reversed(places):
        folder.mkdir(parents=True)
    for folder in reversed(places):
        (folder / "tiny.txt").write_bytes(TEXT)
        assert find(definition, places[0]).paths == (folder / "tiny.txt",)
    (places[0] / "tiny.txt.gz").write_bytes(GZ)
    assert find(definition, places[0]).paths == (places[0] / "tiny.txt.gz",)  # the published name comes first


def test_another_form_in_the_first_folder_comes_before_the_first_form_in_another(tmp_path, monkeypatch):
    first, second = (Form(files=(PublishedFile(name=name),), format="snap_text") for name in ("first", "second"))
    definition = dataclasses.replace(known(), forms=(first, second))
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path / "environment"))
    for folder, name in (("root", "second"), ("environment", "first")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(TEXT)
    assert find(definition, tmp_path / "root").form is second
    assert find(definition).form is first


def test_files_of_one_form_may_lie_in_several_folders(tmp_path, monkeypatch):
    definition = published(PublishedFile(name="a"), PublishedFile(name="b"))
    for folder, name in (("root", "a"), ("environment", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(name.encode())
    assert find(definition, tmp_path / "root") is None
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path / "environment"))
    found = find(definition, tmp_path / "root")
    assert found.where == f"files a, b in {tmp_path / 'root'}, {tmp_path / 'environment'}"
    assert dict(Together(found.form.files, found.paths)) == {"a": b"a", "b": b"b"}


# download


def test_downloaded_once_then_found(server):
    server.answers.append((200, GZ))
    definition = known(server.url)
    found = fetch(definition)
    assert found.paths == (raw_folder().resolve() / "tiny.txt.gz",)
    assert found.paths[0].read_bytes() == GZ
    assert fetch(definition) == found
    assert server.asked == [("/tiny.txt.gz", "identity")]
    assert in_raw() == ["tiny.txt.gz"]
    umask = os.umask(0)
    os.umask(umask)
    assert found.paths[0].stat().st_mode & 0o777 == 0o666 & ~umask  # a cache may be shared


@pytest.mark.parametrize(
    "first", [(503, b"busy"), (429, b"slower"), (500, b""), ("truncated", GZ[:9]), (200, b"other")]
)
def test_what_may_pass_is_tried_again(server, first):
    server.answers += [first, first, (200, GZ)]
    assert fetch(known(server.url)).paths[0].read_bytes() == GZ
    assert len(server.asked) == download.TRIES == 3
    assert in_raw() == ["tiny.txt.gz"]


def test_it_waits_longer_each_time(server, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(pooch.core, "time", SimpleNamespace(sleep=waits.append))
    server.answers += [(503, b"")]
    with pytest.raises(DataError):
        fetch(known(server.url))
    assert waits == [1.0, 2.0]


@pytest.mark.parametrize(("status", "said"), [(403, "HTTP 403 Forbidden"), (404, "HTTP 404 Not Found")])
def test_a_refusal_is_not_repeated_and_says_what_to_do(server, status, said):
    server.answers.append((status, b"no"))
    with pytest.raises(DataError) as caught:
        fetch(known(server.url))
    assert len(server.asked) == 1
    curl = f"curl -fL --create-dirs -o {raw_folder() / 'tiny.txt.gz'} {server.url}"
    for part in (said, curl, f"put tiny.txt.gz into {raw_folder()}, then run again", "DTDG_LAB_DATA", "https://page"):
        assert part in str(caught.value)
    assert in_raw() == []


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl on this machine")
def test_the_curl_line_does_what_it_says(server):
    server.answers += [(403, b"no"), (200, GZ)]
    with pytest.raises(DataError) as caught:
        fetch(known(server.url))
    command = str(caught.value).partition("then run again: ")[2].partition(". Or set")[0]
    assert command.startswith("curl ")
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=30)
    assert fetch(known(server.url)).paths[0].read_bytes() == GZ


@pytest.mark.parametrize("kind", ["truncated", "stalls"])
def test_a_broken_or_stalled_download_leaves_nothing(server, monkeypatch, kind):
    monkeypatch.setattr(download, "READ_TIMEOUT_S", 0.2)
    monkeypatch.setattr(download, "TRIES", 2)
    server.answers.append((kind, GZ))
    started = time.monotonic()
    with pytest.raises(DataError, match="cannot be downloaded"):
        fetch(unknown(server.url))  # without a hash that would tell
    assert time.monotonic() - started < 10
    assert len(server.asked) == 2
    assert in_raw() == []


def test_a_wrong_download_is_refused_and_not_kept(server):
    server.answers.append((200, b"something else"))
    with pytest.raises(ChecksumError) as caught:
        fetch(known(server.url))
    for part in (sha256(GZ), sha256(b"something else"), server.url, "DTDG_LAB_DATA"):
        assert part in str(caught.value)
    assert in_raw() == []


def test_a_file_packed_anew_is_the_same_file(server):
    again = gzip.compress(TEXT, compresslevel=1, mtime=7)
    assert again != GZ
    server.answers.append((200, again))
    assert fetch(known(server.url)).paths[0].read_bytes() == again


def test_the_next_address_is_tried(server):
    server.answers += [(403, b"no"), (200, GZ)]
    assert fetch(known(NOWHERE, f"{server.base}/gone", server.url)).paths[0].read_bytes() == GZ
    assert [path for path, _ in server.asked] == ["/gone", "/tiny.txt.gz"]


def test_the_next_form_is_tried(server):
    server.answers += [(404, b"no"), (200, TEXT)]
    second = Form(files=(PublishedFile(name="tiny.txt", urls=(f"{server.base}/tiny.txt",)),), format="snap_text")
    definition = known(server.url)
    definition = dataclasses.replace(definition, forms=(*definition.forms, second))
    assert fetch(definition).form is second


def test_no_network_says_what_to_do():
    with pytest.raises(DataError) as caught:
        fetch(known(NOWHERE))
    for part in ("'tiny'", "tiny.txt.gz", str(raw_folder()), "DTDG_LAB_DATA", 'dataset="growing"', NOWHERE):
        assert part in str(caught.value)


def test_a_set_without_address_names_its_page_and_what_is_missing(tmp_path):
    definition = published(PublishedFile(name="a.csv"), PublishedFile(name="b.csv"))
    (tmp_path / "a.csv").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        fetch(definition, tmp_path)
    assert f"put b.csv into {raw_folder()}, then run again" in str(caught.value)
    assert "https://page" in str(caught.value)
    assert "curl" not in str(caught.value)


def test_files_that_are_there_are_not_fetched_again(server):
    server.answers += [(200, b"first"), (404, b"no"), (200, b"second")]
    definition = published(*(PublishedFile(name=name, urls=(f"{server.base}/{name}",)) for name in ("first", "second")))
    with pytest.raises(DataError) as caught:
        fetch(definition)
    assert "put second into" in str(caught.value)
    assert in_raw() == ["first"]
    assert [path.read_bytes() for path in fetch(definition).paths] == [b"first", b"second"]
    assert [path for path, _ in server.asked] == ["/first", "/second", "/second"]


def test_a_folder_that_cannot_be_written_is_said(server, tmp_path, monkeypatch):
    server.answers.append((200, GZ))
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot write .*DTDG_LAB_CACHE"):
        fetch(known(server.url))


_FETCH = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    sys.path.insert(0, ".")
    from tests.unit.datasets.test_download import known
    from dtdg_lab.datasets.download import fetch
    ready, go, url = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    ready.touch()
    while not go.exists():
        time.sleep(0.001)
    print(fetch(known(url)).paths[0].read_bytes().hex())
""")


def _start_fetching(tmp_path: Path, url: str, count: int) -> list[subprocess.Popen[str]]:
    marks = [tmp_path / f"ready{number}" for number in range(count)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _FETCH, str(mark), str(tmp_path / "go"), url],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for mark in marks
    ]
    deadline = time.monotonic() + 60
    while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    return running


@pytest.mark.slow
def test_two_processes_that_fetch_at_once_ask_once(server, tmp_path):
    server.answers.append((200, GZ))
    said = []
    for process in _start_fetching(tmp_path, server.url, 2):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        said.append(out.strip())
    assert said == [GZ.hex()] * 2
    assert len(server.asked) == 1
    assert in_raw() == ["tiny.txt.gz"]


def test_a_killed_download_is_never_seen_and_is_cleared_away(server, tmp_path):
    server.answers += [("stalls", GZ), (200, GZ)]
    (process,) = _start_fetching(tmp_path, server.url, 1)
    deadline = time.monotonic() + 60
    while not server.asked and time.monotonic() < deadline:
        time.sleep(0.01)
    while not in_raw() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert [name.endswith(".part") for name in in_raw()] == [True]
    assert find(known(server.url)) is None
    assert fetch(known(server.url)).paths[0].read_bytes() == GZ
    assert in_raw() == ["tiny.txt.gz"]


def test_the_lock_keeps_others_out_and_is_free_afterwards(tmp_path):
    code = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'ab') as file:\n"
        "    try:\n        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n        print('free')\n"
        "    except OSError:\n        print('held')\n"
    )

    def state() -> str:
        (lock,) = (tmp_path / "cache" / "locks").iterdir()
        return subprocess.run(
            [sys.executable, "-c", code, str(lock)], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    with one_at_a_time(tmp_path / "what") as alone:
        assert alone
        assert state() == "held"
    assert state() == "free"

    other = multiprocessing.get_context("fork").Process(target=_enter, args=(tmp_path / "what",))
    other.start()
    other.join(60)
    assert other.exitcode == 0
    assert len(list((tmp_path / "cache" / "locks").iterdir())) == 1, "another process took a lock of its own"


def _enter(what: Path) -> None:
    with one_at_a_time(what) as alone:
        assert alone


# known by their hash


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tiny.txt.gz", GZ),
        ("tiny.txt.gz", gzip.compress(TEXT, compresslevel=1, mtime=7)),
        ("tiny.txt", TEXT),
    ],
    ids=["as published", "packed anew", "plain"],
)
def test_the_content_identifies_a_file(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    found = find(known(), tmp_path)
    assert verified(known(), found) == (sha256(TEXT),)
    assert content(found.paths[0]) == (TEXT, "tiny.txt")


@pytest.mark.parametrize(
    "data", [b"1 2 3\n", gzip.compress(b"1 2 3\n"), GZ[:-9], b"\x1f\x8b no gzip"], ids=["text", "gz", "cut", "broken"]
)
def test_a_wrong_file_is_refused_with_both_hashes(tmp_path, data):
    (tmp_path / "tiny.txt.gz").write_bytes(data)
    with pytest.raises(ChecksumError) as caught:
        verified(known(), find(known(), tmp_path))
    for part in (sha256(data), sha256(GZ), sha256(TEXT), str(tmp_path / "tiny.txt.gz"), "delete it"):
        assert part in str(caught.value)


def test_a_file_without_known_hash_is_recorded_and_another_refused_from_then_on(tmp_path):
    path = tmp_path / "tiny.txt.gz"
    path.write_bytes(GZ)
    for _ in range(2):
        assert verified(unknown(), find(unknown(), tmp_path)) == (sha256(GZ),)
        remember(unknown(), find(unknown(), tmp_path))
    path.write_bytes(b"changed")
    for _ in range(2):
        with pytest.raises(ChecksumError) as caught:
            verified(unknown(), find(unknown(), tmp_path))
        remember(unknown(), find(unknown(), tmp_path))  # keeps the first
    (note,) = (tmp_path / "cache" / "recorded").iterdir()
    for part in (sha256(GZ), sha256(b"changed"), str(note), str(path)):
        assert part in str(caught.value)
    note.unlink()  # as the message says
    assert verified(unknown(), find(unknown(), tmp_path)) == (sha256(b"changed"),)


def test_a_download_other_than_recorded_is_not_put_in_place(server):
    server.answers += [(200, GZ), (200, b"changed")]
    definition = unknown(server.url)
    found = fetch(definition)
    assert not (raw_folder().parent / "recorded").exists()  # it was of no use yet
    remember(definition, found)
    (note,) = (raw_folder().parent / "recorded").iterdir()
    assert json.loads(note.read_text())["file"] == str(found.paths[0])
    found.paths[0].unlink()
    with pytest.raises(ChecksumError, match="first used on this machine"):
        fetch(definition)
    assert in_raw() == []


def test_known_files_leave_no_record(tmp_path):
    (tmp_path / "tiny.txt.gz").write_bytes(GZ)
    remember(known(), find(known(), tmp_path))
    assert not (tmp_path / "cache" / "recorded").exists()


@pytest.mark.parametrize("page", [b"<!DOCTYPE html><p>not found", b"\n <html>gone</html>"])
def test_a_web_page_is_no_file(server, page):
    server.answers.append((200, page))
    with pytest.raises(ChecksumError, match=r"a web page came in place of tiny\.txt\.gz"):
        fetch(unknown(server.url))
    assert in_raw() == []


def test_a_damaged_record_is_said(tmp_path):
    (tmp_path / "tiny.txt").write_bytes(TEXT)
    remember(unknown(), find(unknown(), tmp_path))
    (note,) = (tmp_path / "cache" / "recorded").iterdir()
    note.write_text("[]")
    with pytest.raises(DataError, match=r"is damaged .*Delete the file"):
        verified(unknown(), find(unknown(), tmp_path))


def test_large_files_are_hashed_once_until_they_change(tmp_path, monkeypatch):
    computed: list[Path] = []
    real = download._computed
    monkeypatch.setattr(download, "_computed", lambda path: computed.append(path) or real(path))
    monkeypatch.setattr(download, "REMEMBERED_FROM_BYTES", 8)
    path = tmp_path / "large"
    path.write_bytes(b"0123456789")
    for _ in range(3):
        assert download.file_hash(path) == sha256(b"0123456789")
    assert len(computed) == 1
    path.write_bytes(b"9876543210")
    os.utime(path, ns=(1, 1))
    assert download.file_hash(path) == sha256(b"9876543210")
    small = tmp_path / "small"
    small.write_bytes(b"0123")
    assert download.file_hash(small) == download.file_hash(small) == sha256(b"0123")
    assert len(computed) == 4
    with pytest.raises(DataError, match="cannot read"):
        download.file_hash(tmp_path / "absent")


# what is read of a file


def test_members_are_taken_by_pattern_or_by_their_whole_name(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(zipped({"readme.html": b"<p>", "a.edges": TEXT, "deep/b.csv.gz": GZ}))
    assert content(path, "*.mtx|*.edges") == (TEXT, "a.zip/a.edges")
    assert content(path, "deep/b.csv.gz") == (TEXT, "a.zip/deep/b.csv.gz")
    with pytest.raises(DataError, match=r"a\.zip has no file '\*\.mtx'; it has readme\.html, a\.edges"):
        content(path, "*.mtx")
    path.write_bytes(zipped({"only.txt": TEXT}))
    assert content(path, "*.mtx") == (TEXT, "a.zip/only.txt")


# the definitions that there are


def test_every_name_of_the_catalogue_has_its_definition():
    names = {entry.name for entry in catalogue.ENTRIES if entry.kind == "datasets"}
    generated = {"growing", "uniform", "powerlaw", "sbm", "transactions"}
    assert {definition.name for definition in PUBLISHED} == names - generated


@pytest.mark.parametrize("definition", PUBLISHED, ids=lambda definition: definition.name)
def test_definitions_are_whole(definition):
    entry = catalogue.entry("datasets", definition.name)
    assert all((definition.page.startswith("http"), definition.licence, definition.cite, definition.summary))
    assert definition.summary.endswith(".")
    assert ("cut" in entry.options) == (definition.kind == "edges") == bool(definition.interval)
    assert ("growth" in entry.options) == (definition.kind == "static")
    assert definition.address, "every set has an address at last"
    for file in (file for form in definition.forms for file in form.files):
        for digest in (file.sha256, file.sha256_content):
            assert digest == "" or (len(digest) == 64 and int(digest, 16) >= 0)
        # without TLS only where the same address with TLS was tried before
        for place, url in enumerate(file.urls):
            assert url.startswith("https://") or url.replace("http://", "https://", 1) in file.urls[:place]
    assert all(callable(form.parse) for form in definition.forms)


def test_hashes_are_those_written_down_beside_the_real_files(real_data):
    index = json.loads((real_data / "index.json").read_text())["datasets"]
    written = {entry["file"]: (entry["sha256"], entry.get("sha256_uncompressed", "")) for entry in index}
    for entry in index:
        written |= {name: (digest, "") for name, digest in entry.get("contents_sha256", {}).items()}
    stated = {
        name: (file.sha256, file.sha256_content)
        for definition in PUBLISHED
        for form in definition.forms
        for file in form.files
        for name in file.names
        if name in written
    }
    assert stated == written
