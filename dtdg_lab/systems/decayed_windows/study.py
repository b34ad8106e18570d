"""Figure 8 of FlareDTDG as a study of K and alpha: its runs, rows, means over seeds, and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median, stdev
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import loss_name
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.systems.decayed_windows import captions
from dtdg_lab.systems.decayed_windows.decay_map import DecayMap, decay_map_figure
from dtdg_lab.visualization.chart import NOTHING_YET
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import percent_text, three_digits
from dtdg_lab.visualization.studies.result import COLUMNS, StudyResult
from dtdg_lab.visualization.studies.result import MEANINGS as PROVENANCE

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.studies.study import Study
    from dtdg_lab.studies.trials import Trial


PARTS = ("validation", "test")
_OWN: Mapping[str, str] = catalogue.DECLARED["decayed_windows"]["columns"]["decay"]
_OF_RUN = ("run", "reason")
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        **{name: meaning for name, meaning in _OWN.items() if name not in _OF_RUN},
        **{name: meaning for name, meaning in PROVENANCE.items() if name in COLUMNS},
        **{name: _OWN[name] for name in _OF_RUN},
    }
)


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
        rows_by_cell: dict[tuple[int, float], list[dict[str, Any]]] = {}
        for row in self.rows:
            rows_by_cell.setdefault((row["full_snapshots"], row["alpha"]), []).append(row)
        order = [(k, alpha) for k in self.full_snapshots for alpha in self.alphas]
        return [_over_seeds(*cell, rows_by_cell[cell]) for cell in order if cell in rows_by_cell]

    @property
    def best(self) -> dict[str, Any] | None:
        """The row of ``settings`` with the lowest validation loss, among those with the most seeds.

        None if there is no validation loss: no run finished, or the protocol has no validation split.
        """
        validated = [row for row in self.settings if row["validation_loss"] is not None]
        seeds = max((row["seeds"] for row in validated), default=0)
        return min(
            (row for row in validated if row["seeds"] == seeds), key=lambda row: row["validation_loss"], default=None
        )

    def figure(self, path: Sequence[tuple[int, float]] = (), *, part: str | None = None) -> Figure:
        """Heat maps of loss, memory and time over K and alpha, as a plotly figure dict; missing cells are empty.

        Args:
            path: (K, alpha) that a tuner went through, oldest first, to be drawn over the maps; of a tuned run
                ``decayed_windows.tuner_charts.tuner_path(run.live)``.
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
        decay_map = DecayMap(
            rows,
            self.full_snapshots,
            self.alphas,
            len(self.seeds),
            tuple(path),
            loss=f"{part} {loss_name(self.task)}",
            baselines={name: value for name, value in baselines.items() if value is not None},
        )
        return decay_map_figure(decay_map, title=self.described)

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
        texts = [f"{name} {value:.4g}" for name, value in baselines.items() if value is not None]
        lines += [f"Without a model, on the test split: {', '.join(texts)}."] if texts else []
        return "\n".join([*lines, *self._stands(), *self._failures()])

    def _stands(self) -> list[str]:
        """Protocol and data of the losses; generated data differ between seeds."""
        with_protocol = [row for row in self.rows if row.get("protocol")]
        if not with_protocol:
            return []
        data = dict.fromkeys(row["data"] for row in with_protocol if row["data"])
        gaps = dict.fromkeys(str(row["purge"]) for row in with_protocol if row["purge"] is not None)
        return [
            f"Protocol {with_protocol[0]['protocol']}, {' or '.join(gaps) or 'unknown'} snapshots left out at each "
            f"boundary, data {', '.join(data) or 'unknown'}."
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
    means: dict[str, Any] = {"full_snapshots": full_snapshots, "alpha": alpha, "seeds": len(good)}
    for part in PARTS:
        losses = [row[f"{part}_loss"] for row in good if row[f"{part}_loss"] is not None]
        means[f"{part}_loss"] = fmean(losses) if losses else None
        means[f"{part}_spread"] = stdev(losses) if len(losses) > 1 else None
    peaks = [row["peak_bytes"] for row in good if row["peak_bytes"] is not None]
    times = [row["epoch_time_s"] for row in good if row["epoch_time_s"] is not None]
    return means | {"peak_bytes": max(peaks, default=None), "epoch_time_s": median(times) if times else None}


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    values = [row[column] for row in rows if row[column] is not None]
    return fmean(values) if values else None


def _with_spread(value: float | None, spread: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.5g}" + ("" if spread is None else f" ± {spread:.2g}")


K, ALPHA = "full_snapshots", "alpha"


def refine_figure8(config: RunConfig, over: dict[str, Any], quick: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """K up to the window, and what needs no run: with K = window, alpha has no effect and one run serves.

    Raises:
        ConfigError: the config tunes K and alpha itself.
    """
    if config["tune"]:
        raise ConfigError("tune=True changes K and alpha while a cell trains: study config.replace(tune=False).")
    window, full = config["window"], [k for k in over[K] if k <= config["window"]]
    return {**over, K: full}, [{K: window, ALPHA: over[ALPHA][1:]}] if window in full else []


def decay_study(study: Study, full: Sequence[int] = (), alphas: Sequence[float] = ()) -> DecayStudy:
    """Return the cells of a study of K and alpha, finished or not.

    Args:
        study: with the axes of Figure 8.
        full: values of K to be shown; all where empty.
        alphas: values to be shown; all where empty.
    """
    values = {axis.name: axis.values for axis in study.sweep.axes}
    full, alphas = tuple(full or values[K]), tuple(alphas or values[ALPHA])
    config, seeds = study.sweep.base, study.sweep.all_seeds
    ended = [trial for trial in study.trials if trial.status in ("finished", "failed")]
    by_cell = {(trial.seed, trial.settings[K], trial.settings[ALPHA]): trial for trial in reversed(ended)}
    served = {(trial.seed, trial.settings[K]): trial for trial in reversed(ended)}
    rows = []
    for seed, k, alpha in product(seeds, full, alphas):
        trial = served.get((seed, k)) if k == config["window"] else by_cell.get((seed, k, alpha))
        if trial is not None:
            rows.append(_row(trial, k, alpha))
    shape = f"{config['window']} snapshots, {config['decay']} decay"
    title = f"{config.model} on {config.dataset}, {config.system}: windows of {shape}"
    return DecayStudy(tuple(rows), full, alphas, seeds, config["task"], title)


def _row(trial: Trial, full: int, alpha: float) -> dict[str, Any]:
    values = {**trial.values, **trial.provenance} if trial.status == "finished" else {}
    reason = trial.reason if trial.status == "failed" else ""
    run = "" if trial.run is None or reason else str(trial.run)
    values |= {K: full, ALPHA: alpha, "seed": trial.seed, "run": run, "reason": reason}
    return {name: values.get(name) for name in MEANINGS}


def figure8_analysis(study: Study) -> dict[str, tuple[Figure, str]]:
    """Return the three maps, and the best cell."""
    cells = decay_study(study)
    return {"figure8": (cells.figure(), _words(cells))}


def _words(study: DecayStudy) -> str:
    best = study.best
    if best is None:
        return NOTHING_YET
    texts = {"loss": three_digits(best["validation_loss"]), "full": best[K], "alpha": f"{best[ALPHA]:g}"}
    heaviest = max((row["peak_bytes"] or 0 for row in study.settings), default=0)
    if not heaviest or best["peak_bytes"] is None:
        return captions.LOWEST.format(**texts)
    return captions.LOWEST_AT_COST.format(**texts, share=percent_text(best["peak_bytes"] / heaviest))
