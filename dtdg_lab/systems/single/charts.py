"""The profile of group sizes of `pipad`, as a chart."""

from __future__ import annotations

from dtdg_lab.systems.single.events import OverlapProfile
from dtdg_lab.visualization.charts import Panel, bars, chart, line, right_axis
from dtdg_lab.visualization.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.visualization.run_view import PlanView


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
