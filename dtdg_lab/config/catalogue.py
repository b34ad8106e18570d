"""The catalogue: one entry per algorithm and data set, and systems as compositions of entries.

``config/catalogue.toml`` and ``config/datasets.toml`` have the shared entries. ``family.toml`` in the folder of each
family of systems has the family's own entries, options and record tables. ALGORITHMS.md is generated from them. Targets
are text, so that listing entries imports no algorithm.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import UnknownNameError, UnsupportedError

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One algorithm or data set: its code, its source, and the options it reads.

    Attributes:
        name: its name in a config.
        kind: such as ``models`` or ``scheduling``; also the group of its options in a config.
        target: ``module:attribute``.
        summary: one sentence.
        source: paper and section, or data collection.
        options: names of the options it reads.
        defaults: values of options that replace the glossary's defaults.
        tasks: of a data set, the tasks that it has labels for; empty for those that need no classes.
        needs: of a task, the labels that a graph must have: some of :data:`LABELS`.
        per_vertex: of a task, whether its loss is a sum over nodes.
        loss: of a task, the name of its loss in charts.
        metrics: of a task, shares of 1, larger is better; charts show the first one available beside the loss.
        all_nodes: of a strategy, whether it has all nodes of a snapshot at once, which a loss over pairs needs.
        value: the algorithm itself, if no text leads to it, such as a class of a notebook cell.
    """

    name: str
    kind: str
    target: str
    summary: str
    source: str
    options: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    tasks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    per_vertex: bool = True
    loss: str = "loss"
    metrics: tuple[str, ...] = ()
    all_nodes: bool = True
    value: Any = field(default=None, compare=False, repr=False)

    def load(self) -> Any:
        """Return the class, function or definition of this entry, and import its module if needed."""
        return load(self.target) if self.value is None else self.value


load = resolve_name  # imports the object of a text ``module:attribute``


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A training system: a choice of one entry per kind, with the options whose defaults it changes.

    Attributes:
        family: its family, a key of :data:`FAMILIES`.
        title: its name in text; ``name`` if empty.
    """

    name: str
    family: str
    parts: Mapping[str, str]
    summary: str
    source: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    differs_by: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """An evaluation setting: the split, the initial state of the evaluation, and the edges that a label counts.

    The first ``train_share`` of the T labelled snapshots is the training split, or all but the last
    ``test_snapshots`` where that is not 0; its last ``validation_share`` is held out for validation (0: none).
    Where ``purge`` is set, ``edge_life - 1`` snapshots are left out at each boundary, because a snapshot shares edges
    with that many successors. ``state`` is ``warm`` (the recurrent state runs from the first snapshot) or ``cold``
    (zero at the start of each split). ``strict_label`` counts only edges of the newest base interval in the label.
    ``settings`` are the protocol's defaults for options of the run. Values that are given take precedence, and a data
    set with its own features keeps them.
    """

    name: str
    meaning: str
    source: str = "ours"
    train_share: float = 0.4
    validation_share: float = 0.25
    test_snapshots: int = 0
    purge: bool = True
    state: str = "warm"
    strict_label: bool = False
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def leaky(self) -> bool:
        """True if splits share edges that live longer than one interval."""
        return not self.purge

    def gap(self, edge_life: int) -> int:
        """Return the snapshots left out at each boundary between splits, if edges live ``edge_life`` intervals."""
        return edge_life - 1 if self.purge else 0


_CONFIG = Path(__file__).parent


def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


# Families of systems, in order: each is a folder under ``systems/``, reached by this text alone. Registration adds
# texts and objects.
FAMILIES: dict[str, Any] = {
    name: f"dtdg_lab.systems.{name}:FAMILY"
    for name in (
        "single",
        "snapshot_groups",
        "snapshot_blocks",
        "vertex_parts",
        "hybrid_batches",
        "decayed_windows",
        "feature_cache",
    )
}

# Family, "" for shared files -> its declarations: entries, systems, options, record tables and their meanings.
DECLARED: dict[str, dict[str, Any]] = {
    "": _read(_CONFIG / "catalogue.toml") | _read(_CONFIG / "options.toml") | _read(_CONFIG / "record_tables.toml"),
    **{name: _read(_CONFIG.parent / "systems" / name / "family.toml") for name in FAMILIES},
}
_PUBLISHED = {
    name: {"target": f"dtdg_lab.datasets.registry:{name.upper().replace('-', '_')}", **fields}
    for name, fields in _read(_CONFIG / "datasets.toml").items()
}
DECLARED[""]["entries"]["datasets"] = _PUBLISHED | DECLARED[""]["entries"]["datasets"]
# Settings that every run has, by kind.
TASK_OPTIONS, TRAINING_OPTIONS, ENERGY_OPTIONS = (
    tuple(DECLARED[""]["options"][kind]) for kind in ("tasks", "training", "energy")
)
# Kind -> the option that names its entry.
CHOSEN_BY: dict[str, str] = {
    option["choices"]: name
    for declared in DECLARED.values()
    for options in declared.get("options", {}).values()
    for name, option in options.items()
    if isinstance(option.get("choices"), str)
}


def frozen(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of a file with immutable values."""
    types: dict[type, Callable[[Any], Any]] = {list: tuple, dict: MappingProxyType}
    return {name: types[type(value)](value) if type(value) in types else value for name, value in fields.items()}


