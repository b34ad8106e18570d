"""Short runs of every system on one and two ranks, described by what a reorganisation must not change.

A description is plain JSON; it names no module of the package. All internal modules that the frozen tests need are
imported here and nowhere else.
"""

from __future__ import annotations

import inspect
import json
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import dtdg_lab as lab
from dtdg_lab.config.catalogue import names
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.datasets.names import load_for
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups, drawn_charts
from dtdg_lab.testing.processes import join_group, run_ranks
from dtdg_lab.testing.training import train_in_memory
from dtdg_lab.visualization.chart import ChartOptions, Figure

Settings = Mapping[str, Any]
Rows = dict[str, list[dict[str, Any]]]  # of one rank: table -> rows
BASE: Settings = {
    "dataset": "growing",
    "generated_nodes": 48,
    "generated_edges": 200,
    "generated_snapshots": 24,
    "hidden": 4,
    "epochs": 2,
    "learning_rate": 0.05,
    "optimizer": "sgd",
    "dtype": "float64",
    "kernel": "torch",
    "device": "cpu",
    "threads": 1,
    "seed": 7,
    "parts": 2,
}
SHARED: Settings = {"epoch_batches": 6, "generators": "threads"}  # of systems whose batches are hybrid
SMALL: Settings = {**SHARED, "batch_nodes": 0.2}
SIZES: Settings = {"snapshot_sizes": "0.2 0.4", "node_sizes": "0.2 1", "decide_every": 2}
REMOTE: Settings = {
    "partitioner": "hash",
    "layers": 2,
    "batch_size": 48,
    "batch_length": 3,
    "fanouts": "3 3",
    "cache_rows": 40,
    "cache_window": 3,
}

# "SYSTEM" or "SYSTEM, VARIANT" -> settings. Models, tasks and rarer settings are spread over the systems.
CASES: Mapping[str, Settings] = {
    "single": {"model": "evolvegcn-h", "parts": 1},
    "pipad": {"model": "tgcn", "layers": 2, "edge_life": 3, "protocol": "leaky", "shared_snapshots": 3, "parts": 1},
    "psg": {"model": "mpnn-lstm", "task": "link", "profile_epochs": 1},
    "blad": {"model": "wdgcn"},
    "dygnex-g": {"model": "cdgcn", "group_times": "size"},
    "dygnex-l": {"model": "tmgcn", "group_times": "size"},
    "esdg": {"model": "gatlstm", "blocks": 3, "graph_storage": "streamed"},
    "esdg-hybrid": {"model": "evolvegcn-h", "layers": 2},
    "hypergraph-vertex": {"model": "dcrnn"},
    "adgnn-t": {"model": "tgcn", "layers": 2},
    "pygt-dist": {"model": "graphsage", "layers": 2},
    "dbov": {"model": "evolvegcn-o", **SMALL},
    "dbos": {"model": "mpnn-lstm", **SHARED},
    "bvr": {"model": "tgcn", **SMALL},
    "dynahb": {"model": "tgcn", **SMALL, **SIZES},
    "dynahb, synchronous": {
        "model": "dcrnn",
        **SMALL,
        **SIZES,
        "batch_policy": "random",
        "exchange": "gradients",
        "reservoir": False,
    },
    "flaredtdg": {"model": "tgcn", "window": 4, "chunker": "hash", "alpha": 0.4, "tune": True, "tune_every": 1},
    "full-history": {"model": "cdgcn", "window": 4},
    "recent-only": {"model": "wdgcn"},
    "dynagraph": {
        "model": "gatlstm",
        "window": 4,
        "fanout": 3,
        "task": "classification",
        "dataset": "sbm",
        "communities": 2,
        "generated_edges": 100,
    },
    "dgl-default": {"model": "tgcn", **REMOTE},
    "bgl": {"model": "graphsage", **REMOTE},
    "rapidgnn": {"model": "evolvegcn-o", **REMOTE},
    "fixed-window": {"model": "wdgcn", **REMOTE},
    "threshold-window": {"model": "mpnn-lstm", **REMOTE, "links": "1>0 delay=2"},
    "greendygnn": {"model": "tgcn", **REMOTE},
    "clairvoyant": {"model": "tmgcn", **REMOTE, "congestion": "two_symmetric", "congestion_ms": 1.0},
}

