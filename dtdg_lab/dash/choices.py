"""What the controls offer by name, and the words under a choice: from the catalogue and the protocols."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.datasets import datasets
from dtdg_lab.graphs.store import graph_folder, read_meta
from dtdg_lab.views.theme import coloured

HERE, DOWNLOAD, GENERATED, OWN = "On this machine", "Download at first use", "Generated here", "Your own graphs"
_GENERATORS = "dtdg_lab.datasets.generators."
_NOTE = f"font-size:11.5px;line-height:1.3;color:{coloured('soft')}"


def is_generated(dataset: str) -> bool:
    """Whether a data set of the catalogue is made by a seeded generator."""
    return not is_stored(dataset) and catalogue.entry("datasets", dataset).target.startswith(_GENERATORS)


def is_stored(dataset: str) -> bool:
    """Whether it names a graph of the user's own, stored under its hash."""
    return dataset.startswith(catalogue.STORED)


def dataset_choices() -> dict[str, dict[str, str]]:
    """Label -> name of every data set, in groups: files that are here, generators, files to be downloaded."""
    groups: dict[str, dict[str, str]] = {HERE: {}, GENERATED: {}, DOWNLOAD: {}}
    for info in datasets():
        group = GENERATED if is_generated(info.name) else HERE if info.on_this_machine else DOWNLOAD
        groups[group][info.name] = info.name
    return {group: choices for group, choices in groups.items() if choices}


def dataset_label(dataset: str) -> str:
    """What a data set is called in the choice: its name; of the user's own, the name it was given and its hash."""
    if not is_stored(dataset):
        return dataset
    return f"{_stored_meta(dataset).get('name', 'not on this machine')} ({dataset.removeprefix(catalogue.STORED)[:8]})"


def dataset_tasks(dataset: str) -> tuple[str, ...]:
    """What can be learned on a data set."""
    if not is_stored(dataset):
        return catalogue.entry("datasets", dataset).tasks
    classified = "classes" in _stored_meta(dataset).get("arrays", ())
    return ("regression", "link", "classification") if classified else ("regression", "link")


def about(name: str, value: str) -> str:
    """The words under a choice, as HTML: what the data set or model is, what the protocol means."""
    if name == "protocol":
        text = PROTOCOLS[value].meaning
        said = f"{text[0].upper()}{text[1:]}."
    elif name == "dataset" and is_stored(value):
        said = str(_stored_meta(value).get("source", "Not stored on this machine."))
    else:
        said = catalogue.entry("datasets" if name == "dataset" else "models", value).summary
    return f'<div style="{_NOTE}">{html.escape(said, quote=False)}</div>'


def _stored_meta(dataset: str) -> Mapping[str, Any]:
    """The meta.json of a stored graph; empty where this machine does not hold it."""
    try:
        return read_meta(graph_folder(dataset.removeprefix(catalogue.STORED)))
    except DataError:  # the page shows the name all the same; a run of it says what is wrong
        return {}