def _entry(declared: Mapping[str, Any], kind: str, name: str) -> Entry:
    fields = declared["entries"][kind][name]
    options = fields.get("options", kind)  # by default those of its kind
    if isinstance(options, str):
        options = declared.get("groups", {}).get(options, [])
    return Entry(name=name, kind=kind, **frozen({**fields, "options": options}))


ENTRIES: list[Entry] = [
    _entry(declared, kind, name)
    for declared in DECLARED.values()
    for kind, names in declared.get("entries", {}).items()
    for name in names
]
SYSTEMS: list[System] = [
    System(name=name, family=family, **frozen(fields))
    for family, declared in DECLARED.items()
    for name, fields in declared.get("systems", {}).items()
]
# (memory of a model, ``parallel`` entry) -> ``exact`` or the strategy's approximation; other pairs are refused.
MEMORY_ON_LAYOUT: dict[tuple[str, str], str] = {
    (memory, layout): treatment
    for declared in DECLARED.values()
    for layout, memories in declared.get("memories", {}).items()
    for memory, treatment in memories.items()
}
PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {name: Protocol(name=name, **frozen(fields)) for name, fields in DECLARED[""]["protocols"].items()}
)

SINGULAR: Mapping[str, str] = MappingProxyType(
    {
        "datasets": "data set",
        "models": "model",
        "tasks": "task",
        "parallel": "layout",
        "batching": "batching",
        "control": "batch-size controller",
        "comm": "exchange",
        "scheduling": "scheduler",
        "partition": "partitioner",
        "features": "cache policy",
        "congestion": "congestion pattern",
    }
)
LABELS = ("classes", "following")  # labels that some graphs lack and some tasks need; every graph has ``targets``
STORED = "graph:"  # prefix of the names of graphs stored by their hash


# (kind, name) -> an entry, system or family that only the folder of a run describes: configs may name it, lists do not.
ABSENT: dict[tuple[str, str], Any] = {}
ABSENT_OPTIONS: set[str] = set()  # options that only such a folder describes


def names(kind: str) -> tuple[str, ...]:
    """Return the names of a kind's entries, or of the systems for ``kind="systems"``, in the catalogue's order."""
    if kind == "systems":
        return tuple(system.name for system in SYSTEMS)
    return tuple(entry.name for entry in entries(kind))


def entries(kind: str) -> list[Entry]:
    """Return the entries of a kind, in the catalogue's order."""
    return [entry for entry in ENTRIES if entry.kind == kind]


def entry(kind: str, name: str) -> Entry:
    """Return the entry ``name`` of ``kind``.

    Raises:
        UnknownNameError: the kind has no such entry.
    """
    for candidate in ENTRIES:
        if (candidate.kind, candidate.name) == (kind, name):
            return candidate
    if (kind, name) in ABSENT:
        absent: Entry = ABSENT[kind, name]
        return absent
    raise UnknownNameError(SINGULAR.get(kind, kind), name, names(kind))


def system(name: str) -> System:
    """Return the system called ``name``.

    Raises:
        UnknownNameError: there is no such system.
    """
    for candidate in SYSTEMS:
        if candidate.name == name:
            return candidate
    if ("systems", name) in ABSENT:
        absent: System = ABSENT["systems", name]
        return absent
    raise UnknownNameError("system", name, names("systems"))


