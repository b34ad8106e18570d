"""Cost of a step by its number of time blocks: peak memory and time, measured and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.visualization.axes import byte_unit
from dtdg_lab.visualization.chart import Key, card
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import bytes_text, percent_text, seconds_text, three_digits
from dtdg_lab.visualization.palette import TEXT_COLOUR, series_colour
from dtdg_lab.visualization.runs.step_memory import NOT_PROBED
from dtdg_lab.visualization.traces import Drawn, bars, line, points

TITLE = "Memory against blocks"


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of a step.

    Attributes:
        blocks: number of time blocks.
        peak_bytes: most memory in use; None where it was not measured.
        step_s: seconds; None where no step was timed.
        predicted_bytes: the peak that was predicted, where one was.
    """

    blocks: int
    peak_bytes: float | None
    step_s: float | None
    predicted_bytes: float | None = None

    @property
    def name(self) -> str:
        """The number of blocks in words."""
        return f"{self.blocks:,} block{'' if self.blocks == 1 else 's'}"


def draw_block_costs(costs: Sequence[StepCost]) -> Figure:
    """Draw bars of the peak, points of the time of a step, and crosses where a peak was predicted."""
    measured = [cost for cost in costs if cost.peak_bytes is not None]
    if not measured:
        return card([], TITLE, x_title="time blocks", empty=NOT_PROBED)
    unit, factor = byte_unit(max(max(cost.peak_bytes or 0, cost.predicted_bytes or 0) for cost in measured))
    timed = [cost for cost in measured if cost.step_s is not None]
    keys: list[Key] = [("peak", series_colour(0), "box"), ("time of a step, ms", series_colour(1), "line")]
    hover = "%{x} blocks: %{y:.3~g} "
    heights = [round((cost.peak_bytes or 0) / factor, 4) for cost in measured]
    times = [round(1e3 * (cost.step_s or 0), 4) for cost in timed]
    right_axis: Drawn = {"yaxis": "y2", "mode": "lines+markers"}
    data = [
        bars("peak", _names(measured), heights, series_colour(0), hover + unit, width=0.4),
        line("time", _names(timed), times, series_colour(1), hover + "ms", **right_axis),
    ]
    predicted = {f"{cost.blocks:,}": cost.predicted_bytes for cost in measured if cost.predicted_bytes is not None}
    if predicted:
        y = [round(count / factor, 4) for count in predicted.values()]
        cross: Drawn = {"symbol": "x", "line": {"color": TEXT_COLOUR, "width": 1.5}}
        data.append(points("predicted", [*predicted], y, "white", hover + unit, size=10, marker=cross))
        keys.append(("predicted peak", TEXT_COLOUR, "cross"))
    from_zero = {"rangemode": "tozero", "nticks": 5}
    axes: dict[str, Any] = {
        "xaxis": {"type": "category", "showgrid": False},
        "yaxis": from_zero,
        "yaxis2": {"overlaying": "y", "side": "right", "showgrid": False, **from_zero},
    }
    return card(data, TITLE, unit=unit, keys=keys, x_title="time blocks", margin={"r": 44}, **axes)


def cost_caption(cost: StepCost) -> str:
    """Return what a number of blocks needs, in a sentence."""
    blocks = f"{cost.blocks:,} blocks need" if cost.blocks > 1 else "One block needs"
    return f"{blocks} {bytes_text(cost.peak_bytes)} and {seconds_text(cost.step_s)} per step."


def least_memory_caption(costs: Sequence[StepCost]) -> str:
    """Return which number of blocks needs least memory, compared with the first; all costs are measured."""
    first, best = costs[0], min(costs, key=lambda cost: cost.peak_bytes or 0)
    if best is first:
        return f"{first.name} needs least memory here: {bytes_text(first.peak_bytes)}."
    share = percent_text((best.peak_bytes or 0) / (first.peak_bytes or 1))
    times = three_digits((best.step_s or 0) / (first.step_s or 1))
    return f"{best.name} need least memory, {share} of what {first.name} holds, in {times} times the time."


def _names(costs: Sequence[StepCost]) -> list[str]:
    return [f"{cost.blocks:,}" for cost in costs]
