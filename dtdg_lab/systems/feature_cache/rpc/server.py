"""The feature server of one rank, in its own process, and the addresses of all servers."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import threading
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.child_process import ChildProcess
from dtdg_lab.core.errors import PlanError, RunFailedError
from dtdg_lab.systems.feature_cache.rpc.shared_arrays import share_array

if TYPE_CHECKING:
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.network.links import LinkState


GRACE_S = 0.3  # time between asking a process to exit and killing it


class FeatureServer:
    """A child process with a socket per part; it exits with its parent.

    The child maps files with the features: the file of a ``np.memmap``, otherwise a copy in memory. It makes no further
    copy.

    Args:
        rows: part -> its rows (K, F) float32; F is the same for all.
        keys: part -> the keys of its rows (K,) int64, ascending.
        token: token of the run; connections without it are rejected. See :func:`agree_token`.
        host: address of this machine to listen on. Except on loopback, features and token cross the network
            unencrypted, like gradients.
        timeout_s: seconds the child may take to start.
        orders_s: seconds it may take to reply to a command; None for ``timeout_s``.

    Attributes:
        addresses: address of each part, for :class:`FeatureClient`.
        pid: process identifier of the child.

    Raises:
        NotAvailableError: the process cannot be started.
        RunFailedError: the process could not listen, or did not start in time.
    """

    def __init__(
        self,
        rows: Mapping[int, NDArray[np.float32]],
        keys: Mapping[int, NDArray[np.int64]],
        token: bytes,
        *,
        host: str = "127.0.0.1",
        timeout_s: float = 30.0,
        orders_s: float | None = None,
    ) -> None:
        self._parts, self._timeout_s = tuple(rows), timeout_s
        self._lock, self._closed = threading.Lock(), False
        self._received = b""
        with contextlib.ExitStack() as files:
            arrays_by_part = {
                part: {"rows": share_array(rows[part], files), "keys": share_array(keys[part], files)} for part in rows
            }
            self._child = ChildProcess(
                "dtdg_lab.systems.feature_cache.rpc.server_process",
                purpose="serves features",
                advice="Free memory or processes, or run with fewer ranks on this machine.",
                fds=[array["fd"] for arrays in arrays_by_part.values() for array in arrays.values() if "fd" in array],
            )
        try:
            began = self._command({"host": host, "token": token.hex(), "parts": arrays_by_part})
        except RunFailedError:
            self.close()
            raise
        self._timeout_s = timeout_s if orders_s is None else orders_s
        self.addresses: dict[int, str] = {int(part): address for part, address in began["addresses"].items()}
        self.pid = self._child.pid

    def __enter__(self) -> FeatureServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def set_links(self, links: LinkState) -> None:
        """Delay the replies of these parts by their rows of ``links``; in effect on return.

        Raises:
            RunFailedError: the process has exited or does not respond.
        """
        rows = {
            part: {
                "delay_s": links.delay_s[part].tolist(),
                "bytes_per_s": [None if np.isinf(rate) else rate for rate in links.bytes_per_s[part].tolist()],
            }
            for part in self._parts
        }
        self._command({"do": "links", "rows": rows})

    def served(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the number of requests answered with rows, and the bytes of both, by (owner, requester).

        Raises:
            RunFailedError: the process has exited or does not respond.
        """
        counts = self._command({"do": "served"})["served"]
        return {(owner, requester): (rpcs, nbytes) for owner, requester, rpcs, nbytes in counts}

    def dropped(self) -> int:
        """Return the number of malformed messages and rejected connections so far.

        Raises:
            RunFailedError: the process has exited or does not respond.
        """
        return int(self._command({"do": "served"})["dropped"])

    def check(self) -> None:
        """Raise if the process has exited; takes microseconds.

        Raises:
            RunFailedError: the process has exited.
        """
        if not self._closed and not self._child.is_alive:
            raise self._end_error()

    def close(self) -> None:
        """End the process within a second, whatever it is doing; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._child.wait(GRACE_S)
        with self._lock:  # a thread that was waiting for a reply has failed by now
            self._child.release()

    def _command(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send a command and wait for its reply."""
        with self._lock:
            if self._closed:
                raise self._end_error()
            deadline_s = time.monotonic() + self._timeout_s
            try:
                self._write(json.dumps(order).encode() + b"\n", deadline_s)
                answer: dict[str, Any] = json.loads(self._read_line(deadline_s))
            except (OSError, EOFError, ValueError) as error:  # closed by another thread, or the process ended
                raise self._end_error() from error
            if "failed" in answer:
                raise RunFailedError(
                    f"{self._server} failed: {answer['failed']}. Correct the cause, then start or resume the run."
                )
            return answer

    def _write(self, content: bytes, deadline_s: float) -> None:
        while content:  # a ready pipe accepts PIPE_BUF bytes without blocking
            self._await(self._child.orders, select.POLLOUT, deadline_s)
            content = content[self._child.orders.write(content[: select.PIPE_BUF]) or 0 :]

    def _read_line(self, deadline_s: float) -> bytes:
        while b"\n" not in self._received:
            self._await(self._child.answers, select.POLLIN, deadline_s)
            if not (content := os.read(self._child.answers, 1 << 16)):
                raise EOFError("the end of its replies")
            self._received += content
        line, self._received = self._received.split(b"\n", 1)
        return line

    def _await(self, pipe: int | IO[bytes], event: int, deadline_s: float) -> None:
        poll = select.poll()  # select does not support descriptors from 1024 on
        poll.register(pipe, event)
        if not poll.poll(max(0.0, 1e3 * (deadline_s - time.monotonic()))):
            raise RunFailedError(
                f"{self._server} (process {self._child.pid}) has not replied for {self._timeout_s:.1f} s. Resume "
                "the run from its last checkpoint, or raise fetch_timeout_s to wait longer."
            )

    def _end_error(self) -> RunFailedError:
        """Return the error for a process that accepts no commands."""
        if self._closed:
            return RunFailedError(f"{self._server} was closed.")
        return RunFailedError(f"{self._server} {self._child.ended()} Resume the run from its last checkpoint.")

    @property
    def _server(self) -> str:
        return f"the feature server of part(s) {sorted(self._parts)}"


