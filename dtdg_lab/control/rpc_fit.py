"""Fits the model of a fetch to measured ones: initiation and bytes per owner, and what a throttled owner adds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.calibration_files import Fetches
from dtdg_lab.control.conditions import condition
from dtdg_lab.control.rpc_model import PAPER, RpcModel
from dtdg_lab.control.small_fit import relative_line
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.links import BITS

Vector = NDArray[np.float64]
_LEAST = 8  # fetches of an owner: two constants, and enough to see noise
_SPREAD = 1.4826  # of a normal distribution over its median distance from the middle
_SLOWER = 1.5  # times as slow as without: below, an owner does not count as throttled


@dataclass(frozen=True, slots=True)
class ThrottledLink:
    """What a condition adds to the fetches from one owner.

    Attributes:
        owner: that is throttled.
        bytes_per_s: that one requester gets: the owner's rate is shared by those who ask.
        wait_s: seconds that any fetch is late beside, in the queue of the throttled link.
        asking_bytes_per_s: bytes of replies a second when the owner itself asks: its requests pass the same queue.
        asking_wait_s: seconds that those are late beside.
    """

    owner: int
    bytes_per_s: float
    wait_s: float
    asking_bytes_per_s: float
    asking_wait_s: float


@dataclass(frozen=True, slots=True)
class RpcError:
    """How far a model is from the fetches of one condition, as relative errors in percent.

    Attributes:
        condition: its name.
        concurrent: whether all owners were asked at once.
        fetches: how many.
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
    """Models of the fetches of one data set on one cluster.

    Attributes:
        dataset: its name.
        owners: part -> its model, fitted to clean fetches.
        throttled: condition -> what it adds.
        noise: spread of measured over predicted time, as a standard deviation of its logarithm, on clean fetches.
        row_bytes: bytes of a row.
        errors: by condition, and asked one after another or all at once.
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

    def rtt_s(self, fetches: Fetches) -> Vector:
        """Seconds that the model gives each fetch, (M,), by its condition, requester and owner."""
        a_s, s_per_byte = np.zeros(len(fetches.rtt_s)), np.zeros(len(fetches.rtt_s))
        for owner, model in self.owners.items():
            mine = fetches.owner == owner
            a_s[mine], s_per_byte[mine] = model.a_s, model.s_per_byte
        for name, link in self.throttled.items():
            here = fetches.condition == name
            asked, asking = here & (fetches.owner == link.owner), here & (fetches.requester == link.owner)
            a_s[asked] += link.wait_s
            s_per_byte[asked] += 1 / link.bytes_per_s
            a_s[asking] += link.asking_wait_s
            s_per_byte[asking] += 1 / link.asking_bytes_per_s
        return a_s + s_per_byte * fetches.nbytes


def fit_rpc(fetches: Fetches) -> RpcFit:
    """Fit the model of a fetch: per owner on clean fetches, then per condition what the throttled owner adds.

    Lines are fitted to relative errors, each as its absolute value, so that a fetch that met a busy process does not
    bend them. Which owner a condition throttles is found in the data: the one that slowed down most. These constants
    belong to the cluster they were measured on.

    Raises:
        DataError: no clean fetches, too few of an owner, or a condition that slowed nobody down.
    """
    clean = fetches.where((fetches.condition == "clean") & (fetches.rtt_s > 0))
    owners: dict[int, RpcModel] = {}
    for owner in np.unique(fetches.owner).tolist():
        mine = clean.where(clean.owner == owner)
        if len(mine.rtt_s) < _LEAST:
            raise DataError(
                f"{fetches.dataset}: {len(mine.rtt_s)} clean fetches from owner {owner}; at least {_LEAST} are needed "
                "to fit its model."
            )
        owners[owner] = RpcModel(*relative_line(mine.nbytes, mine.rtt_s))
    row_bytes = float(np.median(fetches.nbytes / fetches.rows))
    bare = RpcFit(fetches.dataset, owners, {}, 0.0, row_bytes, ())
    off = np.log(clean.rtt_s / bare.rtt_s(clean))
    noise = float(_SPREAD * np.median(np.abs(off - np.median(off))))
    names = [name for name in np.unique(fetches.condition).tolist() if not condition(name).is_clean]
    throttled = {name: _throttled(bare, fetches.where(fetches.condition == name)) for name in names}
    fitted = RpcFit(fetches.dataset, owners, throttled, noise, row_bytes, ())
    return replace(fitted, errors=tuple(_errors(fitted, fetches)))


def _throttled(clean: RpcFit, fetches: Fetches) -> ThrottledLink:
    slower = {
        owner: float(np.median(fetches.rtt_s[mine] / clean.rtt_s(fetches.where(mine))))
        for owner in clean.owners
        if (mine := fetches.owner == owner).any()
    }
    owner = max(slower, key=lambda part: slower[part])
    if slower[owner] < _SLOWER:
        raise DataError(f"{fetches.dataset}, {fetches.condition[0]}: no owner slowed down, {slower}.")
    asked, asking = fetches.where(fetches.owner == owner), fetches.where(fetches.requester == owner)
    wait_s, s_per_byte = _added(clean.owners[owner], asked)
    asking_wait_s, asking_s = _added(clean.typical, asking) if len(asking.rtt_s) else (0.0, 0.0)
    return ThrottledLink(owner, _rate(s_per_byte), wait_s, _rate(asking_s), asking_wait_s)


def _added(model: RpcModel, fetches: Fetches) -> tuple[float, float]:
    wait_s, s_per_byte = relative_line(fetches.nbytes, fetches.rtt_s)
    return max(wait_s - model.a_s, 0.0), max(s_per_byte - model.s_per_byte, 0.0)


def _rate(s_per_byte: float) -> float:
    return 1 / s_per_byte if s_per_byte > 0 else float(np.inf)


def _errors(fitted: RpcFit, fetches: Fetches) -> list[RpcError]:
    errors = []
    for name in sorted(np.unique(fetches.condition).tolist(), key=lambda text: (text != "clean", text)):
        for concurrent in (False, True):
            some = fetches.where((fetches.condition == name) & (fetches.concurrent == concurrent))
            if not len(some.rtt_s):
                continue
            ours = np.abs(fitted.rtt_s(some) / some.rtt_s - 1) * 100
            paper = np.abs(PAPER.rtt_s(some.nbytes) / some.rtt_s - 1) * 100
            errors.append(RpcError(name, concurrent, len(ours), *map(float, (
                np.median(ours), ours.mean(), np.median(paper), paper.mean()
            ))))  # fmt: skip
    return errors


def told_rate(bytes_per_s: float) -> str:
    """A rate for people: Mbit/s, or that nothing limits it."""
    return "endless" if np.isinf(bytes_per_s) else f"{bytes_per_s * BITS:.1f} Mbit/s"
