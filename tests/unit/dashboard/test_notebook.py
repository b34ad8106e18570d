"""Messages to a notebook's page."""

from __future__ import annotations

import json
import threading
from typing import Any

from dtdg_lab.dashboard.notebook import WholeMessages


def fragments(thread: int, message: int, buffers: int) -> list[tuple[Any, Any]]:
    header = json.dumps({"msgid": f"{thread}-{message}", "num_buffers": buffers} if buffers else {"msgid": thread})
    name = f"{thread}-{message}"
    texts = [(header, None), ("{}", None), (json.dumps({"events": [name]}), None)]
    return texts + [part for _ in range(buffers) for part in (("{}", None), (None, [name.encode()]))]


def test_messages_of_two_threads_are_sent_in_one_piece() -> None:
    sent: list[tuple[int, Any]] = []
    send = WholeMessages(lambda data, metadata, buffers: sent.append((threading.get_ident(), data or buffers)))
    barrier = threading.Barrier(2)

    def work(thread: int) -> None:
        for message in range(20):
            for data, buffers in fragments(thread, message, message % 3):
                if thread and not message:
                    barrier.wait(5)  # the other thread is between two of its fragments
                send(data, buffers=buffers or [])
                if not thread and not message:
                    barrier.wait(5)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    at = 0
    for _ in range(40):
        thread, header = sent[at]
        end = at + 3 + 2 * json.loads(header).get("num_buffers", 0)
        assert {ident for ident, _ in sent[at:end]} == {thread}
        assert "events" in json.loads(sent[at + 2][1])
        at = end
    assert at == len(sent)
