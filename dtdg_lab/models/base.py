"""Base classes of models, and the computation of a snapshot from a model's parts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from dtdg_lab.config.model_facts import ModelFacts
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import torch_seed
from dtdg_lab.kernels.torch_defaults import torch_defaults
from dtdg_lab.models.dry_run import facts_of, facts_of_class
from dtdg_lab.models.graph_view import GraphView

# The state is an input and an output of a model; modules do not store it. Models never detach it: gradients run back
# through all snapshots since the state was created. The strategy truncates them (truncated BPTT) with
# :meth:`State.detach`, always between two snapshots. Strategies of snapshot groups start each group from
# ``initial_state`` and never detach. A strategy that carries the state from step to step detaches it after the step's
# backward. A learned initial state (the initial weights of EvolveGCN) therefore gets its gradient only from steps that
# start at ``initial_state``.


@dataclass(frozen=True, slots=True)
class State:
    """Recurrent state: one tuple of tensors per layer.

    Attributes:
        layers: tensors of each layer.
        per_vertex: whether each tensor has one row per node, as for the memories ``per_vertex``, ``neighbourhood`` and
            ``none`` (without tensors); False for ``weights`` and ``weights_from_data``.
    """

    layers: tuple[tuple[Tensor, ...], ...]
    per_vertex: bool = True

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors of all layers, in order."""
        return [tensor for layer in self.layers for tensor in layer]

    def with_layer(self, layer: int, tensors: tuple[Tensor, ...]) -> State:
        """Return a copy with one layer's tensors replaced."""
        return State((*self.layers[:layer], tensors, *self.layers[layer + 1 :]), self.per_vertex)

    def detach(self) -> State:
        """Return the same values, detached."""
        return State(tuple(tuple(t.detach() for t in layer) for layer in self.layers), self.per_vertex)

    def slice(self, rows: slice) -> State:
        """Return the state of some nodes; a state of weights is shared by all nodes and returned whole."""
        if not self.per_vertex:
            return self
        return State(tuple(tuple(t[rows] for t in layer) for layer in self.layers))


def stack_layer(states: Sequence[State], layer: int) -> State:
    """Return the last state with one layer's tensors stacked over S snapshots, each (S, ...).

    On a stacked view, ``spatial`` of a model with a memory of weights takes this state, with a W for each snapshot.
    """
    stacked = tuple(torch.stack(tensors) for tensors in zip(*(state.layers[layer] for state in states), strict=True))
    return states[-1].with_layer(layer, stacked)


