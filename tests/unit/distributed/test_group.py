"""Groups on devices: what is staged through the machine's memory, and how a group is aborted."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import distributed_c10d

from dtdg_lab.distributed import group as of_group
from dtdg_lab.distributed.group import ProcessGroup, SoloGroup
from dtdg_lab.distributed.heartbeat import OtherRankError
from dtdg_lab.kernels.device_clock import HostClock
from dtdg_lab.network.linked_group import LinkedGroup


class OnDevice(Tensor):
    """A tensor of a pretended GPU: ``to`` copies it to the machine's memory."""

    def to(self, *given: Any, **named: Any) -> Tensor:
        return self.as_subclass(Tensor).clone()


def on_device(*values: float) -> OnDevice:
    return torch.tensor([values]).T.as_subclass(OnDevice)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The tensors that reach the network, of one rank beside a silent twin."""
    tensors: list[Tensor] = []

    def all_reduce(flat: Tensor, group: Any = None) -> None:
        tensors.append(flat)
        flat.mul_(2)

    def all_gather(shares: list[Tensor], padded: Tensor, group: Any = None) -> None:
        tensors.extend([*shares, padded])
        for share in shares:
            share.copy_(padded)

    monkeypatch.setattr(of_group.dist, "all_reduce", all_reduce)
    monkeypatch.setattr(of_group.dist, "all_gather", all_gather)
    return tensors


def test_ranks_that_share_a_gpu_exchange_through_the_memory_of_the_machine(sent: list[Tensor]) -> None:
    group = ProcessGroup(0, 2, None, "cuda:0", wire="cpu")
    flat = on_device(1.0, 3.0)
    group.all_reduce(flat)
    assert flat.tolist() == [[2.0], [6.0]]
    assert group.gather_rows(torch.ones(1, 3), [1, 1]).tolist() == [[1.0] * 3] * 2
    assert {type(tensor) for tensor in sent} == {Tensor}, "only plain tensors are exchanged"


def test_tensors_on_the_device_of_the_network_are_exchanged_in_place(sent: list[Tensor]) -> None:
    flat = torch.ones(2)
    ProcessGroup(0, 2, None, "cpu").all_reduce(flat)
    assert sent[0] is flat and flat.tolist() == [2.0, 2.0]


def test_rows_are_staged_and_return_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    times = object()

    class Rows:
        def to(self, device: str) -> Rows:
            moved.append(device)
            return self

    class Pending:
        bytes_sent = bytes_received = 4

        def wait(self) -> of_group.Arrived:
            return of_group.Arrived(Rows(), times=times)

    monkeypatch.setattr(of_group, "start_rows", lambda rows, *given, **named: Pending())
    pending = ProcessGroup(0, 2, None, "cuda:1", wire="cpu").start_exchange(Rows(), [0, 1], [0, 1])
    assert moved == ["cpu"]
    assert pending.wait().times is times and moved == ["cpu", "cuda:1"]
    assert isinstance(ProcessGroup(0, 2, None, "cpu").start_exchange(Rows(), [0, 1], [0, 1]), Pending)


class Torch:
    """torch.distributed, as far as a group joins and leaves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Any] = []
        self.is_initialized = False
        monkeypatch.setattr(of_group.dist, "is_initialized", lambda: self.is_initialized)
        monkeypatch.setattr(of_group.dist, "init_process_group", self._join)
        monkeypatch.setattr(of_group.dist, "destroy_process_group", lambda: self._leave("destroy"))
        monkeypatch.setattr(of_group.dist, "PrefixStore", lambda name, store: store)
        monkeypatch.setattr(of_group.dist, "barrier", lambda group, device_ids: self.calls.append(device_ids))
        monkeypatch.setattr(distributed_c10d, "_abort_process_group", lambda: self._leave("abort"))
        monkeypatch.setattr(ProcessGroup, "_agree_on_clock", lambda self: None)

    def _join(self, backend: str, **_: Any) -> None:
        self.is_initialized = True
        self.calls.append(backend)

    def _leave(self, how: str) -> None:
        self.is_initialized = False
        self.calls.append(how)


def test_ranks_with_a_gpu_each_join_by_nccl_and_leave_by_abort_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", raising=False)
    torch_calls = Torch(monkeypatch)
    group = ProcessGroup.join(None, 1, 2, device="cuda:3", clock=HostClock())
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "2", "torch would end the engine on an error"
    group.barrier()
    LinkedGroup(group).check()
    group.abort()
    group.close()
    assert torch_calls.calls == ["nccl", [3], "abort"]
    for aborted in (group, LinkedGroup(group)):
        with pytest.raises(OtherRankError, match="exchanges of rank 1 were aborted"):
            aborted.check()


def test_a_subgroup_is_aborted_with_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    Torch(monkeypatch)
    group = ProcessGroup(0, 4, None, "cuda:0", wire="cuda:0", clock=HostClock())
    part = ProcessGroup(0, 2, None, "cuda:0", wire="cuda:0", _whole=group, clock=HostClock())
    part.check()
    group.abort()
    with pytest.raises(OtherRankError):
        part.check()
    SoloGroup().check()


def test_ranks_that_share_a_gpu_join_by_gloo_which_has_no_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_calls = Torch(monkeypatch)
    group = ProcessGroup.join(None, 0, 2, device="cuda:0", shares_gpus=True)
    group.barrier()
    group.abort()
    group.close()
    assert torch_calls.calls == ["gloo", None, "destroy"] and group.wire == "cpu"
