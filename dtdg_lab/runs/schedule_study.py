"""``lab.simulate_schedules``: results of schedulers on up to a thousand simulated ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.systems.snapshot_groups.charts import simulation_figure
from dtdg_lab.systems.snapshot_groups.schedulers.base import MEANINGS, ScheduleOutcome
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import PAPER_THROUGHPUT, RANKS, SCHEDULERS, simulate
from dtdg_lab.systems.snapshot_groups.time_model import CURVES, group_times, growth, snapshot_times
from dtdg_lab.visualization.layout import Figure

if TYPE_CHECKING:
    import pandas as pd


MEASURED = "given"
SHOWN = (
    "curve",
    "ranks",
    "scheduler",
    "iterations",
    "makespan_s",
    "over_bound",
    "throughput",
    "imbalance",
    "idle_share",
    "targets",
    "solve_s",
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScheduleStudy:
    """Outcomes of schedulers on growing graphs, by growth curve.

    Attributes:
        outcomes: curve -> an outcome for each number of ranks and scheduler.
        described: what was simulated, in words.
    """

    outcomes: Mapping[str, tuple[ScheduleOutcome, ...]]
    described: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Plain values, one row per curve, number of ranks and scheduler; columns ``curve`` and ``MEANINGS``."""
        return [{"curve": curve} | each.row() for curve, outcomes in self.outcomes.items() for each in outcomes]

    @property
    def figure(self) -> Figure:
        """Throughput and imbalance over the number of ranks, as in Figure 5, as a plotly figure dict."""
        simulated = {each.ranks for outcomes in self.outcomes.values() for each in outcomes}
        paper = {} if MEASURED in self.outcomes else PAPER_THROUGHPUT
        return simulation_figure(self.rows, paper={count: paper[count] for count in paper if count in simulated})

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a frame; infinite imbalances are missing in it."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __repr__(self) -> str:
        lines = [self.described]
        for curve, outcomes in self.outcomes.items():
            names = list(dict.fromkeys(each.scheduler for each in outcomes))
            what = "times" if curve == MEASURED else "growth"
            lines.append(f"throughput per rank, relative to a single rank: {curve} {what}")
            lines.append("".join([f"{'ranks':>7}", *(f"{name:>15}" for name in names), f"{'bound':>15}"]))
            for count in dict.fromkeys(each.ranks for each in outcomes):
                of_count = {each.scheduler: each for each in outcomes if each.ranks == count}
                bound = next(iter(of_count.values())).bound_throughput
                shares = [*(of_count[name].throughput for name in names), bound]
                lines.append("".join([f"{count:>7,}", *(f"{share:>15.1%}" for share in shares)]))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The main part of the table, with a description of its columns; ``lab.plot(study.figure)`` draws it."""
        said = "".join(f"<li><b>{name}</b>: {MEANINGS[name]}</li>" for name in SHOWN if name in MEANINGS)
        shown = self.to_pandas()[list(SHOWN)].to_html(na_rep="infinite", index=False, float_format=_short)
        return f"<p>{self.described}</p>{shown}<ul style='font-size:90%'>{said}</ul>"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def simulate_schedules(
    times_s: ArrayLike | None = None,
    *,
    curves: Sequence[str] = tuple(CURVES),
    snapshots: int = 10_000,
    window: int = 4,
    stride: int = 1,
    noise: float = 0.05,
    foresight: bool = True,
    ranks: Sequence[int] = RANKS,
    schedulers: Sequence[str] = SCHEDULERS,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    time_limit_s: float = 10.0,
    seed: int = 0,
    targets: int = 0,
) -> ScheduleStudy:
    """Per-rank throughput and imbalance of schedulers on many ranks, from group times alone; nothing is trained.

    :mod:`dtdg_lab.systems.snapshot_groups.schedulers.simulation` describes the simulation and its limits.

    Args:
        times_s: (K,) seconds of each group, measured by a run, or of a growing graph by a model fitted to one (see
            ``modelled_times`` of :mod:`dtdg_lab.systems.snapshot_groups.time_model`); by default those of synthetic
            growing
            graphs.
        curves: how the graphs grow: ``linear`` (the last snapshot is 10 times the first) and ``exponential`` (20).
        snapshots: T of a growing graph.
        window: snapshots of a group; a group starts every ``stride``.
        stride: see ``window``.
        noise: relative standard deviation of a snapshot's time.
        foresight: whether schedulers know the noise, as in the paper; without it they know only the growth.
        ranks: numbers of ranks.
        schedulers: ``psg``, or names in the catalogue's section ``scheduling``.
        per_rank: maximum groups of a rank in an iteration; ``psg`` has one.
        allreduce_s: seconds of the exchange that ends an iteration, on more than one rank.
        time_limit_s: for schedulers that search.
        seed: of the noise and of randomised schedulers.
        targets: number that DyGNeX-G tries in an iteration, alone and in ``best_of``: beyond a few dozen, more do not
            help.
            0 chooses by the numbers of groups and ranks: all if that takes about a second, else as many as fit into it.
            Each row has the number tried.

    Raises:
        ConfigError: there is nothing to simulate, or a number is invalid.
        UnknownNameError: a curve or scheduler is unknown.
        PlanError: times are negative or not finite, or all are 0.

    References: DyGNeX section 5.4, Figure 5; it does not give its growth curve, so two of ours stand in.
    """
    run = partial(
        simulate,
        ranks=ranks,
        schedulers=schedulers,
        per_rank=per_rank,
        allreduce_s=allreduce_s,
        time_limit_s=time_limit_s,
        seed=seed,
        targets=targets,
    )
    exchange = f"an all-reduce of {allreduce_s:g} s" if allreduce_s else "all-reduces of zero cost"
    if times_s is not None:
        found = run(times_s)
        return ScheduleStudy({MEASURED: found}, f"Simulated from {found[0].groups:,} given times, with {exchange}.")
    grown, outcomes = _grown(curves), {}
    for curve in curves:
        times = group_times(snapshot_times(snapshots, curve, noise=noise, seed=seed), window=window, stride=stride)
        seen = None if foresight else group_times(growth(snapshots, curve), window=window, stride=stride)
        outcomes[curve] = run(times, seen_s=seen)
    said = f"{window} snapshots, one every {stride}, of graphs whose growth is {grown}, with {noise:.0%} of noise"
    known = f"{'' if foresight else 'not '}known to the schedulers"
    return ScheduleStudy(outcomes, f"Simulated from {len(times):,} groups of {said} {known}, and {exchange}.")


def _grown(curves: Sequence[str]) -> str:
    if not curves:
        raise ConfigError(f"no growth curve is given: choose from {', '.join(CURVES)}.")
    for curve in curves:
        if curve not in CURVES:
            raise UnknownNameError("growth curve", curve, CURVES)
    return " or ".join(f"{curve} to {CURVES[curve]:g} times the first size" for curve in curves)
