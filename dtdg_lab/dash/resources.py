"""Panel and Plotly for the page that will show the dashboard, without the internet."""

from __future__ import annotations

import sys
from typing import Any

import panel as pn

_KEY = "dtdg_lab.dash.page"


def load_resources() -> None:
    """Send a notebook page what charts need, once per page; a served page gets it from its server.

    In a notebook everything is sent inline (16 MB), so that nothing is asked of the internet. A page that was
    reloaded has lost it; it is known by the new session of its front end, and gets it again.
    """
    page = _notebook_page() if pn.state.curdoc is None else None
    if page is None:
        pn.extension("plotly")
    elif pn.state.cache.get(_KEY) != page or "plotly" not in pn.extension._loaded_extensions:
        pn.extension("plotly", inline=True)
        pn.state.cache[_KEY] = page


def _notebook_page() -> str | None:
    """The session of the front end that runs the present cell; None outside of notebooks."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    header = shell.get_parent().get("header", {})
    return str(header.get("session", "unknown"))
