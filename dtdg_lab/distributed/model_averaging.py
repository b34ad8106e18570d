"""Asynchronous model averaging in rounds that never block a step, and that distribute rank 0's control state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.distributed.averager import (
    NO_CONTROL,
    Averager,
    ControlState,
    Round,
    SingleProcessAverager,
    check_times,
    checked_control,
    does_not_fit,
)
from dtdg_lab.distributed.group import Group, ProcessGroup
from dtdg_lab.distributed.heartbeat import Heartbeat, OtherRankError
from dtdg_lab.distributed.shared_steps import SharedSteps
from dtdg_lab.kernels.device_clock import DeviceClock, Flight, clock_of

_POLL_S = 0.002  # polling interval of a round while idle
_MAX_POLL_S = 0.05  # maximum polling interval for a new round, and so the maximum delay of a stop
_SLOTS = 4  # after the parameters in the buffer: weight; rank 0's version, choice and period
_FAILURE = 2**40  # added to the round counter: no more rounds
_TYPES = (torch.float32, torch.float64)  # types whose slots hold a version exactly


class ModelAverager(Averager):
    """Averages the models of all ranks every T_mu seconds without blocking their training.

    Rank 0 numbers the rounds in the store. Every rank joins every round once: it copies its parameters, starts an
    asynchronous all-reduce of the copy, and continues with its steps. When the sum has arrived,
    ``parameters += mean - copy`` keeps the steps taken meanwhile. A model's weight travels in the buffer. Finished
    ranks join rounds until all have finished. After the final round all ranks have the same model. The number of
    ranks never shrinks: a dead rank is an error on all others.

    Weights ``paper``: all models count the same, but for ranks that have made no step since the last round. In an
    interval a rank's model moves by as many steps as it makes, so the final model is mostly that of fast ranks.

    Weights ``share``: each part moves the final model by its rank's share of the data, whatever its speed. A rank's
    progress is the sum of its scales over its steps since the last average. Its weight is its share divided by its
    progress, which makes the pulls of all ranks proportional to their shares if gradients change little within an
    interval. So that this holds within long intervals, each rank multiplies its learning rate by its :attr:`scale`:
    the fewest steps of any rank in the last interval, divided by its own. Then all models move alike per second, and
    weights correct only for changes of speed. A round is no average unless every rank has made a step since the last
    one; local steps then continue and count in the next. The price is speed: a fast rank's steps reduce noise, but
    the model moves as fast as the slowest rank's.

    The buffer also carries rank 0's control state. A new version starts a round at once. It then takes effect after
    the other ranks' next check of the store (at most 50 ms) and their current step, without waiting for T_mu.

    With ``every_s=0`` ranks average after every step and wait for each other.

    Source: DynaHB, average of the models every T_mu seconds. Differs from the paper: no step waits for a round, so a
    mean may be some steps old (``Round.staleness``). The paper does not say how many steps a worker makes. Here ranks
    share the steps of an epoch [ours]. So a slow rank delays a run only by the steps that it has taken ahead: one, or
    at most 50 ms of work at its former pace. Weights ``share`` are ours. Their normalisation is that of Wang, Liu,
    Liang, Joshi and Poor, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization
    (FedNova), NeurIPS 2020, with the weighted harmonic mean of the steps as effective number of steps.

    Args:
        parameters: a tensor or tensors of float32 or float64 on one device, changed in place; equal shapes on all
            ranks.
        group: process group used only by averagers (``dist.new_group()``), so that rounds cannot mix with others.
        store: a connection to the run's store used only by averagers (their heartbeat has its own thread); keys
            start with ``name``.
        every_s: seconds between two rounds (T_mu); 0 averages after every step.
        limit_s: seconds of silence after which a rank counts as dead.
        naming_s: seconds to wait after a network failure until the responsible rank is known; twice ``limit_s`` by
            default.
        newest_state: returns the newest control state; called on rank 0 only, in every step.
        start: the current control state of all ranks.
        step: steps that this rank has made before.
        replay: the ``rounds`` of an earlier run of this rank: rounds are joined and applied at the recorded steps,
            with the recorded weights and control states. Rounds of a pause are replayed in the ``control()`` of
            their step.
        position: the current epoch, and the number of its steps that all ranks have made before.
        share: this rank's share of the trained nodes, above 0; only weights ``share`` read it.
        weights: ``paper`` or ``share``, the same on all ranks.
        name: unique among the averagers of one store.
        count: called with the bytes sent (equal to those received) when a round is joined.
        clock: clock of the parameters' device; a new one if None.

    Raises:
        ConfigError: ``parameters`` is empty or of other types, a time is out of bounds, ``name`` was used on this
            store, or the replay does not fit the steps.

    Attributes:
        bytes_sent: bytes this rank sent, by the ring formula 2 b (R - 1) / R, including the final round.
    """

    def __init__(
        self,
        parameters: torch.Tensor | Sequence[torch.Tensor],
        *,
        group: dist.ProcessGroup,
        store: Any,
        every_s: float,
        limit_s: float,
        newest_state: Callable[[], ControlState],
        naming_s: float | None = None,
        start: ControlState = NO_CONTROL,
        step: int = 0,
        replay: Sequence[Round] | None = None,
        position: tuple[int, int] = (0, 0),
        share: float = 1.0,
        weights: str = "paper",
        name: str = "averaging",
        count: Callable[[int], None] = lambda moved: None,
        clock: DeviceClock | None = None,
    ) -> None:
        self._parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        _check(self._parameters)
        check_times(every_s, limit_s)
        self._rank, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        steps = SharedSteps(self._add, ranks=self._ranks, first=position)
        super().__init__(every_s=every_s, newest_state=newest_state, start=start, step=step, replay=replay, steps=steps)
        self._naming_s = 2 * limit_s if naming_s is None else naming_s
        self._group, self._store, self._name, self._count = group, store, name, count
        first = self._parameters[0]
        self._clock = clock or clock_of(str(first.device))
        size = sum(tensor.numel() for tensor in self._parameters)
        self._copy = torch.empty(size, dtype=first.dtype, device=first.device)
        self._by_share, self._share = weights == "share", share
        slots = _SLOTS + self._ranks * self._by_share
        self._buffer = torch.empty(size + slots, dtype=first.dtype, device=first.device)
        self._sum, self._slots = self._buffer[:size], self._buffer[size:]
        self._flight: Flight | None = None  # round in flight
        self._read_slots: Callable[[], torch.Tensor] = lambda: self._slots
        self._announced, self._carried = 0, start.version
        self._joined_step, self._joined_progress, self._joined_weight = step, 0.0, 0.0
        self._averaged_step, self._progress = step, 0.0  # step of the last average, and progress since
        self._ready, self._gathering = False, False
        self._next_poll_s = 0.0
        if int(store.add(f"{name}/members", 1)) > self._ranks:
            raise ConfigError(f"name={name!r} was used on this store before. Give every averager its own name.")
        self._heartbeat = Heartbeat(store, self._rank, self._ranks, limit_s=limit_s, name=f"{name}/heartbeat")
        try:
            self._follow(self._replay or [])  # rounds of a pause before the first step
        except BaseException as error:
            self.close(f"{type(error).__name__}: {error}")
            raise

    def control(self) -> None:
        """Serve the averaging after a step made with the current scale."""
        self._progress += self.scale
        super().control()

    def idle(self) -> None:
        """Serve the averaging while no step is taken, as in a pause; call it every few milliseconds.

        With ``every_s=0`` it waits for a round as :meth:`control` does.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        self._heartbeat.check()
        if self._replay is not None:
            self._follow(self._replay)
        elif self.every_s == 0:
            self._average_now()
        else:
            self._apply_if_complete()
            self._serve()

    def next_step(self, epoch: int, steps: int) -> int | None:
        """Take the number of this rank's next step of an epoch; None if all ``steps`` are taken.

        Most calls need no communication: see :class:`~dtdg_lab.distributed.shared_steps.SharedSteps`. The first call
        waits until all ranks have called it or have finished, so that no rank takes the steps of one that still starts.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        if not self._ready:
            self._begin()
        return super().next_step(epoch, steps)

    def finish(self, received: Callable[[], None] = lambda: None) -> None:
        """Take part until every rank has finished and all rounds are served; then end.

        Rank 0 keeps starting rounds for the ranks that still train. A second call does nothing.

        Args:
            received: called after every round that is applied meanwhile, and after the final one.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        if self._finished:
            return
        try:
            self._finish(received)
        except BaseException as error:
            self.close(f"{type(error).__name__}: {error}")
            raise
        self._finished = True
        self._heartbeat.close()

    def close(self, reason: str = "") -> None:
        """Leave without finishing; a reason is reported to the other ranks as a failure."""
        if self._finished:
            return
        self._finished = True
        if reason:
            self._heartbeat.fail(reason)
            with suppress(RuntimeError):  # the store is gone, which every heartbeat detects by itself
                self._store.add(f"{self._name}/round", _FAILURE)
        self._heartbeat.close()

    def _finish(self, received: Callable[[], None]) -> None:
        self._gathering = True
        if not self._ready:
            self._ready = bool(self._add("ready", 1))
        if self._replay is None:
            self._serve_until_end(received)
            self._join(None, self._final_weight())
        else:
            self._join(*self._follow_to_the_end(self._replay))
        self._wait(last=True)
        received()

    def _begin(self) -> None:
        self._ready = True
        ready = self._add("ready", 1)
        while ready < self._ranks:
            self._heartbeat.check()
            time.sleep(_POLL_S / 10)
            ready = self._add("ready", 0)

    def _serve_until_end(self, received: Callable[[], None]) -> None:
        """Serve rounds until the last one, which rank 0 announces once all ranks are done.

        Only rank 0 starts rounds, and it starts none after the last: no rank leaves while a round may still start.
        """
        self._add("done", 1)
        nap_s = _POLL_S / 10  # grows, since ranks may be far apart
        while True:
            self._heartbeat.check()
            flight = self._flight
            self._apply_if_complete()
            if flight is not None and self._flight is None:
                received()
            if self._flight is None:
                if self._rank == 0 and self._add("done", 0) == self._ranks:
                    self._add("end", self._number + 1)
                    return
                if self._rank != 0 and self._add("end", 0) == self._number + 1:
                    return
            self._serve()
            time.sleep(nap_s)
            nap_s = min(1.2 * nap_s, 2 * _POLL_S)

    def _serve(self) -> None:
        """Announce a round when it is due (rank 0), and join the next announced round."""
        now_s = time.monotonic()
        if now_s >= self._next_poll_s:
            self._announced = self._add("round", 0)
            # polling costs a round trip to the store: ten polls a period are enough
            self._next_poll_s = now_s + max(_POLL_S, min(self.every_s / 10, _MAX_POLL_S))
        if self._flight is None and self._rank == 0 and self._is_due(now_s):
            self._announced = self._add("round", 1)
            self._last_round_s = now_s
        if self._announced >= _FAILURE:
            self._heartbeat.check_failures()
            self._heartbeat.check()
        elif self._flight is None and self._announced > self._number:
            self._join()

    def _is_due(self, now_s: float) -> bool:
        return now_s >= self._last_round_s + self.every_s or checked_control(self._newest_state).version > self._carried

    def _average_now(self) -> None:
        """Join the next round as soon as rank 0 announces it, and wait for the mean."""
        while self._flight is None:
            self._next_poll_s = 0.0
            self._serve()
            self._heartbeat.check()
            if self._flight is None:
                time.sleep(_POLL_S / 10)
        self._wait()

    def _join(self, control_state: ControlState | None = None, weight: float | None = None) -> None:
        """Contribute this rank's model to the next round, and on rank 0 the control state.

        Args:
            control_state: the control state; the newest by default.
            weight: weight of the model; by default :meth:`_weight`.
        """
        if weight is None:
            weight = self._weight()
        period_s = self.every_s if self._rank == 0 else 0.0
        if self._rank != 0:
            control_state = NO_CONTROL
        elif control_state is None:
            control_state = checked_control(self._newest_state)
        torch.cat([tensor.detach().reshape(-1) for tensor in self._parameters], out=self._copy)
        torch.mul(self._copy, weight, out=self._sum)
        slots = torch.zeros(len(self._slots), dtype=self._buffer.dtype)
        slots[:_SLOTS] = torch.tensor([weight, *control_state, period_s], dtype=self._buffer.dtype)
        if self._by_share:
            slots[_SLOTS + self._rank] = self.step - self._averaged_step
        self._slots.copy_(self._clock.send(slots))
        self._flight = self._clock.launch(lambda: dist.all_reduce(self._buffer, group=self._group, async_op=True))
        self._read_slots = self._flight.read_back(self._slots)
        self._number += 1
        self._carried = max(self._carried, control_state.version)
        self._joined_step, self._joined_progress, self._joined_weight = self.step, self._progress, weight
        moved = 2 * self._buffer.numel() * self._buffer.element_size() * (self._ranks - 1) // self._ranks
        self.bytes_sent += moved
        self._count(moved)

    def _weight(self) -> float:
        """Return the weight of this rank's model in a round; 0 without a step since the last average."""
        if self.step == self._averaged_step:
            return 0.0
        return self._share / self._progress if self._by_share else 1.0

    def _final_weight(self) -> float:
        """Return the weight of this rank's model in the final round, in which every model counts."""
        return self._weight() or (self._share if self._by_share else 1.0)

    def _apply_if_complete(self, *, last: bool = False) -> None:
        if self._flight is None or not self._flight.has_ended():
            return
        try:
            self._flight.join()
        except RuntimeError as error:
            self._fail_on(error)
        self._flight = None
        weights, version, choice, period_s, *steps_by_rank = self._read_slots().tolist()
        self.agreed = ControlState(round(version), round(choice))
        if self._rank != 0:
            self._every_s = period_s
        is_average = last or (weights > 0 and all(steps_by_rank))
        mean = self._sum.div_(weights or 1.0)
        if last:
            self._change_parameters(torch.Tensor.copy_, mean)
        elif is_average:
            self._change_parameters(torch.Tensor.add_, mean.sub_(self._copy))
            self._averaged_step, self._progress = self._joined_step, self._progress - self._joined_progress
            if self._by_share:
                self.scale = min(steps_by_rank) / steps_by_rank[self._rank]
        number, weight = (0 if last else self._number), (self._joined_weight if is_average else 0.0)
        fields = (number, self._joined_step, self.step, weight, *self.agreed)
        self.rounds.append(Round(*fields, gathered=self._gathering))

    @torch.no_grad()
    def _change_parameters(self, change: Callable[..., Any], by: torch.Tensor) -> None:
        offset = 0
        for tensor in self._parameters:
            change(tensor, by[offset : offset + tensor.numel()].view_as(tensor))
            offset += tensor.numel()

    def _wait(self, *, last: bool = False) -> None:
        while self._flight is not None:
            self._heartbeat.check()
            self._apply_if_complete(last=last)
            if self._flight is not None:
                time.sleep(_POLL_S / 10)

    def _follow(self, replay: list[Round]) -> None:
        """Replay the recorded rounds of this step."""
        while replay and not replay[0].is_last:
            event = replay[0]
            if self._flight is None:
                if event.joined_step > self.step:
                    return
                if event.joined_step != self.step:
                    raise does_not_fit(event, self.step)
                self._join(event.control_state, event.weight)
            if event.applied_step > self.step or (event.gathered and not self._gathering):
                return
            self._wait()
            if (self.rounds[-1].applied_step, self.agreed) != (event.applied_step, event.control_state):
                raise does_not_fit(event, self.step)
            del replay[0]

    def _follow_to_the_end(self, replay: list[Round]) -> tuple[ControlState, float]:
        """Replay the remaining rounds; return the control state and weight of the final round."""
        self._follow(replay)
        if self._flight is not None or (replay and not replay[0].is_last):
            raise does_not_fit(replay[0], self.step)
        return (replay[0].control_state, replay[0].weight) if replay else (self.agreed, self._final_weight())

    def _add(self, key: str, amount: int) -> int:
        try:
            return int(self._store.add(f"{self._name}/{key}", amount))
        except RuntimeError as error:
            self._fail_on(error)

    def _fail_on(self, error: RuntimeError) -> NoReturn:
        """Wait until the heartbeat knows the rank behind a failed collective or store, then raise."""
        end = time.monotonic() + self._naming_s  # extra time for a loaded machine
        while not self._heartbeat.failure and time.monotonic() < end:
            time.sleep(_POLL_S)
            self._heartbeat.check_failures()
        cause = self._heartbeat.failure or "The rank that caused it is unknown."
        # other ranks may notice this rank's end before the cause
        self.close(f"{cause} Averaging failed on rank {self._rank}: {error}")
        raise OtherRankError(
            f"averaging round {self._number} failed on rank {self._rank}. {cause} Repair the session, resume the run. "
            f"Network error: {str(error)[:200]}"
        ) from error


