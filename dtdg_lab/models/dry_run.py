"""Dry runs, which determine the facts of a model by running it on a few nodes.

Most facts come from nodes without edges: a pull returns its input, and is recorded. Every pull is a node in autograd's
graph. Walking this graph back from a tensor gives the pulls, parameters, inputs and states that the tensor depends on,
through any operation and any kernel. Operations without a gradient, such as a comparison or ``detach``, are invisible
there. So memory and reach are also determined by changing values and comparing results; the reach on a path of nodes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dtdg_lab.config.model_facts import ModelFacts, Pull, SpatialOutput
from dtdg_lab.core.errors import ConfigError, LabError, UnsupportedError
from dtdg_lab.kernels.torch_defaults import torch_defaults
from dtdg_lab.models.graph_view import DIRECTION_OF, DenseView, GraphView, check_pull

_NODES, _OUTPUTS = 16, 2
_PARAMETERS = frozenset(("parameter", "previous layer", "first state"))  # sources that depend on parameters
_STATES = frozenset(("state", "first state"))


class Layered(Protocol):
    """The parts of a :class:`dtdg_lab.models.base.DynamicModel` that a dry run calls."""

    layers: int
    hidden: int
    width: Callable[[int], int]
    parameters: Callable[[], Any]
    initial_state: Callable[[int], Any]
    evolve: Callable[..., Any]
    spatial: Callable[..., Tensor]
    temporal: Callable[..., tuple[Tensor, Any]]


def facts_of(model: Any) -> ModelFacts:
    """Return the facts of a model.

    The model runs with its own parameters and initial state, then with changed parameters, inputs and state, and last
    on a path of nodes.

    Args:
        model: a :class:`dtdg_lab.models.base.DynamicModel`; it is copied, not changed.

    Raises:
        UnsupportedError: training cannot be planned: the pulls depend on values, rows have a wrong shape, or the model
            draws random numbers, changes its input in place, or fails.
    """
    name = type(model).__name__
    with torch_defaults(), torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(0)
        rng_state = torch.random.get_rng_state()
        try:
            plain, changed = _fresh_copy(model, 0.0), _fresh_copy(model, 0.5)
            first, parameters = _DryRun(plain, jitter=0.0), _DryRun(changed, jitter=0.5)
            inputs, state = _DryRun(changed, jitter=0.5, scale=-1.0), _DryRun(changed, jitter=0.9)
            if not torch.equal(rng_state, torch.random.get_rng_state()):
                raise UnsupportedError(
                    f"{name} draws random numbers as it runs (dropout?). Remove them: recomputed snapshots, other "
                    "ranks and replays would draw different numbers."
                )
            _check_pulls(name, first, (parameters, inputs, state))
            hops = []
            for layer, note in enumerate(parameters.layers):
                _check_rows(changed, layer, note)
                hops.append(max(first.layers[layer].hops, _reach(changed, layer)))
        except LabError:
            raise
        except Exception as error:
            offered = " A graph offers gcn, mean, attention, messages and top." * isinstance(error, AttributeError)
            raise UnsupportedError(
                f"{name}: its dry run on {_NODES} nodes with features={model.features}, hidden={model.hidden}, "
                f"layers={model.layers} raised {type(error).__name__}: {str(error).rstrip('.')}.{offered} The input of "
                "a layer has self.width(layer) numbers a node."
            ) from error
    memory = _memory(parameters, inputs, state)
    pulls = tuple(map(_pull, first.view.notes))
    spatial = tuple(map(_spatial_output, first.layers, parameters.layers))
    carries_state = memory == "weights_from_data" and not (hasattr(model, "summary") and hasattr(model, "advance"))
    return ModelFacts(pulls, spatial, tuple(hops), memory, first.state_numbers if carries_state else ())


def facts_of_class(make: Callable[..., Any], size: Sequence[int], options: Mapping[str, Any]) -> ModelFacts:
    """Return the facts of a model's class.

    Args:
        make: the class.
        size: features F, hidden H, layers.
        options: options of the model.

    Raises:
        ConfigError: the class rejects an option, or its constructor fails.
        UnsupportedError: as :func:`facts_of`.
    """
    name = getattr(make, "__name__", str(make))
    with torch_defaults(), torch.random.fork_rng(devices=()):
        try:
            model = make(*size, outputs=_OUTPUTS, **options)
        except LabError:
            raise
        except Exception as error:
            keywords = "".join(f", {option}={value!r}" for option, value in options.items())
            raise ConfigError(
                f"{name}{tuple(size)} with outputs={_OUTPUTS}{keywords} raised {type(error).__name__}: {error}. A "
                "model's constructor takes features, hidden and layers, outputs=, and each of its options by name."
            ) from error
        readout = getattr(model, "_modules", {}).get("readout_layer")
        if readout is None or getattr(readout, "out_features", _OUTPUTS) != _OUTPUTS:
            raise ConfigError(
                f"{name} has no readout of outputs={_OUTPUTS}. Begin its constructor with "
                "super().__init__(features, hidden, layers, outputs=outputs)."
            )
        return facts_of(model)


def _memory(reference: _DryRun, inputs: _DryRun, state: _DryRun) -> str:
    """Return the memory, from a reference run, a run with other inputs, and a run with another state."""
    if not reference.first_state.tensors:
        return "none"
    pairs = zip(reference.layers, inputs.layers, strict=True)
    if not reference.first_state.per_vertex:
        reads = any({"input", "previous layer"} & note.evolved_from for note in reference.layers)
        changes = any(not _are_equal(note.evolved, second.evolved) for note, second in pairs)
        return "weights_from_data" if reads or changes else "weights"
    reads = any(_STATES & note.mixed_from for note in reference.layers)
    changes = any(
        not torch.equal(note.mixed, second.mixed) for note, second in zip(reference.layers, state.layers, strict=True)
    )
    return "neighbourhood" if reads or changes else "per_vertex"


def _are_equal(tensors: Sequence[Tensor], references: Sequence[Tensor]) -> bool:
    return all(map(torch.equal, tensors, references))


def _pull(note: _Note) -> Pull:
    from_start = bool(_PARAMETERS & note.sources)
    learned = from_start or bool(_STATES & note.sources)
    return Pull(note.layer, note.direction, note.width, learned, from_start or not learned, note.kind, note.of_features)


def _spatial_output(note: _LayerNote, second: _LayerNote) -> SpatialOutput:
    """Describe the output of a layer's spatial part, from two runs with equal inputs and different parameters."""
    learned = bool(note.mixed_from & (_PARAMETERS | _STATES))
    constant = not learned and torch.equal(note.mixed, second.mixed)  # parameters may be detached
    return SpatialOutput(note.mixed[0].numel(), learned, constant)


