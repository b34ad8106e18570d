"""Events of runs: one class for each kind, which writes the data of the table ``events`` and reads it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.records.fields import read_fields


@dataclass(frozen=True, slots=True)
class Event:
    """The data of one event; a family's own events are subclasses too.

    Attributes:
        kind: the name in the table.
        every_rank: whether every rank records its own; else rank 0 records it.
        about: its subject, in errors.
        ended: of a plan, the sentence that the run has no such plan from here on.
    """

    kind: ClassVar[str] = ""
    every_rank: ClassVar[bool] = False
    about: ClassVar[str] = ""
    ended: ClassVar[str] = ""

    @property
    def words(self) -> str:
        """A sentence for lists of events."""
        return ""

    def write(self) -> dict[str, Any]:
        """Return the data as recorded: arrays as lists, without fields that are None by default."""
        values = {field: getattr(self, field.name) for field in fields(self)}
        return {
            field.name: _plain(value)
            for field, value in values.items()
            if value is not None or field.default is MISSING
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """Return the event of recorded data, without names that this version does not know.

        Raises:
            DataError: something is missing, or does not fit the rest.
        """
        with reading_event(cls.about or cls.kind):
            event = read_fields(cls, cls.entries(data))
        event.check()
        return event

    @classmethod
    def read_plan(cls, data: Mapping[str, Any]) -> Self | None:
        """Return the plan of recorded data; None if the run's system has no such plan any more."""
        return None if plan_ended(data) else cls.read(data)

    @classmethod
    def text(cls, data: Mapping[str, Any]) -> str:
        """Return the sentence about recorded data."""
        event = cls.read_plan(data)
        return cls.ended if event is None else event.words

    @classmethod
    def entries(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return recorded data by the names of the fields."""
        return data

    def check(self) -> None:
        """Raise a DataError if values contradict each other."""


@contextmanager
def reading_event(subject: str) -> Iterator[None]:
    """Raise errors of the block, which reads the data of an event, as one error about its subject.

    Raises:
        DataError: the event lacks something, or has it in another shape.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"the event of {subject} cannot be drawn ({error!r}): was it recorded by another version?"
        ) from error


def plan_ended(data: Mapping[str, Any]) -> bool:
    """Return True if an event says that the run's system has no such plan from here on."""
    return "layout" in data and data["layout"] is None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


@dataclass(frozen=True, slots=True)
class AttemptStarted(Event):
    """An attempt began on rank 0."""

    kind: ClassVar[str] = "started"
    ranks: int
    attempt: int
    dataset: str
    source: str


@dataclass(frozen=True, slots=True)
class RegisteredCode(Event):
    """An attempt trains with code from outside the package.

    Attributes:
        code: kind and name, such as ``model 'smoothed'``.
        target: ``module:attribute``; empty where the code cannot be imported.
        sha256: the first digits, of its source; empty where that is not known.
    """

    kind: ClassVar[str] = "registered"
    code: str
    target: str
    sha256: str

    @property
    def words(self) -> str:
        """A sentence for lists of events."""
        digits = f" (source {self.sha256})" if self.sha256 else ""
        origin = self.target or "defined in a notebook or script, which other kernels cannot import"
        return f"{self.code} is registered code: {origin}{digits}"


@dataclass(frozen=True, slots=True)
class Preparing(Event):
    """A task of an attempt before its first step, with the seconds left if they are known."""

    kind: ClassVar[str] = "preparing"
    what: str
    left_s: float | None = None

    @property
    def words(self) -> str:
        """A text for a status line."""
        return self.what if self.left_s is None else f"{self.what}, about {self.left_s:.0f} s left"


@dataclass(frozen=True, slots=True)
class BetweenSteps(Preparing):
    """A task of rank 0 between two steps that takes more than a second, such as an evaluation; empty when it ends."""

    kind: ClassVar[str] = "between_steps"


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    """Training continues from a checkpoint, with ``changes`` of its settings."""

    kind: ClassVar[str] = "resumed"
    settings: dict[str, Any]
    changes: dict[str, Any]
    iteration: int
    data_checked: bool


@dataclass(frozen=True, slots=True)
class Kernel(Event):
    """The backend and device that compute, and the number of threads; the bits of sums depend on all.

    Attributes:
        kernel: requested kernel.
        memory_share: requested share of the memory.
        views_bytes: limit of cached views in each sequence of a rank; then of pulls and of activations.
        seconds: measured seconds of a snapshot's pulls by backend; None if nothing was measured.
    """

    kind: ClassVar[str] = "kernel"
    backend: str
    device: str
    threads: int
    kernel: str | None = None  # runs of older versions did not record it, nor what follows
    memory_share: float | None = None
    views_bytes: int | None = None
    pulls_bytes: int | None = None
    activation_bytes: int | None = None
    seconds: dict[str, float] | None = None


NOTEBOOK, PAGE, TUNER = "notebook", "page", "tuner"  # who changes settings; other names are those of programs


