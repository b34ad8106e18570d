"""One part's features, served to the other parts in an event loop."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.comm import feature_frames as frames
from dtdg_lab.comm.feature_pace import LinkPace

GATHER_BYTES = 2 << 20  # of rows that are copied before other requests have their turn
MOST_REQUESTER = 1 << 16
LEAST_BEAT_S = 0.02
BEATS = 3  # signs of life that a slow reply gives within the time that its asker waits


class PartServing:
    """Answers requests for one part's rows, each in a task of its own.

    Args:
        rows: (K, F) float32.
        keys: (K,) int64 of the rows, ascending.
        socket: a ROUTER of ``zmq.asyncio`` that is bound.

    Attributes:
        served: of each part that asked, the number of its requests answered with rows, and their bytes.
        dropped: messages that were no requests.
    """

    def __init__(self, rows: NDArray[np.float32], keys: NDArray[np.int64], socket: Any) -> None:
        self._rows, self._keys, self._socket = rows, keys, socket
        self._links: defaultdict[int, LinkPace] = defaultdict(LinkPace)
        self._tasks: set[asyncio.Task[None]] = set()
        self.served: dict[int, tuple[int, int]] = {}
        self.dropped = 0

    def set_link(self, requester: int, delay_s: float, bytes_per_s: float) -> None:
        """What replies to this part meet from now on."""
        self._links[requester].change(delay_s, bytes_per_s)

    async def serve(self) -> None:
        """Answer until cancelled."""
        while True:
            sender, *content = await self._socket.recv_multipart(copy=False)
            request = frames.read_request([frame.buffer for frame in content])
            if request is None or request.requester >= MOST_REQUESTER:
                self.dropped += 1
                continue
            task = asyncio.get_running_loop().create_task(self._answer(sender.bytes, request))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # what one request meets must not end the others, nor stay unsaid
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request could not be answered", "exception": task.exception(), "task": task}
            )

    async def _answer(self, sender: bytes, request: frames.Request) -> None:
        places = self._places(request.keys)
        if isinstance(places, str):
            await self._socket.send_multipart([sender, *frames.refusal_frames(request.number, places)])
            return
        rows = await self._gathered(places)
        nbytes = frames.rows_nbytes(*rows.shape)
        await self._pass_link(sender, request, nbytes)
        count, total = self.served.get(request.requester, (0, 0))
        # counted before it is sent: who has the rows finds them counted
        self.served[request.requester] = count + 1, total + request.nbytes + nbytes
        await self._socket.send_multipart([sender, *frames.rows_frames(request.number, rows)], copy=False)

    def _places(self, keys: NDArray[np.int64]) -> NDArray[np.int64] | str:
        """Where the keys' rows are (k,), or why there are none."""
        if not len(keys):
            return "it was asked for 0 rows: ask only who has something."
        if len(keys) > len(self._keys):
            return f"it was asked for {len(keys):,} rows and has {len(self._keys):,}: ask for each once."
        places = np.searchsorted(self._keys, keys)
        np.minimum(places, len(self._keys) - 1, out=places)
        unknown = np.flatnonzero(self._keys[places] != keys)
        if len(unknown):
            first = ", ".join(map(str, keys[unknown[:3]].tolist()))
            return (
                f"it has no row of {len(unknown):,} key(s) of {len(keys):,}, the first of them {first}. Keys, and who "
                "owns them, must be the same on all ranks."
            )
        return places

    async def _gathered(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows (k, F), a piece at a time."""
        width = self._rows.shape[1]
        rows = np.empty((len(places), width), dtype=np.float32)
        piece = max(1, GATHER_BYTES // (4 * width))
        for begin in range(0, len(places), piece):
            end = begin + piece
            # places are known to be there; any other mode than "raise" writes to ``out`` directly
            np.take(self._rows, places[begin:end], axis=0, out=rows[begin:end], mode="clip")
            if end < len(places):
                await asyncio.sleep(0)
        return rows

    async def _pass_link(self, sender: bytes, request: frames.Request, nbytes: int) -> None:
        """Wait as long as the link takes, and let who waits know that the rows are coming."""
        link = self._links[request.requester]
        reply = link.start(nbytes)
        if reply is None:
            return
        within_s = max(LEAST_BEAT_S, request.timeout_s / BEATS)
        while not await link.finish(reply, within_s=within_s):
            await self._socket.send_multipart([sender, *frames.coming_frames(request.number)])


def rate_of(given: float | None) -> float:
    """Bytes a second, as told in JSON, which knows no infinity."""
    return math.inf if given is None else float(given)
