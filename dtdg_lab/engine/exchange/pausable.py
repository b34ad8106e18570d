"""Functions that are left where an exchange begins, and taken up again: several snapshots compute in turn.

A model is ordinary PyTorch: its ``spatial`` calls ``graph.gcn(x)``, and gets the rows of neighbours. While these
travel, other snapshots may compute. Each function then runs in a greenlet, in the same thread: autograd numbers its
nodes by thread, and backward must run the exchanges in the reverse of one order that all ranks share, which several
threads would break. Everywhere else a model's function is simply called, and :func:`pause` does nothing.

Only starting the first exchange of all functions early would need no greenlets, and hides as much where a layer pulls
once. With two pulls (MPNN-LSTM on two ranks, window of 6) 24 delays follow one another instead of 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import greenlet
import torch
from torch import Tensor


class PausableFunction:
    """A function of a model, as far as it has come.

    Args:
        function: returns rows, (n, C).
        workers: greenlets that are free; they are used again, since making one takes longer than a function's switches.

    Attributes:
        result: what the function returned, once it is done.
    """

    def __init__(self, function: Callable[[], Tensor], workers: list[Worker]) -> None:
        self.result: Tensor | None = None
        self._function, self._workers = function, workers
        self._worker: Worker | None = None
        self._error: BaseException | None = None
        self._is_done = False

    def resume(self) -> Any:
        """Continue until the next exchange, which is returned, or to the end, which returns None.

        Raises:
            BaseException: what the function raises.
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
        """End a function that was left in the middle, since another one failed."""
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
        self._worker.turns = None
        self._workers.append(self._worker)
        self._worker = None


class Worker(greenlet.greenlet):
    """A greenlet that runs one function after the other.

    Attributes:
        turns: of the function that it runs.
        modes: torch's modes when the function began.
    """

    def __init__(self) -> None:
        super().__init__(self._work)
        self.turns: PausableFunction | None = None
        self.modes: tuple[Any, ...] = ()
        self.switch()  # to where it waits for its first function

    def start(self, turns: PausableFunction) -> None:
        """Take a function, which begins at the next switch."""
        self.turns, self.modes = turns, _modes()

    def _work(self) -> None:
        while True:
            self.parent.switch()
            if self.turns is not None:
                self.turns.run()


def pause(flight: object) -> None:
    """Let other functions compute until it is this one's turn again; ``flight`` is returned by its ``resume``.

    Does nothing where a function runs alone, or has switched one of torch's modes, such as ``torch.no_grad()``: others
    would compute under it. The exchange is then waited for in place.
    """
    worker = greenlet.getcurrent()
    if isinstance(worker, Worker) and worker.modes == _modes():
        worker.parent.switch(flight)


def _modes() -> tuple[Any, ...]:
    """Return what torch keeps for each thread."""
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
