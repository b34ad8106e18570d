"""Registrations: algorithms, data sets and families from outside the package, added to the catalogue by one call."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import LABELS, SINGULAR, Entry, System
from dtdg_lab.config.model_facts import memory
from dtdg_lab.config.options import OPTIONS, Option
from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.source_code import digest_of

FAMILY = "family"
# Kinds that families of systems read -> ``form`` and ``needs`` of registered objects, from their ``family.toml``.
_OF_FAMILIES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        kind: fields
        for declared in catalogue.DECLARED.values()
        for kind, fields in declared.get("registered", {}).items()
    }
)
# Kind of a registration -> the form of the registered object, and attributes that it must have.
_REQUIRED: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        FAMILY: (
            "an instance of a subclass of SystemFamily",
            ("systems", "entries", "options", "memories", "tables"),
        ),
        "models": (
            "a subclass of DynamicModel (dtdg_lab.models.base)",
            ("spatial", "temporal_sequence", "facts"),
        ),
        "tasks": (
            "a subclass of Task (dtdg_lab.tasks.base)",
            ("needs", "per_vertex", "loss", "measure", "scores"),
        ),
        "partition": ("a function assign(graph, parts, ...) (dtdg_lab.partition.base.Partitioner)", ("__call__",)),
        "datasets": (
            "an instance of a subclass of Generated (dtdg_lab.datasets.generators.base), or a Published",
            ("cite", "licence"),
        ),
        "congestion": ("a function of PatternSettings (dtdg_lab.network.patterns.PatternRule)", ("__call__",)),
        **{kind: (fields["form"], tuple(fields["needs"])) for kind, fields in _OF_FAMILIES.items()},
    }
)
_OF_OBJECTS = (FAMILY, "partition", "congestion", *_OF_FAMILIES)  # kinds of instances and functions, not classes
_ROW_COLUMNS = ("step", "epoch")  # recorded with each row of a family
_READ_COLUMNS = ("rank", "attempt", "seconds")  # that readers add to each row
_BUILT_WITH = ("edge_life", "smoothing_window", "features")  # options of every generated graph


@dataclass(frozen=True, slots=True)
class Registration:
    """One call of :func:`register`, which a rank can repeat.

    Attributes:
        kind: ``family``, or a kind of the catalogue.
        name: its name in the catalogue.
        what: a class, function or instance, or a text ``module:attribute``.
        summary: one sentence.
        source: paper and section.
        options: names of options that it reads, and new options.
        tasks: of a data set, the tasks that it has labels for.
    """

    kind: str
    name: str
    what: Any
    summary: str = ""
    source: str = ""
    options: tuple[str | Option, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return self.kind, self.name

    def apply(self) -> Any:
        """Add it to the catalogue of this process, unless it is there; an error changes nothing.

        An option that it names, and that another registration brings, is stored as the option itself, so that the
        record is complete without the other.

        Returns:
            The class, function or instance.

        Raises:
            ConfigError: it cannot be imported, is not of its kind, or one of its names is taken.
            UnsupportedError: nothing can be planned for a model, because what it pulls depends on values.
        """
        loaded = _load(self.what)
        previous = next((record for record in REGISTERED if record.key == self.key), None)
        brought = _brought_options(besides=self.key)
        options = tuple(
            option if isinstance(option, Option) else brought.get(option, option) for option in self.options
        )
        record = replace(self, options=options)
        if previous is not None:
            is_same = _load(previous.what) is loaded
            if is_same and (record.options, record.tasks) == (previous.options, previous.tasks):
                return loaded
            if not _is_replaceable(previous.what):
                if is_same and not (record.options or record.tasks):
                    return loaded
                raise ConfigError(_refusal(record, is_same))
        with _restored_after_errors():
            position = len(REGISTERED) if previous is None else REGISTERED.index(previous)
            previous_options = {option.name for option in ADDED[self.key].options} if previous is not None else set()
            if previous is not None:
                previous.remove()
            additions = _additions(record, loaded)
            _check_names(record, additions, previous_options)
            additions.add()
            for option in additions.options:
                _redefine(option)
            ADDED[self.key] = additions
            REGISTERED.insert(position, record)
            if self.kind == "models":
                memory(self.name, layers=2)  # a dry run, which refuses models that no system could train
        return loaded

    def remove(self) -> None:
        """Remove it from the catalogue of this process, but for options that another registration brings too."""
        REGISTERED[:] = [record for record in REGISTERED if record.key != self.key]
        ADDED.pop(self.key).remove(_brought_options(besides=self.key))


REGISTERED: list[Registration] = []  # what :func:`register` has added, in order


def register(
    what: Any,
    kind: str = FAMILY,
    name: str = "",
    *,
    summary: str = "",
    source: str = "",
    options: Sequence[str | Option] = (),
    tasks: Sequence[str] = (),
) -> Any:
    """Add an algorithm, a data set or a family of systems, to be used like those of the package.

    A second call with the same object or text changes nothing. Code of a notebook cell is replaced when the cell runs
    again.

    Args:
        what: the class, function or instance, or a text ``module:attribute`` that is importable here and on every
            engine.
        kind: ``family``, ``model``, ``task``, ``scheduler``, ``partitioner``, ``data set``, ``congestion pattern``,
            ``cache policy`` or ``batch-size controller``; or the catalogue's name of the kind, such as ``scheduling``.
        name: its name in the catalogue; by default its attribute ``name``, or the class or function in lower case.
        summary: one sentence; the first line of its docstring by default.
        source: paper and section.
        options: names of options that it reads beside those of its kind; an :class:`~dtdg_lab.config.options.Option`
            is added, with the kind as its owner.
        tasks: of a data set, the tasks that it has labels for; by default those that need no classes.

    Returns:
        The class, function or instance.

    Raises:
        ConfigError: it cannot be imported, is not of its kind, or one of its names is taken.
        UnknownNameError: the kind, an option or a task is unknown.
    """
    kind = _kind(kind)
    name = name or _name_of(_load(what), what)
    return Registration(kind, name, what, summary, source, tuple(options), tuple(tasks)).apply()


def code_digest(entry: Entry) -> str | None:
    """Return a digest of an entry's code and of the values it reads, for keys of caches.

    Returns:
        Empty for the package's own code, which has versions; None if two digests could be equal although the results
        differ, so that nothing may be cached.
    """
    if entry.target.startswith("dtdg_lab."):
        return ""
    return digest_of(entry.load())


@dataclass(frozen=True, slots=True)
class _Additions:
    """The names that a registration adds to the catalogue, the glossary and the record tables."""

    entries: tuple[Entry, ...] = ()
    options: tuple[Option, ...] = ()
    families: Mapping[str, Any] = field(default_factory=dict)
    systems: tuple[System, ...] = ()
    memories: Mapping[tuple[str, str], str] = field(default_factory=dict)
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def existing_names(self) -> list[str]:
        """Return the names that exist already, without those of options."""
        return [
            *(name for name in self.families if name in catalogue.FAMILIES),
            *(system.name for system in self.systems if system.name in catalogue.names("systems")),
            *(entry.name for entry in self.entries if entry.name in catalogue.names(entry.kind)),
            *(table for table in self.tables if table in TABLES),
        ]

    def add(self) -> None:
        """Add all of it."""
        catalogue.FAMILIES.update(self.families)
        catalogue.ENTRIES.extend(self.entries)
        catalogue.SYSTEMS.extend(self.systems)
        catalogue.MEMORY_ON_LAYOUT.update(self.memories)
        OPTIONS.update({option.name: option for option in self.options})
        TABLES.update(self.tables)
        keys = [*((FAMILY, name) for name in self.families), *(("systems", system.name) for system in self.systems)]
        for key in (*keys, *((entry.kind, entry.name) for entry in self.entries)):
            catalogue.ABSENT.pop(key, None)
        catalogue.ABSENT_OPTIONS.difference_update(option.name for option in self.options)
        _follow_catalogue()

    def remove(self, shared_options: Collection[str]) -> None:
        """Remove all of it, but the options with names in ``shared_options``."""
        for name in self.families:
            del catalogue.FAMILIES[name]
        for pair in self.memories:
            del catalogue.MEMORY_ON_LAYOUT[pair]
        for option in self.options:
            if option.name not in shared_options:
                del OPTIONS[option.name]
        for table in self.tables:
            del TABLES[table]
        keys = {(entry.kind, entry.name) for entry in self.entries}
        names = {system.name for system in self.systems}
        catalogue.ENTRIES[:] = [entry for entry in catalogue.ENTRIES if (entry.kind, entry.name) not in keys]
        catalogue.SYSTEMS[:] = [system for system in catalogue.SYSTEMS if system.name not in names]
        _follow_catalogue()


ADDED: dict[tuple[str, str], _Additions] = {}  # kind and name of a registration -> its additions


def _brought_options(besides: tuple[str, str]) -> dict[str, Option]:
    """Return the new options of all registrations but one, by name."""
    return {option.name: option for key, additions in ADDED.items() if key != besides for option in additions.options}


def _check_names(record: Registration, additions: _Additions, previous_options: Collection[str]) -> None:
    """Raise if a name is in use.

    Args:
        record: the registration.
        additions: its additions.
        previous_options: names of options that it brought before, which it may change.

    Raises:
        ConfigError: a name is in use.
    """
    if in_use := additions.existing_names():
        raise ConfigError(
            f"register({_text(record.what)}): {', '.join(in_use)} are names in use. Choose others: "
            "lab.register(..., name=NAME)."
        )
    brought = _brought_options(besides=record.key)
    of_families = {option.name for key, added in ADDED.items() if key[0] == FAMILY for option in added.options}
    for option in additions.options:
        name = option.name
        if name not in OPTIONS or name in catalogue.ABSENT_OPTIONS or brought.get(name) == option:
            continue
        if name not in brought or name not in previous_options or name in of_families:
            raise ConfigError(
                f"register({_text(record.what)}): there is another option {name!r} ({OPTIONS[name].meaning}). Give "
                f"options=[{name!r}] to read that one, or give the new one another name."
            )


def _redefine(option: Option) -> None:
    """Replace the option of this name in all registrations that bring one."""
    for position, record in enumerate(REGISTERED):
        REGISTERED[position] = replace(record, options=_with_option(record.options, option))
        ADDED[record.key] = replace(ADDED[record.key], options=_with_option(ADDED[record.key].options, option))


def _with_option(options: tuple[Any, ...], option: Option) -> tuple[Any, ...]:
    return tuple(option if isinstance(item, Option) and item.name == option.name else item for item in options)


@contextmanager
def _restored_after_errors() -> Iterator[None]:
    """Restore the catalogue if the block raises any exception."""
    registries: list[Any] = [
        catalogue.ENTRIES,
        catalogue.SYSTEMS,
        catalogue.FAMILIES,
        catalogue.MEMORY_ON_LAYOUT,
        catalogue.ABSENT,
        catalogue.ABSENT_OPTIONS,
        OPTIONS,
        TABLES,
        REGISTERED,
        ADDED,
    ]
    copies = [copy(registry) for registry in registries]
    try:
        yield
    except BaseException:
        for registry, items in zip(registries, copies, strict=True):
            registry.clear()
            (registry.extend if isinstance(registry, list) else registry.update)(items)
        raise


def _follow_catalogue() -> None:
    """Update the choices of options that name an entry."""
    for kind, name in catalogue.CHOSEN_BY.items():
        if name in OPTIONS:
            OPTIONS[name] = dataclasses.replace(OPTIONS[name], choices=catalogue.names(kind))


def _additions(registration: Registration, loaded: Any) -> _Additions:
    """Return the additions of a registration.

    Raises:
        ConfigError: an object is not of the kind, an option has another owner, or a table's columns are refused.
        UnknownNameError: an option, task or label is unknown.
    """
    kind, what = registration.kind, registration.what
    form, attributes = _REQUIRED[kind]
    missing = [attribute for attribute in attributes if not hasattr(loaded, attribute)]
    if missing or (kind in _OF_OBJECTS and isinstance(loaded, type)):
        raise ConfigError(
            f"register({_text(what)}): no {SINGULAR.get(kind, FAMILY)}"
            f"{': it lacks ' + ', '.join(missing) if missing else ', but a class'}. "
            f"Give {form}, or another kind= of {', '.join(_kinds())}."
        )
    if kind == FAMILY:
        _check_tables(loaded.tables, what)
        return _Additions(
            tuple(loaded.entries),
            tuple(loaded.options),
            {registration.name: what},
            tuple(loaded.systems),
            loaded.memories,
            loaded.tables,
        )
    new = tuple(option for option in registration.options if isinstance(option, Option))
    names = [option.name if isinstance(option, Option) else option for option in registration.options]
    _check_options(kind, new, names, what)
    entry = Entry(
        name=registration.name,
        kind=kind,
        target=what if isinstance(what, str) else _target(what),
        summary=registration.summary or _first_line(loaded) or f"{SINGULAR[kind].capitalize()} {registration.name}.",
        source=registration.source or "registered",
        options=tuple(dict.fromkeys((*_usual_options(kind, loaded, names), *names))),
        tasks=_checked_tasks(registration) if kind == "datasets" else (),
        **(_task_facts(loaded) if kind == "tasks" else {}),
        value=None if isinstance(what, str) else what,
    )
    return _Additions((entry,), new)


def _check_tables(tables: Mapping[str, Sequence[str]], what: Any) -> None:
    without_step = [table for table, columns in tables.items() if tuple(columns[:2]) != _ROW_COLUMNS]
    if without_step:
        raise ConfigError(
            f"register({_text(what)}): the columns of table {', '.join(without_step)} must begin with step, epoch: "
            "these two are recorded with each row."
        )
    for table, columns in tables.items():
        reserved = [column for column in columns if column in _READ_COLUMNS]
        if reserved:
            raise ConfigError(
                f"register({_text(what)}): table {table} has the column{'s' * (len(reserved) > 1)} "
                f"{', '.join(reserved)}: {', '.join(_READ_COLUMNS)} are added to each row when it is read. Give "
                f"{'these columns other names' if len(reserved) > 1 else 'this column another name'}, such as "
                f"{reserved[0]}_of_row."
            )


def _check_options(kind: str, new: Sequence[Option], names: Sequence[str], what: Any) -> None:
    added = [option.name for option in new]
    for name in names:
        if name not in added and (name not in OPTIONS or name in catalogue.ABSENT_OPTIONS):
            advice = f"Give a new option as Option(name={name!r}, owner={kind!r}, ...)."
            raise UnknownNameError("option", name, OPTIONS.keys() - catalogue.ABSENT_OPTIONS, advice)
    owners = {option.name: option.owner for option in (*(OPTIONS[name] for name in names if name in OPTIONS), *new)}
    for name, owner in owners.items():
        if owner != kind:
            raise ConfigError(
                f"register({_text(what)}): the option {name!r} belongs to {owner!r}, not to {kind!r}. Give options "
                f"with owner={kind!r}."
            )


def _usual_options(kind: str, loaded: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the options of the kind, or those that a data set is generated or cut with."""
    if kind == "datasets" and hasattr(loaded, "generate"):
        return (*_generator_options(loaded, names), *_BUILT_WITH)
    own_group = getattr(loaded, "kind", "")  # of a data set in steps, or of a static one
    group = own_group if own_group in ("steps", "static") else kind
    groups = (declared.get("groups", {}) for declared in catalogue.DECLARED.values())
    return tuple(next((names[group] for names in groups if group in names), ()))


