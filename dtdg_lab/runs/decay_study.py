"""The results of a study of K and alpha: rows, means over seeds, heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.runs.directory import read_json, write_json
from dtdg_lab.runs.run import COLUMNS as PROVENANCE_COLUMNS
from dtdg_lab.runs.run import MEANINGS as PROVENANCE_MEANINGS
from dtdg_lab.runs.run import StoredRun, provenance
from dtdg_lab.systems.decayed_windows.charts import DecayMap, decay_map_figure
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.study_result import StudyResult

if TYPE_CHECKING:
    import pandas as pd


# The cells of a study of K and alpha on disk, so that an interrupted study can resume.


SCHEMA = 1
Cell = tuple[int, float, int]  # full_snapshots, alpha, seed


class DecayCells:
    """The finished cells of a study, in one JSON file.

    The file is named after the config without K, alpha and seed: a repeated study, or one with more cells,
    reuses what there is. A cell also stores the hash of its data, and is not reused for other data.

    Args:
        folder: that holds the file; created if missing.
        config: the study's.
        restart: the content of the file is replaced when the first cell is stored.

    Raises:
        RunStoreError: the file cannot be read.
    """

    def __init__(self, folder: Path, config: RunConfig, *, restart: bool = False) -> None:
        self.path = folder / f"decay-{config.replace(full_snapshots=1, alpha=1.0, seed=0).short_hash}.json"
        self._config = config
        self._kept: dict[Cell, dict[str, Any]] = {}
        if self.path.is_file() and not restart:
            stored = read_json(self.path)
            if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
                raise RunStoreError(
                    f"{self.path} holds no cells that this version reads: move it away, or give restart=True to "
                    "start the study again."
                )
            self._kept = {_cell(each["row"]): each for each in stored["cells"]}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, cell: Cell, data_hash: str) -> dict[str, Any] | None:
        """The row of a cell that is finished on this data; None if there is none."""
        each = self._kept.get(cell)
        return dict(each["row"]) if each is not None and each["data"] == data_hash else None

    def data_hash(self, cell: Cell) -> str:
        """The data hash of a stored cell."""
        return str(self._kept[cell]["data"])

    def put(self, row: Mapping[str, Any], data_hash: str) -> None:
        """Store a row.

        Raises:
            RunStoreError: the file cannot be written.
        """
        self._kept[_cell(row)] = {"data": data_hash, "row": dict(row)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        described = {"schema": SCHEMA, "config": self._config.model_dump(), "cells": list(self._kept.values())}
        write_json(self.path, described)


def _cell(row: Mapping[str, Any]) -> Cell:
    return int(row["full_snapshots"]), float(row["alpha"]), int(row["seed"])


PARTS = ("validation", "test")
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "full_snapshots": "K, number of newest snapshots of a window that are kept whole",
        "alpha": "decay that sets how many chunks of the older snapshots are kept",
        "seed": "of parameters, chunk order and data splits; also of the data if they are generated",
        "validation_loss": "of the validation split at the end, on whole snapshots, as for all systems",
        "test_loss": "of the test split, evaluated once, at the end; choose by the validation split",
        "persistence_loss": "of the test split, predicting that tomorrow equals today",
        "mean_loss": "of the test split, predicting the mean of the training split",
        "validation_persistence_loss": "of the validation split, predicting that tomorrow equals today",
        "validation_mean_loss": "of the validation split, predicting the mean of the training split",
        "skill": "1 - test_loss / persistence_loss: above 0 beats persistence",
        "peak_bytes": "largest peak of tensor memory of a rank, of a probe step",
        "epoch_time_s": "seconds of an epoch's steps on the slowest rank (straggler), mean over epochs",
        **{name: meaning for name, meaning in PROVENANCE_MEANINGS.items() if name in PROVENANCE_COLUMNS},
        "run": "folder of the run; cells share a run if all snapshots are whole, because alpha then has no effect",
        "reason": "why the run failed, if it did; its numbers are then missing",
    }
)
_OF_SUMMARY = ("validation_loss", "test_loss", "persistence_loss", "mean_loss", "skill", "peak_bytes", "epoch_time_s")
_OF_VALIDATION = ("persistence_loss", "mean_loss")


def cell_row(cell: Cell, run: StoredRun) -> dict[str, Any]:
    """The numbers of a cell whose run ended, see ``MEANINGS``; None for unknown ones."""
    evaluations = run.table("evaluations")
    last = evaluations[evaluations["split"] == "validation"].tail(1).to_dict("records")
    baselines = {f"validation_{name}": last[0][name] if last else None for name in _OF_VALIDATION}
    summary = {name: run.summary.get(name) for name in _OF_SUMMARY}
    stands = provenance(run)
    return _in_order(cell, {**summary, **baselines, **stands, "run": str(run.path), "reason": ""})


def failed_row(cell: Cell, reason: str) -> dict[str, Any]:
    """The row of a cell whose run failed."""
    return _in_order(cell, {"run": "", "reason": reason})


def _in_order(cell: Cell, described: Mapping[str, Any]) -> dict[str, Any]:
    named = dict(zip(("full_snapshots", "alpha", "seed"), cell, strict=True))
    return {name: {**described, **named}.get(name) for name in MEANINGS}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DecayStudy(StudyResult):
    """Runs of one config over K, alpha and seeds; some cells may be missing while it is under way.

    Attributes:
        rows: one for each finished cell; ``MEANINGS`` describes the columns.
        full_snapshots: requested values of K.
        alphas: requested values.
        seeds: requested values.
        task: of the config.
        described: what was compared, in words.
    """

    rows: tuple[dict[str, Any], ...]
    full_snapshots: tuple[int, ...]
    alphas: tuple[float, ...]
    seeds: tuple[int, ...]
    task: str
    described: str
    meanings = MEANINGS
    html_columns = tuple(name for name in MEANINGS if name != "run")

    @property
    def is_complete(self) -> bool:
        """Whether every cell has finished."""
        return len(self.rows) == len(self.full_snapshots) * len(self.alphas) * len(self.seeds)

    @property
    def settings(self) -> list[dict[str, Any]]:
        """One row for each K and alpha: means over seeds, and the standard deviation of the losses (None for one)."""
        found: dict[tuple[int, float], list[dict[str, Any]]] = {}
        for row in self.rows:
            found.setdefault((row["full_snapshots"], row["alpha"]), []).append(row)
        order = [(k, alpha) for k in self.full_snapshots for alpha in self.alphas]
        return [_over_seeds(*each, found[each]) for each in order if each in found]

    @property
    def best(self) -> dict[str, Any] | None:
        """The row of ``settings`` with the lowest validation loss, among those with the most seeds.

        None if there is no validation loss: no run finished, or the protocol has no validation split.
        """
        known = [row for row in self.settings if row["validation_loss"] is not None]
        most = max((row["seeds"] for row in known), default=0)
        return min((row for row in known if row["seeds"] == most), key=lambda row: row["validation_loss"], default=None)

    def figure(self, path: Sequence[tuple[int, float]] = (), *, part: str | None = None) -> Figure:
        """Heat maps of loss, memory and time over K and alpha, as a plotly figure dict; missing cells are empty.

        Args:
            path: (K, alpha) that a tuner went through, oldest first, to be drawn over the maps; of a tuned run
                ``run.live.view("trapezoid").decisions.path()``.
            part: whose loss is drawn, ``validation`` or ``test``; the validation split's where the protocol has one.

        Raises:
            ConfigError: there is no such split.
        """
        if part is None:
            validated = not self.rows or any(row["validation_loss"] is not None for row in self.rows)
            part = "validation" if validated else "test"
        if part not in PARTS:
            raise ConfigError(f"part={part!r}: allowed {', '.join(PARTS)}.")
        prefix = "validation_" if part == "validation" else ""
        rows = [
            {**row, "mse": row[f"{part}_loss"], "epoch_s": row["epoch_time_s"]}
            for row in self.rows
            if row[f"{part}_loss"] is not None
        ]
        baselines = {name: _mean(self.rows, f"{prefix}{name}_loss") for name in ("persistence", "mean")}
        shown = DecayMap(
            rows,
            self.full_snapshots,
            self.alphas,
            len(self.seeds),
            tuple(path),
            loss=f"{part} {'MSE' if self.task == 'regression' else 'loss'}",
            baselines={name: value for name, value in baselines.items() if value is not None},
        )
        return decay_map_figure(shown, title=self.described)

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(MEANINGS))

    def summary(self) -> str:
        """Means over seeds by K and alpha, baselines, what the losses were measured on, and failures."""
        head = f"{'K':>3} {'alpha':>6} {'seeds':>5} {'validation':>21} {'test':>21} {'peak':>11} {'epoch':>8}"
        lines = [self.described, head]
        for row in self.settings:
            losses = [_with_spread(row[f"{part}_loss"], row[f"{part}_spread"]) for part in PARTS]
            peak = "unknown" if row["peak_bytes"] is None else format_bytes(row["peak_bytes"])
            lines.append(
                f"{row['full_snapshots']:>3} {row['alpha']:>6g} {row['seeds']:>5} {losses[0]:>21} {losses[1]:>21} "
                f"{peak:>11} {format_seconds(row['epoch_time_s']):>8}"
            )
        baselines = {name: _mean(self.rows, f"{name}_loss") for name in ("persistence", "mean")}
        said = [f"{name} {value:.4g}" for name, value in baselines.items() if value is not None]
        lines += [f"Without a model, on the test split: {', '.join(said)}."] if said else []
        return "\n".join([*lines, *self._stands(), *self._failures()])

    def _stands(self) -> list[str]:
        """Protocol and data of the losses; generated data differ between seeds."""
        known = [row for row in self.rows if row.get("protocol")]
        if not known:
            return []
        data = dict.fromkeys(row["data"] for row in known if row["data"])
        gaps = dict.fromkeys(str(row["purge"]) for row in known if row["purge"] is not None)
        return [
            f"Protocol {known[0]['protocol']}, {' or '.join(gaps) or 'unknown'} snapshots left out at each boundary, "
            f"data {', '.join(data) or 'unknown'}."
        ]

    def _failures(self) -> list[str]:
        return [
            f"K={row['full_snapshots']}, alpha={row['alpha']:g}, seed={row['seed']} failed: {row['reason']}"
            for row in self.rows
            if row["reason"]
        ]


def _over_seeds(full_snapshots: int, alpha: float, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds whose runs finished; the maximum of memory and the median of time."""
    good = [row for row in rows if not row["reason"]]
    described: dict[str, Any] = {"full_snapshots": full_snapshots, "alpha": alpha, "seeds": len(good)}
    for part in PARTS:
        losses = [row[f"{part}_loss"] for row in good if row[f"{part}_loss"] is not None]
        described[f"{part}_loss"] = fmean(losses) if losses else None
        described[f"{part}_spread"] = stdev(losses) if len(losses) > 1 else None
    peaks = [row["peak_bytes"] for row in good if row["peak_bytes"] is not None]
    times = [row["epoch_time_s"] for row in good if row["epoch_time_s"] is not None]
    return described | {"peak_bytes": max(peaks, default=None), "epoch_time_s": median(times) if times else None}


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    known = [row[column] for row in rows if row[column] is not None]
    return fmean(known) if known else None


def _with_spread(value: float | None, spread: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.5g}" + ("" if spread is None else f" ± {spread:.2g}")
