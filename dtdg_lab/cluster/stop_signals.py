"""Signals that ask a process to exit (SIGTERM, SIGUSR1; Ctrl-C to a command), handled while it trains."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGUSR1)
OVERDUE_S = 8.5  # the process exits after this time even if the run has not ended, to be gone within 10 s
RETRY_S = 0.1  # interval of retries until the run accepts a request to stop
_CLOSE = b"\0"  # no signal has this number


class StopSignals:
    """Turns the first such signal into a request to stop the run, until the end of the block.

    A thread is notified at once, even if the main thread computes or waits for other ranks for seconds; Python's own
    handlers would run only afterwards. At the end of the block the former handlers are restored, and get the signal.

    It does nothing outside the main thread, where Python accepts no handlers. Ignored signals stay ignored.

    Args:
        on_overdue: called in the thread with the signal's name if the block has not ended ``OVERDUE_S`` seconds after
            the signal; then the process exits.
        leaves: True to exit in that case even if the process's own handler would not end it.
        deliver: True to deliver the signal to the former handlers; otherwise the caller is a command that must exit,
            and SIGINT (Ctrl-C) is handled too.

    Attributes:
        received: the first signal, if any.
        request: asks the run to stop, given the signal's name; a LabError means that it must be asked again.
    """

    def __init__(self, on_overdue: Callable[[str], object], *, leaves: bool = False, deliver: bool = True) -> None:
        self._on_overdue, self._leaves, self._deliver = on_overdue, leaves or not deliver, deliver
        self.received: signal.Signals | None = None
        self.request: Callable[[str], object] | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._wakeup_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in STOPPING if self._deliver else (*STOPPING, signal.SIGINT):
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):  # None is a handler that Python could not restore
                self._handlers[number] = signal.signal(number, _hear)
        self._thread = threading.Thread(target=self._watch, name="stop-signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        for number, handler in self._handlers.items():  # first, so that no signal is lost
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_fd)
        self._writer.setblocking(True)
        self._writer.send(_CLOSE)
        self._thread.join()
        self._reader.close()
        self._writer.close()
        if self.received is not None and self._deliver:
            signal.raise_signal(self.received)

    def _watch(self) -> None:
        requested, overdue_s = False, float("inf")
        while True:
            self._reader.settimeout(None if self.received is None else RETRY_S)
            try:
                heard = self._reader.recv(256)
            except TimeoutError:
                heard = b""
            for number in heard:
                if number == _CLOSE[0]:
                    return
                if number in self._handlers and self.received is None:
                    self.received, overdue_s = signal.Signals(number), time.monotonic() + OVERDUE_S
            if self.received is None:
                continue
            requested = requested or self._ask(self.received.name)
            if time.monotonic() >= overdue_s and (self._leaves or self._handlers[self.received] is signal.SIG_DFL):
                try:
                    self._on_overdue(self.received.name)
                finally:
                    os._exit(128 + self.received)  # the main thread is stuck, and no exception reaches it

    def _ask(self, name: str) -> bool:
        if self.request is None:
            return False
        try:
            self.request(name)
        except Exception:  # not ready, about to end, or short of descriptors: try again
            return False
        return True


def _hear(number: int, frame: FrameType | None) -> None:
    """Do nothing: the thread reads the signal's number from the wakeup descriptor."""
