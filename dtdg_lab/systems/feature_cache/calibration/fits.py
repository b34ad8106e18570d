"""Fits of the model of a step's time and of a fetch: least squares with few parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.network.links import BITS
from dtdg_lab.systems.feature_cache.calibration.measurements import StepCell, Watts, condition_named
from dtdg_lab.systems.feature_cache.costs.cache_costs import PAPER, CacheCosts, RpcModel, joined_misses

if TYPE_CHECKING:
    import pandas as pd


Vector = NDArray[np.float64]
_SMALL = 1e-12
_LINE_ROUNDS = 50
_BAD = 2.0


def least_squares(residuals: Callable[[Vector], Vector], start: Vector) -> Vector:
    """Return the (K,) parameters near ``start`` that minimise the sum of squares of ``residuals(parameters)``, (M,).

    Deterministic, and never worse than the start.

    References: the trust region of ``scipy.optimize.least_squares``.
    """
    from scipy.optimize import least_squares as solve

    return np.asarray(solve(residuals, np.array(start, dtype=np.float64)).x)


def softened(residuals: Vector) -> Vector:
    """Compress large residuals, so that a single bad cell has limited influence on the fit.

    References: Cauchy's (Lorentz') loss, at twice the noise.
    """
    return np.asarray(np.sign(residuals) * _BAD * np.sqrt(np.log1p((residuals / _BAD) ** 2)))


def relative_line(x: Vector, y: Vector, *, rounds: int = _LINE_ROUNDS) -> tuple[float, float]:
    """Fit a non-negative intercept and slope that minimise the mean of |a + b x - y| / y; half of the points lie above.

    Args:
        x: (M,) 0 or more.
        y: (M,) above 0.
        rounds: of reweighted least squares.
    """
    weights = 1 / y
    intercept, slope = 0.0, 0.0
    for _ in range(rounds):
        intercept, slope = _weighted_line(x, y, weights)
        off = np.abs(intercept + slope * x - y) / y
        weights = 1 / y / np.sqrt(np.maximum(off, 1e-3))
    return intercept, slope


def _weighted_line(x: Vector, y: Vector, weights: Vector) -> tuple[float, float]:
    columns = np.stack([weights, weights * x], axis=1)
    scale = np.maximum(np.linalg.norm(columns, axis=0), _SMALL)
    solved = np.linalg.lstsq(columns / scale, weights * y, rcond=None)[0] / scale
    if solved[0] < 0 or solved[1] < 0:
        only = [max(float(column @ (weights * y)) / float(column @ column or 1.0), 0.0) for column in columns.T]
        residuals = [float(np.sum((weights * y - only[index] * columns[:, index]) ** 2)) for index in (0, 1)]
        return (only[0], 0.0) if residuals[0] <= residuals[1] else (0.0, only[1])
    return float(solved[0]), float(solved[1])


# Fixed constants:
TRIP_MBIT = 0.35  # transferred by the first round trip: ten packets of 1,460 bytes to each of three requesters
CAPACITY_EXPONENT = 0.8  # for sampled rows of log-normal popularity, at the measured hit rates


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Milliseconds of a step by window, rate and delay of the slowest owner; concurrent stages take their maximum.

    T(W) = base + max(fetch(W) - hidden, 0), with these parts:
    - S(W) = (miss^4 + R(W)^4)^(1/4), R(W) = rebuild W^(exponent - 1): the slowest owner's traffic per step is nearly
      the maximum of both, because a cache that holds all rows of a short window has no misses;
    - M(W) = S(W) - R(W): the misses in it, none for short windows, ``miss`` for endless ones;
    - waits(W) = trips max(1 - exp(-M(W) / 0.35), 1 / W): a step without misses waits for no reply, and a step whose
      misses fill a first round trip for all of them. The replies of a rebuild are concurrent with those of misses.

    Attributes:
        base_ms: milliseconds of a step without waiting.
        hidden_ms: milliseconds of fetching that overlap with the rest of a step.
        miss_mbit: megabits of misses per step that one owner sends to all requesters, for an endless window.
        rebuild_mbit: megabits that it sends for a rebuild with W = 1: all of its rows in the step.
        exponent: c of W^c, the growth of a rebuild with the window, below 1.
        trips: sequential replies of a step with many misses; per cluster.
        unhindered_mbit: Mbit/s of an owner that is not throttled; per cluster.

    References: GreenDyGNN section IV-A, equations 1 and 2; section V-A for what overlaps.

    Differs from the paper: an unthrottled owner is a link like any other, with its own rate. So the step times on clean
    and on throttled networks both determine the traffic of a window. Hits follow from the traffic of a rebuild and not
    from Eq. 2, whose half and slope 16 cells cannot determine. Eq. 1 adds its terms up.
    """

    base_ms: float
    hidden_ms: float
    miss_mbit: float
    rebuild_mbit: float
    exponent: float
    trips: float
    unhindered_mbit: float

    def rebuilt_mbit(self, windows: ArrayLike) -> Vector:
        """Return R(W): megabits per step that the slowest owner sends for rebuilds, by window."""
        return np.asarray(self.rebuild_mbit * np.asarray(windows, dtype=np.float64) ** (self.exponent - 1))

    def missed_mbit(self, windows: ArrayLike) -> Vector:
        """Return M(W): megabits per step that it sends for misses, by window."""
        return joined_misses(self.miss_mbit, self.rebuilt_mbit(windows))

    def waits(self, windows: ArrayLike) -> Vector:
        """Return the number of sequential replies of the slowest owner in a step, by window."""
        windows = np.asarray(windows, dtype=np.float64)
        awaited = -np.expm1(-self.missed_mbit(windows) / TRIP_MBIT)
        return np.asarray(self.trips * np.maximum(awaited, 1 / windows))

    def step_ms(self, windows: ArrayLike, mbit: ArrayLike = np.inf, delay_ms: ArrayLike = 0.0) -> Vector:
        """Return milliseconds of a step by window, and by rate and delay of the slowest owner; arguments broadcast."""
        sent = self.missed_mbit(windows) + self.rebuilt_mbit(windows)
        transfer = 1e3 * sent / np.minimum(mbit, self.unhindered_mbit)
        fetch = np.maximum(self.waits(windows) * np.asarray(delay_ms, dtype=np.float64), transfer)
        return np.asarray(self.base_ms + np.maximum(fetch - self.hidden_ms, 0.0))

    def costs(
        self, name: str, *, parts: int, row_bytes: float, watts: Watts, rpc: RpcModel, noise: float
    ) -> CacheCosts:
        """Return the model as constants of step costs, as seen by one of P - 1 requesters.

        The rows per step are taken as the rows of a rebuild with W = 1: step times cannot distinguish them.

        Args:
            name: name of the dataset.
            parts: P; an owner's rate is shared by the P - 1 others.
            row_bytes: bytes of a row's features.
            watts: power of a host.
            rpc: time model of a fetch.
            noise: standard deviation of the logarithm of a fetch's time.
        """
        rows_of_mbit = 1 / BITS / row_bytes  # an owner sends 1 / (P - 1) to each, and each asks P - 1 owners
        requested_mbit = max(self.rebuild_mbit, self.miss_mbit)
        return CacheCosts(
            name=name,
            parts=parts,
            base_s=self.base_ms / 1e3,
            rows=requested_mbit * rows_of_mbit,
            row_bytes=row_bytes,
            link_bytes_per_s=self.unhindered_mbit / BITS / (parts - 1),
            trips=0.0,
            rebuild_trips=self.trips,
            hit_max=1.0,
            hit_min=1 - self.miss_mbit / requested_mbit,
            hit_half=1.0,
            hit_slope=1.0,
            capacity_exponent=CAPACITY_EXPONENT,
            rebuild_rows=self.rebuild_mbit * rows_of_mbit,
            rebuild_exponent=self.exponent,
            busy_w=watts.busy,
            stall_w=watts.stall,
            rpc_s=rpc.a_s,
            rtt_noise=noise,
            miss_trips=self.trips,
            overlapped=True,
            hidden_s=self.hidden_ms / 1e3,
            wait_rows=TRIP_MBIT * rows_of_mbit / (parts - 1),
        )


