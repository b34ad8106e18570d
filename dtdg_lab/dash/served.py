"""The dashboard as a web page: one session, one dashboard for each page that is opened."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.dash.app import TITLE, Dashboard

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


def serve(
    session: Session, port: int = 0, address: str = "127.0.0.1", show: bool = False, *, threaded: bool = False
) -> Any:
    """Serve the dashboard of a session; every page steers the same runs.

    Args:
        session: the one session; it is not closed when the server ends.
        port: where to listen; 0 takes a free port.
        address: interface to listen on; on others than loopback anybody who reaches it can steer the session.
        show: open a browser.
        threaded: return at once, with a thread whose ``stop()`` ends the server; else return when it ends.
    """
    pn.extension("plotly")
    port = port or _free_port(address)

    def page() -> pn.viewable.Viewable:
        dashboard = Dashboard(session)
        pn.state.on_session_destroyed(lambda context: dashboard.close())
        return dashboard.layout

    origins = [f"{host}:{port}" for host in dict.fromkeys((address, "localhost", "127.0.0.1"))]
    return pn.serve(
        page, port=port, address=address, show=show, title=TITLE, websocket_origin=origins, threaded=threaded
    )


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port
