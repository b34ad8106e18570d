"""Archives and pickles: read in memory, and refused where they are damaged, too large, or would do something else."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import pickle
import stat
import struct
import tarfile
import time
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.files import read_array
from dtdg_lab.core.source_code import PARSING
from dtdg_lab.datasets import archives
from dtdg_lab.datasets.archives import ArchiveMembers, find_part, read_pickle, unpacked
from tests import format_samples as samples

FILES = {"folder/out.tiny": b"1 2 3\n" * 50, "folder/README": b"read me", "empty": b""}
PACKED = {
    "tiny.zip": samples.zipped(FILES),
    "tiny-stored.zip": samples.zipped(FILES, zipfile.ZIP_STORED),
    "tiny.tar.bz2": samples.tarred(FILES),
    "tiny.tar.gz": samples.tarred(FILES, gzip.compress),
    "tiny.tar": samples.tarred(FILES, bytes),
}
each_archive = pytest.mark.parametrize("name", PACKED)


def refused(source, where="tiny", **options) -> str:
    with pytest.raises(DataError) as caught:
        members = ArchiveMembers(source, where, **options)
        for name in members:
            members[name]
    assert where in str(caught.value)
    return str(caught.value)


@each_archive
def test_members_of_archives(name, tmp_path):
    (tmp_path / name).write_bytes(PACKED[name])
    for members in (ArchiveMembers(tmp_path / name), ArchiveMembers(PACKED[name], name)):
        assert members.where == name
        assert dict(members) == FILES
        assert list(members) == list(FILES)
        assert members.only("out.*") == FILES["folder/out.tiny"]
        with members.open("folder/README") as stream:
            assert stream.read(4) == b"read"
        assert "folder" not in members
        with pytest.raises(KeyError):
            members["other"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]  # nothing is unpacked to disk


@pytest.mark.parametrize(("end", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_file_that_is_no_archive_is_one_member(end, pack, tmp_path):
    path = tmp_path / f"edges.txt{end}"
    path.write_bytes(pack(b"1 2 3\n"))
    assert dict(ArchiveMembers(path)) == {"edges.txt": b"1 2 3\n"}
    assert ArchiveMembers(path).only("anything") == b"1 2 3\n"
    assert unpacked(path.read_bytes(), "edges") == b"1 2 3\n"


def test_files_that_archivers_add_are_not_found():
    members = ArchiveMembers(samples.zipped({"a/x.edges": b"1", "__MACOSX/a/x.edges": b"2", "a/._x.edges": b"3"}))
    assert find_part(members, "x.zip", "*.mtx", "*.edges") == "a/x.edges"


def test_what_is_missing_or_not_unique_is_said():
    members = ArchiveMembers(samples.zipped({"a.edges": b"1", "b.edges": b"2"}), "two.zip")
    with pytest.raises(DataError, match=r"two.zip holds 2 files that fit '\*.edges': a.edges, b.edges"):
        find_part(members, members.where, "*.edges")
    with pytest.raises(DataError, match=r"two.zip has no file '\*.mtx' or 'out.\*'; it has a.edges, b.edges. Fetch"):
        find_part(members, members.where, "*.mtx", "out.*")
    assert not find_part(members, members.where, "*.mtx", needed=False)
    with pytest.raises(DataError, match=r"two.zip holds no 'c'; it holds a.edges, b.edges"), members.open("c"):
        pass


@pytest.mark.parametrize("pack", [samples.zipped, samples.tarred])
@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "..\\x", "C:/x", "a\nb"])
def test_paths_that_lead_elsewhere_are_refused(pack, path):
    assert "a path that leads elsewhere" in refused(pack({"fine": b"1", path: b"x"}))


def link_in_zip() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return held.getvalue()


def entry_in_tar(kind: bytes) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    return gzip.compress(held.getvalue())


@pytest.mark.parametrize(
    "data",
    [link_in_zip(), *map(entry_in_tar, (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE))],
    ids=["zip link", "link", "hard link", "device", "fifo"],
)
def test_links_and_devices_are_refused(data):
    assert "'link', which is a link or a device" in refused(data)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_are_there_twice_are_refused():
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("x", "1")
        archive.writestr("x", "2")
    assert "'x', twice" in refused(held.getvalue())


def test_too_many_members_are_refused(monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    for data in PACKED.values():
        assert "and more than 2 members" in refused(data)


def test_encrypted_members_are_refused():
    data = bytearray(samples.zipped({"x": b"secret"}))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    assert "encrypted" in refused(bytes(data))


@pytest.mark.parametrize("name", ["tiny.zip", "tiny-stored.zip", "tiny.tar.bz2", "tiny.tar.gz", "tiny.tar"])
def test_files_cut_short_are_refused(name):
    data = PACKED[name]
    for length in (len(data) // 2, len(data) - 30) if name != "tiny.tar" else (600, 1000):
        assert "It is cut short or damaged: fetch it again" in refused(data[:length])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_packed_texts_cut_short_or_changed_are_refused(pack):
    data = pack(b"".join(b"%d %d\n" % (i, i * i) for i in range(1000)))
    assert "cut short or damaged" in refused(data[:-9])
    assert "cut short or damaged" in refused(data[:40])
    wrong = bytearray(data)
    wrong[len(data) // 2] ^= 0xFF
    assert "cut short or damaged" in refused(bytes(wrong))


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    assert "No such file" in refused(tmp_path / "gone.zip", "gone.zip")


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        bz2.compress,
        *(lambda data, pack=pack: pack({"x": data}) for pack in (samples.zipped, samples.tarred)),
    ],
)
def test_bombs_are_refused_before_they_fill_memory(pack, monkeypatch):
    monkeypatch.setattr(archives, "_FREE_BYTES", 1 << 20)
    data = pack(bytes(32 << 20))
    assert len(data) < 1 << 16
    start = time.perf_counter()
    assert "unpacks to more than" in refused(data)
    assert time.perf_counter() - start < 5
    fits = pack(bytes(1 << 19))
    assert [len(text) for text in ArchiveMembers(fits, "tiny").values()] == [1 << 19]


def test_members_larger_than_the_limit_are_refused():
    for name, data in PACKED.items():
        assert "unpacks to more than 100 bytes" in refused(data, name, max_bytes=100)
    assert "unpacks to more than 3 bytes" in refused(b"1234", max_bytes=3)


def test_a_size_a_zip_only_claims_is_not_believed():
    data = bytearray(samples.zipped({"x": bytes(1000)}, zipfile.ZIP_STORED))
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(mark) + place
        data[at : at + 4] = struct.pack("<I", 2**32 - 2)
    assert ArchiveMembers(bytes(data))["x"] == bytes(1000)


# pickles


class Runs:
    """Runs a command when it is unpickled."""

    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return (self.call, self.arguments)


def refused_pickle(data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        read_pickle(data, "ind.tiny.x")
    assert "ind.tiny.x" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize(("call", "called"), [(os.system, "system"), (eval, "eval"), (exec, "exec")])
def test_pickles_that_run_something_are_refused(call, called, protocol, tmp_path):
    marker = tmp_path / "ran"
    message = refused_pickle(pickle.dumps(Runs(call, f"open({str(marker)!r}, 'w').close()"), protocol=protocol))
    assert called in message or "opcode" in message
    assert not marker.exists()
    if protocol == 2:
        assert "a pickle may name only" in message
        assert "do not trust it" in message


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(a=1),
        os.system,
        Runs(getattr, "a", "upper"),
        Runs(np.load, "x"),
        {1, 2},
        bytearray(3),
        Runs,
        np.int64(3),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],  # addresses are others in each process
)
def test_what_planetoid_does_not_hold_is_refused(value):
    refused_pickle(pickle.dumps(value, protocol=2))


def test_what_planetoid_holds_is_read():
    assert read_pickle(samples.pickled({1: [2, 3], 4: []}), "x") == {1: [2, 3], 4: []}
    array = np.arange(12.0).reshape(3, 4)
    for given in (array, array.T, array.astype(">f4"), array.astype(np.int8), array[:0], np.asfortranarray(array)):
        read = read_pickle(samples.pickled(given), "x")
        assert np.array_equal(read, given)
        assert read.dtype == given.dtype.newbyteorder("=")
    rows = read_pickle(samples.pickled(samples.csr_matrix(np.eye(3, 5, 1, dtype=np.float32))), "x")
    assert (rows.indices.tolist(), rows.indptr.tolist(), rows.shape) == ([1, 2, 3], [0, 1, 2, 3], (3, 5))
    lasting = read_pickle(python_2_array(), "x")
    assert (lasting.tolist(), lasting.dtype) == ([1, 2], np.int32)


def python_2_array(held: bytes = b"\x01\0\0\0\x02\0\0\0", shape: bytes = b"K\x02\x85") -> bytes:
    """What Python 2 writes for an array: text without encoding, and numpy's old name."""
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R(K\x01"
        + shape
        + b"cnumpy\ndtype\nU\x02i4K\0K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T"
        + struct.pack("<i", len(held))
        + held
        + b"tb."
    )


