"""The facts of a model, found out by running it on a few nodes without edges.

Each node is its own and only neighbour, so a pull gives back the rows that were sent, and is noted. Every pull is a
node in autograd's graph: walking it back from a tensor tells which pulls, parameters, inputs and states the tensor was
made of, through any operation and any kernel.

What this cannot see are rows that follow from pulled ones by a step without gradient, such as an argmax:
:func:`dtdg_lab.testing.check_model` looks for those.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dtdg_lab.core.errors import ConfigError, UnsupportedError
from dtdg_lab.core.model_facts import ModelFacts, Pull, SpatialOutput
from dtdg_lab.kernels.torch_defaults import torch_defaults
from dtdg_lab.models.graph_view import DIRECTION_OF, GraphView

_NODES = 3
_PARAMETERS = frozenset(("parameter", "previous layer", "first state"))  # sources that depend on parameters
_STATES = frozenset(("state", "first state"))


class Layered(Protocol):
    """The parts of a :class:`dtdg_lab.models.base.DynamicModel` that are run."""

    layers: int
    width: Callable[[int], int]
    parameters: Callable[[], Any]
    buffers: Callable[[], Any]
    initial_state: Callable[[int], Any]
    evolve: Callable[..., Any]
    spatial: Callable[..., Tensor]
    temporal: Callable[..., tuple[Tensor, Any]]


def facts_of(model: Any) -> ModelFacts:
    """Find out what training must know of a model, from three dry runs with other parameters, states and inputs.

    Args:
        model: a :class:`dtdg_lab.models.base.DynamicModel`; it is copied, not changed.

    Raises:
        UnsupportedError: it pulls otherwise with other values, or gives rows of a wrong shape.
    """
    with torch_defaults(), torch.random.fork_rng(devices=()):
        runs = [_DryRun(_fresh_copy(model, jitter), jitter, scale) for jitter, scale in ((0, 1), (0.5, 1), (0.25, -1))]
    first, again, _ = runs
    for other in runs[1:]:
        if other.asked != first.asked:
            raise UnsupportedError(
                f"{type(model).__name__} pulls {first.asked} with some values and {other.asked} with others, so that "
                "nothing can be planned. Let what it pulls depend on sizes and options only, not on values."
            )
    pulls = tuple(map(_pull, first.view.notes))
    spatial = tuple(map(_spatial_output, first.layers, again.layers))
    hands_on = first.memory == "weights_from_data" and not (hasattr(model, "summary") and hasattr(model, "advance"))
    relayed = first.state_numbers if hands_on else ()
    return ModelFacts(pulls, spatial, tuple(of.hops for of in first.layers), first.memory, relayed)


def facts_of_class(make: Callable[..., Any], size: Sequence[int], options: Mapping[str, Any]) -> ModelFacts:
    """Find out the facts of a model's class.

    Args:
        make: the class.
        size: features F, hidden H, layers.
        options: of the model.

    Raises:
        ConfigError: the class refuses an option, or cannot be made like this.
        UnsupportedError: as :func:`facts_of`.
    """
    name = getattr(make, "__name__", str(make))
    with torch_defaults(), torch.random.fork_rng(devices=()):
        try:
            model = make(*size, outputs=1, **options)
        except TypeError as error:
            given = "".join(f", {option}={value!r}" for option, value in options.items())
            raise ConfigError(
                f"{name}{tuple(size)} with outputs=1{given} raised: {error}. A model's constructor takes features, "
                "hidden and layers, outputs=, and each of its options by name."
            ) from error
        return facts_of(model)


def _pull(note: _Note) -> Pull:
    from_start = bool(_PARAMETERS & note.sources)
    learned = from_start or bool(_STATES & note.sources)
    return Pull(note.layer, note.direction, note.width, learned, from_start or not learned, note.kind, note.of_features)


def _spatial_output(note: _LayerNote, again: _LayerNote) -> SpatialOutput:
    """Return what the spatial part of a layer gives, noted in runs of equal inputs with other parameters."""
    learned = bool(note.mixed_from & (_PARAMETERS | _STATES))
    constant = not learned and torch.equal(note.mixed, again.mixed)  # not where parameters were detached
    return SpatialOutput(note.mixed[0].numel(), learned, constant)


def _fresh_copy(model: Any, jitter: float) -> Any:
    """Return a copy on the CPU without gradients, with ``jitter`` of other parameters."""
    found = copy.deepcopy(model).cpu()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(jitter * torch.rand(parameter.shape, generator=draw, dtype=parameter.dtype))
            parameter.grad = None
            parameter.requires_grad_()
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Note:
    """One aggregation as it was asked for."""

    layer: int
    kind: str
    direction: str
    width: int
    sources: frozenset[str]
    of_features: bool


@dataclass(frozen=True, slots=True, eq=False)
class _LayerNote:
    """One layer: what its spatial part gave and was made of, and what its weights evolved from."""

    mixed: Tensor
    hops: int
    mixed_from: frozenset[str]
    evolved_from: frozenset[str]


class _DryRun:
    """One snapshot through all layers on nodes without edges.

    Args:
        model: its parameters must require gradients.
        jitter: how far the state is from the initial one.
        scale: of the inputs, which are random.
    """

    def __init__(self, model: Layered, jitter: float, scale: float) -> None:
        self.origins = _Origins()
        self.view = DryView(self.origins)
        first = model.initial_state(_NODES)
        self._first = first
        other = torch.Generator().manual_seed(2)
        state = first
        for layer, tensors in enumerate(first.layers):
            leaves = []
            for given in tensors:
                moved = given.detach() + jitter * torch.rand(given.shape, generator=other, dtype=given.dtype)
                leaf = moved.requires_grad_()
                self.origins.label(leaf, "first state" if given.requires_grad else "state")
                leaves.append(leaf)
            state = state.with_layer(layer, tuple(leaves))
        draw, dtype = torch.Generator().manual_seed(0), next(iter(model.parameters())).dtype
        self.layers: list[_LayerNote] = []
        learned = False
        for layer in range(model.layers):
            leaf = (scale * torch.rand(_NODES, model.width(layer), generator=draw, dtype=dtype)).requires_grad_()
            self.origins.label(leaf, "previous layer" if learned else "input")
            state, learned_here = self._run_layer(model, layer, leaf * 1.0, state)  # a model may write to its input
            learned = learned or learned_here

    def _run_layer(self, model: Layered, layer: int, x: Tensor, state: Any) -> tuple[Any, bool]:
        view = self.view.layer(layer)
        if layer == 0:
            view.features = [x]
        after = model.evolve(layer, view, x, state)
        evolved, _ = self.origins.of(*after.layers[layer]) if after is not state else (frozenset(), 0)
        mixed = model.spatial(layer, view, x, after)
        if len(mixed) != _NODES:
            raise UnsupportedError(
                f"{type(model).__name__}.spatial gave {len(mixed)} rows for {_NODES} nodes. Return one row for each."
            )
        sources, hops = self.origins.of(mixed)
        self.layers.append(_LayerNote(mixed.detach(), hops, sources, evolved))
        h, _ = model.temporal(layer, mixed, after)
        return after, bool(_PARAMETERS & self.origins.of(h)[0])

    @property
    def asked(self) -> list[tuple[int, str, str, int]]:
        """Layer, kind, direction and width of every aggregation."""
        return [(note.layer, note.kind, note.direction, note.width) for note in self.view.notes]

    @property
    def state_numbers(self) -> tuple[int, ...]:
        """Numbers of each layer's state."""
        return tuple(sum(tensor.numel() for tensor in tensors) for tensors in self._first.layers)

    @property
    def memory(self) -> str:
        """What is carried between snapshots, one of :data:`dtdg_lab.core.model_facts.MEMORIES`."""
        if not self._first.tensors:
            return "none"
        if not self._first.per_vertex:
            reads = any({"input", "previous layer"} & of.evolved_from for of in self.layers)
            return "weights_from_data" if reads else "weights"
        return "neighbourhood" if any(_STATES & of.mixed_from for of in self.layers) else "per_vertex"