CLUSTER = ("trips", "unhindered_mbit")  # shared by all datasets: same code, same network
OWN = ("base_ms", "hidden_ms", "miss_mbit", "rebuild_mbit", "exponent")
FREE = (*OWN, *CLUSTER)
CELL_NOISE = 0.02  # relative error of a typical cell; the influence of much larger errors is limited

# Start of the fit, and standard deviations of its prior on logarithms; a cell's is 0.02. Without the prior, constants
# that the cells do not determine (cells left out, none throttled) would be arbitrary.
_TRIPS, _UNHINDERED, _EXPONENT = 10.0, 5000.0, 0.2
_HIDDEN = 0.08  # share of a step
_REBUILD = 4.0  # multiple of the middle window's traffic
_HELD = np.array([0.5, 0.5, 0.7, 1.0, 0.2])  # prior of base, hidden, miss, rebuild, exponent (not its logarithm)
_HELD_CLUSTER = np.array([0.5, 0.5])
MIN_CELLS = 7


def fit_steps(cells: Mapping[str, Sequence[StepCell]]) -> dict[str, StepTimeModel]:
    """Fit a model to all cells of each data set, by robust least squares of the logarithms.

    Two starts are tried, each with its prior: a cluster like the authors', and pipelines that fetch whole steps ahead.

    Raises:
        DataError: a dataset has fewer than seven cells.

    References: the robust loss is Cauchy's (:func:`dtdg_lab.systems.feature_cache.calibration.fitting.softened`).
    """
    for dataset, dataset_cells in cells.items():
        if len(dataset_cells) < MIN_CELLS:
            raise DataError(
                f"{dataset} has {len(dataset_cells)} measured steps. At least {MIN_CELLS} are needed to fit "
                f"{len(FREE)} constants."
            )
    conditions = {dataset: _columns(dataset_cells) for dataset, dataset_cells in cells.items()}
    start = np.concatenate(
        [np.log([_TRIPS, _UNHINDERED]), *(_initial_constants(*columns) for columns in conditions.values())]
    )
    prior_widths = np.concatenate([_HELD_CLUSTER, *([_HELD] * len(conditions))])

    def residuals(tried: Vector, prior: Vector) -> Vector:
        off = [(tried - prior) / prior_widths]
        for index, (windows, mbit, delay_ms, measured) in enumerate(conditions.values()):
            model = _unpack(tried, index)
            off.append(softened(np.log(model.step_ms(windows, mbit, delay_ms) / measured) / CELL_NOISE))
        return np.concatenate(off)

    def fit(prior: Vector) -> tuple[float, dict[str, StepTimeModel]]:
        fitted = least_squares(partial(residuals, prior=prior), prior)
        models = {dataset: _unpack(fitted, index) for index, dataset in enumerate(cells)}
        return float(np.sum(residuals(fitted, prior) ** 2)), models

    return min(fit(start), fit(_ahead(start)), key=itemgetter(0))[1]


