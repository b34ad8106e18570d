"""Ranks whose store is on a port, as between machines, train on while a stranger writes into it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from dtdg_lab.cluster.control import ControlServer, StoredControl, ask
from dtdg_lab.cluster.signing import new_key
from dtdg_lab.distributed.heartbeat import Heartbeat
from dtdg_lab.distributed.store import reach_store
from dtdg_lab.records.requests import SetLive
from dtdg_lab.testing.processes import join_group, run_ranks

STEPS = 100
FORGED = ("failed", "cause", "beat/0", "beat/1", "left/0", "left/1")


def _poison(port: int, stop: threading.Event, sweeps: list[int]) -> None:
    """Overwrite and delete whatever is listed, the names of gloo's meeting excepted, until told to stop."""
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=False, wait_for_workers=False)
    while not stop.wait(0.01):
        listed = [name for name in store.list_keys() if not name.startswith("group")]
        for number, name in enumerate([*listed, *(f"heartbeat/{kind}" for kind in FORGED)]):
            if (number + len(sweeps)) % 3:
                store.set(name, "the stranger's words" if number % 2 else "1")
            else:
                store.delete_key(name)
        sweeps.append(len(listed))


def _on_rank(rank: int, ranks: int, address: str, key: str) -> dict[str, Any]:
    group = join_group(rank, ranks, address)
    heartbeat = Heartbeat(group.store.reconnect(), rank, ranks, limit_s=3.0)
    stop, sweeps = threading.Event(), list[int]()
    control: Any = StoredControl(group.store, lambda request: 0, group.rank)
    if rank == 0:
        control = ControlServer(key, group.store, lambda request: None, lambda request, reason: None, scope="run/1")
        port = int(address.split("#")[0].rsplit(":", 1)[1])
        stranger = threading.Thread(target=_poison, args=(port, stop, sweeps))
    group.barrier()
    if rank == 0:
        stranger.start()
    total = torch.zeros(1)
    for _ in range(STEPS):
        heartbeat.check()
        share = torch.full((1,), rank + 1.0)
        group.all_reduce(share)
        total += share
        time.sleep(0.05)
    heartbeat.check()
    stop.set()
    if rank == 0:
        stranger.join()
        ask(control.address, key, SetLive({"alpha": 0.5}), scope="run/1")
        group.store.unsigned.set("control/1", '{"set": {"alpha": 66}}')
        control.payload(1)  # rank 0 applies it, and puts it back
    group.barrier()
    payload = control.payload(1)
    group.barrier()
    with suppress(AttributeError):  # of the other rank, which serves none
        control.close()
    heartbeat.close()
    group.close()
    return {"total": float(total), "payload": payload, "ignored": group.store.ignored, "sweeps": len(sweeps)}


def test_ranks_go_on_while_their_store_is_overwritten() -> None:
    first, second = run_ranks(_on_rank, 2, new_key(), host="127.0.0.1", timeout_s=60)
    assert first["sweeps"] > 20
    assert first["total"] == second["total"] == 3.0 * STEPS
    assert first["payload"] == second["payload"] == {"set": {"alpha": 0.5}}
    assert min(first["ignored"], second["ignored"]) > 0


def _meets_with_another_key(rank: int, ranks: int, address: str) -> str:
    where, key = address.split("#")
    store = reach_store(where, ranks, key=key if rank == 0 else new_key())
    store.set(f"from {rank}", "hello")
    time.sleep(0.5)
    return str(store.read(f"from {1 - rank}"))


def test_a_rank_of_another_run_is_not_met() -> None:
    assert run_ranks(_meets_with_another_key, 2, host="127.0.0.1", timeout_s=60) == ["None", "None"]
