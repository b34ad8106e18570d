"""RunConfig: all settings of a run, validated, immutable and convertible to JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import check_memory
from dtdg_lab.config.options import OPTIONS, default, option
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.system_errors import explain
from dtdg_lab.core.units import as_path

SCHEMA = 1
_NAMES = ("system", "dataset", "model", "protocol")
# Options of older versions: the value that is what every run does now, and what to do instead of the others.
_REMOVED = MappingProxyType(
    {
        "sampler": (
            "own",
            "DGL's draws did not repeat. Leave sampler out: the lab's own draws follow the seed. A stored run with it "
            "can be opened and forked, but not resumed or replayed.",
        )
    }
)


class _Frozen(dict[str, Any]):
    """An immutable dict that compares, prints, dumps and pickles like a dict."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ConfigError("the settings of a RunConfig cannot change. Make another one: config.replace(name=value).")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self),))


class RunConfig(BaseModel):
    """The settings of one run: fields common to all runs, and the options of the system's parts by kind.

    Options are given flat, ``RunConfig(system="psg", group_window=8)``, and kept by kind in ``options``; the
    glossary (``dtdg_lab.config.options``) lists every name with its bounds. ``parts`` (P) is the number of parts that
    plans are made for, ``ranks`` (R) the number of processes that share them; R divides P.

    Raises:
        ConfigError: a value is out of bounds, R does not divide P, or model and system are incompatible.
        UnknownNameError: a name is not in the catalogue or glossary; the closest match is suggested.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str = "psg"
    dataset: str = "collegemsg"
    model: str = "tgcn"
    ranks: int = 1
    epochs: int = 5
    seed: int = 0
    parts: int = 0
    hidden: int = 32
    layers: int = 1
    learning_rate: float = 1e-3
    protocol: str = "warm"
    device: str = "auto"
    threads: int = 0
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def __init__(self, /, **data: Any) -> None:
        # validated before pydantic, which would wrap our error messages
        super().__init__(**_validated(data))

    def model_post_init(self, context: Any, /) -> None:
        """Make the options read-only, like the fields."""
        kinds = {kind: _Frozen(settings) for kind, settings in self.options.items()}
        object.__setattr__(self, "options", _Frozen(kinds))

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> RunConfig:
        """Read the output of :meth:`to_json`."""
        return cls.from_json(json_data)

    @property
    def flat(self) -> dict[str, Any]:
        """All settings by their flat names."""
        common = {name: getattr(self, name) for name in _FIELDS}
        return common | {name: value for kind in self.options.values() for name, value in kind.items()}

    def __getitem__(self, name: str) -> Any:
        """Return the value of a flat name; the glossary default for an option that this system does not read."""
        if name in _FIELDS:
            return getattr(self, name)
        return next((kind[name] for kind in self.options.values() if name in kind), option(name).default)

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with some flat settings changed, validated as a whole.

        Options that the changed system, model or data set no longer reads are dropped; those that had the default of
        the old system, data set or protocol take the default of the new one.
        """
        target = {name: getattr(self, name) for name in _NAMES} | changes
        dataset = target["dataset"] if isinstance(target["dataset"], str) else catalogue.STORED
        owners = catalogue.option_owners(target["system"], dataset, target["model"], self.flat | changes)
        readable = {name for kind in owners.values() for name in kind}
        unchanged = {
            name: value
            for name, value in self.flat.items()
            if name in _FIELDS or (name in readable and not self._followed_default(name, value, target))
        }
        return RunConfig(**{**unchanged, **changes})

    def _followed_default(self, name: str, value: Any, target: dict[str, Any]) -> bool:
        """Return True if an option had the default of a system, data set or protocol that now changes."""
        if all(target[kind] == getattr(self, kind) for kind in ("system", "dataset", "protocol")):
            return False
        return bool(value == default(name, system=self.system, dataset=self.dataset, protocol=self.protocol))

    def to_json(self) -> str:
        """Return the settings as indented JSON with a schema version."""
        return json.dumps({"schema": SCHEMA, **self.model_dump()}, indent=2)

    @classmethod
    def from_json(cls, text: str | bytes | bytearray, *, stored: bool = False) -> RunConfig:
        """Read the output of :meth:`to_json`, or flat settings.

        Args:
            text: the JSON.
            stored: whether these are the settings of an earlier run, to be looked at. Options that no longer exist are
                then left out, whatever their value.

        Raises:
            ConfigError: the text is not a JSON object, or its schema is newer than this version.
        """
        try:
            data = json.loads(text)
        except ValueError as error:  # not JSON, or not even text
            raise ConfigError(
                f"the config is not valid JSON: {error}. Write one with RunConfig(...).to_json()."
            ) from error
        if not isinstance(data, dict):
            raise ConfigError(f"the config is a JSON {type(data).__name__}, but must be an object with settings.")
        schema = data.pop("schema", SCHEMA)
        if schema != SCHEMA:
            raise ConfigError(f"the config has schema {schema!r}; this version reads {SCHEMA}. Update dtdg_lab.")
        return cls(**(_without_old(data) if stored else data))

    @classmethod
    def load(cls, path: str | Path, *, stored: bool = False) -> RunConfig:
        """Read a config file (see :meth:`from_json`)."""
        try:
            return cls.from_json(as_path(path, "path", ConfigError).read_bytes(), stored=stored)
        except OSError as error:
            raise ConfigError(
                f"cannot read the config {path}: {explain(error, path)} Give the path of a JSON file."
            ) from error

    @property
    def short_hash(self) -> str:
        """Eight hexadecimal digits of a hash of these settings."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:8]


_FIELDS = tuple(name for name in RunConfig.model_fields if name != "options")


def _validated(data: dict[str, Any]) -> dict[str, Any]:
    data = dict(data)
    nested = data.pop("options", {})
    if not isinstance(nested, dict) or not all(isinstance(kind, dict) for kind in nested.values()):
        raise ConfigError(f"options={nested!r} must be a mapping kind -> settings. Or give the settings flat.")
    _check_kinds(nested)
    flat = _without_removed({name: value for kind in nested.values() for name, value in kind.items()} | data)
    common = {name: flat.pop(name) for name in _FIELDS if name in flat}
    _check_names(common)
    for name in set(common) & set(OPTIONS):
        common[name] = option(name).check(common[name])
    common["options"] = _by_kind(common, flat)
    _check_together(common)
    return common


def _without_removed(flat: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without removed options, so that configs of older versions can be read.

    Raises:
        ConfigError: a removed option has a value that no longer exists.
    """
    for name in flat.keys() & _REMOVED.keys():
        value, remedy = _REMOVED[name]
        if flat[name] != value:
            raise ConfigError(f"{name}={shortened(flat[name])} is no longer available. {remedy}")
    return {name: value for name, value in flat.items() if name not in _REMOVED}


