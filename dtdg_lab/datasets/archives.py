"""What is in a data file as published: plain, gzip, bzip2, zip or tar; read in memory, never unpacked to disk.

An archive is refused as a whole where a member would escape its folder (an absolute path, ``..``, a link) if it were
unpacked. What is read is counted while it is unpacked, whatever the archive says about its size: more than
``MAX_RATIO`` times the file, or more than ``max_bytes``, is refused.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import pickle
import pickletools
import re
import stat
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.registry import PublishedFile
from dtdg_lab.graphs.snapshot import give_up

# One file among those of a data set of several.


def find_part(data: Mapping[str, bytes], pattern: str, where: str) -> str | None:
    """The name of the one file whose name, after its last slash, fits a pattern such as ``*.graph``; or None.

    Raises:
        DataError: several fit.
    """
    fits = [
        name
        for name in data
        if fnmatchcase(name.rpartition("/")[2], pattern)
        and not name.rpartition("/")[2].startswith("._")
        and not name.startswith("__MACOSX/")
    ]
    if len(fits) > 1:
        raise DataError(f"{where} holds {len(fits)} files that fit {pattern!r}: {', '.join(fits[:5])}; one is needed.")
    return fits[0] if fits else None


def part(data: Mapping[str, bytes], pattern: str, where: str) -> bytes:
    """The content of the one file whose name, after its last slash, fits a pattern.

    Raises:
        DataError: none fits, or several do.
    """
    name = find_part(data, pattern, where)
    if name is None:
        raise DataError(
            f"{where} has no file {pattern!r}; it has {', '.join(list(data)[:12]) or 'none'}. Fetch the file again."
        )
    return data[name]


MAX_BYTES = 8 << 30  # of one member
MAX_RATIO = 200  # bytes unpacked for each byte of the file; text has 3 to 20
MAX_MEMBERS = 10_000
_FREE_BYTES = 64 << 20  # never too much, whatever the ratio
_CHUNK_BYTES = 1 << 20
# what the standard library's readers raise for damaged archives, as fuzzing them showed; only their calls are guarded
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    IndexError,
    OverflowError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
)


class ArchiveMembers(Mapping[str, bytes]):
    """The members of an archive by name, unpacked when they are asked for; a file that is no archive is one member.

    Args:
        source: the file, or its bytes.
        where: its name, for messages; that of the file where it is left out.
        max_bytes: most bytes a member may have.

    Raises:
        DataError: the file cannot be read, is damaged, or holds what is refused. Getting a member raises it too.
    """

    def __init__(self, source: Path | bytes, where: str | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self._source = source
        self.where = where if where is not None else source.name if isinstance(source, Path) else "the file"
        self._max_bytes = max_bytes
        with self._guarded():
            self._kind = self._recognised()
            self._names = self._listed()

    def __iter__(self) -> Iterator[str]:
        """Names in the order of the archive, folders left out."""
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        with self.open(name) as stream:
            return self._all_of(stream, name)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """A member as a stream, for what is too large to be held; sizes are for the reader to mind.

        Unpackers fail while the stream is read, so errors of their kinds are taken for damage inside the whole block:
        do nothing in it but read.

        Raises:
            DataError: there is no such member, or it is damaged.
        """
        if name not in self._names:
            raise DataError(f"{self.where} holds no {name!r}; it holds {', '.join(list(self._names)[:10])}.")
        with self._guarded(name), self._file() as file:
            if self._kind == "zip":
                with zipfile.ZipFile(file) as archive, archive.open(name) as stream:
                    yield stream
            elif self._kind.startswith("tar"):
                with self._tar(file) as tar:
                    for entry in tar:
                        held = tar.extractfile(entry) if entry.name == name else None
                        if held is not None:
                            yield held
                            return
            else:
                yield self._limited(file)

    def find(self, *patterns: str) -> str:
        """The name of the one member whose last part fits a pattern such as ``out.*``; the first pattern that fits.

        Files that archivers add (``__MACOSX``, ``._name``) never fit.

        Raises:
            DataError: none fits, or several do.
        """
        for pattern in patterns:
            found = find_part(self, pattern, self.where)
            if found is not None:
                return found
        raise DataError(
            f"{self.where} holds {', '.join(list(self)[:10]) or 'nothing'}; a member that fits {' or '.join(patterns)} "
            "is needed. Fetch the file again."
        )

    def only(self, *patterns: str) -> bytes:
        """The content of :meth:`find`; of a file that is no archive, its content, whatever it is called.

        Raises:
            DataError: as :meth:`find`; or it is damaged or too large.
        """
        return self[self._names[0] if self._kind in ("gz", "bz2", "plain") else self.find(*patterns)]

    def _recognised(self) -> str:
        with self._file() as file:
            head = file.read(512)
        if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            return "zip"
        packed = "gz" if head[:2] == b"\x1f\x8b" else "bz2" if head[:3] == b"BZh" else "plain"
        with self._file() as file:
            inner = self._unpacked(file, packed).read(512)
        return f"tar.{packed}" if inner[257:262] == b"ustar" else packed

    def _listed(self) -> tuple[str, ...]:
        if self._kind in ("gz", "bz2", "plain"):
            return (self.where.removesuffix(f".{self._kind}"),)
        kept: dict[str, bool] = {}
        for name, folder, strange in self._entries():
            parts = name.split("/")
            escapes = name[:1] in "/" or ".." in parts or "\\" in name or ":" in parts[0] or not name.isprintable()
            why = (
                "which is a link or a device"
                if strange
                else "a path that leads elsewhere"
                if escapes
                else "twice"
                if name in kept
                else f"and more than {MAX_MEMBERS:,} members"
                if len(kept) >= MAX_MEMBERS
                else ""
            )
            if why:
                raise DataError(
                    f"{self.where} holds {name[:80]!r}, {why}. Such an archive is not trusted: fetch another."
                )
            kept[name] = folder
        return tuple(name for name, folder in kept.items() if not folder)

    def _entries(self) -> Iterator[tuple[str, bool, bool]]:
        """Every entry of the archive: its name, whether it is a folder, and whether it is neither folder nor file."""
        with self._file() as file:
            if self._kind == "zip":
                with zipfile.ZipFile(file) as archive:
                    for info in archive.infolist():
                        yield info.filename, info.is_dir(), stat.S_ISLNK(info.external_attr >> 16)
            else:
                with self._tar(file) as tar:
                    for entry in tar:
                        yield entry.name, entry.isdir(), not (entry.isreg() or entry.isdir())

    @contextmanager
    def _guarded(self, name: str = "") -> Iterator[None]:
        """Say what is wrong with the file in the lab's words."""
        try:
            yield
        except _DAMAGE as error:
            inside = f" ({name})" if name and name != self.where else ""
            # the file system numbers its errors, unpackers do not
            remedy = (
                "Check the file and its permissions."
                if isinstance(error, OSError) and error.errno
                else "It is cut short or damaged: delete it and fetch it again."
            )
            raise DataError(
                f"{self.where}{inside} cannot be read: {error or type(error).__name__}. {remedy}"
            ) from error

    def _file(self) -> BinaryIO:
        return self._source.open("rb") if isinstance(self._source, Path) else io.BytesIO(self._source)

    def _allowed(self) -> int:
        """Bytes that may come out of the file."""
        size = self._source.stat().st_size if isinstance(self._source, Path) else len(self._source)
        return max(_FREE_BYTES, MAX_RATIO * size)

    @staticmethod
    def _unpacked(file: BinaryIO, packed: str) -> Any:
        if packed == "gz":
            return gzip.GzipFile(fileobj=file)
        return bz2.BZ2File(file) if packed == "bz2" else file

    def _limited(self, file: BinaryIO) -> Any:
        return _Limited(self._unpacked(file, self._kind.removeprefix("tar.")), self._allowed(), self.where)

    def _tar(self, file: BinaryIO) -> tarfile.TarFile:
        # as a stream: nothing seeks back, and whatever tarfile reads is counted
        return tarfile.open(fileobj=self._limited(file), mode="r|", errorlevel=2)

    def _all_of(self, stream: IO[bytes], name: str) -> bytes:
        allowed = min(self._allowed(), self._max_bytes)
        kept = io.BytesIO()
        while chunk := stream.read(_CHUNK_BYTES):
            kept.write(chunk)
            if kept.tell() > allowed:
                raise _too_much(name if name == self.where else f"{self.where} ({name})", allowed)
        return kept.getvalue()


