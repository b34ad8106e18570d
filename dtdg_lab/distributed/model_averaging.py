"""Asynchronous model averaging: rounds that never block a step, single-process averaging, and shared step budgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

import torch
import torch.distributed as dist

from dtdg_lab.config.record_tables import MAX_CONTROL_VERSION
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.distributed.group import Group, ProcessGroup
from dtdg_lab.distributed.heartbeat import Heartbeat, OtherRankError

# The control state of a round, and a recorded round.


MAX_CHOICE = 2**20  # well below 2^24, up to which a float32 slot holds every integer exactly


class ControlState(NamedTuple):
    """The control state that rank 0 distributes: the newest control version and the batch-size choice."""

    version: int = 0
    choice: int = 0


NO_WORD = ControlState()  # before anything was asked for


@dataclass(frozen=True, slots=True)
class Round:
    """One averaging round as this rank saw it: an event that an averager can replay.

    ``number`` counts an averager's rounds from 1; 0 is the round of all that ends it, so that the rounds of several
    successive averagers can be distinguished. ``joined_step`` and ``applied_step`` count this rank's steps, 1
    after the first; their difference is the staleness of the average, in steps. ``weight`` is the steps this rank made
    since it joined the round before, and in the round that ends all its share of the trained nodes. ``version`` and
    ``choice`` are the round's word. ``gathered`` says that the mean came while this rank waited for all to finish.
    """

    number: int
    joined_step: int
    applied_step: int
    weight: float = 1.0
    version: int = 0
    choice: int = 0
    gathered: bool = False

    @property
    def staleness(self) -> int:
        """Steps of this rank between contributing its model and applying the mean."""
        return self.applied_step - self.joined_step

    @property
    def word(self) -> ControlState:
        """The control state of this round."""
        return ControlState(self.version, self.choice)

    @property
    def is_last(self) -> bool:
        """Whether this is the final round of its averager."""
        return self.number == 0


def check_times(every_s: float, limit_s: float = 1.0) -> None:
    """Check the period and the time limit.

    Raises:
        ConfigError: the period is below 0 s, or the limit is not above 0 s.
    """
    if not 0 <= every_s < float("inf") or not limit_s > 0:
        raise ConfigError(
            f"every_s={every_s:g}, limit_s={limit_s:g}: every_s must be finite and at least 0 (0 averages after every "
            "step), and limit_s must be above 0."
        )


def word_of(asked: Callable[[], ControlState]) -> ControlState:
    """Rank 0's control state, validated for its slots in the buffer.

    Raises:
        ControlError: a version or choice is out of bounds.
    """
    word = asked()
    if not 0 <= word.version <= MAX_CONTROL_VERSION or not 0 <= word.choice <= MAX_CHOICE:
        raise ControlError(
            f"version {word.version}, choice {word.choice}: a round carries versions from 0 to {MAX_CONTROL_VERSION} "
            f"and choices from 0 to {MAX_CHOICE}. Start a new run, or resume this one."
        )
    return word


def does_not_fit(event: Round, step: int) -> ConfigError:
    """The error for a replayed round that cannot be followed at a step."""
    return ConfigError(
        f"replay: round {event.number or 'of all'} was joined at step {event.joined_step} with weight {event.weight:g} "
        f"and applied at step {event.applied_step}; this cannot be followed at step {step}. Replay the rounds of one "
        "averager and one rank, with the settings, data and ranks of their run."
    )


# The steps of an epoch as a budget shared by all ranks; a faster rank takes more of them.


LEASE_S = 0.05  # seconds of steps that a rank takes ahead at most


class SharedSteps:
    """Assigns every step of an epoch to one rank; ranks take several steps ahead, so most need no communication.

    A rank takes the steps that it makes in 50 ms, at least one, and at most a 2R-th of the remaining steps
    (guided self-scheduling). So a slow rank takes them one by one, and the last steps of an epoch are shared evenly.
    Steps that were taken stay with their rank. If it slows down among them, the others wait at the end of the run for
    all of them, not for one: 50 ms of work at its former pace at most, however long that takes at its new one.

    Every number of an epoch is given once, until a stop. A stop drops the steps that were taken and not made, and only
    the count of the steps made is kept. So a run that is resumed makes as many steps as are missing, and by number it
    may repeat some and leave out others.

    References: Polychronopoulos and Kuck, Guided self-scheduling, IEEE Transactions on Computers, 1987.

    Args:
        add: adds a number to a counter that all ranks share, and returns its new value: atomic, 0 before its first use.
        ranks: R.
        first: the epoch that is under way, and how many of its steps have been taken before.
        clock: seconds, of this rank.
    """

    def __init__(
        self,
        add: Callable[[str, int], int],
        *,
        ranks: int,
        first: tuple[int, int] = (0, 0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._add, self._ranks, self._first, self._clock = add, ranks, first, clock
        self._epoch = -1
        self._held = range(0)
        self._left = 0  # of the epoch, when this rank last asked
        self._made, self._wanted = 0, 1  # steps since then, and how many are made in 50 ms
        self._asked_s = clock()

    def take(self, epoch: int, steps: int) -> int | None:
        """The number of a step of an epoch, from 0, that is this rank's to make; None where all have been taken.

        Args:
            epoch: the same as last time, or a later one.
            steps: of the epoch, by all ranks together.
        """
        if epoch != self._epoch:
            self._epoch, self._held, self._left = epoch, range(0), steps
        if not self._held:
            self._ask(steps)
        if not self._held:
            return None
        number, self._held = self._held[0], self._held[1:]
        self._made += 1
        return number

    def _ask(self, steps: int) -> None:
        now_s = self._clock()
        if self._made:
            spent_s = max(now_s - self._asked_s, 1e-9)
            self._wanted = max(1, int(LEASE_S * self._made / spent_s))
        self._made, self._asked_s = 0, now_s
        lease = min(self._wanted, max(1, -(-self._left // (2 * self._ranks))))
        before = self._first[1] if self._epoch == self._first[0] else 0
        start = before + self._add(f"steps/{self._epoch}", lease) - lease
        self._held = range(min(start, steps), min(start + lease, steps))
        self._left = max(0, steps - start - lease)


class Averager:
    """Averages the models of ranks that train at their own pace, and distributes the control state.

    As a context it finishes at the end, or closes after an error.

    Args:
        every_s: seconds between two rounds (T_mu); 0 averages after every step.
        asked: returns the newest control state; called on rank 0 only.
        start: the current control state of all ranks.
        step: steps that this rank has made before.
        replay: the ``rounds`` of an earlier run of this rank, to be repeated at the recorded steps.
        steps: of an epoch, shared by all ranks.

    Attributes:
        every_s: seconds between two rounds (T_mu), at least 0; may be set while running, and rank 0's counts. 0 is a
            round after every step.
        agreed: the word of the newest applied round. All ranks see the same words in the same order, some of them
            later than others; a version may be several above the one before.
        rounds: rounds applied since :meth:`taken` was last called, oldest first.
        step: this rank's steps so far.
        bytes_sent: bytes this rank sent for averaging.
    """

    def __init__(
        self,
        *,
        every_s: float,
        asked: Callable[[], ControlState],
        start: ControlState,
        step: int,
        replay: Sequence[Round] | None,
        steps: SharedSteps,
    ) -> None:
        self.every_s = every_s
        self.agreed, self.step, self.bytes_sent = start, step, 0
        self.rounds: list[Round] = []
        self._asked, self._steps = asked, steps
        self._replay = None if replay is None else list(replay)
        self._number, self._joined_step = 0, step
        self._last_round_s = time.monotonic()
        self._finished = False

    @property
    def every_s(self) -> float:
        """Seconds between two rounds, T_mu; the value of rank 0 applies, and others take it with the next round."""
        return self._every_s

    @every_s.setter
    def every_s(self, seconds: float) -> None:
        """Set the period; values below 0 are refused."""
        check_times(seconds)
        self._every_s = seconds

    def control(self) -> None:
        """Serve the averaging after a step; returns at once unless ``every_s`` is 0 or rounds are replayed.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        self.step += 1
        self.idle()

    def idle(self) -> None:
        """Serve the averaging while no step is taken, as in a pause; call it every few milliseconds.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        raise NotImplementedError

    def next_step(self, epoch: int, steps: int) -> int | None:
        """The number of a step of an epoch that this rank is to make; None where all ``steps`` of it are taken.

        All ranks share the steps of an epoch; a faster rank is given more of them.

        Raises:
            OtherRankError: the store that counts them is gone.
        """
        return self._steps.take(epoch, steps)

    def taken(self) -> list[Round]:
        """The rounds applied since this was last called, oldest first."""
        rounds, self.rounds = self.rounds, []
        return rounds

    def finish(self, received: Callable[[], None] = lambda: None) -> None:
        """Return when all ranks have called it, with one model and one agreed word everywhere.

        Until then this rank keeps serving rounds and calls ``received`` after each. A second call does nothing.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        raise NotImplementedError

    def close(self, reason: str = "") -> None:
        """Leave without finishing; a reason is reported to the other ranks as a failure."""
        self._finished = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.close(f"{type(error).__name__}: {error}")


