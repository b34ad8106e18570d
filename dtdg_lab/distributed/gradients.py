"""Gradients in one flat buffer, summed over ranks together with a few control values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dtdg_lab.config.record_tables import MAX_CONTROL_VERSION
from dtdg_lab.core.errors import ControlError
from dtdg_lab.distributed.group import Group

_CLOCK_PERIOD_NS = 64_000_000_000  # arrival times are sent as float32 seconds modulo 64, exact to 4 microseconds
_STOPS_S = 2 * _CLOCK_PERIOD_NS * 1e-9  # a rank that knows of a stop adds this to its arrival time, to save a slot
_VERSION, _CHOICE, _LOSS, _GROUPS, _ARRIVALS = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Result of a gradient exchange, and this rank's wait and communication time."""

    version: int
    loss_sum: float
    groups: int
    wait_s: float
    communicate_s: float
    choice: int = 0
    stops: bool = False


class FlatGradients:
    """A flat buffer of the parameters' gradients, followed by slots for control values.

    The slots travel in the same all-reduce as the gradients. They carry the control version and batch-size choice (set
    on rank 0 only), the sum of losses, the number of groups, and each rank's arrival time. The arrival times separate
    wait time from communication time, and flag a known request to stop.

    Args:
        parameters: the model's parameters, on one device and of one type.
        group: the processes.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], group: Group) -> None:
        self._group = group
        self._parameters = list(parameters)
        like = self._parameters[0]
        self._numel = sum(parameter.numel() for parameter in self._parameters)
        self._flat = torch.zeros(self._numel + _ARRIVALS + group.size, dtype=like.dtype, device=like.device)
        self._attach()

    def _attach(self) -> None:
        offset = 0
        for parameter in self._parameters:
            parameter.grad = self._flat[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()

    @property
    def gradients(self) -> Tensor:
        """All gradients as one vector; a view."""
        return self._flat[: self._numel]

    def zero(self) -> None:
        """Reset gradients and slots to zero."""
        self._flat.zero_()

    def exchange(
        self, *, version: int, loss_sum: float, groups: int, choice: int = 0, stops: bool = False
    ) -> Exchanged:
        """Sum gradients and slots over ranks and divide the gradients by the number of groups of the step.

        Raises:
            ControlError: the version exceeds the range of its slot.
        """
        if version > MAX_CONTROL_VERSION:
            raise ControlError(
                f"control version {version} exceeds {MAX_CONTROL_VERSION}: start a new run, or resume this one."
            )
        group, slots = self._group, self._flat[self._numel :]
        arrived_ns = group.clock_ns()
        own_slots = torch.zeros(len(slots), dtype=torch.float64)
        own_slots[_VERSION], own_slots[_CHOICE] = (version, choice) if group.rank == 0 else (0, 0)
        own_slots[_LOSS], own_slots[_GROUPS] = loss_sum, groups
        own_slots[_ARRIVALS + group.rank] = (arrived_ns % _CLOCK_PERIOD_NS) * 1e-9 + stops * _STOPS_S
        slots.copy_(own_slots)
        group.all_reduce(self._flat)
        agreed = slots.tolist()  # waits for the device, so that the clock below is read after the exchange
        ended_ns = group.clock_ns()
        total = round(agreed[_GROUPS])
        self.divide(total)
        wait_s = min(_last_arrival_after(agreed[_ARRIVALS:], group.rank), (ended_ns - arrived_ns) * 1e-9)
        in_exchange_s = (ended_ns - arrived_ns) * 1e-9
        return Exchanged(
            round(agreed[_VERSION]),
            agreed[_LOSS],
            total,
            wait_s,
            in_exchange_s - wait_s,
            round(agreed[_CHOICE]),
            max(agreed[_ARRIVALS:]) >= _STOPS_S,
        )

    def divide(self, groups: int) -> None:
        """Turn the sum over groups into a mean."""
        if groups > 1:
            self.gradients.div_(groups)

    def agree(self, version: int) -> int:
        """Broadcast rank 0's newest control version without gradients, for a paused run."""
        state = torch.tensor([float(version if self._group.rank == 0 else 0)], dtype=torch.float64)
        state = state.to(self._flat.device)
        self._group.all_reduce(state)
        return int(state.item())


def _last_arrival_after(arrivals_s: list[float], rank: int) -> float:
    """Return the seconds from this rank's arrival to the last rank's, on a clock that wraps around."""
    period = _CLOCK_PERIOD_NS * 1e-9
    delays_s = [(arrival_s - arrivals_s[rank] + period / 2) % period - period / 2 for arrival_s in arrivals_s]
    return max(0.0, *delays_s)