# These runs do not exist.
NO_RUN: Mapping[tuple[str, int], str] = {
    ("single", 2): "the system has one rank",
    ("pipad", 2): "the system has one rank",
    ("esdg-hybrid", 1): "the system splits a snapshot over two ranks",
}

# The losses of these systems depend on timing.
NO_LOSSES: Mapping[str, str] = {
    "bvr": "a step takes its batch from the reservoir if one is ready, and all vertices otherwise",
    "dynahb": "batches come from a reservoir, measured times choose their size, and models are averaged asynchronously",
}

# What these systems record depends on timing: what is frozen occurs in every run, and other rows and texts may as well.
_RESERVOIR = "whether a batch comes from the reservoir"
_CACHE = "when a cache is ready, and what replies to it were measured to take"
UNSTEADY: Mapping[str, str] = {
    "bvr": _RESERVOIR,
    "dynahb": f"{_RESERVOIR}, which size is chosen, and when models are averaged",
    "rapidgnn": _CACHE,
    "fixed-window": _CACHE,
    "threshold-window": _CACHE,
    "greendygnn": _CACHE,
    "clairvoyant": _CACHE,
}


def config_of(case: str, ranks: int, **changes: Any) -> lab.RunConfig:
    """The settings of a case."""
    system = case.partition(",")[0]
    return lab.RunConfig(**{**BASE, **CASES[case], **changes, "system": system, "ranks": ranks})


def systems() -> set[str]:
    """All systems of the catalogue."""
    return set(names("systems"))


# runs


def run_here(case: str, **changes: Any) -> dict[str, Any]:
    """Train on one rank in this process, and describe the folder that the run left."""
    with tempfile.TemporaryDirectory() as folder:
        run = lab.train(config_of(case, 1, **changes), runs_dir=folder, progress=False)
        (file,) = (run.path / "records").glob("*.jsonl")
        found = _described(case, [_read(file)], run.config)
        if found["figures"].keys() != run.figures().keys():
            raise AssertionError(f"{case}: the stored run has other figures: {', '.join(run.figures())}")
        found["figures"]["report"] = {"sections": re.findall(r"<h2>(.*?)</h2>", (run.path / "report.html").read_text())}
        return {**found, "summary": {name: _kind(value) for name, value in run.summary.items()}}


def run_on_ranks(cases: Collection[str], **changes: Any) -> dict[str, dict[str, Any]]:
    """Train on two ranks, in processes that are started once, and describe what the ranks recorded."""
    chosen = [case for case in cases if (case, 2) not in NO_RUN]
    with tempfile.TemporaryDirectory() as folder:
        recorded = run_ranks(train_all, 2, chosen, folder, changes, timeout_s=300)
    return {case: _described(case, [found[case] for found in recorded], config_of(case, 2)) for case in chosen}


def train_all(
    rank: int, ranks: int, address: str, cases: Sequence[str], folder: str, changes: Settings
) -> dict[str, Rows]:
    """What one rank records in each case."""
    group, found = join_group(rank, ranks, address), {}
    for number, case in enumerate(cases):
        group.barrier()
        config = config_of(case, ranks, **changes)
        done = train_in_memory(config, load_for(config), Path(folder) / f"{number}.pt", group=group)
        found[case] = json.loads(json.dumps(done.recorder.tables, default=lambda value: value.tolist()))
    group.close()
    return found


def _read(file: Path) -> Rows:
    """The rows of a rank's file of records."""
    rows: Rows = {}
    for line in map(json.loads, file.read_text().splitlines()):
        rows.setdefault(line["table"], []).extend(dict(zip(line["columns"], row, strict=True)) for row in line["rows"])
    return rows


# descriptions


