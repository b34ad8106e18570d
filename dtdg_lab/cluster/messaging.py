"""Signed messages between kernels and ranks: control requests over REQ/REP, telemetry over PUB/SUB."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from dtdg_lab.config.record_tables import MAX_CONTROL_VERSION
from dtdg_lab.core.errors import ConfigError, ControlError, LabError
from dtdg_lab.training.control_source import first_stop

# Messages that only holders of a session's key can make: HMAC-SHA256 before JSON.


POLL_MS = 50  # after which threads that receive look whether they are to end
_LENGTH = 32


def new_key() -> str:
    """A fresh 256-bit key as hexadecimal text."""
    return secrets.token_hex(32)


def sign(key: str, payload: bytes) -> bytes:
    """The payload behind its signature."""
    return hmac.digest(bytes.fromhex(key), payload, hashlib.sha256) + payload


def verify(key: str, message: bytes) -> bytes:
    """The payload of a signed message.

    Raises:
        ControlError: the signature is not by this key.
    """
    signature, payload = message[:_LENGTH], message[_LENGTH:]
    if not hmac.compare_digest(signature, hmac.digest(bytes.fromhex(key), payload, hashlib.sha256)):
        raise ControlError("a message was not signed with this session's key and is ignored.")
    return payload


def pack(key: str, value: dict[str, Any]) -> bytes:
    """A JSON object, signed."""
    return sign(key, json.dumps(value).encode())


def unpack(key: str, message: bytes) -> dict[str, Any]:
    """The JSON object of a signed message.

    Raises:
        ControlError: the signature is not by this key, or what is signed is not a JSON object.
    """
    value = json.loads(verify(key, message))
    if not isinstance(value, dict):
        raise ControlError(f"a control message holds a {type(value).__name__}; an object is required.")
    return value


# Control requests: a kernel sends them to rank 0 over ZeroMQ; rank 0 numbers them and puts them into the run's store.


Check = Callable[[dict[str, Any]], None]
OnRefusal = Callable[[dict[str, Any], str], None]
OnAcceptance = Callable[[dict[str, Any], int], None]
_NONCES = 10_000
_LOOK_S = 0.2
TRIES = 5  # to reach rank 0: a message may be lost while others attack its ports


def store_key(version: int) -> str:
    """The store's key of the request of a version."""
    return f"control/{version}"


def read_payload(store: Any, version: int) -> dict[str, Any]:
    """The request of a version; the store vouches that it is of this run, attempt and version."""
    request: dict[str, Any] = json.loads(store.get(store_key(version)))
    return request


class ControlServer:
    """Rank 0's side: receives signed requests, checks and numbers them, and replies with the number.

    Requests that are unsigned, signed with another key, made for another run or attempt, repeated, or refused by
    ``check`` change nothing.

    Args:
        key: the session's key.
        store: the attempt's store, which signs; every rank reads the requests there.
        check: raises a LabError for a request that cannot be carried out; may be replaced.
        on_refusal: called with each request of this session that is refused, and the reason, on the server's thread.
        on_acceptance: called with each request that is accepted, and its version, before the ranks can see it.
        place: run and attempt that requests must name.
        host: interface to listen on.
    """

    def __init__(
        self,
        key: str,
        store: Any,
        check: Check,
        on_refusal: OnRefusal,
        *,
        place: str,
        host: str = "127.0.0.1",
        on_acceptance: OnAcceptance = lambda request, version: None,
    ) -> None:
        self._key, self._store, self.check, self._on_refusal, self._place = key, store, check, on_refusal, place
        self._on_acceptance = on_acceptance
        self._closed_for = ""
        self._version = 0
        self._taken: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._answers: dict[str, bytes] = {}  # by nonce, the last ones
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.address = f"tcp://{host}:{self._socket.bind_to_random_port(f'tcp://{host}')}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)
        self._thread.start()

    def latest(self) -> int:
        """The newest version."""
        return self._version

    def payload(self, version: int) -> dict[str, Any]:
        """The request of a version; the other ranks find it in the store again, if someone changed that."""
        self._store.set_once(store_key(version), json.dumps(self._taken[version - 1]))
        return dict(self._taken[version - 1])

    def stop_request(self) -> dict[str, Any]:
        """Return the first request to stop; empty without one."""
        return first_stop(self._taken)[1]

    def stops(self) -> bool:
        """Return whether there is a request to stop."""
        return bool(self.stop_request())

    def stop_version(self) -> int:
        """Return the version of the first request to stop; 0 without one."""
        with self._changed:  # another rank may have read it in the store before it is taken here
            return first_stop(self._taken)[0]

    def stop_by(self, name: str) -> None:
        """Stop the run because of a signal to this process, whatever ``check`` says.

        Raises:
            ControlError: the run is ending.
        """
        self._add({"stop": True, "signal": name, "rank": 0})

    def changes(self, after: int) -> list[dict[str, Any]]:
        """Return the requests to change settings in versions above ``after``, oldest first."""
        return [request for request in self._taken[after:] if "set" in request]

    def refuse(self, reason: str) -> None:
        """Refuse all further requests; earlier ones remain valid."""
        with self._changed:
            self._closed_for = reason

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return when a version above ``seen`` exists, or after the time-out."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > seen, timeout_s)

    def _serve(self) -> None:
        while not self._stop.is_set():
            if self._socket.poll(POLL_MS):
                try:  # all frames: a stranger's second one must not leave the socket in the wrong state
                    frames = self._socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:  # what is no request is dropped by the socket, and waiting for another has no end
                    continue
                self._socket.send(self._answer(b"".join(frames)))
        self._socket.close()

    def _answer(self, message: bytes) -> bytes:
        try:
            request = unpack(self._key, message)
            nonce = str(request.pop("nonce", ""))
            if request.pop("place", "") != self._place:
                raise ControlError("a control message for another run is ignored.")
            if not nonce:
                raise ControlError("a control message without a nonce is ignored.")
        except (LabError, json.JSONDecodeError, UnicodeDecodeError) as error:
            return self._refused(error)
        if nonce not in self._answers:  # a request that is sent again, by anyone, gets its answer and changes nothing
            self._answers[nonce] = self._take(request)
            if len(self._answers) > _NONCES:
                del self._answers[next(iter(self._answers))]
        return self._answers[nonce]

    def _refused(self, error: Exception) -> bytes:
        return pack(self._key, {"refused": str(error), "setting": isinstance(error, ConfigError)})

    def _take(self, request: dict[str, Any]) -> bytes:
        try:
            if self._version >= MAX_CONTROL_VERSION:
                raise ControlError(f"the run has had {self._version} changes, the most it takes: stop and resume it.")
            self.check(request)
            return pack(self._key, {"version": self._add(request)})
        except LabError as error:
            self._on_refusal(request, str(error))
            return self._refused(error)

    def _add(self, request: dict[str, Any]) -> int:
        with self._changed:
            if self._closed_for:
                raise ControlError(self._closed_for)
            try:
                self._store.set(store_key(self._version + 1), json.dumps(request))
            except RuntimeError as error:  # torch's: the store is going down with its run
                raise ControlError(f"the run's store does not answer ({error}): it is about to end.") from error
            self._on_acceptance(request, self._version + 1)
            self._taken.append(request)
            self._version += 1
            self._changed.notify_all()
            return self._version

    def close(self) -> None:
        """Stop listening; repeated calls have no effect."""
        self._stop.set()
        self._thread.join()


