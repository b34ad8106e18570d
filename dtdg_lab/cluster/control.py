"""Control requests: a kernel sends them to rank 0, which numbers, records and stores them for the other ranks."""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from dtdg_lab.cluster.signing import pack, unpack
from dtdg_lab.config.record_tables import MAX_CONTROL_VERSION
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, ControlError, LabError
from dtdg_lab.records.events import NOTEBOOK, Event, Refused, Requested
from dtdg_lab.records.requests import Request, SetLive, Stop, first_stop, read_request, write_request
from dtdg_lab.runs.directory import RunDirectory

if TYPE_CHECKING:
    from dtdg_lab.training.loop import Trainer
    from dtdg_lab.training.recorder import Recorder


POLL_MS = 50  # interval at which receiving threads check if they should end


Check = Callable[[Request], None]


OnRefusal = Callable[[Request, str], None]


OnAcceptance = Callable[[Request, int], None]


_NONCES = 10_000


_LOOK_S = 0.2


TRIES = 5  # to reach rank 0, since other traffic on its port may displace a message


def attempt_scope(directory: RunDirectory, attempt: int) -> str:
    """Return the run and attempt for which control messages are signed."""
    return f"{directory.id}/{attempt}"


def store_key(version: int) -> str:
    """Return the store's key of the request of a version."""
    return f"control/{version}"


def read_payload(store: Any, version: int) -> dict[str, Any]:
    """Return the request of a version; the signed store vouches for run, attempt and version."""
    request: dict[str, Any] = json.loads(store.get(store_key(version)))
    return request


class ControlServer:
    """Rank 0's side: receives signed requests, checks and numbers them, and replies with the number.

    A request changes nothing if it is unsigned, signed with another key, made for another run or attempt, repeated, or
    refused by ``check``.

    Args:
        key: the session's key.
        store: the attempt's signed store, in which every rank reads the requests.
        check: raises a LabError if a request cannot be carried out; may be replaced.
        on_refusal: called on the server's thread with each refused request of this session, and the reason.
        on_acceptance: called with each accepted request and its version, before other ranks can see it.
        scope: run and attempt that requests must name.
        host: interface to listen on.
    """

    def __init__(
        self,
        key: str,
        store: Any,
        check: Check,
        on_refusal: OnRefusal,
        *,
        scope: str,
        host: str = "127.0.0.1",
        on_acceptance: OnAcceptance = lambda request, version: None,
    ) -> None:
        self._key, self._store, self.check, self._on_refusal, self._scope = key, store, check, on_refusal, scope
        self._on_acceptance = on_acceptance
        self._closed_for = ""
        self._version = 0
        self._taken: list[Request] = []
        self._changed = threading.Condition()
        self._answers: dict[str, bytes] = {}  # the latest ones, by nonce
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.address = f"tcp://{host}:{self._socket.bind_to_random_port(f'tcp://{host}')}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)
        self._thread.start()

    def latest(self) -> int:
        """Return the newest version."""
        return self._version

    def payload(self, version: int) -> dict[str, Any]:
        """Return the request of a version, and restore it in the store if someone changed it."""
        payload = write_request(self._taken[version - 1])
        self._store.set_once(store_key(version), json.dumps(payload))
        return payload

    def stop_request(self) -> Stop | None:
        """Return the first request to stop, if any."""
        return first_stop(self._taken)[1]

    def stops(self) -> bool:
        """Return True if there is a request to stop."""
        return self.stop_request() is not None

    def stop_version(self) -> int:
        """Return the version of the first request to stop; 0 without one."""
        with self._changed:  # another rank may have read it in the store before it is appended here
            return first_stop(self._taken)[0]

    def stop_by(self, name: str) -> None:
        """Stop the run because of a signal to this process, without ``check``.

        Raises:
            ControlError: the run is about to end.
        """
        self._add(Stop(name))

    def changes(self, after: int) -> list[SetLive]:
        """Return the requests to change settings in versions above ``after``, oldest first."""
        return [request for request in self._taken[after:] if isinstance(request, SetLive)]

    def refuse(self, reason: str) -> None:
        """Refuse all further requests; earlier ones remain valid."""
        with self._changed:
            self._closed_for = reason

    def wait(self, version: int, timeout_s: float) -> None:
        """Wait for a version above ``version``, or for the time-out."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > version, timeout_s)

    def _serve(self) -> None:
        while not self._stop.is_set():
            if self._socket.poll(POLL_MS):
                try:  # receive all frames, since a leftover one would leave the socket in the wrong state
                    frames = self._socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:  # the socket dropped an invalid message; a blocking receive would never return
                    continue
                self._socket.send(self._answer(b"".join(frames)))
        self._socket.close()

    def _answer(self, message: bytes) -> bytes:
        try:
            request = unpack(self._key, message)
            nonce = str(request.pop("nonce", ""))
            if request.pop("place", "") != self._scope:
                raise ControlError("the control message is for another run, and was ignored.")
            if not nonce:
                raise ControlError("the control message has no nonce, and was ignored.")
        except (LabError, json.JSONDecodeError, UnicodeDecodeError) as error:
            return self._refused(error)
        if nonce not in self._answers:  # a repeated request gets the same reply, and changes nothing
            self._answers[nonce] = self._take(request)
            if len(self._answers) > _NONCES:
                del self._answers[next(iter(self._answers))]
        return self._answers[nonce]

    def _refused(self, error: Exception) -> bytes:
        return pack(self._key, {"refused": str(error), "setting": isinstance(error, ConfigError)})

    def _take(self, message: dict[str, Any]) -> bytes:
        try:
            request = read_request(message)
        except LabError as error:
            return self._refused(error)
        try:
            if self._version >= MAX_CONTROL_VERSION:
                raise ControlError(f"the run has reached its limit of {self._version} changes. Stop and resume it.")
            self.check(request)
            return pack(self._key, {"version": self._add(request)})
        except LabError as error:
            self._on_refusal(request, str(error))
            return self._refused(error)

    def _add(self, request: Request) -> int:
        with self._changed:
            if self._closed_for:
                raise ControlError(self._closed_for)
            try:
                self._store.set(store_key(self._version + 1), json.dumps(write_request(request)))
            except RuntimeError as error:  # torch's error: the store is shutting down with the run
                raise ControlError(f"the run's store does not answer ({error}), so the run is about to end.") from error
            self._on_acceptance(request, self._version + 1)
            self._taken.append(request)
            self._version += 1
            self._changed.notify_all()
            return self._version

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._stop.set()
        self._thread.join()


class StoredControl:
    """The other ranks' side: they receive versions with the gradients, and read the requests from the store.

    Args:
        store: the attempt's store.
        ask: sends a request to rank 0 (see :func:`ask`).
        rank: this rank.
    """

    def __init__(self, store: Any, ask: Callable[[Request], int], rank: int) -> None:
        self._store, self._ask, self._rank = store, ask, rank
        self._read_version, self._next_s = 0, 0.0
        self._stop: Stop | None = None

    def stop_request(self) -> Stop | None:
        """Return the first request to stop, if any; reads the store once per call."""
        while self._stop is None and (text := self._store.read(store_key(self._read_version + 1))) is not None:
            self._read_version += 1
            request = read_request(json.loads(text))
            self._stop = request if isinstance(request, Stop) else None
        return self._stop

    def stops(self) -> bool:
        """Return True if a request to stop is known; reads the store at most five times a second."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LOOK_S
            self.stop_request()
        return self._stop is not None

    def stop_version(self) -> int:
        """Return the version of the first request to stop; 0 without one."""
        return self._read_version if self.stop_request() else 0

    def stop_by(self, name: str) -> None:
        """Ask rank 0 to stop the run because of a signal to this process.

        Raises:
            ControlError: rank 0 is not ready, the run is about to end, or there is no answer.
        """
        self._ask(Stop(name, self._rank))

    def latest(self) -> int:
        """Return 0: only rank 0's version counts."""
        return 0

    def payload(self, version: int) -> dict[str, Any]:
        """Return the request of a version."""
        return read_payload(self._store, version)

    def refuse(self, reason: str) -> None:
        """Do nothing; only rank 0 refuses requests."""

    def wait(self, version: int, timeout_s: float) -> None:
        """Do nothing; only rank 0 waits, and the others wait for it in the exchange."""


