"""The process that serves one rank's features: an event loop without torch, and the pacing of slow links."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import os
import selectors
import signal
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import zmq
import zmq.asyncio
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache import rpc as frames
from dtdg_lab.systems.feature_cache.rpc import USER, opened

# When a reply has passed a slow link, which sends one after another at its rate, each late by a delay.


@dataclass(slots=True, eq=False)
class ReplyOnLink:
    """A reply that is on its way."""

    left_s: float  # when its last byte has been put on the link
    done: asyncio.Future[None]
    timer: asyncio.TimerHandle | None = None


class LinkPace:
    """One link from an owner to a requester, in an event loop; others are not held up by it.

    A reply of b bytes leaves once those before it have left, takes b / rate to leave, and arrives a delay later. Where
    the link changes meanwhile, what has not left goes on at the new rate and with the new delay.
    """

    def __init__(self) -> None:
        self._delay_s, self._bytes_per_s, self._free_s = 0.0, math.inf, 0.0
        self._under_way: set[ReplyOnLink] = set()

    def change(self, delay_s: float, bytes_per_s: float) -> None:
        """What holds from now on: seconds, and bytes a second, infinite where nothing limits them."""
        loop = asyncio.get_running_loop()
        now_s, scale = loop.time(), 0.0
        if math.isfinite(bytes_per_s) and math.isfinite(self._bytes_per_s):
            scale = self._bytes_per_s / bytes_per_s
        self._delay_s, self._bytes_per_s = delay_s, bytes_per_s
        self._free_s = now_s + scale * max(0.0, self._free_s - now_s)
        for reply in self._under_way:
            if reply.left_s > now_s:
                reply.left_s = now_s + scale * (reply.left_s - now_s)
                self._arrive(reply, reply.left_s + delay_s)

    def start(self, nbytes: int) -> ReplyOnLink | None:
        """Put a reply of so many bytes, ready now, on the link; None if nothing slows it."""
        if not self._delay_s and math.isinf(self._bytes_per_s) and not self._under_way:
            return None
        loop = asyncio.get_running_loop()
        self._free_s = max(self._free_s, loop.time()) + nbytes / self._bytes_per_s
        reply = ReplyOnLink(self._free_s, loop.create_future())
        self._under_way.add(reply)
        self._arrive(reply, self._free_s + self._delay_s)
        return reply

    async def finish(self, reply: ReplyOnLink, within_s: float | None = None) -> bool:
        """Wait, at most ``within_s`` seconds, until a reply has arrived, and say whether it has."""
        await asyncio.wait([reply.done], timeout=within_s)
        if not reply.done.done():
            return False
        self._under_way.discard(reply)
        return True

    def _arrive(self, reply: ReplyOnLink, due_s: float) -> None:
        if reply.timer is not None:
            reply.timer.cancel()
        reply.timer = asyncio.get_running_loop().call_at(due_s, _set, reply.done)


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


# One part's features, served to the other parts in an event loop.


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

    async def _answer(self, sender: bytes, request: frames.FeatureRequest) -> None:
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

    async def _pass_link(self, sender: bytes, request: frames.FeatureRequest, nbytes: int) -> None:
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


# The process that serves the features of one rank's parts: an event loop, without torch.
#
# Started by :class:`dtdg_lab.systems.feature_cache.rpc.FeatureServer`, which speaks to it in lines of JSON: what to
# serve
# comes
# first on standard input, then orders, each answered by a line on standard output. It ends when the orders end, which
# they do when the process that gives them ends, however that is.
#
# Why ZeroMQ: it is installed wherever Jupyter is, knows asyncio, sends an array without copying it, and finds out
# itself
# that a peer has gone; ``torch.distributed.rpc`` is in maintenance mode by its own documentation, and would bring
# torch
# into this process. Why a token and not CurveZMQ: encrypting a reply of 16 MB took five times as long as sending it
# (29 ms against 6 ms on loopback), and features travel beside gradients that nobody encrypts. The token is asked for
# where a connection is made (ZeroMQ's PLAIN): nobody without it gets as far as sending a message.


LOOK_S = 0.5  # another child of the giver's may hold the orders' other end open: look for the giver itself so often
MOST_LINE = 1 << 24  # bytes of an order
MOST_HEAD = 1 << 16  # bytes of a message besides its keys


class Serving:
    """The sockets of all parts, and who may connect to them.

    Args:
        given: ``host``, ``token`` in hexadecimal, and ``parts``: of each number its ``rows`` and ``keys``.

    Attributes:
        parts: what serves each.
        addresses: of each.
        refused: connections that did not give the token.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self._context = zmq.asyncio.Context()
        self._token = given["token"].encode()
        self.refused = 0
        self.parts: dict[int, PartServing] = {}
        self.addresses: dict[int, str] = {}
        self._door = self._context.socket(zmq.REP)
        self._door.bind("inproc://zeromq.zap.01")  # where ZeroMQ asks who may connect
        for number, arrays in given["parts"].items():
            rows, keys = opened(arrays["rows"]), opened(arrays["keys"])
            socket = self._context.socket(zmq.ROUTER)
            socket.linger = 0
            socket.plain_server, socket.zap_domain = True, b"features"
            socket.maxmsgsize = MOST_HEAD + 16 * len(keys)  # who announces more is disconnected, and nothing is kept
            port = socket.bind_to_random_port(f"tcp://{given['host']}")
            self.parts[int(number)] = PartServing(rows, keys, socket)
            self.addresses[int(number)] = f"tcp://{given['host']}:{port}"

    async def run(self) -> None:
        """Serve until cancelled."""
        await asyncio.gather(self._keep_door(), *(part.serve() for part in self.parts.values()))

    async def _keep_door(self) -> None:
        """Let in who knows the token. RFC 27: version, request, domain, address, identity, mechanism, name, token."""
        while True:
            asked = await self._door.recv_multipart()
            let_in = len(asked) == 8 and asked[5] == b"PLAIN" and asked[6] == USER
            let_in = let_in and hmac.compare_digest(asked[7], self._token)
            self.refused += not let_in
            status = (b"200", b"OK") if let_in else (b"400", b"no token of this run")
            await self._door.send_multipart([b"1.0", asked[1], *status, b"", b""])

    def close(self) -> None:
        """Leave at once."""
        self._context.destroy(linger=0)


