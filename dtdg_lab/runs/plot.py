"""``lab.plot``: draws a graph, a run or a comparison as a plotly Figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.statistics import GraphStatistics
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.measured_partition import MeasuredPartition
from dtdg_lab.runs.charts import drawn_charts, lock_of
from dtdg_lab.runs.comparison import Comparison
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.runs.inspect_model import FollowedNode, GraphComparison, Perturbation
from dtdg_lab.visualization.chart import ChartOptions, Figure, XAxis
from dtdg_lab.visualization.graphs.node import perturbation_figure
from dtdg_lab.visualization.graphs.partition import comparison_cards, partition_cards
from dtdg_lab.visualization.graphs.statistics import GraphCharts
from dtdg_lab.visualization.numbers import seconds_text
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, run_sheet, sheet, standalone
from dtdg_lab.visualization.studies.result import StudyResult

if TYPE_CHECKING:
    import plotly.graph_objects as go


# results that draw themselves
STUDIES = (Comparison, GraphComparison, FollowedNode, StudyResult)


def plot(shown: Any, *, protocol: str = "warm", x: XAxis = "steps") -> go.Figure:
    """Draw a picture; in a notebook it is displayed as the last expression of a cell.

    Args:
        shown: a DynamicGraph or its statistics (edges, overlap, in-degrees and baselines over time); a run; the result
            of ``lab.runs.compare``, ``lab.datasets.compare``, ``lab.studies.decay`` and similar functions; the result
            of ``lab.inspect.follow_node``, ``lab.inspect.perturb``, ``lab.partition.partition`` or
            ``lab.estimate.schedules`` (several perturbations or partitions, too); or a figure as a dict.
        protocol: for a graph, the evaluation protocol whose parts are shaded.
        x: for a run, the axis of the loss: ``steps`` or ``seconds``.

    Raises:
        ConfigError: the object has no picture, or plotly is not installed.
        UnknownNameError: the protocol is unknown.
    """
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    figure = _figure(shown, protocol, x)
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise ConfigError("pictures need plotly: pip install 'dtdg-lab[lab]'.") from error
    return go.Figure(standalone(figure))


def _figure(subject: Any, protocol: str, x: XAxis) -> Figure:
    if isinstance(subject, DynamicGraph | GraphStatistics):
        view = GraphCharts(subject, protocol)
        captions, title = view.captions(), f"{view.statistics.name} · protocol {protocol}"
        cards = [(figure, captions[name]) for name, figure in view.figures().items()]
        return sheet(cards, title=title, plot_height=STUDY_HEIGHT)
    if isinstance(subject, STUDIES):
        figure: Any = subject.figure  # type: ignore[union-attr]
        drawing: Figure = figure() if callable(figure) else figure
        return drawing
    if isinstance(subject, Partition):
        raise ConfigError(
            "plot() cannot draw a bare Partition, which has no counts. Give the result of lab.partition.partition("
            "graph, 'metis', parts=4)."
        )
    if isinstance(subject, MeasuredPartition):
        facts = PartitionFacts.read(subject.to_dict())
        title = f"{subject.graph_name} · {facts.label}, made in {seconds_text(facts.seconds)}"
        return sheet(partition_cards(facts), title=title)
    several = _several(subject)
    if several is not None:
        return several
    if hasattr(subject, "live"):  # a run of a session, or a stored one
        return _run(subject, x)
    if isinstance(subject, dict) and {"data", "layout"} <= set(subject):
        return subject
    raise ConfigError(
        f"plot() cannot draw an object of type {type(subject).__name__}; it draws a DynamicGraph, "
        "graph.describe(), a run, a comparison, a followed node, perturbations, or measured partitions."
    )


def _several(subject: Any) -> Figure | None:
    """Draw one or several perturbations, or several measured partitions; return None for anything else."""
    items: Any = [subject] if isinstance(subject, Perturbation) else subject
    if not isinstance(items, Sequence) or not items:
        return None
    if all(isinstance(item, Perturbation) for item in items):
        return perturbation_figure(
            {item.model: item.affected_mask[item.snapshot :].sum(axis=1) for item in items},
            {item.model: item.change[item.snapshot :].max(axis=1) for item in items},
        )
    return _partitions(items) if all(isinstance(item, MeasuredPartition) for item in items) else None


def _run(run: Any, x: XAxis) -> Figure:
    """Draw the charts of a run that have data: its picture, the common charts, and those of its system."""
    with lock_of(run):
        cards = drawn_charts(run.live, ChartOptions(x=x, whole_run=True, ended=run.status in ENDED))
    return run_sheet(cards, title=f"Run {run.id}")


def _partitions(measured: Sequence[MeasuredPartition]) -> Figure:
    """Draw several partitions side by side, labelled by their differences."""
    facts = [PartitionFacts.read(partition.to_dict()) for partition in measured]
    names = [fact.partitioner for fact in facts]
    if len(set(names)) < len(names):
        names = [fact.label for fact in facts]
    twice = Counter(names)
    labels = [f"{name} ({number})" if twice[name] > 1 else name for number, name in enumerate(names, start=1)]
    graphs = " and ".join(dict.fromkeys(partition.graph_name for partition in measured))
    counts = " or ".join(map(str, sorted({fact.parts for fact in facts})))
    cards = comparison_cards(dict(zip(labels, facts, strict=True)))
    return sheet(cards, title=f"Partitions of {graphs}, {counts} parts", columns=3)
