"""Averaging with nobody else: one process that hears its own words at the times at which ranks would meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from dtdg_lab.comm.averager import NO_WORD, Round, Word, check_times, does_not_fit, word_of
from dtdg_lab.comm.shared_steps import SharedSteps


class AloneAverager:
    """What :class:`~dtdg_lab.comm.averaging.ModelAverager` is for several ranks, without torch.distributed.

    The mean of one model is that model, so parameters are not touched and nothing is sent. A round is joined and
    applied at the same step: every ``every_s`` seconds, and at once when the version has risen.

    Args:
        every_s: seconds between two rounds (T_mu); 0 has one after every step.
        asked: the newest word.
        start: the word that holds already.
        step: steps taken before.
        replay: the ``rounds`` of an earlier run: their words are heard at their steps, whatever the clock says.
        place: the epoch that is under way, and how many of its steps have been made before.

    Raises:
        ConfigError: a time is out of bounds, or the replay does not fit the steps.

    Attributes:
        agreed, rounds, step, bytes_sent: as :class:`~dtdg_lab.comm.averager.Averager` has them.
    """

    def __init__(
        self,
        *,
        every_s: float,
        asked: Callable[[], Word],
        start: Word = NO_WORD,
        step: int = 0,
        replay: Sequence[Round] | None = None,
        place: tuple[int, int] = (0, 0),
    ) -> None:
        self.every_s = every_s
        self.agreed, self.step, self.bytes_sent = start, step, 0
        self.rounds: list[Round] = []
        self._asked = asked
        self._replay = None if replay is None else list(replay)
        self._number, self._joined_step = 0, step
        self._counted: dict[str, int] = {}
        self._steps = SharedSteps(self._add, ranks=1, first=place)
        self._last_round_s = time.monotonic()
        self._finished = False
        if self._replay is not None:
            self._follow(self._replay)

    @property
    def every_s(self) -> float:
        """Seconds between two rounds, T_mu."""
        return self._every_s

    @every_s.setter
    def every_s(self, seconds: float) -> None:
        """Meet this often from here on; refused below 0."""
        check_times(seconds)
        self._every_s = seconds

    def control(self) -> None:
        """Hear the word after a step, where a round is due."""
        self.step += 1
        self.idle()

    def idle(self) -> None:
        """Hear the word without a step, where a round is due."""
        if self._replay is not None:
            self._follow(self._replay)
            return
        now, word = time.monotonic(), word_of(self._asked)
        if word.version > self.agreed.version or now >= self._last_round_s + self.every_s:
            self._last_round_s = now
            self._hear(word)

    def next_step(self, epoch: int, steps: int) -> int | None:
        """The number of the next step of an epoch; None where all of them are made."""
        return self._steps.take(epoch, steps)

    def taken(self) -> list[Round]:
        """The rounds since this was last called, oldest first."""
        rounds, self.rounds = self.rounds, []
        return rounds

    def finish(self, heard: Callable[[], None] = lambda: None) -> None:
        """Hear the last word, and call ``heard``; a second call does nothing."""
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
        self._hear(word, last=True)
        heard()

    def close(self, reason: str = "") -> None:
        """Leave without finishing; there is nobody to tell."""
        self._finished = True

    def __enter__(self) -> AloneAverager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.close(f"{type(error).__name__}: {error}")

    def _hear(self, word: Word, *, last: bool = False) -> None:
        self._number = 0 if last else self._number + 1
        self.agreed = word
        weight = 1.0 if last else float(self.step - self._joined_step)
        self._joined_step = self.step
        self.rounds.append(Round(self._number, self.step, self.step, weight, *word, gathered=last))

    def _add(self, counter: str, amount: int) -> int:
        self._counted[counter] = self._counted.get(counter, 0) + amount
        return self._counted[counter]

    def _follow(self, replay: list[Round]) -> None:
        """Hear the words of the recorded rounds of this step."""
        while replay and not replay[0].is_last and replay[0].joined_step <= self.step:
            if (replay[0].joined_step, replay[0].applied_step) != (self.step, self.step):
                raise does_not_fit(replay[0], self.step)
            self._hear(replay.pop(0).word)