def _generator_options(loaded: Any, names: Sequence[str]) -> Iterator[str]:
    """Yield the options that a generator's method ``generate`` reads as its arguments."""
    for argument, parameter in inspect.signature(loaded.generate).parameters.items():
        options = [name for name in (f"generated_{argument}", argument) if name in OPTIONS or name in names]
        if options and argument != "seed":
            yield options[0]
        elif argument != "seed" and parameter.default is parameter.empty:
            raise ConfigError(
                f"generate() of {loaded.name!r} needs {argument!r}, which is no option. Give it a default, or register "
                f"with options=[Option(name={argument!r}, owner='datasets', ...)]."
            )


def _checked_tasks(registration: Registration) -> tuple[str, ...]:
    for task in registration.tasks:
        catalogue.entry("tasks", task)
    return registration.tasks


def _task_facts(loaded: Any) -> dict[str, Any]:
    """Return the attributes of a task's class that are known without importing it."""
    for label in loaded.needs:
        if label not in LABELS:
            raise UnknownNameError("label in needs", label, LABELS, "Every graph has targets.")
    return {
        "needs": tuple(loaded.needs),
        "per_vertex": loaded.per_vertex,
        "loss": getattr(loaded, "loss_name", "loss"),
        "metrics": tuple(getattr(loaded, "main_metrics", ())),
    }


