"""The dashboard as a web page: its address, a dashboard for each page that is opened, and a token to open it."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import logging
import operator
import os
import re
import secrets
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import panel as pn
from bokeh.server.auth_provider import AuthProvider
from bokeh.server.util import check_allowlist
from bokeh.settings import settings
from tornado.web import RequestHandler

from dtdg_lab.cluster.session_files import write_private
from dtdg_lab.core.errors import ClusterError, ConfigError, shortened
from dtdg_lab.core.units import state_root
from dtdg_lab.dashboard.app import TITLE, Dashboard
from dtdg_lab.runs.html import render

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


_PREFIX = re.compile(r"[A-Za-z0-9._~@%-]+(/[A-Za-z0-9._~@%-]+)*")
_HOST = re.compile(r"[a-z0-9]([a-z0-9_.-]*[a-z0-9])?")
_USUAL_PORTS = (80, 443)  # ports that browsers leave out of an origin
_MOST_PORTS = 65_535


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A free port of this machine, and who may connect.

    Attributes:
        address: address to listen on.
        port: port to listen on.
        prefix: prefix of all paths, without slashes at its ends; empty for none.
        origins: hosts with ports of pages that may connect, in the form that Bokeh compares.
    """

    address: str
    port: int
    prefix: str
    origins: tuple[str, ...]

    @classmethod
    def open(
        cls, port: int = 0, address: str = "127.0.0.1", *, prefix: str = "", allow_origin: str | Iterable[str] = ()
    ) -> Endpoint:
        """Return the endpoint of these settings, with a port that can be opened now.

        Args:
            port: port to listen on; 0 takes a free port.
            address: interface to listen on, such as ``127.0.0.1``, ``::1`` or ``0.0.0.0``.
            prefix: prefix of all paths.
            allow_origin: hosts under which a proxy shows the page, such as ``lab.example.org`` or
                ``lab.example.org:8443``.

        Raises:
            ConfigError: an argument is not allowed, or the port is taken.
        """
        address = _parse_address(address)
        prefix = _parse_prefix(prefix)
        several = isinstance(allow_origin, Iterable) and not isinstance(allow_origin, str)
        hosts = [_parse_origin(host) for host in (allow_origin if several else [allow_origin])]
        port = _find_port(address, _parse_port(port))
        own_hosts = [_bracketed(_reachable(address)), "localhost", "127.0.0.1"]
        own_hosts += [socket.gethostname().lower()] if _reachable(address) != address else []
        return cls(address, port, prefix, tuple(dict.fromkeys([*(f"{host}:{port}" for host in own_hosts), *hosts])))

    @property
    def host(self) -> str:
        """A host with which this machine reaches it."""
        return _reachable(self.address)

    @property
    def url(self) -> str:
        """The address of the page on this machine."""
        path = f"{self.prefix}/" if self.prefix else ""
        return f"http://{_bracketed(self.host)}:{self.port}/{path}"


