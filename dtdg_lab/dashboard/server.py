"""The dashboard as a web page: one session, one dashboard for each page that is opened, and a token to open it."""

from __future__ import annotations

import hmac
import secrets
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import panel as pn
from bokeh.server.auth_provider import AuthProvider
from tornado.web import RequestHandler

from dtdg_lab.cluster.session_files import write_private
from dtdg_lab.core.errors import ClusterError, ConfigError
from dtdg_lab.core.units import state_root
from dtdg_lab.dashboard.app import TITLE, Dashboard
from dtdg_lab.runs.html import render

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session

LEAST_TOKEN = 16  # characters of a chosen token
START_S = 20.0


class DashboardServer:
    """A server of dashboards that runs in a thread.

    Attributes:
        url: the address of a page, with the token.
        token_file: the file that holds the address; None without a token.
    """

    def __init__(self, url: str, thread: Any, token_file: Path | None) -> None:
        self.url, self.token_file = url, token_file
        self._thread = thread

    def __repr__(self) -> str:
        return f"DashboardServer({self.url!r})"

    def wait(self) -> None:
        """Return when it was stopped, here or by Ctrl-C."""
        try:
            self._thread.join()
        finally:
            self.stop()

    def stop(self) -> None:
        """End it; pages that are open can no longer steer."""
        self._thread.stop()
        if self.token_file is not None:
            self.token_file.unlink(missing_ok=True)


def serve(session: Session, port: int = 0, address: str = "127.0.0.1", *, token: str | None = None) -> DashboardServer:
    """Serve the dashboard of a session from a thread; every page steers the same runs.

    A page opens only with the token, because every account of a machine reaches its loopback ports. The address with
    the token is in ``url`` and in a file that only the owner can read; a browser keeps it as a cookie.

    Args:
        session: the one session; it is not closed when the server ends.
        port: where to listen; 0 takes a free port.
        address: interface to listen on.
        token: at least 16 characters; None makes a new one, and "" lets everybody in who reaches the port.

    Raises:
        ConfigError: the token is shorter, or the port is taken.
        ClusterError: the server did not start.
    """
    if token is None:
        token = secrets.token_urlsafe(32)
    elif not token:
        warnings.warn(
            f"Without a token everybody who reaches {address} can steer, start and stop the runs of this session.",
            stacklevel=2,
        )
    elif len(token) < LEAST_TOKEN:
        raise ConfigError(
            f"token: {len(token)} characters were given. Allowed: at least {LEAST_TOKEN}, or '' for no token. "
            "Leave it out, and a new one is made."
        )
    pn.extension("plotly", "mathjax")
    port = _free_port(address, port)

    def page() -> pn.viewable.Viewable:
        dashboard = Dashboard(session)
        pn.state.on_session_destroyed(lambda context: dashboard.close())
        return dashboard.layout

    url, token_file = f"http://{address}:{port}/", None
    if token:
        url += f"?token={quote(token, safe='')}"
        token_file = state_root() / "dashboards" / f"{port}.txt"
        write_private(token_file, url + "\n")
    thread = pn.serve(
        page,
        port=port,
        address=address,
        show=False,
        title=TITLE,
        websocket_origin=[f"{host}:{port}" for host in dict.fromkeys((address, "localhost", "127.0.0.1"))],
        threaded=True,
        verbose=False,
        **({"auth_provider": TokenAuth(token, port)} if token else {}),
    )
    _wait_until_open(address, port)
    return DashboardServer(url, thread, token_file)


class TokenAuth(AuthProvider):
    """Lets a request in that has the token in its address, or the cookie that an earlier one was given.

    The cookie is derived from the token, and named after the port: cookies of a host are sent to all its ports.

    Args:
        token: the secret.
        port: of the server.
    """

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._cookie = f"dtdg-lab-{port}"
        self._value = hmac.new(token.encode(), b"dashboard cookie", "sha256").hexdigest()
        super().__init__()

    @property
    def get_user(self) -> Callable[[Any], Any]:
        """The function that names the user of a request, or returns None."""
        return self._user

    @property
    def login_url(self) -> str:
        """Where requests without token are sent."""
        return "/login"

    @property
    def login_handler(self) -> type[RequestHandler]:
        """The page that asks for the token."""
        return TokenPage

    def _user(self, request: RequestHandler) -> str | None:
        given = request.get_argument("token", "")
        if given and hmac.compare_digest(given.encode(), self._token.encode()):
            if "Upgrade" not in request.request.headers:  # the answer to a WebSocket's handshake sets no cookie
                request.set_cookie(self._cookie, self._value, httponly=True, samesite="Lax")
            return "owner"
        kept = request.get_cookie(self._cookie) or ""
        return "owner" if hmac.compare_digest(kept.encode(), self._value.encode()) else None


class TokenPage(RequestHandler):
    """Asks for the token."""

    def get(self) -> None:
        """The form; its answer opens the dashboard."""
        self.set_status(403)
        self.finish(render("dashboard/templates/token.html", title=TITLE))


def _wait_until_open(address: str, port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((address, port), timeout=START_S).close()
            return
        except ConnectionRefusedError as error:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the dashboard's server did not open port {port} of {address} within {START_S:g} s. Its error is "
                    "in the output above; take another port, or 0 for a free one."
                ) from error
            time.sleep(0.01)


def _free_port(address: str, port: int) -> int:
    """The port, or a free one for 0; the server's thread could not report that it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise ConfigError(
                f"port={port} of {address} cannot be opened: {error.strerror}. Take another one, or 0 for a free one."
            ) from error
        found: int = probe.getsockname()[1]
        return found
