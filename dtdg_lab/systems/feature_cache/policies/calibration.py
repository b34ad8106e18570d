"""Calibrates the costs of steps and fetches from measurements, and predicts steps that were not measured."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, DataError, UnknownNameError, shortened
from dtdg_lab.core.system_errors import reading
from dtdg_lab.core.units import as_path
from dtdg_lab.network.patterns import BITS
from dtdg_lab.systems.feature_cache.policies.costs import PAPER, CacheCosts, RpcModel, joined_misses

if TYPE_CHECKING:
    import pandas as pd

# Names of the network conditions of measurements: "clean", "c1_200mbit", "c4_10ms".


FORMS = '"clean", "c1_<X>mbit" or "c1_<X>" (X Mbit/s left to one owner), "c4_<Y>ms" or "c4_<Y>" (Y ms on one link)'
_NAMED = re.compile(r"c1_(?P<mbit>\d+(?:\.\d+)?)(?:mbit)?|c4_(?P<ms>\d+(?:\.\d+)?)(?:ms)?")


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one owner's link.

    Attributes:
        mbit: rate in Mbit/s of everything that it sends, infinite for no limit.
        delay_ms: milliseconds added to what it sends.
    """

    mbit: float = np.inf
    delay_ms: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether the link is neither throttled nor delayed."""
        return self.delay_ms == 0.0 and self.mbit == np.inf

    @property
    def name(self) -> str:
        """The condition's name, in the long form."""
        if self.is_clean:
            return "clean"
        return f"c4_{self.delay_ms:g}ms" if self.delay_ms else f"c1_{self.mbit:g}mbit"


def condition_named(name: str) -> Condition:
    """The condition of a name in one of the forms of ``FORMS``.

    Raises:
        ConfigError: the name has another form, or a rate of 0.
    """
    if not isinstance(name, str):
        raise ConfigError(f"a condition {shortened(name)}: a string of one of the forms {FORMS} is needed.")
    text = name.strip().lower()
    found = _NAMED.fullmatch(text)
    if text != "clean" and found is None:
        raise ConfigError(f"unknown condition {shortened(name)}: allowed are {FORMS}.")
    if found is None or found["mbit"] is None:
        return Condition(delay_ms=float(found["ms"]) if found else 0.0)
    if float(found["mbit"]) <= 0:
        raise ConfigError(f"condition {shortened(name)}: a rate above 0 Mbit/s is needed; {FORMS}.")
    return Condition(mbit=float(found["mbit"]))


# Reading measurements for calibration: steps by window, fetches, and power.


STEPS, FETCHES, POWER = "step_time.csv", "fetch_rtt.csv.gz", "power.csv"
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class StepCell:
    """The mean time of a step under one condition with one window.

    Attributes:
        dataset: its name.
        condition: see :func:`dtdg_lab.systems.feature_cache.policies.calibration.condition_named`.
        window: W, at least 1.
        ms: milliseconds, above 0.
    """

    dataset: str
    condition: str
    window: int
    ms: float


@dataclass(frozen=True, slots=True)
class Watts:
    """Mean power of one host.

    Attributes:
        busy: while its GPU computes.
        stall: while its CPU threads spin and its GPU is idle, as when waiting for features.
        idle: while nothing runs.
    """

    busy: float
    stall: float
    idle: float


def read_steps(source: str | Path | Iterable[Mapping[str, Any]]) -> dict[str, list[StepCell]]:
    """Cells by dataset, from a folder with ``step_time.csv``, from such a file, or from rows with its columns.

    Raises:
        DataError: the file is missing or empty, or a row is invalid; the message has the row.
        ConfigError: a row's condition has an unknown form.
    """
    cells: dict[str, list[StepCell]] = {}
    kinds = {"dataset": str, "condition": str, "window": int, "measured_ms": float}
    for number, values in enumerate(_values(_rows(source, STEPS), kinds, "measured steps, row"), 1):
        cell = StepCell(*values)
        condition_named(cell.condition)
        if cell.window < 1 or not 0 < cell.ms < np.inf:
            raise DataError(f"measured steps, row {number}, {cell}: a window of at least 1, time above 0.")
        cells.setdefault(cell.dataset, []).append(cell)
    if not cells:
        raise DataError(f"no measured steps in {shortened(source)}: rows with dataset, condition, window, measured_ms.")
    return cells


def read_fetches(folder: str | Path) -> dict[str, pd.DataFrame]:
    """Fetches by dataset, from ``fetch_rtt.csv.gz`` of a folder; empty if it has no such file.

    The columns are those of :func:`fetches_of`.

    Raises:
        DataError: a row is invalid.
    """
    import pandas as pd

    path = as_path(folder, "folder") / FETCHES
    if not path.is_file():
        return {}
    numbers = ("concurrent", "requester", "owner", "rows", "rtt_s", "feat_dim")
    kinds = {"dataset": str, "condition": str, **dict.fromkeys(numbers, float)}
    table = pd.DataFrame(_values(_of_file(path), kinds, f"{path}, row"), columns=list(kinds))
    table["nbytes"] = table["rows"] * table["feat_dim"] * FLOAT_BYTES
    return dict(iter(table.groupby("dataset", sort=False)))