def _without_old(data: dict[str, Any]) -> dict[str, Any]:
    """Return stored settings, flat or by kind, without removed options."""
    remaining = {name: value for name, value in data.items() if name not in _REMOVED}
    if isinstance(kinds := remaining.get("options"), dict):
        remaining["options"] = {
            kind: _without_old(settings) if isinstance(settings, dict) else settings for kind, settings in kinds.items()
        }
    return remaining


def _check_kinds(nested: dict[str, dict[str, Any]]) -> None:
    kinds = {declared.owner for declared in OPTIONS.values()}
    for kind, settings in nested.items():
        if kind not in kinds:
            raise UnknownNameError("kind in options", kind, kinds)
        for name in settings:
            if name in OPTIONS and OPTIONS[name].owner != kind:
                raise ConfigError(
                    f"options[{kind!r}] holds {name!r}, which belongs to {OPTIONS[name].owner}. Move it there."
                )


def _check_names(common: dict[str, Any]) -> None:
    """Fill in and check system, data set, model and protocol; a user's graph is stored by its hash."""
    for name in _NAMES:
        common.setdefault(name, RunConfig.model_fields[name].default)
        if name != "dataset" and not isinstance(common[name], str):
            raise ConfigError(f"{name}={common[name]!r} has type {type(common[name]).__name__}, but must be a name.")
    if not isinstance(common["dataset"], str):
        if not hasattr(common["dataset"], "store"):
            raise ConfigError(
                f"dataset={common['dataset']!r} must be a name from lab.datasets.list() or a DynamicGraph."
            )
        common["dataset"] = common["dataset"].store()
    if not common["dataset"].startswith(catalogue.STORED):
        catalogue.entry("datasets", common["dataset"])
    catalogue.system(common["system"])
    catalogue.entry("models", common["model"])
    if common["protocol"] not in PROTOCOLS:
        raise UnknownNameError("protocol", common["protocol"], PROTOCOLS)


