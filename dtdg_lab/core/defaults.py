"""The value an option has where none is given: protocol, data set and system may bring another than the glossary's."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.options import option
from dtdg_lab.core.protocols import PROTOCOLS

# room -> the option that names its entry
CHOSEN_BY = {
    "scheduling": "scheduler", "partition": "partitioner", "control": "adjuster", "comm": "exchange",
    "features": "cache_policy", "congestion": "congestion",
}  # fmt: skip


def default(name: str, *, system: str, dataset: str, protocol: str) -> Any:
    """The default of an option in a run: the protocol's, else the data set's, the system's, the glossary's.

    A data set with features of its own keeps them under every protocol.

    Raises:
        UnknownNameError: one of the names is unknown.
    """
    chosen = catalogue.system(system)
    brought = [PROTOCOLS[protocol].settings]
    if not dataset.startswith(catalogue.STORED):
        own = catalogue.entry("datasets", dataset).defaults
        brought.insert(0 if name == "features" and own.get(name) == "given" else 1, own)
    own_parts = {option: chosen.parts[room] for room, option in CHOSEN_BY.items() if room in chosen.parts}
    brought.append({**chosen.defaults, **own_parts})
    for settings in brought:
        if name in settings:
            return settings[name]
    return option(name).default
