"""The served dashboard opens with its token only: pages, WebSockets, other accounts and other origins."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
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
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from dtdg_lab.cli import main
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.dashboard.server import DashboardServer, Endpoint, serve
from tests.pretend_session import PretendSession
from tests.proxy import reverse_proxy


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
        with error:
            return error.code, error.read().decode()


def connect(address: str, cookie: str = "", origin: str = "") -> int:
    """The status of a WebSocket's handshake; 101 is one that was accepted."""
    headers = {
        "Origin": origin or address,
        "Sec-WebSocket-Protocol": "bokeh, " + generate_jwt_token(generate_session_id(), signed=False),
    }
    if cookie:
        headers["Cookie"] = cookie

    async def tried() -> int:
        try:
            socket = await websocket_connect(HTTPRequest(address.replace("http", "ws") + "ws", headers=headers))
        except HTTPClientError as error:
            await asyncio.sleep(0.05)  # tornado closes the connection in a callback
            return error.code
        socket.close()
        while await socket.read_message() is not None:  # until the other side has closed, too
            pass
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
    with pytest.raises(ConfigError, match=r"has 5 characters, but at least 16"):
        serve(PretendSession(2), token="short")
    own = serve(PretendSession(2), token="a token with spaces & more")
    assert open_page(own.url)[0] == 200
    own.stop()
    with pytest.warns(UserWarning, match="everyone who can reach 127.0.0.1 can control"):
        none = serve(PretendSession(2), token="")
    assert "token" not in none.url and none.token_file is None and open_page(none.url)[0] == 200
    none.stop()


def opened_through(outside: str, inside: str, **settings: object) -> tuple[int, int]:
    """Status of a page and of its WebSocket, opened through a proxy."""
    server = serve(PretendSession(2), **settings)  # type: ignore[arg-type]
    try:
        path, _, token = server.url.partition("?")
        root = path.removesuffix("/").removesuffix(inside)
        with reverse_proxy(lambda: root + inside, strip=outside) as port:
            page, cookies = f"http://127.0.0.1:{port}{outside}/", CookieJar()
            status, _ = open_page(f"{page}?{token}", cookies)
            (cookie,) = cookies
            origin = "https://lab.example.org"
            return status, connect(page, f"{cookie.name}={cookie.value}", origin=origin)
    finally:
        server.stop()


@pytest.mark.parametrize("prefix", ["", "user/ada/lab"])
def test_a_proxy_under_another_name_needs_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, prefix: str
) -> None:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path))
    inside = f"/{prefix}" if prefix else ""
    with caplog.at_level(logging.WARNING):
        assert opened_through("/outside", inside, prefix=prefix) == (200, 403)
    (text,) = [record.getMessage() for record in caplog.records if "refused a page" in record.getMessage()]
    assert "'https://lab.example.org'" in text and "--allow-origin lab.example.org`" in text
    assert "allow-websocket-origin" not in caplog.text
    allowed = ["other.example.org:8443", "https://LAB.example.org/"]
    assert opened_through("/outside", inside, prefix=prefix, allow_origin=allowed) == (200, 101)
    assert opened_through(inside, inside, prefix=f"/{prefix}/", allow_origin="lab.example.org:443") == (200, 101)
    assert opened_through("", inside, prefix=prefix, allow_origin=["example.org", "a.lab.example.org"]) == (200, 403)


def test_without_a_token_the_origin_counts_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path))
    with pytest.warns(UserWarning, match="everyone who can reach"):
        server = serve(PretendSession(2), token="", allow_origin="lab.example.org:8443")
    statuses = [connect(server.url, origin=f"http://{host}") for host in ("lab.example.org:8443", "lab.example.org")]
    server.stop()
    assert statuses == [101, 403]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
@pytest.mark.parametrize(("address", "host"), [("::1", "[::1]"), ("[::1]", "[::1]"), ("::", "[::1]")])
def test_ipv6_is_served_under_an_address_that_a_browser_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, host: str
) -> None:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path))
    server = serve(PretendSession(2), address=address, prefix="lab")
    try:
        plain = server.url.split("?")[0]
        assert plain.startswith(f"http://{host}:") and plain.endswith("/lab/")
        cookies = CookieJar()
        assert open_page(server.url, cookies)[0] == 200
        (cookie,) = cookies
        kept = f"{cookie.name}={cookie.value}"
        assert connect(plain, kept, origin=plain.removesuffix("/lab/")) == 101
        assert connect(plain, kept, origin="http://[::2]") == 403
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"port": 70_000}, "port=70000 is not a port. Give a whole number from 0 to 65535"),
        ({"port": "http"}, "port='http' is not a port"),
        ({"port": True}, "port=True is not a port"),
        ({"address": ""}, "address='' is not an address"),
        ({"address": "127.0.0.1:5006"}, "address='127.0.0.1:5006' cannot be listened on"),
        ({"address": "192.0.2.1"}, "address='192.0.2.1' cannot be listened on: Cannot assign"),
        ({"address": "a\0b"}, "Give an address of this machine"),
        ({"prefix": "a b"}, "prefix='a b' is not a path"),
        ({"prefix": "lab/../x"}, "is not a path"),
        ({"prefix": "lab(.*)"}, "is not a path"),
        ({"allow_origin": "*"}, "allows pages of many hosts"),
        ({"allow_origin": ["ok.example.org", "*.example.org:80"]}, "allows pages of many hosts"),
        ({"allow_origin": "lab.example.org:http"}, "is not a host"),
        ({"allow_origin": "https://lab.example.org/path"}, "is not a host"),
        ({"allow_origin": "user@lab.example.org"}, "is not a host"),
        ({"allow_origin": ""}, "allow_origin='' is not a host"),
        ({"allow_origin": [8080]}, "allow_origin=8080 is not a host"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_sentence(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        serve(PretendSession(2), **settings)  # type: ignore[arg-type]
    assert text in str(refused.value)


def test_origins_are_written_as_browsers_send_them() -> None:
    given = ["Lab.Example.org", "https://a.org:443", "b.org:8443", "bücher.example", "::1", "[::1]:8443", "10.0.0.1"]
    sent = [
        "lab.example.org:80",
        "a.org:80",
        "b.org:8443",
        "xn--bcher-kva.example:80",
        "[::1]",
        "[::1]:8443",
        "10.0.0.1:80",
    ]
    assert [*Endpoint.open(allow_origin=given).origins[2:]] == sent


def test_the_command_refuses_before_it_starts_engines(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["dash", "--port", port]) == 2
        assert f"port={port} of 127.0.0.1 cannot be opened: Address already in use" in capsys.readouterr().err
    assert main(["dash", "--address", "nowhere.invalid", "--port", "0"]) == 2
    assert "address='nowhere.invalid' cannot be listened on" in capsys.readouterr().err
    assert main(["dash", "--port", "0", "--allow-origin", "a.org", "--allow-origin", "*"]) == 2
    assert "allow_origin='*'" in capsys.readouterr().err
