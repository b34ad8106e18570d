"""Training in one process, the reference of all systems."""

from __future__ import annotations

from dtdg_lab.systems.base import SystemFamily


class SingleFamily(SystemFamily):
    """Training in one process, the reference of all systems."""

    name = "single"


FAMILY = SingleFamily()
