"""The numbers of a whole run, from its record tables. Unknown numbers are None, never 0."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.record_tables import OWN_PHASES, PHASES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.energy.phases import STALLED
from dtdg_lab.energy.total import GPU, PROCESSOR, EnergyTotal, total_of
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.records.events import EpochEnded, RanksGathered, SettingsChanged, reading_event
from dtdg_lab.records.link_metrics import PAIRS, RANKED, few_pairs, interval_of, is_score
from dtdg_lab.records.replaced_rows import SPENT
from dtdg_lab.runs.frames import ColumnFrames, RunFrames

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Spent:
    """Energy of a part of a run.

    Attributes:
        joules: sum of the known ones; None if none are known.
        seconds: its duration, summed over ranks.
        coverage: share of these seconds with known energy.
        sources: origin of the joules: ``counter``, ``polled``, ``modelled``.
    """

    joules: float | None
    seconds: float
    coverage: float
    sources: tuple[str, ...]


def joules_per_loss(joules: float | None, evaluations: pd.DataFrame) -> float | None:
    """Return joules per unit of decrease in the loss of the training split.

    Args:
        joules: of the whole run.
        evaluations: that table.

    Returns:
        None if the joules are unknown, or the loss was evaluated less than twice or did not decrease.
    """
    training = evaluations[evaluations["split"] == "train"].sort_values("time_ns", kind="stable")
    losses = training["loss"].astype(float).dropna()
    if joules is None or len(losses) < 2 or losses.iloc[-1] >= losses.iloc[0]:
        return None
    return joules / float(losses.iloc[0] - losses.iloc[-1])


def energy_facts(
    phase_energy: pd.DataFrame,
    total: EnergyTotal,
    evaluations: pd.DataFrame,
    *,
    finished: Collection[int] | None = None,
    congested: Collection[int] | None = None,
) -> dict[str, Any]:
    """Return the numbers of energy; each is None if it is unknown.

    Args:
        phase_energy: that table, of all attempts.
        total: of the run.
        evaluations: that table.
        finished: epochs that ended; by default all that have joules.
        congested: those of them in which a link was slow; None if none ever was.
    """
    total_spent, waited = spent(phase_energy), spent(phase_energy[phase_energy["phase"].isin(STALLED)]).joules
    if total_spent.joules is not None and not phase_energy["phase"].isin(STALLED).any():
        waited = 0.0  # known: no rank ever waited
    joules = phase_energy["joules"].astype(float)
    by_phase, by_epoch = (
        joules.groupby(phase_energy[name], sort=False).sum(min_count=1).dropna() for name in ("phase", "epoch")
    )
    counted = None if finished is None else set(finished)
    of_epochs = {int(epoch): value for epoch, value in by_epoch.items() if counted is None or epoch in counted}
    by_source, of_gpus, of_processors = total.joules(), total.joules(GPU), total.joules(PROCESSOR)
    return {
        "energy_j": by_source or None,
        "total_j": sum(by_source.values()) if by_source else None,
        "energy_coverage": total.coverage(),
        "phase_j": by_phase.to_dict() or None,
        "stall_j": waited,
        "stall_share": waited / total_spent.joules if waited is not None and total_spent.joules else None,
        **{f"epoch_j{name}": value for name, value in over_epochs(of_epochs, congested).items()},
        "joules_per_loss": joules_per_loss(total_spent.joules, evaluations),
        "phase_energy_coverage": total_spent.coverage if len(phase_energy) else None,
        "gpu_j": sum(of_gpus.values()) if of_gpus else None,
        "processor_j": sum(of_processors.values()) if of_processors else None,
    }


def over_epochs(values: Mapping[int, float], congested: Collection[int] | None) -> dict[str, float | None]:
    """Return statistics over epochs: the mean, ``_spread``, ``_median``, ``_clean`` and ``_congested``.

    Args:
        values: of every epoch that counts.
        congested: epochs in which a link was slow; None if none ever was: then both means are None.

    Returns:
        The mean; the standard deviation, None for fewer than two epochs; the median; and the means of the epochs
        without
        and with a slow link. None if no epoch counts.
    """
    all_values = list(values.values())
    clean = [value for epoch, value in values.items() if congested is not None and epoch not in congested]
    slow = [value for epoch, value in values.items() if congested is not None and epoch in congested]
    return {
        "": fmean(all_values) if all_values else None,
        "_spread": float(np.std(all_values, ddof=1)) if len(all_values) > 1 else None,
        "_median": median(all_values) if all_values else None,
        "_clean": fmean(clean) if clean else None,
        "_congested": fmean(slow) if slow else None,
    }


def spent(rows: pd.DataFrame) -> Spent:
    """Sum the energy of rows of ``phase_energy``; a phase's seconds count once, however many sources it has."""
    has_joules, seconds = rows["joules"].notna(), rows["seconds"].astype(float)
    weight_s, once = seconds.sum(), rows
    if rows["source"].nunique(dropna=False) > 1:
        once = rows.drop_duplicates(["rank", "time_ns", "phase"], keep="last")
    return Spent(
        joules=finite_number(rows["joules"].astype(float).sum(min_count=1)),
        seconds=float(once["seconds"].sum()),
        coverage=float((seconds * rows["coverage"].astype(float)).sum() / weight_s) if weight_s > 0 else 0.0,
        sources=tuple(sorted(map(str, rows.loc[has_joules, "source"].unique()))),
    )