def _by_kind(common: dict[str, Any], flat: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of a run by kind: those given, checked, and the defaults of the others."""
    run = common["dataset"], common["model"], flat
    owners = catalogue.option_owners(common["system"], *run)
    allowed = {name for kind in owners.values() for name in kind}
    for name in flat:
        if name not in allowed:
            subject = f"system {common['system']!r} with model {common['model']!r} on {common['dataset']!r}"
            if name not in OPTIONS:
                raise UnknownNameError("option", name, allowed | set(_FIELDS), f"These are the options of {subject}.")
            readers = [
                system.name
                for system in catalogue.SYSTEMS
                for names in catalogue.option_owners(system.name, *run).values()
                if name in names
            ]
            use = f"it is used by {', '.join(readers)}" if readers else f"it belongs to {OPTIONS[name].owner}"
            reason = f"Option {name!r} does not apply to {subject}; {use}."
            raise UnknownNameError("option", name, allowed | set(_FIELDS), reason=reason)
    sources = {name: common[name] for name in ("system", "dataset", "protocol")}
    options: dict[str, dict[str, Any]] = {}
    for kind, names in owners.items():
        for name in names:
            value = flat[name] if name in flat else default(name, **sources)
            options.setdefault(kind, {})[name] = option(name).check(value)
    return options


def _check_together(common: dict[str, Any]) -> None:
    ranks = common.get("ranks", 1)
    system = catalogue.system(common["system"])
    family = catalogue.family(system.family)
    common["parts"] = common.get("parts") or max(ranks, family.least_parts)
    if common["parts"] % ranks:
        raise ConfigError(
            f"ranks={ranks} does not divide parts={common['parts']}: each rank runs parts / ranks parts. "
            f"Set parts to a multiple of ranks, such as parts={ranks}."
        )
    settings = {"ranks": ranks, **common}
    settings |= {name: value for kind in common["options"].values() for name, value in kind.items()}
    sizes = {name: settings.get(name) for name in ("hidden", "layers")}
    model_options = common["options"].get("models", {})
    check_memory(common["model"], system.parts["parallel"], common["system"], **model_options, **sizes)
    catalogue.check_task(common["dataset"], settings["task"])
    family.check(settings)
    if settings["slow_rank"] >= ranks:
        existing = "rank 0" if ranks == 1 else f"ranks 0 to {ranks - 1}"
        raise ConfigError(
            f"slow_rank={settings['slow_rank']} is out of range: the run has {existing}. Choose one of them, -1 for "
            "none, or set more ranks."
        )
    if settings["test_model"] == "best" and not PROTOCOLS[common["protocol"]].validation_share:
        validated = [name for name, protocol in PROTOCOLS.items() if protocol.validation_share]
        raise ConfigError(
            f"test_model='best' needs a validation split, but protocol={common['protocol']!r} has none. Set "
            f"test_model='last', or choose one of {', '.join(validated)}."
        )
    _check_power(settings)


def _check_power(energy: dict[str, Any]) -> None:
    if energy["power_idle_w"] > energy["power_max_w"]:
        raise ConfigError(
            f"power_idle_w={energy['power_idle_w']:g} exceeds power_max_w={energy['power_max_w']:g}: "
            "an idle node cannot draw more than a busy one."
        )
    if energy["power_gpu_max_w"] and energy["power_gpu_idle_w"] > energy["power_gpu_max_w"]:
        raise ConfigError(
            f"power_gpu_idle_w={energy['power_gpu_idle_w']:g} exceeds power_gpu_max_w={energy['power_gpu_max_w']:g}: "
            "an idle GPU cannot draw more than a busy one."
        )
