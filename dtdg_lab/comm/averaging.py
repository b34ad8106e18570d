"""Asynchronous model averaging that never blocks a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from dtdg_lab.comm.heartbeat import Heartbeat
from dtdg_lab.core.errors import ConfigError, RunFailedError

_POLL_S = 0.002  # between two looks at a round while there is nothing else to do


@dataclass(frozen=True, slots=True)
class Round:
    """One averaging round as this rank saw it: an event that :class:`ModelAverager` can replay.

    ``joined_step`` and ``applied_step`` count this rank's steps, 1 after the first; their difference is the staleness
    of the average, in steps. ``weight`` is 1 while the rank trains and 0 once it has finished.
    """

    number: int
    joined_step: int
    applied_step: int
    weight: float = 1.0

    @property
    def staleness(self) -> int:
        """Steps this rank took between giving its model and receiving the mean."""
        return self.applied_step - self.joined_step


class ModelAverager:
    """Averages the models of all ranks every T_mu seconds while they go on training at their own pace.

    Rank 0 numbers the rounds in the store. Every rank joins every round once: it copies its parameters, starts an
    asynchronous all-reduce of the copy, and goes on stepping. When the sum has arrived, ``parameters += mean - copy``
    keeps the steps taken meanwhile. A rank that has finished joins with weight 0, which rides in the buffer, until all
    have; a last round of all, with equal weights, leaves the same model everywhere. The number of ranks never
    shrinks: a dead rank is an error on all others.

    With ``every_s=0`` ranks average after every step and wait for each other.

    Source: DynaHB, average of the models every T_mu seconds. Differs from the paper: no step waits for a round, so a
    mean may be some steps old (``Round.staleness``).

    Args:
        parameters: a tensor or tensors of one dtype and device, changed in place; equal shapes on all ranks.
        group: process group that only this averager uses (``dist.new_group()``), so that rounds cannot mix with others.
        store: the run's store, with an operation time-out of its own; keys start with ``name``.
        every_s: seconds between two rounds (T_mu); 0 averages after every step.
        limit_s: seconds of silence after which a rank is taken for dead.
        replay: the ``rounds`` of an earlier run of this rank: join and apply at those steps, whatever the clock says.
        name: tells averagers on one store apart; also needed anew when a run is resumed on an old store.

    Raises:
        ConfigError: ``parameters`` is empty or mixed, a time is out of bounds, or ``name`` was used on this store.

    Attributes:
        rounds: what this rank did, oldest first; the last round of all is not in it.
        step: calls of :meth:`control` so far.
        bytes_sent: bytes this rank sent, by the ring's formula 2 b (R - 1) / R; the last round of all included.
    """

    def __init__(
        self,
        parameters: torch.Tensor | Sequence[torch.Tensor],
        *,
        group: dist.ProcessGroup,
        store: Any,
        every_s: float,
        limit_s: float,
        replay: Sequence[Round] | None = None,
        name: str = "averaging",
    ) -> None:
        self._parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        _check(self._parameters, every_s, limit_s)
        self.every_s = every_s
        self.rounds: list[Round] = []
        self.step = 0
        self.bytes_sent = 0
        self._group, self._store, self._name = group, store, name
        self._rank, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        first = self._parameters[0]
        size = sum(tensor.numel() for tensor in self._parameters)
        self._copy = torch.empty(size, dtype=first.dtype, device=first.device)
        self._buffer = torch.empty(size + 1, dtype=first.dtype, device=first.device)
        self._work: dist.Work | None = None
        self._joined = 0
        self._joined_step, self._joined_weight = 0, 1.0
        self._announced = 0
        self._weight = 1.0
        self._replay = None if replay is None else list(replay)
        self._next_round_s = time.monotonic() + every_s
        self._next_look_s = 0.0
        self._finished = False
        self._limit_s = limit_s
        if int(store.add(f"{name}/members", 1)) > self._ranks:
            raise ConfigError(f"name={name!r} was used on this store before. Give every averager a name of its own.")
        self._heartbeat = Heartbeat(store, self._rank, self._ranks, limit_s=limit_s, name=f"{name}/heartbeat")

    def control(self) -> None:
        """Serve the averaging after a step; returns at once unless ``every_s`` is 0 or rounds are replayed.

        Raises:
            RunFailedError: a rank died or failed; the message names what is known.
        """
        self.step += 1
        self._heartbeat.check()
        if self._replay is not None:
            self._follow(self._replay)
        elif self.every_s == 0:
            self._one_round()
        else:
            self._apply_if_complete()
            self._serve()

    def finish(self) -> None:
        """Take part with weight 0 until every rank has finished and all rounds are served; then end.

        Rank 0 goes on calling rounds for those that still train. A second call does nothing.

        Raises:
            RunFailedError: a rank died or failed; the message names what is known.
        """
        if self._finished:
            return
        self._weight = 0.0
        if self._replay is None:
            self._serve_the_others()
        else:
            self._follow(self._replay)
        self._weight = 1.0
        self._join()
        self._wait(last=True)
        self._finished = True
        self._heartbeat.close()

    def close(self, reason: str = "") -> None:
        """Leave without finishing; a reason tells the other ranks that the run has failed here."""
        if self._finished:
            return
        self._finished = True
        if reason:
            self._heartbeat.fail(reason)
        self._heartbeat.close()

    def __enter__(self) -> ModelAverager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.close(f"{type(error).__name__}: {error}")

    def _serve_the_others(self) -> None:
        """Serve rounds until rank 0, seeing that all are done, says after which round to end.

        Only rank 0 decides the end, and calls no round after it: nobody leaves while a round may still come.
        """
        self._add("done", 1)
        while True:
            self._heartbeat.check()
            self._apply_if_complete()
            if self._work is None:
                if self._rank == 0 and self._add("done", 0) == self._ranks:
                    self._add("end", self._joined + 1)
                    return
                if self._rank != 0 and self._add("end", 0) == self._joined + 1:
                    return
            self._serve()
            time.sleep(_POLL_S)

    def _serve(self) -> None:
        """Call a round when it is due (rank 0), and join the next one that was called."""
        now = time.monotonic()
        if self._work is not None:
            return
        if self._rank == 0 and now >= self._next_round_s:
            self._announced = self._add("round", 1)
            self._next_round_s = now + self.every_s
        elif self._rank != 0 and now >= self._next_look_s:
            self._announced = self._add("round", 0)
            # a look costs a trip to the store: ten a period are enough, and at most one a poll
            self._next_look_s = now + max(_POLL_S, min(self.every_s / 10, 0.05))
        if self._announced > self._joined:
            self._join()

    def _one_round(self) -> None:
        """Average now and wait: join the next round as soon as rank 0 calls it."""
        while self._work is None:
            self._next_look_s = 0.0
            self._serve()
            self._heartbeat.check()
            if self._work is None:
                time.sleep(_POLL_S / 10)
        self._wait()

    def _join(self) -> None:
        torch.cat([tensor.detach().reshape(-1) for tensor in self._parameters], out=self._copy)
        torch.mul(self._copy, self._weight, out=self._buffer[:-1])
        self._buffer[-1] = self._weight
        self._work = dist.all_reduce(self._buffer, group=self._group, async_op=True)
        self._joined += 1
        self._joined_step, self._joined_weight = self.step, self._weight
        self.bytes_sent += 2 * self._buffer.numel() * self._buffer.element_size() * (self._ranks - 1) // self._ranks

    def _apply_if_complete(self, *, last: bool = False) -> None:
        if self._work is None or not self._work.is_completed():
            return
        try:
            self._work.wait()
        except RuntimeError as error:
            self._fail_on(error)
        self._work = None
        weights = float(self._buffer[-1])
        mean = self._buffer[:-1].div_(weights or 1.0)
        if last:
            self._change_parameters(torch.Tensor.copy_, mean)
            return
        if weights > 0:
            self._change_parameters(torch.Tensor.add_, mean.sub_(self._copy))
        self.rounds.append(Round(self._joined, self._joined_step, self.step, self._joined_weight))

    @torch.no_grad()
    def _change_parameters(self, change: Callable[..., Any], by: torch.Tensor) -> None:
        at = 0
        for tensor in self._parameters:
            change(tensor, by[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()

    def _wait(self, *, last: bool = False) -> None:
        while self._work is not None:
            self._heartbeat.check()
            self._apply_if_complete(last=last)
            if self._work is not None:
                time.sleep(_POLL_S / 10)

    def _follow(self, replay: list[Round]) -> None:
        """Do what the event log says of this step: apply the round at hand, join the next one, or both."""
        while len(self.rounds) < len(replay):
            event = replay[len(self.rounds)]
            if self._work is None and (event.joined_step, event.weight) == (self.step, self._weight):
                self._join()
            if self._work is None or event.applied_step != self.step:
                return
            self._wait()

    def _add(self, key: str, amount: int) -> int:
        try:
            return int(self._store.add(f"{self._name}/{key}", amount))
        except RuntimeError as error:
            self._fail_on(error)

    def _fail_on(self, error: RuntimeError) -> NoReturn:
        """A collective or the store failed: the heartbeat soon knows which rank is behind it."""
        end = time.monotonic() + 2 * self._limit_s  # it knows within the limit; a loaded machine may be late
        while not self._heartbeat.failure and time.monotonic() < end:
            time.sleep(_POLL_S)
        known = self._heartbeat.failure or "All ranks still give signs of life."
        # others may hear of this rank's end before their own heartbeat has found the rank behind it
        self.close(f"{known} Averaging failed on rank {self._rank}: {error}")
        raise RunFailedError(
            f"averaging round {self._joined} failed on rank {self._rank}. {known} Repair the session, resume the run. "
            f"The network says: {str(error)[:200]}"
        ) from error


def _check(parameters: list[torch.Tensor], every_s: float, limit_s: float) -> None:
    if not parameters or len({(tensor.dtype, tensor.device) for tensor in parameters}) != 1:
        kinds = sorted({f"{tensor.dtype} on {tensor.device}" for tensor in parameters})
        raise ConfigError(f"averaging needs tensors of one dtype on one device, not {kinds or 'none'}.")
    if every_s < 0 or limit_s <= 0:
        raise ConfigError(
            f"every_s={every_s:g}, limit_s={limit_s:g}: allowed are every_s of at least 0 and limit_s above 0."
        )
