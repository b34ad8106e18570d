"""Messages to a notebook's page, each in one piece although several threads send."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

FRAGMENTS = 3  # header, metadata and content; each buffer adds two


class WholeMessages:
    """Takes the place of a comm's ``send``, and passes the fragments of one message on together.

    Panel sends a message in fragments that the page tells apart by their order. JupyterLab has the kernel take what a
    person does on a thread of its own, which sends while the event loop sends: mixed fragments are lost, with an error.
    """

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def __call__(self, data: Any = None, metadata: Any = None, buffers: Any = ()) -> None:
        """Keep a fragment of this thread's message; the last one sends all."""
        fragments = self._of_thread.__dict__.setdefault("fragments", [])
        fragments.append((data, metadata, buffers))
        if len(fragments) < FRAGMENTS + 2 * json.loads(fragments[0][0]).get("num_buffers", 0):
            return
        self._of_thread.fragments = []
        with self._lock:
            for text, facts, parts in fragments:
                self._send(text, metadata=facts, buffers=parts)