# Averaging in a single process: control states are applied at the times of rounds.


class SingleProcessAverager(Averager):
    """What :class:`~dtdg_lab.distributed.model_averaging.ModelAverager` is for several ranks, without
    torch.distributed.

    The mean of one model is that model, so parameters are not touched and nothing is sent. A round is joined and
    applied at the same step: every ``every_s`` seconds, and at once when the version has risen.

    Args:
        every_s: seconds between two rounds (T_mu); 0 has one after every step.
        asked: the newest word.
        start: the word that holds already.
        step: steps taken before.
        replay: the ``rounds`` of an earlier run; their control states are applied at the recorded steps.
        place: the epoch that is under way, and how many of its steps have been made before.

    Raises:
        ConfigError: a time is out of bounds, or the replay does not fit the steps.
    """

    def __init__(
        self,
        *,
        every_s: float,
        asked: Callable[[], ControlState],
        start: ControlState = NO_WORD,
        step: int = 0,
        replay: Sequence[Round] | None = None,
        place: tuple[int, int] = (0, 0),
    ) -> None:
        steps = SharedSteps(self._add, ranks=1, first=place)
        super().__init__(every_s=every_s, asked=asked, start=start, step=step, replay=replay, steps=steps)
        self._counted: dict[str, int] = {}
        if self._replay is not None:
            self._follow(self._replay)

    def idle(self) -> None:
        """Apply the control state without a step, if a round is due."""
        if self._replay is not None:
            self._follow(self._replay)
            return
        now, word = time.monotonic(), word_of(self._asked)
        if word.version > self.agreed.version or now >= self._last_round_s + self.every_s:
            self._last_round_s = now
            self._apply_control(word)

    def finish(self, received: Callable[[], None] = lambda: None) -> None:
        """Apply the last control state and call ``received``; a second call does nothing."""
        if self._finished:
            return
        self._finished = True
        if self._replay is None:
            word = word_of(self._asked)
        else:
            self._follow(self._replay)
            if self._replay and not self._replay[0].is_last:
                raise does_not_fit(self._replay[0], self.step)
            word = self._replay.pop(0).word if self._replay else self.agreed
        self._apply_control(word, last=True)
        received()

    def _apply_control(self, word: ControlState, *, last: bool = False) -> None:
        self._number = 0 if last else self._number + 1
        self.agreed = word
        weight = 1.0 if last else float(self.step - self._joined_step)
        self._joined_step = self.step
        self.rounds.append(Round(self._number, self.step, self.step, weight, *word, gathered=last))

    def _add(self, counter: str, amount: int) -> int:
        self._counted[counter] = self._counted.get(counter, 0) + amount
        return self._counted[counter]

    def _follow(self, replay: list[Round]) -> None:
        """Apply the control states of the recorded rounds of this step."""
        while replay and not replay[0].is_last and replay[0].joined_step <= self.step:
            if (replay[0].joined_step, replay[0].applied_step) != (self.step, self.step):
                raise does_not_fit(replay[0], self.step)
            self._apply_control(replay.pop(0).word)


