"""Watts that a machine is assumed to draw, where nothing measures them."""

from __future__ import annotations

from dataclasses import dataclass

from dtdg_lab.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """Idle and full power of a node's processors and of one GPU; power in between is linear in utilisation.

    A measured figure needs them too: what a phase of waiting drew is told from what a phase of computing drew by the
    idle power (see :mod:`dtdg_lab.energy.shares`); the sum stays the measured one.

    Attributes:
        idle_w: watts of a node's idle processors.
        max_w: watts of the node with all cores busy.
        gpu_idle_w: watts of an idle GPU.
        gpu_max_w: watts of a busy one; 0 where they are not known: such a GPU's energy stays unknown.

    Raises:
        ConfigError: a power is negative, or idle power is above full power.
    """

    idle_w: float
    max_w: float
    gpu_idle_w: float = 0.0
    gpu_max_w: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle_w <= self.max_w:
            raise ConfigError(
                f"idle_w={self.idle_w:g}, max_w={self.max_w:g}: powers must satisfy 0 <= idle_w <= max_w. "
                "Set power_idle_w and power_max_w in the config."
            )
        if self.gpu_idle_w < 0 or (self.gpu_max_w != 0 and self.gpu_max_w < self.gpu_idle_w):
            raise ConfigError(
                f"gpu_idle_w={self.gpu_idle_w:g}, gpu_max_w={self.gpu_max_w:g}: powers must satisfy "
                "0 <= gpu_idle_w <= gpu_max_w, or gpu_max_w = 0 where a GPU's power is not known. "
                "Set power_gpu_idle_w and power_gpu_max_w in the config."
            )
