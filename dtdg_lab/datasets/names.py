"""Load data sets by name."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS, Entry
from dtdg_lab.config.options import OPTIONS, option
from dtdg_lab.config.registration import code_digest
from dtdg_lab.core.errors import ConfigError, DataError, UnknownNameError, UnsupportedError, shortened
from dtdg_lab.datasets.download import fetch, find, given_folder, remember, verified
from dtdg_lab.datasets.registry import PARSER_VERSION, PUBLISHED, Published
from dtdg_lab.datasets.sequences import DELETION_VERSION, cached_graph, check_one_way, sequence
from dtdg_lab.datasets.user_data import STRICT_LABEL
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.storage import graph_folder, holds_graph, read_meta

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig


# Data sets by definition: found or downloaded, checked, cut, built once, and mapped from the cache.


_BUILT_WITH = ("edge_life", "smoothing_window", "min_edges", "features")  # read by build_graph; the others cut edges


def load_published(
    definition: Published,
    options: Mapping[str, Any],
    *,
    root: str | Path | None = None,
    seed: int = 0,
    strict_label: bool = False,
) -> DynamicGraph:
    """Return the dynamic graph of a published data set.

    Args:
        definition: the data set.
        options: all options of its kind, checked.
        root: a folder that is searched first.
        seed: seed of the edges deleted from a static graph; other data sets do not depend on it.
        strict_label: count only edges of the newest base interval in the label.

    Raises:
        ChecksumError: a file is not the published one, or not the one used before.
        DataError: a file cannot be found, read or parsed, or its edges cannot be cut by the options.
        ConfigError: the options do not go together.
    """
    check_one_way(options.get("cut", 0), options.get("interval", 0))
    form = fetch(definition, root)
    data: dict[str, Any] = {
        "files": verified(definition, form),
        "format": form.form.format,
        "version": PARSER_VERSION,
        "read": dict(form.form.options),
        "interval": definition.interval,
        "weights": definition.weights,
    }
    source = form.where
    if definition.kind == "static":
        data |= {"seed": seed, "deletion": DELETION_VERSION}
        source += f"; edges deleted at random (seed {seed})"

    def make(folder: Path) -> None:
        edges = sequence(definition, form, options, seed=seed)
        build_graph(
            edges, name=definition.name, source=source, strict_label=strict_label, into=folder, **_for_building(options)
        )

    graph = cached_graph(_key(definition.name, data, options, strict_label), make, source=source)
    remember(definition, form)
    return graph


def load_generated(
    definition: Any, options: Mapping[str, Any], *, seed: int = 0, strict_label: bool = False, code: str = ""
) -> DynamicGraph:
    """Return the dynamic graph of a generator, whose snapshots are streamed to the cache.

    Args:
        definition: a generator (see ``datasets.generators``).
        options: all options it reads, checked.
        seed: seed of its random streams.
        strict_label: count only edges of the newest base interval in the label.
        code: digest of the generator's code, where it is not part of the package.

    Raises:
        ConfigError: the options do not go together, such as more edges than fit.
        DataError: the cache cannot be written.
    """
    source = f"generated (seed {seed})"
    built_with = _for_building(options)
    settings = {key.removeprefix("generated_"): value for key, value in options.items() if key not in built_with}
    data = {"generator": type(definition).__name__, "seed": seed, **dataclasses.asdict(definition)}
    if code:
        data["code"] = code

    def make(folder: Path) -> None:
        stream = definition.generate(seed=seed, **settings)
        build_graph(stream, name=definition.name, source=source, strict_label=strict_label, into=folder, **built_with)

    return cached_graph(_key(definition.name, data, options, strict_label), make, source=source)


def _for_building(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in _BUILT_WITH if key in options}


def _key(name: str, data: Mapping[str, Any], options: Mapping[str, Any], strict_label: bool) -> dict[str, Any]:
    """Return everything that a cut graph depends on."""
    return {"name": name, "data": dict(data), "options": dict(options), "strict_label": strict_label}


STORED = catalogue.STORED
FALLBACK = "growing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """Facts about a data set.

    Attributes:
        name: its name for ``lab.datasets.load`` and ``RunConfig``.
        source: the paper to cite, and the collection.
        licence: its licence, as far as stated.
        rows: edges in the source; None where options decide, or where it is not stated.
        nodes: nodes; None as for ``rows``.
        bytes: size of its files on this machine, else of the download; None where neither is known.
        tasks: tasks that it has labels for, such as ``regression``.
        on_this_machine: whether it can be loaded without the web.
        where: the files, or their source.
    """

    name: str
    source: str
    licence: str
    rows: int | None
    nodes: int | None
    bytes: int | None
    tasks: tuple[str, ...]
    on_this_machine: bool
    where: str


def load_dataset(
    name: str, *, root: str | Path | None = None, seed: int = 0, strict_label: bool = False, **options: Any
) -> DynamicGraph:
    """Return a data set as a dynamic graph: found or downloaded, checked, cut, and memory-mapped from the cache.

    A file is searched in ``root``, in $DTDG_LAB_DATA, and among earlier downloads, and else downloaded. The graph's
    ``source`` tells its origin.

    Args:
        name: one of :func:`datasets`, or the ``"graph:<hash>"`` that ``DynamicGraph.store`` returned.
        root: a folder that holds the files; for a stored graph, the cache folder it was stored under. Generators read
            no files.
        seed: seed of a generated graph, and of the edges deleted from a static one.
        strict_label: count only edges of the newest base interval in the label; without effect where the file gives
            the values to predict.
        **options: options of cutting or generating, by their glossary names. Others have the data set's default, or
            the glossary's. Edges with times read ``cut``, ``cut_by``, ``interval``, ``drop_first``,
            ``drop_partial`` and ``min_edges``; static graphs ``generated_snapshots``, ``growth`` and ``growth_curve``;
            generators their own; all of them ``edge_life``, ``smoothing_window`` and ``features``.

    Raises:
        UnknownNameError: no such data set or option; the closest match is suggested.
        ConfigError: an option is out of its bounds, the data set does not read it, or ``name`` is no text.
        ChecksumError: a file is not the published one, or not the one used before.
        DataError: a file cannot be found, read or parsed, or ``root`` is no folder.
    """
    _check_name(name)
    seed, strict_label = option("seed").check(seed), STRICT_LABEL.check(strict_label)
    if name.startswith(STORED):
        _refuse_others(name, (), options)
        return _stored(name, root, strict_label=strict_label)
    entry = catalogue.entry("datasets", name)
    _refuse_others(name, entry.options, options)
    settings = {key: option(key).default for key in entry.options} | dict(entry.defaults) | options
    checked = {key: option(key).check(settings[key]) for key in entry.options}
    if "cut" not in options and checked.get("interval"):
        checked["cut"] = 0  # a length that is given overrides the data set's own number
    definition = entry.load()
    if isinstance(definition, Published):
        return load_published(definition, checked, root=root, seed=seed, strict_label=strict_label)
    if root is not None:
        given_folder(root)  # no file is read, but a wrong folder is refused
    code = code_digest(entry)
    if code is None:
        code = uuid.uuid4().hex  # a graph that is made again for each call
    return load_generated(definition, checked, seed=seed, strict_label=strict_label, code=code)


def _check_name(name: Any) -> None:
    """Refuse a value that names neither a data set nor a stored graph."""
    names = catalogue.names("datasets")
    if not isinstance(name, str):
        graph = isinstance(name, DynamicGraph)
        advice = "It is a graph already: use it as it is." if graph else f"Give one as text: {', '.join(names)}."
        kind = type(name).__name__
        raise ConfigError(f"lab.datasets.load got {shortened(name)}, of type {kind}, in place of a name. {advice}")
    if name not in names and not name.startswith(STORED):
        advice = f"A graph of your own: lab.datasets.from_edges(...).store() returns its name, {STORED}<hash>."
        raise UnknownNameError("data set", name, names, advice)


def _refuse_others(name: str, allowed: tuple[str, ...], settings: dict[str, Any]) -> None:
    """Refuse settings that the data set would ignore. Glossary defaults of other options are allowed."""
    option_names = tuple(name for name, option_ in OPTIONS.items() if option_.owner == "datasets")
    for key, value in settings.items():
        if key in allowed:
            continue
        if key not in OPTIONS:
            advice = f"These are what data set {name!r} reads." if allowed else "A stored graph reads none of them."
            raise UnknownNameError("option", key, allowed or option_names, advice)
        if key in option_names and OPTIONS[key].check(value) == OPTIONS[key].default:
            continue
        why = (
            "a stored graph is cut already: set it where the graph is made"
            if name.startswith(STORED)
            else f"it reads {', '.join(allowed)}"
        )
        raise UnsupportedError(f"{key}={shortened(value)} has no meaning for data set {name!r}: {why}.")


def _stored(name: str, root: str | Path | None, *, strict_label: bool) -> DynamicGraph:
    key = name.removeprefix(STORED)
    folder = graph_folder(key, root)
    if not key.isalnum() or not holds_graph(folder):
        raise DataError(
            f"{shortened(name)} is not stored in {str(folder.parent)[:500]}. Make the graph again and call "
            "graph.store(), or set DTDG_LAB_CACHE, or root=, to the cache it was stored under."
        )
    if not str(read_meta(folder).get("data_hash")).startswith(key):
        raise DataError(f"{folder} holds a graph of another hash. Delete the folder and store the graph again.")
    graph = DynamicGraph.load(folder)
    # both labels are the same where edges live one interval, which is the whole snapshot, and where values are given
    if strict_label != graph.strict_label and graph.edge_life > 1 and graph.following is not None:
        raise UnsupportedError(
            f"{name!r} was made with strict_label={graph.strict_label} and its labels cannot be changed. Make it with "
            f"from_edges(..., strict_label={strict_label}), or choose a protocol whose label fits (strict: True)."
        )
    return graph


def load_for(config: RunConfig) -> DynamicGraph:
    """Return the dynamic graph a run trains on: its data set, options, seed, and the label its protocol asks for.

    Raises:
        LabError: as :func:`load_dataset`.
    """
    strict_label = PROTOCOLS[config.protocol].strict_label
    if config.dataset.startswith(STORED):
        return load_dataset(config.dataset, strict_label=strict_label)
    options = {key: config[key] for key in catalogue.entry("datasets", config.dataset).options}
    return load_dataset(config.dataset, seed=config.seed, strict_label=strict_label, **options)


def list_datasets(root: str | Path | None = None) -> list[DatasetInfo]:
    """List the data sets in the catalogue's order, and whether this machine has them; no file is read.

    Raises:
        DataError: ``root`` is given and is no folder.
    """
    if root is not None:
        given_folder(root)
    return [_info(catalogue.entry("datasets", name), root) for name in catalogue.names("datasets")]


def _info(entry: Entry, root: str | Path | None) -> DatasetInfo:
    definition = entry.load()
    columns: dict[str, Any] = {
        "name": entry.name,
        "source": definition.cite,
        "licence": definition.licence,
        "tasks": catalogue.tasks_of(entry.name),
    }
    if not isinstance(definition, Published):
        return DatasetInfo(
            **columns, rows=None, nodes=None, bytes=None, on_this_machine=True, where="generated when asked for"
        )
    size = definition.bytes
    try:
        form = find(definition, root)
        if form is not None:
            source, size = form.where, sum(path.stat().st_size for path in form.paths)
        elif definition.address:
            source = f"to be downloaded from {definition.address}"
        else:
            source = f"to be downloaded manually from {definition.page}"
    except (DataError, OSError) as error:  # a wrong folder in the environment: the list is the place to see it
        form, source = None, str(error)
    return DatasetInfo(
        **columns,
        rows=definition.rows,
        nodes=definition.nodes,
        bytes=size,
        on_this_machine=form is not None,
        where=source,
    )


def default_dataset(wanted: str = "collegemsg", *, root: str | Path | None = None) -> str:
    """Return ``wanted`` if this machine has it, else ``"growing"``, which needs neither file nor network.

    Args:
        wanted: name of a published data set.
        root: folder of data sets; None for $DTDG_LAB_DATA and the download cache.

    Raises:
        UnknownNameError: there is no such published data set.
        DataError: ``root`` or $DTDG_LAB_DATA is given and is not a folder.
    """
    if not isinstance(wanted, str) or wanted not in PUBLISHED:
        raise UnknownNameError("data set", wanted, PUBLISHED)
    return wanted if find(PUBLISHED[wanted], root) else FALLBACK
