"""Figure 8 of FlareDTDG as a study of K and alpha: its rows, means over seeds, and heat maps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from statistics import fmean, median, stdev
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import loss_name
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.units import format_bytes, format_seconds, join_words
from dtdg_lab.systems.decayed_windows import captions
from dtdg_lab.visualization import palette
from dtdg_lab.visualization.axes import byte_unit
from dtdg_lab.visualization.cell_map import cell_map, has_room
from dtdg_lab.visualization.chart import NOTHING_YET, CaptionedFigure, Figure, card
from dtdg_lab.visualization.numbers import bytes_text, percent_text, seconds_text, three_digits
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.studies.result import COLUMNS, StudyResult
from dtdg_lab.visualization.studies.result import MEANINGS as PROVENANCE
from dtdg_lab.visualization.traces import Attributes, line

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.studies.study import Study
    from dtdg_lab.studies.trials import Trial


Row = Mapping[str, Any]
Setting = tuple[int, float]  # full_snapshots, alpha
NO_CELL = "Appears with the first cell"
_BESIDE, _UNDER = 0.41, 0.37  # offsets of a path from the middle of a cell, where the value is
_OUTSIDE = 0.45  # offset beyond the outermost row for an alpha outside the map
_FEW_SEEDS = 2  # minimum number of seeds for a spread


@dataclass(frozen=True, slots=True)
class DecayMeasure:
    """One map of a study.

    Attributes:
        column: column of the rows.
        title: title of the map.
        scale: name of its colour scale.
        unit: unit of the colours.
        text: formats a value.
        subject: subject of the caption.
    """

    column: str
    title: str
    scale: str
    unit: str
    text: Callable[[float], str]
    subject: str = ""


def measures(loss: str = "validation MSE") -> tuple[DecayMeasure, ...]:
    """Return the three maps; their columns are ``mse``, ``peak_bytes`` and ``epoch_s``."""
    return (
        DecayMeasure("mse", loss[:1].upper() + loss[1:], "halo", loss, three_digits),
        DecayMeasure("peak_bytes", "Peak memory of a step", "bytes", "bytes", bytes_text, "A step needs"),
        DecayMeasure("epoch_s", "Time of an epoch", "owned", "s", seconds_text, "An epoch takes"),
    )


@dataclass(frozen=True, slots=True, eq=False)
class DecayMap:
    """The measured cells of a study.

    Attributes:
        rows: the rows measured so far, with the columns of the measures.
        full_snapshots: K from left to right.
        alphas: alphas from bottom to top.
        seeds: rows per cell when the study is complete.
        path: settings of a tuner, in order; drawn over the maps.
        loss: title of the column ``mse``.
        baselines: name -> loss of predictions without a model, such as persistence.
    """

    rows: Sequence[Row]
    full_snapshots: tuple[int, ...] = ()
    alphas: tuple[float, ...] = ()
    seeds: int = 1
    path: Sequence[Setting] = ()
    loss: str = "validation MSE"
    baselines: Mapping[str, float] | None = None

    def axes(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the values of K and alpha: requested or measured, and every K of the path."""
        across = {*self.full_snapshots, *(int(row["full_snapshots"]) for row in self.rows), *(k for k, _ in self.path)}
        up = {*self.alphas, *(float(row["alpha"]) for row in self.rows)}
        return tuple(sorted(across)), tuple(sorted(up))

    def values(self, column: str) -> dict[Setting, list[float]]:
        """Return the measured values of each cell, one per seed."""
        values: dict[Setting, list[float]] = defaultdict(list)
        for row in self.rows:
            if row.get(column) is not None:
                values[int(row["full_snapshots"]), float(row["alpha"])].append(float(row[column]))
        return dict(values)


def decay_map_cards(decay_map: DecayMap) -> dict[str, CaptionedFigure]:
    """Return the three maps with captions, by column; also without rows."""
    return {
        measure.column: (_map_figure(decay_map, measure), _map_caption(decay_map, measure))
        for measure in measures(decay_map.loss)
    }


def decay_map_figure(decay_map: DecayMap, *, title: str = "Full snapshots (K) and alpha") -> Figure:
    """Return the three maps side by side, as in Figure 8 of FlareDTDG."""
    _, up = decay_map.axes()
    fulls = {*decay_map.full_snapshots, *(int(row["full_snapshots"]) for row in decay_map.rows)}
    measured, cells = len(decay_map.values("mse")), len(fulls) * len(up)
    progress = f" · {measured} of {cells} cells" if measured < cells else ""
    cards = list(decay_map_cards(decay_map).values())
    return sheet(cards, title=title + progress, columns=3, plot_height=STUDY_HEIGHT)