class StoredControl:
    """The other ranks' side: they receive versions in the exchange and read the requests from the store.

    Args:
        store: the attempt's store.
        ask: sends a request to rank 0 (see :func:`ask`).
        rank: this one.
    """

    def __init__(self, store: Any, ask: Callable[[dict[str, Any]], int], rank: int) -> None:
        self._store, self._ask, self._rank = store, ask, rank
        self._looked_at, self._stop, self._next_s = 0, dict[str, Any](), 0.0

    def stop_request(self) -> dict[str, Any]:
        """Return the first request to stop; empty without one. One read a call."""
        while not self._stop and (found := self._store.read(store_key(self._looked_at + 1))) is not None:
            self._looked_at += 1
            self._stop = first_stop([json.loads(found)])[1]
        return self._stop

    def stops(self) -> bool:
        """Return whether a request to stop is known; the store is read five times a second at most."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LOOK_S
            self.stop_request()
        return bool(self._stop)

    def stop_version(self) -> int:
        """Return the version of the first request to stop; 0 without one."""
        return self._looked_at if self.stop_request() else 0

    def stop_by(self, name: str) -> None:
        """Ask rank 0 to stop the run because of a signal to this process.

        Raises:
            ControlError: it is not ready, the run is ending, or there is no answer.
        """
        self._ask({"stop": True, "signal": name, "rank": self._rank})

    def latest(self) -> int:
        """Unknown here; rank 0's answer counts."""
        return 0

    def payload(self, version: int) -> dict[str, Any]:
        """The request of a version."""
        return read_payload(self._store, version)

    def refuse(self, reason: str) -> None:
        """Only rank 0 refuses."""

    def wait(self, seen: int, timeout_s: float) -> None:
        """Only rank 0 waits; the others wait for it in the exchange."""


def _reply(address: str, message: bytes, timeout_s: float) -> bytes | None:
    """The reply to a message on a new connection; None if there is none in time."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.connect(address)
        socket.send(message)
        return socket.recv() if socket.poll(round(timeout_s * 1000)) else None
    finally:
        socket.close()


def ask(address: str, key: str, request: dict[str, Any], *, place: str, timeout_s: float = 5.0) -> int:
    """Send one request to rank 0 of a run's attempt (``place``) and return its version.

    Raises:
        ConfigError: rank 0 refused a setting.
        ControlError: rank 0 refused the request for another reason, or did not answer in time.
    """
    message = pack(key, {**request, "place": place, "nonce": secrets.token_hex(8)})
    for _ in range(TRIES):
        if (reply := _reply(address, message, timeout_s / TRIES)) is not None:
            break
    else:
        raise ControlError(f"rank 0 did not answer within {timeout_s:g} s. The run may have ended: check run.status.")
    answer = unpack(key, reply)
    if "refused" in answer:
        raise (ConfigError if answer.get("setting") else ControlError)(answer["refused"])
    return int(answer["version"])


# Record lines from ranks to kernels as they are written: a signed PUB/SUB stream that may drop, but never blocks.


_QUEUE = 2000  # messages kept for a slow reader; sequence numbers reveal gaps


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
    """A kernel's side: passes each line to ``take`` from a thread of its own.

    Args:
        key: the session's key; messages by others are counted in ``forged`` and ignored.
        take: called with each parsed line and its length in bytes, its line break included.
    """

    def __init__(self, key: str, take: Callable[[dict[str, Any], int], None]) -> None:
        self._key, self._take = key, take
        self.forged = 0
        self._stop = threading.Event()
        self._known: set[str] = set()
        self._new: deque[str] = deque()  # a socket belongs to one thread: addresses are passed to it
        self._thread = threading.Thread(target=self._listen, name="telemetry", daemon=True)

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

    def connect(self, address: str) -> None:
        """Subscribe to a rank too; repeated calls have no effect."""
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