def _checked(fetches: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Fetches that a caller gives, by dataset."""
    import pandas as pd

    numbers = ("concurrent", "requester", "owner", "rows", "nbytes", "rtt_s")
    kinds = {"dataset": str, "condition": str, **dict.fromkeys(numbers, float)}
    if not isinstance(fetches, Mapping) or not all(isinstance(own, pd.DataFrame) for own in fetches.values()):
        raise ConfigError(f"fetches={shortened(fetches)}: a mapping of dataset to table is needed, as of fetches_of().")
    found = {}
    for name, own in fetches.items():
        what = f"fetches of {name}, row"
        table = pd.DataFrame(_values(own.to_dict("records"), kinds, what), columns=list(kinds))
        if table.empty:
            raise DataError(f"fetches of {name}: the table has no rows.")
        wrong = table[~np.isfinite(table[list(numbers)]).all(axis=1) | (table[["rows", "nbytes"]] <= 0).any(axis=1)]
        if len(wrong):
            row = wrong.iloc[0][list(numbers)].to_dict()
            raise DataError(f"{what} {wrong.index[0] + 1}, {row}: finite numbers, rows and nbytes above 0 are needed.")
        found[name] = table
    return found


def read_power(folder: str | Path) -> Watts | None:
    """Watts of a host, averaged over hosts, from ``power.csv`` of a folder; None if it has no such file.

    Raises:
        DataError: a state is missing, or a row is invalid.
    """
    import pandas as pd

    path = as_path(folder, "folder") / POWER
    if not path.is_file():
        return None
    kinds = {"state": str, "cpu_w": float, "gpu_w": float}
    table = pd.DataFrame(_values(_of_file(path), kinds, f"{path}, row"), columns=list(kinds))
    watts = (table["cpu_w"] + table["gpu_w"]).groupby(table["state"]).mean()
    try:
        return Watts(*(float(watts[state]) for state in ("gpu_compute", "cpu_spin", "idle")))
    except KeyError as error:
        raise DataError(f"{path} has no state {error}: gpu_compute, cpu_spin and idle are needed.") from error


def _values(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, type], what: str) -> Iterator[tuple[Any, ...]]:
    """The columns of each row, as values of their types.

    Raises:
        DataError: a row lacks a column, or a value is of another type; the message has the row.
    """
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"{what} {number}, {shortened(row)}: a mapping of column to value is needed.")
        try:
            yield tuple(kind(row[name]) for name, kind in kinds.items())
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{what} {number}, {shortened(dict(row))}: {', '.join(kinds)} are needed "
                f"({type(error).__name__}: {error})."
            ) from error


def _rows(source: str | Path | Iterable[Mapping[str, Any]], name: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(source, str | Path):
        path = Path(source)
        path = path / name if path.is_dir() else path
        if not path.is_file():
            raise DataError(f"no measured steps at {path}: a folder with {name}, such a file, or rows are needed.")
        yield from _of_file(path)
        return
    records = getattr(source, "to_dict", None)  # a table of pandas
    rows = source if records is None else records("records")
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping):
        raise ConfigError(f"measured steps {shortened(source)}: a folder, a file or rows (mappings) are needed.")
    yield from rows


def _of_file(path: Path) -> Iterator[dict[str, str]]:
    opened = gzip.open if path.suffix == ".gz" else open
    told = reading(path, remedy="Give a CSV file as it was measured.", damaged="cannot be read", damage=(csv.Error,))
    with told, opened(path, "rt", newline="") as file:
        yield from csv.DictReader(file)


# Least squares with few parameters, and robust straight lines.


Vector = NDArray[np.float64]
_SMALL = 1e-12
_LINE_ROUNDS = 50
_BAD = 2.0


def least_squares(residuals: Callable[[Vector], Vector], start: Vector) -> Vector:
    """Parameters (K,) near ``start`` with the least sum of squares of ``residuals(parameters)``, (M,).

    Deterministic, and never worse than the start.

    References: the trust region of ``scipy.optimize.least_squares``.
    """
    from scipy.optimize import least_squares as solve

    return np.asarray(solve(residuals, np.array(start, dtype=np.float64)).x)


def softened(residuals: Vector) -> Vector:
    """Residuals whose squares grow slowly where they are large, so that a single bad cell has limited influence.

    References: Cauchy's (Lorentz') loss, at twice the noise.
    """
    return np.asarray(np.sign(residuals) * _BAD * np.sqrt(np.log1p((residuals / _BAD) ** 2)))


def relative_line(x: Vector, y: Vector) -> tuple[float, float]:
    """Intercept and slope, neither negative, of minimal mean of |a + b x - y| / y: about half of the points lie above.

    Args:
        x: (M,) 0 or more.
        y: (M,) above 0.
    """
    weights = 1 / y
    intercept, slope = 0.0, 0.0
    for _ in range(_LINE_ROUNDS):
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
        left = [float(np.sum((weights * y - only[index] * columns[:, index]) ** 2)) for index in (0, 1)]
        return (only[0], 0.0) if left[0] <= left[1] else (0.0, only[1])
    return float(solved[0]), float(solved[1])


# Fits the model of a fetch: initiation and bytes per owner, and the effect of throttling.


_LEAST = 8  # minimum number of fetches of an owner: two constants, and enough to estimate noise
_SPREAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_SLOWER = 1.5  # minimum slowdown of a throttled owner


@dataclass(frozen=True, slots=True)
class ThrottledLink:
    """The effect of a condition on the fetches from one owner.

    Attributes:
        owner: the throttled one.
        bytes_per_s: rate of one requester: the owner's rate is shared by its requesters.
        wait_s: additional seconds of any fetch, in the queue of the throttled link.
        asking_bytes_per_s: rate of replies to the owner's own requests, which pass the same queue.
        asking_wait_s: additional seconds of these.
    """

    owner: int
    bytes_per_s: float
    wait_s: float
    asking_bytes_per_s: float
    asking_wait_s: float


@dataclass(frozen=True, slots=True)
class RpcError:
    """Errors of a model on the fetches of one condition, as relative errors in percent.

    Attributes:
        condition: its name.
        concurrent: whether all owners were requested at once.
        fetches: number of fetches.
        median, mean: of |predicted - measured| / measured.
        paper_median, paper_mean: the same of the paper's Eq. 4.
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
        noise: spread of measured over predicted time, as a standard deviation of its logarithm, on clean fetches.
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
        """Predicted seconds of each fetch, (M,), by its condition, requester and owner."""
        a_s = fetches["owner"].map({owner: model.a_s for owner, model in self.owners.items()})
        s_per_byte = fetches["owner"].map({owner: model.s_per_byte for owner, model in self.owners.items()})
        for name, link in self.throttled.items():
            asked, asking = (
                (fetches["condition"] == name) & (fetches[end] == link.owner) for end in ("owner", "requester")
            )
            a_s += link.wait_s * asked + link.asking_wait_s * asking
            s_per_byte += asked / link.bytes_per_s + asking / link.asking_bytes_per_s
        return (a_s + s_per_byte * fetches["nbytes"]).to_numpy()


