"""Names and descriptions of what can be chosen, from the catalogue and the protocols."""

from __future__ import annotations

import html
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.names import list_datasets
from dtdg_lab.graphs.storage import FOLLOWING, LABEL_ARRAYS, graph_folder, read_meta
from dtdg_lab.visualization.palette import coloured

HERE, DOWNLOAD, GENERATED, OWN = "On this machine", "Downloaded on first use", "Synthetic", "Your own graphs"
_NOTE = f"font-size:11.5px;line-height:1.3;color:{coloured('soft')}"


def is_generated(dataset: str) -> bool:
    """Return whether a data set of the catalogue is generated from a seed.

    If only a run's folder describes the data set, this is not known, and False is returned.
    """
    if is_stored(dataset) or ("datasets", dataset) in catalogue.ABSENT:
        return False
    return hasattr(catalogue.entry("datasets", dataset).load(), "generate")


def is_stored(dataset: str) -> bool:
    """Return whether the name is that of a user's own graph, which is stored under its hash."""
    return dataset.startswith(catalogue.STORED)


def dataset_choices() -> dict[str, dict[str, str]]:
    """Return label -> name of all data sets in groups: local files, generators, and files to download."""
    groups: dict[str, dict[str, str]] = {HERE: {}, GENERATED: {}, DOWNLOAD: {}}
    for info in list_datasets():
        group = GENERATED if is_generated(info.name) else HERE if info.on_this_machine else DOWNLOAD
        groups[group][info.name] = info.name
    return {group: choices for group, choices in groups.items() if choices}


def dataset_tasks(dataset: str) -> tuple[str, ...]:
    """Return the tasks that a data set supports."""
    if not is_stored(dataset):
        return catalogue.tasks_of(dataset)
    arrays = _stored_meta(dataset).get("arrays", (f"{FOLLOWING}indptr",))
    return catalogue.tasks_with([label for label, array in LABEL_ARRAYS.items() if array in arrays])


_KINDS = {"dataset": "datasets", "model": "models", "task": "tasks"}


def about(name: str, value: str, refused: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the text below a choice as HTML: what it means or why it is refused, and which others are refused.

    Args:
        name: the setting.
        value: the chosen value.
        refused: value -> why it would be refused with the other settings.
    """
    if value in refused:
        text = f'<span style="color:{coloured("problem")}">{html.escape(refused[value], quote=False)}</span>'
    else:
        text = html.escape(_meaning(name, value), quote=False)
    other_refusals = {choice: why for choice, why in refused.items() if choice != value}
    if other_refusals:
        reasons = "".join(
            f"<div>{html.escape(first_sentence(why), quote=False)}</div>" for why in other_refusals.values()
        )
        text += (
            f"<details><summary>Not available: {html.escape(', '.join(other_refusals))}</summary>{reasons}</details>"
        )
    return f'<div style="{_NOTE}">{text}</div>'


def _meaning(name: str, value: str) -> str:
    if name == "protocol":
        text = catalogue.PROTOCOLS[value].meaning
        return f"{text[0].upper()}{text[1:]}."
    if name == "dataset" and is_stored(value):
        return str(_stored_meta(value).get("source", "Not stored on this machine."))
    return catalogue.system(value).summary if name == "system" else catalogue.entry(_KINDS[name], value).summary


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return f"{text.partition('. ')[0].rstrip('.')}."


def _stored_meta(dataset: str) -> Mapping[str, Any]:
    """Return the meta.json of a stored graph; empty if it is not on this machine."""
    try:
        return read_meta(graph_folder(dataset.removeprefix(catalogue.STORED)))
    except DataError:  # the page shows only the name, and a run reports the problem
        return {}