@dataclass(frozen=True, slots=True)
class Requested(Event):
    """Rank 0's control server accepted a request to change settings, which the ranks receive later.

    Attributes:
        version: version that the ranks will receive.
        by: its author, as in :class:`ControlReceived`.
        old: previous values of the settings to change.
    """

    kind: ClassVar[str] = "requested"
    version: int
    changes: dict[str, Any]
    by: str | None = None
    old: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ControlReceived(Event):
    """A control request was received, at a ``step``, an ``epoch`` or the ``end``.

    Attributes:
        by: its author: ``notebook``, ``page``, the name of a program, or ``replay of`` one of these; None if unknown.
        old: previous values of the settings to change.
    """

    kind: ClassVar[str] = "control_received"
    version: int
    request: dict[str, Any]
    received_at: str
    by: str | None = None
    old: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event):
    """Live settings changed ``when`` a step or an epoch began; every rank records it.

    Attributes:
        by: the policy that changed them, if no person did.
        duration_s: seconds of building the plan again.
        own_steps: whether ranks were at different steps.
    """

    kind: ClassVar[str] = "settings"
    version: int
    changes: dict[str, Any]
    when: str = "step"
    by: str | None = None
    duration_s: float | None = None
    own_steps: bool | None = None


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """Changes that could not be made, with the reason.

    Attributes:
        version: version of the newest request by then; None for a request that the ranks never received.
        by: the author of such a request.
        old: previous values of the settings to change.
    """

    kind: ClassVar[str] = "refused"
    version: int | None
    changes: dict[str, Any]
    reason: str
    by: str | None = None
    old: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """The run will end after this step."""

    kind: ClassVar[str] = "stopping"
    version: int


@dataclass(frozen=True, slots=True)
class Paused(Event):
    """All ranks wait."""

    kind: ClassVar[str] = "paused"
    version: int


@dataclass(frozen=True, slots=True)
class Unpaused(Event):
    """All ranks continue."""

    kind: ClassVar[str] = "unpaused"
    version: int


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """Training is over; ``parameters`` is their fingerprint."""

    kind: ClassVar[str] = "ended"
    parameters: str


@dataclass(frozen=True, slots=True)
class EpochEnded(Event):
    """The end of an epoch; without a time, this rank trained none or a part of it."""

    kind: ClassVar[str] = "epoch"
    epoch: int
    time_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MemoryFacts(Event):
    """Memory in use over one probed step of rank 0.

    Attributes:
        seconds: (S,) since the step began.
        bytes: (S,) in use.
        blocks: (second, number, pass) where a time block begins, in order.
    """

    kind: ClassVar[str] = "memory_trace"
    about: ClassVar[str] = "memory over time"
    seconds: NDArray[np.float64]
    bytes: NDArray[np.float64]
    blocks: tuple[tuple[float, int, str], ...]

    @property
    def count(self) -> int:
        """The number of time blocks in the step."""
        return len({number for _, number, _ in self.blocks})

    @property
    def peak_bytes(self) -> float:
        """The maximum of bytes in use; 0 without samples."""
        return float(self.bytes.max(initial=0.0))

    def span_of(self, sample: int) -> int:
        """Return the index in ``blocks`` of a sample; -1 before the first block."""
        return int(np.searchsorted([second for second, _, _ in self.blocks], self.seconds[sample], side="right")) - 1

    @property
    def words(self) -> str:
        """The peak and its block."""
        if not len(self.bytes):
            return "No memory was sampled."
        peak = format_bytes(self.peak_bytes)
        if not self.blocks:
            return f"The peak is {peak}."
        span = self.span_of(int(self.bytes.argmax()))
        _, number, pass_name = self.blocks[span]
        return f"The peak, {peak}, is {f'in {pass_name} of block {number}' if span >= 0 else 'before the first block'}."

    def check(self) -> None:
        """Raise a DataError unless every sample has one time."""
        times, samples = self.seconds, self.bytes
        if times.shape != samples.shape or times.ndim != 1:
            raise DataError(
                f"{len(times)} times of {len(samples)} samples of memory: was it recorded by another version?"
            )


@dataclass(frozen=True, slots=True)
class OverlapChosen(Event):
    """The choice whether exchanges overlap with computing, and the median epochs timed without and with it."""

    kind: ClassVar[str] = "overlap"
    about: ClassVar[str] = "overlapped exchanges"
    on: bool
    off_s: float
    on_s: float

    @property
    def words(self) -> str:
        """The choice and both times."""
        off, on = format_seconds(self.off_s), format_seconds(self.on_s)
        verb = "overlap" if self.on else "do not overlap"
        return f"Exchanges {verb} with computing: the median epoch took {off} without and {on} with it."


@dataclass(frozen=True, slots=True)
class CheckpointWritten(Event):
    """A checkpoint to resume from was written."""

    kind: ClassVar[str] = "checkpoint"
    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CheckpointKept(Event):
    """A checkpoint to fork from was written."""

    kind: ClassVar[str] = "kept"
    file: str
    epoch: int
    iteration: int
    step: int


@dataclass(frozen=True, slots=True)
class RanksGathered(Event):
    """The moment at which all ranks are at one step again: this rank's wait, and its traffic meanwhile."""

    kind: ClassVar[str] = "gathered"
    wait_s: float
    bytes_sent: int
    bytes_received: int