class _Mark(torch.autograd.Function):
    """The identity, which leaves the number of a pull in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, number: int) -> Tensor:
        ctx.number = number
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Origins:
    """Finds out, from autograd's graph, which leaves and which pulls a tensor was made of."""

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}
        self._leaves: list[Tensor] = []  # alive, so that no id is given again
        self._pulls: list[tuple[frozenset[str], int]] = []

    def label(self, leaf: Tensor, name: str) -> None:
        """Call a leaf of autograd's graph ``name``; others are parameters."""
        self._leaves.append(leaf)
        self._labels[id(leaf)] = name

    def pulled(self, rows: Tensor, sources: frozenset[str], hops: int) -> Tensor:
        """Return rows that were pulled, marked, so that :meth:`of` stops there."""
        self._pulls.append((sources, hops))
        marked: Tensor = _Mark.apply(rows, len(self._pulls) - 1)
        return marked

    def of(self, *tensors: Tensor) -> tuple[frozenset[str], int]:
        """Return what some tensors were made of, and the longest chain of pulls along edges that led to them."""
        sources: set[str] = set()
        hops, seen, left = 0, set(), []
        for x in tensors:
            if x.grad_fn is not None:
                left.append(x.grad_fn)
            elif x.requires_grad:
                sources.add(self._labels.get(id(x), "parameter"))
        while left:
            node = left.pop()
            if node in seen:
                continue
            seen.add(node)
            number = getattr(node, "number", None)
            if isinstance(number, int):
                of_pull, chain = self._pulls[number]
                sources |= of_pull
                hops = max(hops, chain)
            elif hasattr(node, "variable"):
                sources.add(self._labels.get(id(node.variable), "parameter"))
            else:
                left += [after for after, _ in node.next_functions if after is not None]
        return frozenset(sources), hops


