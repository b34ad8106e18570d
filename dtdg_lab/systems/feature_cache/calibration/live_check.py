"""Check of a calibration on a run: predicted steps and rewards of its decisions, beside the measured ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.network.links import BITS
from dtdg_lab.systems.feature_cache.actions import CacheActions, other_parts
from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration
from dtdg_lab.systems.feature_cache.charts.model_errors import live_figure
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.control import CHANGE, WARM_EPOCHS
from dtdg_lab.visualization.chart import Figure

if TYPE_CHECKING:
    from dtdg_lab.runs.stored_run import StoredRun

Floats = NDArray[np.float64]
WITHIN = 0.04  # GreenDyGNN section IV-C2: the live reward is within 4 % of the simulated one


@dataclass(frozen=True, slots=True)
class LiveDecision:
    """An interval between two decisions of a part.

    Attributes:
        part: the deciding part.
        step: first step after the interval.
        window: W of the cache that served most of its steps.
        measured_ms, predicted_ms: mean milliseconds of its steps, with those that a rebuild delays.
        reward: recorded reward of the decision that is judged by the interval.
        simulated_reward: the same reward of the predicted steps.
    """

    part: int
    step: int
    window: int
    measured_ms: float
    predicted_ms: float
    reward: float
    simulated_reward: float


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """A run's decisions, measured and simulated with the constants of a calibration.

    Attributes:
        run: identifier of the run.
        dataset: the calibrated dataset.
        decisions: intervals with a reward.
    """

    run: str
    dataset: str
    decisions: tuple[LiveDecision, ...]

    @property
    def reward(self) -> float:
        """Mean recorded reward."""
        return float(np.mean([decision.reward for decision in self.decisions]))

    @property
    def simulated_reward(self) -> float:
        """Mean reward of the same decisions in the simulator."""
        return float(np.mean([decision.simulated_reward for decision in self.decisions]))

    @property
    def difference(self) -> float:
        """Relative difference of the live reward from the simulated one; positive if the run earned less."""
        return self.reward / self.simulated_reward - 1

    @property
    def holds(self) -> bool:
        """True if both rewards are within 4 % of each other."""
        return abs(self.difference) <= WITHIN

    def table(self) -> pd.DataFrame:
        """Return a row for each decision."""
        return pd.DataFrame(self.decisions)

    def figure(self) -> Figure:
        """Return measured over predicted milliseconds of a step, as a plotly figure dict."""
        table = self.table()
        return live_figure(table["predicted_ms"], table["measured_ms"], table["window"], title=self._title)

    @property
    def _title(self) -> str:
        return f"Steps of {self.run}, by the calibration of {self.dataset}"

    def __repr__(self) -> str:
        verdict = "holds" if self.holds else "does not hold here"
        return (
            f"{self._title}: live reward {self.reward:.4f}, simulated {self.simulated_reward:.4f} over "
            f"{len(self.decisions)} decisions, {self.difference:+.1%}. Within {WITHIN:.0%}: {verdict}"
        )


def check_live(run: StoredRun, calibration: Calibration, *, dataset: str | None = None) -> LiveCheck:
    """Compare a run's steps and rewards with those that a calibration predicts for the same decisions and links.

    The rewards of both are those of equation 5, relative to the mean clean step: a run's after the pipeline was filled,
    in versions before December 2026 the median. The joules of the simulated one count where the run's did.

    Args:
        run: run of a system whose cache policy decides.
        calibration: of the machine that trained it.
        dataset: a calibrated dataset; may be omitted if there is only one or a default.

    Raises:
        DataError: the run has no rewarded decisions, or its caches or links are not recorded.
        ConfigError: the dataset is not calibrated.

    References: GreenDyGNN section IV-C2 (sim-to-real transfer).

    Differs from the paper: the run's own decisions are simulated, so that only the model of a step is checked.
    """
    parts = run.config.parts
    rows, steps = run.table("cache_decisions"), run.table("steps")
    rewarded = rows[rows["reward"].notna()]
    if not len(rewarded):
        raise DataError(
            f"{run.path} has no rewarded decisions. Train system='greendygnn' with a policy that decides, for more "
            "than two windows."
        )
    costs = calibration.costs(dataset, parts=parts)
    measured_s = steps.groupby("step")["time_s"].max()
    actions = _actions_of_steps(run.table("resolved"), run.table("windows"), parts, measured_s.index)
    seconds, joules = _predict(costs, actions, _links_of_steps(run.table("events"), parts, measured_s.index))
    replay = _Replay(
        steps=measured_s.index.to_numpy(),
        warm=(steps.groupby("step")["epoch"].first() < WARM_EPOCHS).to_numpy(),
        measured_s=measured_s.to_numpy(),
        actions=actions,
        seconds=seconds,
        joules=joules,
    )
    decisions = [replay.decisions(int(part), of_part) for part, of_part in rows.groupby("part")]
    return LiveCheck(run.id, costs.name, tuple(itertools.chain(*decisions)))


def _actions_of_steps(resolved: pd.DataFrame, windows: pd.DataFrame, parts: int, steps: pd.Index) -> NDArray[np.int64]:
    """Return the (S, P) action of the cache that served each step of each part.

    Raises:
        DataError: a step was served without a cache, or is not recorded.
    """
    served = resolved.merge(
        windows[["part", "number", "action"]], left_on=["part", "window"], right_on=["part", "number"]
    )
    actions = served.pivot_table(index="step", columns="part", values="action").reindex(steps, columns=range(parts))
    if actions.isna().any(axis=None):
        raise DataError("some steps have no cache of an action. Check a run whose policy decides from the first step.")
    return actions.to_numpy(dtype=np.int64)


def _links_of_steps(events: pd.DataFrame, parts: int, steps: pd.Index) -> tuple[Floats, Floats]:
    """Return (S, P, P) seconds of delay and bytes per second of every link, by owner and requester.

    Raises:
        DataError: the run has no records of its links.
    """
    changes: Iterable[Mapping[str, Any]] = events[(events["kind"] == "congestion") & (events["rank"] == 0)].to_dict(
        "records"
    )
    states = {int(change["step"]): change["data"] for change in changes}
    if not states:
        raise DataError("the run has no records of its links. Check a run of a system that fetches features.")
    firsts = np.array(sorted(states))
    which = np.maximum(np.searchsorted(firsts, steps.to_numpy(), side="right") - 1, 0)
    delays_s = np.array([states[first]["delay_ms"] for first in firsts], dtype=np.float64) / 1e3
    mbit = np.array([states[first]["mbit"] for first in firsts], dtype=np.float64)  # None becomes NaN
    rates = np.where(np.isnan(mbit), np.inf, mbit / BITS)
    return delays_s[which].reshape(-1, parts, parts), rates[which].reshape(-1, parts, parts)


def _predict(costs: CacheCosts, actions: NDArray[np.int64], links: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return (S,) seconds of each step, which are those of its slowest part, and (S, P) joules of each part."""
    parts = actions.shape[1]
    choices = CacheActions(parts)
    shares = np.stack([choices.shares(action) for action in range(len(choices))])
    windows = np.array([choices.window(action) for action in range(len(choices))])
    seconds = np.empty(actions.shape)
    joules = np.empty(actions.shape)
    for part in range(parts):
        others = other_parts(part, parts)
        delays_s, rates = (values[:, others, part] for values in links)
        step = costs.step(windows[actions[:, part]], delays_s, rates, shares[actions[:, part]])
        seconds[:, part], joules[:, part] = step.seconds, step.joules
    slowest = seconds.max(axis=1)
    return slowest, joules + (slowest[:, None] - seconds) * costs.stall_w  # the others wait for the gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay:
    """Measured and predicted steps of a run: S steps, P parts.

    Attributes:
        steps: (S,) their numbers.
        warm: (S,) True in the first epochs, whose steps rewards are relative to.
        measured_s: (S,) measured seconds.
        actions: (S, P) action of the cache that served each part.
        seconds: (S,) predicted seconds.
        joules: (S, P) predicted joules of each part.
    """

    steps: NDArray[np.int64]
    warm: NDArray[np.bool_]
    measured_s: Floats
    actions: NDArray[np.int64]
    seconds: Floats
    joules: Floats

    def decisions(self, part: int, rows: pd.DataFrame) -> list[LiveDecision]:
        """Return the intervals before the rewarded decisions of a part, given all of its decisions."""
        choices, joules, decisions, previous = CacheActions(self.actions.shape[1]), self.joules[:, part], [], -1
        base_s = float(self.seconds[self.warm].mean())
        base_w = float(joules[self.warm].sum() / self.seconds[self.warm].sum())
        moved = rows["biased"].ne(rows["biased"].shift(fill_value=-1))
        for (_, row), is_changed in zip(rows.iterrows(), moved.shift(fill_value=False), strict=True):
            within = (self.steps > previous) & (self.steps <= row["step"])
            previous = int(row["step"])
            if not within.any() or pd.isna(row["reward"]):
                continue
            ratio = float(self.seconds[within].mean()) / base_s
            if isinstance(row["energy_source"], str):
                ratio *= float(joules[within].sum() / self.seconds[within].sum()) / base_w
            served = [choices.window(action) for action in self.actions[within, part].tolist()]
            decisions.append(
                LiveDecision(
                    part=part,
                    step=previous,
                    window=max(set(served), key=served.count),
                    measured_ms=1e3 * float(self.measured_s[within].mean()),
                    predicted_ms=1e3 * float(self.seconds[within].mean()),
                    reward=float(row["reward"]),
                    simulated_reward=-ratio - CHANGE * bool(is_changed),
                )
            )
        return decisions
