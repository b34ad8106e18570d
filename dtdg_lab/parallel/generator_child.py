"""The process that builds batches for another one: what to make batches from comes first, then one order a batch.

It needs no torch. It ends when the orders end, which they do when the process that gives them ends, however that is.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
import time

from dtdg_lab.parallel.cached_part import CachedPart
from dtdg_lab.parallel.generator_frames import receive, send, send_built
from dtdg_lab.parallel.generator_source import BatchMaker
from dtdg_lab.parallel.low_priority import give_way

ORDERS, ANSWERS = 0, 1  # standard input and output
LOOK_S = 1.0  # a child of the giver's may hold the orders' other end open: look for the giver itself so often


class Builder:
    """The thread that builds what is ordered, of all sizes in turn: next is the one that had least time so far.

    Args:
        maker: what the batches are made from.
        part: opened.
    """

    def __init__(self, maker: BatchMaker, part: CachedPart) -> None:
        self._maker, self._part = maker, part
        self._orders: dict[int, int] = {}
        self._changed = threading.Condition()
        self._busy_s = [0.0] * len(maker.sizes)
        threading.Thread(target=self._run, name="generators", daemon=True).start()

    def order(self, action: int, index: int) -> None:
        """Build this batch, the only one of its action that is waited for."""
        with self._changed:
            self._orders[action] = index
            self._changed.notify()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: bool(self._orders))
                    action = min(self._orders, key=self._busy_s.__getitem__)
                    index = self._orders.pop(action)
                begin_s = time.thread_time()
                built = self._maker.make(self._part, action, index)
                self._busy_s[action] += time.thread_time() - begin_s
                send_built(ANSWERS, built, self._busy_s[action])
        except BrokenPipeError:  # nobody reads any more
            os._exit(0)
        except Exception as error:
            with contextlib.suppress(OSError):
                tell(error)
            os._exit(1)


def tell(error: Exception) -> None:
    """Send what went wrong."""
    send(ANSWERS, {"failed": f"{type(error).__name__}: {error}"})


def serve(giver: int) -> None:
    """Build what is ordered until nobody orders any more.

    Args:
        giver: number of the process that orders.
    """
    try:
        maker: BatchMaker = pickle.loads(receive(ORDERS)[1])
        builder = Builder(maker, maker.opened())
    except EOFError:
        return
    except Exception as error:
        tell(error)
        raise
    while os.getppid() == giver:
        if select.select([ORDERS], [], [], LOOK_S)[0]:
            try:
                order = receive(ORDERS)[0]
            except EOFError:
                return
            builder.order(order["action"], order["index"])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted giver ends its generators itself
    give_way()
    serve(int(sys.argv[1]))
    os._exit(0)  # not waiting for batches that nobody wants