def _reply(address: str, message: bytes, timeout_s: float) -> bytes | None:
    """Send a message on a new connection and return the reply; None after the time-out."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.connect(address)
        socket.send(message)
        return socket.recv() if socket.poll(round(timeout_s * 1000)) else None
    finally:
        socket.close()


def ask(address: str, key: str, request: Request, *, scope: str, timeout_s: float = 5.0) -> int:
    """Send a request to rank 0 of a run's attempt (``scope``), and return its version.

    Raises:
        ConfigError: rank 0 refused a setting.
        ControlError: rank 0 refused the request for another reason, or did not answer in time.
    """
    message = pack(key, {**write_request(request), "place": scope, "nonce": secrets.token_hex(8)})
    for _ in range(TRIES):
        if (reply := _reply(address, message, timeout_s / TRIES)) is not None:
            break
    else:
        raise ControlError(f"rank 0 did not answer within {timeout_s:g} s. The run may have ended: check run.status.")
    answer = unpack(key, reply)
    if "refused" in answer:
        raise (ConfigError if answer.get("setting") else ControlError)(answer["refused"])
    return int(answer["version"])


class RequestLog:
    """Writes requests to change settings into rank 0's records, from any thread; other requests are not recorded.

    Args:
        recorder: recorder of rank 0.
        config: the settings before training begins.

    Attributes:
        trainer: provides settings and position once training has begun.
    """

    def __init__(self, recorder: Recorder, config: RunConfig) -> None:
        self._recorder, self._config = recorder, config
        self.trainer: Trainer | None = None

    def accept(self, request: Request, version: int) -> None:
        """Record an accepted request with its version."""
        if isinstance(request, SetLive):
            self._write(Requested(version, dict(request.changes), request.by, self._old_values(request)))

    def refuse(self, request: Request, reason: str) -> None:
        """Record a refused request with the reason."""
        if isinstance(request, SetLive):
            self._write(Refused(None, dict(request.changes), reason, request.by, self._old_values(request)))

    def _old_values(self, request: SetLive) -> dict[str, Any]:
        from dtdg_lab.training.live_settings import old_values

        config = self._config if self.trainer is None else self.trainer.live_settings.config
        return old_values(config, request.changes)

    def _write(self, event: Event) -> None:
        from dtdg_lab.training.position import Position

        position = Position() if self.trainer is None else self.trainer.position
        self._recorder.row("events", (position.step, position.epoch, time.time_ns(), event.kind, event.write()))


LONGEST = 80


def requester(by: str | None = None) -> str:
    """Return ``by`` if it is given, otherwise ``notebook`` in a kernel, or the name of the program.

    Raises:
        ConfigError: ``by`` is not a short text of one line.
    """
    if by is None:
        return NOTEBOOK if _is_kernel() else _program()
    if not isinstance(by, str) or not 0 < len(by) <= LONGEST or not by.isprintable():
        raise ConfigError(f"by={by!r} is not allowed: give a name of one line, with at most {LONGEST} characters.")
    return by


def _is_kernel() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")


def _program() -> str:
    """Return the file name of the program, or the name of the module that ``python -m`` runs."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return "python" if file is None else Path(file).name[:LONGEST]