class Orders:
    """What the giver orders, and what it is answered."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def follow(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do one order, ``links`` or ``served``, and tell."""
        if order["do"] == "links":
            for number, row in order["rows"].items():
                for requester, (delay_s, rate) in enumerate(zip(row["delay_s"], row["bytes_per_s"], strict=True)):
                    self._serving.parts[int(number)].set_link(requester, delay_s, rate_of(rate))
            return {"done": True}
        if order["do"] == "served":
            counts = [
                [owner, requester, *served]
                for owner, part in self._serving.parts.items()
                for requester, served in part.served.items()
            ]
            dropped = self._serving.refused + sum(part.dropped for part in self._serving.parts.values())
            return {"served": counts, "dropped": dropped}
        return {"failed": f"unknown order {order['do']!r}"}


def report(answer: dict[str, Any]) -> None:
    """A line to the giver."""
    content = json.dumps(answer).encode() + b"\n"
    while content:
        content = content[os.write(1, content) :]


async def main() -> None:
    """Serve what the first line says until the orders end."""
    giver = os.getppid()
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=MOST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), os.fdopen(0, "rb", 0))
    try:
        serving = Serving(json.loads(await orders.readline()))
    except Exception as error:
        report({"failed": f"{type(error).__name__}: {error}"})
        raise
    work = [loop.create_task(task) for task in (serving.run(), _follow(orders, Orders(serving)), _watch(giver))]
    report({"addresses": serving.addresses})
    done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    for task in work:
        task.cancel()
    serving.close()
    for task in done:
        task.result()  # raises what ended it


async def _follow(orders: asyncio.StreamReader, followed: Orders) -> None:
    while line := await orders.readline():
        try:
            answer = followed.follow(json.loads(line))
        except (KeyError, ValueError, TypeError) as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        report(answer)


async def _watch(giver: int) -> None:
    while os.getppid() == giver:
        await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted giver ends this process itself
    # select takes a time-out in microseconds, where epoll rounds up to milliseconds: delays of 5 ms are to be 5 ms
    with (
        contextlib.suppress(BrokenPipeError),
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner,
    ):
        runner.run(main())
    os._exit(0)  # nothing is left to wait for
