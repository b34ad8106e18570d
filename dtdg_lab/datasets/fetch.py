"""The files of a published data set: found on this machine or downloaded, and known to be the right ones."""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from dtdg_lab.core.errors import ChecksumError, DataError, shortened
from dtdg_lab.core.paths import as_path
from dtdg_lab.datasets.contents import content
from dtdg_lab.datasets.download import NotDownloadedError, download
from dtdg_lab.datasets.hashes import check_recorded, file_hash, record
from dtdg_lab.datasets.published import Form, Published, PublishedFile
from dtdg_lab.graphs.store import cache_folder

_WEB_PAGES = (b"<!doctype", b"<html")  # what some servers send, with success, in place of a file they lack


@dataclass(frozen=True, slots=True)
class Found:
    """A form of a data set whose files are all on this machine.

    Attributes:
        form: which one.
        paths: one for each of its files.
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
    """Where downloads are kept: ``raw`` in the cache folder."""
    return cache_folder() / "raw"


def find(definition: Published, root: str | Path | None = None) -> Found | None:
    """The files of a data set on this machine, or None where some are missing in every form.

    Looked for in ``root``, then in $DTDG_LAB_DATA, then among the downloads in $DTDG_LAB_CACHE/raw; the files of one
    form may lie in several of them. Nothing is read.

    Raises:
        DataError: ``root`` or $DTDG_LAB_DATA is given and is no folder, or may not be read.
    """
    folders = _folders(root)
    for count in range(1, len(folders) + 1):
        for form in definition.forms:
            paths = [_located(file, folders[:count]) for file in form.files]
            if all(paths):
                return Found(form, tuple(path for path in paths if path))
    return None


def fetch(definition: Published, root: str | Path | None = None) -> Found:
    """The files of a data set, those that this machine lacks downloaded.

    Files that are there already, put there by hand or by a run that was cut short, are not fetched again.

    Raises:
        ChecksumError: what was downloaded is not the published file.
        DataError: it is not on this machine and cannot be downloaded; the message says where to put it.
    """
    found = find(definition, root)
    if found is not None:
        return found
    folders = _folders(root)
    failures: list[NotDownloadedError] = []
    for form in definition.forms:
        if form.downloadable:
            try:
                return Found(form, tuple(_had(definition, file, folders) for file in form.files))
            except NotDownloadedError as error:
                failures.append(error)
    said = f"cannot be downloaded ({'; '.join(map(str, failures))})" if failures else "has no address for programs"
    problem = f"data set {definition.name!r} is not on this machine and {said}. {_by_hand(definition, folders)}"
    if any(error.wrong for error in failures):
        raise ChecksumError(problem) from failures[-1]
    raise DataError(problem) from (failures[-1] if failures else None)


def verified(definition: Published, found: Found) -> tuple[str, ...]:
    """What identifies the content of each file, once it is known to be the published or the recorded one.

    A file that was packed anew is taken where the content is right, and identified by it.

    Raises:
        ChecksumError: a file is another one, or a damaged one.
        DataError: it cannot be read.
    """
    files = zip(found.form.files, found.paths, strict=True)
    return tuple(_identity(definition, file, path, path.name) for file, path in files)


def remember(definition: Published, found: Found) -> None:
    """Record the hashes that nobody wrote down, once the files have been of use: others are refused from now on.

    Raises:
        DataError: the record cannot be written.
    """
    for file, path in zip(found.form.files, found.paths, strict=True):
        if not (file.sha256 or file.sha256_content):
            record(definition.name, path.name, path, file_hash(path))


def given_folder(root: str | Path, called: str = "root") -> Path:
    """The folder that somebody gives to look for files in.

    Raises:
        DataError: it is no folder, or one that may not be looked into.
    """
    folder = as_path(root, called)
    if not os.path.isdir(folder):
        raise DataError(f"{called}={shortened(str(root), 500)} is not a folder. Give one that exists, or leave it out.")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise DataError(f"{called}={shortened(str(root), 500)} may not be read by this user. Change its permissions.")
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
    """One file, downloaded unless it is in one of the folders."""
    here = _located(file, folders)
    if here is not None:
        return here

    def check(draft: Path) -> None:
        with draft.open("rb") as start:
            if start.read(512).lstrip().lower().startswith(_WEB_PAGES):
                raise ChecksumError(f"a web page came in place of {file.name}")
        _identity(definition, file, draft, file.name)

    return download(raw_folder() / file.name, file.urls, check)


def _identity(definition: Published, file: PublishedFile, path: Path, name: str) -> str:
    """What identifies the content of a file; see :func:`verified`."""
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
            problem = error
    known = " or ".join(filter(None, (file.sha256, file.sha256_content and f"{file.sha256_content} unpacked")))
    raise ChecksumError(
        f"{path} has SHA-256 {digest}; {known} is recorded for {definition.name!r}. The file is damaged or another "
        f"version: delete it to have it fetched again, or put the one from {definition.address or definition.page} "
        "there."
    ) from problem


def _by_hand(definition: Published, folders: list[Path]) -> str:
    """What a person does where the program cannot: the command, the place, and the other ways."""
    form = next((form for form in definition.forms if form.downloadable), definition.forms[0])
    missing = [file for file in form.files if _located(file, folders) is None]
    names, folder = ", ".join(file.name for file in missing), raw_folder()
    place = f"put {names} into {folder}, then run again"
    if form.downloadable:
        commands = "; ".join(
            f"curl -fL --create-dirs -o {shlex.quote(str(folder / file.name))} {shlex.quote(file.urls[0])}"
            for file in missing
        )
        place = f"{place}: {commands}"
    return (
        f"Get it from {definition.page} by hand: {place}. Or set DTDG_LAB_DATA to the folder that has it, or use "
        'dataset="growing", which needs no file.'
    )
