"""A reverse proxy as nginx is set up: another host, a path of its own in front, WebSockets passed on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketClosedError, WebSocketHandler, websocket_connect

PER_CONNECTION = ("Host", "Connection", "Upgrade", "Content-Length", "Transfer-Encoding", "Content-Encoding")


class PassedOn(WebSocketHandler):
    """Passes on a request or a WebSocket; the server behind it sees another Host and path."""

    def initialize(self, target: Callable[[], str], strip: str) -> None:
        self._target, self._strip = target, strip
        self._behind: Any = None

    def _url(self) -> str:
        return self._target() + (self.request.uri or "").removeprefix(self._strip)

    def _passed_headers(self) -> dict[str, str]:
        unwanted = (*PER_CONNECTION, "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions")
        return {name: value for name, value in self.request.headers.get_all() if name not in unwanted}

    async def get(self, *args: Any, **kwargs: Any) -> None:
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            request = HTTPRequest(
                self._url(), headers=self._passed_headers(), follow_redirects=False, decompress_response=True
            )
            answer = await AsyncHTTPClient().fetch(request, raise_error=False)
            self.set_status(answer.code)
            for name, value in answer.headers.get_all():
                if name not in PER_CONNECTION:
                    self.add_header(name, value)
            await self.finish(answer.body)
            return
        headers = self._passed_headers()
        self._protocols = [each.strip() for each in headers.pop("Sec-Websocket-Protocol", "").split(",")]
        try:
            self._behind = await websocket_connect(
                HTTPRequest(self._url().replace("http", "ws", 1), headers=headers),
                on_message_callback=self._answer,
                subprotocols=self._protocols,
                max_message_size=2**28,
            )
        except Exception as error:
            self.set_status(getattr(error, "code", 502))
            await self.finish()
            return
        await super().get(*args, **kwargs)

    def check_origin(self, origin: str) -> bool:
        return True  # the server behind decides

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return self._behind.selected_subprotocol

    async def on_message(self, message: str | bytes) -> None:
        await self._behind.write_message(message, binary=isinstance(message, bytes))

    def on_close(self) -> None:
        if self._behind is not None:
            self._behind.close()

    def _answer(self, message: str | bytes | None) -> None:
        if message is None:
            self.close()
            return
        try:
            self.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            self._behind.close()


@contextmanager
def reverse_proxy(target: Callable[[], str], *, strip: str = "") -> Iterator[int]:
    """Pass on to a server from another port, which is yielded.

    Args:
        target: returns the server's address, such as ``http://127.0.0.1:5006``; called with each request, so that the
            server may be started after the proxy.
        strip: beginning of paths that the server behind does not see.
    """
    ready, loop = threading.Event(), asyncio.new_event_loop()
    (opened,) = bind_sockets(0, "127.0.0.1")
    port: int = opened.getsockname()[1]

    def run() -> None:
        asyncio.set_event_loop(loop)

        async def start() -> HTTPServer:
            server = HTTPServer(Application([(r".*", PassedOn, {"target": target, "strip": strip})]))
            server.add_socket(opened)
            return server

        server = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        server.stop()
        loop.run_until_complete(server.close_all_connections())
        loop.close()

    thread = threading.Thread(target=run, name="proxy", daemon=True)
    thread.start()
    assert ready.wait(10)
    yield port
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
