"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import DataError, UnknownNameError, UnsupportedError
from dtdg_lab.core.options import option
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.datasets.cut_cache import cached_graph
from dtdg_lab.datasets.fetch import fetch, find, verified
from dtdg_lab.datasets.growing import GENERATOR_VERSION, Growing
from dtdg_lab.datasets.snap import COLLEGEMSG, SnapText, read_edges
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.store import graph_folder, holds_graph, read_meta
from dtdg_lab.graphs.windows import IntervalEdges

if TYPE_CHECKING:
    from dtdg_lab.core.config import RunConfig

STORED = "graph:"
FALLBACK = "growing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """What the lab knows about a data set; ``rows`` and ``nodes`` are None where options decide them."""

    name: str
    source: str
    licence: str
    rows: int | None
    nodes: int | None
    on_this_machine: bool
    where: str


def load_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    seed: int = 0,
    cut: int = 0,
    edge_life: int = 1,
    features: str = "log_degrees",
    strict_label: bool = False,
    **generated: Any,
) -> DynamicGraph:
    """A data set as a dynamic graph: found or downloaded, checked, cut, and memory-mapped from the cache.

    A file is looked for in ``root``, then in $DTDG_LAB_DATA, then among earlier downloads, then downloaded; the
    graph's ``source`` says where it came from.

    Args:
        name: one of :func:`datasets`, or ``"graph:<hash>"`` as ``DynamicGraph.store`` returned it.
        root: a folder that holds the file; for a stored graph, the cache folder it was stored under.
        seed: seed of a generated graph.
        cut: equal base intervals over the whole span; 0 takes the data set's own window length.
        edge_life: base intervals an edge lives.
        features: ``log_degrees`` or ``degrees``.
        strict_label: count only edges of the newest base interval in the label.
        **generated: ``generated_nodes``, ``generated_edges``, ``generated_snapshots``, ``growth`` of ``growing``.

    Raises:
        UnknownNameError: no such data set or option; the closest match is suggested.
        ConfigError: an option is out of its bounds, or the data set does not read it.
        ChecksumError: the file is not the published one.
        DataError: the file cannot be found, read or understood.
    """
    given = {"cut": cut, "edge_life": edge_life, "features": features, **generated}
    if name.startswith(STORED):
        _refuse_others(name, (), given)
        return _stored(name, root, strict_label=strict_label)
    if name not in catalogue.names("datasets"):
        advice = f"A graph of your own: from_edges(...).store() returns its name, {STORED}<hash>."
        raise UnknownNameError("data set", name, catalogue.names("datasets"), advice)
    entry = catalogue.entry("datasets", name)
    _refuse_others(name, entry.options, given)
    options = {key: option(key).check(given.get(key, option(key).default)) for key in entry.options}
    definition = entry.load()
    if isinstance(definition, Growing):
        return load_growing(definition, seed=seed, strict_label=strict_label, **options)
    return load_text(definition, root=root, strict_label=strict_label, **options)


def load_text(
    definition: SnapText,
    *,
    root: str | Path | None = None,
    cut: int = 0,
    edge_life: int = 1,
    features: str = "log_degrees",
    strict_label: bool = False,
) -> DynamicGraph:
    """The dynamic graph of a text file; see :func:`load_dataset`, which calls this with the file's definition."""
    path = fetch(definition, root)
    text = verified(definition, path)
    data = {"sha256": definition.sha256_text, "cut": cut, "window_s": 0 if cut else definition.window_s}
    return _cut(
        partial(read_edges, definition, text, cut=cut), data, name=definition.name, strict_label=strict_label,
        source=f"file {path.name} in {path.parent}", edge_life=edge_life, features=features,
    )  # fmt: skip


def load_growing(
    definition: Growing,
    *,
    seed: int,
    generated_nodes: int,
    generated_edges: int,
    generated_snapshots: int,
    growth: float,
    edge_life: int = 1,
    features: str = "log_degrees",
    strict_label: bool = False,
) -> DynamicGraph:
    """A generated dynamic graph; see :func:`load_dataset`, which calls this."""

    def generate() -> IntervalEdges:
        return definition.generate(
            seed=seed, nodes=generated_nodes, edges=generated_edges, snapshots=generated_snapshots, growth=growth
        )

    data = {
        "generator": GENERATOR_VERSION, "seed": seed, "nodes": generated_nodes, "edges": generated_edges,
        "snapshots": generated_snapshots, "growth": growth, **asdict(definition),
    }  # fmt: skip
    return _cut(
        generate, data, name=definition.name, strict_label=strict_label,
        source=f"generated (seed {seed})", edge_life=edge_life, features=features,
    )  # fmt: skip


