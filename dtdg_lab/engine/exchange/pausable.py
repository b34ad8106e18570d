"""Functions that pause at an exchange and resume later, so that several snapshots compute in turn.

A model is ordinary PyTorch: its ``spatial`` calls ``graph.gcn(x)``, and gets the rows of neighbours. Other snapshots
may compute while these rows are in flight. Each function then runs in a greenlet of the same thread. Threads would not
do: autograd numbers its nodes by thread, and backward must run the exchanges in the reverse of an order that all ranks
share. Outside a greenlet, :func:`pause` does nothing.

Without greenlets one could only start the first exchange of each function early. That hides as much where a layer
pulls once. With two pulls (MPNN-LSTM on two ranks, window of 6), 24 delays follow one another instead of 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import greenlet
import torch
from torch import Tensor


class PausableFunction:
    """A function that can pause, and its progress.

    Args:
        function: returns rows, (n, C).
        workers: pool of free greenlets; making one takes longer than a function's switches.

    Attributes:
        result: the function's return value; None until it is done.
    """

    def __init__(self, function: Callable[[], Tensor], workers: list[Worker]) -> None:
        self.result: Tensor | None = None
        self._function, self._workers = function, workers
        self._worker: Worker | None = None
        self._error: BaseException | None = None
        self._is_done = False

    def resume(self) -> Any:
        """Run until the next pause and return its exchange; None at the end of the function.

        Raises:
            BaseException: any exception of the function.
        """
        if self._worker is None:
            self._worker = self._workers.pop() if self._workers else Worker()
            self._worker.start(self)
        worker = self._worker
        worker.parent = greenlet.getcurrent()
        flight = worker.switch()
        if not self._is_done:
            return flight
        self._free()
        if self._error is not None:
            raise self._error
        return None

    def abandon(self) -> None:
        """End a paused function after another one failed."""
        if self._worker is not None:
            self._worker.parent = greenlet.getcurrent()
            self._worker.throw(greenlet.GreenletExit)
            self._free()

    def run(self) -> None:
        """Call the function, in its greenlet."""
        try:
            self.result = self._function()
        except BaseException as error:
            self._error = error  # raised where the function is resumed
        self._is_done = True

    def _free(self) -> None:
        assert self._worker is not None
        self._worker.function = None
        self._workers.append(self._worker)
        self._worker = None


class Worker(greenlet.greenlet):
    """A greenlet that runs one function after the other.

    Attributes:
        function: the function that it runs; None if it is free.
        modes: torch's modes at the start of the function.
    """

    def __init__(self) -> None:
        super().__init__(self._work)
        self.function: PausableFunction | None = None
        self.modes: tuple[Any, ...] = ()
        self.switch()  # to where it waits for its first function

    def start(self, function: PausableFunction) -> None:
        """Assign a function, which starts at the next switch."""
        self.function, self.modes = function, _modes()

    def _work(self) -> None:
        while True:
            self.parent.switch()
            if self.function is not None:
                self.function.run()


def pause(flight: object) -> None:
    """Pause the current function so that others may compute; its ``resume`` returns ``flight``.

    It does nothing outside a pausable function. It also does nothing if the function has switched one of torch's
    modes, such as ``torch.no_grad()``, since others would then compute under it.
    """
    worker = greenlet.getcurrent()
    if isinstance(worker, Worker) and worker.modes == _modes():
        worker.parent.switch(flight)


def _modes() -> tuple[Any, ...]:
    """Return torch's thread-local modes."""
    internals: Any = torch._C
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        internals._is_any_autocast_enabled(),
        internals._len_torch_function_stack(),
        internals._len_torch_dispatch_stack(),
        internals._autograd._saved_tensors_hooks_is_enabled(),
        torch.cuda.current_stream().stream_id if torch.cuda.is_initialized() else 0,
    )