def _reachable(address: str) -> str:
    """Return the address, or the loopback address if it stands for all interfaces."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _parse_port(port: object) -> int:
    try:
        number = -1 if isinstance(port, bool) else operator.index(port)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= _MOST_PORTS:
        raise ConfigError(
            f"port={shortened(port)} is not a port. Give a whole number from 0 to {_MOST_PORTS}; 0 takes a free one."
        )
    return number


def _parse_address(address: object) -> str:
    text = address.strip().removeprefix("[").removesuffix("]") if isinstance(address, str) else ""
    if not text:
        raise ConfigError(
            f"address={shortened(address)} is not an address. Give 127.0.0.1 or ::1 for this machine only, or 0.0.0.0 "
            "or :: for all its interfaces."
        )
    return text


def _parse_prefix(prefix: object) -> str:
    text = prefix.strip("/") if isinstance(prefix, str) else "?"
    if text and (not _PREFIX.fullmatch(text) or {".", ".."} & set(text.split("/"))):
        raise ConfigError(
            f"prefix={shortened(prefix)} is not a path. Give letters, digits and . _ ~ @ % - between slashes, such as "
            "'lab' or 'user/ada/lab'."
        )
    return text


def _parse_origin(origin: object) -> str:
    """Return the host and port of an origin in the form that Bokeh compares.

    Raises:
        ConfigError: it is not a host.
    """
    advice = "Give the host that the browser shows, with its port if it shows one: lab.example.org:8443."
    error = ConfigError(f"allow_origin={shortened(origin)} is not a host. {advice}")
    if not isinstance(origin, str) or not origin.strip():
        raise error
    text = origin.strip()
    with suppress(ValueError):  # an IPv6 address without brackets has no port; everything else is parsed below
        text = _bracketed(str(ipaddress.IPv6Address(text)))
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = parts.hostname or "", parts.port
        host = str(ipaddress.IPv6Address(host)) if ":" in host else host.encode("idna").decode()
    except ValueError as failure:
        raise error from failure
    if "*" in host:
        raise ConfigError(
            f"allow_origin={shortened(origin)} allows pages of many hosts, which could then steer runs. Name each host."
        )
    has_more = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
    if has_more or port == 0 or not (":" in host or _HOST.fullmatch(host)):
        raise error
    if port is None or port in _USUAL_PORTS:
        return _bracketed(host) if ":" in host else f"{host}:80"  # Bokeh adds port 80 to an origin without a port
    return f"{_bracketed(host)}:{port}"


def _find_port(address: str, port: int) -> int:
    """Return the port, or a free one for 0; checked here, since the server's thread could not report a taken port."""
    try:
        places = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for number, (family, *_, place) in enumerate(sorted(places)):  # IPv4 first: a machine may lack IPv6
            try:
                with socket.create_server((place[0], port), family=family) as opened:
                    port = opened.getsockname()[1]
            except OSError as error:
                if not number or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise ConfigError(
                f"port={port} of {address} cannot be opened: {os.strerror(error.errno)}. "
                "Take another one, or 0 for a free one."
            ) from error
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"address={shortened(address)} cannot be listened on: {reason}. Give an address of this machine: 127.0.0.1 "
            "or ::1 for this machine only, or 0.0.0.0 or :: for all its interfaces."
        ) from error
    return port


LEAST_TOKEN = 16  # minimum number of characters of a given token
START_S = 20.0
_LOG = logging.getLogger(__name__)


