"""What the contestants of a race must have in common, so that what differs in the end is the contest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.datasets.names import load_for
from dtdg_lab.studies.stop_rule import StopRule

# what evaluations and times mean: never raced
ALWAYS = ("task", "protocol", "evaluate_every", "epochs", "dtype", "device", "link_share", "negatives",
          "ranking_negatives", "power_idle_w", "power_max_w", "power_gpu_idle_w", "power_gpu_max_w",
          "checkpoint_every_s", "keep_every")  # fmt: skip
# what is learned, and under which conditions: may differ where systems do not
UNLESS_RACED = ("model", "hidden", "layers", "norm", "self_loops", "link_head", "gc_layers", "heads",
                "diffusion_steps", "transform_window", "kernel", "threads", "slow_rank", "slow_ms", "links",
                "congestion", "congestion_ms", "congestion_mbit", "congestion_from", "congestion_cycle",
                "congestion_table", "congestion_file", "congestion_by")  # fmt: skip
MOST_LABEL = 60  # characters


def contestants(
    given: Sequence[RunConfig] | Mapping[str, RunConfig], *, seeds: Sequence[int], stop: StopRule | None
) -> dict[str, RunConfig]:
    """The configs of a race by label, with the epochs of the stopping rule, and proven to be comparable.

    Labels are those of a mapping, else the systems, with the settings that tell equal systems apart. Seeds of the
    configs are replaced by those of the race.

    Raises:
        ConfigError: there are fewer than two, two are the same, seeds are missing, named twice or not allowed, or what
            a race must have in common differs: the message names it with both values.
    """
    configs = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
    for config in configs.values():
        if not isinstance(config, RunConfig):
            raise ConfigError(f"race() got {shortened(config)}: a RunConfig for each contestant is needed.")
    if len(configs) < 2:
        raise ConfigError(f"{len(configs)} contestants: a race needs at least two configs.")
    _check_seeds(seeds)
    first = int(seeds[0])
    ready = [config.replace(seed=first, **_epochs(stop)) for config in configs.values()]
    labels = [_own_label(label) for label in configs] if isinstance(given, Mapping) else labels_for(ready)
    found = dict(zip(labels, ready, strict=True))
    _check_apart(found)
    check_alike(found)
    for config in found.values():
        if stop is not None:
            stop.check(config)
    return found


def _epochs(stop: StopRule | None) -> dict[str, Any]:
    return {} if stop is None or stop.epochs is None else {"epochs": stop.epochs}


def _check_seeds(seeds: Sequence[int]) -> None:
    if not len(seeds) or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={tuple(seeds)}: at least one is needed, and each once.")


def _own_label(label: object) -> str:
    if not isinstance(label, str) or not label.strip() or len(label) > MOST_LABEL:
        raise ConfigError(f"label {shortened(label)}: a name of 1 to {MOST_LABEL} characters is needed.")
    return label


def _check_apart(found: Mapping[str, RunConfig]) -> None:
    seen: dict[str, str] = {}
    for label, config in found.items():
        other = seen.setdefault(config.to_json(), label)
        if other != label:
            raise ConfigError(f"{other!r} and {label!r} have the same settings: leave one out, or change it.")


def labels_for(configs: Sequence[RunConfig]) -> list[str]:
    """A label for each config: its system, and where several have the same one, the settings that differ among them."""
    found: list[str] = []
    for config in configs:
        same = [other.flat for other in configs if other.system == config.system]
        shared = [name for name in config.flat if all(name in other for other in same)]
        names = [name for name in shared if any(other[name] != same[0][name] for other in same)]
        told = ", ".join(f"{name} {config.flat[name]}" for name in names)
        label = f"{config.system}, {told}" if told else config.system
        label = label if len(label) <= MOST_LABEL else f"{label[: MOST_LABEL - 6]}..."
        number = sum(known == label or known.startswith(f"{label} (") for known in found)
        found.append(f"{label} ({number + 1})" if number else label)
    return found


def check_alike(found: Mapping[str, RunConfig]) -> None:
    """Refuse contestants whose losses, times or joules would not mean the same.

    Model and conditions may differ where all contestants are of one system: then they are what is raced.

    Raises:
        ConfigError: something differs; the message names it, both contestants and both values.
    """
    one_system = len({config.system for config in found.values()}) == 1
    for name in (*ALWAYS, *(() if one_system else UNLESS_RACED)):
        having = [(label, config.flat[name]) for label, config in found.items() if name in config.flat]
        for label, value in having[1:]:  # some systems have no such setting: those before and after them are compared
            if value != having[0][1]:
                raise ConfigError(
                    f"{having[0][0]!r} has {name}={having[0][1]!r} and {label!r} has {name}={value!r}: a race needs "
                    f"one {name} for all. {_advice(name, one_system)}"
                )


def _advice(name: str, one_system: bool) -> str:
    same = f"Set it alike: config.replace({name}=...)"
    if name in UNLESS_RACED and not one_system:
        return f"{same}; or race it alone, all contestants being of one system."
    return f"{same}."


def data_hashes(found: Mapping[str, RunConfig], seeds: Sequence[int]) -> dict[int, str]:
    """The data hash of every seed, which all contestants share. Data are loaded, and generated where they are.

    Raises:
        ConfigError: contestants have different data; the message names what differs.
        DataError: the data cannot be had.
    """
    hashes: dict[int, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    first = next(iter(found))
    for seed in seeds:
        for label, config in found.items():
            key = (_data_settings(config), seed)
            if key not in known:
                known[key] = load_for(config.replace(seed=seed)).data_hash
            if hashes.setdefault(seed, known[key]) != known[key]:
                raise ConfigError(_other_data(first, label, found, (hashes[seed], known[key])))
    return hashes


def _data_settings(config: RunConfig) -> tuple[Any, ...]:
    return (config.dataset, config.protocol, tuple(sorted(config.options.get("datasets", {}).items())))


def _other_data(first: str, label: str, found: Mapping[str, RunConfig], hashes: tuple[str, str]) -> str:
    one, other = found[first], found[label]
    names = ("dataset", *one.options.get("datasets", {}), *other.options.get("datasets", {}))
    differ: Callable[[str], bool] = lambda name: one.flat.get(name) != other.flat.get(name)  # noqa: E731
    told = next((f"{name}={one.flat.get(name)!r} and {name}={other.flat.get(name)!r}" for name in names
                 if differ(name)), f"data hash {hashes[0][:12]} and {hashes[1][:12]}")  # fmt: skip
    return f"{first!r} and {label!r} have different data, {told}: a race needs one data set. Set it alike."
