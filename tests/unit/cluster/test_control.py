"""Rank 0's door for requests: numbers them, refuses what is another run's, and closes without waiting."""

from __future__ import annotations

import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import zmq

from dtdg_lab.cluster import control
from dtdg_lab.cluster.control import ControlServer, ask, read_payload, requester
from dtdg_lab.cluster.signing import new_key, pack, unpack
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.records.requests import Request, SetLive, Stop

PLACE = "run/1"


class Store(dict[str, bytes]):
    """What torch's store does, in one process."""

    def set(self, name: str, value: str) -> None:
        self[name] = value.encode()

    def set_once(self, name: str, value: str) -> bool:
        return name not in self and not self.set(name, value)


def server(key: str, store: Store, refusals: list[Any] | None = None) -> ControlServer:
    def note(request: Request, reason: str) -> None:
        if refusals is not None:
            refusals.append((request, reason))

    return ControlServer(key, store, lambda request: None, note, scope=PLACE)


def test_requests_are_numbered_and_kept_until_it_closes() -> None:
    key, store = new_key(), Store()
    door = server(key, store)
    assert [ask(door.address, key, SetLive({"alpha": 0.1 * n}), scope=PLACE) for n in (1, 2)] == [1, 2]
    assert read_payload(store, 2) == {"set": {"alpha": 0.2}} == door.payload(2)
    del store["control/2"]
    door.payload(2)
    assert read_payload(store, 2) == {"set": {"alpha": 0.2}}, "rank 0 puts back what is gone"
    with pytest.raises(ControlError, match="another run"):
        ask(door.address, key, Stop(), scope="other/1")
    assert door.latest() == 2
    door.close()
    door.close()
    with pytest.raises(ControlError):
        ask(door.address, key, Stop(), scope=PLACE, timeout_s=0.2)
    assert door.latest() == 2


def test_what_is_unsigned_or_sent_again_changes_nothing() -> None:
    key = new_key()
    door = server(key, Store())
    request = {"stop": True, "place": PLACE, "nonce": "once"}
    assert "not signed with this session's key" in unpack(key, door._answer(pack(new_key(), request)))["refused"]
    assert unpack(key, door._answer(pack(key, request))) == {"version": 1}
    assert unpack(key, door._answer(pack(key, request))) == {"version": 1}, "the answer again, and no second change"
    assert "nonce" in unpack(key, door._answer(pack(key, request | {"nonce": ""})))["refused"]
    assert door.latest() == 1
    door.close()


def test_what_was_refused_is_not_taken_when_it_is_sent_again() -> None:
    key, refusals = new_key(), list[Any]()
    door = server(key, Store(), refusals)
    taken, door.check = door.check, refuse_all
    message = pack(key, {"set": {"alpha": 0.5}, "place": PLACE, "nonce": "once"})
    assert "not now" in unpack(key, door._answer(message))["refused"]
    door.check = taken
    assert "not now" in unpack(key, door._answer(message))["refused"] and door.latest() == 0
    assert refusals == [(SetLive({"alpha": 0.5}), "not now")], "told once"
    door.close()


def test_forged_requests_are_not_told_as_refused() -> None:
    key, refusals = new_key(), list[Any]()
    door = server(key, Store(), refusals)
    request = {"set": {"alpha": 0.5}, "place": PLACE, "nonce": "once"}
    for message in (
        pack(new_key(), request),
        pack(key, request | {"place": "other/1"}),
        pack(key, request | {"nonce": ""}),
    ):
        assert "refused" in unpack(key, door._answer(message))
    assert refusals == []
    door.close()


def refuse_all(request: dict[str, object]) -> None:
    raise ControlError("not now")


def test_a_lost_request_is_sent_again_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    key, lost = new_key(), [True, False]
    door = server(key, Store())
    reply = control._reply

    def lossy(address: str, message: bytes, timeout_s: float) -> bytes | None:
        answer = reply(address, message, timeout_s)
        return None if lost.pop(0) else answer

    monkeypatch.setattr(control, "_reply", lossy)
    assert ask(door.address, key, SetLive({"alpha": 0.5}), scope=PLACE) == 1 == door.latest()
    assert lost == []
    door.close()


def test_closing_waits_for_nothing() -> None:
    doors = [server(new_key(), Store()) for _ in range(60)]
    begun_s = time.monotonic()
    for door in doors:
        door.close()
    assert time.monotonic() - begun_s < 3.0, "a poll of 200 ms to be waited out at each is 12 s"


def test_what_is_no_request_does_not_end_the_answers() -> None:
    """The socket says that there is something, and drops it as it is read."""
    key = new_key()
    door = server(key, Store())
    stranger = zmq.Context.instance().socket(zmq.DEALER)
    stranger.setsockopt(zmq.LINGER, 0)
    stranger.connect(door.address)
    try:
        stranger.send(b"a frame without the empty one before it")
        time.sleep(0.1)
        closing = threading.Thread(target=door.close, daemon=True)
        closing.start()
        closing.join(5)
        assert not closing.is_alive()
    finally:
        stranger.close()


# who changes settings: a notebook, a program, or a name that is given


def test_a_given_name_is_taken() -> None:
    assert requester("sweep.py") == "sweep.py"


@pytest.mark.parametrize("by", ["", "two\nlines", "x" * 81, 7])
def test_other_names_are_refused(by: Any) -> None:
    with pytest.raises(ConfigError, match="give a name of one line"):
        requester(by)


@pytest.mark.parametrize(
    ("file", "module", "name"),
    [("/home/me/sweep.py", None, "sweep.py"), (None, None, "python"), ("x.py", "my_tools.__main__", "my_tools")],
    ids=["script", "interpreter", "module"],
)
def test_a_program_has_the_name_of_its_file_or_module(
    file: str | None, module: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__file__ = file
    main.__spec__ = None if module is None else SimpleNamespace(name=module)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert requester() == name


@pytest.mark.parametrize(("shell", "name"), [(SimpleNamespace(kernel=1), "notebook"), (None, "python")])
def test_a_kernel_is_a_notebook(shell: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    assert requester() == name