def family(name: str) -> Any:
    """Return the :class:`dtdg_lab.systems.base.SystemFamily` called ``name``.

    Raises:
        UnknownNameError: there is no such family.
    """
    if name not in FAMILIES and ("family", name) in ABSENT:
        return ABSENT["family", name]
    if name not in FAMILIES:
        raise UnknownNameError("family of systems", name, FAMILIES)
    target = FAMILIES[name]
    return load(target) if isinstance(target, str) else target


def families() -> list[Any]:
    """Return all families of systems, in the catalogue's order."""
    return [family(name) for name in FAMILIES]


def check_task(dataset: str, task: str) -> None:
    """Check that a data set of the catalogue has labels for a task; a stored graph is checked when it is loaded.

    Raises:
        UnsupportedError: it has none; the message names the tasks it has labels for.
    """
    if dataset.startswith(STORED) or {("datasets", dataset), ("tasks", task)} & ABSENT.keys():
        return
    supported = tasks_of(dataset)
    if task not in supported:
        datasets = [name for name in names("datasets") if task in tasks_of(name)]
        raise UnsupportedError(
            f"task={task!r} is not available on data set {dataset!r}, which supports {', '.join(supported)}. "
            f"Data sets with {task}: {', '.join(datasets) or 'none'}."
        )


def tasks_of(dataset: str) -> tuple[str, ...]:
    """Return the tasks that a data set of the catalogue has labels for, in the catalogue's order."""
    declared = entry("datasets", dataset).tasks or tasks_with(("following",))
    labels = {label for task in entries("tasks") if task.name in declared for label in task.needs}
    return tuple(name for name in names("tasks") if name in declared or name in tasks_with(labels))


def loss_name(task: str) -> str:
    """Return the name of a task's loss in charts; ``loss`` for a task that is not registered here."""
    return next((candidate.loss for candidate in entries("tasks") if candidate.name == task), "loss")


def metrics_of(task: str) -> tuple[str, ...]:
    """Return the metrics of a task that charts may show; none for a task that is not registered here."""
    return next((candidate.metrics for candidate in entries("tasks") if candidate.name == task), ())


def tasks_with(labels: Collection[str]) -> tuple[str, ...]:
    """Return the tasks that a graph with these labels serves, in the catalogue's order.

    Args:
        labels: some of :data:`LABELS`.
    """
    return tuple(task.name for task in entries("tasks") if set(task.needs) <= set(labels))


def check_loss(task: str, system_name: str) -> None:
    """Check that a system can compute the loss of a task. A config may lack this: a protocol may bring the task.

    Raises:
        UnsupportedError: its strategy never has all nodes at once; the message names the systems that do.
    """
    per_vertex = entry("tasks", task).per_vertex
    able = [
        candidate.name
        for candidate in SYSTEMS
        if per_vertex or entry("parallel", candidate.parts["parallel"]).all_nodes
    ]
    if system_name not in able and not {("tasks", task), ("systems", system_name)} & ABSENT.keys():
        raise UnsupportedError(
            f"Task {task!r} needs all nodes at once, which system {system_name!r} never has. Compatible systems: "
            f"{', '.join(able)}."
        )


def option_owners(
    system_name: str, dataset: str, model: str, settings: Mapping[str, Any] = _NOTHING
) -> dict[str, tuple[str, ...]]:
    """Return the names of the options that a run reads, by kind.

    Args:
        system_name: name of the system.
        dataset: name of the data set; a stored graph has no options.
        model: name of the model.
        settings: settings of the run, by flat name. A scheduler or another entry chosen there adds its own options.
    """
    data = entry("datasets", dataset).options if not dataset.startswith(STORED) else ()
    owners: dict[str, tuple[str, ...]] = {"datasets": data, "models": entry("models", model).options}
    for kind, part in system(system_name).parts.items():
        owners[kind] = _with_chosen(kind, entry(kind, part).options, settings)
    tasks = _with_chosen("tasks", TASK_OPTIONS, settings)
    return {**owners, "tasks": tasks, "training": TRAINING_OPTIONS, "energy": ENERGY_OPTIONS}


def _with_chosen(kind: str, options: tuple[str, ...], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Add the options of the kind's entry that the settings name; a wrong name is refused by its option."""
    chosen_name = settings.get(CHOSEN_BY.get(kind, ""))
    absent = [candidate for (absent_kind, _), candidate in ABSENT.items() if absent_kind == kind]
    chosen_options = [
        name for candidate in (*entries(kind), *absent) if candidate.name == chosen_name for name in candidate.options
    ]
    return tuple(dict.fromkeys((*options, *chosen_options)))
