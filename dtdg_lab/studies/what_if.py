"""``lab.what_if``: one picture over 1 to 1,024 ranks of what a graph would take, with what was measured here on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.control.shipped_costs import products
from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnknownNameError, shortened
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.units import format_bytes
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.scaling_model import Network
from dtdg_lab.runs.page import text
from dtdg_lab.studies.advise import Runs, found_runs
from dtdg_lab.studies.advise_count import count_work
from dtdg_lab.studies.advise_errors import learn_errors, summed
from dtdg_lab.studies.advise_facts import Facts
from dtdg_lab.studies.advise_rates import Rates, fit_rates
from dtdg_lab.studies.advise_runs import MeasuredRun
from dtdg_lab.studies.advise_work import GroupWork
from dtdg_lab.studies.what_if_curves import (
    GROWN_SCHEDULERS,
    Growth,
    allreduce_of,
    fetch_rows,
    gradient_rows,
    grown_times,
    partition_rows,
    schedule_rows,
    snapshot_rows,
)
from dtdg_lab.views.layout import Figure, percent
from dtdg_lab.views.what_if_ranks import what_if_ranks_figure

if TYPE_CHECKING:
    import pandas as pd

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MOST_RANKS = 4096
QUICK_PARTS, MOST_PARTS = 16, 128  # partitions that are really made
QUICK_GROWN, GROWN = 2_000, 10_000  # snapshots of the grown sequence; the second is DyGNeX's
DELAY_S = 0.02  # of the link that is late
PREDICTED = ("esdg", "adgnn-t", "pygt-dist", "flaredtdg")  # beside schedules of groups
MEASURED_TOO = ("epoch_s", "rank_bytes")
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "counted": "on the graph, in partitions that were made",
        "formula": "closed: exact, a bound, or (hash beyond the partitions made) an expectation",
        "simulated": "schedules of the graph's groups, or the feature-fetch model, without training",
        "predicted": "counts times rates fitted to runs, or assumed",
        "fitted": "a power of the ranks through the counted points, not counted",
        "measured": "of runs made here on this graph and model",
    }
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WhatIf:
    """Curves over ranks.

    Attributes:
        rows: ``quantity`` (epoch_s, efficiency, rank_bytes, held_rows, fetch_s), ``curve``, ``ranks``, ``value``,
            ``kind`` (``KINDS``).
        growth: curve -> the power that continues it.
        rates: that predictions were made with.
        told: what is shown, in words.
        notes: what to know of it, sentence by sentence.
    """

    rows: tuple[dict[str, Any], ...]
    growth: Mapping[str, Growth]
    rates: Rates
    told: str
    notes: tuple[str, ...]

    @property
    def measured_ranks(self) -> int:
        """Most ranks that were measured; 0 for none."""
        return max((row["ranks"] for row in self.rows if row["kind"] == "measured"), default=0)

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    @property
    def figure(self) -> Figure:
        """A panel for each quantity, ranks on a logarithmic axis."""
        return what_if_ranks_figure(self.rows, measured_ranks=self.measured_ranks, title=self.told)

    def in_words(self) -> str:
        """What the curves come to at the most ranks, and what they rest on."""
        return "\n".join([self.told + ".", *_ends(self.rows), *self.notes])

    def __repr__(self) -> str:
        return self.in_words()

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{text(line)}</p>" for line in self.in_words().split("\n"))
        kinds = "".join(f"<li><b>{text(name)}</b>: {text(words)}</li>" for name, words in KINDS.items())
        frame = self.table.pivot_table(index=["quantity", "curve"], columns="ranks", values="value", aggfunc="median")
        table = frame.to_html(float_format=lambda value: f"{value:.4g}", na_rep="")
        return f"{said}{table}<ul style='font-size:90%'>{kinds}</ul>"


def what_if(
    graph: DynamicGraph | str,
    ranks: Sequence[int] = RANKS,
    *,
    model: str = "tgcn",
    hidden: int = 32,
    layers: int = 1,
    runs: Runs = (),
    runs_dir: str | Path | None = "runs",
    network: Network | None = None,
    quick: bool = True,
    **options: Any,
) -> WhatIf:
    """Epoch times, efficiency, bytes, copies and fetches of a graph over numbers of ranks; nothing is trained.

    Every rank is taken to have a core or GPU of its own. Not known here, and so not in it: how exchanges slow each
    other down on many nodes, and caches of processors.

    Args:
        graph: data, or a name of ``lab.datasets()``.
        ranks: numbers of ranks.
        model: name in the catalogue.
        hidden: H.
        layers: of the model.
        runs: made here, or folders of them; all of ``runs_dir`` where none is given.
        runs_dir: folder of runs to learn from and to show; None for none.
        network: how ranks are connected, for predictions; as between the ranks that were measured where not given.
        quick: make partitions of up to 16 parts, and grow the sequence of groups to 2,000 snapshots, in seconds; else
            128 and DyGNeX's 10,000, with its greedy scheduler: a minute or more.
        options: of systems, model and data, by name, as ``lab.advise`` takes them.

    Raises:
        ConfigError: a number of ranks is not allowed, or a setting.
        UnknownNameError: a name is not in the catalogue.

    References: DyGNeX section 5.4 (simulation to 1,024 ranks), ESDG sections 6.3 and 6.4, GreenDyGNN section IV-A.
    """
    counts = _checked(graph, ranks)
    config = RunConfig(
        system="psg", dataset=graph, model=model, hidden=hidden, layers=layers, **_of("psg", model, options)
    )
    graph = graph if isinstance(graph, DynamicGraph) else load_for(config)
    work, facts = count_work(config, graph)
    found = found_runs(runs, runs_dir, graph, None)
    rates = fit_rates(found.runs, facts)
    assert work.groups is not None
    rows = _schedules(work.groups, facts, rates, counts, quick=quick)
    most = QUICK_PARTS if quick else MOST_PARTS
    left: list[str] = []
    for name in PREDICTED:
        try:
            mine = config.replace(system=name, **_of(name, model, options))
        except LabError as error:
            left.append(f"{name}: {error}")
            continue
        upto = [count for count in counts if count <= most or name == "esdg"]
        rows += _predicted([mine.replace(ranks=count, parts=count) for count in upto], graph, rates, network, left)
    divided, growth = partition_rows(facts, counts, most)
    rows += snapshot_rows(facts, counts) + divided + gradient_rows(facts, counts)
    rows += fetch_rows(products, counts, DELAY_S)
    same = [run for run in found.runs if _same(run, facts)]
    rows += _measured(same)
    notes = [*_notes(rates, growth, same, found.runs), *left]
    return WhatIf(tuple(rows), MappingProxyType(growth), rates, _told(facts, counts, work.groups), tuple(notes))


def _checked(graph: Any, ranks: Any) -> tuple[int, ...]:
    if not isinstance(graph, DynamicGraph | str):
        raise ConfigError(f"what_if() got {shortened(graph)}: a graph or a name from lab.datasets() is needed.")
    counts = list(ranks) if isinstance(ranks, Sequence) and not isinstance(ranks, str) else []
    if not counts or any(isinstance(each, bool) or not isinstance(each, int) for each in counts):
        raise ConfigError(f"ranks={shortened(ranks)}: whole numbers, such as (1, 2, 4, 1024), are needed.")
    if min(counts) < 1 or max(counts) > MOST_RANKS:
        raise ConfigError(f"ranks from {min(counts)} to {max(counts)}: 1 to {MOST_RANKS} are allowed.")
    return tuple(sorted(set(counts)))


def _of(system: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a system reads; the others are for other systems."""
    for name in options:
        if name not in OPTIONS:
            raise UnknownNameError("option", name, OPTIONS)
    data = [entry.name for entry in catalogue.ENTRIES if entry.room == "datasets"]
    read = {name for each in data for room in catalogue.option_owners(system, each, model).values() for name in room}
    return {name: value for name, value in options.items() if name in read or name in ("seed", "protocol")}


