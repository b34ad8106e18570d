"""A pattern of congestion outside the package: links become slow, and stay so."""

from __future__ import annotations

from dataclasses import dataclass

from dtdg_lab.network.links import LinkState
from dtdg_lab.network.patterns import Pattern, PatternSettings


@dataclass(frozen=True, slots=True)
class Dusk:
    """Clean links before an epoch, slow ones from there on."""

    slow: LinkState
    first_epoch: int

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links when ``share`` of an epoch has passed."""
        return self.slow if epoch >= self.first_epoch else LinkState.clean(self.slow.parts)


def dusk(settings: PatternSettings) -> Pattern:
    """All owners are slow from ``congestion_from`` on."""
    return Dusk(settings.slow_parts(*settings.all_owners), settings.first_epoch)
