"""What experiments on ESDG measure besides trainings: volumes, transfers, memory of blocks, scaling, and overlap."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.datasets.names import load_for
from dtdg_lab.forecast.step_scaling import StepScaling, extrapolate
from dtdg_lab.graphs import delta
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.redistribution_volume import collectives, redistributed
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.systems.snapshot_blocks.block_study import estimate_block_memory
from dtdg_lab.systems.snapshot_blocks.transfer_study import transfer_times
from dtdg_lab.systems.snapshot_blocks.volume_study import LINK_OUTPUTS, estimate_volumes

Numbers = Mapping[str, Any]
NUMBER_BYTES = 4  # float32


def _config(settings: Mapping[str, Any], seed: int, **changes: Any) -> RunConfig:
    return RunConfig(**{**settings, **changes}, seed=seed)


def volumes(settings: Mapping[str, Any], seed: int) -> Numbers:
    """Count the numbers that a step sends, without running ranks (Table 2).

    Args:
        settings: of a run, and ``counted_ranks`` and ``counted`` (``snapshot`` or ``hypergraph`` partition).
        seed: of the graph and of the partitioner.
    """
    chosen = dict(settings)
    ranks, counted = int(chosen.pop("counted_ranks")), chosen.pop("counted")
    config = _config(chosen, seed)
    graph = load_for(config)
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol]).train
    sizes = {"hidden": config.hidden, "layers": config.layers}
    if counted == "snapshot":
        plan = SnapshotBlocks(train, config["blocks"], ranks, graph.num_nodes)
        costs = collectives(config.model, graph.num_features, pairs=LINK_OUTPUTS, blocks=config["blocks"], **sizes)
        numbers = redistributed(plan, costs, config.layers).total
    else:
        study = estimate_volumes(
            graph,
            config.model,
            [ranks],
            blocks=config["blocks"],
            smoothing=1,  # the data already are
            protocol=config.protocol,
            seed=seed,
            **sizes,
        )
        numbers = study.outcomes[0].hypergraph
    rows = len(train) * graph.num_nodes
    edges = sum(snapshot.num_edges for snapshot in graph.snapshots[train.start : train.stop])
    return {
        "numbers": numbers,
        "numbers_per_row": numbers / rows,
        "limit": numbers * ranks / (ranks - 1),
        "edges_per_node": edges / rows,
    }


def overlaps(settings: Mapping[str, Any], seed: int) -> Numbers:
    """Count edges, and the share of them that the previous snapshot also has (Table 1)."""
    changes = delta.sequence_changes(load_for(_config(settings, seed)).snapshots)
    return {"edges": int(changes.edges.sum()), "overlap": changes.overlap}


def transfers(settings: Mapping[str, Any], seed: int) -> Numbers:
    """Measure bytes, and with ``repeats`` seconds, of bringing all snapshots to the device (Figure 4).

    Args:
        settings: of a run, and ``form`` (a name of ``delta.FORMATS``), ``transfer`` (``whole`` or ``delta``),
            ``counted_ranks`` and ``repeats`` (0: count bytes only).
        seed: of the graph.
    """
    chosen = dict(settings)
    form = delta.FORMATS[chosen.pop("form")]
    is_delta = chosen.pop("transfer") == "delta"
    ranks, repeats = int(chosen.pop("counted_ranks", 1)), int(chosen.pop("repeats", 0))
    config = _config(chosen, seed)
    graph = load_for(config)
    plan = SnapshotBlocks(range(graph.num_snapshots), config["blocks"], ranks, graph.num_nodes)
    changes = delta.sequence_changes(graph.snapshots)
    delta_bytes, whole_bytes = changes.brought(form, delta.own_ranges(plan))
    result: dict[str, Any] = {
        "bytes": delta_bytes if is_delta else whole_bytes,
        "edges": int(changes.edges.sum()),
        "overlap": changes.overlap,
        "share": delta.benefiting_share(plan) if is_delta else 0.0,
    }
    if repeats:
        in_full, as_delta = transfer_times(graph.snapshots, form, device=config.device, repeats=repeats)
        time, more_s = as_delta if is_delta else in_full, as_delta.unpack_s - in_full.unpack_s
        result |= {"seconds": time.total_s, "copy_s": time.copy_s, "unpack_s": time.unpack_s}
        if is_delta and more_s > 0:  # on slower links, deltas are faster
            result["pays_below_bytes_s"] = (whole_bytes - delta_bytes) / more_s
    return result


def memory(settings: Mapping[str, Any], seed: int) -> Numbers:
    """Measure the memory of a step on one rank, and how far gradients are from those of one block.

    ``device_bytes`` are the peak of the step's tensors, and the graphs and operators that stay beside them: all of
    them with one block. With more blocks they are streamed, and part of the peak.

    References: ESDG sections 3.1 and 6.2.
    """
    config = _config(settings, seed)
    graph = load_for(config)
    first, row = estimate_block_memory(config, (1, config["blocks"]), graph=graph, steps=1).rows
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol]).train
    kept_bytes = delta.operator_bytes(graph, train, NUMBER_BYTES) if config["blocks"] == 1 else 0
    return {
        "device_bytes": row["peak_bytes"] + kept_bytes,
        "peak_bytes": row["peak_bytes"],
        "gradient_difference": row["gradient_difference"],
        "loss_difference": abs(row["loss"] - first["loss"]) / abs(first["loss"]),
    }


@dataclass(frozen=True, slots=True)
class ScaledRun:
    """A training whose steps show rates of the machine, or test them.

    Attributes:
        ranks: R.
        factor: size of its graph over the settings'.
        fitted: whether rates are fitted to it; otherwise it is held out.
        denser: its edges for each node over the settings'.
    """

    ranks: int
    factor: float
    fitted: bool
    denser: int = 1

    def config(self, settings: Mapping[str, Any], seed: int) -> RunConfig:
        """Return its config."""
        nodes = round(settings["generated_nodes"] * self.factor)
        edges = round(settings["generated_edges"] * self.factor) * self.denser
        return _config(settings, seed, ranks=self.ranks, generated_nodes=nodes, generated_edges=edges)


SCALED_RUNS = (
    *(ScaledRun(ranks, factor, fitted=True) for ranks in (1, 2) for factor in (0.5, 2)),
    *(ScaledRun(ranks, 1, fitted=True, denser=2) for ranks in (1, 2)),
    *(ScaledRun(ranks, 1, fitted=False) for ranks in (1, 2)),
    ScaledRun(4, 1, fitted=True),
    ScaledRun(4, 2, fitted=False),
)


def scaling(settings: Mapping[str, Any], seed: int) -> Numbers:
    """Forecast a step on many ranks from trainings on one, two and four, some of which are held out (Figures 5, 7).

    Args:
        settings: of a run, and ``predicted_ranks``, ``weak`` (whether the graph grows with the ranks) and ``size``
            (nodes of the predicted graph on one rank over ``generated_nodes``).
        seed: of graphs and parameters.
    """
    chosen = dict(settings)
    ranks = int(chosen.pop("predicted_ranks"))
    study = _scaling_study(json.dumps(chosen, sort_keys=True), seed)
    row = next(row for row in study.rows if row["source"] == "predicted" and row["ranks"] == ranks)
    parts = {name: row[name] for name in ("step_s", "compute_s", "communicate_s", "transfer_s", "nodes", "edges")}
    held_out = study.error("sum")
    assert held_out is not None  # some trainings are held out
    return {
        **parts,
        "seconds_per_edge": row["step_s"] / row["edges"],
        "held_out_error": held_out[0],
        "held_out_worst": held_out[1],
        "measured_speedup": _measured_speedup(study),
    }


RANKS = (1, 2, 8, 16, 128)


@lru_cache(maxsize=1)  # cells differ in the predicted ranks only
def _scaling_study(settings: str, seed: int) -> StepScaling:
    chosen = json.loads(settings)
    weak, size = bool(chosen.pop("weak")), float(chosen.pop("size"))
    with tempfile.TemporaryDirectory(prefix="dtdg-lab-scaling-") as folder:
        runs = dict(_trained(chosen, seed, Path(folder)))
        fitted = [run for case, run in runs.items() if case.fitted]
        held_out = [run for case, run in runs.items() if not case.fitted]
        # predictions are for the graph and settings of the first run, which has half the nodes
        return extrapolate(fitted, RANKS, held_out=held_out, weak=weak, size=size / SCALED_RUNS[0].factor)


def _trained(settings: Mapping[str, Any], seed: int, folder: Path) -> Iterator[tuple[ScaledRun, StoredRun]]:
    for ranks in dict.fromkeys(case.ranks for case in SCALED_RUNS):
        with _session(ranks, folder) as session:
            for case in SCALED_RUNS:
                if case.ranks == ranks:
                    config = case.config(settings, seed)
                    yield case, run_config(config, session=session, runs_dir=folder).run


@contextmanager
def _session(ranks: int, folder: Path) -> Iterator[Session | None]:
    if ranks == 1:
        yield None
        return
    with Session(ranks=ranks, runs_dir=folder) as session:
        yield session


def _measured_speedup(study: StepScaling) -> float | None:
    """Return how many times faster two ranks were than one, on the held-out graph of the settings' size."""
    steps: Sequence[Mapping[str, Any]] = [
        error for error in study.errors if error["part"] == "sum" and not error["fitted"]
    ]
    seconds = {step["ranks"]: step["measured_s"] for step in steps if step["ranks"] < 4}
    return seconds[1] / seconds[2] if len(seconds) == 2 else None
