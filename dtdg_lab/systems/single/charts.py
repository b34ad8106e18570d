"""The profile of group sizes of `pipad`, as an event and a chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.events import Event
from dtdg_lab.core.units import format_seconds
from dtdg_lab.visualization.charts import Panel, bars, chart, line, right_axis
from dtdg_lab.visualization.layout import percent
from dtdg_lab.visualization.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.visualization.run_view import PlanView


@dataclass(frozen=True, slots=True)
class OverlapProfile(Event):
    """How many snapshots share one product, and the measurements behind that choice.

    Attributes:
        chosen: snapshots in a group; 1 is the ordinary product of each snapshot.
        sizes: the candidates.
        seconds: of each, forward and backward of all pulls that depend on parameters, for one snapshot; none where
            the size was given or no such pull is there.
        shares: of each, the share of the edges that the snapshots of a group have in common.
        note: why nothing was measured; empty where it was.
    """

    kind: ClassVar[str] = "shared_edges"
    about: ClassVar[str] = "shared edges"
    ended: ClassVar[str] = "Snapshots share no products any more."
    chosen: int
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    shares: tuple[float, ...]
    note: str = ""

    @property
    def words(self) -> str:
        """The choice and its reason."""
        how = "each snapshot has its own product" if self.chosen == 1 else f"{self.chosen} snapshots share one product"
        if self.note:
            return f"{how[0].upper()}{how[1:]}: {self.note}."
        best, own = self.seconds[self.sizes.index(self.chosen)], self.seconds[0]
        return (
            f"{how[0].upper()}{how[1:]}: {format_seconds(best)} forward and backward for a snapshot, "
            f"{format_seconds(own)} without sharing. They have "
            f"{percent(self.shares[self.sizes.index(self.chosen)])} of their edges in common."
        )

    def check(self) -> None:
        """Raise a DataError if sizes, times and shares are not as many."""
        if not len(self.sizes) == len(self.seconds) == len(self.shares):
            raise DataError("the profile of shared edges lacks times: was it recorded by another version?")


class OverlapView(PlanView[OverlapProfile]):
    """The candidates' times and their shares of common edges."""

    name = "shared_edges"
    title = "Shared edges"
    plan = OverlapProfile
    subject = "shared edges"

    @property
    def shown(self) -> bool:
        """Whether sizes were measured."""
        return self.facts is not None and bool(self.facts.sizes)

    def named_panels(self) -> dict[str, Panel]:
        """One panel; none where nothing was measured."""
        facts = self.facts
        if facts is None or not facts.sizes:
            return {}
        names = [str(size) for size in facts.sizes]
        chosen = [series_colour(0) if size == facts.chosen else BASELINE_COLOUR for size in facts.sizes]
        times = bars("time", names, [1e3 * each for each in facts.seconds], chosen)
        shares = line("common edges", names, [100 * each for each in facts.shares], series_colour(1), yaxis="y2")
        title, axes = "Snapshots that share one product", ("snapshots in a group", "ms for a snapshot")
        figure = chart(title, *axes, [times, shares])
        right_axis(figure["layout"], "common edges (%)", 60)
        return {"shared_edges": (figure, facts.words)}