def _fresh_copy(model: Any, jitter: float) -> Any:
    """Return a copy on the CPU in float64 without gradients, with parameters changed by up to ``jitter``."""
    fresh = copy.deepcopy(model).cpu().double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.add_(jitter * torch.rand(parameter.shape, generator=draw, dtype=parameter.dtype))
            parameter.grad = None
    return fresh


def _other_state(state: Any, jitter: float) -> Any:
    """Return a state with floating tensors changed by up to ``jitter``, as leaves of autograd's graph."""
    draw = torch.Generator().manual_seed(2)
    for layer, tensors in enumerate(state.layers):
        leaves = []
        for tensor in tensors:
            leaf = tensor.detach().clone()
            if leaf.is_floating_point():
                leaf += jitter * torch.rand(leaf.shape, generator=draw, dtype=leaf.dtype)
                leaf.requires_grad_()
            leaves.append(leaf)
        state = state.with_layer(layer, tuple(leaves))
    return state


def _check_pulls(model: str, first: _DryRun, runs: Sequence[_DryRun]) -> None:
    """Check that a model's pulls do not depend on values.

    Raises:
        UnsupportedError: the pulls depend on values.
    """
    for run in runs:
        if run.requests != first.requests:
            raise UnsupportedError(
                f"{model} pulls {first.requests} with some values and {run.requests} with others, so training cannot "
                "be planned. Let the pulls depend on sizes and options only, not on values."
            )