class DryView(GraphView):
    """A few nodes without edges: a pull gives back what it was given, and is noted."""

    def __init__(self, origins: _Origins) -> None:
        self._origins, self._layer = origins, 0
        self.notes: list[_Note] = []
        self.features: list[Tensor] = []  # the inputs, and what has been pulled of them alone

    @property
    def num_rows(self) -> int:
        """Nodes."""
        return _NODES

    def layer(self, number: int) -> DryView:
        """Return the view, which notes from here on for another layer."""
        self._layer = number
        return self

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the rows given.

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind not in DIRECTION_OF:
            raise UnsupportedError(f"the model pulls {kind!r}: a view offers {', '.join(DIRECTION_OF)}.")
        if (scores is None) == (kind == "attention"):
            raise UnsupportedError(
                f"a pull of {kind!r} with scores {scores is not None}: only attention has, and needs, them."
            )
        if scores is None:
            kept = any(x is known for known in self.features)
            pulled = self._send(kind, DIRECTION_OF[kind], x, of_features=kept)
            self.features += [pulled] * kept
            return pulled
        sent_to, received = scores
        z, sent = self._send(kind, "in", x, sent_to).split([x.shape[1], sent_to.shape[1]], dim=1)
        return z + 0 * (sent + received).sum(1, keepdim=True)

    def columns(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows given."""
        return self._send("messages", direction, x, of_features=any(x is known for known in self.features))

    def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return an edge from each node to itself."""
        nodes = torch.arange(_NODES)
        return nodes, nodes, torch.ones(_NODES, 1)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the rows of the largest scores."""
        sent = self._send("top", "top", x, scores.unsqueeze(1), along_edges=False)
        best = torch.sort(sent[:, -1], descending=True, stable=True).indices[:k]
        return sent[:, :-1].index_select(0, best), sent[:, -1].index_select(0, best)

    def _send(
        self, kind: str, direction: str, *rows: Tensor, along_edges: bool = True, of_features: bool = False
    ) -> Tensor:
        """Note rows that are sent side by side, and return them as they arrive."""
        for of in rows:
            if len(of) != _NODES:
                raise UnsupportedError(
                    f"the model sends {len(of)} rows by graph.{kind}, where {_NODES} nodes are. Send one row for each."
                )
        sent = torch.cat([of.flatten(1) for of in rows], dim=1) if len(rows) > 1 else rows[0]
        sources, hops = self._origins.of(sent)
        width = sent[0].numel()
        self.notes.append(_Note(self._layer, kind, direction, width, sources, of_features))
        return self._origins.pulled(sent, sources, hops + along_edges)
