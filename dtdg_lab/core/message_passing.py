"""The rows that each model of the catalogue exchanges per snapshot, derived from its settings to predict bytes.

These are the rows that nodes aggregate from others, and the rows between the spatial and the temporal layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.options import OPTIONS

DIRECTIONS = ("in", "out")  # of edges: a node aggregates over in-neighbours or out-neighbours
PASSES = ("forward", "rerun", "backward")  # rerun: the recomputation of a time block


@dataclass(frozen=True, slots=True)
class Pull:
    """One aggregation of other nodes' rows.

    Attributes:
        layer: of the model, from 0.
        direction: ``in`` aggregates over in-neighbours, ``out`` over out-neighbours; ``top`` selects the nodes with the
            largest scores, independent of edges.
        width: numbers per row; attention adds one score per head to the projected row, ``top`` one score.
        learned: whether a gradient is sent back.
        at_first: whether it is also sent back in the first snapshot of a run; false for the initial state, which is
            a zero constant. The rows themselves are sent in every snapshot.
    """

    layer: int
    direction: str
    width: int
    learned: bool
    at_first: bool = True


@dataclass(frozen=True, slots=True)
class Seam:
    """The rows between the spatial and the temporal part of a layer, in models with a temporal state per node.

    Attributes:
        width: C, numbers per node row.
        learned: whether a gradient flows back through it; not if the row only aggregates input data.
    """

    width: int
    learned: bool


def pulls(model: str, features: int, hidden: int, layers: int, **options: Any) -> tuple[Pull, ...]:
    """All aggregations of one snapshot, in the model's order.

    Args:
        model: name in the catalogue.
        features: F, width of the input.
        hidden: H, width of every layer's output.
        layers: number of layers.
        options: of the model, such as ``gc_layers``; the glossary's defaults if missing. Others are ignored.

    Raises:
        UnknownNameError: there is no such model.
        ConfigError: a size is below 1, or an option's value is not allowed.
    """
    of_layer = _of(model)
    for name, size in (("features", features), ("hidden", hidden), ("layers", layers)):
        if size < 1:
            raise ConfigError(f"{name}={size} must be at least 1.")
    settings = _Settings(hidden, options)
    return tuple(
        pull
        for layer in range(layers)
        for pull in of_layer(layer, features if layer == 0 else hidden, layer > 0, settings)
    )


def seams(model: str, features: int, hidden: int, layers: int, **options: Any) -> tuple[Seam, ...]:
    """The rows between the spatial and the temporal part of each layer, from layer 0.

    Empty for models without a separable state per node: weights evolve (``evolvegcn-o``, ``evolvegcn-h``), there is no
    state (``graphsage``), or states depend on neighbours (``dcrnn``). Arguments as for :func:`pulls`.

    Raises:
        UnknownNameError: there is no such model.
        ConfigError: a size is below 1, or an option's value is not allowed.
    """
    all_pulls = pulls(model, features, hidden, layers, **options)
    if model not in _SEAMS:
        return ()
    settings, last = _Settings(hidden, options), {pull.layer: pull for pull in all_pulls}  # the last of each layer
    return tuple(Seam(_SEAMS[model](settings, pull), pull.learned) for pull in last.values())


def hops(model: str, layers: int, **options: Any) -> int:
    """Hops that one snapshot of a model reaches along edges: layers times hops per layer.

    Raises:
        UnknownNameError: there is no such model.
        ConfigError: a value is not allowed.
    """
    along = [pull for pull in pulls(model, 1, _some_hidden(options), layers, **options) if pull.direction != "top"]
    # DCRNN diffuses input and state in parallel, and the candidate's diffusion follows the reset gate's
    return len(along) if model != "dcrnn" else layers * 2 * _Settings(1, options)["diffusion_steps"]


def directions(model: str) -> tuple[str, ...]:
    """The edge directions that a model aggregates over: ``("in",)`` or ``("in", "out")``.

    Raises:
        UnknownNameError: there is no such model.
    """
    used = {pull.direction for pull in pulls(model, 1, _some_hidden({}), 1)}
    return tuple(direction for direction in ("in", "out") if direction in used)


class _Settings:
    """H and the model's options, validated when they are read."""

    def __init__(self, hidden: int, given: Mapping[str, Any]) -> None:
        self.hidden, self._given = hidden, given

    def __getitem__(self, name: str) -> int:
        option = OPTIONS[name]
        return int(option.check(self._given.get(name, option.default)))


def _some_hidden(options: Mapping[str, Any]) -> int:
    return _Settings(1, options)["heads"]  # a width that any number of heads divides


_OfLayer = Callable[[int, int, bool, _Settings], tuple[Pull, ...]]


def _input_once(layer: int, width: int, learned: bool, _: _Settings) -> tuple[Pull, ...]:
    return (Pull(layer, "in", width, learned),)


def _tgcn(layer: int, width: int, learned: bool, settings: _Settings) -> tuple[Pull, ...]:
    first = _input_once(layer, width, learned, settings)
    return first if settings["gc_layers"] == 1 else (*first, Pull(layer, "in", settings.hidden, True))


def _mpnn_lstm(layer: int, width: int, learned: bool, settings: _Settings) -> tuple[Pull, ...]:
    return (Pull(layer, "in", width, learned), Pull(layer, "in", settings.hidden, True))


def _gatlstm(layer: int, width: int, learned: bool, settings: _Settings) -> tuple[Pull, ...]:
    if settings.hidden % settings["heads"]:
        raise ConfigError(f"hidden={settings.hidden} must be divisible by heads={settings['heads']}.")
    return (Pull(layer, "in", settings.hidden + settings["heads"], True),)


def _evolvegcn_h(layer: int, width: int, learned: bool, settings: _Settings) -> tuple[Pull, ...]:
    return (Pull(layer, "top", width + 1, True), *_input_once(layer, width, learned, settings))


def _dcrnn(layer: int, width: int, learned: bool, settings: _Settings) -> tuple[Pull, ...]:
    steps = settings["diffusion_steps"]

    def diffuse(width: int, learned: bool, at_first: bool) -> list[Pull]:
        return [Pull(layer, edges, width, learned, at_first) for edges in ("out", "in") for _ in range(steps)]

    state = settings.hidden
    return (*diffuse(width, learned, True), *diffuse(state, True, False), *diffuse(state, True, True))


_OF_MODEL: Mapping[str, _OfLayer] = MappingProxyType(
    {
        "tgcn": _tgcn,
        "wdgcn": _input_once,
        "gatlstm": _gatlstm,
        "cdgcn": _input_once,
        "mpnn-lstm": _mpnn_lstm,
        "tmgcn": _input_once,
        "evolvegcn-o": _input_once,
        "evolvegcn-h": _evolvegcn_h,
        "dcrnn": _dcrnn,
        "graphsage": _input_once,
    }
)

# output width of a layer's spatial part, derived from its last aggregation
_SEAMS: Mapping[str, Callable[[_Settings, Pull], int]] = MappingProxyType(
    {
        **dict.fromkeys(("tgcn", "wdgcn", "cdgcn", "tmgcn"), lambda settings, last: last.width),
        "gatlstm": lambda settings, last: settings.hidden,
        "mpnn-lstm": lambda settings, last: 2 * settings.hidden,
    }
)


def _of(model: str) -> _OfLayer:
    if model not in _OF_MODEL:
        raise UnknownNameError("model", model, _OF_MODEL)
    return _OF_MODEL[model]
