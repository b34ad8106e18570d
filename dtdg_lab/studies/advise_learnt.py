"""What is known of a prediction's error, in a form that is printed beside it: exact, learnt, of others, or assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dtdg_lab.studies.advise_errors import RunError, summed
from dtdg_lab.studies.advise_rates import QUANTITIES, Rates
from dtdg_lab.views.layout import percent

_RESTS_ON: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "epoch_s": ("compute", "communicate", "transfer", "fetch"), "rank_bytes": (), "peak_bytes": ("memory",),
        "imbalance": ("compute",),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Learnt:
    """The error of one predicted quantity.

    Attributes:
        kind: ``exact`` (a count), ``learnt`` (of runs of this system), ``of others`` (of runs of other systems) or
            ``assumed`` (no run tells).
        middle: median of |predicted - measured| / measured over these runs, each left out of the fit; None if unknown.
        worst: the largest of them.
        runs: how many.
        assumed: parts of it whose rates no run told.
    """

    kind: str
    middle: float | None = None
    worst: float | None = None
    runs: int = 0
    assumed: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "exact":
            return "exact"
        if self.middle is None or self.worst is None:
            return "assumed"
        said = f"± {percent(self.middle)}, worst {percent(self.worst)} ({self.runs} run{'s' * (self.runs > 1)}"
        said += " of other systems)" if self.kind == "of others" else ")"
        return said + (f"; {', '.join(self.assumed)} assumed" if self.assumed else "")


def learnt_of(
    errors: Sequence[RunError], rates: Rates, system: str, *, exact: frozenset[str], needs: frozenset[str] | None = None
) -> Mapping[str, Learnt]:
    """The error of each of ``QUANTITIES`` of a system.

    Args:
        errors: learnt from runs.
        rates: that predict.
        system: its name.
        exact: what the work of it counts exactly.
        needs: parts of ``Rates.assumed`` that the prediction uses; all where not given.
    """
    found: dict[str, Learnt] = {}
    for name in QUANTITIES:
        assumed = tuple(part for part in _RESTS_ON[name] if part in rates.assumed and (needs is None or part in needs))
        own, others = summed(errors, name, system), summed(errors, name)
        if name == "rank_bytes" and "bytes" in exact:
            found[name] = Learnt("exact")
        elif own is not None:
            found[name] = Learnt("learnt", *own, assumed=assumed)
        elif others is not None:
            found[name] = Learnt("of others", *others, assumed=assumed)
        else:
            found[name] = Learnt("assumed", assumed=assumed)
    return MappingProxyType(found)