def _check(parameters: list[torch.Tensor]) -> None:
    kinds = {(tensor.dtype, tensor.device) for tensor in parameters}
    if len(kinds) != 1 or next(iter(kinds))[0] not in _TYPES:
        kind_names = sorted(f"{dtype} on {device}" for dtype, device in kinds)
        raise ConfigError(
            f"averaging needs tensors of float32 or of float64 on one device, not {kind_names or 'none'}."
        )


_NAMING_S = 0.5  # short, because a run's beacons detect a dead rank before heartbeats do


def averager_for(
    group: Group,
    parameters: torch.Tensor | Sequence[torch.Tensor],
    *,
    every_s: float,
    newest_state: Callable[[], ControlState],
    name: str,
    start: ControlState = NO_CONTROL,
    step: int = 0,
    replay: Sequence[Round] | None = None,
    position: tuple[int, int] = (0, 0),
    share: float = 1.0,
    weights: str = "paper",
    limit_s: float = 60.0,
) -> Averager:
    """Create the averager of a group's ranks; collective.

    Successive averagers of a group share a torch group and a connection to the store. The group counts the bytes.

    Args:
        group: the processes of the run.
        parameters: a tensor or tensors of float32 or float64 on one device.
        every_s: seconds between two rounds (T_mu); 0 averages after every step.
        newest_state: returns the newest control state; called on rank 0 only.
        name: unique for each averager of a run.
        start: the current control state of all ranks.
        step: steps that this rank has made before.
        replay: the rounds of an earlier run of this rank.
        position: the current epoch, and the number of its steps that all ranks have made before.
        share: this rank's share of the trained nodes.
        weights: ``paper`` or ``share``.
        limit_s: seconds of silence after which a rank counts as dead.

    Raises:
        ConfigError: as :class:`ModelAverager`.
        PlanError: the group is a subgroup.
    """
    if group.size == 1:
        return SingleProcessAverager(
            every_s=every_s, newest_state=newest_state, start=start, step=step, replay=replay, position=position
        )
    if not isinstance(group, ProcessGroup):
        raise ConfigError(f"averaging over {group.size} ranks needs a ProcessGroup, not a {type(group).__name__}.")
    torch_group, store = group.second_group()

    def count(moved: int) -> None:
        group.bytes_sent += moved
        group.bytes_received += moved

    return ModelAverager(
        parameters,
        group=torch_group,
        store=store,
        every_s=every_s,
        limit_s=limit_s,
        naming_s=_NAMING_S,
        newest_state=newest_state,
        start=start,
        step=step,
        replay=replay,
        position=position,
        share=share,
        weights=weights,
        name=name,
        count=count,
        clock=group.device_clock,
    )
