"""The process that serves the features of one rank's parts: an event loop, without torch.

Started by :class:`dtdg_lab.comm.feature_server.FeatureServer`, which speaks to it in lines of JSON: what to serve comes
first on standard input, then orders, each answered by a line on standard output. It ends when the orders end, which
they do when the process that gives them ends, however that is.

Why ZeroMQ: it is installed wherever Jupyter is, knows asyncio, sends an array without copying it, and finds out itself
that a peer has gone; ``torch.distributed.rpc`` is in maintenance mode by its own documentation, and would bring torch
into this process. Why a token and not CurveZMQ: encrypting a reply of 16 MB took five times as long as sending it
(29 ms against 6 ms on loopback), and features travel beside gradients that nobody encrypts. The token is asked for
where a connection is made (ZeroMQ's PLAIN): nobody without it gets as far as sending a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import selectors
import signal
from typing import Any

import zmq
import zmq.asyncio

from dtdg_lab.comm.feature_frames import USER
from dtdg_lab.comm.feature_maps import opened
from dtdg_lab.comm.feature_serving import PartServing, rate_of

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
                for owner, part in self._serving.parts.items() for requester, served in part.served.items()
            ]  # fmt: skip
            dropped = self._serving.refused + sum(part.dropped for part in self._serving.parts.values())
            return {"served": counts, "dropped": dropped}
        return {"failed": f"unknown order {order['do']!r}"}


def tell(answer: dict[str, Any]) -> None:
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
        tell({"failed": f"{type(error).__name__}: {error}"})
        raise
    work = [loop.create_task(task) for task in (serving.run(), _follow(orders, Orders(serving)), _watch(giver))]
    tell({"addresses": serving.addresses})
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
        tell(answer)


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