def _kinds() -> dict[str, str]:
    """Return the kind of each allowed text, singular first."""
    singular = {SINGULAR.get(kind, kind): kind for kind in _REQUIRED}
    return singular | {kind: kind for kind in _REQUIRED}


def _kind(kind: str) -> str:
    if kind not in _kinds():
        raise UnknownNameError("kind", kind, _kinds(), f"These can be registered: {', '.join(_kinds())}.")
    return _kinds()[kind]


def _load(what: Any) -> Any:
    """Return the object, imported if it is given as a text.

    Raises:
        ConfigError: it cannot be imported.
    """
    if not isinstance(what, str):
        return what
    try:
        return catalogue.load(what)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"register({what!r}): {str(error).rstrip('.')}. Give 'module:attribute' of a module on PYTHONPATH, or the "
            "object itself."
        ) from error


def _name_of(loaded: Any, what: Any) -> str:
    """Return an object's own attribute ``name``, else the name of the class or function in lower case.

    Raises:
        ConfigError: it has none.
    """
    attribute = vars(loaded).get("name", "") if isinstance(loaded, type) else getattr(loaded, "name", "")
    name = attribute if isinstance(attribute, str) and attribute else getattr(loaded, "__name__", "").lower()
    if not name or not isinstance(name, str) or name == "<lambda>":
        raise ConfigError(f"register({_text(what)}): it has no name. Give one: lab.register(..., name=NAME).")
    return name