def _ahead(start: Vector) -> Vector:
    """Return a start with one trip a step, and steps that hide as much fetching as they last."""
    ahead = start.copy()
    ahead[CLUSTER.index("trips")] = np.log(1.0)
    of_datasets = ahead[len(CLUSTER) :].reshape(-1, len(OWN))
    of_datasets[:, OWN.index("hidden_ms")] = of_datasets[:, OWN.index("base_ms")]
    return ahead


def left_out(
    cells: Mapping[str, Sequence[StepCell]],
    dataset: str,
    same: Callable[[StepCell, StepCell], bool],
    *,
    targets: Sequence[StepCell] | None = None,
) -> Vector:
    """Predict (C,) milliseconds of each cell of a data set, by a fit that leaves out the same cells.

    Args:
        cells: by dataset; cells of other datasets are always included.
        dataset: the dataset whose cells are left out in turn.
        same: returns True if the second cell must be left out to predict the first.
        targets: cells to predict; None for the dataset's cells.

    Returns:
        Predictions; NaN if too few cells remain for a fit.
    """
    dataset_cells = cells[dataset]
    predicted_cells = dataset_cells if targets is None else targets
    kept_by_cell = [tuple(not same(cell, candidate) for candidate in dataset_cells) for cell in predicted_cells]
    predicted = np.full(len(predicted_cells), np.nan)
    for mask in dict.fromkeys(kept_by_cell):
        rest = [cell for cell, stays in zip(dataset_cells, mask, strict=True) if stays]
        if len(rest) < MIN_CELLS:
            continue
        has_mask = np.array([other_mask == mask for other_mask in kept_by_cell])
        model = fit_steps({**cells, dataset: rest})[dataset]
        predicted[has_mask] = predicted_ms(model, predicted_cells)[has_mask]
    return predicted


def predicted_ms(model: StepTimeModel, cells: Sequence[StepCell]) -> Vector:
    """Return predicted milliseconds of each cell, (C,)."""
    windows, mbit, delay_ms, _ = _columns(cells)
    return model.step_ms(windows, mbit, delay_ms)


