"""Data sets by their definition: found or downloaded, checked, cut, built once and mapped from the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtdg_lab.datasets.download import fetch, remember, verified
from dtdg_lab.datasets.registry import PARSER_VERSION, Published
from dtdg_lab.datasets.sequences import DELETION_VERSION, cached_graph, sequence
from dtdg_lab.datasets.user_data import check_one_way
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph

_BUILT_WITH = ("edge_life", "smoothing_window", "min_edges", "features")  # what build_graph reads; the rest cuts


def load_published(
    definition: Published,
    options: Mapping[str, Any],
    *,
    root: str | Path | None = None,
    seed: int = 0,
    strict_label: bool = False,
) -> DynamicGraph:
    """The dynamic graph of a published data set.

    Args:
        definition: the data set.
        options: all options of its kind, checked.
        root: a folder that is searched first.
        seed: of the edges deleted from a static graph; the others do not depend on it.
        strict_label: count only edges of the newest base interval in the label.

    Raises:
        ChecksumError: a file is not the published one, or not the one used before.
        DataError: a file cannot be found, read or understood, or not cut as the options say.
        ConfigError: the options do not go together.
    """
    check_one_way(options.get("cut", 0), options.get("interval", 0))
    found = fetch(definition, root)
    data: dict[str, Any] = {
        "files": verified(definition, found),
        "format": found.form.format,
        "version": PARSER_VERSION,
        "read": dict(found.form.options),
        "interval": definition.interval,
        "weights": definition.weights,
    }
    source = found.where
    if definition.kind == "static":
        data |= {"seed": seed, "deletion": DELETION_VERSION}
        source += f"; edges deleted at random (seed {seed})"

    def make(folder: Path) -> None:
        edges = sequence(definition, found, options, seed=seed)
        build_graph(
            edges,
            name=definition.name,
            source=source,
            strict_label=strict_label,
            into=folder,
            **_for_building(options),
        )

    graph = cached_graph(_key(definition.name, data, options, strict_label), make, source=source)
    remember(definition, found)
    return graph


def load_generated(
    definition: Any, options: Mapping[str, Any], *, seed: int = 0, strict_label: bool = False
) -> DynamicGraph:
    """The dynamic graph of a generator, which streams: its snapshots are written to the cache as they come.

    Args:
        definition: a generator (see ``datasets.generators``).
        options: all options it reads, checked.
        seed: of its random streams.
        strict_label: count only edges of the newest base interval in the label.

    Raises:
        ConfigError: the options do not go together, such as more edges than fit.
        DataError: the cache cannot be written.
    """
    source = f"generated (seed {seed})"
    built_with = _for_building(options)
    settings = {key.removeprefix("generated_"): value for key, value in options.items() if key not in built_with}
    data = {"generator": type(definition).__name__, "seed": seed, **dataclasses.asdict(definition)}

    def make(folder: Path) -> None:
        stream = definition.generate(seed=seed, **settings)
        build_graph(stream, name=definition.name, source=source, strict_label=strict_label, into=folder, **built_with)

    return cached_graph(_key(definition.name, data, options, strict_label), make, source=source)


def _for_building(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in _BUILT_WITH if key in options}


def _key(name: str, data: Mapping[str, Any], options: Mapping[str, Any], strict_label: bool) -> dict[str, Any]:
    """What a cut graph depends on."""
    return {"name": name, "data": dict(data), "options": dict(options), "strict_label": strict_label}