def fit_rpc(fetches: pd.DataFrame) -> RpcFit:
    """Fit the model of a fetch: per owner on clean fetches, then the effect of throttling per condition.

    Lines minimise absolute relative errors, so that outliers have little influence. The throttled owner of a condition
    is found in the data: the one that slowed down most. The constants are specific to the measured cluster.

    Args:
        fetches: of one dataset, with the columns of :func:`fetches_of`.

    Raises:
        DataError: there are no clean fetches, too few of an owner, or a condition that slowed no owner down.
    """
    dataset = str(fetches["dataset"].iloc[0])
    clean = fetches[(fetches["condition"] == "clean") & (fetches["rtt_s"] > 0)]
    owners: dict[int, RpcModel] = {}
    for owner in map(int, np.unique(fetches["owner"])):
        mine = clean[clean["owner"] == owner]
        if len(mine) < _LEAST:
            raise DataError(
                f"{dataset}: {len(mine)} clean fetches from owner {owner}; at least {_LEAST} are needed "
                "to fit its model."
            )
        owners[owner] = RpcModel(*_line(mine))
    row_bytes = float(np.median(fetches["nbytes"] / fetches["rows"]))
    bare = RpcFit(dataset, owners, {}, 0.0, row_bytes, ())
    off = np.log(clean["rtt_s"] / bare.rtt_s(clean))
    noise = float(_SPREAD * np.median(np.abs(off - np.median(off))))
    throttled = {
        str(name): _throttled(bare, own)
        for name, own in fetches.groupby("condition")
        if not condition_named(name).is_clean
    }
    fitted = RpcFit(dataset, owners, throttled, noise, row_bytes, ())
    return replace(fitted, errors=tuple(_errors(fitted, fetches)))


def _throttled(clean: RpcFit, fetches: pd.DataFrame) -> ThrottledLink:
    slower = (fetches["rtt_s"] / clean.rtt_s(fetches)).groupby(fetches["owner"]).median()
    owner = int(slower.idxmax())
    if slower[owner] < _SLOWER:
        raise DataError(f"{clean.dataset}, {fetches['condition'].iloc[0]}: no owner slowed down, {slower.to_dict()}.")
    asking = fetches[fetches["requester"] == owner]
    wait_s, s_per_byte = _added(clean.owners[owner], fetches[fetches["owner"] == owner])
    asking_wait_s, asking_s = _added(clean.typical, asking) if len(asking) else (0.0, 0.0)
    return ThrottledLink(owner, _rate(s_per_byte), wait_s, _rate(asking_s), asking_wait_s)


def _added(model: RpcModel, fetches: pd.DataFrame) -> tuple[float, float]:
    wait_s, s_per_byte = _line(fetches)
    return max(wait_s - model.a_s, 0.0), max(s_per_byte - model.s_per_byte, 0.0)


def _line(fetches: pd.DataFrame) -> tuple[float, float]:
    return relative_line(fetches["nbytes"].to_numpy(), fetches["rtt_s"].to_numpy())


def _rate(s_per_byte: float) -> float:
    return 1 / s_per_byte if s_per_byte > 0 else float(np.inf)


def _errors(fitted: RpcFit, fetches: pd.DataFrame) -> list[RpcError]:
    errors = []
    for (name, concurrent), some in fetches.groupby(["condition", "concurrent"]):
        ours = np.abs(fitted.rtt_s(some) / some["rtt_s"] - 1) * 100
        paper = np.abs(PAPER.rtt_s(some["nbytes"]) / some["rtt_s"] - 1) * 100
        sizes = map(float, (ours.median(), ours.mean(), paper.median(), paper.mean()))
        errors.append(RpcError(name, bool(concurrent), len(some), *sizes))
    return sorted(errors, key=lambda error: error.condition != "clean")


# The step-time model with its calibrated constants: five per dataset, two per cluster.


# Fixed assumptions:
TRIP_MBIT = 0.35  # transferred by the first round trip: ten packets of 1,460 bytes to each of three requesters
CAPACITY_EXPONENT = 0.8  # for sampled rows of log-normal popularity, at the measured hit rates


