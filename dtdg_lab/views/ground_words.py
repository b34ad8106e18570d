"""What the losses of several runs were measured on, in words, from their settings alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.protocols import PROTOCOLS

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow


def ground_words(runs: Sequence[tuple[str, RunWindow]]) -> str:
    """Protocol, gap and data of labelled runs where they share them, else that their losses cannot be compared."""
    if not runs:
        return ""
    configs = [window.config for _, window in runs]
    said = []
    if len(protocols := dict.fromkeys(config.protocol for config in configs)) > 1:
        said.append(f"These runs are scored by different protocols ({', '.join(protocols)}).")
    if len({_data(config) for config in configs}) > 1:
        said.append(f"These runs are of different data ({', '.join(dict.fromkeys(of.dataset for of in configs))}).")
    if len(tasks := dict.fromkeys(config["task"] for config in configs)) > 1:
        said.append(f"These runs have different tasks ({', '.join(tasks)}).")
    if said:
        return f"{' '.join(said)} Their losses cannot be compared."
    protocol, life = PROTOCOLS[configs[0].protocol], edge_life(configs[0])
    gap = "a purge gap" if life is None else f"{protocol.gap(life)} snapshot{'' if protocol.gap(life) == 1 else 's'}"
    left = "nothing" if protocol.leaky else gap
    return f"Protocol {protocol.name}, {left} left out at each boundary, on {configs[0].dataset}."


def edge_life(config: RunConfig) -> int | None:
    """Base intervals an edge lives; None for a stored graph, which alone knows."""
    if config.dataset.startswith(catalogue.STORED):
        return None
    life: int = config["edge_life"]
    return life


def _data(config: RunConfig) -> tuple[Any, ...]:
    """What decides the data of a run: other settings give other data, for all one knows before they are loaded."""
    generated = "generated_snapshots" in config.flat
    return (config.dataset, *sorted(config.options.get("datasets", {}).items()), config.seed if generated else 0)
