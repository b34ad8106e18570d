"""The dashboard in a notebook: scripts that need no internet, and messages that stay in one piece."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import panel as pn

from dtdg_lab.widgets.component import share_inline_stylesheets

_KEY = "dtdg_lab.dashboard.page"
FRAGMENTS = 3  # fragments of a message: header, metadata and content; each buffer adds two


def load_resources() -> list[str]:
    """Send a notebook's page what charts need, once per page; a served page gets it from its server.

    In a notebook everything is sent inline (18 MB), so that nothing is loaded from the internet. A page that was
    reloaded has lost it. Such a page has a new front-end session, and gets everything again.

    Returns:
        The displays with what was sent, for :func:`remove_resources`.
    """
    page = _notebook_page() if pn.state.curdoc is None else None
    if page is None:
        pn.extension("plotly", "mathjax")
    elif pn.state.cache.get(_KEY) != page or "plotly" not in pn.extension._loaded_extensions:
        from IPython.display import publish_display_data
        from IPython.utils.capture import capture_output

        with capture_output(stdout=False, stderr=False) as sent:
            pn.extension("plotly", "mathjax", inline=True)
        pn.state.cache[_KEY] = page
        displays = [f"{_KEY}-{page}-{number}" for number in range(len(sent.outputs))]
        for display, output in zip(displays, sent.outputs, strict=True):
            publish_display_data(output.data, output.metadata, transient={"display_id": display})
        return displays
    return []


def remove_resources(displays: Sequence[str]) -> None:
    """Remove from the notebook what its page has executed, since it would take 20 MB in the saved file."""
    from IPython.display import publish_display_data

    for display in displays:
        publish_display_data({"text/plain": ""}, transient={"display_id": display}, update=True)


class WholeMessages:
    """Replaces a comm's ``send``, and passes on the fragments of one message together.

    Panel sends a message in fragments, which the page tells apart by their order. In JupyterLab, a person's actions are
    handled on a separate thread, which sends while the event loop sends; mixed fragments are lost, with an error.
    """

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def __call__(self, data: Any = None, metadata: Any = None, buffers: Any = ()) -> None:
        """Keep a fragment of this thread's message; the last fragment sends all."""
        fragments = self._of_thread.__dict__.setdefault("fragments", [])
        fragments.append((data, metadata, buffers))
        if len(fragments) < FRAGMENTS + 2 * json.loads(fragments[0][0]).get("num_buffers", 0):
            return
        self._of_thread.fragments = []
        with self._lock:
            for text, facts, parts in fragments:
                self._send(text, metadata=facts, buffers=parts)


class NotebookColumn(pn.Column):
    """A column that sends whole messages to a notebook's page, and puts its style sheets into the page at once.

    Panel replaces the style sheets of one model at a time, and each time Bokeh collects all models. This takes 25
    s for the dashboard.
    """

    def _render_model(self, doc: Any = None, comm: Any = None) -> Any:
        if comm is not None:
            comm.send = WholeMessages(comm.send)
        model: Any = super()._render_model(doc, comm)
        if pn.config.inline:
            share_inline_stylesheets(model)
        return model


def _notebook_page() -> str | None:
    """Return the session of the front end that runs the current cell; None outside notebooks."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    header = shell.get_parent().get("header", {})
    return str(header.get("session", "unknown"))
