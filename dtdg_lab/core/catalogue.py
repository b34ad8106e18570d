"""What the lab holds: one entry per algorithm, and systems as compositions of entries.

ALGORITHMS.md is generated from here. Targets are strings, so that listing them imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import UnknownNameError, UnsupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One algorithm: where it lives, where it comes from, and the options it reads."""

    name: str
    room: str
    target: str
    summary: str
    source: str
    options: tuple[str, ...] = ()
    memory: str = ""

    def load(self) -> Any:
        """Import and return the class or function this entry names."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A training system: a choice of one entry per room, with the options whose defaults it changes."""

    name: str
    parts: Mapping[str, str]
    summary: str
    source: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    differs_by: str = ""


ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="collegemsg", room="datasets", target="dtdg_lab.datasets.snap:COLLEGEMSG",
        summary="Private messages of a college network, 193 days, cut every 2.2 days.",
        source="Panzarasa, Opsahl, Carley 2009; SNAP CollegeMsg; window of EvolveGCN",
        options=("cut", "edge_life", "features"),
    ),
    Entry(
        name="email-eu", room="datasets", target="dtdg_lab.datasets.snap:EMAIL_EU",
        summary="E-mail of a European research institution, 803 days, cut every week.",
        source="Paranjape, Benson, Leskovec 2017; SNAP email-Eu-core-temporal",
        options=("cut", "edge_life", "features"),
    ),
    Entry(
        name="mathoverflow", room="datasets", target="dtdg_lab.datasets.snap:MATHOVERFLOW",
        summary="Answers and comments on MathOverflow, 2350 days, cut every 30 days.",
        source="Paranjape, Benson, Leskovec 2017; SNAP sx-mathoverflow",
        options=("cut", "edge_life", "features"),
    ),
    Entry(
        name="growing", room="datasets", target="dtdg_lab.datasets.growing:GROWING",
        summary="Seeded generator: a graph with popular vertices that grows linearly and renews a tenth of its edges.",
        source="ours; growth curve of DyGNeX section 7 (linear, 5 % noise)",
        options=("edge_life", "features", "generated_nodes", "generated_edges", "generated_snapshots", "growth"),
    ),
    Entry(
        name="tgcn", room="models", target="dtdg_lab.models.tgcn:TGCN", memory="per_vertex",
        summary="Graph convolution, then a GRU per vertex; the hidden state is never convolved.",
        source="Zhao et al. 2019 (T-GCN), sections III-B, III-C", options=("gc_layers",),
    ),
    Entry(
        name="evolvegcn-o", room="models", target="dtdg_lab.models.evolvegcn_o:EvolveGCNO", memory="weights",
        summary="Graph convolution whose weights evolve through time by an LSTM; vertices carry no state.",
        source="Pareja et al. 2020 (EvolveGCN), section 3.2",
    ),
    Entry(
        name="single", room="parallel", target="dtdg_lab.parallel.single:SingleLayout",
        summary="The whole training sequence as one batch in one process: the reference.", source="ours",
    ),
    Entry(
        name="snapshot_group", room="parallel", target="dtdg_lab.parallel.snapshot_group:SnapshotGroupLayout",
        summary="Each part computes whole groups of consecutive snapshots; gradients are summed over ranks.",
        source="DyGNeX sections 3 and 4", options=("group_window", "group_stride", "loss_at"),
    ),
    Entry(
        name="round_robin", room="scheduling", target="dtdg_lab.scheduling.round_robin:schedule",
        summary="Groups in time order, dealt to parts in turn.", source="DyGNeX section 2.3 (PSG)",
        options=("scheduler", "groups_per_rank"),
    ),
    Entry(
        name="longest_first", room="scheduling", target="dtdg_lab.scheduling.longest_first:schedule",
        summary="Groups sorted by predicted time; each iteration takes the longest left, so that its parts are alike.",
        source="Graham 1969 (LPT), applied per iteration", options=("scheduler", "groups_per_rank"),
    ),
)  # fmt: skip

