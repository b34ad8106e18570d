"""What the loop sees of model averaging: the word that rides in a round, a round as a rank saw it, who serves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol

from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.core.records import MAX_CONTROL_VERSION

MAX_CHOICE = 2**20  # with room to spare below 2^24, up to where a float32 slot holds every integer exactly


class Word(NamedTuple):
    """What rank 0 wants all ranks to follow: the newest control version, and the adjuster's action."""

    version: int = 0
    choice: int = 0


NO_WORD = Word()  # before anything was asked for


@dataclass(frozen=True, slots=True)
class Round:
    """One averaging round as this rank saw it: an event that an averager can replay.

    ``number`` counts an averager's rounds from 1; 0 is the round of all that ends it, so that the rounds of several
    averagers, one after another, can be told apart. ``joined_step`` and ``applied_step`` count this rank's steps, 1
    after the first; their difference is the staleness of the average, in steps. ``weight`` is the steps this rank made
    since it joined the round before, and in the round that ends all its share of the trained vertices. ``version`` and
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
        """Steps this rank took between giving its model and receiving the mean."""
        return self.applied_step - self.joined_step

    @property
    def word(self) -> Word:
        """What all ranks agreed on in this round."""
        return Word(self.version, self.choice)

    @property
    def is_last(self) -> bool:
        """Whether this is the round of all that ended its averager."""
        return self.number == 0


class Averager(Protocol):
    """Keeps the models of ranks together while each steps at its own pace, and tells them one word.

    Attributes:
        every_s: seconds between two rounds (T_mu), at least 0; may be set while running, and rank 0's counts. 0 is a
            round after every step.
        agreed: the word of the newest applied round. All ranks see the same words in the same order, some of them
            later than others; a version may be several above the one before.
        rounds: rounds applied since :meth:`taken` was last called, oldest first.
        step: this rank's steps so far.
        bytes_sent: bytes this rank sent for averaging.
    """

    every_s: float
    agreed: Word
    rounds: list[Round]
    step: int
    bytes_sent: int

    def control(self) -> None:
        """Serve the averaging after a step; returns at once unless ``every_s`` is 0 or rounds are replayed.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        ...

    def idle(self) -> None:
        """Serve the averaging while no step is taken, as in a pause; call it every few milliseconds.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        ...

    def next_step(self, epoch: int, steps: int) -> int | None:
        """The number of a step of an epoch that this rank is to make; None where all ``steps`` of it are taken.

        All ranks share the steps of an epoch; a faster rank is given more of them.

        Raises:
            OtherRankError: the store that counts them is gone.
        """
        ...

    def taken(self) -> list[Round]:
        """The rounds applied since this was last called, oldest first."""
        ...

    def finish(self, heard: Callable[[], None] = ...) -> None:
        """Return when all ranks have called it, with one model and one agreed word everywhere.

        Until then this rank goes on serving rounds and calls ``heard`` after each. A second call does nothing.

        Raises:
            OtherRankError: a rank died or failed; the message names what is known.
        """
        ...

    def close(self, reason: str = "") -> None:
        """Leave without finishing; a reason tells the other ranks that the run has failed here."""
        ...

    def __enter__(self) -> Averager: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def check_times(every_s: float, limit_s: float = 1.0) -> None:
    """Refuse times that mean nothing.

    Raises:
        ConfigError: the period is below 0 s, or the limit is not above 0 s.
    """
    if not 0 <= every_s < float("inf") or not limit_s > 0:
        raise ConfigError(
            f"every_s={every_s:g}, limit_s={limit_s:g}: allowed are a finite every_s of at least 0 (0 is a round after "
            "every step) and a limit_s above 0. Give seconds within these."
        )


def word_of(asked: Callable[[], Word]) -> Word:
    """Rank 0's word, if it fits the slots it rides in.

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
