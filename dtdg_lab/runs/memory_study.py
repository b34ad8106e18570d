"""``lab.compare_blocks``: peak memory and time of a step against the number of blocks of time, measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.views.block_memory import MemoryFacts, memory_facts, memory_figure, memory_words
from dtdg_lab.views.block_peaks import block_peaks_figure, block_peaks_words
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.training.block_costs import BlockCost

_UNKNOWN: Mapping[int, int] = MappingProxyType({})
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "blocks": "blocks of time, nb",
        "peak_bytes": "most bytes of tensors made in a step that were in use at once; graphs count where several "
        "blocks have them brought in the step, not with one, where they are there before it",
        "predicted_bytes": "the same as predicted, where a prediction was given",
        "step_s": "forward, reruns and backward of a step, median",
        "loss": "of the step: the same for every nb but for rounding",
        "gradient_difference": "largest difference of a gradient from the first row's, relative to its largest",
    }
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockStudy:
    """Steps of one config with different numbers of blocks.

    Attributes:
        rows: one for each number of blocks; ``MEANINGS`` has what is in them.
        traces: blocks -> memory over the step.
        told: what was measured, in words.
    """

    rows: tuple[dict[str, Any], ...]
    traces: Mapping[int, MemoryFacts]
    told: str

    @property
    def figure(self) -> Figure:
        """Peaks against blocks, and memory over the step with the fewest and the most of them."""
        panels = [(block_peaks_figure(self.rows), block_peaks_words(self.rows))]
        for blocks in dict.fromkeys((min(self.traces), max(self.traces))):
            facts = self.traces[blocks]
            note = f"{blocks} block{'' if blocks == 1 else 's'}"
            panels.append((memory_figure(facts, note=note), memory_words(facts, blocks=facts.count)))
        return grid(panels, title=self.told, wide={0})

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def __repr__(self) -> str:
        return f"{self.told}\n{self.to_pandas().to_string(index=False)}"

    def _repr_html_(self) -> str:
        said = "".join(f"<li><b>{name}</b>: {meaning}</li>" for name, meaning in MEANINGS.items())
        return f"<p>{self.told}</p>{self.to_pandas().to_html(index=False)}<ul style='font-size:90%'>{said}</ul>"


def compare_blocks(
    config: RunConfig,
    blocks: Sequence[int] = (1, 2, 4, 8),
    *,
    graph: DynamicGraph | None = None,
    steps: int = 3,
    predicted: Mapping[int, int] = _UNKNOWN,
) -> BlockStudy:
    """Peak memory and time of a step with each number of blocks, on one rank in this process; nothing is trained.

    Args:
        config: of a system whose layout has blocks of time; taken on one rank.
        blocks: numbers of blocks, 1 or more.
        graph: the data; the config's when not given.
        steps: timed for each.
        predicted: blocks -> peak bytes, drawn beside what is measured.

    Raises:
        ConfigError: the system has no blocks, or a number of them makes no sense.
        LabError: the config cannot be built on the graph; the message says why, as where there are more blocks than
            snapshots.

    References: ESDG section 3.1, which reports that memory falls with the number of blocks.
    """
    alone = _on_one_rank(config, blocks, steps)
    graph = load_for(config) if graph is None else graph
    from dtdg_lab.training.block_costs import block_cost

    costs = [block_cost(alone.replace(blocks=count), graph, steps=steps) for count in blocks]
    traces = {cost.blocks: memory_facts(cost.trace.told()) for cost in costs}
    told = f"{config.model} on {graph.name}, {config.system} on one rank: steps by blocks of time"
    return BlockStudy(tuple(_row(cost, costs[0], predicted) for cost in costs), traces, told)


def _on_one_rank(config: RunConfig, blocks: Sequence[int], steps: int) -> RunConfig:
    named = [name for name in catalogue.names("systems") if "blocks" in _options(name)]
    if config.system not in named:
        raise ConfigError(
            f"system={config.system!r} has no blocks of time; {', '.join(named)} have. Choose one of these."
        )
    if not blocks or min(blocks) < 1 or steps < 1:
        raise ConfigError(
            f"blocks={tuple(blocks)}, steps={steps}: give at least one number of blocks, each 1 or more, and 1 step or "
            "more, as compare_blocks(config, (1, 2, 4))."
        )
    # whole snapshots are of ranks, not of parts; vertex parts stay as many, one after another
    alone = {"row_ranks": 1, "parts": 1} if "row_ranks" in _options(config.system) else {}
    return config.replace(ranks=1, slow_rank=-1, **alone)


def _options(system: str) -> tuple[str, ...]:
    return catalogue.entry("parallel", catalogue.system(system).parts["parallel"]).options


def _row(cost: BlockCost, first: BlockCost, predicted: Mapping[int, int]) -> dict[str, Any]:
    largest = float(first.gradient.abs().max()) or 1.0
    return {
        "blocks": cost.blocks,
        "peak_bytes": cost.peak_bytes,
        "predicted_bytes": predicted.get(cost.blocks),
        "step_s": cost.step_s,
        "loss": cost.loss,
        "gradient_difference": float((cost.gradient - first.gradient).abs().max()) / largest,
    }