@dataclass(frozen=True, slots=True)
class StepModel:
    """Milliseconds of a step by window, rate and delay of the slowest owner; concurrent stages take their maximum.

    T(W) = base + max(fetch(W) - hidden, 0), with

    - fetch(W) = max(waits(W) delay, S(W) / min(rate, unhindered)): delays hide transfers, or the reverse;
    - S(W) = (miss^4 + R(W)^4)^(1/4), R(W) = rebuild W^(exponent - 1): the slowest owner's traffic per step is nearly
      the maximum of both, because a cache that holds all rows of a short window has no misses;
    - M(W) = S(W) - R(W): the misses in it, none for short windows, ``miss`` for endless ones;
    - waits(W) = trips max(1 - exp(-M(W) / (0.35 trips)), 1 / W): a step without misses waits for no reply, and a
      rebuild's replies are concurrent with those of misses.

    Attributes:
        base_ms: of a step without waiting.
        hidden_ms: of fetching that hides behind the rest of a step.
        miss_mbit: megabits of misses per step that one owner sends, to all requesters, for an endless window.
        rebuild_mbit: megabits that it sends for a rebuild for W = 1: all of its rows in the step.
        exponent: c of W^c, the growth of a rebuild with the window, below 1.
        trips: sequential replies of a step with many misses; per cluster.
        unhindered_mbit: Mbit/s of an owner that is not throttled; per cluster.

    Raises:
        ConfigError: a constant is negative, or not a number, or the exponent is not between -1 and 1.

    References: GreenDyGNN section IV-A, equations 1 and 2; section V-A for what overlaps.

    Differs from the paper: an owner that is not throttled is a link like any other, at its own rate. So the cost of a
    window on a clean network determines its traffic, and so does its cost under throttling. Hits follow from the
    traffic of a rebuild and not from Eq. 2, whose half and slope 16 cells cannot determine. Eq. 1 adds its terms up.
    """

    base_ms: float
    hidden_ms: float
    miss_mbit: float
    rebuild_mbit: float
    exponent: float
    trips: float
    unhindered_mbit: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            low, high = (-1.0, 1.0) if name == "exponent" else (0.0, np.inf)
            if not low <= getattr(self, name) < high:
                raise ConfigError(f"{name}={getattr(self, name)}: a number from {low:g} to below {high:g} is needed.")

    def rebuilt_mbit(self, windows: ArrayLike) -> Vector:
        """R(W): megabits per step that the slowest owner sends for rebuilds, by window."""
        return np.asarray(self.rebuild_mbit * np.asarray(windows, dtype=np.float64) ** (self.exponent - 1))

    def missed_mbit(self, windows: ArrayLike) -> Vector:
        """M(W): megabits per step that it sends for misses, by window."""
        return joined_misses(self.miss_mbit, self.rebuilt_mbit(windows))

    def waits(self, windows: ArrayLike) -> Vector:
        """Sequential replies of the slowest owner in a step, by window."""
        windows = np.asarray(windows, dtype=np.float64)
        awaited = -np.expm1(-self.missed_mbit(windows) / (TRIP_MBIT * self.trips)) if self.trips else 0.0
        return np.asarray(self.trips * np.maximum(awaited, 1 / windows))

    def step_ms(self, windows: ArrayLike, mbit: ArrayLike = np.inf, delay_ms: ArrayLike = 0.0) -> Vector:
        """Milliseconds of a step, arguments broadcast: window, and rate and delay of the slowest owner."""
        sent = self.missed_mbit(windows) + self.rebuilt_mbit(windows)
        transfer = 1e3 * sent / np.minimum(mbit, self.unhindered_mbit)
        fetch = np.maximum(self.waits(windows) * np.asarray(delay_ms, dtype=np.float64), transfer)
        return np.asarray(self.base_ms + np.maximum(fetch - self.hidden_ms, 0.0))

    def costs(
        self, name: str, *, parts: int, row_bytes: float, watts: Watts, rpc: RpcModel, noise: float
    ) -> CacheCosts:
        """The same model as constants of step costs, for one requester of P - 1.

        The number of rows per step is that of a rebuild for W = 1: step times cannot distinguish them.

        Args:
            name: of the dataset.
            parts: P: an owner's rate is shared by the P - 1 others.
            row_bytes: of a row's features.
            watts: of a host.
            rpc: of a fetch.
            noise: spread of a fetch's time, as a standard deviation of its logarithm.
        """
        rows_of_mbit = 1 / BITS / row_bytes  # an owner sends 1 / (P - 1) to each, and each asks P - 1 owners
        asked = max(self.rebuild_mbit, self.miss_mbit)
        return CacheCosts(
            name=name,
            parts=parts,
            base_s=self.base_ms / 1e3,
            rows=asked * rows_of_mbit,
            row_bytes=row_bytes,
            link_bytes_per_s=self.unhindered_mbit / BITS / (parts - 1),
            trips=0.0,
            rebuild_trips=self.trips,
            hit_max=1.0,
            hit_min=1 - self.miss_mbit / asked,
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
            wait_rows=TRIP_MBIT * self.trips * rows_of_mbit / (parts - 1) or 1.0,
        )


# A calibration as Markdown: measurements, predictions and errors.


MIDDLE = 16  # the window of the baseline guess
ALIKE = 0.01  # relative difference of predictions within which windows are equivalent: the nearest to MIDDLE is taken


def calibration_table(calibration: Calibration) -> str:
    """Constants, cells and errors of every dataset of a calibration."""
    datasets = [calibration.dataset] if calibration.dataset else list(calibration.steps)
    parts = []
    for dataset in datasets:
        parts += [f"### {dataset}", _constants(calibration.steps[dataset])]
        if dataset in calibration.cells:
            errors = calibration.errors(dataset)
            parts += [_cells(errors), _regrets(errors)]
        if dataset in calibration.rpc:
            parts.append(_fetches_calibration_table(calibration.rpc[dataset]))
    return "\n\n".join(parts) + "\n"


def mean_percent(errors: Sequence[CellError]) -> tuple[float, float, float]:
    """Mean of |predicted / measured - 1| in percent: fitted, a cell left out, a condition left out.

    The last mean omits cells that cannot be predicted without their condition.
    """
    means = _percents(errors).abs().mean()
    return float(means["predicted_ms"]), float(means["cell_out_ms"]), float(means["condition_out_ms"])


def against_middle(errors: Sequence[CellError]) -> tuple[float, float, float, int]:
    """Mean errors in percent over the cells that the baseline guess covers, and the number of these.

    The guess is the measurement under the same condition at W = 16.

    Returns:
        For the guess; for fits without the cell; for fits without its condition; cells. NaN if there are none.
    """
    known = _percents(errors).abs().dropna(subset=["middle_ms"])
    means = known.mean()
    return float(means["middle_ms"]), float(means["cell_out_ms"]), float(means["condition_out_ms"]), len(known)


def _percents(errors: Sequence[CellError]) -> pd.DataFrame:
    """Each prediction over its measurement, minus 1, in percent: NaN where there is none."""
    import pandas as pd

    table = pd.DataFrame(errors, columns=[*_PREDICTIONS, "measured_ms"])
    return 100 * (table[list(_PREDICTIONS)].div(table["measured_ms"], axis=0) - 1)


_PREDICTIONS = ("predicted_ms", "cell_out_ms", "condition_out_ms", "middle_ms")


@dataclass(frozen=True, slots=True)
class WindowRegret:
    """Cost of choosing a window by a model under one condition: measured time relative to the best measured one.

    Attributes:
        dataset, condition: of the cells.
        windows: number of measured windows.
        best: window of the least measured time.
        cell_out, condition_out: windows chosen by fits without the cell, and without the condition; None if one of
            its cells could not be predicted.
        cell_out_percent, condition_out_percent: measured time of these over the best, minus 1, in percent, or NaN.
        middle_percent: the same for W = 16, or the window nearest to it, without any model.
    """

    dataset: str
    condition: str
    windows: int
    best: int
    cell_out: int | None
    condition_out: int | None
    cell_out_percent: float
    condition_out_percent: float
    middle_percent: float