def test_arrays_that_claim_more_than_they_have_are_refused():
    assert "an array of shape (1000000000,) of int32 has 8 bytes" in refused_pickle(
        python_2_array(shape=b"J" + struct.pack("<i", 10**9) + b"\x85")
    )
    assert "an array of int32 has shape (-1,)" in refused_pickle(python_2_array(shape=b"J\xff\xff\xff\xff\x85"))
    huge = samples.csr_matrix(np.eye(2, dtype=np.float32))
    huge._shape = (10**9, 10**9)
    assert "cannot be read (ValueError: index pointer size 3 should be 1000000001)" in refused_pickle(
        samples.pickled(huge)
    )
    for name, wrong in (("indices", [0, 2]), ("indices", [-1, 0]), ("indptr", [0, 2, 1]), ("indptr", [1, 1, 2])):
        odd = samples.csr_matrix(np.eye(2, dtype=np.float32))
        setattr(odd, name, np.array(wrong, np.int32))
        assert "ind" in refused_pickle(samples.pickled(odd)).partition("ind.tiny.x")[2]  # indices, or index pointers
    with_objects = np.array([None, 1], dtype=object)
    assert "an array of object has shape (2,)" in refused_pickle(samples.pickled(with_objects))


NESTED = b"\x80\x02}K\x01K\x01\x86q\0" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60)) + b"K\x01s."


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cannot be read"),
        (b"no pickle", "opcode b'n'"),
        (b"\x80\x02]r\xff\xff\xff\xff.", None),  # C's unpickler would reserve 64 GB
        (NESTED, "a tuple that is used twice"),  # its hash would take 2^60 steps
        (b"\x80\x02]\x88\x94.", "opcode b'\\x94'"),
        (b"\x80\x05\x96" + struct.pack("<Q", 3) + b"abc.", "opcode b'\\x96'"),
        (b"\x80\x02cnumpy\nndarray\n}b.", "a state for type"),  # a state for the class itself
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nN}U\x01aK\x01s\x86b.", "a state for function"),
        (b"\x80\x02ccollections\ndefaultdict\n)R}b.", "a state for dict"),
        (b"\x80\x02cnumpy\ndtype\n)R.", "cannot be read"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "cannot be read"),
        (b"\x80\x02]q\0(h\0h\0e.", None),  # a list that holds itself is read, and means nothing
    ],
)
def test_pickles_made_by_hand(data, words):
    if words is None:
        assert isinstance(read_pickle(data, "x"), list)
    else:
        assert words in refused_pickle(data)