SYSTEMS: tuple[System, ...] = (
    System(
        name="single", parts=MappingProxyType({"parallel": "single"}),
        summary="Full batch in one process; what the others are compared with.", source="ours",
        differs_by="steps per epoch (1) and bytes sent (0)",
    ),
    System(
        name="psg", parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "round_robin"}),
        summary="Data-parallel over snapshot groups, one group per part and iteration, in time order.",
        source="DyGNeX section 2.3; the baseline PSG",
        differs_by="steps per epoch (groups over parts) and bytes sent (gradients)",
    ),
)  # fmt: skip

# SYSTEMS.md "memory x layout": why a cell is refused, or how it is kept. Missing cells are refused.
MEMORY_ON_LAYOUT: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("per_vertex", "single"): "exact",
        ("per_vertex", "snapshot_group"): "exact",
        ("weights", "single"): "exact",
        ("weights", "snapshot_group"): "exact",
    }
)

TRAINING_OPTIONS = ("optimizer", "dtype", "kernel", "evaluate_every", "checkpoint_every_s", "slow_rank", "slow_ms")
ENERGY_OPTIONS = ("power_idle_w", "power_max_w")


def names(room: str) -> tuple[str, ...]:
    """Names of a room's entries, or of the systems for ``room="systems"``, in the catalogue's order."""
    if room == "systems":
        return tuple(system.name for system in SYSTEMS)
    return tuple(entry.name for entry in ENTRIES if entry.room == room)


def entry(room: str, name: str) -> Entry:
    """The entry ``name`` of ``room``.

    Raises:
        UnknownNameError: the room has no such entry.
    """
    for candidate in ENTRIES:
        if (candidate.room, candidate.name) == (room, name):
            return candidate
    raise UnknownNameError(f"entry of {room}", name, names(room))


def system(name: str) -> System:
    """The system called ``name``.

    Raises:
        UnknownNameError: there is no such system.
    """
    for candidate in SYSTEMS:
        if candidate.name == name:
            return candidate
    raise UnknownNameError("system", name, names("systems"))


def check_memory(model: str, layout: str) -> str:
    """How ``layout`` keeps the memory of ``model``: ``exact`` or a named approximation.

    Raises:
        UnsupportedError: the layout cannot carry it; the message names the layouts that can.
    """
    memory = entry("models", model).memory
    kept = MEMORY_ON_LAYOUT.get((memory, layout))
    if kept is None:
        able = [other for (kind, other) in MEMORY_ON_LAYOUT if kind == memory]
        raise UnsupportedError(
            f"model {model!r} remembers {memory}, which layout {layout!r} cannot carry. "
            f"Layouts that can: {', '.join(able) or 'none yet'}."
        )
    return kept


def option_owners(system_name: str, dataset: str, model: str) -> dict[str, tuple[str, ...]]:
    """Room -> names of the options that a run of this system on this data set and model reads."""
    chosen = system(system_name)
    data = entry("datasets", dataset).options if not dataset.startswith("graph:") else ()
    owners: dict[str, tuple[str, ...]] = {"datasets": data, "models": entry("models", model).options}
    for room, name in chosen.parts.items():
        owners[room] = entry(room, name).options
    return {**owners, "training": TRAINING_OPTIONS, "energy": ENERGY_OPTIONS}


def describe(name: str) -> str:
    """What the catalogue says about a system, algorithm or data set, as a few lines of text.

    Raises:
        UnknownNameError: the catalogue does not hold the name.
    """
    lines = []
    for chosen in SYSTEMS:
        if chosen.name == name:
            made_of = ", ".join(f"{room}: {part}" for room, part in chosen.parts.items())
            lines += [f"system {name}: {chosen.summary}", f"  made of {made_of}", f"  source: {chosen.source}"]
    for candidate in ENTRIES:
        if candidate.name == name:
            lines += [f"{candidate.room} {name}: {candidate.summary}", f"  source: {candidate.source}"]
            lines += [f"  options: {', '.join(candidate.options)}"] if candidate.options else []
    if not lines:
        raise UnknownNameError("name", name, {*names("systems"), *(candidate.name for candidate in ENTRIES)})
    return "\n".join(lines)
