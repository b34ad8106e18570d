"""Peak memory and time of a step against the number of time blocks, measured here."""

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
from dtdg_lab.systems.snapshot_blocks.block_costs import StepCost, draw_block_costs, least_memory_caption
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.runs.step_memory import memory_figure
from dtdg_lab.visualization.sheet import sheet
from dtdg_lab.visualization.studies.result import StudyResult

if TYPE_CHECKING:
    from dtdg_lab.training.block_memory import BlockCost


_UNKNOWN: Mapping[int, int] = MappingProxyType({})
COST_COLUMNS = ("blocks", "peak_bytes", "step_s", "predicted_bytes")
MEMORY_MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_blocks"]["columns"]["block_memory"])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockStudy(StudyResult):
    """Steps of one config with different numbers of blocks.

    Attributes:
        rows: one for each number of blocks; ``MEMORY_MEANINGS`` describes the columns.
        traces: blocks -> memory over the step.
        described: what was measured, in words.
    """

    rows: tuple[dict[str, Any], ...]
    traces: Mapping[int, MemoryFacts]
    described: str
    meanings = MEMORY_MEANINGS

    @property
    def figure(self) -> Figure:
        """Peaks against blocks, and memory over the step with the fewest and the most blocks."""
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
    """Peak memory and time of a step with each number of blocks, on one rank in this process; nothing is trained.

    Args:
        config: of a system with time blocks; trained on one rank.
        blocks: numbers of blocks, 1 or more.
        graph: the data; by default the config's.
        steps: number of timed steps for each.
        predicted: blocks -> peak bytes, drawn beside the measurements.

    Raises:
        ConfigError: the system has no blocks, or a number of them is invalid.
        LabError: the config cannot be built on the graph, for example because there are more blocks than
            snapshots.

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
    # ranks have whole snapshots, not partitions; the number of node partitions stays
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
