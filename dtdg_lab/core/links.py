"""How slow the links between parts are: what is added to every reply of an owner of features to a requester."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError

BITS = 8e-6  # megabits of a byte


@dataclass(frozen=True, slots=True, eq=False)
class LinkState:
    """Delay and rate of every link, from the part that owns rows to the part that asks for them.

    Attributes:
        delay_s: (P, P) seconds added to a reply of owner o to requester r at ``[o, r]``, 0 or more.
        bytes_per_s: (P, P) at which replies pass, one after another; infinite where nothing limits it.

    Raises:
        ConfigError: the matrices do not fit, a delay is negative or a rate is not above 0.
    """

    delay_s: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        delay_s, bytes_per_s = (np.array(given, dtype=np.float64) for given in (self.delay_s, self.bytes_per_s))
        if delay_s.ndim != 2 or delay_s.shape[0] != delay_s.shape[1] or delay_s.shape != bytes_per_s.shape:
            raise ConfigError(
                f"links of delays {delay_s.shape} and rates {bytes_per_s.shape}: two square matrices of one size, a "
                "row for each owner and a column for each requester, are needed."
            )
        if not (delay_s >= 0).all() or np.isinf(delay_s).any() or not (bytes_per_s > 0).all():
            raise ConfigError(
                "links with a negative or endless delay, or a rate that is not above 0: give delays of 0 ms or more, "
                "and rates above 0 Mbit/s (none where nothing limits a link)."
            )
        for name, own in (("delay_s", delay_s), ("bytes_per_s", bytes_per_s)):
            own.setflags(write=False)
            object.__setattr__(self, name, own)

    @staticmethod
    def clean(parts: int) -> LinkState:
        """Links between P parts to which nothing is added."""
        return LinkState(np.zeros((parts, parts)), np.full((parts, parts), np.inf))

    @property
    def parts(self) -> int:
        """P."""
        return len(self.delay_s)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is added to any link."""
        return not self.delay_s.any() and bool(np.isinf(self.bytes_per_s).all())

    def with_(self, other: LinkState) -> LinkState:
        """Both at once: delays add up, the lower rate holds."""
        return LinkState(self.delay_s + other.delay_s, np.minimum(self.bytes_per_s, other.bytes_per_s))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinkState):
            return NotImplemented
        return np.array_equal(self.delay_s, other.delay_s) and np.array_equal(self.bytes_per_s, other.bytes_per_s)

    def __hash__(self) -> int:
        return hash((self.delay_s.tobytes(), self.bytes_per_s.tobytes()))

    def told(self) -> dict[str, Any]:
        """For records: ``delay_ms`` and ``mbit`` as lists of rows, one for each owner; a rate is None where endless."""
        mbit = [[None if np.isinf(rate) else rate * BITS for rate in row] for row in self.bytes_per_s.tolist()]
        return {"delay_ms": (self.delay_s * 1e3).tolist(), "mbit": mbit}
