"""Find or download the files of published data sets, and verify them by SHA-256."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ChecksumError, DataError, shortened
from dtdg_lab.core.files import replacing
from dtdg_lab.core.preparation import announce
from dtdg_lab.core.system_errors import explain, is_refusal, reading
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.archives import content
from dtdg_lab.datasets.registry import Form, Published, PublishedFile
from dtdg_lab.graphs.storage import CACHE, cache_folder

# One process of this machine at a time: the first does slow work, the others find its result.


LOOK_S = 0.5


@contextlib.contextmanager
def one_at_a_time(what: Path) -> Iterator[bool]:
    """Wait until no other process is inside this block for the same file or folder ``what``.

    The lock ends with its process. No result depends on it: where the cache cannot be written, or its file system has
    no locks, several processes do the same work and one of them stores it.

    Yields:
        Whether the lock is held.
    """
    import filelock

    locked = False
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):
            folder = cache_folder() / "locks"
            folder.mkdir(parents=True, exist_ok=True)
            name = hashlib.sha256(str(what.absolute()).encode()).hexdigest()[:32]
            lock = filelock.FileLock(folder / name)
            while not locked:
                try:
                    lock.acquire(timeout=LOOK_S)
                    locked = True
                except filelock.Timeout:
                    announce("another process makes the same for the cache")
            stack.callback(lock.release)
        yield locked


CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 60.0
TRIES = 3  # of one address; pooch waits longer before each
_CHUNK_BYTES = 1 << 16


class NotDownloadedError(DataError):
    """Raised if no address returned the file; ``wrong`` is true if one returned another file than the published one."""

    def __init__(self, message: str, *, wrong: bool) -> None:
        super().__init__(message)
        self.wrong = wrong


def download(path: Path, urls: tuple[str, ...], check: Callable[[Path], object]) -> Path:
    """Download a file, unless another process has done so meanwhile.

    TLS certificates are verified. An address is tried again, after longer waits, on a server error (5xx), a busy server
    (429), a broken or stalled connection, or a file that fails ``check``. One that refuses is not.

    Args:
        path: path of the file; its folder is made where it is missing.
        urls: addresses, tried in order.
        check: raises ChecksumError where the file at a path is not the right one.

    Returns:
        The path of the file, without links.

    Raises:
        NotDownloadedError: no address returned it; the message has the reason of each.
        DataError: the file cannot be written.
    """
    import pooch
    import requests

    http = pooch.HTTPDownloader(
        progressbar=True,
        chunk_size=_CHUNK_BYTES,
        timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
        # a compressed response would be unpacked on arrival, which changes the file's hash
        headers={"Accept-Encoding": "identity"},
    )

    def checked(url: str, output: str, _: object) -> None:
        os.unlink(output)  # pooch makes it readable for its owner only, and a cache may be shared
        try:
            http(url, output, None)
        except requests.HTTPError as error:
            response = error.response
            assert response is not None
            response.close()
            if response.status_code < 500 and response.status_code != 429:  # pooch would try again
                raise DataError(f"HTTP {response.status_code} {response.reason}") from error
            raise
        check(Path(output))

    failures: list[tuple[str, Exception]] = []
    with one_at_a_time(path) as locked:
        if path.is_file():  # another process has fetched it meanwhile
            return path.resolve()
        if locked:
            for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):  # by downloads that were killed
                shutil.rmtree(part, ignore_errors=True)
        for url in urls:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(".part", f".{path.name}.", path.parent) as draft:
                    source = pooch.create(
                        draft, "", registry={path.name: None}, urls={path.name: url}, retry_if_failed=TRIES - 1
                    )
                    Path(source.fetch(path.name, downloader=checked)).replace(path)
                return path.resolve()
            except (DataError, requests.RequestException) as error:  # the latter are OSErrors too
                failures.append((url, error))
            except OSError as error:
                raise DataError(f"cannot write {path}: {explain(error, path, setting=CACHE)}") from error
    reasons = "; ".join(f"{url}: {error}" for url, error in failures)
    wrong = any(isinstance(error, ChecksumError) for _, error in failures)
    raise NotDownloadedError(reasons, wrong=wrong) from failures[-1][1]


# SHA-256 of files: computed, cached for large files, and recorded at first use where none is published.


REMEMBERED_FROM_BYTES = 64 << 20  # smaller files are hashed whenever they are read


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    For files of ``REMEMBERED_FROM_BYTES`` or more it is cached with the size and the modification time, and computed
    again only where one of them differs.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        state = path.stat()
        if state.st_size < REMEMBERED_FROM_BYTES:
            return _computed(path)
        stamp = {"path": str(path.absolute()), "bytes": state.st_size, "changed_ns": state.st_mtime_ns}
        note = cache_folder() / "hashes" / f"{hashlib.sha256(str(stamp['path']).encode()).hexdigest()[:32]}.json"
        stored: dict[str, Any] | None = None
        with contextlib.suppress(OSError, ValueError):  # such a note costs time only
            stored = _read(note)
        if stored is None or stored != {**stamp, "sha256": stored.get("sha256")}:
            stored = {**stamp, "sha256": _computed(path)}
            with contextlib.suppress(OSError):
                _write(note, stored)
        return str(stored["sha256"])
    except OSError as error:
        raise DataError(f"cannot read {path}: {explain(error, path)}") from error


def check_recorded(dataset: str, name: str, path: Path, digest: str) -> None:
    """Refuse a file whose hash differs from the recorded one, if there is one.

    Args:
        dataset: name of the data set.
        name: name of the file; records are kept by data set and file.
        path: path of the file.
        digest: its SHA-256.

    Raises:
        ChecksumError: another hash is recorded.
        DataError: the record cannot be read.
    """
    note = _note_of(dataset, name)
    stored = _recorded(note)
    if stored is not None and stored.get("sha256") != digest:
        raise ChecksumError(
            f"{path} has SHA-256 {digest}; when {dataset!r} was first used on this machine ({stored.get('recorded')}, "
            f"from {stored.get('file')}) {name} had {stored.get('sha256')}. Put that file back; or, where the new one "
            f"is right, delete {note} and run again: its hash is then the one on record."
        )


def record(dataset: str, name: str, path: Path, digest: str) -> None:
    """Record the hash of a file, unless one is recorded; see :func:`check_recorded`.

    Raises:
        DataError: the record cannot be read or written.
    """
    note = _note_of(dataset, name)
    if _recorded(note) is None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S%z")
        try:
            _write(note, {"sha256": digest, "recorded": moment, "file": str(path.absolute())})
        except OSError as error:
            raise DataError(f"cannot write {note}: {explain(error, note, setting=CACHE)}") from error


def _note_of(dataset: str, name: str) -> Path:
    return cache_folder() / "recorded" / f"{dataset}--{name.replace('/', '--')}.json"


def _recorded(note: Path) -> dict[str, Any] | None:
    with reading(note, remedy="Delete the file, and the hash is recorded again."):
        return _read(note)


def _computed(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(note: Path) -> dict[str, Any] | None:
    """Return the note, or None where there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON object.
    """
    if not note.exists():
        return None
    content = json.loads(note.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def _write(note: Path, content: dict[str, Any]) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    with replacing(note) as draft:
        draft.write_text(json.dumps(content, indent=2), encoding="utf-8")


# The files of a published data set: found or downloaded, and verified.
_WEB_PAGES = (b"<!doctype", b"<html")  # some servers send a page, with success, in place of a file they lack


@dataclass(frozen=True, slots=True)
class LocalForm:
    """A form of a data set whose files are all on this machine.

    Attributes:
        form: the form.
        paths: path of each of its files.
    """

    form: Form
    paths: tuple[Path, ...]

    @property
    def where(self) -> str:
        """The files, in words."""
        names = ", ".join(path.name for path in self.paths)
        folders = dict.fromkeys(str(path.parent) for path in self.paths)
        return f"{'file' if len(self.paths) == 1 else 'files'} {names} in {', '.join(folders)}"


def raw_folder() -> Path:
    """Return the folder of downloads: ``raw`` in the cache folder."""
    return cache_folder() / "raw"


def find(definition: Published, root: str | Path | None = None) -> LocalForm | None:
    """Return the files of a data set on this machine, or None where some are missing in every form.

    The search order is ``root``, $DTDG_LAB_DATA, and the downloads in $DTDG_LAB_CACHE/raw. The files of one form may
    lie in several of them. Nothing is read.

    Raises:
        DataError: ``root`` or $DTDG_LAB_DATA is given and is no folder, or may not be read.
    """
    folders = _folders(root)
    for count in range(1, len(folders) + 1):
        for form in definition.forms:
            paths = [_located(file, folders[:count]) for file in form.files]
            if all(paths):
                return LocalForm(form, tuple(path for path in paths if path))
    return None


def fetch(definition: Published, root: str | Path | None = None) -> LocalForm:
    """Return the files of a data set, and download those that this machine lacks.

    Files of the user or of an interrupted run are not downloaded again.

    Raises:
        ChecksumError: a downloaded file is not the published one.
        DataError: a file is missing and cannot be downloaded; the message says where to put it.
    """
    local_form = find(definition, root)
    if local_form is not None:
        return local_form
    folders = _folders(root)
    failures: list[NotDownloadedError] = []
    for form in definition.forms:
        if form.downloadable:
            try:
                return LocalForm(form, tuple(_had(definition, file, folders) for file in form.files))
            except NotDownloadedError as error:
                failures.append(error)
    reason = f"cannot be downloaded ({'; '.join(map(str, failures))})" if failures else "has no address for programs"
    problem = f"data set {definition.name!r} is not on this machine and {reason}. {_by_hand(definition, folders)}"
    if any(error.wrong for error in failures):
        raise ChecksumError(problem) from failures[-1]
    raise DataError(problem) from (failures[-1] if failures else None)


def verified(definition: Published, form: LocalForm) -> tuple[str, ...]:
    """Check that each file is the published or the recorded one, and return identifiers of their contents.

    A repacked file is accepted where its content is right, and identified by the content.

    Raises:
        ChecksumError: a file is another one, or damaged.
        DataError: a file cannot be read.
    """
    files = zip(form.form.files, form.paths, strict=True)
    return tuple(_identity(definition, file, path, path.name) for file, path in files)


def remember(definition: Published, form: LocalForm) -> None:
    """Record unpublished hashes after the files were used successfully. Other files are then refused.

    Raises:
        DataError: the record cannot be written.
    """
    for file, path in zip(form.form.files, form.paths, strict=True):
        if not (file.sha256 or file.sha256_content):
            record(definition.name, path.name, path, file_hash(path))


def given_folder(root: str | Path, called: str = "root") -> Path:
    """Return the folder that the user names for searching files.

    Raises:
        DataError: it is no folder, or may not be read.
    """
    folder = as_path(root, called)
    setting = f"{called}={shortened(str(root), 500)}"
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise NotADirectoryError(folder)
        if not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        if isinstance(error, PermissionError):
            raise DataError(f"{setting} may not be read: {explain(error, folder, setting=called)}") from error
        raise DataError(f"{setting} is not a folder. Give one that exists, or leave it out.") from error
    return folder


def _folders(root: str | Path | None) -> list[Path]:
    folders = [] if root is None else [given_folder(root)]
    if os.environ.get("DTDG_LAB_DATA"):
        folders.append(given_folder(os.environ["DTDG_LAB_DATA"], "DTDG_LAB_DATA"))
    return [*folders, raw_folder()]


def _located(file: PublishedFile, folders: list[Path]) -> Path | None:
    for folder in folders:
        for name in file.names:
            if os.path.isfile(folder / name):
                return folder.resolve() / name
    return None


def _had(definition: Published, file: PublishedFile, folders: list[Path]) -> Path:
    """Return the path of one file, and download it unless it is in one of the folders."""
    path = _located(file, folders)
    if path is not None:
        return path

    def check(draft: Path) -> None:
        with draft.open("rb") as start:
            if start.read(512).lstrip().lower().startswith(_WEB_PAGES):
                raise ChecksumError(f"a web page came in place of {file.name}")
        _identity(definition, file, draft, file.name)

    return download(raw_folder() / file.name, file.urls, check)


def _identity(definition: Published, file: PublishedFile, path: Path, name: str) -> str:
    """Return an identifier of a file's content; see :func:`verified`."""
    digest = file_hash(path)
    if not (file.sha256 or file.sha256_content):
        check_recorded(definition.name, name, path, digest)
        return digest
    if digest in (file.sha256, file.sha256_content):
        return file.sha256_content or digest
    problem: Exception | None = None
    if file.sha256_content:
        try:
            if hashlib.sha256(content(path, file.member)[0]).hexdigest() == file.sha256_content:
                return file.sha256_content
        except DataError as error:
            if is_refusal(error):
                raise
            problem = error
    hashes = " or ".join(filter(None, (file.sha256, file.sha256_content and f"{file.sha256_content} unpacked")))
    raise ChecksumError(
        f"{path} has SHA-256 {digest}; {hashes} is recorded for {definition.name!r}. The file is damaged or another "
        f"version: delete it to have it fetched again, or put the one from {definition.address or definition.page} "
        "there."
    ) from problem


def _by_hand(definition: Published, folders: list[Path]) -> str:
    """Describe how to get the file manually: the command, the folder, and alternatives."""
    form = next((form for form in definition.forms if form.downloadable), definition.forms[0])
    missing = [file for file in form.files if _located(file, folders) is None]
    names, folder = ", ".join(file.name for file in missing), raw_folder()
    instruction = f"put {names} into {folder}, then run again"
    if form.downloadable:
        commands = "; ".join(
            f"curl -fL --create-dirs -o {shlex.quote(str(folder / file.name))} {shlex.quote(file.urls[0])}"
            for file in missing
        )
        instruction = f"{instruction}: {commands}"
    return (
        f"Download it manually from {definition.page}: {instruction}. Or set DTDG_LAB_DATA to the folder that has it, "
        'or use dataset="growing", which needs no file.'
    )