class DashboardServer:
    """A server of dashboards that runs in a thread.

    Attributes:
        url: the address of a page, with the token.
        token_file: the file with the address; None without a token.
    """

    def __init__(self, url: str, thread: Any, token_file: Path | None) -> None:
        self.url, self.token_file = url, token_file
        self._thread = thread

    def __repr__(self) -> str:
        return f"DashboardServer({self.url!r})"

    def wait(self) -> None:
        """Wait until it is stopped, by ``stop`` or by Ctrl-C."""
        try:
            self._thread.join()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the server; open pages can no longer control runs."""
        self._thread.stop()
        if self.token_file is not None:
            self.token_file.unlink(missing_ok=True)


def serve(
    session: Session,
    port: int = 0,
    address: str = "127.0.0.1",
    *,
    token: str | None = None,
    prefix: str = "",
    allow_origin: str | Iterable[str] = (),
) -> DashboardServer:
    """Serve the dashboard of a session from a thread; all pages control the same runs.

    A page opens only with the token, since every account of a machine can reach its loopback ports. The address with
    the token is in ``url`` and in a file that only the owner can read; a browser keeps the token as a cookie.

    Args:
        session: the session; it stays open when the server ends.
        port: port to listen on; 0 takes a free port.
        address: interface to listen on, such as ``127.0.0.1``, ``::1`` or ``0.0.0.0``.
        token: at least 16 characters; None makes a new token, and "" lets in everyone who can reach the port.
        prefix: prefix of all paths, such as ``lab`` if a proxy passes on ``/lab/``.
        allow_origin: hosts under which a proxy shows the page, with their ports if the browser shows them.

    Raises:
        ConfigError: the token is shorter, another argument is not allowed, or the port is taken.
        ClusterError: the server did not start.
    """
    endpoint = Endpoint.open(port, address, prefix=prefix, allow_origin=allow_origin)
    if token is None:
        token = secrets.token_urlsafe(32)
    elif not token:
        warnings.warn(
            f"Without a token, everyone who can reach {endpoint.address} can control, start and stop the runs of this "
            "session.",
            stacklevel=2,
        )
    elif len(token) < LEAST_TOKEN:
        raise ConfigError(
            f"token has {len(token)} characters, but at least {LEAST_TOKEN} are required, or '' for no token. "
            "Leave it out to get a new one."
        )
    pn.extension("plotly", "mathjax")

    def page() -> pn.viewable.Viewable:
        dashboard = Dashboard(session)
        pn.state.on_session_destroyed(lambda context: dashboard.close())
        return dashboard.layout

    url, token_file = endpoint.url, None
    if token:
        url += f"?token={quote(token, safe='')}"
        token_file = state_root() / "dashboards" / f"{endpoint.port}.txt"
        write_private(token_file, url + "\n")
    thread = pn.serve(
        page,
        port=endpoint.port,
        address=endpoint.address,
        prefix=endpoint.prefix,
        show=False,
        title=TITLE,
        location=False,  # unused, and Panel cannot parse a Host header of an IPv6 address
        websocket_origin=[origin for origin in endpoint.origins if "[" not in origin],  # Bokeh refuses IPv6 here
        threaded=True,
        verbose=False,
        auth_provider=PageAuth(token, endpoint),
    )
    _wait_until_open(endpoint, thread)
    return DashboardServer(url, thread, token_file)


class PageAuth(AuthProvider):
    """Accepts requests that have the token in their address, or the cookie that an earlier request received.

    A WebSocket also needs an allowed origin. The cookie is derived from the token and named after the port, since
    cookies of a host are sent to all its ports.

    Args:
        token: the secret; if it is empty, everyone is let in.
        endpoint: the server's endpoint.
    """

    def __init__(self, token: str, endpoint: Endpoint) -> None:
        self._token, self._endpoint = token, endpoint
        self._cookie = f"dtdg-lab-{endpoint.port}"
        self._value = hmac.new(token.encode(), b"dashboard cookie", "sha256").hexdigest()
        super().__init__()

    @property
    def get_user(self) -> Callable[[Any], Any]:
        """The function that returns the user of a request, or None."""
        return self._user

    @property
    def login_url(self) -> str:
        """The address to which requests without token are sent."""
        return "/login"

    @property
    def login_handler(self) -> type[RequestHandler]:
        """The page that asks for the token."""
        return TokenPage

    def _user(self, request: RequestHandler) -> str | None:
        is_websocket = "Upgrade" in request.request.headers
        if is_websocket and not self._allows_origin(request):
            return None
        if not self._token:
            return "owner"
        token = request.get_argument("token", "")
        if token and hmac.compare_digest(token.encode(), self._token.encode()):
            if not is_websocket:  # the answer to a WebSocket's handshake sets no cookie
                request.set_cookie(self._cookie, self._value, httponly=True, samesite="Lax")
            return "owner"
        cookie = request.get_cookie(self._cookie) or ""
        return "owner" if hmac.compare_digest(cookie.encode(), self._value.encode()) else None

    def _allows_origin(self, request: RequestHandler) -> bool:
        """Return whether a WebSocket's page has an allowed origin; if not, log which option would allow it.

        Bokeh checks the origin next, with the same set.
        """
        allowed = request.application.websocket_origins  # type: ignore[attr-defined]
        allowed.update(self._endpoint.origins)
        origin = request.request.headers.get("Origin")
        host = urlsplit(origin or "").netloc.lower()
        if origin is None or check_allowlist(host, [*allowed, *settings.allowed_ws_origin()]):
            return True
        _LOG.warning(
            "The dashboard refused a page of origin %s. It accepts %s. If this is your proxy, start the dashboard with "
            "`dtdg-lab dash --allow-origin %s`, or serve(session, allow_origin=[%r]).",
            shortened(origin),
            ", ".join(sorted(allowed)),
            host or "HOST",
            host or "HOST",
        )
        return False


class TokenPage(RequestHandler):
    """Asks for the token."""

    def get(self) -> None:
        """Show the form; submitting it opens the dashboard."""
        self.set_status(403)
        self.finish(render("dashboard/templates/token.html", title=TITLE))


def _wait_until_open(endpoint: Endpoint, thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((endpoint.host, endpoint.port), timeout=START_S).close()
            return
        except ConnectionRefusedError as error:
            if time.monotonic() > deadline or not thread.is_alive():
                raise ClusterError(
                    f"the dashboard's server did not open port {endpoint.port} of {endpoint.address} within "
                    f"{START_S:g} s. Its error is in the output above. Give another port, or 0 for a free one."
                ) from error
            time.sleep(0.01)
