"""A process that builds the batches of one part, of all sizes, and the thread that puts them into the reservoir."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import select
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from dtdg_lab.core.errors import NotAvailableError, RunFailedError
from dtdg_lab.parallel.generator_frames import built_from, receive, send
from dtdg_lab.parallel.generator_source import Source
from dtdg_lab.parallel.generator_thread import IDLE_S

PIPE_BYTES = 1 << 20  # what unprivileged processes may ask for: fewer waits for each other
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class GeneratorProcess:
    """One child process with a generator for each size: what holds the interpreter there stops nobody here.

    Of each action that the reservoir wants, one batch is ordered at a time, so that no more is built than it takes.

    Args:
        source: of the batches.

    Attributes:
        failure: what ended it, None while nothing has.
        made: batches of each action that the reservoir took so far.
        busy_s: processor seconds for each action so far.

    Raises:
        NotAvailableError: the process cannot be started.
    """

    def __init__(self, source: Source) -> None:
        actions = len(source.maker.sizes)
        self.failure: Exception | None = None
        self.made, self.busy_s = [0] * actions, [0.0] * actions
        self._source = source
        self._ordered: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"generators of part {source.maker.part}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (join closes it)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "dtdg_lab.parallel.generator_child", str(os.getpid())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=0, env=_environment(),
            )  # fmt: skip
        except OSError as error:
            self._said.close()
            raise NotAvailableError(
                f"the process that builds batches could not be started: {error}. Set generators='threads'."
            ) from error
        assert self._child.stdin and self._child.stdout
        self._orders, self._answers = self._child.stdin.fileno(), self._child.stdout.fileno()
        with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux pipes have the size they have
            fcntl.fcntl(self._answers, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._thread.start()

    def stop(self) -> None:
        """End the process, whatever it is doing: it leaves nothing behind."""
        self._stop.set()
        if self._thread.ident is not None:
            self._child.kill()

    def join(self) -> None:
        """Wait for the end."""
        if self._thread.ident is None:
            return
        self._thread.join()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._said):
            assert pipe
            pipe.close()

    def _run(self) -> None:
        try:
            send(self._orders, {}, pickle.dumps(self._source.maker))
            while not self._stop.is_set():
                self._order()
                if select.select([self._answers], [], [], IDLE_S)[0]:
                    self._take()
        except (EOFError, BrokenPipeError) as error:
            if not self._stop.is_set():
                self.failure = self._ended(error)
        except Exception as error:  # told by Generators.check, on the thread that trains
            self.failure = error

    def _order(self) -> None:
        """Order a batch of each action that is wanted and not under way."""
        for action, index in enumerate(self.made):
            if action not in self._ordered and self._source.reservoir.wants(action):
                self._ordered.add(action)
                send(self._orders, {"action": action, "index": index})

    def _take(self) -> None:
        """Put the batch that has come into the reservoir."""
        head, content = receive(self._answers)
        if "failed" in head:
            raise RunFailedError(head["failed"])
        built = built_from(head, content)
        action, index = built.batch.action, built.batch.index
        self.busy_s[action] = head["busy_s"]
        self._ordered.remove(action)
        self.made[action] += self._source.reservoir.put(action, index, built, built.nbytes, built.batch.content)

    def _ended(self, error: Exception) -> RunFailedError:
        """Why the process ended although nobody asked for it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1.0)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        said = f" It said: {lines[-1][:300]}" if lines else ""
        why = " The system does this where memory runs out." if self._child.returncode == -9 else ""
        return RunFailedError(f"its process ended with status {self._child.returncode} ({error}).{why}{said}")


def _environment() -> dict[str, str]:
    """This process's environment, with this very package where the child looks for it, and no thread pools."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **_ONE_THREAD, "PYTHONPATH": path}
