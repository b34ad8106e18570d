"""Contestants of a race: their labels, and the settings that they must share."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.datasets.names import load_for
from dtdg_lab.studies.stop_rule import StopRule

if TYPE_CHECKING:
    pass


def _settings(names: Sequence[str]) -> tuple[str, ...]:
    """Return these settings; ``energy/*`` are all options of that owner."""
    settings = []
    for name in names:
        owner = name.removesuffix("/*")
        settings += [name] if owner == name else [key for key, option in OPTIONS.items() if option.owner == owner]
    return tuple(settings)


_SETTINGS = tomllib.loads(Path(__file__).with_name("race_plan.toml").read_text(encoding="utf-8"))


ALWAYS, UNLESS_RACED = _settings(_SETTINGS["always"]), _settings(_SETTINGS["unless_raced"])
MOST_LABEL = 60  # characters


def contestants(
    configs: Sequence[RunConfig] | Mapping[str, RunConfig], *, seeds: Sequence[int], stop: StopRule | None
) -> dict[str, RunConfig]:
    """Return the configs of a race by label, with the epochs of the stopping rule, checked to be comparable.

    Labels are those of a mapping, else the systems, with the settings in which equal systems differ. The race's
    seeds replace those of the configs.

    Raises:
        ConfigError: there are fewer than two, two are equal, seeds are missing, repeated or invalid, or a setting that
            must be equal differs: the message names it with both values.
    """
    unlabelled = list(configs.values() if isinstance(configs, Mapping) else configs)
    for config in unlabelled:
        if not isinstance(config, RunConfig):
            raise ConfigError(f"race() got {shortened(config)}: give a RunConfig for each contestant.")
    if len(unlabelled) < 2:
        raise ConfigError(f"{len(unlabelled)} contestants: a race needs at least two configs.")
    if not len(seeds) or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={tuple(seeds)}: give at least one seed, and each only once.")
    shared = {"seed": int(seeds[0])} | ({} if stop is None or stop.epochs is None else {"epochs": stop.epochs})
    ready = [config.replace(**shared) for config in unlabelled]
    labels = [_checked_label(label) for label in configs] if isinstance(configs, Mapping) else labels_for(ready)
    by_label = dict(zip(labels, ready, strict=True))
    _check_apart(by_label)
    check_alike(by_label)
    for config in by_label.values():
        if stop is not None:
            stop.check(config)
    return by_label


def _checked_label(label: object) -> str:
    if not isinstance(label, str) or not label.strip() or len(label) > MOST_LABEL or len(label.splitlines()) > 1:
        raise ConfigError(f"label {shortened(label)}: a name of 1 to {MOST_LABEL} characters on one line is required.")
    return label


def _check_apart(configs: Mapping[str, RunConfig]) -> None:
    labels: dict[str, str] = {}
    for label, config in configs.items():
        other = labels.setdefault(config.to_json(), label)
        if other != label:
            raise ConfigError(f"{other!r} and {label!r} have the same settings: remove or change one of them.")


def labels_for(configs: Sequence[RunConfig]) -> list[str]:
    """Return a label for each config: its system, and the settings in which configs of one system differ."""
    labels: list[str] = []
    for config in configs:
        same = [other.flat for other in configs if other.system == config.system]
        shared = [name for name in config.flat if all(name in other for other in same)]
        names = [name for name in shared if any(other[name] != same[0][name] for other in same)]
        settings = ", ".join(f"{name} {config.flat[name]}" for name in names)
        label = f"{config.system}, {settings}" if settings else config.system
        label = label if len(label) <= MOST_LABEL else f"{label[: MOST_LABEL - 6]}..."
        number = sum(earlier == label or earlier.startswith(f"{label} (") for earlier in labels)
        labels.append(f"{label} ({number + 1})" if number else label)
    return labels


def check_alike(configs: Mapping[str, RunConfig]) -> None:
    """Raise for contestants whose losses, times or joules would not be comparable.

    Model and conditions may differ if all contestants have one system: then they are what is compared.

    Raises:
        ConfigError: something differs; the message names it, both contestants and both values.
    """
    one_system = len({config.system for config in configs.values()}) == 1
    for name in (*ALWAYS, *(() if one_system else UNLESS_RACED)):
        values = [(label, config.flat[name]) for label, config in configs.items() if name in config.flat]
        for label, value in values[1:]:  # systems without the setting are skipped
            if value != values[0][1]:
                raise ConfigError(
                    f"All contestants need the same `{name}`: {values[0][0]!r} has {values[0][1]!r}, {label!r} has "
                    f"{value!r}. Use config.replace({name}=...)"
                    + ("." if name in ALWAYS or one_system else "; or compare its values in a race of one system.")
                )


def data_hashes(configs: Mapping[str, RunConfig], seeds: Sequence[int]) -> dict[int, str]:
    """Return the data hash of every seed, shared by all contestants. Data are loaded or generated.

    Raises:
        ConfigError: contestants have different data; the message names what differs.
        DataError: the data is not available.
    """
    hashes: dict[int, str] = {}
    loaded: dict[tuple[Any, ...], str] = {}
    first = next(iter(configs))
    for seed in seeds:
        for label, config in configs.items():
            key = (config.dataset, config.protocol, *sorted(config.options.get("datasets", {}).items()), seed)
            if key not in loaded:
                loaded[key] = load_for(config.replace(seed=seed)).data_hash
            if hashes.setdefault(seed, loaded[key]) != loaded[key]:
                raise ConfigError(_data_difference(first, label, configs, (hashes[seed], loaded[key])))
    return hashes


def _data_difference(first: str, label: str, configs: Mapping[str, RunConfig], hashes: tuple[str, str]) -> str:
    one, other = configs[first], configs[label]
    names = ("dataset", *one.options.get("datasets", {}), *other.options.get("datasets", {}))
    differences = [
        f"{name}={one.flat.get(name)!r} and {name}={other.flat.get(name)!r}"
        for name in names
        if one.flat.get(name) != other.flat.get(name)
    ] or [f"data hash {hashes[0][:12]} and {hashes[1][:12]}"]
    return (
        f"All contestants need the same data: {first!r} and {label!r} differ, {differences[0]}. "
        "Use config.replace(...)."
    )