def regrets(errors: Sequence[CellError]) -> list[WindowRegret]:
    """Regret of the chosen window under every condition with at least two measured windows.

    Windows whose predictions are within 1 % of the best are equivalent, and the one nearest to 16 is taken.

    Args:
        errors: of ``Calibration.errors()``, with those of ``Calibration.errors_on`` for held-out cells.
    """
    by_condition: dict[tuple[str, str], list[CellError]] = {}
    for error in errors:
        by_condition.setdefault((error.dataset, error.condition), []).append(error)
    found = []
    for (dataset, condition), own in by_condition.items():
        if len({error.window for error in own}) < 2:
            continue
        best = min(own, key=lambda error: error.measured_ms)
        middle = min(own, key=_from_middle)
        chosen = _chosen(own, "cell_out_ms"), _chosen(own, "condition_out_ms")
        over = [
            float("nan") if each is None else 100 * (each.measured_ms / best.measured_ms - 1)
            for each in (*chosen, middle)
        ]
        cell_out, condition_out = (None if each is None else each.window for each in chosen)
        found.append(WindowRegret(dataset, condition, len(own), best.window, cell_out, condition_out, *over))
    return found


def _chosen(own: Sequence[CellError], name: str) -> CellError | None:
    """The window nearest to the middle among those that the model considers equivalent to its best."""
    least = np.min([getattr(error, name) for error in own])
    alike = [error for error in own if getattr(error, name) <= least * (1 + ALIKE)]
    return min(alike, key=_from_middle, default=None)  # none where a prediction is missing, and the least is NaN


def _from_middle(error: CellError) -> float:
    return float(abs(np.log2(error.window / MIDDLE)))


def _constants(model: StepModel) -> str:
    return (
        f"base {model.base_ms:.1f} ms, behind which {model.hidden_ms:.1f} ms of fetching hide; the slowest owner sends "
        f"{model.miss_mbit:.1f} Mbit of misses a step for endless windows, and {model.rebuild_mbit:.0f} Mbit for a "
        f"rebuild for W = 1, at {model.unhindered_mbit:.0f} Mbit/s if nothing throttles it; up to {model.trips:.1f} "
        f"waits of a step."
    )


def _cells(errors: Sequence[CellError]) -> str:
    off = ("error", "cell left out", "condition left out", "same at W = 16")
    lines = [["condition", "W", "measured ms", "predicted ms", *off]]
    for error, percents in zip(errors, _percents(errors).to_numpy(), strict=True):
        milliseconds = [f"{error.measured_ms:.1f}", f"{error.predicted_ms:.1f}"]
        lines.append([error.condition, str(error.window), *milliseconds, *(_plain(each, "+") for each in percents)])
    guess, cell_out, condition_out, known = against_middle(errors)
    lines.append(["mean of sizes", "", "", "", *map(_plain, (*mean_percent(errors), guess))])
    if known:
        over = f"the same, over the {known} cells that the last column knows"
        lines.append([over, "", "", "", "", *map(_plain, (cell_out, condition_out, guess))])
    return _markdown_table(lines)


def _regrets(errors: Sequence[CellError]) -> str:
    found = regrets(errors)
    if not found:
        return "No condition has two measured windows: the regret of a chosen window is unknown."
    lines = [["regret of the chosen window", "windows", "best", "cell left out", "condition left out", "W = 16"]]
    for each in found:
        by = (each.cell_out, each.cell_out_percent), (each.condition_out, each.condition_out_percent)
        chosen = ["-" if window is None else f"W = {window}: {_plain(percent)}" for window, percent in by]
        lines.append([each.condition, str(each.windows), f"W = {each.best}", *chosen, _plain(each.middle_percent)])
    return _markdown_table(lines)


def _fetches_calibration_table(fit: RpcFit) -> str:
    lines = [
        f"Fetches: {owner}: {model.a_s * 1e3:.2f} ms + {model.s_per_byte * 1e9:.2f} ns a byte"
        for owner, model in fit.owners.items()
    ]
    for name, link in fit.throttled.items():
        lines.append(
            f"{name}: owner {link.owner} sends each requester "
            f"{'endless' if np.isinf(link.bytes_per_s) else f'{link.bytes_per_s * BITS:.1f} Mbit/s'}, "
            f"{link.wait_s * 1e3:.1f} ms late"
        )
    table = [["fetches", "asked", "count", "median error", "mean error", "Eq. 4: median", "mean"]]
    for error in fit.errors:
        percents = [f"{each:.0f} %" for each in (error.median, error.mean, error.paper_median, error.paper_mean)]
        table.append([error.condition, "at once" if error.concurrent else "in turn", str(error.fetches), *percents])
    return "\n".join(f"- {line}" for line in lines) + "\n\n" + _markdown_table(table, text_columns=2)


def _plain(percent: float, sign: str = "") -> str:
    return "-" if np.isnan(percent) else f"{percent:{sign}.1f} %"


# Constants that :func:`dtdg_lab.calibration.calibrate` fitted to the measurements of a real cluster.
#
# Source: measurements of GreenDyGNN's authors' public artifact, campaign of July 2026: four nodes that request
# features from each other, METIS in 4 parts, GraphSAGE, batches of 2000, ogbn-products (100 features) and Reddit
# (602). They are specific to that cluster.


PARTS = 4
ROW_BYTES = MappingProxyType({"ogbn-products": 400.0, "reddit": 2408.0})
SHIPPED_STEPS_STEPS = MappingProxyType(
    {
        "reddit": StepModel(92.6741, 7.80076, 41.0313, 497.845, -0.166815, 11.6198, 5124.05),
        "ogbn-products": StepModel(124.336, 10.8026, 104.684, 185.516, 0.189431, 11.6198, 5124.05),
    }
)
RPC = MappingProxyType(
    {"reddit": RpcModel(1.2572e-3, 2.5569e-9), "ogbn-products": RpcModel(1.3018e-3, 3.0463e-9)}
)  # medians over owners
NOISE = 0.4  # of a fetch's time around that model, as a standard deviation of its logarithm
WATTS = Watts(busy=168.7775, stall=150.715, idle=110.0225)

# for other datasets whose fetches were not measured
DEFAULT_ROW_BYTES = 400.0
DEFAULT_RPC = RpcModel(1.3e-3, 3e-9)


