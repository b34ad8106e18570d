"""The run's store: what no rank of the run has signed is ignored and counted, and others do not reach it at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from dtdg_lab.core.errors import ClusterError
from dtdg_lab.distributed.heartbeat import Heartbeat
from dtdg_lab.distributed.store import SignedStore, open_store, reach_store

KEY = "ab" * 32


@pytest.fixture(params=["", "127.0.0.1"], ids=["file", "tcp"])
def store(request: pytest.FixtureRequest) -> Iterator[SignedStore]:
    made, _ = open_store(2, key=KEY, scope="run/1", host=request.param)
    yield made
    made.remove()


def other(store: SignedStore, key: str = KEY, place: str = "run/1") -> SignedStore:
    return reach_store(store.address, 2, key=key, scope=place)


def test_values_and_numbers_are_those_of_every_connection(store: SignedStore) -> None:
    second = store.reconnect()
    assert store.read("a") is None and not second.check(["a"])
    store.set("a", b"\0\xff")
    assert second.get("a") == b"\0\xff" and second.host == "127.0.0.1"
    assert [second.add("n", 2), store.add("n", 3), second.add("n", 0)] == [2, 5, 5]
    assert store.set_once("once", "first") and not second.set_once("once", "second")
    assert second.read("once") == b"first" and not store.ignored
    with pytest.raises(dist.DistStoreError, match="had no value of this run"):
        store.wait(["b"], timedelta(seconds=0.05))


def test_no_addition_is_lost_between_threads(store: SignedStore) -> None:
    sums: list[int] = []

    def work() -> None:
        mine = store.reconnect()
        sums.extend(mine.add("n", 1) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == list(range(1, 201))


@pytest.mark.parametrize("forge", ["another key", "another run", "another attempt", "another name", "text", "bytes"])
def test_a_value_of_others_is_missing_and_counted_once(store: SignedStore, forge: str) -> None:
    if forge == "another key":
        other(store, key="cd" * 32).set("a", "mine")
    elif forge in ("another run", "another attempt"):
        other(store, place="run/2" if forge == "another attempt" else "other/1").set("a", "mine")
    elif forge == "another name":
        store.set("b", "mine")
        store.unsigned.set("a", store.unsigned.get("b").decode())
    else:
        store.unsigned.set("a", "junk" if forge == "text" else b"\xff\xfe\0" * 30)
    assert store.read("a") is None and store.read("a") is None and not store.check(["a"])
    assert store.ignored == 1
    assert store.reconnect().ignored == 1, "a process counts over its connections"
    assert store.set_once("a", "right") and store.read("a") == b"right"


def test_a_number_that_was_overwritten_or_deleted_goes_on(store: SignedStore) -> None:
    assert [store.add("n", 1), store.add("n", 1)] == [1, 2]
    for junk in ("9999", b"\xff"):
        store.unsigned.set("n", junk)
        assert store.add("n", 0) == store.add("n", 1) - 1
    assert store.add("n", 0) == 4 and store.ignored == 2
    if store.address.startswith("tcp"):  # a file store deletes nothing on the word of others
        store.unsigned.delete_key("n")
        assert store.add("n", 1) == 5


def test_a_forged_failure_and_forged_beats_are_not_heard(store: SignedStore) -> None:
    beats = [Heartbeat(store.reconnect(), rank, 2, limit_s=0.4) for rank in range(2)]
    stranger = store.unsigned
    for name, value in (("failed", "1"), ("cause", "rm -rf / says root"), ("beat/1", "7"), ("left/1", "1")):
        stranger.set(f"heartbeat/{name}", value)
    other(store, place="run/2").set("heartbeat/cause", "of the attempt after")
    for _ in range(8):
        threading.Event().wait(0.1)
        for beat in beats:
            beat.check()
    for beat in beats:
        beat.close()
    assert sum(beats[0].wait_for_leaving(1.0).values()) >= 1, "what was forged is counted"


def test_a_store_needs_its_key_and_says_when_it_is_gone() -> None:
    made, address = open_store(1)
    where, key = address.split("#")
    assert len(key) == 64 and reach_store(address, 1).add("n", 1) == 1
    with pytest.raises(ClusterError, match="needs the key of its run"):
        reach_store(where, 1)
    made.remove()
    with pytest.raises(ClusterError, match="its file is gone"):
        reach_store(address, 1)


def test_folders_of_killed_runs_go_after_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, young = open_store(1, key=KEY)[0], open_store(1, key=KEY)[0]
    folders = [Path(each.address.removeprefix("file:")).parent for each in (killed, young)]
    for path in (folders[0] / "store", folders[0]):
        os.utime(path, (1, 1))
    open_store(1, key=KEY)
    assert [folder.exists() for folder in folders] == [False, True]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may act as another account")
def test_another_account_cannot_open_the_store_of_one_machine() -> None:
    store, _ = open_store(2, key=KEY)
    file = Path(store.address.removeprefix("file:"))
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    program = (
        "import os, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "for way in (os.listdir, os.rmdir):\n"
        "    try: way(os.path.dirname(sys.argv[1])); print('done')\n"
        "    except PermissionError: print('refused')\n"
        "for mode in ('rb', 'ab'):\n"
        "    try: open(sys.argv[1], mode); print('opened')\n"
        "    except PermissionError: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
    store.remove()
    assert done.stdout.split() == ["refused"] * 4