def _described(case: str, ranks: list[Rows], config: lab.RunConfig) -> dict[str, Any]:
    """Losses, events, tables and figures of a run; no captions where what they say depends on timing."""
    tables = RunTables(config, rollups=all_rollups())
    tables.add_lines(_made_up_times(ranks))
    cards = drawn_charts(tables, ChartOptions(whole_run=True))
    timed = case.partition(",")[0] in UNSTEADY
    said = {chart.name: [] if timed else [_masked(caption)] for chart, (_, caption) in cards.items()}
    return {
        "losses": [row["global_loss"] for row in ranks[0]["steps"]],
        "events": _events(ranks),
        "tables": _tables(ranks),
        "figures": {chart.name: {**_card(figure), "caption": said[chart.name]} for chart, (figure, _) in cards.items()},
    }


def _kind(value: Any) -> str:
    """What a value of JSON is."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "bool"
    kinds = {str: "text", list: "list", dict: "mapping"}
    return kinds.get(type(value), "number")


def _joined(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))


def _tables(ranks: list[Rows]) -> dict[str, dict[str, str]]:
    """Table -> column -> kinds of its values."""
    found: dict[str, dict[str, set[str]]] = {}
    for table, rows in (item for tables in ranks for item in tables.items()):
        for column, value in (item for row in rows for item in row.items()):
            found.setdefault(table, {}).setdefault(column, set()).add(_kind(value))
    return {table: {column: _joined(kinds) for column, kinds in columns.items()} for table, columns in found.items()}


def _events(ranks: list[Rows]) -> dict[str, dict[str, str]]:
    """Kind of event -> path in its data -> kinds of the value; ``a[].b`` is a value in a list of mappings."""
    found: dict[str, dict[str, set[str]]] = {}
    for row in (row for rows in ranks for row in rows.get("events", ())):
        if row["kind"] in ("preparing", "between_steps"):  # only where it took long
            continue
        of_kind = found.setdefault(row["kind"], {})
        for path, kind in _paths(row["data"] or {}):
            of_kind.setdefault(path, set()).add(kind)
    return {kind: {path: _joined(kinds) for path, kinds in of.items()} for kind, of in found.items()}


def _paths(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        path = before + key
        yield path, _kind(value)
        if isinstance(value, dict):
            yield from _paths(value, f"{path}.")
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict):
                yield from _paths(item, f"{path}[].")


def _card(figure: Figure) -> dict[str, Any]:
    """The words of a figure, its axes, traces and notes, with # for numbers."""
    layout = figure["layout"]
    words = layout["meta"]["card"]
    traces = [f"{trace['type']}: {_masked(trace.get('name') or '')}" for trace in figure["data"]]
    axes = [
        f"{axis[0]}: {_masked((settings.get('title') or {}).get('text') or '')}"
        for axis, settings in layout.items()
        if re.fullmatch(r"[xy]axis\d*", axis)
    ]
    notes = [_masked(note.get("text") or "") for note in layout.get("annotations") or ()]
    keys = [f"{mark}: {_masked(label)}" for label, _, mark in words["keys"]]
    return {
        "title": _masked(words["title"]),
        "unit": _masked(words["unit"]),
        "keys": list(dict.fromkeys(keys)),
        "axes": sorted(set(axes)),
        "traces": list(dict.fromkeys(traces)),
        "notes": [note for note in dict.fromkeys(notes) if note.strip("# ")],
    }


_NUMBER = r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?"
_UNITS = r"# ([KMGT]i?B|B|[mnuµ]?s|min|h|[mkM]?[JW])\b"


def _masked(text: str) -> str:
    """The text without tags, with # for numbers, and ``# unit`` where the size of the number chooses the unit."""
    text = re.sub(r"</?\w+[^>]*>", "", text.replace("<br>", " "))
    return re.sub(_UNITS, "# unit", re.sub(_NUMBER, "#", text)).replace("# to #", "#")


# figures that do not depend on how fast this machine is

_STEP_NS, _PART_NS = 10**8, 10**6
_MADE_UP = {"_s": 0.01, "_j": 1.0, "_w": 10.0}
_MEASURED = {"seconds": 0.01, "joules": 1.0, "watts": 10.0, "rss_bytes": 1e8, "peak_rss_bytes": 1e8, "coverage": 1.0}


