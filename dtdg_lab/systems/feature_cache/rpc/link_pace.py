"""Emulation of a slow link, which sends replies one after another at its rate, each with a delay."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class ReplyOnLink:
    """A reply in transit."""

    left_s: float  # time at which its last byte is on the link
    done: asyncio.Future[None]
    timer: asyncio.TimerHandle | None = None


class LinkPace:
    """One link from an owner to a requester, in an event loop; it does not block others.

    A reply of b bytes leaves after those before it, takes b / rate to leave, and arrives after the delay. If the link
    changes meanwhile, the bytes that have not left continue at the new rate and with the new delay.
    """

    def __init__(self) -> None:
        self._delay_s, self._bytes_per_s, self._free_s = 0.0, math.inf, 0.0
        self._in_transit: set[ReplyOnLink] = set()

    def change(self, delay_s: float, bytes_per_s: float) -> None:
        """Set the delay in seconds, and the rate in bytes per second, infinite for no limit."""
        loop = asyncio.get_running_loop()
        now_s, scale = loop.time(), 0.0
        if math.isfinite(bytes_per_s) and math.isfinite(self._bytes_per_s):
            scale = self._bytes_per_s / bytes_per_s
        self._delay_s, self._bytes_per_s = delay_s, bytes_per_s
        self._free_s = now_s + scale * max(0.0, self._free_s - now_s)
        for reply in self._in_transit:
            if reply.left_s > now_s:
                reply.left_s = now_s + scale * (reply.left_s - now_s)
                self._arrive(reply, reply.left_s + delay_s)

    def start(self, nbytes: int) -> ReplyOnLink | None:
        """Put a reply that is ready now on the link; None if the link does not slow it down."""
        if not self._delay_s and math.isinf(self._bytes_per_s) and not self._in_transit:
            return None
        loop = asyncio.get_running_loop()
        self._free_s = max(self._free_s, loop.time()) + nbytes / self._bytes_per_s
        reply = ReplyOnLink(self._free_s, loop.create_future())
        self._in_transit.add(reply)
        self._arrive(reply, self._free_s + self._delay_s)
        return reply

    async def finish(self, reply: ReplyOnLink, within_s: float | None = None) -> bool:
        """Wait, at most ``within_s`` seconds, until a reply has arrived; return whether it has."""
        await asyncio.wait([reply.done], timeout=within_s)
        if not reply.done.done():
            return False
        self._in_transit.discard(reply)
        return True

    def _arrive(self, reply: ReplyOnLink, due_s: float) -> None:
        if reply.timer is not None:
            reply.timer.cancel()
        reply.timer = asyncio.get_running_loop().call_at(due_s, _set, reply.done)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