class _Limited(io.RawIOBase):
    """A stream that refuses to give more than its limit."""

    def __init__(self, stream: Any, limit: int, where: str) -> None:
        self._stream, self._left, self._limit, self._where = stream, limit, limit, where

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        wanted = _CHUNK_BYTES if size is None or size < 0 else min(size, _CHUNK_BYTES)
        chunk: bytes = self._stream.read(wanted)
        self._left -= len(chunk)
        if self._left < 0:
            raise _too_much(self._where, self._limit)
        return chunk


def unpacked(data: bytes, where: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a gzip or bzip2 file held in memory; of any other, itself.

    Raises:
        DataError: it is damaged or unpacks to too much.
    """
    return ArchiveMembers(data, where, max_bytes=max_bytes).only("*") if data[:2] in (b"\x1f\x8b", b"BZ") else data


def _too_much(where: str, allowed: int) -> DataError:
    return DataError(
        f"{where} unpacks to more than {allowed:,} bytes; that is the most allowed for a file of its size. If you "
        "trust it, unpack it by hand and use the plain file."
    )


# What a parser is given: the text of one file, or several texts by name, unpacked when they are asked for.


def content(path: Path, member: str = "") -> tuple[bytes, str]:
    """What is read of a file, unpacked, and what messages call it, which tells its format by its end.

    Args:
        path: a plain or packed file, or an archive.
        member: patterns of the member's name, separated by ``|``, of which the first that fits is taken; its whole
            name where there is a ``/`` in it. Not asked where there is only one.

    Raises:
        DataError: the file is damaged, or holds no such member.
    """
    members = ArchiveMembers(path)
    if len(members) == 1:
        name = next(iter(members))
    elif "/" in member and member in members:
        name = member
    else:
        name = members.find(*(member or "*").split("|"))
    where = name if path.name.startswith(name) else f"{path.name}/{name}"
    return unpacked(members[name], where), where


class Together(Mapping[str, bytes]):
    """Several files as if they were the members of one archive.

    Args:
        files: what is known of each.
        paths: where each of them is.
    """

    def __init__(self, files: tuple[PublishedFile, ...], paths: tuple[Path, ...]) -> None:
        self._places = {_unpacked_name(path): (path, file.member) for file, path in zip(files, paths, strict=True)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, name: str) -> bytes:
        return content(*self._places[name])[0]


def _unpacked_name(path: Path) -> str:
    for end in (".gz", ".bz2", ".zip"):
        if path.name.endswith(end):
            return path.name.removesuffix(end)
    return path.name


# Arrays in numpy's ``.npz``, read without numpy's own reader, which trusts the sizes a file declares.


_HEADER = re.compile(
    rb"\{'descr': '([<>|][iuf][1248])', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}, ?)*(?:\d{1,19})?)\), *\} *\n?"
)
_MAX_HEADER = 10_000
# what zipfile and zlib raise for damaged files, as fuzzing them showed
_NPZ_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    NotImplementedError,
    zlib.error,
    zipfile.BadZipFile,
)


def read_npz(stream: IO[bytes], names: Mapping[str, bool], where: str) -> dict[str, NDArray[Any]]:
    """Some arrays of an ``.npz``, by name, read-only.

    Args:
        stream: the file, from which one can read anywhere.
        names: the arrays wanted, and whether each must be there.
        where: the file's name, for messages.

    Raises:
        DataError: the file is damaged, an array is missing, is of something else than numbers, or is announced far
            larger than the file.
    """
    found: dict[str, NDArray[Any]] = {}
    try:
        size = stream.seek(0, io.SEEK_END)
        with zipfile.ZipFile(stream) as archive:
            held = set(archive.namelist())
            for name, needed in names.items():
                if f"{name}.npy" in held:
                    with archive.open(f"{name}.npy") as member:
                        found[name] = _read(member, max(_FREE_BYTES, MAX_RATIO * size), f"{where} ({name})")
                elif needed:
                    raise DataError(f"{where} has no {name!r}; it has {', '.join(sorted(held)[:12])}. Fetch it again.")
    except _NPZ_DAMAGE as error:
        reason = error or type(error).__name__
        raise DataError(f"{where} is no npz that can be read: {reason}. Delete it and fetch it again.") from error
    return found


def _read(member: IO[bytes], most: int, where: str) -> NDArray[Any]:
    head = member.read(10)
    wide = head[6:7] in (b"\x02", b"\x03")
    length = int.from_bytes(head[8:10] + (member.read(2) if wide else b""), "little")
    header = _HEADER.fullmatch(member.read(length)) if length <= _MAX_HEADER else None
    if head[:6] != b"\x93NUMPY" or header is None:
        raise DataError(f"{where} is no array of whole numbers or floats as numpy writes them. Fetch the file again.")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].split(b",") if size.strip())
    needed = math.prod(shape) * dtype.itemsize
    if needed > most:
        raise DataError(f"{where} announces {needed:,} bytes; at most {most:,} is allowed for a file of its size.")
    flat = _filled(member, needed, where)
    array = flat.view(dtype).reshape(shape, order="F" if header[2] == b"True" else "C")
    return give_up(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))


def _filled(member: IO[bytes], needed: int, where: str) -> NDArray[np.uint8]:
    """The bytes of an array. Memory that was announced and does not come is never touched."""
    try:
        flat = np.empty(needed, dtype=np.uint8)
    except MemoryError as error:
        raise DataError(f"{where} needs {needed:,} bytes of memory; this machine has not as much free.") from error
    at = 0
    while at < needed:
        chunk = member.read(min(needed - at, 16 << 20))
        if not chunk:
            raise DataError(f"{where} has {at:,} bytes; {needed:,} are announced. It is cut short: fetch it again.")
        flat[at : at + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        at += len(chunk)
    return flat


# Pickles of published data sets, read without running anything they name.
#
# A pickle is a small program that may call any function. Here it may not: its opcodes are looked through first, and
# the few names that the Planetoid files hold (numpy arrays, scipy's sparse rows, a defaultdict) stand for plain
# records
# of this file, which become arrays only once their sizes are known to fit the bytes they came with. Neither numpy's
# nor
# scipy's unpickling runs, and scipy need not be installed.


_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE")
_TEXTS = ("BINSTRING", "SHORT_BINSTRING", "BINUNICODE")
_MADE = ("GLOBAL", "REDUCE", "NEWOBJ", "EMPTY_LIST", "EMPTY_DICT")
_PUTS, _GETS = ("BINPUT", "LONG_BINPUT"), ("BINGET", "LONG_BINGET")
_OPCODES = frozenset(
    (
        *_NUMBERS,
        *_TEXTS,
        *_MADE,
        *_PUTS,
        *_GETS,
        "PROTO",
        "MARK",
        "STOP",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "APPEND",
        "APPENDS",
        "SETITEM",
        "SETITEMS",
        "BUILD",
    )
)
_SHARED = frozenset((*_NUMBERS, *_TEXTS, *_MADE))
_TYPES = frozenset(("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"))
# what the unpickler raises for damaged pickles, as fuzzing it showed; of our code only stand-in classes run in it
_PICKLES_DAMAGE = (
    pickle.UnpicklingError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    EOFError,
    OverflowError,
    RecursionError,
    MemoryError,
    ImportError,
)


class _Record:
    """What a class named in a pickle stands for: it keeps how it was made and the state it was given."""

    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(_Record):
    """A numpy dtype."""


class _Array(_Record):
    """A numpy array."""


class _Rows(_Record):
    """A scipy matrix of compressed sparse rows."""


class _Lists(dict[Any, Any]):
    """A defaultdict, without its default."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a defaultdict with a state")