def _made_up_times(ranks: list[Rows]) -> Iterator[dict[str, Any]]:
    """Record lines of all ranks, in the order of steps, with made-up seconds, joules and resident bytes."""
    lines = []
    for rank, tables in enumerate(ranks):
        for table, rows in tables.items():
            rows_of_step: Counter[int] = Counter()
            for row in _steady_rows(rows):
                step = row.get("step") or 0
                place = rows_of_step[step]
                rows_of_step[step] += 1
                order = ("started" not in row.values(), step, table != "events", table == "steps", place)
                lines.append((order, rank, table, _with_made_up_times(row, step, place)))
    for _, rank, table, row in sorted(lines, key=lambda line: line[0]):
        yield {"rank": rank, "attempt": 1, "table": table, "columns": list(row), "rows": [list(row.values())]}


def _steady_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One reading of energy for each device and phase, and no phase of checkpoints: how long the run took decides
    how many readings there are, and in which epoch a checkpoint was written to the end.
    """
    rows = [row for row in rows if row.get("phase") != "checkpoint"]
    if not rows or "joules" not in rows[0]:
        return rows
    return list({(row.get("device"), row.get("phase")): row for row in reversed(rows)}.values())


def _with_made_up_times(row: Settings, step: int, place: int) -> dict[str, Any]:
    start_ns = 10**18 + step * _STEP_NS + place * _PART_NS
    clocks = {"time_ns": start_ns, "start_ns": start_ns, "end_ns": start_ns + _PART_NS}
    values = {**_made_up(row), **{name: value for name, value in clocks.items() if name in row}}
    known_by = {name: "modelled" for name in ("source", "energy_source") if "joules" in row or "energy_j" in row}
    return {**values, **{name: value for name, value in known_by.items() if name in row}}


def _made_up(row: Settings) -> dict[str, Any]:
    return {name: _one_made_up(name, value) for name, value in row.items()}


def _one_made_up(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _made_up(value)
    if isinstance(value, list) and name[-2:] in _MADE_UP:
        return [_one_made_up(name, item) for item in value]
    instead = _MEASURED.get(name, _MADE_UP.get(name[-2:]))
    return value if instead is None or _kind(value) != "number" else instead


# names


def public_names() -> dict[str, Any]:
    """What ``dtdg_lab`` and its groups export: kind and parameters, and the public members of classes."""
    found = {name: getattr(lab, name) for name in lab.__all__}
    groups = {name: value for name, value in found.items() if isinstance(value, ModuleType)}
    grouped = {f"{group}.{name}": getattr(of, name) for group, of in groups.items() for name in of.__all__}
    return {name: _about(value) for name, value in (found | grouped).items() if name not in groups}


def _about(value: Any) -> dict[str, Any]:
    if not inspect.isclass(value):
        return {"kind": "function", "parameters": _parameters(value)}
    own = [base for base in reversed(value.__mro__) if base.__module__.startswith("dtdg_lab")]
    members = {name: member for base in own for name, member in vars(base).items() if not name.startswith("_")}
    described = {name: _member(member) for name, member in sorted(members.items())}
    return {"kind": "class", "parameters": _parameters(value), "members": described}


def _member(member: Any) -> dict[str, Any]:
    if isinstance(member, classmethod | staticmethod):
        return {"kind": type(member).__name__, "parameters": _parameters(member.__func__)}
    if inspect.isfunction(member):
        return {"kind": "method", "parameters": _parameters(member)}
    return {"kind": "attribute"}


_GIVEN = {
    inspect.Parameter.KEYWORD_ONLY: "by keyword",
    inspect.Parameter.POSITIONAL_ONLY: "by position",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either way",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _parameters(function: Any) -> dict[str, str]:
    """Name -> how it is given, and its default; types are left out, because they name classes."""
    parameters = inspect.signature(function).parameters
    return {
        name: _GIVEN[parameter.kind] + _default(parameter.default)
        for name, parameter in parameters.items()
        if name not in ("self", "cls")
    }


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f", default {value!r}" if isinstance(value, str | int | float | tuple | None) else ", default an object"


def options() -> dict[str, Any]:
    """Option -> its type, default, unit, bounds, choices and when a change takes effect."""
    return {
        name: {
            "kind": option.kind.__name__,
            "default": option.default,
            "unit": option.unit,
            "bounds": [option.low, option.high],
            "choices": list(option.choices),
            "live": option.live,
        }
        for name, option in OPTIONS.items()
    }
