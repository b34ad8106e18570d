"""A module of this package as a child process: start, pipes, end, and its parent's death."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dtdg_lab.core.errors import NotAvailableError

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@contextmanager
def stops_blocked() -> Iterator[None]:
    """Block SIGTERM and SIGUSR1, so that children started here inherit the mask and leave them to this process.

    A signal to a process group would otherwise end children that a run needs for its last step.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class ChildProcess:
    """A child process that reads commands from standard input and replies on standard output; its errors are kept.

    It starts no thread pools, and must exit when its input ends or its parent is gone: see :func:`begin_child`.

    Args:
        module: its full name.
        purpose: its task, for messages.
        advice: the remedy if it cannot be started.
        fds: file descriptors that it inherits.

    Attributes:
        pid: number of the process.
        orders: unbuffered file for commands; :meth:`wait` closes it.
        answers: file descriptor of its replies.

    Raises:
        NotAvailableError: it cannot be started.
    """

    def __init__(self, module: str, *, purpose: str, advice: str, fds: Sequence[int] = ()) -> None:
        try:
            with stops_blocked(), contextlib.ExitStack() as opened:
                self._errors = opened.enter_context(tempfile.TemporaryFile())
                self._child = subprocess.Popen(
                    [sys.executable, "-P", "-m", module, str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    bufsize=0,
                    env={**environment(), **_ONE_THREAD},
                    pass_fds=tuple(fds),
                )
                opened.pop_all()  # release closes it
        except OSError as error:
            raise NotAvailableError(f"the process that {purpose} could not be started: {error}. {advice}") from error
        assert self._child.stdin and self._child.stdout
        self._output, self.pid = self._child.stdout, self._child.pid
        self.orders, self.answers = self._child.stdin, self._output.fileno()

    @property
    def is_alive(self) -> bool:
        """True while it runs; takes microseconds."""
        return self._child.poll() is None

    def ended(self, cause: str = "") -> str:
        """Describe its end with its last output: ``exited with status ...`` or ``was ended by SIGKILL ...``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1.0)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        output = f" Its last output: {lines[-1][:300]}" if lines else ""
        return f"{end_of(self._child.returncode)}{cause}.{output}"

    def kill(self) -> None:
        """Kill the process."""
        self._child.kill()

    def wait(self, grace_s: float | None = None) -> None:
        """Close its input and wait for its exit; kill it after ``grace_s`` seconds."""
        with contextlib.suppress(BrokenPipeError):
            self.orders.close()
        try:
            self._child.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def release(self) -> None:
        """Close its pipes, once no thread reads them."""
        self._output.close()
        self._errors.close()


def environment() -> dict[str, str]:
    """Return this process's environment, with a child's import path; see :func:`import_environment`."""
    return {**os.environ, **import_environment()}


def import_environment() -> dict[str, str]:
    """Return the variables of a child's import path: this package, without the working folder.

    A user's ``random.py`` or ``queue.py`` beside a notebook would otherwise replace the standard library's module in
    the child and in the processes that it starts.
    """
    root = str(Path(__file__).resolve().parents[2])
    folders = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders)), "PYTHONSAFEPATH": "1"}  # an empty one is the folder


def end_of(status: int | None) -> str:
    """Describe the end of a process: the name of the signal, or its status; for SIGKILL, whether memory was short."""
    if status is None or status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = f"signal {-status}"
    if status != -signal.SIGKILL:
        return f"was ended by {name}"
    import psutil

    memory = psutil.virtual_memory()
    free = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB of memory are free now"
    kills = Path("/sys/fs/cgroup/memory.events")  # of this container, where it has a limit of its own
    killed = kills.is_file() and "\noom_kill 0\n" not in kills.read_text()
    lacking = killed or memory.percent > 95
    short = "the system may have ended it for lack of memory" if lacking else "no lack of it is known"
    return f"was ended by {name} ({free}: {short})"


def is_running(pid: int, started_s: float) -> bool:
    """Return True if a process of this machine is alive: no zombie, and no newer process with its number."""
    import psutil

    try:
        process = psutil.Process(pid)
        return bool(abs(process.create_time() - started_s) <= 1.0 and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def begin_child() -> Callable[[], bool]:
    """Leave interrupts to the parent, and return a function that tells whether the parent is alive.

    The end of the input alone is no sign of its death: another child may hold the pipe open.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = int(sys.argv[1]) if len(sys.argv) > 1 else os.getppid()
    return lambda: os.getppid() == parent
