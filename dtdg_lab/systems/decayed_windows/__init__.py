"""FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

from __future__ import annotations

from dtdg_lab.systems.base import SystemFamily


class DecayedWindowsFamily(SystemFamily):
    """FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

    name = "decayed_windows"


FAMILY = DecayedWindowsFamily()
