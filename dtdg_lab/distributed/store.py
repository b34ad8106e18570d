"""The key-value store of a run's ranks, which ignores values without the run's signature."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from dtdg_lab.core.errors import ClusterError

WAIT_S = 60.0  # time-out of connections, and of waiting for a value
_POLL_S = 0.001
_MOST_POLL_S = 0.02
_NEVER = "\0"  # equals no value, so that compare_set with it only reads
_FOLDER = "dtdg-lab-store-"
_SWEEP_S = 7 * 86400.0
_SIGNATURE, _MARK = 64, 16  # letters
_FILE, _TCP = "file:", "tcp:"


class SignedStore(dist.Store):
    """A torch store whose values are signed with the run's key over scope, name and value (HMAC-SHA256).

    A value with another signature counts as missing, and is counted in :attr:`ignored`. Signatures prove who wrote a
    value, not when: anyone with access may delete values, or restore older values of a name. gloo uses this store too.
    NCCL gets torch's store (:attr:`unsigned`), because its own threads must not wait for Python.

    Args:
        unsigned: torch's store.
        address: address for other processes, see :func:`reach_store`.
        key: secret of the run or session, hexadecimal.
        scope: run and attempt; values of other scopes are ignored.
        size: number of ranks.
    """

    def __init__(self, unsigned: Any, address: str, *, key: str, scope: str, size: int) -> None:
        super().__init__()
        self.unsigned, self.address, self._size = unsigned, address, size
        self._key, self._scope = key, scope
        self._ignored: list[int] = [0]  # shared by the connections of a process
        self._wrong: dict[str, int] = {}
        self._known: dict[str, str] = {}

    @property
    def host(self) -> str:
        """The machine that serves the store; loopback for a file."""
        return self.address.removeprefix(_TCP).rsplit(":", 1)[0] if self.address.startswith(_TCP) else "127.0.0.1"

    @property
    def ignored(self) -> int:
        """Number of values read so far without this run's signature."""
        return self._ignored[0]

    def reconnect(self) -> SignedStore:
        """Open another connection; a connection serves one thread at a time.

        Raises:
            ClusterError: the store is gone.
        """
        connection = reach_store(self.address, self._size, key=self._key, scope=self._scope)
        connection._ignored = self._ignored
        return connection

    def remove(self) -> None:
        """Remove the folder of a file store; no process may use it any more."""
        if self.address.startswith(_FILE):
            shutil.rmtree(Path(self.address.removeprefix(_FILE)).parent, ignore_errors=True)

    def set(self, name: str, value: bytes | str) -> None:
        """Write a value."""
        self.unsigned.set(name, self._signed(name, value))

    def read(self, name: str) -> bytes | None:
        """Return the value of a name; None without a value signed by this run."""
        return self._verified(name, self._text(name))

    def get(self, name: str) -> bytes:
        """Wait at most 60 s for the value of a name, and return it."""
        self.wait([name], datetime.timedelta(seconds=WAIT_S))
        value = self.read(name)
        if value is None:
            raise dist.DistStoreError(f"the value of {name!r} was deleted from the run's store.")
        return value

    def set_once(self, name: str, value: bytes | str) -> bool:
        """Write a value unless the name has one signed by this run; return whether it was written."""
        signed, text = self._signed(name, value), self._text(name)
        while self._verified(name, text) is None:
            text, previous_text = self.unsigned.compare_set(name, text, signed).decode(errors="replace"), text
            if text == signed:
                return True
            if text == previous_text:  # bytes that are not valid text cannot be compared
                self.unsigned.set(name, signed)
                return True
        return False

    def add(self, name: str, amount: int) -> int:
        """Add to a number, atomically, and return the sum; a missing number is 0.

        If another process has overwritten or deleted the number, the last one known to this process replaces it.
        """
        text = self._text(name) if not amount else self._known.get(name, "")
        while True:
            value = self._verified(name, text)
            number = int(value if value is not None else self._verified(name, self._known.get(name, "")) or 0)
            if value is not None:
                self._known[name] = text
            if not amount:
                return number
            new_text = self._signed(name, str(number + amount))
            stored_text = self.unsigned.compare_set(name, text, new_text).decode(errors="replace")
            if stored_text == text and text:  # invalid text, or a deleted name
                self.unsigned.set(name, new_text)
                stored_text = new_text
            if stored_text == new_text:
                self._known[name] = new_text
                return number + amount
            text = stored_text

    def check(self, names: Sequence[str]) -> bool:
        """Return whether every name has a value."""
        return all(self.read(name) is not None for name in names)

    def wait(self, names: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        """Wait until every name has a value.

        Raises:
            DistStoreError: the time-out has passed.
        """
        limit_s, nap_s = (timeout or dist.default_pg_timeout).total_seconds(), _POLL_S
        end_s = time.monotonic() + limit_s
        while not self.check(names):
            if time.monotonic() > end_s:
                raise dist.DistStoreError(
                    f"{', '.join(names)} had no value of this run in its store for {limit_s:g} s."
                )
            time.sleep(nap_s)
            nap_s = min(1.5 * nap_s, _MOST_POLL_S)

    def _signed(self, name: str, value: bytes | str) -> str:
        # a random mark tells two writers of the same value which of them has written it
        mark = secrets.token_hex(_MARK // 2)
        content = mark + base64.b64encode(value.encode() if isinstance(value, str) else bytes(value)).decode()
        return self._signature(name, content) + content

    def _signature(self, name: str, content: str) -> str:
        parts = [part.encode() for part in (self._scope, name, content)]
        message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return hmac.digest(bytes.fromhex(self._key), message, hashlib.sha256).hex()

    def _text(self, name: str) -> str:
        """Return the raw value of a name, signed or not, without waiting; empty if there is none."""
        text = self.unsigned.compare_set(name, _NEVER, _NEVER).decode(errors="replace")
        return "" if text == _NEVER else text

    def _verified(self, name: str, text: str) -> bytes | None:
        if not text:
            return None
        signature, content = text[:_SIGNATURE], text[_SIGNATURE:]
        if not hmac.compare_digest(signature.encode(), self._signature(name, content).encode()):
            if self._wrong.get(name) != hash(text):  # count each value once
                self._wrong[name] = hash(text)
                self._ignored[0] += 1
            return None
        return base64.b64decode(content[_MARK:])


def open_store(size: int, *, key: str = "", scope: str = "", host: str = "") -> tuple[SignedStore, str]:
    """Create the store of a run; return it and its address.

    Args:
        size: number of ranks.
        key: secret of the run or session, hexadecimal; empty for a new one, which becomes part of the address.
        scope: run and attempt.
        host: address to serve the store on, at a free port, for ranks on several machines; empty for a file in a
            folder that only this account can open.
    """
    secret = key or secrets.token_hex(32)
    if host:
        torch_store, address = _serve(size, host)
    else:
        _sweep()
        file = f"{tempfile.mkdtemp(prefix=_FOLDER)}/store"  # mkdtemp: mode 0700
        torch_store, address = _file_store(file), _FILE + file
    store = SignedStore(torch_store, address, key=secret, scope=scope, size=size)
    return store, address if key else f"{address}#{secret}"


def _serve(size: int, host: str) -> tuple[Any, str]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((host, 0))  # torch would listen on every interface
    listener.listen(128)
    port = listener.getsockname()[1]
    store = dist.TCPStore(host, port, size, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    return store, f"{_TCP}{host}:{port}"


def reach_store(address: str, size: int, *, key: str = "", scope: str = "", timeout_s: float = WAIT_S) -> SignedStore:
    """Connect to a store of another process's :func:`open_store`.

    Raises:
        ClusterError: no store answers at the address, or the key is missing.
    """
    location, _, address_key = address.partition("#")
    if not (secret := key or address_key):
        raise ClusterError(f"the store at {location} needs the key of its run. Pass key=...")
    try:
        if location.startswith(_FILE):
            file = location.removeprefix(_FILE)
            if not os.path.exists(file):  # torch would wait for it
                raise ValueError("its file is gone")
            torch_store: Any = _file_store(file)
        else:
            host, port = location.removeprefix(_TCP).rsplit(":", 1)
            limit = datetime.timedelta(seconds=timeout_s)
            torch_store = dist.TCPStore(host, int(port), size, is_master=False, wait_for_workers=False, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise ClusterError(
            f"no store answers at {location}: {error}. The rank that serves it may have died; repair the session."
        ) from error
    return SignedStore(torch_store, location, key=secret, scope=scope, size=size)


_kept: list[Any] = []


def _file_store(file: str) -> Any:
    # kept until the process ends: torch's destructor opens the file, and aborts if the folder has just been removed
    _kept.append(dist.FileStore(file))
    return _kept[-1]


def _sweep() -> None:
    """Remove the store folders of this account's killed runs, which no rank has written to for a week."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        try:
            is_ours = folder.stat().st_uid == os.getuid()
            newest_s = max(path.stat().st_mtime for path in (folder, *folder.iterdir())) if is_ours else time.time()
        except FileNotFoundError:  # its run has just ended
            continue
        if time.time() - newest_s > _SWEEP_S:
            shutil.rmtree(folder, ignore_errors=True)