# Fits the step-time model to measured cells: five constants per dataset, and two per cluster.


CLUSTER = ("trips", "unhindered_mbit")  # the same code has the same number of sequential replies, on the same network
OWN = ("base_ms", "hidden_ms", "miss_mbit", "rebuild_mbit", "exponent")
FREE = (*OWN, *CLUSTER)
STEP_FIT_NOISE = 0.02  # relative error of a typical cell; the influence of much larger errors is limited

# Start of the fit, and the standard deviations of its prior on logarithms, compared with a cell's 0.02. Without the
# prior, constants that the cells do not determine (some left out, none throttled) would be arbitrary.
_TRIPS, _UNHINDERED, _EXPONENT = 10.0, 5000.0, 0.2
_HIDDEN = 0.08  # of a step
_REBUILD = 4.0  # times the traffic of the middle window
_HELD = np.array([0.5, 0.5, 0.7, 1.0, 0.2])  # prior of base, hidden, miss, rebuild, exponent (itself)
_HELD_CLUSTER = np.array([0.5, 0.5])
_STEP_FIT_LEAST = 7


def fit_steps(cells: Mapping[str, Sequence[StepCell]]) -> dict[str, StepModel]:
    """A model for each dataset, fitted to all of its cells by robust least squares of the logarithms.

    Raises:
        DataError: a dataset has fewer than seven cells.

    References: the robust loss is Cauchy's (:func:`dtdg_lab.systems.feature_cache.policies.calibration.softened`).
    """
    for dataset, own in cells.items():
        if len(own) < _STEP_FIT_LEAST:
            raise DataError(
                f"{dataset}: {len(own)} measured steps; at least {_STEP_FIT_LEAST} are needed for "
                f"{len(FREE)} constants."
            )
    conditions = {dataset: _columns(own) for dataset, own in cells.items()}
    start = np.concatenate([np.log([_TRIPS, _UNHINDERED]), *(_start(*columns) for columns in conditions.values())])
    held = np.concatenate([_HELD_CLUSTER, *([_HELD] * len(conditions))])

    def residuals(tried: Vector) -> Vector:
        off = [(tried - start) / held]
        for index, (windows, mbit, delay_ms, measured) in enumerate(conditions.values()):
            model = _model(tried, index)
            off.append(softened(np.log(model.step_ms(windows, mbit, delay_ms) / measured) / STEP_FIT_NOISE))
        return np.concatenate(off)

    fitted = least_squares(residuals, start)
    return {dataset: _model(fitted, index) for index, dataset in enumerate(cells)}


def left_out(
    cells: Mapping[str, Sequence[StepCell]],
    dataset: str,
    same: Callable[[StepCell, StepCell], bool],
    *,
    of: Sequence[StepCell] | None = None,
) -> Vector:
    """Milliseconds of a dataset's cells, (C,), each predicted by a fit without the cells that are the same.

    Args:
        cells: by dataset; those of other datasets are always included.
        dataset: the one whose cells are left out in turn.
        same: whether the second cell must be left out to predict the first.
        of: cells to predict; None for those of the dataset.

    Returns:
        NaN where too few cells remain for a fit.
    """
    own = cells[dataset]
    asked = own if of is None else of
    kept_by_cell = [tuple(not same(cell, other) for other in own) for cell in asked]
    predicted = np.full(len(asked), np.nan)
    for kept in dict.fromkeys(kept_by_cell):
        rest = [cell for cell, stays in zip(own, kept, strict=True) if stays]
        if len(rest) < _STEP_FIT_LEAST:
            continue
        here = np.array([others == kept for others in kept_by_cell])
        model = fit_steps({**cells, dataset: rest})[dataset]
        predicted[here] = predicted_ms(model, asked)[here]
    return predicted


def predicted_ms(model: StepModel, cells: Sequence[StepCell]) -> Vector:
    """Predicted milliseconds of each cell, (C,)."""
    windows, mbit, delay_ms, _ = _columns(cells)
    return model.step_ms(windows, mbit, delay_ms)


def _columns(cells: Sequence[StepCell]) -> tuple[Vector, Vector, Vector, Vector]:
    """Window, Mbit/s, ms of delay and measured ms, each (C,)."""
    under = [condition_named(cell.condition) for cell in cells]
    rows = [(cell.window, on.mbit, on.delay_ms, cell.ms) for cell, on in zip(cells, under, strict=True)]
    windows, mbit, delay_ms, measured = np.array(rows, dtype=np.float64).T
    return windows, mbit, delay_ms, measured


def _start(windows: Vector, mbit: Vector, delay_ms: Vector, measured: Vector) -> Vector:
    """Start of the fit: traffic from throttled cells, or else from the slowest step on a clean network."""
    fastest, throttled = float(measured.min()), np.isfinite(mbit)
    clean = ~throttled & (delay_ms == 0)
    if throttled.any():
        traffic = float(np.median((measured[throttled] - fastest) * mbit[throttled])) / 1e3
    else:
        traffic = (float(measured.max()) - fastest) * _UNHINDERED / _REBUILD / 1e3
    traffic = max(traffic, fastest / 1e3)
    base = float(np.median(measured[clean])) if clean.any() else fastest
    return np.array([*np.log([base, _HIDDEN * base, traffic, _REBUILD * traffic]), _EXPONENT])


def _model(fitted: Vector, index: int) -> StepModel:
    """The model of a dataset: all constants are fitted as logarithms, except the exponent."""
    first = len(CLUSTER) + index * len(OWN)
    named = dict(zip(FREE, map(float, [*fitted[first : first + len(OWN)], *fitted[: len(CLUSTER)]]), strict=True))
    return StepModel(**{name: value if name == "exponent" else float(np.exp(value)) for name, value in named.items()})


_SHORT = {"products": "ogbn-products"}


