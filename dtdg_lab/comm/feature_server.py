"""Serves the features of one rank's parts to the other parts, from a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.comm.feature_client import import_zmq
from dtdg_lab.comm.feature_maps import placed
from dtdg_lab.core.errors import NotAvailableError, PlanError, RunFailedError
from dtdg_lab.core.links import LinkState

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
GRACE_S = 0.3  # for a process that is asked to end, before it is killed


class FeatureServer:
    """One child process with a socket for each part; it ends with the process that started it.

    Features lie in files that the child maps: those of a ``np.memmap`` where they are, others in a copy in memory,
    made once. A second copy in the child's own memory is never made.

    Args:
        rows: of each part served, its rows (K, F) float32; F is the same in all.
        keys: of each part, the keys of its rows (K,) int64, ascending.
        token: of the run; who does not know it cannot connect. See :func:`dtdg_lab.comm.feature_addresses.agree_token`.
        host: address of this machine to listen at. Elsewhere than on loopback, features and token cross the network
            as readable as gradients do.
        timeout_s: seconds the child may take to start.
        orders_s: seconds it may take to answer an order; None: as many.

    Attributes:
        addresses: of each part, for :class:`dtdg_lab.comm.feature_client.FeatureClient`.
        pid: of the process.

    Raises:
        NotAvailableError: pyzmq is missing, or the process cannot be started.
        PlanError: rows and keys do not fit.
        RunFailedError: the process could not listen, or did not begin in time.
    """

    def __init__(
        self, rows: Mapping[int, NDArray[np.float32]], keys: Mapping[int, NDArray[np.int64]], token: bytes,
        *, host: str = "127.0.0.1", timeout_s: float = 30.0, orders_s: float | None = None,
    ) -> None:  # fmt: skip
        import_zmq()
        _check(rows, keys)
        self._parts, self._timeout_s = tuple(rows), timeout_s
        self._turn, self._closed = threading.Lock(), False
        self._answered = b""
        with contextlib.ExitStack() as files:
            told = {part: {"rows": placed(rows[part], files), "keys": placed(keys[part], files)} for part in rows}
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 (close closes it)
            self._start([array["fd"] for arrays in told.values() for array in arrays.values() if "fd" in array])
        try:
            began = self._order({"host": host, "token": token.hex(), "parts": told})
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
        """Make replies of these parts as slow as their rows of ``links`` say; it holds when this returns.

        Raises:
            PlanError: the links are of fewer parts.
            RunFailedError: the process has ended or does not answer.
        """
        if links.parts <= max(self._parts):
            raise PlanError(f"links of {links.parts} parts: this server serves part(s) {sorted(self._parts)}.")
        rows = {
            part: {
                "delay_s": links.delay_s[part].tolist(),
                "bytes_per_s": [None if np.isinf(rate) else rate for rate in links.bytes_per_s[part].tolist()],
            }
            for part in self._parts
        }
        self._order({"do": "links", "rows": rows})

    def served(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Requests answered with rows so far, and bytes of both, by (owner, requester).

        Raises:
            RunFailedError: the process has ended or does not answer.
        """
        counts = self._order({"do": "served"})["served"]
        return {(owner, requester): (rpcs, nbytes) for owner, requester, rpcs, nbytes in counts}

    def dropped(self) -> int:
        """Messages that were no requests, and connections without the token, so far.

        Raises:
            RunFailedError: the process has ended or does not answer.
        """
        return int(self._order({"do": "served"})["dropped"])

    def check(self) -> None:
        """Raise if the process has ended; it costs microseconds.

        Raises:
            RunFailedError: it has.
        """
        if not self._closed and self._child.poll() is not None:
            raise self._ended()

    def close(self) -> None:
        """End the process, whatever it is doing, in less than a second; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        assert self._child.stdin and self._child.stdout
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()  # the end of orders
        try:
            self._child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        with self._turn:  # who waits for an answer has now met the end of answers
            self._child.stdout.close()
            self._said.close()

    def _start(self, fds: list[int]) -> None:
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "dtdg_lab.comm.feature_child"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=0, env=_environment(),
                pass_fds=fds,
            )  # fmt: skip
        except OSError as error:
            self._said.close()
            raise NotAvailableError(
                f"the process that serves features could not be started: {error}. Free memory or processes, or run "
                "with fewer ranks on this machine."
            ) from error

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give an order and wait for its answer."""
        with self._turn:
            if self._closed:
                raise self._ended()
            deadline_s = time.monotonic() + self._timeout_s
            try:
                self._write(json.dumps(order).encode() + b"\n", deadline_s)
                answer: dict[str, Any] = json.loads(self._line(deadline_s))
            except (BrokenPipeError, EOFError, ValueError) as error:
                raise self._ended() from error
            if "failed" in answer:
                raise RunFailedError(f"the server of part(s) {sorted(self._parts)}'s features: {answer['failed']}")
            return answer

    def _write(self, content: bytes, deadline_s: float) -> None:
        assert self._child.stdin
        while content:  # a pipe that is ready takes so many bytes without waiting
            self._await(self._child.stdin, select.POLLOUT, deadline_s)
            content = content[self._child.stdin.write(content[: select.PIPE_BUF]) or 0 :]

    def _line(self, deadline_s: float) -> bytes:
        assert self._child.stdout
        while b"\n" not in self._answered:
            self._await(self._child.stdout, select.POLLIN, deadline_s)
            if not (content := os.read(self._child.stdout.fileno(), 1 << 16)):
                raise EOFError("the end of its answers")
            self._answered += content
        line, self._answered = self._answered.split(b"\n", 1)
        return line

    def _await(self, pipe: IO[bytes], event: int, deadline_s: float) -> None:
        poll = select.poll()  # select refuses files numbered 1024 and above
        poll.register(pipe, event)
        if not poll.poll(max(0.0, 1e3 * (deadline_s - time.monotonic()))):
            raise RunFailedError(
                f"the server of the features of part(s) {sorted(self._parts)} (process {self._child.pid}) has not "
                f"answered for {self._timeout_s:.1f} s: it stands still. Resume the run from its last checkpoint. A "
                "larger fetch_timeout_s waits longer."
            )

    def _ended(self) -> RunFailedError:
        """Why the process takes no orders."""
        if self._closed:
            return RunFailedError(f"the server of the features of part(s) {sorted(self._parts)} was closed.")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1.0)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        said = f" It said: {lines[-1][:300]}" if lines else ""
        status = self._child.returncode
        why = " The system does this where memory runs out." if status == -9 else ""
        return RunFailedError(
            f"the server of the features of part(s) {sorted(self._parts)} ended with status {status}.{why}{said} "
            "Resume the run from its last checkpoint."
        )


def _check(rows: Mapping[int, NDArray[np.float32]], keys: Mapping[int, NDArray[np.int64]]) -> None:
    if not rows or set(rows) != set(keys):
        raise PlanError(f"rows of parts {sorted(rows)} and keys of parts {sorted(keys)}: the same, at least one.")
    for part, given in rows.items():
        names = keys[part]
        if given.ndim != 2 or given.dtype != np.float32 or names.shape != given.shape[:1] or names.dtype != np.int64:
            raise PlanError(
                f"part {part}: rows {given.dtype} {given.shape} and keys {names.dtype} {names.shape}; (K, F) float32 "
                "and (K,) int64 are needed."
            )
        if (names[1:] <= names[:-1]).any():
            raise PlanError(f"part {part}: keys must ascend, each once. Sort rows and keys together.")
    if len({given.shape[1] for given in rows.values()}) != 1:
        raise PlanError(f"rows of {[given.shape[1] for given in rows.values()]} floats: one width for all parts.")


def _environment() -> dict[str, str]:
    """This process's environment, with this very package where the child looks for it, and no thread pools."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **_ONE_THREAD, "PYTHONPATH": path}
