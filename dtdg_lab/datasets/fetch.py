"""Finding a published file on this machine, or downloading it, and making sure it is the right one."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import zlib
from pathlib import Path

from dtdg_lab.core.errors import ChecksumError, DataError
from dtdg_lab.datasets.snap import SnapText
from dtdg_lab.graphs.store import cache_folder

_GZIP_MAGIC = b"\x1f\x8b"
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5, 60
RETRIES = 2


def find(definition: SnapText, root: str | Path | None = None) -> Path | None:
    """The file of a data set on this machine, or None.

    Looked for in ``root``, then in $DTDG_LAB_DATA, then among the downloads in $DTDG_LAB_CACHE/raw.

    Raises:
        DataError: ``root`` or $DTDG_LAB_DATA is given and is not a folder.
    """
    folders = []
    for called, given in (("root", root), ("DTDG_LAB_DATA", os.environ.get("DTDG_LAB_DATA"))):
        if given:
            folder = Path(given).expanduser()
            if not folder.is_dir():
                raise DataError(f"{called}={str(given)!r} is not a folder. Give one that exists, or leave it out.")
            folders.append(folder)
    for folder in (*folders, raw_folder()):
        for name in definition.files:
            if (folder / name).is_file():
                return folder.resolve() / name
    return None


def raw_folder() -> Path:
    """Where downloads are kept: ``raw`` in the cache folder."""
    return cache_folder() / "raw"


def fetch(definition: SnapText, root: str | Path | None = None) -> Path:
    """The file of a data set, downloaded where this machine has none.

    Raises:
        ChecksumError: what was downloaded is not the published file.
        DataError: it is not on this machine and cannot be downloaded; the message says where to put it.
    """
    found = find(definition, root)
    return found if found is not None else _download(definition)


def verified(definition: SnapText, path: Path) -> bytes:
    """The text of a data set's file, plain or gzip, once its SHA-256 is known to be right.

    A gzip file that was packed anew is taken where the text in it is right.

    Raises:
        ChecksumError: it is another file, or a damaged one.
        DataError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}. Check its permissions.") from error
    packed = data[:2] == _GZIP_MAGIC
    expected = definition.sha256_gz if packed else definition.sha256_text
    found = hashlib.sha256(data).hexdigest()
    cause: Exception | None = None
    if packed:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            cause = error
    right = found == expected or hashlib.sha256(data).hexdigest() == definition.sha256_text
    if cause is not None or not right:
        raise ChecksumError(
            f"{path} has SHA-256 {found}; {expected} is recorded for {definition.name!r}. The file is damaged or "
            f"another version: delete it to have it fetched again, or put the one from {definition.urls[0]} there."
        ) from cause
    return data


def _download(definition: SnapText) -> Path:
    """Fetch ``files[0]`` into the raw folder; TLS is verified, the hash is checked before the file appears there."""
    import pooch
    import requests

    name, folder = definition.files[0], raw_folder()
    failures = []
    for url in definition.urls:
        store = pooch.create(
            path=folder, base_url="", registry={name: f"sha256:{definition.sha256_gz}"}, urls={name: url},
            retry_if_failed=RETRIES,
        )  # fmt: skip
        downloader = pooch.HTTPDownloader(
            progressbar=importlib.util.find_spec("tqdm") is not None,
            timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
            # a server that packs what it sends would have the file unpacked on arrival, and its hash changed
            headers={"Accept-Encoding": "identity"},
        )
        try:
            return Path(store.fetch(name, downloader=downloader)).resolve()
        except ValueError as error:
            if isinstance(error, requests.exceptions.RequestException):  # some of them are ValueErrors too
                failures.append(f"{url}: {error}")
                continue
            raise ChecksumError(
                f"{url} does not give the file recorded for {definition.name!r}: {error} "
                "Try again, or put the right file into a folder and set DTDG_LAB_DATA to it."
            ) from error
        except (requests.exceptions.RequestException, OSError) as error:
            failures.append(f"{url}: {error}")
    raise DataError(
        f"data set {definition.name!r} is not on this machine and cannot be downloaded ({'; '.join(failures)}). "
        f"Put {' or '.join(definition.files)} into {folder}, or set DTDG_LAB_DATA to the folder that has it, "
        'or use dataset="growing", which needs no file.'
    )