MOST_BYTES = 120  # maximum length of an address
TOKEN_BYTES = 32


def agree_token(group: Group) -> bytes:
    """Draw a random secret of 32 bytes, the same on all ranks; collective."""
    return bytes.fromhex(group.broadcast_text(secrets.token_hex(TOKEN_BYTES)))


def exchange_addresses(
    group: Group, own_addresses: Mapping[int, str], *, parts: int, device: str = "cpu"
) -> dict[int, str]:
    """Return the addresses of all parts, in ascending order of parts; collective.

    Args:
        group: the ranks.
        own_addresses: address of each part that this rank serves.
        parts: P, over all ranks.
        device: device of the tensors that are sent.

    Raises:
        PlanError: on all ranks, if not exactly one rank serves each part, or an address is too long.
    """
    import torch  # not needed by the processes that serve features

    table = torch.zeros(parts, 1 + MOST_BYTES, dtype=torch.int64, device=device)
    sendable = [
        (part, address.encode()) for part, address in own_addresses.items() if len(address.encode()) <= MOST_BYTES
    ]
    for index, (part, letters) in enumerate(sendable[:parts]):
        table[index, 0] = part + 1
        table[index, 1 : 1 + len(letters)] = torch.tensor(list(letters), dtype=torch.int64, device=device)
    rows = [row for row in group.gather_rows(table, [parts] * group.size).cpu().tolist() if row[0]]
    served = sorted(row[0] - 1 for row in rows)
    if served != list(range(parts)):
        raise PlanError(
            f"part(s) {served} have feature servers with addresses of at most {MOST_BYTES} bytes: each of the {parts} "
            "parts needs exactly one."
        )
    return {row[0] - 1: bytes(byte for byte in row[1:] if byte).decode() for row in sorted(rows)}
