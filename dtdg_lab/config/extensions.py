"""Descriptions of registered code in a run's folder, and names that only such a folder knows.

A run of a registered model can be opened in a process without that model: its entry is then *absent*. Configs of that
run may name it, lists of names do not, and training with it raises an error that says what to register.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import ABSENT, ABSENT_OPTIONS, CHOSEN_BY, SINGULAR, Entry, System
from dtdg_lab.config.options import OPTIONS, Option
from dtdg_lab.config.registration import FAMILY, REGISTERED, Registration, register
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.source_code import defining_code, source_hash, variable_of

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig

FILE = "extensions.json"  # in the folder of a run, race or study
SCHEMA = 1
_TYPES = {kind.__name__: kind for kind in (int, float, str, bool)}
_KEPT = ("name", "kind", "target", "summary", "source", "options", "defaults", "tasks", "needs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The description of one registration in a run's folder: plain values only.

    Attributes:
        kind: a kind of the catalogue, such as ``models``, or ``family``.
        name: its name in configs, or the name of a family.
        target: ``module:attribute``; empty for code that cannot be imported, such as a class of a notebook cell.
        qualname: the name of the class or function in its module.
        summary: one sentence.
        source: paper and section.
        options: names of the options that it reads.
        tasks: of a data set, the tasks that it has labels for.
        sha256: the first 16 digits, of its source code; empty if that is not known.
        code: statements that define code that cannot be imported; empty if they are not known.
        declared: its new options, with type, bounds, default and meaning.
        entries: its entry in the catalogue, or those of a family.
        systems: the systems of a family.
    """

    kind: str
    name: str
    target: str = ""
    qualname: str = ""
    summary: str = ""
    source: str = ""
    options: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    sha256: str = ""
    code: str = ""
    declared: tuple[dict[str, Any], ...] = ()
    entries: tuple[dict[str, Any], ...] = ()
    systems: tuple[dict[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """Kind and name, such as ``model 'smoothed'``."""
        return title_of(self.kind, self.name)

    @property
    def call(self) -> str:
        """The call that registers it, as code."""
        return f"lab.register({', '.join(self._arguments())})"

    def _arguments(self) -> Iterator[str]:
        yield _quoted(self.target) if self.target else self.qualname or "..."
        if self.kind == FAMILY:
            return
        yield _quoted(SINGULAR.get(self.kind, self.kind))
        yield _quoted(self.name)
        for name in ("summary", "source"):
            if getattr(self, name):
                yield f"{name}={_quoted(getattr(self, name))}"
        declared = {fields["name"]: _option_code(fields) for fields in self.declared}
        if self.options:
            yield f"options=[{', '.join(declared.get(name, _quoted(name)) for name in self.options)}]"
        if self.tasks:
            yield f"tasks=[{', '.join(map(_quoted, self.tasks))}]"

    @property
    def argument(self) -> str:
        """The argument of ``--register`` on the command line."""
        if self.kind == FAMILY and self.target:
            return self.target
        module = self.target.partition(":")[0]
        return f"{module}.py" if module and "." not in module else "FILE.py"

    @property
    def remedy(self) -> str:
        """The instruction for a user who wants to train with it."""
        first = f"{self.title} is not registered here. Register it first: {self.call}"
        if self.target:
            return f"{first}; on the command line: --register {self.argument}."
        source = f"; its source is in the run's {FILE}" if self.code else ""
        return f"{first}, in a cell that defines {self.qualname or 'it'} as the run had it{source}."

    @property
    def statements(self) -> str:
        """Statements that define and register it, for exported scripts; ``lab`` is the package."""
        lines = []
        if self.target:
            module = self.target.partition(":")[0]
            lines.append(f"# {module} must be importable: put it beside this file, or in a folder on PYTHONPATH")
        elif self.code:
            lines.append(self.code.rstrip() + "\n\n")
        else:
            name = self.qualname or self.title
            lines.append(f"# The source of {name} is not known: define it here as the run had it.")
            lines.append(f"raise NotImplementedError({_quoted(f'define {name} here')})")
        return "\n".join([*lines, self.call])

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """(kind, name) of everything that it adds to the catalogue."""
        entries = ((entry["kind"], entry["name"]) for entry in self.entries)
        return ((self.kind, self.name), *entries, *(("systems", system["name"]) for system in self.systems))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {attribute.name: _unfrozen(getattr(self, attribute.name)) for attribute in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Extension:
        """Read the output of :meth:`to_dict`, without names that this version does not know.

        Raises:
            TypeError, KeyError: a value is missing, or has another type.
        """
        return cls(**_known_fields(cls, data))


def title_of(kind: str, name: str) -> str:
    """Return kind and name as text, such as ``model 'smoothed'``."""
    return f"{SINGULAR.get(kind, kind)} {name!r}"


def target_of(what: Any) -> str:
    """Return ``module:attribute`` of an object that other processes can import; empty if they cannot.

    Args:
        what: the object, or the text itself.
    """
    if isinstance(what, str):
        return "" if what.startswith("__main__:") else what
    module = getattr(what, "__module__", "") or ""
    if module in ("", "__main__") or getattr(sys.modules.get(module), "__spec__", None) is None:
        return ""
    values = vars(sys.modules[module])
    name = getattr(what, "__qualname__", "") or next((name for name, value in values.items() if value is what), "")
    return f"{module}:{name}" if values.get(name) is what else ""


def extension_of(registration: Registration) -> Extension:
    """Describe a registration of this process."""
    target = target_of(registration.what)
    value = catalogue.load(registration.what) if isinstance(registration.what, str) else registration.what
    is_family = registration.kind == FAMILY
    options = value.options if is_family else registration.options
    entries = value.entries if is_family else [catalogue.entry(registration.kind, registration.name)]
    return Extension(
        kind=registration.kind,
        name=value.name if is_family else registration.name,
        target=target,
        qualname=target.partition(":")[2] or variable_of(value),
        summary=registration.summary,
        source=registration.source,
        options=tuple(option.name if isinstance(option, Option) else option for option in options),
        tasks=tuple(registration.tasks),
        sha256=source_hash(value),
        code="" if target else defining_code(value),
        declared=tuple(
            {**asdict(option), "kind": option.kind.__name__} for option in options if isinstance(option, Option)
        ),
        entries=tuple(_plain(entry, _KEPT) for entry in entries),
        systems=tuple(_plain(system, [attribute.name for attribute in fields(system)]) for system in value.systems)
        if is_family
        else (),
    )


def _plain(value: Any, names: Iterable[str]) -> dict[str, Any]:
    items = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {name: dict(item) if isinstance(item, Mapping) else item for name, item in items.items()}


def _known_fields(cls: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return immutable values of a dataclass, without names that this version does not know."""
    names = {attribute.name for attribute in fields(cls)}
    return catalogue.frozen({name: value for name, value in data.items() if name in names})


def _unfrozen(value: Any) -> Any:
    """Return the value with lists and dicts in place of tuples and read-only mappings."""
    if isinstance(value, Mapping):
        return {name: _unfrozen(item) for name, item in value.items()}
    return [_unfrozen(item) for item in value] if isinstance(value, list | tuple) else value


def _option_code(values: Mapping[str, Any]) -> str:
    """Return the call that makes an option, without arguments that equal their default."""
    defaults = {attribute.name: attribute.default for attribute in fields(Option)}
    arguments = [
        f"{name}={value if name == 'kind' else _quoted(value)}"
        for name, value in catalogue.frozen(values).items()
        if name in defaults and value != defaults[name]
    ]
    return f"Option({', '.join(arguments)})"


def _quoted(value: Any) -> str:
    """Return a value as code, a text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def register_from(source: str) -> None:
    """Run a Python file that registers code, or register the family of a text ``module:attribute``.

    Args:
        source: path of a file, which is imported as the module of its name, or the text.

    Raises:
        ConfigError: there is no such file, it raises an error, or it registers nothing.
    """
    if not source.endswith(".py"):
        register(source)
        return
    file = Path(source).resolve()
    if not file.is_file():
        raise ConfigError(f"--register {source}: there is no such file. Give a Python file that calls lab.register.")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    registered_before = list(REGISTERED)
    try:
        module = importlib.import_module(file.stem)
    except Exception as error:  # whatever the user's file raises
        raise ConfigError(f"--register {source}: the file raised {type(error).__name__}: {error}") from error
    imported = Path(getattr(module, "__file__", None) or "").resolve()
    if imported != file:
        raise ConfigError(
            f"--register {source}: a module {file.stem!r} is already imported from {imported}. Rename the file."
        )
    if registered_before == REGISTERED:
        raise ConfigError(
            f'--register {source}: the file registers nothing. Let it call lab.register(CLASS, "model") for each of '
            "its models, or another kind."
        )


def names_used(config: RunConfig) -> set[tuple[str, str]]:
    """Return (kind, name) of everything in the catalogue that a run of these settings uses."""
    system = catalogue.system(config.system)
    flat = config.flat
    parts = {**system.parts, **{kind: flat[option] for kind, option in CHOSEN_BY.items() if option in flat}}
    names = {("systems", config.system), (FAMILY, system.family), ("models", config.model)}
    return names | {("datasets", config.dataset)} | set(parts.items())


def extensions_of(*configs: RunConfig, texts: Collection[str] = ()) -> tuple[Extension, ...]:
    """Describe the registrations that runs use, in order of registration.

    Args:
        configs: settings of the runs.
        texts: values of settings; some may name a registration.
    """
    used = {name for config in configs for name in names_used(config)} if REGISTERED else set()
    return tuple(
        extension
        for extension in map(extension_of, REGISTERED)
        if used & set(extension.names) or {name for _, name in extension.names} & set(texts)
    )


def check_registered(*configs: RunConfig, texts: Collection[str] = ()) -> None:
    """Raise if runs would train with code that only a run's folder knows.

    Args:
        configs: settings of runs.
        texts: values of settings; some may name such code.

    Raises:
        ConfigError: some of it is not registered here; the message has the calls that register it.
    """
    used = {name for config in configs for name in names_used(config)} if ABSENT else set()
    missing = [absent for key, absent in ABSENT.items() if key in used or key[1] in texts]
    if remedies := list(dict.fromkeys(absent.remedy for absent in missing if hasattr(absent, "remedy"))):
        raise ConfigError(" ".join(remedies))


def code_changes(recorded: Iterable[Extension], current: Iterable[Extension]) -> list[str]:
    """Describe which registrations have other code than recorded, if both hashes are known.

    Returns:
        One phrase for each, such as ``the code of model 'smoothed' differs (sha256 1a... then, 2b... now)``.
    """
    hashes = {(extension.kind, extension.name): extension.sha256 for extension in recorded if extension.sha256}
    return [
        f"the code of {extension.title} differs (sha256 {sha256} then, {extension.sha256} now)"
        for extension in current
        if extension.sha256
        and (sha256 := hashes.get((extension.kind, extension.name), extension.sha256)) != extension.sha256
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentEntry(Entry):
    """An entry whose code is not registered here."""

    remedy: str

    def load(self) -> Any:
        """Raise an error with the remedy.

        Raises:
            ConfigError: always; it says what to register.
        """
        raise ConfigError(self.remedy)


def add_absent(extensions: Iterable[Extension]) -> None:
    """Let configs use names that a run's folder describes, unless they are registered here.

    Raises:
        TypeError, KeyError, ValueError: a description is damaged.
    """
    for extension in extensions:
        names = {name for name in extension.names if not _is_here(*name)}
        entries = [AbsentEntry(**_known_fields(Entry, data), remedy=extension.remedy) for data in extension.entries]
        ABSENT.update({(entry.kind, entry.name): entry for entry in entries if (entry.kind, entry.name) in names})
        systems = [System(**_known_fields(System, data)) for data in extension.systems]
        ABSENT.update({("systems", system.name): system for system in systems if ("systems", system.name) in names})
        if (FAMILY, extension.name) in names:
            make = catalogue.load("dtdg_lab.systems.base:AbsentFamily")
            ABSENT[FAMILY, extension.name] = make(extension.name, extension.remedy)
        for data in extension.declared:
            option = Option(**_known_fields(Option, {**data, "kind": _TYPES[data["kind"]]}))
            is_used = any(option.name in entry.options for entry in catalogue.ENTRIES)
            if option.name not in OPTIONS or (option.name in ABSENT_OPTIONS and not is_used):
                OPTIONS[option.name] = option
                ABSENT_OPTIONS.add(option.name)


def _is_here(kind: str, name: str) -> bool:
    return name in (catalogue.FAMILIES if kind == FAMILY else catalogue.names(kind))


def register_statements(extensions: Sequence[Extension]) -> str:
    """Return statements that define and register all of them, and an empty line; empty for none."""
    text = "\n\n".join(extension.statements for extension in extensions)
    options = "from dtdg_lab.config.options import Option\n\n" if "Option(" in text else ""
    return f"{options}{text}\n\n" if text else ""
