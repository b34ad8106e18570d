"""One file from the web: the addresses tried in turn, the hash checked, and no part of it ever seen under its name."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from dtdg_lab.core.errors import ChecksumError, DataError
from dtdg_lab.datasets.one_at_a_time import one_at_a_time

CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 60.0
TRIES = 3  # of one address
BACK_OFF_S = 1.0  # before the second try, doubled before each further one
_CHUNK_BYTES = 1 << 16


class NotDownloadedError(DataError):
    """Raised where no address gave a file; ``wrong`` says whether one gave another file than the published one."""

    def __init__(self, message: str, *, wrong: bool) -> None:
        super().__init__(message)
        self.wrong = wrong


def download(path: Path, urls: tuple[str, ...], check: Callable[[Path], object]) -> Path:
    """Put a file in its place, unless it is there by now.

    TLS certificates are verified. An address that fails with a server error (5xx), a busy one (429), a broken or a
    stalled connection, or a file that fails ``check``, is tried again, later each time; one that refuses is not.

    Args:
        path: where the file goes; its folder is made where it is missing.
        urls: addresses, tried in order.
        check: raises ChecksumError where the file at a path is not the right one.

    Returns:
        The path of the file, without links.

    Raises:
        NotDownloadedError: no address gave it; the message has what each of them said.
        DataError: it cannot be written.
    """
    with one_at_a_time(path) as alone:
        if path.is_file():  # another process has fetched it meanwhile
            return path.resolve()
        if alone:
            _remove_drafts(path)
        failures: list[tuple[str, Exception]] = []
        for url in urls:
            failure = _from_one_address(url, path, check)
            if failure is None:
                return path.resolve()
            failures.append((url, failure))
    said = "; ".join(f"{url}: {_reason(error)}" for url, error in failures)
    wrong = any(isinstance(error, ChecksumError) for _, error in failures)
    raise NotDownloadedError(said, wrong=wrong) from failures[-1][1]


def _from_one_address(url: str, path: Path, check: Callable[[Path], object]) -> Exception | None:
    """Try one address a few times; the last failure, or None where the file is in place."""
    import requests

    failure: Exception | None = None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(BACK_OFF_S * 2 ** (attempt - 1))
        try:
            _put_in_place(url, path, check)
            return None
        except ChecksumError as error:
            failure = error
        except requests.exceptions.RequestException as error:
            failure = error
            if error.response is not None:
                error.response.close()
            if not _may_pass(error):
                return failure
    return failure


def _remove_drafts(path: Path) -> None:
    """Remove what downloads of the same file have left that were killed."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with contextlib.suppress(OSError):
            draft.unlink()


def _put_in_place(url: str, path: Path, check: Callable[[Path], object]) -> None:
    """Download into a hidden draft beside ``path``, check it, and rename it."""
    # not tempfile: its files are closed to other users, and a cache may be shared
    draft = path.parent / f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.part"
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        _download_into(draft, url)
        check(draft)
        draft.replace(path)
    except OSError as error:
        import requests

        if isinstance(error, requests.exceptions.RequestException):  # they are OSErrors too
            raise
        raise DataError(
            f"cannot write {path}: {error.strerror or error}. Free space there, or set DTDG_LAB_CACHE to a folder you "
            "can write."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _download_into(draft: Path, url: str) -> None:
    import pooch

    downloader = pooch.HTTPDownloader(
        progressbar=importlib.util.find_spec("tqdm") is not None,
        chunk_size=_CHUNK_BYTES,
        timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
        # a server that packs what it sends would have the file unpacked on arrival, and its hash changed
        headers={"Accept-Encoding": "identity"},
    )
    downloader(url, str(draft), None)


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed a moment later."""
    response = getattr(error, "response", None)
    return response is None or response.status_code >= 500 or response.status_code == 429


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    return str(error) if response is None else f"HTTP {response.status_code} {response.reason}"
