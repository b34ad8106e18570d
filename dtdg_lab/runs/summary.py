"""The numbers of a whole run, from its record tables. What is not known is None, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.records import PHASES
from dtdg_lab.core.support import PAIRS, RANKED, few_pairs, interval_of, is_score
from dtdg_lab.energy.total import total_of
from dtdg_lab.runs import energy_facts, fetch_facts
from dtdg_lab.runs.deviation import loss_deviation
from dtdg_lab.views.congestion_log import links_of
from dtdg_lab.views.imbalance import balance_of
from dtdg_lab.views.partition_facts import facts_of
from dtdg_lab.views.phases import OWN
from dtdg_lab.views.schedule_facts import is_end, schedule_facts

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
READ = (  # phases, the largest table, is not needed
    "steps", "evaluations", "events", "memory", "energy", "phase_energy", "resolved", "fetches", "windows",
)  # fmt: skip

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "train_loss": "last evaluation of the training part",
        "validation_loss": "last evaluation of the validation part",
        "test_loss": "the one evaluation of the test part, after the end",
        "persistence_loss": "loss on skill_split of predicting that tomorrow is as today",
        "mean_loss": "loss on skill_split of one prediction for all, taken from the training part: the mean target, "
        "how often each class occurs, the share of positives",
        "metrics": "other scores on skill_split, those of persistence under persistence_<name>",
        "link_pairs": "pairs that the link metrics of skill_split are of, positives and negatives",
        "link_ranked": "positives that mrr is of",
        "link_intervals": "95 % percentile intervals of the link metrics of the test part: 1,000 bootstrap resamples "
        "of each snapshot's pairs, positives and negatives apart; empty of fewer than 10 positives, and where nothing "
        "was tested",
        "link_warning": "that the link metrics are of too few pairs; empty otherwise",
        "skill": "1 - loss / persistence_loss on skill_split: above 0 beats persistence",
        "skill_split": "part that skill, metrics, persistence_loss and mean_loss are of: test, else validation",
        "without_edges": "snapshots without edges, by part",
        "epochs": "epochs finished",
        "steps": "different steps recorded; a step computed again after a resume counts once",
        "total_time_s": "seconds of all steps, epoch by epoch on the slowest rank, without evaluation; unfinished "
        "epochs and steps that were computed again are in it",
        "epoch_time_s": "seconds of a finished epoch's steps on the slowest rank, without evaluation; mean over "
        "epochs; the first, which warms up, compiles and profiles, is in it",
        "epoch_time_spread_s": "standard deviation over epochs",
        "epoch_time_median_s": "median over epochs: what happens in fewer than half of them is not in it",
        "epoch_time_clean_s": "mean over epochs without a slow link; empty where no link ever was slow",
        "epoch_time_congested_s": "mean over epochs with a slow link in some step",
        "congested_epochs": "finished epochs with a slow link in some step; empty where no link ever was slow",
        "phase_time_s": "seconds a step by phase, mean over steps and ranks",
        "imbalance": "most over least loaded rank's own time (batch, transfer, compute) of an epoch, median "
        "(the chart's is most over mean, of the last steps)",
        "iteration_imbalance": "slowest rank's own time over the mean of all, iteration by iteration and weighted "
        "by time; median over epochs",
        "waste_share": "share of all ranks' time in which they can only wait for the slowest rank of the iteration, "
        "median over epochs",
        "critical_path_share": "own time of the slowest rank of every iteration over the time of the epoch, median",
        "slowest_rank": "the rank that is the most of the critical path",
        "slowest_rank_share": "its share of the critical path; even is 1 / ranks",
        "wait_share": "share of all ranks' step time spent waiting for others",
        "bytes_sent": "bytes sent in steps, and by ranks that wait for the others, summed over ranks",
        "bytes_received": "bytes received in steps, summed over ranks",
        "peak_bytes": "largest peak of tensor memory of any rank",
        "peak_rss_bytes": "largest resident memory of any rank's process",
        "partitioner": "what divided the vertices last, where the layout divides them",
        "parts": "parts of that partition",
        "partition_s": "seconds making that partition took",
        "rebuild_s": "seconds that changes of layout and partition took in the middle of the run, together",
        "cut_edges": "edges between parts, summed over the snapshots trained on",
        "cut_share": "share of the edges that are between parts",
        "halo_share": "share of the rows that parts read which other parts own",
        "replicated_share": "share of the rows that parts hold, or would hold without any exchange, which are copies",
        "scheduler": "what made the last schedule of the snapshot groups, where there is one",
        "groups": "snapshot groups of that schedule",
        "iterations": "updates of the model in an epoch of that schedule",
        "schedule_s": "seconds making that schedule took",
        "predicted_epoch_s": "seconds of an epoch's groups and exchanges by that schedule, where it knew seconds",
        "over_bound": "the predicted epoch over what no schedule of the same times and exchanges can beat; 1 is the "
        "best possible",
        "loss_deviation": "largest relative difference of a step's loss from the whole graph's, where vertices are "
        "divided: rounding, but for models that a layout approximates",
        "predicted_step_bytes": "bytes of rows that ranks send each other in a step, recomputation of blocks included, "
        "predicted from the partition",
        **energy_facts.MEANINGS,
        **fetch_facts.MEANINGS,
    }
)


def summarize(
    config: RunConfig, tables: Mapping[str, pd.DataFrame], everything: Mapping[str, pd.DataFrame]
) -> dict[str, Any]:
    """Losses, times, bytes, memory and energy of a run; see ``MEANINGS``.

    Imbalance follows SYSTEMS.md section 3 (DyGNeX's definition): waiting is excluded, per epoch, median over epochs.

    Args:
        config: the run's settings.
        tables: record tables without the rows that a resume replaced.
        everything: record tables of all attempts; joules spent twice were spent.
    """
    steps = tables["steps"]
    finished = _finished_epochs(tables, config)
    congested = _congested_epochs(tables, finished)
    return {
        "task": config["task"],
        **_losses(tables["evaluations"]),
        "without_edges": _without_edges(tables["events"]),
        "protocol": config.protocol,
        "epochs": len(finished),
        "steps": int(steps["step"].nunique()),
        "total_time_s": _number(_slowest(everything["steps"], "attempt").sum(min_count=1)),
        **_times(steps, finished, congested, meets=config["exchange"] == "gradients"),
        "congested_epochs": None if congested is None else len(congested),
        "bytes_sent": _bytes(tables, "bytes_sent"),
        "bytes_received": _bytes(tables, "bytes_received"),
        "peak_bytes": _whole(everything["memory"]["peak_bytes"].max()),
        "peak_rss_bytes": _whole(everything["memory"]["peak_rss_bytes"].max()),
        **_partition(tables["events"]),
        "loss_deviation": _deviation(tables),
        **_schedule(tables["events"]),
        **_energy(tables, everything, finished, congested),
        **fetch_facts.fetch_facts(tables["resolved"], tables["fetches"], tables["windows"]),
    }


def _energy(
    tables: Mapping[str, pd.DataFrame],
    everything: Mapping[str, pd.DataFrame],
    finished: list[int],
    congested: set[int] | None,
) -> dict[str, Any]:
    spent, scored = everything["phase_energy"].to_dict("records"), tables["evaluations"].to_dict("records")
    in_steps = everything["steps"][["rank", "attempt", "time_ns", "time_s", "energy_j", "energy_source"]]
    total = total_of(everything["energy"].to_dict("records"), in_steps.to_dict("records"))
    return energy_facts.energy_facts(spent, total, scored, finished=finished, congested=congested)


def _bytes(tables: Mapping[str, pd.DataFrame], name: str) -> int | None:
    """Those of steps, and of what ranks that had finished served the others."""
    events = tables["events"]
    waited = sum(int(data[name]) for data in events.loc[events["kind"] == "gathered", "data"])
    of_steps = _whole(tables["steps"][name].sum(min_count=1))
    return None if of_steps is None else of_steps + waited


def _number(value: Any) -> float | None:
    """A finite float, or None."""
    return None if value is None or not math.isfinite(value) else float(value)


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _losses(evaluations: pd.DataFrame) -> dict[str, Any]:
    last = {
        split: rows.sort_values(["attempt", "step"], kind="stable").iloc[-1]
        for split, rows in evaluations.groupby("split")
    }
    found: dict[str, Any] = {
        f"{split}_loss": _number(last[split]["loss"]) if split in last else None
        for split in ("train", "validation", "test")
    }
    split = next((name for name in ("test", "validation") if name in last), None)
    persistence = _number(last[split]["persistence_loss"]) if split else None
    loss = found[f"{split}_loss"] if split else None
    return {
        **found,
        "persistence_loss": persistence,
        "mean_loss": _number(last[split]["mean_loss"]) if split else None,
        "metrics": _metrics(last[split].get("metrics")) if split else None,
        **_support(last[split].get("metrics") if split else None, split),
        "skill": 1 - loss / persistence if loss is not None and persistence else None,
        "skill_split": split,
    }


def _metrics(told: Any) -> dict[str, float | None] | None:
    """The metrics of an evaluation; None where it has none, as in runs recorded before there were any."""
    if not isinstance(told, dict) or not told:
        return None
    return {name: _number(value) for name, value in told.items() if is_score(name)}


def _support(told: Any, split: str | None) -> dict[str, Any]:
    """What link metrics rest on; all None for other tasks, and for runs recorded before it was told."""
    known = told if isinstance(told, dict) else {}
    ends = {name: interval_of(known, name) for name in known if is_score(name)}
    return {
        "link_pairs": _whole(known.get(PAIRS)),
        "link_ranked": _whole(known.get(RANKED)),
        "link_intervals": {name: list(pair) for name, pair in ends.items() if pair is not None} or None,
        "link_warning": few_pairs(known, split) or None,
    }


def _without_edges(events: pd.DataFrame) -> dict[str, int] | None:
    """Snapshots without edges of each part; None where the run did not tell its parts."""
    told = events.loc[events["kind"] == "parts", "data"]
    if told.empty:
        return None
    return {
        name: sum(last - first + 1 for first, last in part["without_edges"]) for name, part in told.iloc[-1].items()
    }


_PARTITION = ("partitioner", "parts", "partition_s", "rebuild_s", "cut_edges", "cut_share", "halo_share",
              "replicated_share", "predicted_step_bytes")  # fmt: skip


def _partition(events: pd.DataFrame) -> dict[str, Any]:
    """Facts of the partition that the run ended with; None where its layout then had none."""
    told = [data for data in events.loc[events["kind"] == "partition", "data"] if isinstance(data, dict)]
    first_rank = events.loc[(events["kind"] == "knob") & (events["rank"] == events["rank"].min()), "data"]
    changes = [data["took_s"] for data in first_rank if isinstance(data, dict) and data.get("took_s") is not None]
    if not told or told[-1].get("layout", "") is None:
        return {**dict.fromkeys(_PARTITION), "rebuild_s": float(sum(changes)) if changes else None}
    facts = facts_of(told[-1])
    return {
        "partitioner": facts.partitioner,
        "parts": facts.parts,
        "partition_s": facts.seconds,
        "rebuild_s": float(sum(changes)) if changes else None,
        "cut_edges": int(facts.totals["cut_edges"]),
        **{f"{name}_share": facts.shares[name] for name in ("cut", "halo", "replicated")},
        "predicted_step_bytes": int(sum(each.sum() for each in facts.predicted.values())) if facts.predicted else None,
    }


def _deviation(tables: Mapping[str, pd.DataFrame]) -> float | None:
    """Of the partition that the run ended with; None where its layout then had none."""
    events = tables["events"]
    batches = events.loc[events["kind"] == "hybrid"].sort_values(["attempt", "step"], kind="stable")
    if not batches.empty and "deviation" in batches.iloc[-1]["data"]:  # batches are not the whole training part
        return _number(batches.iloc[-1]["data"]["deviation"])
    told = events.loc[events["kind"] == "partition"].sort_values(["attempt", "step"], kind="stable")
    if told.empty or told.iloc[-1]["data"].get("layout", "") is None:
        return None
    return loss_deviation(tables["steps"], tables["evaluations"], first=int(told.iloc[-1]["step"]))


_SCHEDULE = ("scheduler", "groups", "iterations", "schedule_s", "predicted_epoch_s", "over_bound")


def _schedule(events: pd.DataFrame) -> dict[str, Any]:
    """Facts of the schedule that the run ended with; None where its layout then had none."""
    told = [data for data in events.loc[events["kind"] == "schedule", "data"] if isinstance(data, dict)]
    if not told or is_end(told[-1]):
        return dict.fromkeys(_SCHEDULE)
    facts = schedule_facts(told[-1])
    return {
        "scheduler": facts.scheduler,
        "groups": facts.groups,
        "iterations": facts.iterations,
        "schedule_s": facts.solve_s,
        "predicted_epoch_s": facts.makespan_s if facts.in_seconds else None,
        "over_bound": None if facts.excess is None else 1 + facts.excess,
    }


def _finished_epochs(tables: Mapping[str, pd.DataFrame], config: RunConfig) -> list[int]:
    """Epochs that ended: those with an event ``epoch``; without such events, those that a later epoch followed."""
    events = tables["events"]
    told = events.loc[events["kind"] == "epoch", "data"]
    if len(told):  # the event's own column is where the run stands: at the next epoch
        return sorted({int(data["epoch"]) for data in told})
    started = sorted({int(epoch) for epoch in tables["steps"]["epoch"].dropna()})
    over = bool((events["kind"] == "finished").any())
    return started if over else started[:-1]


def _congested_epochs(tables: Mapping[str, pd.DataFrame], finished: list[int]) -> set[int] | None:
    """Finished epochs in some step of which a link was slow; None where no link ever was."""
    events, steps = tables["events"], tables["steps"]
    told = events[events["kind"] == "congestion"]
    told = told[told["rank"] == told["rank"].min()].sort_values(["attempt", "step"], kind="stable")
    starts = [int(step) for step in told["step"]]
    slow = [bool(links_of(data, 0).congested) for data in told["data"]]
    if not any(slow):
        return None
    ends = [*starts[1:], math.inf]
    spans = steps[steps["epoch"].isin(finished)].groupby("epoch")["step"].agg(["min", "max"])
    return {
        int(epoch)
        for epoch, first, last in zip(spans.index, spans["min"], spans["max"], strict=True)
        if any(late and start <= last and end > first for start, end, late in zip(starts, ends, slow, strict=True))
    }


def _slowest(steps: pd.DataFrame, *within: str) -> pd.Series[float]:
    """Seconds of every epoch on its slowest rank."""
    epochs = [*within, "epoch"]
    return steps.groupby([*epochs, "rank"])["time_s"].sum(min_count=1).groupby(epochs).max()


def _times(steps: pd.DataFrame, finished: list[int], congested: set[int] | None, *, meets: bool) -> dict[str, Any]:
    """Of epochs; ``meets`` says whether ranks make each step together, so that some may wait for others in it."""
    whole = steps[steps["epoch"].isin(finished)]
    by_epoch = {int(epoch): float(seconds) for epoch, seconds in _slowest(whole).dropna().items()}
    phases = {phase: _number(steps[f"{phase}_s"].mean()) for phase in PHASES}
    total, waited = steps["time_s"].sum(min_count=1), steps["wait_s"].sum(min_count=1)
    return {
        **{f"epoch_time{name}_s": value for name, value in energy_facts.over_epochs(by_epoch, congested).items()},
        "phase_time_s": phases,
        "imbalance": _imbalance(whole),
        **(_balance(whole) if meets else dict.fromkeys(_BALANCE)),
        "wait_share": _number(waited / total) if _number(total) else None,
    }


_BALANCE = ("iteration_imbalance", "waste_share", "critical_path_share", "slowest_rank", "slowest_rank_share")


def _balance(steps: pd.DataFrame) -> dict[str, Any]:
    """How the ranks shared the iterations that all of them recorded; all None where there is none."""
    own = steps[["epoch", "step", "rank", "time_s"]].assign(
        own=steps[[f"{phase}_s" for phase in OWN]].sum(axis=1, min_count=1)
    )
    known = own.dropna(subset=["own", "time_s"])
    wide = known.pivot_table(index=["epoch", "step"], columns="rank", values=["own", "time_s"]).dropna()
    if wide.empty:
        return dict.fromkeys(_BALANCE)
    epochs = [
        balance_of(int(epoch), rows["own"].to_numpy(float), rows["time_s"].to_numpy(float))
        for epoch, rows in wide.groupby(level="epoch")
    ]
    paced = np.sum([each.paced_s for each in epochs], axis=0)
    uneven = [each.max_over_mean for each in epochs if each.max_over_mean is not None]
    return {
        "iteration_imbalance": _number(np.median(uneven)) if uneven else None,
        "waste_share": _number(np.median([each.waste for each in epochs])),
        "critical_path_share": _number(np.median([each.critical for each in epochs])),
        "slowest_rank": int(wide["own"].columns[int(paced.argmax())]) if paced.any() else None,
        "slowest_rank_share": _number(paced.max() / paced.sum()) if paced.any() else None,
    }


def _imbalance(steps: pd.DataFrame) -> float | None:
    own = steps[[f"{phase}_s" for phase in OWN]].sum(axis=1, min_count=1)
    by_rank = own.groupby([steps["epoch"], steps["rank"]]).sum(min_count=1).groupby("epoch")
    least = by_rank.min()
    return _number((by_rank.max() / least.where(least > 0)).median())