def _cut(
    read: Callable[[], IntervalEdges],
    data: dict[str, Any],
    *,
    name: str,
    source: str,
    edge_life: int,
    features: str,
    strict_label: bool,
) -> DynamicGraph:
    """Cut what ``read`` gives, or take it from the cache; ``data`` identifies what it gives."""
    options = {"edge_life": edge_life, "features": features, "strict_label": strict_label}

    def make() -> DynamicGraph:
        return build_graph(
            read(), name=name, source=source, edge_life=edge_life, features=features, strict_label=strict_label
        )

    return cached_graph({"name": name, **data, **options}, make, source=source)


def _refuse_others(name: str, allowed: tuple[str, ...], given: dict[str, Any]) -> None:
    """Refuse settings that the data set would silently ignore; defaults are no settings."""
    for key, value in given.items():
        if key in allowed or value == option(key).default:
            continue
        why = (
            "a stored graph is cut already: set it where the graph is made"
            if name.startswith(STORED)
            else f"it reads {', '.join(allowed)}"
        )
        raise UnsupportedError(f"{key}={value!r} has no meaning for data set {name!r}: {why}.")


def _stored(name: str, root: str | Path | None, *, strict_label: bool) -> DynamicGraph:
    key = name.removeprefix(STORED)
    folder = graph_folder(key, root)
    if not key.isalnum() or not holds_graph(folder):
        raise DataError(
            f"{name!r} is not stored in {folder.parent}. Make the graph again and call graph.store(), or set "
            "DTDG_LAB_CACHE to the cache it was stored under."
        )
    if not read_meta(folder)["data_hash"].startswith(key):
        raise DataError(f"{folder} holds a graph of another hash. Delete the folder and store the graph again.")
    graph = DynamicGraph.load(folder)
    # where edges live one interval, the newest interval is the whole snapshot and both labels are the same
    if strict_label != graph.strict_label and graph.edge_life > 1:
        raise UnsupportedError(
            f"{name!r} was made with strict_label={graph.strict_label} and its labels cannot be changed. Make it with "
            f"from_edges(..., strict_label={strict_label}), or choose a protocol whose label fits (strict: True)."
        )
    return graph


def load_for(config: RunConfig) -> DynamicGraph:
    """The dynamic graph a run trains on: its data set, options, seed, and the label its protocol asks for.

    Raises:
        LabError: as :func:`load_dataset`.
    """
    strict_label = PROTOCOLS[config.protocol].strict_label
    if config.dataset.startswith(STORED):
        return load_dataset(config.dataset, strict_label=strict_label)
    options = {key: config[key] for key in catalogue.entry("datasets", config.dataset).options}
    return load_dataset(config.dataset, seed=config.seed, strict_label=strict_label, **options)


def datasets(root: str | Path | None = None) -> list[DatasetInfo]:
    """What data sets there are, and whether this machine has them, in the catalogue's order."""
    return [_info(catalogue.entry("datasets", name).load(), root) for name in catalogue.names("datasets")]


def _info(definition: SnapText | Growing, root: str | Path | None) -> DatasetInfo:
    if isinstance(definition, Growing):
        return DatasetInfo(
            name=definition.name, source=definition.cite, licence=definition.licence, rows=None, nodes=None,
            on_this_machine=True, where="generated when asked for",
        )  # fmt: skip
    try:
        path = find(definition, root)
        where = str(path) if path else f"to be downloaded from {definition.urls[0]}"
    except DataError as error:  # a wrong folder in the environment: the list is the place to see it
        path, where = None, str(error)
    return DatasetInfo(
        name=definition.name, source=definition.cite, licence=definition.licence, rows=definition.rows,
        nodes=definition.nodes, on_this_machine=path is not None, where=where,
    )  # fmt: skip


def default_dataset(root: str | Path | None = None) -> str:
    """``"collegemsg"`` where this machine has it, else ``"growing"``, which needs neither file nor network.

    Raises:
        DataError: ``root`` or $DTDG_LAB_DATA is given and is not a folder.
    """
    return COLLEGEMSG.name if find(COLLEGEMSG, root) else FALLBACK
