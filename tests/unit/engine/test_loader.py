"""A loader's thread: what it prepares, what it raises and when it stops."""

from __future__ import annotations

import threading

import pytest

from dtdg_lab.engine.loader import Loader


def test_requested_values_are_prepared_once_in_another_thread() -> None:
    loader, threads = Loader(ahead=True), list[threading.Thread]()

    def prepare() -> int:
        threads.append(threading.current_thread())
        return len(threads)

    loader.request("a", prepare)
    loader.request("a", prepare)
    assert loader.take("a", prepare) == 1
    assert loader.take("a", prepare) == 2, "taken already, so it is computed"
    assert [thread is threading.current_thread() for thread in threads] == [False, True]
    loader.close()


def test_a_failure_in_the_thread_is_raised_where_the_value_is_taken() -> None:
    loader = Loader(ahead=True)
    loader.request("a", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loader.take("a", lambda: 5)
    assert loader.take("a", lambda: 5) == 5
    loader.close()


def test_withdrawn_requests_are_computed_when_asked_for() -> None:
    loader, begun, go_on = Loader(ahead=True), threading.Event(), threading.Event()

    def block() -> int:
        begun.set()
        go_on.wait(10)
        return 1

    loader.request("running", block)
    loader.request("waiting", lambda: pytest.fail("it was withdrawn"))
    assert begun.wait(10)
    loader.forget()
    go_on.set()
    assert loader.take("waiting", lambda: 2) == 2
    loader.close()


def test_without_a_thread_values_are_computed_when_asked_for() -> None:
    for loader in (Loader(ahead=False), Loader(ahead=True)):
        loader.close()
        loader.close()
        loader.request("a", lambda: pytest.fail("nothing is prepared ahead"))
        assert loader.take("a", threading.current_thread) is threading.current_thread()


def test_a_closed_loader_leaves_no_thread() -> None:
    before = threading.active_count()
    loader = Loader(ahead=True)
    loader.request("a", lambda: 1)
    assert threading.active_count() == before + 1
    loader.close()
    assert threading.active_count() == before
