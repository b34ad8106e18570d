"""What every model of the catalogue moves in one snapshot: told from its settings, so that bytes can be predicted.

That is the rows that its nodes pull from others, and the rows that lie between its spatial and its temporal part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.options import OPTIONS


@dataclass(frozen=True, slots=True)
class Pull:
    """One request for other nodes' rows.

    Attributes:
        layer: of the model, from 0.
        way: ``in``: every node pulls from its in-neighbours; ``out``: from its out-neighbours; ``top``: the nodes
            with the largest scores of all are asked for, whatever the edges.
        width: numbers in a row; attention sends its score of each head beside the projected row, ``top`` the score
            beside the row.
        learned: whether a gradient comes back.
        at_first: whether it does so in the first snapshot of a run too; not where the rows are the initial state, which
            is zero and constant there. The rows themselves are pulled in every snapshot.
    """

    layer: int
    way: str
    width: int
    learned: bool
    at_first: bool = True


@dataclass(frozen=True, slots=True)
class Seam:
    """What lies between the spatial and the temporal part of a layer, in models that run nodes through time.

    Attributes:
        width: C, numbers in the row of a node.
        learned: whether a gradient goes back through it: not where the row is a pull of the data and nothing else.
    """

    width: int
    learned: bool


def pulls(model: str, features: int, hidden: int, layers: int, **options: Any) -> tuple[Pull, ...]:
    """All pulls of one snapshot, in the order in which the model asks for them.

    Args:
        model: name in the catalogue.
        features: F, width of the input.
        hidden: H, width of every layer's output.
        layers: number of layers.
        options: the model's own, such as ``gc_layers``; the glossary's defaults where not given, others do not matter.

    Raises:
        UnknownNameError: there is no such model.
        ConfigError: a size is below 1, or an option's value is not allowed.
    """
    of_layer = _of(model)
    for name, size in (("features", features), ("hidden", hidden), ("layers", layers)):
        if size < 1:
            raise ConfigError(f"{name}={size}: at least 1 is needed.")
    settings = _Settings(hidden, options)
    return tuple(
        pull
        for layer in range(layers)
        for pull in of_layer(layer, features if layer == 0 else hidden, layer > 0, settings)
    )


def seams(model: str, features: int, hidden: int, layers: int, **options: Any) -> tuple[Seam, ...]:
    """What lies between the spatial and the temporal part of each layer, from layer 0.

    Empty where no node runs through time by itself: where a model's weights do (``evolvegcn-o``, ``evolvegcn-h``),
    or nothing does (``graphsage``), or nodes mix their states (``dcrnn``). Arguments as for :func:`pulls`.

    Raises:
        UnknownNameError: there is no such model.
        ConfigError: a size is below 1, or an option's value is not allowed.
    """
    asked = pulls(model, features, hidden, layers, **options)
    if model not in _SEAMS:
        return ()
    settings, last = _Settings(hidden, options), {pull.layer: pull for pull in asked}  # the last of each layer
    return tuple(Seam(_SEAMS[model](settings, pull), pull.learned) for pull in last.values())


def hops(model: str, layers: int, **options: Any) -> int:
    """How far one snapshot of a model reaches along edges: layers times hops a layer.

    Raises:
        UnknownNameError: there is no such model.
        ConfigError: a value is not allowed.
    """
    along = [pull for pull in pulls(model, 1, _some_hidden(options), layers, **options) if pull.way != "top"]
    # what DCRNN pulls of the input and of the state goes side by side: the state's pulls follow the reset gate's
    return len(along) if model != "dcrnn" else layers * 2 * _Settings(1, options)["diffusion_steps"]


def ways(model: str) -> tuple[str, ...]:
    """Along which edges a model pulls: ``("in",)`` or ``("in", "out")``.

    Raises:
        UnknownNameError: there is no such model.
    """
    pulled = {pull.way for pull in pulls(model, 1, _some_hidden({}), 1)}
    return tuple(way for way in ("in", "out") if way in pulled)


class _Settings:
    """H and the options a model reads, checked when they are read."""

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
        raise ConfigError(f"hidden={settings.hidden} cannot be shared by heads={settings['heads']}.")
    return (Pull(layer, "in", settings.hidden + settings["heads"], True),)


def _evolvegcn_h(layer: int, width: int, learned: bool, settings: _Settings) -> tuple[Pull, ...]:
    return (Pull(layer, "top", width + 1, True), *_input_once(layer, width, learned, settings))


def _dcrnn(layer: int, width: int, learned: bool, settings: _Settings) -> tuple[Pull, ...]:
    steps = settings["diffusion_steps"]

    def diffuse(width: int, learned: bool, at_first: bool) -> list[Pull]:
        return [Pull(layer, way, width, learned, at_first) for way in ("out", "in") for _ in range(steps)]

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

# width of what a layer's spatial part gives, told from its last pull
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
