"""Read published data files: plain, packed, zip or tar, NumPy's npz, and Planetoid's pickles.

Files are read in memory, never unpacked to disk. An archive is refused as a whole where a member would escape its
folder (an absolute path, ``..``, a link). Unpacked bytes are counted, whatever sizes the archive announces: more than
``MAX_RATIO`` times the file, or more than ``max_bytes``, are refused.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import math
import pickle
import shutil
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.files import read_array
from dtdg_lab.core.system_errors import reading
from dtdg_lab.datasets.registry import PublishedFile
from dtdg_lab.graphs.snapshot import read_only

MAX_BYTES = 8 << 30  # of one member
MAX_RATIO = 200  # bytes unpacked for each byte of the file; text has 3 to 20
MAX_MEMBERS = 10_000
_FREE_BYTES = 64 << 20  # allowed whatever the ratio
_CHUNK_BYTES = 1 << 20
_PACKERS = {  # how a packed file begins -> the packer, which is also the usual end of its name
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zst",
    b"\x04\x22\x4d\x18": "lz4",
}
# what the readers of the standard library raise besides system_errors.DAMAGE for damaged files, as fuzzing them showed
_DAMAGE = (lzma.LZMAError, struct.error, tarfile.TarError, pickle.UnpicklingError)
_REMEDY = "It is cut short or damaged: fetch it again."


def _reading(path: Path | None, what: str) -> contextlib.AbstractContextManager[None]:
    """Distinguish a damaged file from a refusal of the system. The block only reads; ``path`` is None for bytes."""
    return reading(path, what, remedy=_REMEDY, damaged="cannot be read", damage=_DAMAGE)


# One file among those of a data set of several.


def find_part(data: Mapping[str, bytes], source: str, *patterns: str, needed: bool = True) -> str:
    """Return the one file whose name, after its last slash, fits the first pattern that has a match.

    Files that archivers add (``__MACOSX``, ``._name``) never fit.

    Args:
        data: files by name.
        source: name of the data in messages.
        patterns: tried in order.
        needed: whether no match is an error; otherwise the returned name is empty.

    Raises:
        DataError: none fits, or several do.
    """
    for pattern in patterns:
        ends = ((name, name.rpartition("/")[2]) for name in data if not name.startswith("__MACOSX/"))
        fits = [name for name, end in ends if fnmatchcase(end, pattern) and not end.startswith("._")]
        if len(fits) > 1:
            raise DataError(
                f"{source} holds {len(fits)} files that fit {pattern!r}: {', '.join(fits[:5])}; one is needed."
            )
        if fits:
            return fits[0]
    if needed:
        raise DataError(
            f"{source} has no file {' or '.join(map(repr, patterns))}; it has {', '.join(list(data)[:12]) or 'none'}. "
            "Fetch the file again."
        )
    return ""


def part(data: Mapping[str, bytes], pattern: str, source: str) -> bytes:
    """Return the content of the one file whose name fits a pattern; see :func:`find_part`."""
    return data[find_part(data, source, pattern)]


class ArchiveMembers(Mapping[str, bytes]):
    """The members of an archive by name, unpacked on access. A file that is no archive has one member.

    Args:
        source: the file, or its bytes.
        name: its name in messages; by default the file's name.
        max_bytes: most bytes a member may have.

    Raises:
        DataError: the file cannot be read, is damaged, or has a refused member. Access to a member raises it too.
    """

    def __init__(self, source: Path | bytes, name: str | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self._source = source
        self.where = name if name is not None else source.name if isinstance(source, Path) else "the file"
        self._path = source if isinstance(source, Path) else None
        with _reading(self._path, self.where):
            size = source.stat().st_size if isinstance(source, Path) else len(source)
            self._allowed = max(_FREE_BYTES, MAX_RATIO * size)  # bytes that may come out of the file
            self._max_bytes = min(self._allowed, max_bytes)
            with self._file() as file:
                head = file.read(6)
            self._zipped = head[:4] in (b"PK\x03\x04", b"PK\x05\x06")
            self._packed = _packer_of(head)
            with self._file() as file:
                self._tarred = not self._zipped and self._unpacked(file).read(512)[257:262] == b"ustar"
            self._names = self._listed()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in the order of the archive, without folders."""
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        content = io.BytesIO()
        with self.open(name) as stream:
            what = name if name == self.where else f"{self.where} ({name})"
            shutil.copyfileobj(_Limited(stream, self._max_bytes, what), content, _CHUNK_BYTES)
        return content.getvalue()

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a member as a stream, for members too large for memory. The reader must limit how much it reads.

        Errors in the block count as damage of the file: only read in it.

        Raises:
            DataError: there is no such member, or it is damaged.
        """
        if name not in self._names:
            raise DataError(f"{self.where} holds no {name!r}; it holds {', '.join(self._names[:10])}.")
        what = self.where if name == self.where else f"{self.where} ({name})"
        with _reading(self._path, what), self._file() as file:
            if self._zipped:
                with zipfile.ZipFile(file) as archive:
                    _refuse_closed(archive.getinfo(name), f"{self.where} ({name})")
                    with archive.open(name) as stream:
                        yield stream
            elif self._tarred:
                with self._tar(file) as tar:
                    member_stream = next(
                        tar.extractfile(entry) for entry in tar if entry.name == name and entry.isreg()
                    )
                    assert member_stream is not None
                    yield member_stream
            else:
                yield self._unpacked(file)

    def only(self, *patterns: str) -> bytes:
        """Return the content of the one member that fits, or of the whole file where it is no archive.

        Raises:
            DataError: none fits, or several do; or the member is damaged or too large.
        """
        archive = self._zipped or self._tarred
        return self[find_part(self, self.where, *patterns) if archive else self._names[0]]

    def _file(self) -> BinaryIO:
        return self._source.open("rb") if isinstance(self._source, Path) else io.BytesIO(self._source)

    def _unpacked(self, file: BinaryIO) -> Any:
        opened: Any = file
        if self._packed in ("gz", "bz2", "xz"):
            opened = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}[self._packed](file)  # type: ignore[operator]
        elif self._packed:
            import pyarrow as pa

            opened = pa.input_stream(file, compression={"zst": "zstd", "lz4": "lz4"}[self._packed])
        return _Limited(opened, self._allowed, self.where)

    def _tar(self, file: BinaryIO) -> tarfile.TarFile:
        # as a stream: nothing seeks back, and all bytes that tarfile reads are counted
        return tarfile.open(fileobj=self._unpacked(file), mode="r|", errorlevel=2)

    def _entries(self) -> Iterator[tuple[str, bool, bool]]:
        """Yield, for each entry, its name, whether it is a folder, and whether it is a link or a device."""
        with self._file() as file:
            if self._zipped:
                with zipfile.ZipFile(file) as archive:
                    for info in archive.infolist():
                        yield info.filename, info.is_dir(), stat.S_ISLNK(info.external_attr >> 16)
            else:
                with self._tar(file) as tar:
                    for entry in tar:
                        yield entry.name, entry.isdir(), not (entry.isreg() or entry.isdir())

    def _listed(self) -> tuple[str, ...]:
        if not (self._zipped or self._tarred):
            return (self.where.removesuffix(f".{self._packed}"),)
        names: dict[str, bool] = {}
        for name, folder, strange in self._entries():
            parts = name.split("/")
            why = ""
            if strange:
                why = "which is a link or a device"
            elif name[:1] in "/" or ".." in parts or "\\" in name or ":" in parts[0] or not name.isprintable():
                why = "a path that leads elsewhere"
            elif name in names:
                why = "twice"
            elif len(names) >= MAX_MEMBERS:
                why = f"and more than {MAX_MEMBERS:,} members"
            if why:
                raise DataError(
                    f"{self.where} holds {name[:80]!r}, {why}. Such an archive is not trusted: fetch another."
                )
            names[name] = folder
        return tuple(name for name, folder in names.items() if not folder)


def _refuse_closed(info: zipfile.ZipInfo, what: str) -> None:
    """Raise DataError if a member of a zip is intact but cannot be unpacked here."""
    if info.flag_bits & 1:
        raise DataError(f"{what} is encrypted. Unpack it with its password, and use the plain file.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        raise DataError(
            f"{what} is packed by method {info.compress_type} of zip, which Python does not read. Unpack it with 7z, "
            "and use the plain file."
        )


def _packer_of(head: bytes) -> str:
    """Return the packer of a file from its first bytes; empty where there is none."""
    return next((packer for begin, packer in _PACKERS.items() if head.startswith(begin)), "")


class _Limited(io.RawIOBase):
    """A stream that refuses to return more bytes than its limit."""

    def __init__(self, stream: Any, limit: int, source: str) -> None:
        self._stream, self._left, self._limit, self._where = stream, limit, limit, source

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        length = _CHUNK_BYTES if size is None or size < 0 else min(size, _CHUNK_BYTES)
        chunk: bytes = self._stream.read(length)
        self._left -= len(chunk)
        if self._left < 0:
            raise DataError(
                f"{self._where} unpacks to more than {self._limit:,} bytes; that is the most allowed for a file of its "
                "size. If you trust it, unpack it yourself and use the plain file."
            )
        return chunk


def unpacked(data: bytes, source: str) -> bytes:
    """Return the unpacked content of a file in memory; the same bytes where it is not packed.

    Raises:
        DataError: the file is damaged or unpacks to too many bytes.
    """
    return ArchiveMembers(data, source).only("*") if _packer_of(data[:6]) else data


def content(path: Path, member: str = "") -> tuple[bytes, str]:
    """Return a file's unpacked content for a parser, and its name in messages, whose suffix gives the format.

    Args:
        path: a plain or packed file, or an archive.
        member: patterns of the member's name, separated by ``|``; the first that matches is used. A pattern with a
            ``/`` is compared with the whole name. Not used if the archive has only one member.

    Raises:
        DataError: the file is damaged, or holds no such member.
    """
    members = ArchiveMembers(path)
    if len(members) == 1:
        name = next(iter(members))
    elif "/" in member and member in members:
        name = member
    else:
        name = find_part(members, path.name, *(member or "*").split("|"))
    source = name if path.name.startswith(name) else f"{path.name}/{name}"
    return unpacked(members[name], source), source


class Together(Mapping[str, bytes]):
    """Several files, read like the members of one archive.

    Args:
        files: the published files.
        paths: the path of each.
    """

    def __init__(self, files: tuple[PublishedFile, ...], paths: tuple[Path, ...]) -> None:
        packed = (".zip", *(f".{packer}" for packer in _PACKERS.values()))
        names = (path.stem if path.suffix in packed else path.name for path in paths)
        self._files = {name: (path, file.member) for name, path, file in zip(names, paths, files, strict=True)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, name: str) -> bytes:
        return content(*self._files[name])[0]


# Arrays in NumPy's ``.npz``.


def read_npz(stream: IO[bytes], names: Mapping[str, bool], source: str) -> dict[str, NDArray[Any]]:
    """Return some arrays of an ``.npz``, by name, read-only.

    Args:
        stream: the file, which can seek.
        names: the arrays to read, and whether each is required.
        source: the file's name, for messages.

    Raises:
        DataError: the file is damaged; or an array is missing, is not numeric, or claims to be far larger than the
            file.
    """
    arrays: dict[str, NDArray[Any]] = {}
    with _reading(None, source):
        limit = max(_FREE_BYTES, MAX_RATIO * stream.seek(0, io.SEEK_END))
        with zipfile.ZipFile(stream) as archive:
            members = {info.filename: info for info in archive.infolist()}
            for name, needed in names.items():
                info = members.get(f"{name}.npy")
                if info is None:
                    if needed:
                        raise DataError(
                            f"{source} has no {name!r}; it has {', '.join(sorted(members)[:12])}. Fetch it again."
                        )
                    continue
                if info.file_size > limit:  # no more than this is unpacked
                    raise DataError(
                        f"{source} ({name}) announces {info.file_size:,} bytes; at most {limit:,} is allowed."
                    )
                with archive.open(info) as member:
                    array = read_array(member)
                if array.dtype.kind not in "iuf":
                    raise ValueError(f"{name} has type {array.dtype}; whole numbers or floats are needed")
                arrays[name] = read_only(array.astype(array.dtype.newbyteorder("="), copy=False))
    return arrays


# Pickles of published data sets, read without running the functions they name.
#
# A pickle is a small program that may call any function. Here only the opcodes of the Planetoid files run, and their
# few names (NumPy's arrays, SciPy's sparse rows, a defaultdict) stand for plain records. A record becomes an array only
# if its shape fits its bytes. The unpickler in Python is used: the one in C reserves memory for any memo number that a
# file names.


class _Record:
    """A record in place of a class named in a pickle, with its arguments and its state."""

    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(_Record):
    """A NumPy dtype."""


class _Array(_Record):
    """A NumPy array."""


class _Rows(_Record):
    """A SciPy matrix of compressed sparse rows."""


def _made_of(kind: Any, *_: Any) -> _Record:
    """Stand in for NumPy's ``_reconstruct`` and ``copyreg._reconstructor``: make a record that gets its state later."""
    if kind not in (_Rows, _Array, _Type):
        raise pickle.UnpicklingError("an object of another class")
    record: _Record = kind()
    return record


