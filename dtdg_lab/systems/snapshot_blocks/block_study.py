"""Peak memory and time of a step by number of time blocks, measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.records.events import MemoryFacts
from dtdg_lab.visualization.axes import byte_unit
from dtdg_lab.visualization.chart import Figure, Key, card
from dtdg_lab.visualization.numbers import bytes_text, percent_text, seconds_text, three_digits
from dtdg_lab.visualization.palette import TEXT_COLOUR, series_colour
from dtdg_lab.visualization.runs.step_memory import NOT_PROBED, memory_figure
from dtdg_lab.visualization.sheet import sheet
from dtdg_lab.visualization.studies.result import StudyResult
from dtdg_lab.visualization.traces import Attributes, bars, line, points

if TYPE_CHECKING:
    from dtdg_lab.training.block_memory import BlockCost


TITLE = "Memory against blocks"


@dataclass(frozen=True, slots=True)
class StepCost:
    """Memory and time of a step.

    Attributes:
        blocks: number of time blocks.
        peak_bytes: peak memory; None if not measured.
        step_s: seconds; None if not timed.
        predicted_bytes: predicted peak, if any.
    """

    blocks: int
    peak_bytes: float | None
    step_s: float | None
    predicted_bytes: float | None = None

    @property
    def name(self) -> str:
        """The number of blocks as text."""
        return f"{self.blocks:,} block{'' if self.blocks == 1 else 's'}"


def draw_block_costs(costs: Sequence[StepCost]) -> Figure:
    """Draw peaks as bars, step times as a line, and predicted peaks as crosses."""
    measured = [cost for cost in costs if cost.peak_bytes is not None]
    if not measured:
        return card([], TITLE, x_title="time blocks", empty=NOT_PROBED)
    unit, factor = byte_unit(max(max(cost.peak_bytes or 0, cost.predicted_bytes or 0) for cost in measured))
    timed = [cost for cost in measured if cost.step_s is not None]
    keys: list[Key] = [("peak", series_colour(0), "box"), ("time of a step, ms", series_colour(1), "line")]
    hover = "%{x} blocks: %{y:.3~g} "
    heights = [round((cost.peak_bytes or 0) / factor, 4) for cost in measured]
    times = [round(1e3 * (cost.step_s or 0), 4) for cost in timed]
    right_axis: Attributes = {"yaxis": "y2", "mode": "lines+markers"}
    data = [
        bars("peak", _names(measured), heights, series_colour(0), hover + unit, width=0.4),
        line("time", _names(timed), times, series_colour(1), hover + "ms", **right_axis),
    ]
    predicted = {f"{cost.blocks:,}": cost.predicted_bytes for cost in measured if cost.predicted_bytes is not None}
    if predicted:
        y = [round(count / factor, 4) for count in predicted.values()]
        cross: Attributes = {"symbol": "x", "line": {"color": TEXT_COLOUR, "width": 1.5}}
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
    """Return a sentence on the memory and time of a number of blocks."""
    blocks = f"{cost.blocks:,} blocks need" if cost.blocks > 1 else "One block needs"
    return f"{blocks} {bytes_text(cost.peak_bytes)} and {seconds_text(cost.step_s)} per step."


def least_memory_caption(costs: Sequence[StepCost]) -> str:
    """Return a sentence on the number of blocks with the lowest peak; all costs are measured."""
    first, best = costs[0], min(costs, key=lambda cost: cost.peak_bytes or 0)
    if best is first:
        return f"{first.name} needs least memory here: {bytes_text(first.peak_bytes)}."
    share = percent_text((best.peak_bytes or 0) / (first.peak_bytes or 1))
    times = three_digits((best.step_s or 0) / (first.step_s or 1))
    return f"{best.name} need least memory, {share} of what {first.name} holds, in {times} times the time."


def _names(costs: Sequence[StepCost]) -> list[str]:
    return [f"{cost.blocks:,}" for cost in costs]


_UNKNOWN: Mapping[int, int] = MappingProxyType({})
COST_COLUMNS = ("blocks", "peak_bytes", "step_s", "predicted_bytes")
MEMORY_MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_blocks"]["columns"]["block_memory"])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockStudy(StudyResult):
    """Steps of one config with different numbers of blocks.

    Attributes:
        rows: one row per number of blocks; ``MEMORY_MEANINGS`` describes the columns.
        traces: number of blocks -> memory over the step.
        described: title of the study.
    """

    rows: tuple[dict[str, Any], ...]
    traces: Mapping[int, MemoryFacts]
    described: str
    meanings = MEMORY_MEANINGS

    @property
    def figure(self) -> Figure:
        """Peaks by number of blocks, and memory over the step with the fewest and the most blocks."""
        costs = [StepCost(*(row[name] for name in COST_COLUMNS)) for row in self.rows]
        cards = [(draw_block_costs(costs), least_memory_caption(costs))]
        for blocks in dict.fromkeys((min(self.traces), max(self.traces))):
            facts, title = self.traces[blocks], f"Memory over a step with {StepCost(blocks, None, None).name}"
            cards.append((memory_figure(facts, title), facts.words))
        return sheet(cards, title=self.described, wide={0})


def estimate_block_memory(
    config: RunConfig,
    blocks: Sequence[int] = (1, 2, 4, 8),
    *,
    graph: DynamicGraph | None = None,
    steps: int = 3,
    predicted: Mapping[int, int] = _UNKNOWN,
) -> BlockStudy:
    """Measure peak memory and time of a step for each number of blocks, on one rank in this process, without training.

    Args:
        config: config of a system with time blocks; run on one rank.
        blocks: numbers of blocks, 1 or more.
        graph: the data; by default the config's.
        steps: number of timed steps per number of blocks.
        predicted: number of blocks -> peak bytes, drawn beside the measurements.

    Raises:
        ConfigError: the system has no blocks, or a number is invalid.
        LabError: the config cannot be built on the graph, for example because there are more blocks than snapshots.

    References: ESDG section 3.1, which reports that memory falls with the number of blocks.
    """
    alone = _on_one_rank(config, blocks, steps)
    graph = load_for(config) if graph is None else graph
    from dtdg_lab.training.block_memory import block_cost

    costs = [block_cost(alone.replace(blocks=count), graph, steps=steps) for count in blocks]
    traces = {cost.blocks: MemoryFacts.read(cost.trace.to_dict()) for cost in costs}
    described = f"{config.model} on {graph.name}, {config.system} on one rank: steps by number of time blocks"
    return BlockStudy(tuple(_row_memory_study(cost, costs[0], predicted) for cost in costs), traces, described)


def _on_one_rank(config: RunConfig, blocks: Sequence[int], steps: int) -> RunConfig:
    named = [name for name in catalogue.names("systems") if "blocks" in _options(name)]
    if config.system not in named:
        raise ConfigError(f"system={config.system!r} has no time blocks. Choose one of {', '.join(named)}.")
    if not blocks or min(blocks) < 1 or steps < 1:
        raise ConfigError(
            f"blocks={tuple(blocks)}, steps={steps}: give at least one number of blocks, each 1 or more, and at least "
            "1 step, as in block_memory(config, (1, 2, 4))."
        )
    # ranks have whole snapshots, not partitions; the number of node partitions stays unchanged
    alone = {"row_ranks": 1, "parts": 1} if "row_ranks" in _options(config.system) else {}
    return config.replace(ranks=1, slow_rank=-1, **alone)


def _options(system: str) -> tuple[str, ...]:
    return catalogue.entry("parallel", catalogue.system(system).parts["parallel"]).options


def _row_memory_study(cost: BlockCost, first: BlockCost, predicted: Mapping[int, int]) -> dict[str, Any]:
    largest = float(first.gradient.abs().max()) or 1.0
    return {
        "blocks": cost.blocks,
        "peak_bytes": cost.peak_bytes,
        "predicted_bytes": predicted.get(cost.blocks),
        "step_s": cost.step_s,
        "loss": cost.loss,
        "gradient_difference": float((cost.gradient - first.gradient).abs().max()) / largest,
    }