def _columns(cells: Sequence[StepCell]) -> tuple[Vector, Vector, Vector, Vector]:
    """Return window, Mbit/s, ms of delay and measured ms, each (C,)."""
    under = [condition_named(cell.condition) for cell in cells]
    rows = [(cell.window, on.mbit, on.delay_ms, cell.ms) for cell, on in zip(cells, under, strict=True)]
    windows, mbit, delay_ms, measured = np.array(rows, dtype=np.float64).T
    return windows, mbit, delay_ms, measured


def _initial_constants(windows: Vector, mbit: Vector, delay_ms: Vector, measured: Vector) -> Vector:
    """Return the start of the fit: traffic from throttled cells, or else from the slowest step on a clean network."""
    fastest, throttled = float(measured.min()), np.isfinite(mbit)
    clean = ~throttled & (delay_ms == 0)
    if throttled.any():
        traffic = float(np.median((measured[throttled] - fastest) * mbit[throttled])) / 1e3
    else:
        traffic = (float(measured.max()) - fastest) * _UNHINDERED / _REBUILD / 1e3
    traffic = max(traffic, fastest / 1e3)
    base = float(np.median(measured[clean])) if clean.any() else fastest
    return np.array([*np.log([base, _HIDDEN * base, traffic, _REBUILD * traffic]), _EXPONENT])


def _unpack(fitted: Vector, index: int) -> StepTimeModel:
    """Return the model of a dataset; all constants except the exponent are fitted as logarithms."""
    first = len(CLUSTER) + index * len(OWN)
    named = dict(zip(FREE, map(float, [*fitted[first : first + len(OWN)], *fitted[: len(CLUSTER)]]), strict=True))
    return StepTimeModel(
        **{name: value if name == "exponent" else float(np.exp(value)) for name, value in named.items()}
    )


_LEAST = 8  # minimum number of fetches of an owner, enough for two constants and an estimate of the noise
_SPREAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_SLOWER = 1.5  # minimum slowdown of a throttled owner


@dataclass(frozen=True, slots=True)
class ThrottledLink:
    """The effect of a condition on the fetches from one owner.

    Attributes:
        owner: the throttled owner.
        bytes_per_s: rate of one requester; the requesters share the owner's rate.
        wait_s: additional seconds of every fetch, in the queue of the throttled link.
        asking_bytes_per_s: rate of replies to the owner's own requests, which pass the same queue.
        asking_wait_s: additional seconds of these replies.
    """

    owner: int
    bytes_per_s: float
    wait_s: float
    asking_bytes_per_s: float
    asking_wait_s: float


@dataclass(frozen=True, slots=True)
class RpcError:
    """Relative errors of a model on the fetches of one condition, in percent.

    Attributes:
        condition: its name.
        concurrent: True if all owners were requested at once.
        fetches: number of fetches.
        median, mean: median and mean of |predicted - measured| / measured.
        paper_median, paper_mean: the same for the paper's Eq. 4.
    """

    condition: str
    concurrent: bool
    fetches: int
    median: float
    mean: float
    paper_median: float
    paper_mean: float


@dataclass(frozen=True, slots=True)
class RpcFit:
    """Models of the fetches of one dataset on one cluster.

    Attributes:
        dataset: its name.
        owners: part -> its model, fitted to clean fetches.
        throttled: condition -> its effect.
        noise: standard deviation of the logarithm of measured over predicted time, on clean fetches.
        row_bytes: bytes of a row.
        errors: by condition, for sequential and concurrent requests.
    """

    dataset: str
    owners: dict[int, RpcModel]
    throttled: dict[str, ThrottledLink]
    noise: float
    row_bytes: float
    errors: tuple[RpcError, ...]

    @property
    def typical(self) -> RpcModel:
        """The median of the owners' constants."""
        models = list(self.owners.values())
        return RpcModel(
            float(np.median([model.a_s for model in models])), float(np.median([model.s_per_byte for model in models]))
        )

    def rtt_s(self, fetches: pd.DataFrame) -> Vector:
        """Return predicted seconds of each fetch, (M,), by its condition, requester and owner."""
        a_s = fetches["owner"].map({owner: model.a_s for owner, model in self.owners.items()})
        s_per_byte = fetches["owner"].map({owner: model.s_per_byte for owner, model in self.owners.items()})
        for name, link in self.throttled.items():
            from_owner, by_owner = (
                (fetches["condition"] == name) & (fetches[end] == link.owner) for end in ("owner", "requester")
            )
            a_s += link.wait_s * from_owner + link.asking_wait_s * by_owner
            s_per_byte += from_owner / link.bytes_per_s + by_owner / link.asking_bytes_per_s
        return (a_s + s_per_byte * fetches["nbytes"]).to_numpy()