_NAMES: dict[str, Any] = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Type,
    "numpy.core.multiarray._reconstruct": _made_of,
    "numpy._core.multiarray._reconstruct": _made_of,
    "scipy.sparse.csr.csr_matrix": _Rows,
    "scipy.sparse._csr.csr_matrix": _Rows,
    "copy_reg._reconstructor": _made_of,
    "copyreg._reconstructor": _made_of,
    "collections.defaultdict": lambda *_: {},
    **{f"{module}.{kind}": _Record for module in ("__builtin__", "builtins") for kind in ("list", "object")},
    # Python 3 writes bytes in protocol 2 as an empty object, or as text in latin1
    **{f"{module}.bytes": lambda: b"" for module in ("__builtin__", "builtins")},
    "_codecs.encode": None,
}
_OPCODES = (
    "PROTO MARK STOP GLOBAL REDUCE NEWOBJ BUILD EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS "
    "EMPTY_DICT SETITEM SETITEMS BININT BININT1 BININT2 LONG1 BINFLOAT NONE NEWTRUE NEWFALSE BINSTRING "
    "SHORT_BINSTRING BINUNICODE BINPUT LONG_BINPUT BINGET LONG_BINGET"
)


class _Opcodes(dict[int, Any]):
    """The function of each allowed opcode."""

    def __missing__(self, opcode: int) -> Any:
        raise DataError(f"opcode {bytes([opcode])!r} is none that the Planetoid files hold. Do not trust the file.")


