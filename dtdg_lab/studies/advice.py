"""What ``lab.advise`` found: systems ranked, why, how sure, and predictions beside what runs measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.runs.page import text
from dtdg_lab.studies.advise_errors import RunError
from dtdg_lab.studies.advise_learnt import Learnt
from dtdg_lab.studies.advise_rates import Predicted, Rates
from dtdg_lab.studies.advise_remedies import Remedy
from dtdg_lab.studies.advise_work import EpochWork
from dtdg_lab.views.advice import advice_figure
from dtdg_lab.views.advice_measured import advice_measured_figure, advice_measured_words
from dtdg_lab.views.layout import Figure, percent

if TYPE_CHECKING:
    import pandas as pd

CHEAP = 0.02  # of an epoch: parts below are not worth a word
NAMES = {
    "compute_s": "own computing", "communicate_s": "exchanges between ranks", "transfer_s": "bringing graphs",
    "fetch_s": "waiting for features",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Suggestion:
    """One system on the graph.

    Attributes:
        config: of a run of it; train it, or race some.
        work: of its epoch.
        predicted: of it.
        learnt: quantity -> what is known of its error.
        budget_bytes: of a rank.
        fits: whether the predicted memory is within it.
        sure: whether it is so with the worst error that was learnt, too.
        remedy: what would make it fit; None where it fits, or nothing tried does.
    """

    config: RunConfig
    work: EpochWork
    predicted: Predicted
    learnt: Mapping[str, Learnt]
    budget_bytes: float
    fits: bool
    sure: bool
    remedy: Remedy | None

    @property
    def system(self) -> str:
        """Its name."""
        return self.config.system

    @property
    def verdict(self) -> str:
        """``yes``, ``perhaps`` (not with the worst error that was learnt, or none was) or ``no``."""
        return "no" if not self.fits else "yes" if self.sure else "perhaps"

    def row(self) -> dict[str, Any]:
        """Plain values, for tables and views."""
        told = self.predicted
        return {
            "system": self.system, "fits": self.verdict, "epoch_s": told.epoch_s,
            "epoch_error": str(self.learnt["epoch_s"]), "steps": self.work.steps,
            "rank_bytes": told.rank_bytes, "bytes_error": str(self.learnt["rank_bytes"]),
            "peak_bytes": told.peak_bytes, "peak_error": str(self.learnt["peak_bytes"]),
            "held_bytes": told.held_bytes, "imbalance": told.imbalance,
            "imbalance_error": str(self.learnt["imbalance"]), "compute_s": told.compute_s,
            "communicate_s": told.communicate_s, "transfer_s": told.transfer_s, "fetch_s": told.fetch_s,
            "bound_s": told.bound_s, "error": self.learnt["epoch_s"].middle, "budget_bytes": self.budget_bytes,
            "remedy": str(self.remedy or ""), "notes": "; ".join(self.work.notes),
        }  # fmt: skip

    def why(self) -> str:
        """One sentence: where its time goes, what it sends, or why it does not fit and what would help."""
        told = self.predicted
        held = f"{format_bytes(told.peak_bytes)} of tensors and {format_bytes(told.held_bytes)} of data"
        if not self.fits:
            helps = "nothing tried makes it fit"
            if self.remedy is not None:
                helps = f"{self.remedy} would make it fit, in {format_bytes(self.remedy.memory_bytes)}"
            return f"{self.system} does not fit: {held} on a rank, of {format_bytes(self.budget_bytes)}; {helps}."
        parts = sorted(((getattr(told, name), said) for name, said in NAMES.items()), reverse=True)
        shares = [f"{percent(value / told.epoch_s)} {said}" for value, said in parts if value > CHEAP * told.epoch_s]
        sends = "sends nothing" if not told.rank_bytes else f"a rank sends {format_bytes(told.rank_bytes)}"
        uneven = f"; the busiest rank has {told.imbalance:.2f} times the work of the least" * (self.work.ranks > 1)
        return (
            f"{self.system}: {format_seconds(told.epoch_s)} an epoch of {self.work.steps} "
            f"step{'s' * (self.work.steps > 1)} ({self.learnt['epoch_s']}), {', '.join(shares)}; {sends} "
            f"({self.learnt['rank_bytes']}){uneven}; {held} ({self.learnt['peak_bytes']})."
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Advice:
    """Systems ranked: those that fit first, by the seconds of an epoch.

    Attributes:
        told: what was asked, in words.
        suggestions: in order of rank.
        left: system -> why it cannot run so.
        rates: that predictions were made with.
        errors: of each run made here, predicted by the others.
        skipped: run -> why nothing was learnt from it.
    """

    told: str
    suggestions: tuple[Suggestion, ...]
    left: Mapping[str, str]
    rates: Rates
    errors: tuple[RunError, ...]
    skipped: Mapping[str, str]

    @property
    def best(self) -> Suggestion | None:
        """The first that fits; None where none does."""
        return next((each for each in self.suggestions if each.fits), None)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Plain values, one row for each system."""
        return [each.row() for each in self.suggestions]

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a frame: bytes and seconds as numbers, errors in words."""
        import pandas as pd

        return pd.DataFrame(self.rows).drop(columns=["error", "budget_bytes"], errors="ignore")

    @property
    def figure(self) -> Figure:
        """Seconds of an epoch by what they go to, bytes that a rank sends, memory of a rank beside the budget."""
        return advice_figure(self.rows, title=self.told)

    @property
    def against_measured(self) -> Figure:
        """Predicted over measured of every run that was learnt from, for each quantity."""
        return advice_measured_figure([each.row() for each in self.errors])

    def in_words(self) -> str:
        """Who is first and why, what the next would have to save, who does not fit, and how sure all this is."""
        fitting = [each for each in self.suggestions if each.fits]
        lines = [self.told + "."]
        if fitting:
            lines.append("First " + fitting[0].why())
        if len(fitting) > 1:
            lines.append(_against(fitting[0], fitting[1]))
        lines += [each.why() for each in self.suggestions if not each.fits]
        lines.append(self.sure())
        lines.append("Epochs differ in what they train, so race the first few for the loss: lab.race.")
        return "\n".join(lines)

    def sure(self) -> str:
        """What the rates rest on, and how far predictions were from runs."""
        if not self.rates.runs:
            return (
                "No run made here tells any rate: all are assumed, and so is the order of what is near. Give runs=, or "
                "calibrate=True, which trains some short ones first."
            )
        said = [f"Rates are of {self.rates.runs} run{'s' * (self.rates.runs > 1)} made here"]
        if self.rates.assumed:
            said.append(f"{', '.join(sorted(self.rates.assumed))} assumed")
        said += self.rates.notes
        return "; ".join(said) + ". " + advice_measured_words([each.row() for each in self.errors])

    def __repr__(self) -> str:
        head = (
            f"{'system':18}{'fits':>8}{'epoch':>10}{'sends':>11}{'peak':>11}{'data':>11}{'uneven':>8}  error of epoch"
        )
        lines = [head]
        for row in self.rows:
            lines.append(
                f"{row['system']:18}{row['fits']:>8}{format_seconds(row['epoch_s']):>10}"
                f"{format_bytes(row['rank_bytes']):>11}{format_bytes(row['peak_bytes']):>11}"
                f"{format_bytes(row['held_bytes']):>11}{row['imbalance']:>8.2f}  {row['epoch_error']}"
            )
        lines += [f"{name}: {why}" for name, why in self.left.items()]
        return "\n".join([*lines, self.in_words()])

    def _repr_html_(self) -> str:
        head = ("system", "fits", "epoch", "error", "sent by a rank", "error", "peak", "error", "data", "uneven",
                "would fit with")  # fmt: skip
        body = "".join(_html_row(row) for row in self.rows)
        said = "".join(f"<p>{text(line)}</p>" for line in self.in_words().split("\n"))
        left = "".join(f"<li>{text(name)}: {text(why)}</li>" for name, why in self.left.items())
        titles = "".join(f"<th>{text(name)}</th>" for name in head)
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>{said}" + (
            f"<p>Cannot run so:</p><ul>{left}</ul>" if left else ""
        )


def _html_row(row: Mapping[str, Any]) -> str:
    cells = (
        row["system"], row["fits"], format_seconds(row["epoch_s"]), row["epoch_error"],
        format_bytes(row["rank_bytes"]), row["bytes_error"], format_bytes(row["peak_bytes"]), row["peak_error"],
        format_bytes(row["held_bytes"]), f"{row['imbalance']:.2f}", row["remedy"],
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in cells) + "</tr>"


def _against(first: Suggestion, second: Suggestion) -> str:
    """What puts one before the other, and whether the errors allow to say so."""
    gap = second.predicted.epoch_s - first.predicted.epoch_s
    parts = {name: getattr(second.predicted, name) - getattr(first.predicted, name) for name in NAMES}
    most = max(parts, key=lambda name: parts[name])
    said = (
        f"{second.system} comes next, {format_seconds(gap)} behind, most of it {NAMES[most]} "
        f"({format_seconds(getattr(second.predicted, most))} against {format_seconds(getattr(first.predicted, most))})"
    )
    middles = [each.learnt["epoch_s"].middle for each in (first, second)]
    known = [middle for middle in middles if middle is not None]
    if len(known) < len(middles):
        return said + ": by assumed rates, which do not tell what is so near." * (gap < first.predicted.epoch_s) + "."
    near = gap < max(known) * second.predicted.epoch_s
    return said + (": less than predictions are off, so take them as equal." if near else ".")