def test_a_graph_of_shared_lists_is_refused_before_it_is_written_out():
    shared = list(range(2000))
    files = {**samples.planetoid(), "ind.tiny.graph": samples.pickled({paper: shared for paper in range(2000)})}
    from dtdg_lab.datasets.formats import static

    with pytest.raises(DataError, match="4,000,000 neighbours in"):
        static.parse_planetoid(files, "tiny")


def test_text_repeated_many_times_makes_no_more_bytes_than_the_file_has():
    text = b"a" * 10_000
    once = b"h\0h\x01\x86R"
    data = b"\x80\x02c_codecs\nencode\nq\x02X" + struct.pack("<i", len(text)) + text + b"q\0X\x06\0\0\0latin1q\x01"
    data += b"](" + (b"h\x02" + once) * 5 + b"e."
    assert "more of them than the file has" in refused_pickle(data)


def test_only_the_header_of_an_array_is_read_under_the_lock():
    locked = []

    class Watched(io.BytesIO):
        def read(self, size=-1):
            locked.append(PARSING.locked())
            return super().read(size)

    written = io.BytesIO()
    np.save(written, np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    np.testing.assert_array_equal(read_array(Watched(written.getvalue())), np.arange(6.0).reshape(2, 3))
    assert True in locked and not locked[-1]
