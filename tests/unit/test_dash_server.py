"""The served dashboard opens with its token only: pages, WebSockets, other accounts and other origins."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest
from bokeh.util.token import generate_jwt_token, generate_session_id
from pretend_session import PretendSession
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.dashboard.server import DashboardServer, serve

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DashboardServer]:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    made = serve(PretendSession(2))
    yield made
    made.stop()


def open_page(address: str, cookies: CookieJar | None = None) -> tuple[int, str]:
    """Status and text of a page."""
    opener = build_opener(HTTPCookieProcessor(CookieJar() if cookies is None else cookies))
    try:
        with opener.open(Request(address), timeout=30) as page:
            return page.status, page.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def connect(address: str, cookie: str = "", origin: str = "") -> int:
    """The status of a WebSocket's handshake; 101 is one that was accepted."""
    headers = {"Origin": origin or address, "Sec-WebSocket-Protocol": "bokeh, " + generate_jwt_token(
        generate_session_id(), signed=False)}  # fmt: skip
    if cookie:
        headers["Cookie"] = cookie

    async def tried() -> int:
        try:
            socket = await websocket_connect(HTTPRequest(address.replace("http", "ws") + "ws", headers=headers))
        except HTTPClientError as error:
            return error.code
        socket.close()
        return 101

    return asyncio.run(tried())


def test_a_page_opens_with_the_token_and_later_with_its_cookie(server: DashboardServer) -> None:
    plain, token = server.url.split("?token=")
    for address in (plain, f"{plain}?token={token[:-1]}", f"{plain}?token="):
        status, text = open_page(address)
        assert status == 403 and "token needed" in text and token not in text
    cookies = CookieJar()
    status, text = open_page(server.url, cookies)
    assert status == 200 and "token needed" not in text
    assert open_page(plain, cookies)[0] == 200
    (cookie,) = cookies
    assert cookie.has_nonstandard_attr("HttpOnly") and token not in (cookie.value or "")


def test_a_websocket_needs_the_cookie_and_the_origin(server: DashboardServer) -> None:
    plain = server.url.split("?")[0]
    cookies = CookieJar()
    open_page(server.url, cookies)
    (cookie,) = cookies
    kept = f"{cookie.name}={cookie.value}"
    assert connect(plain, kept) == 101
    assert connect(plain) == 403
    assert connect(plain, f"{cookie.name}={'0' * 64}") == 403
    assert connect(plain, kept, origin="http://example.org") == 403


def test_the_address_is_in_a_file_of_the_owner_until_the_server_ends(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path))
    server = serve(PretendSession(2))
    file = server.token_file
    assert file is not None and file.read_text().strip() == server.url
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with pytest.raises(ConfigError, match="cannot be opened"):
        serve(PretendSession(2), port=int(file.stem))
    server.stop()
    assert not file.exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may act as another account")
def test_another_account_is_not_let_in(server: DashboardServer) -> None:
    program = (
        "import os, socket, sys\n"
        "connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: open(sys.argv[2]); print('read')\n"
        "except PermissionError: print('unreadable')\n"
        "connection.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
        "answer = connection.recv(65536).decode()\n"
        "print(answer.split()[1], '/login' in answer)\n"
    )
    assert server.token_file is not None
    command = [sys.executable, "-c", program, server.token_file.stem, str(server.token_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["unreadable", "302", "True"]


def test_a_token_of_ones_own_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"5 characters were given\. Allowed: at least 16"):
        serve(PretendSession(2), token="short")
    own = serve(PretendSession(2), token="a token with spaces & more")
    assert open_page(own.url)[0] == 200
    own.stop()
    with pytest.warns(UserWarning, match="everybody who reaches 127.0.0.1 can steer"):
        none = serve(PretendSession(2), token="")
    assert "token" not in none.url and none.token_file is None and open_page(none.url)[0] == 200
    none.stop()
