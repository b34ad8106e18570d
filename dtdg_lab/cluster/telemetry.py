"""A signed PUB/SUB stream of record lines from ranks to kernels, which may drop messages but never blocks."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from dtdg_lab.cluster.control import POLL_MS
from dtdg_lab.cluster.signing import sign, verify
from dtdg_lab.core.errors import ControlError

_QUEUE = 2000  # maximum number of queued messages for a slow reader; sequence numbers reveal gaps


class Publisher:
    """A rank's side. ``send`` never blocks: messages for a slow reader are dropped.

    Args:
        key: the session's key.
        host: interface to listen on.
    """

    def __init__(self, key: str, *, host: str = "127.0.0.1") -> None:
        self._key = key
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
        self._socket.setsockopt(zmq.SNDHWM, _QUEUE)
        self._socket.setsockopt(zmq.LINGER, 200)
        self.address = f"tcp://{host}:{self._socket.bind_to_random_port(f'tcp://{host}')}"

    def send(self, lines: bytes) -> None:
        """Publish whole JSON lines."""
        self._socket.send(sign(self._key, lines), zmq.NOBLOCK)

    def close(self) -> None:
        """Stop publishing."""
        self._socket.close()


class Subscriber:
    """A kernel's side: passes each line to ``take``, in its own thread.

    Args:
        key: the session's key; other messages are counted in ``forged`` and ignored.
        take: called with each parsed line and its length in bytes, including the line break.
    """

    def __init__(self, key: str, take: Callable[[dict[str, Any], int], None]) -> None:
        self._key, self._take = key, take
        self.forged = 0
        self._stop = threading.Event()
        self._known: set[str] = set()
        self._new: deque[str] = deque()  # addresses for the listening thread, which owns the socket
        self._thread = threading.Thread(target=self._listen, name="telemetry", daemon=True)

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

    def connect(self, address: str) -> None:
        """Subscribe to another rank; idempotent."""
        if address not in self._known:
            self._known.add(address)
            self._new.append(address)

    def _listen(self) -> None:
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 10 * _QUEUE)
        socket.subscribe(b"")
        while not self._stop.is_set():
            while self._new:
                socket.connect(self._new.popleft())
            if not socket.poll(POLL_MS):
                continue
            try:
                lines = verify(self._key, socket.recv())
            except ControlError:
                self.forged += 1
                continue
            for line in lines.splitlines():
                self._take(json.loads(line), len(line) + 1)
        socket.close()

    def close(self) -> None:
        """Stop listening."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
