"""The served dashboard in a browser: behind a proxy of another name and path, and on an IPv6 address."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.dashboard.server import serve
from tests.browser.jupyterlab import MARKS, chromium, last_step, look_at
from tests.following import until
from tests.pretend_session import PretendSession
from tests.proxy import reverse_proxy

NAME = "lab.example.org"

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A browser's page, for which the proxy's name is this machine."""
    monkeypatch.setenv("DTDG_LAB_STATE", tempfile.mkdtemp())
    with chromium(f"--host-resolver-rules=MAP {NAME} 127.0.0.1") as found:
        yield found


def is_live(page: Any, url: str, session: PretendSession, run: Any) -> None:
    """Open the page and see it follow the run."""
    page.goto(url, timeout=120_000)
    look_at(page, "loss")
    until(lambda: last_step(page) >= run.step - 1, timeout_s=60, what="the chart shows the run")
    before = last_step(page)
    run.advance(20)
    until(lambda: last_step(page) >= before + 19, timeout_s=30, what="the chart follows the run")


def test_a_page_behind_a_proxy_is_live_and_so_is_one_on_ipv6(page: Any) -> None:
    session = PretendSession(2)
    run = session.train(RunConfig(system="psg", dataset="growing", ranks=2))
    run.advance(30)
    with reverse_proxy(lambda: server.url.partition("/?")[0], strip="/team/outside") as port:
        server = serve(session, prefix="lab", allow_origin=f"{NAME}:{port}")
        token = server.url.partition("?")[2]
        is_live(page, f"http://{NAME}:{port}/team/outside/?{token}", session, run)
        server.stop()
    server = serve(session, address="::1")
    is_live(page, server.url, session, run)
    server.stop()
