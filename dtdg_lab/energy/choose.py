"""Which energy readers a rank has: what can be measured is, the rest is modelled, and the notes say which."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.modelled import ModelledReader
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.rapl import POWERCAP, RaplReader
from dtdg_lab.energy.reader import EnergyReader


def readers_for(
    device: Literal["cpu", "cuda"],
    *,
    local_rank: int,
    local_ranks: int,
    device_index: int | str | None = None,
    idle_w: float,
    max_w: float,
    rapl_root: Path | str = POWERCAP,
) -> tuple[list[EnergyReader], list[str]]:
    """The readers of one rank, such that all ranks of a node together count the node once.

    A GPU is read by the rank that computes on it. The processors are read from RAPL by local rank 0 alone, for the
    whole node; where RAPL cannot be read, each rank models its own share of them, on GPU machines as well.

    Args:
        device: where the rank computes.
        local_rank: the rank's number on its node, from 0.
        local_ranks: ranks on the node.
        device_index: CUDA index or UUID of the rank's GPU; ``local_rank`` by default.
        idle_w: assumed watts of the node's idle processors, for the model.
        max_w: assumed watts of the node with all cores busy, for the model.
        rapl_root: the powercap folder.

    Returns:
        The readers, and notes on what could not be read and what is done instead.

    Raises:
        ConfigError: ``device`` or ``local_rank`` is not one of those allowed, or the powers make no sense.
    """
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"device={device!r}: energy is read for 'cpu' or 'cuda'.")
    if not 0 <= local_rank < local_ranks:
        raise ConfigError(
            f"local_rank={local_rank} of local_ranks={local_ranks}: a number from 0 to {local_ranks - 1}."
        )
    readers: list[EnergyReader] = []
    notes: list[str] = []
    if device == "cuda":
        try:
            readers.append(NvmlReader(local_rank if device_index is None else device_index))
        except NotAvailableError as error:
            notes.append(f"GPU energy is unknown: {error}")
    try:
        node = RaplReader(rapl_root)
    except NotAvailableError as error:
        notes.append(f"processor energy is modelled from {idle_w:g} W idle and {max_w:g} W busy, not measured: {error}")
        readers.append(ModelledReader(ranks_on_node=local_ranks, idle_w=idle_w, max_w=max_w))
        return readers, notes
    if local_rank == 0:
        readers.append(node)
    else:
        notes.append("processor energy is read once for the node, by its local rank 0.")
    return readers, notes
