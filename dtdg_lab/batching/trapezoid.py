"""The shape of a window: how many snapshots are full, and how many chunks the decayed ones before them keep."""

from __future__ import annotations

from dataclasses import dataclass

from dtdg_lab.batching.decay import decayed_counts
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError

WHOLE_CHUNKS = 1  # of parts whose snapshots are always full


@dataclass(frozen=True, slots=True)
class Trapezoid:
    """What the batches of a run look like, near the start of a segment excepted.

    Attributes:
        window: W snapshots.
        full: K of them, the newest, are full.
        chunks: C of each part.
        alpha: how far chunks fall.
        decay: by which rule.

    Raises:
        ConfigError: the numbers do not fit.

    References: FlareDTDG section 3.2.
    """

    window: int
    full: int
    chunks: int
    alpha: float
    decay: str

    def __post_init__(self) -> None:
        if not 1 <= self.full <= self.window:
            raise ConfigError(
                f"full_snapshots={self.full} of window={self.window}: from 1 to the whole window are allowed. Set "
                "fewer full snapshots, or a longer window."
            )

    @classmethod
    def of(cls, config: RunConfig, *, chunks: int = WHOLE_CHUNKS) -> Trapezoid:
        """What a config asks for, of parts of ``chunks`` chunks each; without decayed snapshots there is one."""
        asked = config.options["batching"]
        window = asked["window"]
        if "alpha" not in asked:
            return cls(window, window, WHOLE_CHUNKS, 1.0, "text")
        return cls(window, asked["full_snapshots"], chunks, asked["alpha"], asked["decay"])

    @property
    def counts(self) -> tuple[int, ...]:
        """(m,) chunks of each decayed snapshot, newest first."""
        return decayed_counts(self.decay, chunks=self.chunks, alpha=self.alpha, decayed=self.window - self.full)
