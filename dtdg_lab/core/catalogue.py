"""What the lab holds: one entry per algorithm and data set, and systems as compositions of entries.

ALGORITHMS.md is generated from here. Targets are strings, so that listing them imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from dtdg_lab.core.algorithm_entries import LAYOUTS, MODELS, TASKS
from dtdg_lab.core.batching_entries import BATCHINGS
from dtdg_lab.core.dataset_entries import DATASETS
from dtdg_lab.core.entry import Entry, System
from dtdg_lab.core.errors import UnknownNameError, UnsupportedError
from dtdg_lab.core.feature_entries import CONGESTIONS, FEATURE_PATHS
from dtdg_lab.core.memory_table import MEMORY_ON_LAYOUT
from dtdg_lab.core.partition_entries import PARTITIONERS
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.core.scheduler_entries import SCHEDULERS
from dtdg_lab.core.steering_entries import ADJUSTERS, EXCHANGES

ENTRIES: tuple[Entry, ...] = (
    *DATASETS, *MODELS, *TASKS, *LAYOUTS, *SCHEDULERS, *PARTITIONERS, *BATCHINGS,
    *ADJUSTERS, *EXCHANGES, *FEATURE_PATHS, *CONGESTIONS,
)  # fmt: skip

_HYBRID: Mapping[str, str] = MappingProxyType(
    {
        "parallel": "cached_vertex", "partition": "metis", "batching": "hybrid", "control": "none",
        "comm": "gradients",
    }
)  # fmt: skip

_HALO: Mapping[str, str] = MappingProxyType({"parallel": "halo_vertex", "congestion": "none"})

_WINDOW: Mapping[str, str] = MappingProxyType({"parallel": "halo_window", "partition": "metis", "congestion": "none"})

_REMOTE: Mapping[str, str] = MappingProxyType(
    {"parallel": "remote_feature", "partition": "metis", "batching": "neighbours", "congestion": "none"}
)

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
    System(
        name="blad", parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "consecutive"}),
        summary="Two consecutive snapshot groups at once on each part, with the activations of both alive.",
        source="DyGNeX section 5.1, baseline BLAD (Fu et al. 2023)",
        defaults=MappingProxyType({"groups_per_rank": 2, "pipelined": True}),
        differs_by="peak bytes (two groups' activations) and the schedule's assignment (neighbours in time)",
    ),
    System(
        name="dygnex-g", parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "dygnex_greedy"}),
        summary="Up to two snapshot groups a part and iteration, paired by their times: greedily.",
        source="DyGNeX section 4.3", defaults=MappingProxyType({"groups_per_rank": 2}),
        differs_by="the schedule's assignment and its predicted makespan",
    ),
    System(
        name="dygnex-l", parts=MappingProxyType({"parallel": "snapshot_group", "scheduling": "dygnex_ilp"}),
        summary="Up to two snapshot groups a part and iteration, scheduled by an integer programme.",
        source="DyGNeX section 4.2, appendix C", defaults=MappingProxyType({"groups_per_rank": 2}),
        differs_by="the schedule's assignment, its gap and solving time",
    ),
    System(
        name="esdg", parts=MappingProxyType({"parallel": "snapshot", "congestion": "none"}),
        summary="Full batch over snapshots in blocks of time; rows are redistributed to vertices for what runs through "
        "time, and back.",
        source="ESDG sections 3 and 4",
        differs_by="rows in links (redistribution) and in exchanges (legs)",
    ),
    System(
        name="esdg-hybrid", parts=MappingProxyType({"parallel": "snapshot", "congestion": "none"}),
        summary="As esdg, for snapshots too large for one rank: groups of ranks split each snapshot by rows.",
        source="ESDG section 6.5", defaults=MappingProxyType({"row_ranks": 2}),
        differs_by="rows in links (halo within a group of ranks beside the redistribution)",
    ),
    System(
        name="hypergraph-vertex", parts=MappingProxyType({**_HALO, "partition": "hypergraph"}),
        summary="Full batch over vertex parts that a hypergraph partitioner made to exchange few rows.",
        source="ESDG sections 4.1 and 6.4 (PaToH there, Mt-KaHyPar here)",
        differs_by="rows in links (the hypergraph's connectivity)",
    ),
    System(
        name="adgnn-t", parts=MappingProxyType({**_HALO, "partition": "metis"}),
        summary="Full batch over vertex parts, which exchange the rows of remote neighbours at every pull.",
        source="DynaHB section 7.1, baseline ADGNN-T (its partitioner is not told; METIS is ours)",
        differs_by="rows in links (halo) and bytes sent (halo and gradients)",
    ),
    System(
        name="pygt-dist", parts=MappingProxyType({"parallel": "cached_vertex", "partition": "metis"}),
        summary="Full batch over vertex parts with copies of their L-hop neighbours; gradients alone are exchanged.",
        source="DynaHB section 7.1, baseline PyGT-Dist (its partitioner is not told; METIS is ours)",
        differs_by="no rows in links, bytes sent (gradients) and replicated rows",
    ),
    System(
        name="dbov", parts=_HYBRID, defaults=MappingProxyType({"batch_snapshots": 1.0}),
        summary="Vertex batches: some vertices of every part, in all snapshots.",
        source="DynaHB section 6.1, baseline DBoV (its partitioner is not told; METIS is ours)",
        differs_by="targets (all snapshots of some vertices) and seconds of batches",
    ),
    System(
        name="dbos", parts=_HYBRID, defaults=MappingProxyType({"batch_vertices": 1.0}),
        summary="Snapshot batches: all vertices of every part, in some consecutive snapshots.",
        source="DynaHB section 6.1, baseline DBoS (its partitioner is not told; METIS is ours)",
        differs_by="targets (some snapshots of all vertices)",
    ),
    System(
        name="bvr", parts=_HYBRID, defaults=MappingProxyType({"batch_snapshots": 1.0, "reservoir": True}),
        summary="As dbov, with batches generated beside training and kept in a reservoir.",
        source="DynaHB section 6.1, baseline DBoV-Reservoir (BVR)",
        differs_by="rows in reservoir and the source in targets",
    ),
    System(
        name="dynahb",
        parts=MappingProxyType({**_HYBRID, "partition": "load_aware", "control": "dqn", "comm": "models"}),
        defaults=MappingProxyType({"reservoir": True}),
        summary="Hybrid batches of some snapshots and some vertices, sized by a DQN and kept in a reservoir; models "
        "are averaged now and then, and no step waits.",
        source="DynaHB sections 4 and 5",
        differs_by="rows in rounds (averaging) and in decisions (sizes)",
    ),
    System(
        name="flaredtdg",
        parts=MappingProxyType({**_WINDOW, "batching": "trapezoid"}),
        summary="Hybrid batches: full recent snapshots, decaying older ones; nothing re-indexed, exchanges overlapped.",
        source="FlareDTDG section 3",
        differs_by="rows in batches (a trapezoid) and steps per epoch (one for each snapshot)",
    ),
    System(
        name="full-history",
        parts=MappingProxyType({**_WINDOW, "batching": "full_window"}),
        summary="As flaredtdg, with every snapshot of the window whole.", source="FlareDTDG section 4.3",
        differs_by="rows in batches (all of every snapshot) and peak bytes",
    ),
    System(
        name="recent-only",
        parts=MappingProxyType({**_WINDOW, "batching": "full_window"}),
        defaults=MappingProxyType({"window": 2}),
        summary="As flaredtdg, with the newest two snapshots alone; what came before is in the state they begin with.",
        source="FlareDTDG section 4.3",
        differs_by="rows in batches (two snapshots) and peak bytes",
    ),
    System(
        name="dynagraph",
        parts=MappingProxyType({"parallel": "sampled_window", "partition": "hash", "batching": "sampled_window"}),
        summary="Sliding windows with sampled neighbours, aggregations kept between windows, parts dealt anew each "
        "epoch.",
        source="FlareDTDG section 4.1, baseline DynaGraph (Guan et al. 2022)",
        differs_by="edges in batches (sampled) and no rows in links",
    ),
    System(
        name="dgl-default", parts=MappingProxyType({**_REMOTE, "features": "on_demand"}),
        summary="Mini-batches with sampled neighbours; features of other parts' vertices are fetched when needed.",
        source="GreenDyGNN section VI-A, baseline Default DGL (DistDGL)",
        differs_by="rows in fetches (misses alone) and resolved (waited for in every step)",
    ),
    System(
        name="bgl", parts=MappingProxyType({**_REMOTE, "features": "prefetch"}),
        summary="As dgl-default, sampled and fetched ahead of training.",
        source="GreenDyGNN section VI-A, baseline BGL (Liu et al. 2023); its tiers of caches are left out",
        differs_by="resolved (wait_s below resolve_s)",
    ),
    System(
        name="rapidgnn", parts=MappingProxyType({**_REMOTE, "features": "epoch_hot"}),
        summary="As bgl, with a cache of the rows that an epoch asks for most, known by sampling it beforehand.",
        source="GreenDyGNN section VI-A, baseline RapidGNN (2025)",
        differs_by="rows in windows (one an epoch)",
    ),
    System(
        name="fixed-window", parts=MappingProxyType({**_REMOTE, "features": "fixed"}),
        summary="As bgl, with a cache rebuilt every W steps for the W that follow.",
        source="GreenDyGNN section VI-H, without RL",
        differs_by="rows in windows (of W steps)",
    ),
    System(
        name="threshold-window", parts=MappingProxyType({**_REMOTE, "features": "threshold"}),
        summary="As fixed-window, with a shorter window where a link is found slow.",
        source="GreenDyGNN equation 7, whose text is lost; the thresholds are ours",
        differs_by="windows (policy and length)",
    ),
    System(
        name="greendygnn", parts=MappingProxyType({**_REMOTE, "features": "double_dqn"}),
        summary="As fixed-window, with window and allocation chosen at every rebuild by a Double DQN as the paper has "
        "it; cache_policy double_dqn_plus and planner are ours, and do better.",
        source="GreenDyGNN sections IV and V",
        differs_by="rows in cache_decisions (values of 8 P actions)",
    ),
    System(
        name="clairvoyant", parts=MappingProxyType({**_REMOTE, "features": "clairvoyant"}),
        summary="As greendygnn, with windows that are optimal in the cost model for congestion known beforehand.",
        source="ours: dynamic programming over rebuilds",
        differs_by="cache_decisions (policy)",
    ),
)  # fmt: skip

TRAINING_OPTIONS = (
    "optimizer", "dtype", "kernel", "norm", "self_loops", "evaluate_every", "checkpoint_every_s", "keep_every",
    "slow_rank", "slow_ms",
)  # fmt: skip
TASK_OPTIONS = ("task", "link_share", "negatives", "ranking_negatives", "link_head")
ENERGY_OPTIONS = ("power_idle_w", "power_max_w", "power_gpu_idle_w", "power_gpu_max_w")


STORED = "graph:"  # the prefix of names of graphs that were stored under their hash


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


def check_links(text: str, parts: int) -> None:
    """Refuse links set by hand that P parts do not have, or whose text is not understood.

    Raises:
        ConfigError: as :func:`dtdg_lab.congestion.links_text.parse_links` says.
    """
    if text.strip():
        importlib.import_module("dtdg_lab.congestion.links_text").parse_links(text, parts)


def check_memory(model: str, layout: str) -> str:
    """How ``layout`` keeps the memory of ``model``: ``exact`` or a named approximation.

    Raises:
        UnsupportedError: the layout cannot carry it; the message names the layouts that can.
    """
    memory = entry("models", model).memory
    kept = MEMORY_ON_LAYOUT.get((memory, layout))
    if kept is None:
        able = [other for (kind, other) in MEMORY_ON_LAYOUT if kind == memory and other in names("parallel")]
        raise UnsupportedError(
            f"model {model!r} remembers {memory}, which layout {layout!r} cannot carry. "
            f"Layouts that can: {', '.join(able) or 'none yet'}."
        )
    return kept


def check_task(dataset: str, task: str) -> None:
    """Refuse a task that a data set of the catalogue has no labels for; a stored graph is looked at when it is loaded.

    Raises:
        UnsupportedError: the data set does not serve the task; the message names the tasks it serves.
    """
    if dataset.startswith(STORED):
        return
    able = entry("datasets", dataset).tasks
    if task not in able:
        labelled = [name for name in names("datasets") if task in entry("datasets", name).tasks]
        raise UnsupportedError(
            f"task={task!r} on data set {dataset!r}, which serves {', '.join(able)}. "
            f"Data sets with {task}: {', '.join(labelled)}."
        )


def option_owners(system_name: str, dataset: str, model: str) -> dict[str, tuple[str, ...]]:
    """Room -> names of the options that a run of this system on this data set and model reads."""
    chosen = system(system_name)
    data = entry("datasets", dataset).options if not dataset.startswith(STORED) else ()
    owners: dict[str, tuple[str, ...]] = {"datasets": data, "models": entry("models", model).options}
    for room, name in chosen.parts.items():
        owners[room] = entry(room, name).options
    return {**owners, "tasks": TASK_OPTIONS, "training": TRAINING_OPTIONS, "energy": ENERGY_OPTIONS}


def describe(name: str) -> str:
    """What the catalogue says about a system, algorithm, data set or protocol, as a few lines of text.

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
    if name in PROTOCOLS:
        protocol = PROTOCOLS[name]
        lines += [f"protocol {name}: {protocol.meaning}", f"  source: {protocol.source}"]
        brings = ", ".join(f"{key}={value}" for key, value in protocol.settings.items())
        lines += [f"  brings: {brings}"] if brings else []
    if not lines:
        known = {*names("systems"), *PROTOCOLS, *(candidate.name for candidate in ENTRIES)}
        raise UnknownNameError("name", name, known)
    return "\n".join(lines)