class DynamicModel(nn.Module):
    """A DTDG model in two parts: one mixes nodes, the other runs through time.

    A layer first evolves its weights (``evolve``, optional), then mixes neighbours (``spatial``), then runs each node
    through time (``temporal_sequence``, S snapshots at once). A model is ordinary PyTorch, and its constructor
    initialises the parameters like any module. A dry run determines its pulls, reach and memory: :attr:`facts`.

    A strategy may compute S snapshots together, layer by layer: ``evolve`` for each in turn, ``spatial`` once on
    a stacked view (with the layer's weights stacked too, see :func:`dtdg_lab.models.base.stack_layer`), then
    ``temporal_sequence``, possibly in blocks of nodes. This excludes the memory ``neighbourhood``, whose ``spatial``
    reads the state after the previous snapshot.

    Args:
        features: width of the input, F.
        hidden: width of every layer's output, H.
        layers: number of layers.
        outputs: numbers predicted for each node.

    Attributes:
        remembers: number of tensors (n, H) that nodes carry in each layer between snapshots, initially zero. A model
            whose state has another shape overrides ``initial_state`` instead.
    """

    remembers: int = 1

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__()
        self.features, self.hidden, self.layers, self.outputs = features, hidden, layers, outputs
        self.readout_layer = nn.Linear(hidden, outputs)

    @functools.cached_property
    def facts(self) -> ModelFacts:
        """Facts of the model that training needs, from dry runs.

        Raises:
            UnsupportedError: the model's pulls depend on values, or its rows have a wrong shape.
        """
        return facts_of(self)

    @classmethod
    def facts_at(cls, features: int, hidden: int, layers: int, **options: Any) -> ModelFacts:
        """Return the facts of the class for given sizes and options.

        Raises:
            ConfigError: the class rejects an option, or its constructor fails.
            UnsupportedError: as for :attr:`facts`.
        """
        return facts_of_class(cls, (features, hidden, layers), options)

    @property
    def memory(self) -> str:
        """The memory that the model carries between snapshots, one of :data:`dtdg_lab.config.model_facts.MEMORIES`."""
        return self.facts.memory

    def width(self, layer: int) -> int:
        """Return the input width of a layer."""
        return self.features if layer == 0 else self.hidden

    def initial_state(self, rows: int) -> State:
        """Return the state before the first snapshot, for ``rows`` nodes."""
        return State(tuple((self.zeros(rows, self.hidden),) * self.remembers for _ in range(self.layers)))

    def zeros(self, *shape: int) -> Tensor:
        """Return zeros of the parameters' type, on their device."""
        return self.readout_layer.weight.new_zeros(shape)

    def evolve(self, layer: int, graph: GraphView, x: Tensor, state: State) -> State:
        """Advance a layer's weights by one snapshot, given its input x (n, width); constant by default.

        ``graph`` is a single snapshot. A model may implement :class:`Summarising` too.
        """
        return state

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Mix neighbours: (n, width) -> (n, C), the input of ``temporal_sequence``.

        All pulls belong here, with little work after the last one: its output is stored for every node and snapshot.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no spatial(layer, graph, x, state)")

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run nodes through S consecutive snapshots: (S, n, C) -> (S, n, H) and the last state; rows never mix.

        A model may take another argument, ``heights``: S ascending numbers, where snapshot t has the first
        ``heights[t]`` nodes. Unless all are equal, rows are then packed snapshot after snapshot: (1, R, C) ->
        (1, R, H), with R the sum of the heights. A node starts from its state at its first snapshot, or from zero if
        ``state`` has fewer rows. The returned state is each node's after its first snapshot, detached.
        """
        return x, state

    @functools.cached_property
    def takes_heights(self) -> bool:
        """True if ``temporal_sequence`` takes packed rows; else a strategy calls it for each run of equal heights."""
        return "heights" in inspect.signature(self.temporal_sequence).parameters

    @torch.no_grad()
    def states_after(self, layer: int, x: Tensor, h: Tensor, state: State) -> tuple[Tensor, ...]:
        """Return a layer's state after each of S snapshots, detached: each tensor (S, n, ...).

        Args:
            layer: layer of the model.
            x: (S, n, C), input of ``temporal_sequence``.
            h: (S, n, H), its output; a model whose state is its output returns it.
            state: state before the first snapshot.
        """
        states = []
        for rows in x:
            state = self.temporal(layer, rows, state)[1]
            states.append(state.layers[layer])
        return tuple(torch.stack(tensors) for tensors in zip(*states, strict=True))

    def temporal(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run nodes through one snapshot: (n, C) -> (n, H) and the new state."""
        h, state = self.temporal_sequence(layer, x.unsqueeze(0), state)
        return h.squeeze(0), state

    def snapshot(self, graph: GraphView, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run one snapshot through all layers: (n, F) -> (n, H) and the new state."""
        for layer in range(self.layers):
            view = graph.layer(layer)
            state = self.evolve(layer, view, x, state)
            x = self.spatial(layer, view, x, state)
            x, state = self.temporal(layer, x, state)
        return x, state

    def readout(self, h: Tensor) -> Tensor:
        """Return predictions of each node: (..., H) -> (..., outputs)."""
        weight, bias = self.readout_layer.weight, self.readout_layer.bias
        if h.ndim < 3 or h.is_contiguous():
            return torch.nn.functional.linear(h, weight, bias)
        return vertices_last(h, weight.t()) + bias


class StepModel(DynamicModel):
    """A model written for one snapshot at a time: ``spatial`` mixes neighbours, ``step`` advances nodes in time.

    The state has as many tensors (n, H) as ``step`` has arguments after ``layer`` and ``x``, initially zero::

        class SmoothedGCN(StepModel):
            def __init__(self, features, hidden, layers=1, *, outputs=1):
                super().__init__(features, hidden, layers, outputs=outputs)
                self.convolve = nn.ModuleList(nn.Linear(self.width(i), hidden, bias=False) for i in range(layers))
                self.rate = nn.ParameterList(nn.Parameter(torch.zeros(hidden)) for _ in range(layers))

            def spatial(self, layer, graph, x, state):
                return graph.gcn(x)

            def step(self, layer, x, h):
                share = torch.sigmoid(self.rate[layer])
                h = share * h + (1 - share) * torch.relu(self.convolve[layer](x))
                return h, h
    """

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        self.remembers = len(inspect.signature(self.step).parameters) - 2

    def step(self, layer: int, x: Tensor, *state: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Run nodes through one snapshot; rows never mix.

        Args:
            layer: layer of the model.
            x: (n, C), output of ``spatial``.
            state: tensors (n, H), as separate arguments.

        Returns:
            The output (n, H), then each tensor of the new state; only the output if there is no state.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no step(layer, x, ...)")

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Step through S snapshots: (S, n, C) -> (S, n, H) and the last state."""
        tensors, outputs = state.layers[layer], []
        for rows in x:
            returned = self.step(layer, rows, *tensors)
            output, *after = (returned,) if isinstance(returned, Tensor) else returned
            if len(after) != len(tensors):
                returns = "only one tensor" if isinstance(returned, Tensor) else f"{len(after)} after the output"
                raise ConfigError(
                    f"{type(self).__name__}.step takes {len(tensors)} tensors of state but returned {returns}. Return "
                    "the output, then as many tensors as it takes, such as: return h, h."
                )
            tensors = tuple(after)
            outputs.append(output)
        return torch.stack(outputs), state.with_layer(layer, tensors)


class GlorotModel(DynamicModel):
    """A model with Glorot-uniform matrices, each gate separately, and zero vectors."""

    def reset_parameters(self) -> None:
        """Initialise all parameters from torch's default generator."""
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim < 2:
                    parameter.zero_()
                    continue
                for matrix in parameter.view(-1, *parameter.shape[-2:]):  # gates are stacked
                    nn.init.xavier_uniform_(matrix)


def make_model(
    make: Callable[..., DynamicModel],
    features: int,
    hidden: int,
    layers: int = 1,
    *,
    outputs: int = 1,
    seed: int = 0,
    **options: Any,
) -> DynamicModel:
    """Make a model with parameters from the stream (seed, "parameters"), in float32 on the CPU.

    The caller's default type and device, and torch's random state, have no effect and do not change.

    Args:
        make: the model's class.
        features: width of the input, F.
        hidden: width of every layer's output, H.
        layers: number of layers.
        outputs: numbers predicted for each node.
        seed: seed of the parameters.
        options: options of the model.
    """
    parameter_seed = torch_seed(seed, "parameters")
    with torch_defaults(), torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(parameter_seed)
        model = make(features, hidden, layers, outputs=outputs, **options)
        if type(model).__init__.__module__.startswith("dtdg_lab.models.") and isinstance(model, GlorotModel):
            # again, so that draws of submodules have no effect
            torch.default_generator.manual_seed(parameter_seed)
            model.reset_parameters()
    return model


@runtime_checkable
class Summarising(Protocol):
    """Optional interface of a model with ``weights_from_data`` whose ``evolve`` is ``advance`` of a ``summary``.

    Ranks with different snapshots then summarise them in parallel and exchange the summaries. Without it, each rank
    waits for the state of the previous one.
    """

    def summary(self, layer: int, graph: GraphView, x: Tensor) -> Tensor:
        """Return the summary of a snapshot for a layer's weights, (width, H), from its input (n, width)."""

    def advance(self, layer: int, summary: Tensor, state: State) -> State:
        """Return the state after a snapshot with this summary."""


def apply_weights(x: Tensor, weights: Tensor) -> Tensor:
    """Return the product x W, with one W for all rows, or one W for each of S stacked snapshots.

    Args:
        x: (n, F), or (S n, F) of stacked snapshots.
        weights: (F, C), or (S, F, C).

    Returns:
        (n, C), or (S n, C).
    """
    if weights.ndim == 2:
        return x @ weights
    return torch.bmm(x.view(len(weights), -1, x.shape[1]), weights).flatten(0, 1)


def vertices_last(x: Tensor, weights: Tensor) -> Tensor:
    """Return x W for S snapshots, (S, n, C) times (C, H): (S, n, H), with memory layout (S, H, n).

    Recurrences use this layout (:mod:`dtdg_lab.kernels.recurrence`), so their inputs and outputs need no transposition.
    """
    return torch.bmm(weights.t().expand(len(x), -1, -1), x.transpose(1, 2)).transpose(1, 2)


def side_by_side(gates: Tensor) -> Tensor:
    """Return the weights of G gates (G, C, H) as one matrix (C, G H), for a single product."""
    return gates.transpose(0, 1).flatten(1)