def _told(facts: Facts, counts: Sequence[int], groups: GroupWork) -> str:
    graph, config = facts.graph, facts.config
    return (
        f"{graph.name} on {min(counts)} to {max(counts):,} ranks: {graph.num_nodes:,} vertices, "
        f"{len(facts.train)} snapshots trained, {len(groups.passes)} groups; {config.model}, hidden {config.hidden}"
    )


def _schedules(
    groups: GroupWork, facts: Facts, rates: Rates, counts: Sequence[int], *, quick: bool
) -> list[dict[str, Any]]:
    """Epoch seconds of this graph's groups, and efficiency on a longer sequence that grows like it."""
    alone_s, exchange = groups.passes @ rates.scaling.compute, allreduce_of(rates, facts)
    rows = []
    for count in counts:
        rows += schedule_rows(alone_s * rates.factor("psg", count), (count,), exchange, quantity="epoch_s")
    config = facts.config
    grown = grown_times(
        alone_s * rates.factor("psg", 2), QUICK_GROWN if quick else GROWN, window=config["group_window"],
        seed=config.seed,
    )  # fmt: skip
    schedulers = GROWN_SCHEDULERS if quick else (*GROWN_SCHEDULERS, "dygnex_greedy")
    return rows + schedule_rows(grown, counts, exchange, quantity="efficiency", schedulers=schedulers)


