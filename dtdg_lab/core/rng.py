"""Counter-based random streams: every draw is a pure function of (seed, name, counters).

No generator state is saved: a run resumed at epoch 7 draws the same numbers as an uninterrupted run.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np

from dtdg_lab.core.errors import ConfigError


def key(seed: int, name: str, *counters: int) -> int:
    """Return a 128-bit key for the stream ``name`` at ``counters`` (epoch, step, node, ...), the same on every machine.

    Raises:
        ConfigError: the name ends in a number, so that two streams could be the same (``"a/2"`` and ``"a", 2``).
    """
    if re.fullmatch(r"(.*/)?-?\d*", name, re.DOTALL):
        raise ConfigError(
            f"stream name {name!r} is empty or ends in a number. End it in a word, and pass numbers as counters."
        )
    text = "/".join([str(int(seed)), name, *(str(int(counter)) for counter in counters)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


def generator(seed: int, name: str, *counters: int) -> np.random.Generator:
    """Return a numpy generator (Philox) at the start of the stream ``name`` at ``counters``."""
    return np.random.Generator(np.random.Philox(key=key(seed, name, *counters)))


def torch_seed(seed: int, name: str, *counters: int) -> int:
    """Return a 63-bit seed for ``torch.Generator().manual_seed`` at the start of the stream."""
    return key(seed, name, *counters) >> 65
