"""Gradients in one flat buffer, summed over ranks together with a few control values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dtdg_lab.config.record_tables import MAX_CONTROL_VERSION
from dtdg_lab.core.errors import ControlError
from dtdg_lab.distributed.all_to_all import NO_TIME, ExchangeTimes, ReadTimes
from dtdg_lab.distributed.group import Group

_CLOCK_PERIOD_NS = 64_000_000_000  # arrival times are sent as float32 seconds modulo 64, exact to 4 microseconds
_STOPS_S = 2 * _CLOCK_PERIOD_NS * 1e-9  # a rank that knows of a stop adds this to its arrival time, to save a slot
_VERSION, _CHOICE, _LOSS, _GROUPS, _ARRIVALS = 0, 1, 2, 3, 4


class Agreed(NamedTuple):
    """Control values that all ranks received in an exchange.

    Attributes:
        version: rank 0's version of the control state.
        choice: rank 0's choice of the batch size.
        stops: whether a rank knows of a request to stop.
    """

    version: int
    choice: int
    stops: bool


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Result of an exchange of gradients.

    Attributes:
        agreed: control values; on a GPU those of the exchange before, and None in the first one.
        sums: returns the sum of losses and the number of groups of all ranks; on a GPU it may wait for the device.
        times: returns the times of the exchange; on a GPU it may wait for the device.
    """

    agreed: Agreed | None
    sums: Callable[[], tuple[float, int]]
    times: ReadTimes = lambda: NO_TIME


class FlatGradients:
    """A flat buffer of the parameters' gradients, followed by slots for control values.

    The slots travel in the same all-reduce as the gradients. They carry the control version and batch-size choice (set
    on rank 0 only), the sum of losses, the number of groups, and each rank's arrival time. The arrival times separate
    wait time from communication time, and flag a known request to stop.

    On a GPU, which the host runs ahead of, the slots travel first, in a sum of their own. It ends on every rank when
    the last rank has begun, which separates waiting from communication. The host reads the slots one exchange later.

    Args:
        parameters: the model's parameters, on one device and of one type.
        group: the processes.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], group: Group) -> None:
        self._group = group
        self._parameters = list(parameters)
        like = self._parameters[0]
        self._numel = sum(parameter.numel() for parameter in self._parameters)
        self._before: Callable[[], Tensor] | None = None  # slots of the exchange before, on a GPU
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
        self, *, version: int, loss_sum: Tensor | float, groups: int, choice: int = 0, stops: bool = False
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
        own_slots = torch.zeros(len(slots), dtype=torch.float64)
        own_slots[_VERSION], own_slots[_CHOICE] = (version, choice) if group.rank == 0 else (0, 0)
        own_slots[_GROUPS], own_slots[_ARRIVALS + group.rank] = groups, stops * _STOPS_S
        exchange = self._exchange_queued if group.device_clock.is_late else self._exchange_at_once
        return exchange(own_slots, slots, loss_sum)

    def _exchange_at_once(self, own_slots: Tensor, slots: Tensor, loss_sum: Tensor | float) -> Exchanged:
        group, clock = self._group, self._group.device_clock
        began_ns = clock.host_ns()
        own_slots[_LOSS] = loss_sum
        own_slots[_ARRIVALS + group.rank] += (group.clock_ns() % _CLOCK_PERIOD_NS) * 1e-9
        slots.copy_(own_slots)
        group.all_reduce(self._flat)
        received, ended_ns = slots.tolist(), clock.host_ns()
        sums = _sums(received)
        self.divide(sums[1])
        all_began_ns = began_ns + round(_last_arrival_after(received[_ARRIVALS:], group.rank) * 1e9)
        times = ExchangeTimes(began_ns, all_began_ns, ended_ns, began_ns)
        return Exchanged(_agreed(received), lambda: sums, lambda: times)

    def _exchange_queued(self, own_slots: Tensor, slots: Tensor, loss_sum: Tensor | float) -> Exchanged:
        clock = self._group.device_clock
        slots.copy_(clock.send(own_slots))
        slots[_LOSS] = loss_sum
        meeting = self._group.start_sum(slots)
        received = meeting.read_back(slots)
        flight = self._group.start_sum(self.gradients)
        entered = clock.stamp()
        meeting.join()
        flight.join()
        self.gradients.div_(slots[_GROUPS].clamp(min=1))
        before, self._before = self._before, received

        def times() -> ExchangeTimes:
            return ExchangeTimes(*map(clock.ns, (meeting.began, meeting.ended, flight.ended, entered)))

        return Exchanged(
            None if before is None else _agreed(before().tolist()), lambda: _sums(received().tolist()), times
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


def _agreed(slots: list[float]) -> Agreed:
    return Agreed(round(slots[_VERSION]), round(slots[_CHOICE]), max(slots[_ARRIVALS:]) >= _STOPS_S)


def _sums(slots: list[float]) -> tuple[float, int]:
    return slots[_LOSS], round(slots[_GROUPS])


def _last_arrival_after(arrivals_s: list[float], rank: int) -> float:
    """Return the seconds from this rank's arrival to the last rank's, on a clock that wraps around."""
    period = _CLOCK_PERIOD_NS * 1e-9
    delays_s = [(arrival_s - arrivals_s[rank] + period / 2) % period - period / 2 for arrival_s in arrivals_s]
    return max(0.0, *delays_s)