def finite_number(value: Any) -> float | None:
    """Return a finite float, or None."""
    return None if value is None or not math.isfinite(value) else float(value)


# Difference between the training loss under node partitioning and the loss of the whole graph.


def loss_deviation(steps: pd.DataFrame, evaluations: pd.DataFrame, *, first: int) -> float | None:
    """Return the largest relative difference between a step's loss and the evaluation of its parameters.

    Evaluations of the training split see all nodes and all their neighbours. A full-batch step computes
    the same number if node partitioning is exact, and another one if it truncates state or selects its own top nodes
    (``evolvegcn-h`` and ``dcrnn`` on ``cached_vertex``).

    Args:
        steps: table ``steps``.
        evaluations: table ``evaluations``.
        first: the first step of the strategy.
    """
    exact = evaluations.loc[evaluations["split"] == "train"].drop_duplicates("step", keep="last").set_index("step")
    trained = steps.drop_duplicates("step", keep="last").set_index("step")["global_loss"]
    both = trained[trained.index >= first].to_frame().join(exact["loss"], how="inner").dropna()
    both = both[both["loss"] > 0]
    if both.empty:
        return None
    return float(((both["global_loss"] - both["loss"]).abs() / both["loss"]).max())


SCHEMA = 1
READ = ("steps", "evaluations", "events", *SPENT)  # by families, beside those that they declare
PEAKS = ("peak_bytes", "peak_rss_bytes")

_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
COMPARED: tuple[str, ...] = tuple(_DECLARED["compared"])  # columns of a comparison
NON_NUMERIC: tuple[str, ...] = tuple(_DECLARED["non_numeric"])
SUMMARY_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        **_DECLARED["meanings"],
        **{name: meaning for family in catalogue.families() for name, meaning in family.summary_meanings.items()},
    }
)


def summarize(config: RunConfig, tables: ColumnFrames) -> dict[str, Any]:
    """Return losses, times, bytes, memory and energy of a run; see ``summary.toml``.

    Energy and bytes of steps that a resume repeated count too. Imbalance follows SYSTEMS.md section 3 (DyGNeX's
    definition): waiting is excluded, per epoch, median over epochs.

    Args:
        config: the run's settings.
        tables: its record tables.
    """
    events, evaluations = tables.read("events"), tables.read("evaluations")
    finished = _finished_epochs(events, tables)
    congested = _congested_epochs(events, tables.read("steps", "epoch", "step"), finished)
    return {
        "task": config["task"],
        **_losses(evaluations),
        "without_edges": _without_edges(events),
        "protocol": config.protocol,
        "epochs": len(finished),
        "steps": int(tables.read("steps", "step")["step"].nunique()),
        "total_time_s": _total_time_s(tables),
        **_times(tables, finished, congested, meets=config["exchange"] == "gradients"),
        "congested_epochs": None if congested is None else len(congested),
        **_bytes(tables),
        **{name: _whole(tables.read("memory", name, all_attempts=True)[name].max()) for name in PEAKS},
        **_partition(events),
        "loss_deviation": _deviation(events, evaluations, tables),
        **_energy(tables, evaluations, finished, congested),
        **_of_families(tables),
    }