@dataclass(frozen=True, slots=True)
class CellError:
    """A measured cell and its predictions.

    Attributes:
        dataset, condition, window: of the cell.
        measured_ms: mean of its steps.
        predicted_ms: by the model fitted to all cells; if this cell was not among them, to all others.
        cell_out_ms: by a model fitted without this cell.
        condition_out_ms: by a model fitted without all cells of its condition; NaN if too few remain.
        middle_ms: measurement under the same condition at W = 16, or at the nearest other window: a guess without a
            model. NaN if the condition has no other cell.
    """

    dataset: str
    condition: str
    window: int
    measured_ms: float
    predicted_ms: float
    cell_out_ms: float
    condition_out_ms: float
    middle_ms: float = float("nan")

    @property
    def percent(self) -> float:
        """Predicted over measured, minus 1, in percent."""
        return 100 * (self.predicted_ms / self.measured_ms - 1)


@dataclass(frozen=True)
class Calibration:
    """Models fitted to measurements of one cluster.

    Attributes:
        steps: dataset -> model of a step.
        rpc: dataset -> model of a fetch; empty without measured fetches.
        watts: of a host; None without measured power.
        cells: dataset -> the fitted cells; empty for the shipped constants.
        dataset: default dataset of predictions; None for none.
    """

    steps: Mapping[str, StepModel]
    rpc: Mapping[str, RpcFit]
    watts: Watts | None
    cells: Mapping[str, tuple[StepCell, ...]]
    dataset: str | None = None
    _described: dict[str, list[CellError]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def predict(self, condition: str, window: int, *, dataset: str | None = None) -> float:
        """Milliseconds of a step under a condition with a window.

        Args:
            condition: "clean", "c1_<X>mbit" (X Mbit/s left to one owner) or "c4_<Y>ms" (Y ms on one link); the units
                may be omitted.
            window: W, a whole number of at least 1, also if no action has it.
            dataset: one of the calibrated ones; may be omitted if it is unambiguous.

        Raises:
            ConfigError: condition, window or dataset is invalid.
        """
        if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
            raise ConfigError(f"window={shortened(window)}: a whole number of steps, at least 1, is needed.")
        under = condition_named(condition)
        return float(self.steps[self._meant(dataset)].step_ms(window, under.mbit, under.delay_ms))

    def costs(self, dataset: str | None = None, *, parts: int | None = None) -> CacheCosts:
        """The same model as constants of the simulator and the planner.

        Power and the model of a fetch are the shipped ones if they were not measured.

        Args:
            dataset: one of the calibrated ones; may be omitted if it is unambiguous.
            parts: P of the costs; None for the number in the measured fetches, or else four.

        Raises:
            ConfigError: the dataset is unknown, or there are fewer than two parts.
        """
        name = self._meant(dataset)
        fitted = self.rpc.get(name)
        measured = PARTS if fitted is None else len(fitted.owners)
        return self.steps[name].costs(
            name,
            parts=measured if parts is None else parts,
            row_bytes=ROW_BYTES.get(name, DEFAULT_ROW_BYTES) if fitted is None else fitted.row_bytes,
            watts=self.watts or WATTS,
            rpc=RPC.get(name, DEFAULT_RPC) if fitted is None else fitted.typical,
            noise=NOISE if fitted is None else fitted.noise,
        )

    def errors(self, dataset: str | None = None) -> list[CellError]:
        """Every measured cell with its predictions, of one dataset or of all: takes about a second, once."""
        only = dataset or self.dataset
        names = list(self.cells) if only is None else [self._meant(only)]
        for name in names:
            if name not in self._described:
                own, under = self.cells[name], lambda cell, other: cell.condition == other.condition
                without = (
                    left_out(self.cells, name, lambda cell, other: cell is other),
                    left_out(self.cells, name, under),
                )
                self._described[name] = _cell_errors(own, own, predicted_ms(self.steps[name], own), *without)
        return [error for name in names for error in self._described[name]]

    def errors_on(self, source: str | Path | Iterable[Mapping[str, Any]]) -> list[CellError]:
        """Held-out cells with their predictions; :func:`regrets` accepts them, too.

        ``cell_out_ms`` is the prediction itself, and ``condition_out_ms`` that of a fit without the cell's condition.

        Args:
            source: as in :func:`calibrate`; of calibrated datasets.

        Raises:
            DataError: there is nothing to read, or a row is invalid.
            ConfigError: a dataset is not calibrated, or a condition has an unknown form.
        """
        found = []
        for dataset, kept in read_steps(source).items():
            own = self.cells.get(self._meant(dataset), ())
            without = left_out(self.cells, dataset, lambda cell, other: cell.condition == other.condition, of=kept)
            predicted = predicted_ms(self.steps[dataset], kept)
            found += _cell_errors(kept, own, predicted, predicted, without)
        return found

    def table(self) -> str:
        """Cells, mean errors, the baseline guess, regret, constants and the models of a fetch, as Markdown."""
        return calibration_table(self)

    def _meant(self, dataset: str | None) -> str:
        meant = dataset or self.dataset or (next(iter(self.steps)) if len(self.steps) == 1 else None)
        if meant is None:
            raise ConfigError(f"ambiguous dataset: set dataset to one of {', '.join(self.steps)}.")
        meant = _SHORT.get(meant, meant)
        if meant not in self.steps:
            raise UnknownNameError("calibrated data set", meant, self.steps)
        return meant


SHIPPED = Calibration(SHIPPED_STEPS_STEPS, {}, WATTS, {})


def _cell_errors(
    cells: Sequence[StepCell], known: Sequence[StepCell], predicted: Vector, cell_out: Vector, condition_out: Vector
) -> list[CellError]:
    """Cells with milliseconds predicted by all, without the cell, and without its condition."""
    rows = zip(cells, predicted.tolist(), cell_out.tolist(), condition_out.tolist(), strict=True)
    return [
        CellError(cell.dataset, cell.condition, cell.window, cell.ms, ms, own_ms, out_ms, _middle_ms(cell, known))
        for cell, ms, own_ms, out_ms in rows
    ]


def _middle_ms(cell: StepCell, known: Sequence[StepCell]) -> float:
    """The measurement under the same condition at the other window nearest to 16; NaN if there is none."""
    same = condition_named(cell.condition)
    others = [other for other in known if other is not cell and condition_named(other.condition) == same]
    return min(others, key=lambda other: abs(np.log2(other.window / MIDDLE))).ms if others else float("nan")


def calibrate(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    dataset: str | None = None,
    fetches: Mapping[str, pd.DataFrame] | None = None,
) -> Calibration:
    """Fit the models of steps and fetches to measurements of one cluster.

    Five constants of each dataset are free, and two that the datasets of a cluster share: the sequential replies of a
    step, and the rate of an owner that is not throttled. So all datasets of the source are fitted together,
    whichever is the default.

    Args:
        source: a folder with ``step_time.csv`` and, optionally, ``fetch_rtt.csv.gz`` and ``power.csv``; or rows with
            dataset, condition, window and measured_ms (mappings, or a pandas table).
        dataset: the default of predictions.
        fetches: by dataset, instead of the folder's; see :func:`fetches_of`.

    Raises:
        DataError: there is nothing to read, or a row is invalid.
        ConfigError: the dataset is unknown, a condition has an unknown form, or ``fetches`` is no mapping to tables.

    References: GreenDyGNN section IV-B, algorithm 1.
    """
    cells = {name: tuple(own) for name, own in read_steps(source).items()}
    folder = Path(source) if isinstance(source, str | Path) and Path(source).is_dir() else None
    measured = _checked(fetches) if fetches is not None else {} if folder is None else read_fetches(folder)
    calibration = Calibration(
        steps=fit_steps(cells),
        rpc={name: fit_rpc(own) for name, own in measured.items()},
        watts=None if folder is None else read_power(folder),
        cells=cells,
        dataset=_SHORT.get(dataset, dataset) if dataset else None,
    )
    if dataset:
        calibration._meant(dataset)
    return calibration


def predict(condition: str, window: int, *, dataset: str, calibration: Calibration | None = None) -> float:
    """Milliseconds of a step, by a calibration or by the shipped constants; see :meth:`Calibration.predict`."""
    return (calibration or SHIPPED).predict(condition, window, dataset=dataset)


# Conversion of a run's records to input of the calibration.


def fetches_of(rows: Iterable[Mapping[str, Any]], dataset: str) -> dict[str, pd.DataFrame]:
    """Fetches of a run by dataset, as ``calibrate(..., fetches=)`` takes them.

    A line is a fetch. Its columns: ``dataset`` and ``condition``, names; ``concurrent``, whether all owners were
    requested at once; ``requester`` and ``owner``, indices of parts; ``rows``, and ``nbytes`` of these; ``rtt_s``.

    Args:
        rows: of the table ``fetches``: part, owner, rows, bytes and rtt_s are used. A run requests from all owners at
            once.
        dataset: its name.

    Raises:
        DataError: there are no rows, or one lacks these columns.
    """
    import pandas as pd

    columns = ("part", "owner", "rows", "bytes", "rtt_s")
    table = pd.DataFrame(_values(rows, dict.fromkeys(columns, float), "fetch"), columns=columns)
    if table.empty:
        raise DataError(f"no fetches of {dataset} were recorded: train it with a system that fetches features.")
    named = table.rename(columns={"part": "requester", "bytes": "nbytes"})
    return {dataset: named.assign(dataset=dataset, condition="clean", concurrent=True)}


def cells_of(steps: Iterable[tuple[int, float]], dataset: str, *, condition: str = "clean") -> list[dict[str, Any]]:
    """Cells of a run, as :func:`dtdg_lab.calibration.calibrate` takes them: the mean time of a step by window.

    Args:
        steps: window and seconds of every step to include.
        dataset: its name.
        condition: the links' condition throughout: "clean", or the setting of one owner's links; if these are
            given per link, X Mbit/s of ``c1_X`` are P - 1 times the rate of one.
    """
    by_window: dict[int, list[float]] = {}
    for window, seconds in steps:
        by_window.setdefault(window, []).append(seconds)
    return [
        {"dataset": dataset, "condition": condition, "window": window, "measured_ms": 1e3 * float(np.mean(own))}
        for window, own in sorted(by_window.items())
    ]


# Shipped constants of step costs: those of the same real cluster of four nodes, frozen.
#
# The simulator, the shipped policies and the tables of policies use them. They belong to the cost model in which stages
# add up, with which shipped policies were trained. ``SHIPPED`` describes the same cluster by the model in which stages
# overlap; use that to predict step times.


# base_ms, miss_mbit, half, rebuild_mbit, exponent, trips, unhindered_mbit
_ADDED = MappingProxyType(
    {
        "ogbn-products": (112.714, 101.584, 10.1607, 187.616, 0.46635, 11.1607, 5126.12),
        "reddit": (84.007, 75.989, 34.217, 504.03, -0.21249, 11.5531, 5126.12),
    }
)


def products(parts: int = PARTS) -> CacheCosts:
    """GraphSAGE on ogbn-products, batches of 2000: the cache contains half of the requested rows."""
    return shipped_costs("ogbn-products", parts)


def reddit(parts: int = PARTS) -> CacheCosts:
    """GraphSAGE on Reddit, batches of 2000: the cache contains nearly all requested rows."""
    return shipped_costs("reddit", parts)


def shipped_costs(name: str, parts: int = PARTS) -> CacheCosts:
    """Frozen constants of a data set, seen by one requester of P - 1.

    Raises:
        UnknownNameError: the dataset is unknown.
        ConfigError: fewer than two parts.
    """
    if name not in _ADDED:
        raise UnknownNameError("data set with shipped costs", name, _ADDED)
    base_ms, miss_mbit, half, rebuild_mbit, exponent, trips, unhindered_mbit = _ADDED[name]
    model = StepModel(base_ms, 0.0, miss_mbit, rebuild_mbit, exponent, trips, unhindered_mbit)
    costs = model.costs(name, parts=parts, row_bytes=ROW_BYTES[name], watts=WATTS, rpc=RPC[name], noise=NOISE)
    costs = replace(costs, trips=trips, rebuild_trips=1.0, miss_trips=0.0, hit_half=half)
    return replace(costs, norm=1.5, wait_rows=1.0, overlapped=False)


def _markdown_table(lines: Sequence[Sequence[str]], *, text_columns: int = 1) -> str:
    """Return a table whose first line is its head; columns after the first ``text_columns`` hold numbers."""
    head, *body = lines
    rule = ["---"] * text_columns + ["---:"] * (len(head) - text_columns)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))
