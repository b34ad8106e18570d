"""Names of the network conditions that measurements were taken under: "clean", "c1_200mbit", "c4_10ms"."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from dtdg_lab.core.errors import ConfigError, shortened

FORMS = '"clean", "c1_<X>mbit" or "c1_<X>" (X Mbit/s left to one owner), "c4_<Y>ms" or "c4_<Y>" (Y ms on one link)'
_NAMED = re.compile(r"c1_(?P<mbit>\d+(?:\.\d+)?)(?:mbit)?|c4_(?P<ms>\d+(?:\.\d+)?)(?:ms)?")


@dataclass(frozen=True, slots=True)
class Condition:
    """What one owner's traffic is subject to.

    Attributes:
        mbit: Mbit/s left to everything that it sends, infinite where nothing limits it.
        delay_ms: milliseconds added to what it sends.
    """

    mbit: float = np.inf
    delay_ms: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is done to it."""
        return self.delay_ms == 0.0 and self.mbit == np.inf

    @property
    def name(self) -> str:
        """The condition's name, in the long form."""
        if self.is_clean:
            return "clean"
        return f"c4_{self.delay_ms:g}ms" if self.delay_ms else f"c1_{self.mbit:g}mbit"


def condition(name: str) -> Condition:
    """What a name of the forms in ``FORMS`` stands for.

    Raises:
        ConfigError: it is of no such form, or throttles to nothing.
    """
    if not isinstance(name, str):
        raise ConfigError(f"a condition {shortened(name)}: a text is needed, one of {FORMS}.")
    text = name.strip().lower()
    found = _NAMED.fullmatch(text)
    if text != "clean" and found is None:
        raise ConfigError(f"unknown condition {shortened(name)}: allowed are {FORMS}.")
    if found is None or found["mbit"] is None:
        return Condition(delay_ms=float(found["ms"]) if found else 0.0)
    if float(found["mbit"]) <= 0:
        raise ConfigError(f"condition {shortened(name)}: a rate above 0 Mbit/s is needed; {FORMS}.")
    return Condition(mbit=float(found["mbit"]))