# Asynchronous model averaging that never blocks a step, and distributes rank 0's control state.


_POLL_S = 0.002  # polling interval of a round while idle
_LOOK_S = 0.05  # maximum polling interval for a new round, and so the maximum delay of a stop
_SLOTS = 4  # after the parameters in the buffer: weight; rank 0's version, choice and period
_FAILURE = 2**40  # added to the round counter: no more rounds
_TYPES = (torch.float32, torch.float64)  # types whose slots hold a version exactly


class ModelAverager(Averager):
    """Averages the models of all ranks every T_mu seconds without blocking their training.

    Rank 0 numbers the rounds in the store. Every rank joins every round once: it copies its parameters, starts an
    asynchronous all-reduce of the copy, and continues with its steps. When the sum has arrived,
    ``parameters += mean - copy`` keeps the steps taken meanwhile. A model is weighted by its rank's steps since the
    previous round; the weight is part of the buffer. Finished ranks join rounds until all have finished. In a final
    round, a model is weighted by its rank's ``share`` of the training nodes, and all ranks get the same model. The
    number of ranks never shrinks: a dead rank is an error on all others.

    The buffer also carries rank 0's control state. A new version starts a round at once. It then takes effect after
    the other ranks' next check of the store (at most 50 ms) and their current step, without waiting for T_mu.

    With ``every_s=0`` ranks average after every step and wait for each other.

    Source: DynaHB, average of the models every T_mu seconds. Differs from the paper: no step waits for a round, so a
    mean may be some steps old (``Round.staleness``). The paper averages with equal weights and does not say how many
    steps a worker makes. Here ranks share the steps of an epoch [ours]. So a slow rank delays a run by the steps it has
    taken ahead: one, or at most 50 ms of work at its former pace. Weights by steps keep what a fast rank learned: with
    equal ones its many steps would count as much as the slow rank's few. In the round of all they are by nodes, so
    that the last steps of every part count. Before it, a part whose rank makes an n-th of the steps pulls the mean by
    about an n-th of an n-th.

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
        asked: returns the newest control state; called on rank 0 only, in every step.
        start: the current control state of all ranks.
        step: steps that this rank has made before.
        replay: the ``rounds`` of an earlier run of this rank: rounds are joined and applied at the recorded steps,
            with the recorded weights and control states. Rounds of a pause are replayed in the ``control()`` of
            their step.
        place: the current epoch, and how many of its steps all ranks have made before.
        share: this rank's weight in the final round, above 0.
        name: unique among the averagers of one store.
        count: called with the bytes sent (equal to those received) when a round is joined.

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
        asked: Callable[[], ControlState],
        naming_s: float | None = None,
        start: ControlState = NO_WORD,
        step: int = 0,
        replay: Sequence[Round] | None = None,
        place: tuple[int, int] = (0, 0),
        share: float = 1.0,
        name: str = "averaging",
        count: Callable[[int], None] = lambda moved: None,
    ) -> None:
        self._parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        _check(self._parameters)
        check_times(every_s, limit_s)
        self._rank, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        steps = SharedSteps(self._add, ranks=self._ranks, first=place)
        super().__init__(every_s=every_s, asked=asked, start=start, step=step, replay=replay, steps=steps)
        self._naming_s = 2 * limit_s if naming_s is None else naming_s
        self._group, self._store, self._name, self._count = group, store, name, count
        first = self._parameters[0]
        size = sum(tensor.numel() for tensor in self._parameters)
        self._copy = torch.empty(size, dtype=first.dtype, device=first.device)
        self._buffer = torch.empty(size + _SLOTS, dtype=first.dtype, device=first.device)
        self._work: dist.Work | None = None
        self._announced, self._joined_weight, self._carried = 0, 0.0, start.version
        self._share, self._ready, self._gathering = share, False, False
        self._next_look_s = 0.0
        if int(store.add(f"{name}/members", 1)) > self._ranks:
            raise ConfigError(f"name={name!r} was used on this store before. Give every averager its own name.")
        self._heartbeat = Heartbeat(store, self._rank, self._ranks, limit_s=limit_s, name=f"{name}/heartbeat")
        try:
            self._follow(self._replay or [])  # rounds of a pause before the first step
        except BaseException as error:
            self.close(f"{type(error).__name__}: {error}")
            raise

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
            self._one_round()
        else:
            self._apply_if_complete()
            self._serve()

    def next_step(self, epoch: int, steps: int) -> int | None:
        """The number of a step of an epoch that this rank is to make; None where all ``steps`` of it are taken.

        Most calls ask no other process: see :class:`~dtdg_lab.distributed.model_averaging.SharedSteps`. The first one
        returns when all ranks have called it or have finished, so that none takes the steps of one that still prepares.

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
            received: called after every round that is applied meanwhile, and after the last.

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
            with suppress(RuntimeError):  # the store is gone: every heartbeat finds that by itself
                self._store.add(f"{self._name}/round", _FAILURE)
        self._heartbeat.close()

    def _finish(self, received: Callable[[], None]) -> None:
        self._gathering = True
        if not self._ready:
            self._ready = bool(self._add("ready", 1))
        word, share = None, self._share
        if self._replay is None:
            self._serve_the_others(received)
        else:
            word, share = self._follow_to_the_end(self._replay)
        self._join(word, share)
        self._wait(last=True)
        received()

    def _begin(self) -> None:
        self._ready = True
        ready = self._add("ready", 1)
        while ready < self._ranks:
            self._heartbeat.check()
            time.sleep(_POLL_S / 10)
            ready = self._add("ready", 0)

    def _serve_the_others(self, received: Callable[[], None]) -> None:
        """Serve rounds until rank 0, seeing that all are done, says after which round to end.

        Only rank 0 decides the end, and starts no round after it: no rank leaves while a round may still start.
        """
        self._add("done", 1)
        nap_s = _POLL_S / 10  # short at first, for ranks in step; longer where others have far to go
        while True:
            self._heartbeat.check()
            under_way = self._work
            self._apply_if_complete()
            if under_way is not None and self._work is None:
                received()
            if self._work is None:
                if self._rank == 0 and self._add("done", 0) == self._ranks:
                    self._add("end", self._number + 1)
                    return
                if self._rank != 0 and self._add("end", 0) == self._number + 1:
                    return
            self._serve()
            time.sleep(nap_s)
            nap_s = min(1.2 * nap_s, 2 * _POLL_S)

    def _serve(self) -> None:
        """Call a round when it is due (rank 0), and join the next one that was called."""
        now = time.monotonic()
        if now >= self._next_look_s:
            self._announced = self._add("round", 0)
            # a look costs a trip to the store: ten a period are enough, and at most one a poll
            self._next_look_s = now + max(_POLL_S, min(self.every_s / 10, _LOOK_S))
        if self._work is None and self._rank == 0 and self._is_due(now):
            self._announced = self._add("round", 1)
            self._last_round_s = now
        if self._announced >= _FAILURE:
            self._heartbeat.hear()
            self._heartbeat.check()
        elif self._work is None and self._announced > self._number:
            self._join()

    def _is_due(self, now_s: float) -> bool:
        return now_s >= self._last_round_s + self.every_s or word_of(self._asked).version > self._carried

    def _one_round(self) -> None:
        """Average now and wait: join the next round as soon as rank 0 calls it."""
        while self._work is None:
            self._next_look_s = 0.0
            self._serve()
            self._heartbeat.check()
            if self._work is None:
                time.sleep(_POLL_S / 10)
        self._wait()

    def _join(self, word: ControlState | None = None, weight: float | None = None) -> None:
        """Give this rank's model to the next round, and rank 0's word: that given, or the newest.

        Its weight is that given, or the steps since this rank joined the round before.
        """
        if weight is None:
            weight = float(self.step - self._joined_step)
        period_s = self.every_s if self._rank == 0 else 0.0
        if self._rank != 0:
            word = NO_WORD
        elif word is None:
            word = word_of(self._asked)
        torch.cat([tensor.detach().reshape(-1) for tensor in self._parameters], out=self._copy)
        torch.mul(self._copy, weight, out=self._buffer[:-_SLOTS])
        self._buffer[-_SLOTS:] = self._buffer.new_tensor([weight, *word, period_s])
        self._work = dist.all_reduce(self._buffer, group=self._group, async_op=True)
        self._number += 1
        self._carried = max(self._carried, word.version)
        self._joined_step, self._joined_weight = self.step, weight
        moved = 2 * self._buffer.numel() * self._buffer.element_size() * (self._ranks - 1) // self._ranks
        self.bytes_sent += moved
        self._count(moved)

    def _apply_if_complete(self, *, last: bool = False) -> None:
        if self._work is None or not self._work.is_completed():
            return
        try:
            self._work.wait()
        except RuntimeError as error:
            self._fail_on(error)
        self._work = None
        weights, version, choice, period_s = self._buffer[-_SLOTS:].tolist()
        self.agreed = ControlState(round(version), round(choice))
        if self._rank != 0:
            self._every_s = period_s
        mean = self._buffer[:-_SLOTS].div_(weights or 1.0)
        if last:
            self._change_parameters(torch.Tensor.copy_, mean)
        elif weights > 0:
            self._change_parameters(torch.Tensor.add_, mean.sub_(self._copy))
        number = 0 if last else self._number
        seen = (number, self._joined_step, self.step, self._joined_weight, *self.agreed)
        self.rounds.append(Round(*seen, gathered=self._gathering))

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
        """Replay the recorded rounds of this step: apply one, join the next, or both."""
        while replay and not replay[0].is_last:
            event = replay[0]
            if self._work is None:
                if event.joined_step > self.step:
                    return
                if event.joined_step != self.step:
                    raise does_not_fit(event, self.step)
                self._join(event.word, event.weight)
            if event.applied_step > self.step or (event.gathered and not self._gathering):
                return
            self._wait()
            if (self.rounds[-1].applied_step, self.agreed) != (event.applied_step, event.word):
                raise does_not_fit(event, self.step)
            del replay[0]

    def _follow_to_the_end(self, replay: list[Round]) -> tuple[ControlState, float]:
        """Replay the remaining rounds; returns control state and weight of the final round, if recorded."""
        self._follow(replay)
        if self._work is not None or (replay and not replay[0].is_last):
            raise does_not_fit(replay[0], self.step)
        return (replay[0].word, replay[0].weight) if replay else (self.agreed, self._share)

    def _add(self, key: str, amount: int) -> int:
        try:
            return int(self._store.add(f"{self._name}/{key}", amount))
        except RuntimeError as error:
            self._fail_on(error)

    def _fail_on(self, error: RuntimeError) -> NoReturn:
        """A collective or the store failed: wait until the heartbeat knows the responsible rank, then raise."""
        end = time.monotonic() + self._naming_s  # extra time for a loaded machine
        while not self._heartbeat.failure and time.monotonic() < end:
            time.sleep(_POLL_S)
            self._heartbeat.hear()
        known = self._heartbeat.failure or "The rank that caused it is not known here."
        # other ranks may see this rank's end before their own heartbeat has found the cause
        self.close(f"{known} Averaging failed on rank {self._rank}: {error}")
        raise OtherRankError(
            f"averaging round {self._number} failed on rank {self._rank}. {known} Repair the session, resume the run. "
            f"Network error: {str(error)[:200]}"
        ) from error