@torch.no_grad()
def _check_rows(model: Layered, layer: int, note: _LayerNote) -> None:
    """Check the output of a layer in time.

    Raises:
        UnsupportedError: the width of rows is not H, or rows depend on each other or on earlier calls.
    """
    name = type(model).__name__
    h, repeated, changed_row = (
        model.temporal(layer, rows, note.state)[0] for rows in (note.mixed, note.mixed, note.changed_row)
    )
    if h.shape != (_NODES, model.hidden):
        raise UnsupportedError(
            f"{name} returned an output of {tuple(h.shape)} for {_NODES} nodes and hidden={model.hidden}. Let step "
            f"return an output of ({_NODES}, {model.hidden}) first."
        )
    if not torch.equal(h, repeated):
        raise UnsupportedError(
            f"{name} returns something else when step (or temporal_sequence) is called again: it stores state in the "
            "module. Take the state as arguments, and return it."
        )
    if not torch.allclose(changed_row[1:], h[1:], rtol=1e-9, atol=1e-12):
        raise UnsupportedError(
            f"{name} mixes nodes in step (or temporal_sequence): a node's output changes with another node's rows. "
            "Nodes are on several ranks: mix them in spatial, through graph."
        )


@torch.no_grad()
def _reach(model: Layered, layer: int) -> int:
    """Return the distance on a path at which a change of one node's input and state still has an effect in a layer."""
    counted = DryView(_Origins())
    x = torch.rand(_NODES, model.width(layer), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state = model.evolve(layer, counted, x, _other_state(model.initial_state(_NODES), 0.5))
    to_evolve = len(counted.notes)
    model.spatial(layer, counted, x, state)
    directions = [note.direction for note in counted.notes[to_evolve:]]
    if "top" in directions:  # may return rows of any node
        return 0
    pulls = len(directions)
    nodes = pulls + 3
    path = _Path(nodes)
    x = torch.rand(nodes, model.width(layer), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state = _other_state(model.initial_state(nodes), 0.5) if state.per_vertex else state  # weights are the same for all
    rows = model.spatial(layer, path, x, state)
    furthest = 0
    for change in (1.0, -1.0, 10.0, -10.0):
        changed, changed_row = x.clone(), state
        changed[0] += change
        if state.per_vertex:
            for number, tensors in enumerate(state.layers):
                copies = tuple(tensor.clone() for tensor in tensors)
                for tensor in copies:
                    tensor[0] += change if tensor.is_floating_point() else 0
                changed_row = changed_row.with_layer(number, copies)
        differs = (model.spatial(layer, path, changed, changed_row) != rows).flatten(1).any(1)
        furthest = max(furthest, int(differs.nonzero().max()) if differs.any() else 0)
    if furthest > pulls:
        raise UnsupportedError(
            f"{type(model).__name__}.spatial mixes nodes without the graph: it pulls {pulls} times, but a node "
            f"{furthest} nodes away has an effect. Nodes are on several ranks: use graph.gcn, .mean or .messages."
        )
    return furthest


@dataclass(frozen=True, slots=True, eq=False)
class _Note:
    """A recorded aggregation of the model."""

    layer: int
    kind: str
    direction: str
    width: int
    sources: frozenset[str]
    of_features: bool


@dataclass(frozen=True, slots=True, eq=False)
class _LayerNote:
    """Record of a layer: the output of its spatial part with its sources, and the state after ``evolve``."""

    mixed: Tensor
    hops: int
    mixed_from: frozenset[str]
    state: Any
    layer: int
    evolved_from: frozenset[str]

    @property
    def evolved(self) -> tuple[Tensor, ...]:
        """The evolved weights of the layer."""
        tensors: tuple[Tensor, ...] = self.state.layers[self.layer]
        return tensors

    @property
    def changed_row(self) -> Tensor:
        """The output of the spatial part, with another first row."""
        rows = self.mixed.clone()
        rows[0] += 1.0
        return rows


class _DryRun:
    """One snapshot through all layers on nodes without edges.

    Args:
        model: model with parameters in float64.
        jitter: largest change of the initial state.
        scale: scale of the random inputs.
    """

    def __init__(self, model: Layered, *, jitter: float, scale: float = 1.0) -> None:
        self.origins = _Origins()
        self.view = DryView(self.origins)
        self.first_state = model.initial_state(_NODES)
        state = _other_state(self.first_state, jitter)
        for initial, leaf in zip(self.first_state.tensors, state.tensors, strict=True):
            self.origins.label(leaf, "first state" if initial.requires_grad else "state")
        self.state_numbers = tuple(sum(tensor.numel() for tensor in layer) for layer in self.first_state.layers)
        draw, learned = torch.Generator().manual_seed(0), False
        self.layers: list[_LayerNote] = []
        for layer in range(model.layers):
            leaf = scale * torch.rand(_NODES, model.width(layer), generator=draw, dtype=torch.float64)
            self.origins.label(leaf.requires_grad_(), "previous layer" if learned else "input")
            state, learned_here = self._run_layer(model, layer, leaf * 1.0, state)  # a model may write to its input
            learned = learned or learned_here

    def _run_layer(self, model: Layered, layer: int, x: Tensor, state: Any) -> tuple[Any, bool]:
        view = self.view.layer(layer)
        if layer == 0:
            view.features = [(x, x._version)]
        after = model.evolve(layer, view, x, state)
        if after is not state and after.per_vertex:
            raise UnsupportedError(
                f"{type(model).__name__}.evolve changes a state of nodes, but it may change only weights. Change "
                "a state of nodes in step or temporal_sequence."
            )
        evolved, _ = self.origins.of(*after.layers[layer]) if after is not state else (frozenset[str](), 0)
        mixed = model.spatial(layer, view, x, after)
        view.check_features(type(model).__name__)
        if not isinstance(mixed, Tensor):
            raise UnsupportedError(
                f"{type(model).__name__}.spatial returned {type(mixed).__name__}. Return a tensor with a row for each "
                "node."
            )
        if len(mixed) != _NODES:
            raise UnsupportedError(
                f"{type(model).__name__}.spatial returned {len(mixed)} rows for {_NODES} nodes. Return a row for each."
            )
        sources, hops = self.origins.of(mixed)
        self.layers.append(_LayerNote(mixed.detach().clone(), hops, sources, after.detach(), layer, evolved))
        h, _ = model.temporal(layer, mixed, after)
        return after, bool(_PARAMETERS & self.origins.of(h)[0])

    @property
    def requests(self) -> list[tuple[int, str, str, int]]:
        """Layer, kind, direction and width of every aggregation."""
        return [(note.layer, note.kind, note.direction, note.width) for note in self.view.notes]


class _Mark(torch.autograd.Function):
    """The identity, which records the number of a pull in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, number: int) -> Tensor:
        ctx.number = number
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Origins:
    """The leaves and pulls that tensors depend on, from autograd's graph."""

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}
        self._leaves: list[Tensor] = []  # keeps leaves alive, so that ids are not reused
        self._pulls: list[tuple[frozenset[str], int]] = []

    def label(self, leaf: Tensor, name: str) -> None:
        """Label a leaf of autograd's graph; leaves without a label are parameters."""
        self._leaves.append(leaf)
        self._labels[id(leaf)] = name

    def pulled(self, rows: Tensor, sources: frozenset[str], hops: int) -> Tensor:
        """Mark pulled rows, so that :meth:`of` stops there."""
        self._pulls.append((sources, hops))
        marked: Tensor = _Mark.apply(rows, len(self._pulls) - 1)
        return marked

    def of(self, *tensors: Tensor) -> tuple[frozenset[str], int]:
        """Return the sources of some tensors, and the longest chain of pulls along edges that they depend on."""
        sources: set[str] = set()
        hops, visited, queue = 0, set(), []
        for x in tensors:
            if x.grad_fn is not None:
                queue.append(x.grad_fn)
            elif x.requires_grad:
                sources.add(self._labels.get(id(x), "parameter"))
        while queue:
            node = queue.pop()
            if node in visited:
                continue
            visited.add(node)
            if isinstance(node, _Mark._backward_cls):
                pull_sources, chain = self._pulls[node.number]
                sources |= pull_sources
                hops = max(hops, chain)
            elif hasattr(node, "variable"):
                sources.add(self._labels.get(id(node.variable), "parameter"))
            else:
                queue += [after for after, _ in node.next_functions if after is not None]
        return frozenset(sources), hops


class DryView(GraphView):
    """A view of a few nodes without edges: a pull returns its input, and is recorded."""

    def __init__(self, origins: _Origins) -> None:
        self._origins, self._layer = origins, 0
        self.notes: list[_Note] = []
        # the inputs and pulls of them, which a view would cache, with their versions
        self.features: list[tuple[Tensor, int]] = []

    @property
    def num_rows(self) -> int:
        """The number of nodes."""
        return _NODES

    def layer(self, number: int) -> DryView:
        """Return this view, which records another layer from now on."""
        self._layer = number
        return self

    def check_features(self, model: str) -> None:
        """Check that a model has not changed cached rows in place.

        Raises:
            UnsupportedError: it has changed its input, or a pull of it, in place.
        """
        if any(x._version != version for x, version in self.features):
            raise UnsupportedError(
                f"{model}.spatial changes its input, or a pull of it, in place, but views cache these from step to "
                "step. Make a new tensor: y = y * 0.9 instead of y *= 0.9."
            )

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the rows.

        Raises:
            UnsupportedError: there is no such kind.
        """
        check_pull(kind, scores)
        if scores is None:
            of_features = self._is_of_features(x)
            pulled = self._send(kind, DIRECTION_OF[kind], x, of_features=of_features)
            self.features += [(pulled, pulled._version)] * of_features
            return pulled
        sent_to, received = scores
        z, sent = self._send(kind, "in", x, sent_to).split([x.shape[1], sent_to.shape[1]], dim=1)
        return z + 0 * (sent + received).sum(1, keepdim=True)

    def columns(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows."""
        return self._send("messages", direction, x, of_features=self._is_of_features(x))

    def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return an edge from each node to itself."""
        nodes = torch.arange(_NODES)
        return nodes, nodes, torch.ones(_NODES, 1, dtype=torch.float64)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k rows with the largest scores, repeating rows if k exceeds the number of nodes."""
        sent = self._send("top", "top", x, scores.unsqueeze(1), along_edges=False)
        best = torch.sort(sent[:, -1], descending=True, stable=True).indices[torch.arange(k) % _NODES]
        return sent[:, :-1].index_select(0, best), sent[:, -1].index_select(0, best)

    def _is_of_features(self, x: Tensor) -> bool:
        return any(x is tensor for tensor, _ in self.features)

    def _send(
        self, kind: str, direction: str, *rows: Tensor, along_edges: bool = True, of_features: bool = False
    ) -> Tensor:
        """Record rows that are sent together, and return them as received."""
        for tensor in rows:
            if not isinstance(tensor, Tensor):
                raise UnsupportedError(f"graph.{kind} got a {type(tensor).__name__}. Pass a tensor of rows.")
            if len(tensor) != _NODES:
                raise UnsupportedError(
                    f"the model sends {len(tensor)} rows by graph.{kind} for {_NODES} nodes. Send one row for each."
                )
        sent = torch.cat([tensor.flatten(1) for tensor in rows], dim=1) if len(rows) > 1 else rows[0]
        sources, hops = self._origins.of(sent)
        self.notes.append(_Note(self._layer, kind, direction, sent[0].numel(), sources, of_features))
        return self._origins.pulled(sent, sources, hops + along_edges)


class _Path(DenseView):
    """A path of nodes, with edges in both directions."""

    def __init__(self, nodes: int) -> None:
        ones = torch.ones(nodes - 1, dtype=torch.float64)
        super().__init__(torch.diag(ones, 1) + torch.diag(ones, -1))

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return k rows, repeating rows if there are fewer nodes."""
        rows, best = super().top(x, scores, k)
        cycle = torch.arange(k) % len(rows)
        return rows[cycle], best[cycle]