class _Unpickler(pickle._Unpickler):
    """An unpickler of allowed opcodes and names only, which makes no more bytes than the pickle has."""

    stack: list[Any]
    memo: dict[int, Any]

    def __init__(self, data: bytes) -> None:
        # names are found by the table, for both Pythons
        super().__init__(io.BytesIO(data), fix_imports=False, encoding="latin1")
        self._left = len(data)

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _NAMES:
            raise DataError(
                f"it names {module}.{name}; a pickle may name only {', '.join(sorted(_NAMES))}. Such a file can run "
                "anything: do not trust it."
            )
        return _NAMES[f"{module}.{name}"] or self._encoded

    def _encoded(self, text: str, encoding: str = "latin1") -> bytes:
        self._left -= len(text)
        if not isinstance(text, str) or encoding != "latin1" or self._left < 0:
            raise pickle.UnpicklingError("bytes in an encoding other than latin1, or more of them than the file has")
        return text.encode("latin1")

    def _build(self) -> None:
        """Give a record its state; a class or a function has none."""
        if not isinstance(self.stack[-2], _Record):
            raise pickle.UnpicklingError(f"a state for {type(self.stack[-2]).__name__}")
        self._run(pickle.BUILD)

    def _get(self, opcode: bytes) -> None:
        """Read from the memo. Nested tuples that are used twice are refused: hashing them would take forever."""
        self._run(opcode)
        if isinstance(self.stack[-1], tuple):
            raise pickle.UnpicklingError("a tuple that is used twice")

    def _run(self, opcode: bytes) -> None:
        pickle._Unpickler.dispatch[opcode[0]](self)  # type: ignore[arg-type]

    dispatch: ClassVar[dict[int, Any]] = _Opcodes(
        {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _OPCODES.split()}
        | {pickle.BUILD[0]: _build}
        | {opcode[0]: lambda self, opcode=opcode: self._get(opcode) for opcode in (pickle.BINGET, pickle.LONG_BINGET)}
    )