def fit_rpc(fetches: pd.DataFrame) -> RpcFit:
    """Fit the model of a fetch: per owner on clean fetches, then the effect of throttling per condition.

    Lines minimise absolute relative errors, so that outliers have little influence. A condition's throttled owner is
    the one that slowed down most in the data. The constants are specific to the measured cluster.

    Args:
        fetches: of one dataset, with the columns of :func:`fetches_of`.

    Raises:
        DataError: clean fetches are missing, an owner has too few, or a condition slowed no owner down.
    """
    dataset = str(fetches["dataset"].iloc[0])
    clean = fetches[(fetches["condition"] == "clean") & (fetches["rtt_s"] > 0)]
    owners: dict[int, RpcModel] = {}
    for owner in map(int, np.unique(fetches["owner"])):
        owner_fetches = clean[clean["owner"] == owner]
        if len(owner_fetches) < _LEAST:
            raise DataError(
                f"{dataset} has {len(owner_fetches)} clean fetches from owner {owner}. At least {_LEAST} are "
                "needed to fit its model."
            )
        owners[owner] = RpcModel(*_fit_line(owner_fetches))
    row_bytes = float(np.median(fetches["nbytes"] / fetches["rows"]))
    bare = RpcFit(dataset, owners, {}, 0.0, row_bytes, ())
    off = np.log(clean["rtt_s"] / bare.rtt_s(clean))
    noise = float(_SPREAD * np.median(np.abs(off - np.median(off))))
    throttled = {
        str(name): _fit_throttled(bare, group)
        for name, group in fetches.groupby("condition")
        if not condition_named(name).is_clean
    }
    fitted = RpcFit(dataset, owners, throttled, noise, row_bytes, ())
    return replace(fitted, errors=tuple(_measure_errors(fitted, fetches)))


def _fit_throttled(clean: RpcFit, fetches: pd.DataFrame) -> ThrottledLink:
    slower = (fetches["rtt_s"] / clean.rtt_s(fetches)).groupby(fetches["owner"]).median()
    owner = int(slower.idxmax())
    if slower[owner] < _SLOWER:
        raise DataError(f"{clean.dataset}, {fetches['condition'].iloc[0]}: no owner slowed down, {slower.to_dict()}.")
    asking = fetches[fetches["requester"] == owner]
    wait_s, s_per_byte = _fit_added(clean.owners[owner], fetches[fetches["owner"] == owner])
    asking_wait_s, asking_s = _fit_added(clean.typical, asking) if len(asking) else (0.0, 0.0)
    return ThrottledLink(owner, _bytes_per_s(s_per_byte), wait_s, _bytes_per_s(asking_s), asking_wait_s)


def _fit_added(model: RpcModel, fetches: pd.DataFrame) -> tuple[float, float]:
    wait_s, s_per_byte = _fit_line(fetches)
    return max(wait_s - model.a_s, 0.0), max(s_per_byte - model.s_per_byte, 0.0)


def _fit_line(fetches: pd.DataFrame) -> tuple[float, float]:
    return relative_line(fetches["nbytes"].to_numpy(), fetches["rtt_s"].to_numpy())


def _bytes_per_s(s_per_byte: float) -> float:
    return 1 / s_per_byte if s_per_byte > 0 else float(np.inf)


def _measure_errors(fitted: RpcFit, fetches: pd.DataFrame) -> list[RpcError]:
    errors = []
    for (name, concurrent), group in fetches.groupby(["condition", "concurrent"]):
        ours = np.abs(fitted.rtt_s(group) / group["rtt_s"] - 1) * 100
        paper = np.abs(PAPER.rtt_s(group["nbytes"]) / group["rtt_s"] - 1) * 100
        sizes = map(float, (ours.median(), ours.mean(), paper.median(), paper.mean()))
        errors.append(RpcError(name, bool(concurrent), len(group), *sizes))
    return sorted(errors, key=lambda error: error.condition != "clean")