class _Function:
    """A function a pickle may call. It has no attributes, so that a pickle cannot change it."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def __call__(self, *arguments: Any) -> Any:
        return self._run(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a function with a state")


def _array(kind: Any, *arguments: Any) -> _Array:
    if kind is not _Array:
        raise pickle.UnpicklingError("an array of another class")
    return _Array(*arguments)


def _record(kind: Any, *arguments: Any) -> Any:
    """``copyreg._reconstructor(class, object, None)``, by which Python 2 makes objects of classes."""
    if kind not in (_Rows, _Array, _Type):
        raise pickle.UnpicklingError("an object of another class")
    return kind()


def _no_bytes() -> bytes:
    """``bytes()``, by which Python 3 writes what is empty in protocol 2."""
    return b""


_ALLOWED: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("collections", "defaultdict"): _Lists,
    ("_codecs", "encode"): None,  # the unpickler's own
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Function(_array) for core in ("core", "_core")},
    **{(f"scipy.sparse.{module}", "csr_matrix"): _Rows for module in ("csr", "_csr")},
    **{(module, "_reconstructor"): _Function(_record) for module in ("copy_reg", "copyreg")},
    **{(module, "bytes"): _Function(_no_bytes) for module in ("__builtin__", "builtins")},
    **{(module, kind): _Record for module in ("__builtin__", "builtins") for kind in ("list", "object")},
}


class _Unpickler(pickle.Unpickler):
    """Finds only what is allowed, and makes no more bytes than the pickle has."""

    def __init__(self, data: bytes) -> None:
        # names are found by the table, for both Pythons
        super().__init__(io.BytesIO(data), fix_imports=False, encoding="latin1")
        self._left = len(data)

    def find_class(self, module: str, name: str) -> Any:
        return _allowed(module, name) or _Function(self._encoded)

    def _encoded(self, text: Any, encoding: Any = "latin1") -> bytes:
        """``_codecs.encode(text, "latin1")``, by which Python 3 writes bytes in protocol 2."""
        self._left -= len(text) if isinstance(text, str) else 0
        if not isinstance(text, str) or encoding != "latin1" or self._left < 0:
            raise pickle.UnpicklingError("bytes in an encoding other than latin1, or more of them than the file has")
        return text.encode("latin1")


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """A matrix of R rows and F columns, of which K entries are kept.

    Attributes:
        values: shape (K,): the entries.
        columns: shape (K,), int64: their columns, 0 .. F - 1.
        starts: shape (R + 1,), int64: the entries of row r are ``starts[r]`` to ``starts[r + 1] - 1``.
        num_columns: F.
    """

    values: NDArray[Any]
    columns: NDArray[np.int64]
    starts: NDArray[np.int64]
    num_columns: int


def read_pickle(data: bytes, where: str) -> Any:
    """What a pickle of a Planetoid file holds.

    Args:
        data: the pickle, of Python 2 or 3.
        where: the file's name, for messages.

    Returns:
        A dict, a list, a number, a text (Python 2's bytes as latin-1), a numpy array, or :class:`SparseRows`.

    Raises:
        DataError: it names anything but the arrays and collections those files hold, or is damaged.
    """
    _look_through(data, where)
    try:
        return _made(_Unpickler(data).load())
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except _PICKLES_DAMAGE as error:
        raise DataError(
            f"{where} is no pickle that can be read: {error or type(error).__name__}. Fetch the file again."
        ) from error


def _look_through(data: bytes, where: str) -> None:
    """Refuse opcodes and names that are not allowed, and what would make the unpickler reserve memory or hang.

    A memo number makes room for all below it. A tuple fetched from the memo can be put into another one twice, and
    that one again: its hash then takes for ever.
    """
    shared: set[int] = set()
    before = ""
    try:
        for opcode, found, at in _opcodes(data):
            argument: Any = found
            what = ""
            if opcode.name not in _OPCODES:
                what = f"opcode {opcode.name}"
            elif opcode.name in _PUTS and not 0 <= argument <= len(data):
                what = f"memo number {argument}"
            elif opcode.name in _GETS and argument not in shared:
                what = "a tuple that is used twice"
            if what:
                raise DataError(f"{where} has {what} at byte {at}; the Planetoid files have none. Do not trust it.")
            if opcode.name in _PUTS:
                (shared.add if before in _SHARED else shared.discard)(argument)
            if opcode.name == "GLOBAL":
                module, _, name = argument.partition(" ")
                _allowed(module, name, where)
            before = opcode.name
    except (ValueError, IndexError, OverflowError, Warning) as error:
        raise DataError(f"{where} is no pickle that can be read: {error}. Fetch the file again.") from error


def _opcodes(data: bytes) -> list[tuple[pickletools.OpcodeInfo, Any, int | None]]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of backslashes in a name, which no published name has
        return list(pickletools.genops(data))


def _allowed(module: str, name: str, where: str = "") -> Callable[..., Any] | None:
    if (module, name) not in _ALLOWED:
        raise DataError(
            f"{where + ' ' if where else ''}names {module}.{name}; a pickle may name only "
            f"{', '.join(sorted('.'.join(key) for key in _ALLOWED))}. Such a file can run anything: do not trust it."
        )
    return _ALLOWED[module, name]


def _made(found: Any) -> Any:
    """The arrays that records stand for; a plain value as it is."""
    if isinstance(found, _Array):
        return _made_array(found)
    if isinstance(found, _Rows):
        return _made_rows(found)
    if isinstance(found, _Record):
        raise DataError("a type stands where an array is expected. Fetch the file again.")
    return dict(found) if isinstance(found, _Lists) else found


def _made_array(record: _Array) -> NDArray[Any]:
    """From numpy's state: version, shape, dtype, Fortran order, bytes."""
    if not isinstance(record.state, tuple) or len(record.state) != 5:
        raise DataError("an array has no state, or one of another kind. Fetch the file again.")
    _, shape, kind, fortran, held = record.state
    dtype = _dtype(kind)
    whole = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    held = held.encode("latin1") if isinstance(held, str) else held
    if not whole or len(shape) > 2 or not isinstance(held, bytes):
        raise DataError("an array has a shape or content of another kind. Fetch the file again.")
    if math.prod(shape) * dtype.itemsize != len(held):
        raise DataError(f"an array of shape {shape} of {dtype} has {len(held):,} bytes. Fetch the file again.")
    flat = np.frombuffer(held, dtype=dtype).astype(dtype.newbyteorder("="), copy=False)
    return flat.reshape(shape, order="F" if fortran else "C")


def _dtype(kind: Any) -> np.dtype[Any]:
    """From numpy's ``dtype("f4", 0, 1)`` with the state ``(3, "<", ...)``."""
    code = kind.arguments[0] if isinstance(kind, _Type) and kind.arguments else None
    order = kind.state[1] if code and isinstance(kind.state, tuple) and len(kind.state) > 1 else None
    if not isinstance(code, str) or code not in _TYPES or order not in ("<", ">", "|", "="):
        found = repr(code[:20]) if isinstance(code, str) else "not given"
        raise DataError(f"an array's type is {found}; whole numbers and floats are allowed. Fetch the file again.")
    return np.dtype(code).newbyteorder(order)


def _made_rows(record: _Rows) -> SparseRows:
    state = record.state if isinstance(record.state, dict) else {}
    parts = [state.get(name) for name in ("data", "indices", "indptr")]
    arrays = [_made_array(part) for part in parts if isinstance(part, _Array)]
    shape = state.get("_shape", state.get("shape"))
    if len(arrays) != 3 or not isinstance(shape, tuple) or [type(size) for size in shape] != [int, int]:
        raise DataError("a sparse matrix lacks data, indices, indptr or shape. Fetch the file again.")
    if any(array.ndim != 1 for array in arrays) or any(array.dtype.kind not in "iu" for array in arrays[1:]):
        raise DataError("a sparse matrix has data, indices or indptr of another kind. Fetch the file again.")
    values, columns, starts = arrays[0], arrays[1].astype(np.int64), arrays[2].astype(np.int64)
    fits = (
        len(starts) == shape[0] + 1
        and starts[0] == 0
        and bool((np.diff(starts) >= 0).all())
        and len(values) == len(columns) == starts[-1]
        and (not len(columns) or (columns.min() >= 0 and columns.max() < shape[1]))
    )
    if not fits:
        raise DataError(f"a sparse matrix of shape {shape} has entries outside it. Fetch the file again.")
    return SparseRows(values, columns, starts, shape[1])