def _map_figure(decay_map: DecayMap, measure: DecayMeasure) -> Figure:
    across, up = decay_map.axes()
    texts: Attributes = {"unit": "↑ alpha", "x_title": "full snapshots (K)"}
    if not across or not up:
        return card([], measure.title, empty=NO_CELL, **texts)
    values = decay_map.values(measure.column)
    cells = {(k, alpha): (x, y) for y, alpha in enumerate(up) for x, k in enumerate(across)}
    means = {cells[setting]: fmean(seeds) for setting, seeds in values.items()}
    unit, factor = measure.unit, 1.0
    if measure.column == "peak_bytes":
        unit, factor = byte_unit(max(means.values(), default=1.0))
    measured = values if has_room(len(across), len(up)) else {}
    return cell_map(
        measure.title,
        ([str(k) for k in across], [f"{alpha:g}" for alpha in up]),
        {cell: round(mean / factor, 6) for cell, mean in means.items()},
        texts={cells[setting]: _cell_text(decay_map, measure, seeds) for setting, seeds in measured.items()},
        hover={cells[setting]: _cell_hover(decay_map, measure, setting, seeds) for setting, seeds in values.items()},
        scale=measure.scale,
        bar=unit,
        best=cells[_best(values)] if measure.column == "mse" and values else None,
        marks=path_traces(decay_map.path, across, up) if decay_map.path else (),
        **texts,
    )


def _cell_text(decay_map: DecayMap, measure: DecayMeasure, values: list[float]) -> str:
    """Return a cell's text: the mean, and the spread of the losses or the number of finished seeds."""
    text = measure.text(fmean(values))
    if len(values) < decay_map.seeds:
        return f"{text}<br>{len(values)} of {decay_map.seeds}"
    has_spread = measure.column == "mse" and len(values) >= _FEW_SEEDS
    return f"{text}<br>± {stdev(values):.2g}" if has_spread else text


def _cell_hover(decay_map: DecayMap, measure: DecayMeasure, setting: Setting, values: list[float]) -> str:
    texts = join_words([measure.text(value) for value in values])
    return f"K = {setting[0]}, alpha {setting[1]:g}: {texts} ({len(values)} of {decay_map.seeds} seeds)"


def path_traces(path: Sequence[Setting], across: Sequence[int], up: Sequence[float]) -> list[Attributes]:
    """Return a tuner's path beside the cells' values: arrows from a circle to a star."""
    x = [across.index(k) + _BESIDE for k, _ in path]
    y = [row_of(alpha, up) - _UNDER for _, alpha in path]
    texts = [f"K = {k}, alpha {alpha:g}" for k, alpha in path]
    ends = [0, -1] if len(path) > 1 else [-1]
    arrow = {"symbol": "arrow", "angleref": "previous", "size": 10, "color": palette.MARK_COLOUR}
    symbols, sizes = ["circle", "star"][-len(ends) :], [9, 14][-len(ends) :]
    marks = {"symbol": symbols, "size": sizes, "color": "white", "line": {"color": palette.MARK_COLOUR, "width": 2}}
    traces = []
    for mode, marker, steps in (("lines+markers", arrow, range(len(path))), ("markers", marks, ends)):
        style: Attributes = {"mode": mode, "marker": marker, "customdata": [texts[i] for i in steps], "opacity": 0.75}
        points = ([x[i] for i in steps], [y[i] for i in steps])
        hover = "%{customdata}<extra>tuner</extra>"
        traces.append(line("path of the tuner", *points, palette.MARK_COLOUR, hover, showlegend=False, **style))
    return traces


def row_of(alpha: float, up: Sequence[float]) -> float:
    """Return the position of an alpha among the rows 0, 1, ... of the map; between rows if it has no row."""
    if alpha < up[0]:
        return -_OUTSIDE * (1 - alpha / up[0])
    for row, (low, high) in enumerate(pairwise(up)):
        if alpha <= high:
            return row + (alpha - low) / (high - low)
    last = len(up) - 1
    return float(last) if alpha == up[-1] else last + _OUTSIDE * min(1.0, alpha - up[-1])


def _best(values: Mapping[Setting, Sequence[float]]) -> Setting:
    return min(values, key=lambda setting: fmean(values[setting]))


def _map_caption(decay_map: DecayMap, measure: DecayMeasure) -> str:
    values = decay_map.values(measure.column)
    if not values:
        return NOTHING_YET
    return _best_cell_caption(decay_map, values) if measure.column == "mse" else _range_caption(measure, values)