def _text(what: Any) -> str:
    return repr(what) if isinstance(what, str) else getattr(what, "__qualname__", shortened(what))


def _target(what: Any) -> str:
    """Return the text by which an object would be imported; of an instance, that of its class."""
    definition = what if hasattr(what, "__qualname__") else type(what)
    return f"{definition.__module__}:{definition.__qualname__}"


def _first_line(loaded: Any) -> str:
    return (inspect.getdoc(loaded) or "").partition("\n")[0]


def _is_replaceable(what: Any) -> bool:
    """Return True for code of a notebook cell or script, or of a reloaded module, which may be registered again."""
    if isinstance(what, str):
        return what.startswith("__main__:")
    module = sys.modules.get(
        getattr(what, "__module__", "") if hasattr(what, "__qualname__") else type(what).__module__
    )
    if module is None or module.__name__ == "__main__":
        return True
    if hasattr(what, "__qualname__"):
        return what.__qualname__ in vars(module) and vars(module)[what.__qualname__] is not what
    return not any(value is what for value in vars(module).values())


def _refusal(record: Registration, is_same: bool) -> str:
    """Return why a registration cannot replace that of its name."""
    if is_same:
        return (
            f"register({_text(record.what)}): it is registered as {record.name!r} with other options or tasks. Give "
            "them in the first call, or register it under another name: lab.register(..., name=NAME)."
        )
    return (
        f"register({_text(record.what)}): {record.name} are names in use. Choose others: lab.register(..., name=NAME)."
    )