def _predicted(
    configs: Sequence[RunConfig], graph: DynamicGraph, rates: Rates, network: Network | None, left: list[str]
) -> list[dict[str, Any]]:
    """Epoch seconds of a system on growing numbers of ranks, as far as graph and model serve it; ``left`` says why."""
    found = []
    for config in configs:
        try:
            told = rates.predict(*count_work(config, graph), network)
        except LabError as error:
            left.append(
                f"{config.system} on {config.ranks} rank{'s' * (config.ranks > 1)} and more is not shown: {error}"
            )
            break
        found.append({"quantity": "epoch_s", "curve": config.system, "ranks": config.ranks, "value": told.epoch_s,
                      "kind": "predicted"})  # fmt: skip
    return found


def _same(run: MeasuredRun, facts: Facts) -> bool:
    """Whether a run is of the same data, model and sizes."""
    mine, other = facts.config, run.facts.config
    return run.facts.graph.data_hash == facts.graph.data_hash and all(
        getattr(mine, name) == getattr(other, name) for name in ("model", "hidden", "layers")
    )


def _measured(runs: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """Epoch seconds, and bytes of a step: of rows or, where none are sent, of gradients, as the curves have them."""
    found = []
    for run in runs:
        for quantity in MEASURED_TOO:
            value = run.quantities.get(quantity)
            if value is None:
                continue
            if quantity == "rank_bytes":
                value = (value - run.work.gradient_bytes * run.work.sent.any()) / max(run.work.steps, 1)
            found.append({"quantity": quantity, "curve": run.system, "ranks": run.work.ranks, "value": value,
                          "kind": "measured"})  # fmt: skip
    return found


def _notes(
    rates: Rates, growth: Mapping[str, Growth], mine: Sequence[MeasuredRun], runs: Sequence[MeasuredRun]
) -> list[str]:
    notes = []
    if not rates.runs:
        notes.append(
            "Seconds rest on assumed rates, for no run made here tells them: their shape counts, not their size."
        )
    else:
        off = summed(learn_errors(runs), "epoch_s")
        known = "" if off is None else f", which predicted each other to {percent(off[0])} (worst {percent(off[1])})"
        assumed = f"; {', '.join(sorted(rates.assumed))} assumed" if rates.assumed else ""
        notes.append(f"Seconds rest on rates of {rates.runs} run{'s' * (rates.runs > 1)}{known}{assumed}.")
        notes += [f"Of the rates: {note}." for note in rates.notes]
    seen = max((run.work.ranks for run in mine), default=0)
    notes.append(
        f"Measured here: {len(mine)} run{'s' * (len(mine) > 1)} on up to {seen} rank{'s' * (seen > 1)}; beyond, "
        "nothing is." if seen
        else "No run of this graph and model was made here: no point is measured."
    )  # fmt: skip
    for name, each in growth.items():
        notes.append(
            f"{name.partition(': ')[2]}: continued as ranks to the power {each.power:.2f}, within "
            f"{percent(each.error)} of the counted points it was fitted to."
        )
    notes.append("Latency of an exchange is assumed to grow with log2 of the ranks. Features: constants of another "
                 "cluster (four nodes, ogbn-products), with every owner asked for as much.")  # fmt: skip
    return notes


def _ends(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What schedules, bytes and copies come to at the most ranks."""
    last = max(row["ranks"] for row in rows)
    at = {(row["quantity"], row["curve"]): row for row in rows if row["ranks"] == last and row["kind"] != "measured"}
    said = []
    efficient = {curve: row["value"] for (quantity, curve), row in at.items() if quantity == "efficiency"}
    schedulers = {name: value for name, value in efficient.items() if not name.startswith("bound")}
    if schedulers:
        best = max(schedulers, key=lambda name: schedulers[name])
        said.append(
            f"A longer sequence that grows like this one keeps {percent(schedulers[best])} of one rank's throughput on "
            f"each of {last:,} ranks by {best}, {percent(schedulers.get('psg', 0.0))} by psg; the bound is "
            f"{percent(efficient['bound of schedules'])}. This graph's own groups are too few for most ranks."
        )
    sent = {curve: row for (quantity, curve), row in at.items() if quantity == "rank_bytes"}
    if sent:
        least, most = (pick(sent, key=lambda name: sent[name]["value"]) for pick in (min, max))
        said.append(f"There a rank sends least for {least} ({format_bytes(sent[least]['value'])} a step, "
                    f"{sent[least]['kind']}) and most for {most} ({format_bytes(sent[most]['value'])}, "
                    f"{sent[most]['kind']}).")  # fmt: skip
    return said