def read_pickle(data: bytes, source: str) -> Any:
    """Read the pickle of a Planetoid file.

    Args:
        data: the pickle, of Python 2 or 3.
        source: the file's name, for messages.

    Returns:
        A dict, a list, a number, a text (Python 2's bytes as latin-1), a NumPy array, or a SciPy ``csr_matrix``.

    Raises:
        DataError: it names anything but the arrays and collections those files hold, or is damaged.
    """
    with _reading(None, source):
        try:
            content = _Unpickler(data).load()
            if isinstance(content, _Record):
                return _matrix(content) if isinstance(content, _Rows) else _array(content)
            return content
        except DataError as error:
            raise DataError(f"{source}: {error}") from error


def _array(record: Any) -> NDArray[Any]:
    """Build an array from NumPy's state: version, shape, dtype, Fortran order, bytes.

    The dtype is a record such as ``dtype("f4", 0, 1)`` with the state (3, "<").
    """
    _, shape, kind, fortran, content = record.state
    dtype = np.dtype(kind.state[1] + kind.arguments[0])
    content = content.encode("latin1") if isinstance(content, str) else content
    if dtype.kind not in "biuf" or len(shape) > 2 or min(shape, default=0) < 0 or not isinstance(content, bytes):
        raise DataError(f"an array of {dtype} has shape {shape}; numbers in rows are expected. Fetch the file again.")
    if math.prod(shape) * dtype.itemsize != len(content):
        raise DataError(f"an array of shape {shape} of {dtype} has {len(content):,} bytes. Fetch the file again.")
    flat = np.frombuffer(content, dtype=dtype).astype(dtype.newbyteorder("="), copy=False)
    return flat.reshape(shape, order="F" if fortran else "C")


def _matrix(record: _Record) -> Any:
    from scipy.sparse import csr_matrix

    state = record.state
    shape = state["_shape"] if "_shape" in state else state["shape"]
    values, columns, starts = (_array(state[name]) for name in ("data", "indices", "indptr"))
    if columns.dtype.kind not in "iu" or starts.dtype.kind not in "iu" or starts[-1] != len(values):
        raise DataError("a sparse matrix has indices that are no whole numbers, or not all of them. Fetch it again.")
    matrix = csr_matrix((values, columns.astype(np.int64), starts.astype(np.int64)), shape)
    matrix.check_format()
    return matrix
