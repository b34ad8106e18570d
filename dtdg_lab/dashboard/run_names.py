"""Names of runs for people: the system, the data set, and what differs; never a hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.cards.card import PAPERS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.dashboard.choices import dataset_label

REFERENCE = "single"  # the lab's own
MOST = 2  # settings in a name; the number of others follows
OF_THE_SYSTEM = {"system", "seed"}


def system_title(system: str) -> str:
    """Return what a system is called: its paper's name for the paper's own, else the system's."""
    if system == REFERENCE:
        return f"Baseline {system}"
    return next((paper["name"] for paper in PAPERS.values() if paper["main"] == system), system)


def run_title(config: RunConfig) -> str:
    """Return the name of a run by itself, such as ``FlareDTDG on collegemsg``."""
    return f"{system_title(config.system)} on {dataset_label(config.dataset)}"


def setting_label(name: str) -> str:
    """Return a setting's label as words in a sentence."""
    known = OPTIONS.get(name)
    label = known.label if known is not None and known.label else name.replace("_", " ")
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def value_text(value: Any) -> str:
    """Return a setting's value as people read it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value) if value != "" else "none"


def setting_text(name: str, value: Any) -> str:
    """Return a setting with its value in words: ``4 parts``, ``learning rate 0.003``."""
    label = setting_label(name)
    counted = isinstance(value, int) and not isinstance(value, bool) and name.endswith("s") and " " not in label
    return f"{value_text(value)} {label}" if counted else f"{label} {value_text(value)}"


def differing_names(configs: Sequence[RunConfig]) -> list[str]:
    """Return a name for each run that tells them apart: its system, then what differs from others of that system."""
    flats = [config.flat for config in configs]
    several_data = len({config.dataset for config in configs}) > 1
    names = []
    for config, flat in zip(configs, flats, strict=True):
        peers = [other for other in flats if other["system"] == config.system]
        parts = [system_title(config.system)]
        if several_data:
            parts.append(dataset_label(config.dataset))
        parts += _differences(flat, peers)
        names.append(", ".join(parts))
    return _numbered(names)


def _differences(flat: Mapping[str, Any], peers: Sequence[Mapping[str, Any]]) -> list[str]:
    differing = [
        name
        for name, value in flat.items()
        if name not in OF_THE_SYSTEM and name != "dataset" and any(peer.get(name) != value for peer in peers)
    ]
    parts = [setting_text(name, flat[name]) for name in differing[:MOST]]
    if len(differing) > MOST:
        parts.append(f"+{len(differing) - MOST} more")
    if any(peer["seed"] != flat["seed"] for peer in peers):
        parts.append(f"seed {flat['seed']}")
    return parts


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names, the second of equal ones with ``(2)`` and so on."""
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return numbered