class FamilyTables(Mapping[str, "pd.DataFrame"]):
    """The tables that the summary of a family may read, each read when it is asked for.

    Args:
        tables: of the run.
        columns: table -> the columns that the family needs of it; all of it where none are named.
        all_attempts: keep the rows that a resume replaced.
    """

    def __init__(
        self, tables: ColumnFrames, columns: Mapping[str, Sequence[str]], *, all_attempts: bool = False
    ) -> None:
        self._tables, self._columns, self._all_attempts = tables, columns, all_attempts

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self._tables.read(name, *self._columns[name], all_attempts=self._all_attempts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _of_families(tables: ColumnFrames) -> dict[str, Any]:
    """Return the numbers of all families; a family that fails leaves its error under ``family_errors``."""
    numbers: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for family in catalogue.families():
        try:
            names = dict.fromkeys((*READ, *family.summary_tables))
            columns = {name: family.summary_columns.get(name, ()) for name in names}
            everything = FamilyTables(tables, columns, all_attempts=True)
            numbers |= family.summary(FamilyTables(tables, columns), everything)
        except Exception as error:  # recorded and shown in the report: a run of another family must not fail with it
            numbers = {**dict.fromkeys(family.summary_meanings), **numbers}
            errors[family.name] = f"{type(error).__name__}: {error}"
    return numbers | ({"family_errors": errors} if errors else {})


def _energy(
    tables: ColumnFrames, evaluations: pd.DataFrame, finished: list[int], congested: set[int] | None
) -> dict[str, Any]:
    of_steps = _energy_of_steps(tables.read("steps", *_ENERGY_COLUMNS, all_attempts=True))
    total = total_of(tables.read("energy", all_attempts=True).to_dict("records"), of_steps)
    phases = tables.read("phase_energy", *_PHASE_COLUMNS, all_attempts=True)
    return energy_facts(phases, total, evaluations, finished=finished, congested=congested)


_ENERGY_COLUMNS = ("rank", "attempt", "energy_source", "time_ns", "time_s", "energy_j")
_PHASE_COLUMNS = ("rank", "time_ns", "epoch", "phase", "source", "joules", "seconds", "coverage")


def _energy_of_steps(steps: pd.DataFrame) -> list[dict[str, Any]]:
    """Return two rows of ``steps`` for each rank, attempt and source of joules: its first, and the sum of the rest."""
    stream = ["rank", "attempt", "energy_source"]
    number = steps.groupby(stream, dropna=False, sort=False).ngroup().rename("stream")
    timed = steps[[*stream, "time_ns", "time_s", "energy_j"]].join(number)
    timed = timed[~timed[["stream", "time_ns"]].duplicated()]
    is_first = timed.index.isin(timed.groupby("stream")["time_ns"].idxmin())
    records = timed[is_first].to_dict("records")
    later = timed[~is_first]
    has_joules = later["energy_j"].notna()
    counted = later[has_joules | ~has_joules.groupby(later["stream"]).transform("any")]
    sums = (
        counted.astype({"time_s": float, "energy_j": float}).groupby("stream")[["time_s", "energy_j"]].sum(min_count=1)
    )
    last = later.groupby("stream")["time_ns"].max()
    streams = timed.drop_duplicates("stream").set_index("stream")[stream]
    return records + streams.join(sums, how="inner").join(last).to_dict("records")


def _bytes(tables: ColumnFrames) -> dict[str, int | None]:
    """Return the bytes of steps, and of service to other ranks after a rank's end, of all attempts."""
    events = tables.read("events", "kind", "data", all_attempts=True)
    served = events.loc[events["kind"] == RanksGathered.kind, "data"]
    numbers: dict[str, int | None] = {}
    for name in ("bytes_sent", "bytes_received"):
        of_steps = _whole(tables.read("steps", name, all_attempts=True)[name].sum(min_count=1))
        numbers[name] = None if of_steps is None else of_steps + sum(int(data[name]) for data in served)
    return numbers


def _whole(value: Any) -> int | None:
    number = finite_number(value)
    return None if number is None else int(number)


def _losses(evaluations: pd.DataFrame) -> dict[str, Any]:
    last = {
        split: rows.sort_values(["attempt", "step"], kind="stable").iloc[-1]
        for split, rows in evaluations.groupby("split")
    }
    losses: dict[str, Any] = {
        f"{split}_loss": finite_number(last[split]["loss"]) if split in last else None
        for split in ("train", "validation", "test")
    }
    split = next((name for name in ("test", "validation") if name in last), None)
    persistence = finite_number(last[split]["persistence_loss"]) if split else None
    loss = losses[f"{split}_loss"] if split else None
    validated = evaluations.loc[evaluations["split"] == "validation", "loss"].astype(float)
    return {
        **losses,
        "best_validation_loss": finite_number(validated[np.isfinite(validated)].min()) if len(validated) else None,
        "test_step": int(last["test"]["step"]) if "test" in last else None,
        "persistence_loss": persistence,
        "mean_loss": finite_number(last[split]["mean_loss"]) if split else None,
        "metrics": _metrics(last[split].get("metrics")) if split else None,
        **_support(last[split].get("metrics") if split else None, split),
        "skill": 1 - loss / persistence if loss is not None and persistence else None,
        "skill_split": split,
    }


def _metrics(metrics: Any) -> dict[str, float | None] | None:
    """Return the metrics of an evaluation; None if it has none, as in runs of older versions."""
    if not isinstance(metrics, dict) or not metrics:
        return None
    return {name: finite_number(value) for name, value in metrics.items() if is_score(name)}


def _support(metrics: Any, split: str | None) -> dict[str, Any]:
    """Return the numbers of pairs behind link metrics; all None for other tasks and older runs."""
    facts = metrics if isinstance(metrics, dict) else {}
    ends = {name: interval_of(facts, name) for name in facts if is_score(name)}
    return {
        "link_pairs": _whole(facts.get(PAIRS)),
        "link_ranked": _whole(facts.get(RANKED)),
        "link_intervals": {name: list(pair) for name, pair in ends.items() if pair is not None} or None,
        "link_warning": few_pairs(facts, split) or None,
    }


def _without_edges(events: pd.DataFrame) -> dict[str, int] | None:
    """Return the snapshots without edges in each split; None if the run did not record its splits."""
    parts = events.loc[events["kind"] == "parts", "data"]
    if parts.empty:
        return None
    return {
        name: sum(last - first + 1 for first, last in part["without_edges"]) for name, part in parts.iloc[-1].items()
    }


def _partition(events: pd.DataFrame) -> dict[str, Any]:
    """Return the facts of the run's last partition; None if its strategy had none."""
    partitions = [data for data in events.loc[events["kind"] == "partition", "data"] if isinstance(data, dict)]
    of_first = events[(events["kind"] == SettingsChanged.kind) & (events["rank"] == events["rank"].min())]
    changed = [SettingsChanged.read(data) for data in of_first["data"] if isinstance(data, dict)]
    changes = [change.duration_s for change in changed if change.duration_s is not None]
    losses = {**dict.fromkeys(_DECLARED["of_partition"]), "rebuild_s": float(sum(changes)) if changes else None}
    facts = PartitionFacts.read_plan(partitions[-1]) if partitions else None
    if facts is None:
        return losses
    return losses | {
        "partitioner": facts.partitioner,
        "parts": facts.parts,
        "partition_s": facts.seconds,
        "cut_edges": int(facts.totals["cut_edges"]),
        **{f"{name}_share": facts.shares[name] for name in ("cut", "halo", "replicated")},
        "predicted_step_bytes": int(sum(rows_sent.sum() for rows_sent in facts.predicted.values()))
        if facts.predicted
        else None,
    }


def _deviation(events: pd.DataFrame, evaluations: pd.DataFrame, tables: ColumnFrames) -> float | None:
    """Return the loss deviation under the run's last partition; None if its strategy had none."""
    partitions = events.loc[events["kind"] == "partition"].sort_values(["attempt", "step"], kind="stable")
    if partitions.empty or partitions.iloc[-1]["data"].get("layout", "") is None:
        return None
    steps = tables.read("steps", "step", "global_loss")
    return loss_deviation(steps, evaluations, first=int(partitions.iloc[-1]["step"]))


def _finished_epochs(events: pd.DataFrame, tables: ColumnFrames) -> list[int]:
    """Return finished epochs: those with an event ``epoch``; without such events, those followed by a later epoch."""
    ended = events.loc[events["kind"] == EpochEnded.kind, "data"]
    if len(ended):  # the event's own column holds the next epoch
        with reading_event(EpochEnded.kind):  # a long run has hundreds of thousands
            return sorted({int(data["epoch"]) for data in ended})
    started = sorted({int(epoch) for epoch in tables.read("steps", "epoch")["epoch"].dropna()})
    over = bool((events["kind"] == "finished").any())
    return started if over else started[:-1]


def _congested_epochs(events: pd.DataFrame, steps: pd.DataFrame, finished: list[int]) -> set[int] | None:
    """Return finished epochs with a slow link in some step; None if no link was ever slow."""
    partitions = events[events["kind"] == "congestion"]
    partitions = partitions[partitions["rank"] == partitions["rank"].min()].sort_values(
        ["attempt", "step"], kind="stable"
    )
    # many, but few differ; those that are equal are one object
    _, first, same = np.unique([id(data) for data in partitions["data"]], return_index=True, return_inverse=True)
    slow = np.array([_is_slow(partitions["data"].iloc[index]) for index in first], bool)[same]
    if not slow.any():
        return None
    spans = steps.loc[steps["epoch"].isin(finished), ["epoch", "step"]].groupby("epoch")["step"].agg(["min", "max"])
    starts = partitions["step"].to_numpy(float)
    ends = np.append(starts[1:], math.inf)
    # an interval that ends before an epoch also starts before its end, so that the difference counts overlaps
    started = np.searchsorted(np.sort(starts[slow]), spans["max"].to_numpy(), side="right")
    over = np.searchsorted(np.sort(ends[slow]), spans["min"].to_numpy(), side="right")
    return {int(epoch) for epoch in spans.index[started > over]}


def _is_slow(links: Mapping[str, Any]) -> bool:
    """Return whether the data of an event ``congestion`` delay or limit a link."""
    late = any(delay for row in links["delay_ms"] for delay in row)
    return late or any(rate is not None for row in links["mbit"] for rate in row)


def _slowest(steps: pd.DataFrame, *within: str) -> pd.Series[float]:
    """Return seconds of every epoch on its slowest rank."""
    epochs = [*within, "epoch"]
    return steps.groupby([*epochs, "rank"])["time_s"].sum(min_count=1).groupby(epochs).max()


def _total_time_s(tables: ColumnFrames) -> float | None:
    """Return the seconds of all epochs and attempts on their slowest ranks."""
    steps = tables.read("steps", "attempt", "epoch", "rank", "time_s", all_attempts=True)
    return finite_number(_slowest(steps, "attempt").sum(min_count=1))


def _times(tables: ColumnFrames, finished: list[int], congested: set[int] | None, *, meets: bool) -> dict[str, Any]:
    """Return times and imbalance of epochs; ``meets`` means that ranks synchronise in each step."""
    own_times = _own_times(tables, finished)
    by_epoch = {int(epoch): float(seconds) for epoch, seconds in _slowest(own_times).dropna().items()}
    phases = {phase: finite_number(_step_column(tables, f"{phase}_s").mean()) for phase in PHASES}
    total, waited = (_step_column(tables, name).sum(min_count=1) for name in ("time_s", "wait_s"))
    return {
        **{f"epoch_time{name}_s": value for name, value in over_epochs(by_epoch, congested).items()},
        "phase_time_s": phases,
        "imbalance": _imbalance(own_times),
        **(_balance(own_times) if meets else dict.fromkeys(_BALANCE)),
        "wait_share": finite_number(waited / total) if finite_number(total) else None,
    }


def _step_column(tables: ColumnFrames, name: str) -> pd.Series[float]:
    return tables.read("steps", name)[name]


def _own_times(tables: ColumnFrames, finished: list[int]) -> pd.DataFrame:
    """Return the steps of finished epochs, with the seconds of each rank's own work."""
    columns = ["rank", "step", "epoch", "time_s", *(f"{phase}_s" for phase in OWN_PHASES)]
    steps = tables.read("steps", *columns)
    return steps.loc[steps["epoch"].isin(finished), columns]


_BALANCE = ("iteration_imbalance", "waste_share", "critical_path_share", "slowest_rank", "slowest_rank_share")


def _balance(steps: pd.DataFrame) -> dict[str, Any]:
    """Return the balance of the iterations that all ranks recorded; all None if there is none."""
    own_times = steps[["epoch", "step", "rank", "time_s"]].assign(
        own=steps[[f"{phase}_s" for phase in OWN_PHASES]].sum(axis=1, min_count=1)
    )
    complete = own_times.dropna(subset=["own", "time_s"])
    wide = complete.pivot_table(index=["epoch", "step"], columns="rank", values=["own", "time_s"]).dropna()
    if wide.empty:
        return dict.fromkeys(_BALANCE)
    own_s, epochs = wide["own"].to_numpy(float), wide.index.get_level_values("epoch").to_numpy()
    first = np.flatnonzero(np.diff(epochs, prepend=epochs[0] - 1))  # of each epoch: rows are in order
    slowest_s = own_s.max(axis=1)
    critical_s = np.add.reduceat(slowest_s, first)
    time_s = np.add.reduceat(wide["time_s"].to_numpy(float).max(axis=1), first)
    mean_s = np.add.reduceat(own_s, first, axis=0).mean(axis=1)
    paced = np.bincount(own_s.argmax(axis=1), slowest_s, own_s.shape[1])
    means = critical_s[mean_s > 0] / mean_s[mean_s > 0]
    timed, none = time_s > 0, np.zeros(len(time_s))
    waste = np.divide(critical_s - mean_s, time_s, out=none.copy(), where=timed)
    critical = np.divide(critical_s, time_s, out=none, where=timed)
    return {
        "iteration_imbalance": finite_number(np.median(means)) if len(means) else None,
        "waste_share": finite_number(np.median(waste)),
        "critical_path_share": finite_number(np.median(critical)),
        "slowest_rank": int(wide["own"].columns[int(paced.argmax())]) if paced.any() else None,
        "slowest_rank_share": finite_number(paced.max() / paced.sum()) if paced.any() else None,
    }


def _imbalance(steps: pd.DataFrame) -> float | None:
    own_s = steps[[f"{phase}_s" for phase in OWN_PHASES]].sum(axis=1, min_count=1)
    by_rank = own_s.groupby([steps["epoch"], steps["rank"]]).sum(min_count=1).groupby("epoch")
    lightest = by_rank.min()
    return finite_number((by_rank.max() / lightest.where(lightest > 0)).median())


def summary_of(tables: RunFrames, state: str, reason: str, rank: int | None) -> dict[str, Any]:
    """Return the content of summary.json, but for the number of rows: state, attempts, and :func:`summarize`."""
    run, config, columns = tables.run, tables.run.config(), ColumnFrames(tables)
    return {
        "schema": SCHEMA,
        "run": run.id,
        "status": state,
        "reason": reason,
        "rank": rank,
        **{name: config[name] for name in ("system", "dataset", "model", "ranks")},
        "attempts": int(columns.read("steps", "attempt", all_attempts=True)["attempt"].nunique()),
        **summarize(config, columns),
    }
