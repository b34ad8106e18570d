"""Names of runs for people: the system, the data set, and what differs; never a hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.storage import graph_folder, read_meta

MOST = 2  # settings in a name; the number of others follows
LESS_TELLING = ("epochs",)  # named after other settings
APART = frozenset({"system", "dataset", "seed"})  # in a name by themselves


def system_title(system: str) -> str:
    """Return what people call a system."""
    return catalogue.system(system).title or system


def dataset_title(dataset: str) -> str:
    """Return the name of a data set; of a user's own graph, the given name and the start of its hash."""
    if not dataset.startswith(catalogue.STORED):
        return dataset
    key = dataset.removeprefix(catalogue.STORED)
    try:
        name = read_meta(graph_folder(key)).get("name", "own graph")
    except DataError:  # a run can be shown where its graph is not
        name = "not on this machine"
    return f"{name} ({key[:8]})"


def run_title(config: RunConfig) -> str:
    """Return the name of a run by itself, such as ``FlareDTDG on collegemsg``."""
    return f"{system_title(config.system)} on {dataset_title(config.dataset)}"


def setting_label(name: str) -> str:
    """Return a setting's label as words in a sentence."""
    option = OPTIONS.get(name)
    label = (option.spoken or option.label) if option is not None else ""
    label = label or name.replace("_", " ")
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def sentence_case(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def value_text(name: str, value: Any) -> str:
    """Return the value of a setting as people read it."""
    if name == "system" and value in catalogue.names("systems"):
        return system_title(value)
    if name == "slow_rank" and value == -1:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value) if value not in ("", None) else "none"


def setting_text(name: str, value: Any) -> str:
    """Return a setting with its value in words: ``4 parts``, ``learning rate 0.003``."""
    label = setting_label(name)
    is_count = isinstance(value, int) and not isinstance(value, bool) and name.endswith("s") and " " not in label
    return f"{value_text(name, value)} {label}" if is_count else f"{label} {value_text(name, value)}"


def differing_names(configs: Sequence[RunConfig], given_names: Sequence[str] = ()) -> list[str]:
    """Return a name for each run that tells them apart: its system, then what differs from others of that system.

    Args:
        configs: the settings of each run.
        given_names: the name that a person gave each run; empty for a run without one.
    """
    flats = [config.flat for config in configs]
    has_several_datasets = len({config.dataset for config in configs}) > 1
    names = []
    for flat, own_name in zip(flats, given_names or [""] * len(flats), strict=True):
        peers = [candidate for candidate in flats if candidate["system"] == flat["system"]]
        dataset = [dataset_title(flat["dataset"])] if has_several_datasets else []
        parts = [system_title(flat["system"]), *dataset, *_differences(flat, peers)]
        names.append(own_name or ", ".join(parts))
    return _numbered(names)


def _differences(flat: Mapping[str, Any], peers: Sequence[Mapping[str, Any]]) -> list[str]:
    differing = [
        name
        for name in sorted(flat, key=lambda name: name in LESS_TELLING)
        if name not in APART and any(peer.get(name) != flat[name] for peer in peers)
    ]
    parts = [setting_text(name, flat[name]) for name in differing[:MOST]]
    if len(differing) > MOST:
        parts.append(f"+{len(differing) - MOST} more")
    if any(peer["seed"] != flat["seed"] for peer in peers):
        parts.append(f"seed {flat['seed']}")
    return parts


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names, the second of equal ones with ``(2)`` and so on."""
    counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        counts[name] += 1
        numbered.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return numbered
