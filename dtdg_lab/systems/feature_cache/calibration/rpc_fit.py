"""Fit of the model of a fetch: initiation and bytes per owner, and the effect of throttling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.core.errors import DataError
from dtdg_lab.systems.feature_cache.calibration.fitting import Vector, relative_line
from dtdg_lab.systems.feature_cache.calibration.measurements import condition_named
from dtdg_lab.systems.feature_cache.costs.rpc_model import PAPER, RpcModel

if TYPE_CHECKING:
    import pandas as pd


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
        owners[owner] = RpcModel(*_fit_line(mine))
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
