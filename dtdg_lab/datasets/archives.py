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
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.part import find_part

MAX_BYTES = 8 << 30  # of one member
MAX_RATIO = 200  # bytes unpacked for each byte of the file; text has 3 to 20
MAX_MEMBERS = 10_000
_FREE_BYTES = 64 << 20  # never too much, whatever the ratio
_CHUNK_BYTES = 1 << 20
# what the standard library's readers raise for damaged archives, as fuzzing them showed; only their calls are guarded
_DAMAGE = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, IndexError, OverflowError, zlib.error,
    lzma.LZMAError, struct.error, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip


class Members(Mapping[str, bytes]):
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
                "which is a link or a device" if strange
                else "a path that leads elsewhere" if escapes
                else "twice" if name in kept
                else f"and more than {MAX_MEMBERS:,} members" if len(kept) >= MAX_MEMBERS
                else ""
            )  # fmt: skip
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
    return Members(data, where, max_bytes=max_bytes).only("*") if data[:2] in (b"\x1f\x8b", b"BZ") else data


def _too_much(where: str, allowed: int) -> DataError:
    return DataError(
        f"{where} unpacks to more than {allowed:,} bytes; that is the most allowed for a file of its size. If you "
        "trust it, unpack it by hand and use the plain file."
    )
