"""Facts of a model that training must know: the rows it pulls, how far it reaches, and what it remembers.

None of them is declared: a dry run on a few nodes finds them out (:mod:`dtdg_lab.models.dry_run`), in milliseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import option
from dtdg_lab.core.errors import ConfigError, UnsupportedError

DIRECTIONS = ("in", "out")  # of edges: a node aggregates over in-neighbours or out-neighbours
_ANY_FEATURES = 8  # a width of inputs, which memory does not depend on
PASSES = ("forward", "rerun", "backward")  # rerun: the recomputation of a time block
# of a model: state that it carries from one snapshot to the next
MEMORIES = ("per_vertex", "weights", "weights_from_data", "neighbourhood", "none")


@dataclass(frozen=True, slots=True)
class Pull:
    """One aggregation of other nodes' rows.

    Attributes:
        layer: of the model, from 0.
        direction: ``in`` aggregates over in-neighbours, ``out`` over out-neighbours; ``top`` selects the nodes with the
            largest scores, independent of edges.
        width: numbers per row; attention adds one score per head to the projected row, ``top`` one score.
        learned: whether a gradient is sent back.
        at_first: whether a gradient is also sent back in the first snapshot of a run; false for the initial state,
            a zero constant. The rows themselves are sent in every snapshot.
        kind: the method of :class:`dtdg_lab.models.graph_view.GraphView` that the model called.
        of_features: whether it aggregates unchanged features, or such an aggregate, so that views keep it.
    """

    layer: int
    direction: str
    width: int
    learned: bool
    at_first: bool = True
    kind: str = "gcn"
    of_features: bool = False


@dataclass(frozen=True, slots=True)
class SpatialOutput:
    """The rows that the spatial part of a layer hands to the temporal part; they are redistributed between ranks.

    Attributes:
        width: C, numbers per row.
        learned: whether a gradient flows back through it; false if rows only aggregate input data.
        constant: whether it is the same under other parameters, so that it may be cached.
    """

    width: int
    learned: bool
    constant: bool = False


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts of a model that training must know.

    Attributes:
        pulls: all aggregations of one snapshot, in the model's order.
        spatial: output of the spatial part of each layer.
        layer_hops: hops that each layer reaches along edges.
        memory: ``per_vertex`` (each node has a state of its own), ``weights`` (that evolve by themselves),
            ``weights_from_data`` (that evolve with the nodes), ``neighbourhood`` (a state that neighbours read) or
            ``none``.
        relayed: sizes of each layer's weights, if they evolve from data without
            :class:`dtdg_lab.models.base.Summarising`, so that ranks hand them on; else empty.
    """

    pulls: tuple[Pull, ...]
    spatial: tuple[SpatialOutput, ...]
    layer_hops: tuple[int, ...]
    memory: str
    relayed: tuple[int, ...] = ()

    @property
    def hops_per_layer(self) -> int:
        """Hops of the layer that reaches furthest, at least 1: there are no plans of 0 hops."""
        return max(1, *self.layer_hops)

    @property
    def hops(self) -> int:
        """Hops that one snapshot reaches along edges, if all layers reached as far as the furthest."""
        return len(self.layer_hops) * self.hops_per_layer

    @property
    def along_edges(self) -> tuple[Pull, ...]:
        """The pulls that follow edges."""
        return tuple(pull for pull in self.pulls if pull.direction in DIRECTIONS)

    @property
    def sends_messages(self) -> bool:
        """True if the model calls ``graph.messages``."""
        return any(pull.kind == "messages" for pull in self.pulls)

    @property
    def directions(self) -> tuple[str, ...]:
        """The edge directions that the model aggregates over; ``("in",)`` for a model without neighbours."""
        used = {pull.direction for pull in self.along_edges} or {"in"}
        return tuple(direction for direction in DIRECTIONS if direction in used)


def model_facts(model: str, features: int, hidden: int, layers: int, **options: Any) -> ModelFacts:
    """Return the facts of a model of the catalogue.

    Args:
        model: its name.
        features: F, width of the input.
        hidden: H, width of every layer's output.
        layers: number of layers.
        options: of the model, such as ``gc_layers``; the glossary's defaults if missing. Others are ignored.

    Raises:
        UnknownNameError: there is no such model.
        ConfigError: a size is below 1, or an option's value is not allowed.
        UnsupportedError: nothing can be planned for the model, such as if its pulls depend on values.
    """
    entry = catalogue.entry("models", model)
    for name, size in (("features", features), ("hidden", hidden), ("layers", layers)):
        if size < 1:
            raise ConfigError(f"{name}={size} must be at least 1.")
    settings = {name: option(name).check(options.get(name, option(name).default)) for name in entry.options}
    return _derived(entry.load(), (features, hidden, layers), tuple(settings.items()))


def memory(model: str, **options: Any) -> str:
    """Return the memory of a model of the catalogue, one of :data:`MEMORIES`.

    Args:
        model: its name.
        options: of the model; they may include ``hidden`` and ``layers`` (the glossary's defaults if missing).

    Raises:
        UnknownNameError: there is no such model.
        ConfigError: an option's value is not allowed.
        UnsupportedError: nothing can be planned for the model.
    """
    hidden, layers = (options.pop(name, None) or option(name).default for name in ("hidden", "layers"))
    return model_facts(model, _ANY_FEATURES, hidden, layers, **options).memory


_NOT_EXCHANGED: Mapping[str, str] = MappingProxyType(
    {
        "weights_from_data": "its weights depend on the nodes of each snapshot",
        "neighbourhood": "its hidden state depends on neighbours",
    }
)


def kept_memory(model: str, layout: str, **options: Any) -> str | None:
    """Return how the strategy ``layout`` handles the memory of ``model``: ``exact``, a named approximation, or None.

    The text is empty if only a run's folder describes one of them: it was checked before that run.

    Args:
        model: its name.
        layout: entry of the kind ``parallel``.
        options: as for :func:`memory`.
    """
    if {("models", model), ("parallel", layout)} & catalogue.ABSENT.keys():
        return ""
    return catalogue.MEMORY_ON_LAYOUT.get((memory(model, **options), layout))


def check_memory(model: str, layout: str, system: str = "", **options: Any) -> str:
    """Return how the strategy ``layout`` handles the memory of ``model`` (see :func:`kept_memory`).

    Args:
        model: its name.
        layout: entry of the kind ``parallel``.
        system: for the message.
        options: as for :func:`memory`.

    Raises:
        UnsupportedError: the strategy does not support it; the message names ``system`` and the systems that do.
    """
    treatment = kept_memory(model, layout, **options)
    if treatment is None:
        model_memory = memory(model, **options)
        layouts = {layout for memory_, layout in catalogue.MEMORY_ON_LAYOUT if memory_ == model_memory}
        systems = [candidate.name for candidate in catalogue.SYSTEMS if candidate.parts["parallel"] in layouts]
        subject = f"system {system!r}" if system else f"strategy {layout!r}"
        reason = _NOT_EXCHANGED.get(model_memory, f"its memory is {model_memory!r}")
        verb = "exchange" if model_memory in _NOT_EXCHANGED else "support"
        raise UnsupportedError(
            f"Model {model!r} does not work with {subject}: {reason}, which strategy {layout!r} does not {verb}. "
            f"Compatible systems: {', '.join(systems) or 'none yet'}."
        )
    return treatment


@functools.lru_cache(maxsize=4096)
def _derived(model_class: Any, size: tuple[int, int, int], options: tuple[tuple[str, Any], ...]) -> ModelFacts:
    facts: ModelFacts = model_class.facts_at(*size, **dict(options))
    return facts