def _best_cell_caption(decay_map: DecayMap, values: Mapping[Setting, Sequence[float]]) -> str:
    """Return the best cell, and how many cells are within its spread."""
    best = _best(values)
    lowest, persistence = fmean(values[best]), (decay_map.baselines or {}).get("persistence")
    loss = three_digits(lowest)
    if persistence:
        difference = 1 - lowest / persistence
        loss += f", {percent_text(abs(difference))} {'below' if difference >= 0 else 'above'} persistence,"
    fields = {"loss": loss, "full": best[0], "alpha": f"{best[1]:g}"}
    if len(values[best]) < _FEW_SEEDS:
        return captions.LOWEST.format(**fields)
    near = sum(fmean(losses) <= lowest + stdev(values[best]) for losses in values.values()) - 1
    cells = f"{near or 'no'} other cell{' is' if near == 1 else 's are'}"
    return captions.LOWEST_NEAR.format(**fields, cells=cells)


def _range_caption(measure: DecayMeasure, values: Mapping[Setting, Sequence[float]]) -> str:
    """Return the caption of the smallest and the largest value."""
    means = {setting: fmean(values[setting]) for setting in sorted(values)}
    low, high = min(means, key=lambda cell: means[cell]), max(means, key=lambda cell: means[cell])
    fields = {"subject": measure.subject, "least": measure.text(means[low])}
    if means[low] == means[high]:
        return captions.SAME_IN_CELLS.format(**fields)
    cells = {"full": low[0], "alpha": f"{low[1]:g}", "most_full": high[0], "most_alpha": f"{high[1]:g}"}
    return captions.RANGE_OF_CELLS.format(**fields, most=measure.text(means[high]), **cells)


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
    """Runs of one config over K, alpha and seeds; cells may be missing while the study runs.

    Attributes:
        rows: one row per finished cell; ``MEANINGS`` describes the columns.
        full_snapshots: requested values of K.
        alphas: requested values of alpha.
        seeds: requested seeds.
        task: the config's task.
        described: title of the study.
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
        """True if every cell has finished."""
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
        """Draw heat maps of loss, memory and time over K and alpha, as a plotly figure dict; missing cells are empty.

        Args:
            path: (K, alpha) of a tuner, oldest first, drawn over the maps; for a tuned run
                ``decayed_windows.tuner_charts.tuner_path(run.live)``.
            part: split of the drawn loss, ``validation`` or ``test``; by default validation if the protocol has it.

        Raises:
            ConfigError: the split is unknown.
        """
        if part is None:
            validated = not self.rows or any(row["validation_loss"] is not None for row in self.rows)
            part = "validation" if validated else "test"
        if part not in PARTS:
            raise ConfigError(f"part={part!r} is unknown: choose {' or '.join(PARTS)}.")
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
        """The rows as a data frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(MEANINGS))

    def summary(self) -> str:
        """Return means over seeds by K and alpha, baselines, protocol and data, and failures, as text."""
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
        """Return protocol and data of the losses; generated data differ between seeds."""
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
    """Return a cell's means over the finished seeds; the maximum for memory and the median for time."""
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
    """Keep the K up to the window; with K = window, alpha has no effect and one run serves all alphas.

    Raises:
        ConfigError: the config tunes K and alpha itself.
    """
    if config["tune"]:
        raise ConfigError("tune=True changes K and alpha during training. Study config.replace(tune=False).")
    window, full = config["window"], [k for k in over[K] if k <= config["window"]]
    return {**over, K: full}, [{K: window, ALPHA: over[ALPHA][1:]}] if window in full else []


def decay_study(study: Study, full: Sequence[int] = (), alphas: Sequence[float] = ()) -> DecayStudy:
    """Return the cells of a study of K and alpha, finished or not.

    Args:
        study: a study with the axes of Figure 8.
        full: values of K to show; all if empty.
        alphas: values of alpha to show; all if empty.
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
    return {"figure8": (cells.figure(), _best_caption(cells))}


def _best_caption(study: DecayStudy) -> str:
    best = study.best
    if best is None:
        return NOTHING_YET
    texts = {"loss": three_digits(best["validation_loss"]), "full": best[K], "alpha": f"{best[ALPHA]:g}"}
    heaviest = max((row["peak_bytes"] or 0 for row in study.settings), default=0)
    if not heaviest or best["peak_bytes"] is None:
        return captions.LOWEST.format(**texts)
    return captions.LOWEST_AT_COST.format(**texts, share=percent_text(best["peak_bytes"] / heaviest))