def _check(parameters: list[torch.Tensor]) -> None:
    kinds = {(tensor.dtype, tensor.device) for tensor in parameters}
    if len(kinds) != 1 or next(iter(kinds))[0] not in _TYPES:
        described = sorted(f"{dtype} on {device}" for dtype, device in kinds)
        raise ConfigError(f"averaging needs tensors of float32 or of float64 on one device, not {described or 'none'}.")


# The averager that fits a group, whatever its number of ranks.


_NAMING_S = 0.5  # a run's beacons know of a dead rank sooner than heartbeats do, and name it in the error


def averager_for(
    group: Group,
    parameters: torch.Tensor | Sequence[torch.Tensor],
    *,
    every_s: float,
    asked: Callable[[], ControlState],
    name: str,
    start: ControlState = NO_WORD,
    step: int = 0,
    replay: Sequence[Round] | None = None,
    place: tuple[int, int] = (0, 0),
    share: float = 1.0,
    limit_s: float = 60.0,
) -> Averager:
    """The averager of a group's ranks: for one rank, one that sends nothing.

    All ranks call it together. The torch group and the store's connection of averagers are made once for a group and
    used by one averager after another. Bytes are counted in the group.

    Args:
        group: the processes of the run.
        parameters: a tensor or tensors of float32 or float64 on one device.
        every_s: seconds between two rounds (T_mu); 0 averages after every step.
        asked: the newest word; only rank 0's is called.
        name: new for each averager of a run.
        start: the word that all ranks hold already.
        step: steps this rank has taken before.
        replay: the rounds of an earlier run of this rank.
        place: the epoch that is under way, and how many of its steps all ranks have made before.
        share: of the trained nodes that this rank has, its weight in the round that ends all.
        limit_s: seconds of silence after which a rank counts as dead.

    Raises:
        ConfigError: as :class:`ModelAverager`.
        PlanError: the group came of a split.
    """
    if group.size == 1:
        return SingleProcessAverager(every_s=every_s, asked=asked, start=start, step=step, replay=replay, place=place)
    if not isinstance(group, ProcessGroup):
        raise ConfigError(f"averaging over {group.size} ranks needs a ProcessGroup, not a {type(group).__name__}.")
    torch_group, store = group.beside()

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
        asked=asked,
        start=start,
        step=step,
        replay=replay,
        place=place,
        share=share,
        name=name,
        count=count,
    )
