"""The interface of every model, and the one way a snapshot is computed from its parts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.rng import torch_seed

# The recurrent state of a model, for all layers.
#
# The state is an input and an output of a model; modules do not store it. Models never detach it: the gradient of a
# loss runs back through all snapshots since the state was created. The strategy truncates it (truncated BPTT) by
# :meth:`State.detach`, always between two snapshots. Group layouts start each group from ``initial_state`` and never
# detach; a layout that carries the state from one step to the next detaches it after that step's backward pass, when
# torch frees the history. A learned initial state (the initial weights of EvolveGCN) therefore gets its gradient only
# from steps that start at ``initial_state``.


@dataclass(frozen=True, slots=True)
class State:
    """Recurrent state: one tuple of tensors per layer.

    Where ``per_vertex``, each tensor has one row per node held (memories ``per_vertex`` and ``neighbourhood``, and
    ``none`` with no tensors); else rows are not nodes (memories ``weights`` and ``weights_from_data``).
    """

    layers: tuple[tuple[Tensor, ...], ...]
    per_vertex: bool = True

    @property
    def tensors(self) -> list[Tensor]:
        """Those of all layers, in order."""
        return [tensor for layer in self.layers for tensor in layer]

    def with_layer(self, layer: int, tensors: tuple[Tensor, ...]) -> State:
        """A copy with one layer's tensors replaced."""
        return State((*self.layers[:layer], tensors, *self.layers[layer + 1 :]), self.per_vertex)

    def detach(self) -> State:
        """The same values without their history."""
        return State(tuple(tuple(t.detach() for t in layer) for layer in self.layers), self.per_vertex)

    def slice(self, rows: slice) -> State:
        """The state of some of the nodes; weight memories are the same for all and stay whole."""
        if not self.per_vertex:
            return self
        return State(tuple(tuple(t[rows] for t in layer) for layer in self.layers))


def stack_layer(states: Sequence[State], layer: int) -> State:
    """The last state with one layer's tensors stacked over S snapshots, each (S, ...).

    It is what a model's ``spatial`` takes where its space stands for S snapshots and its memory is of weights: one W
    for each of them.
    """
    stacked = tuple(torch.stack(tensors) for tensors in zip(*(state.layers[layer] for state in states), strict=True))
    return states[-1].with_layer(layer, stacked)


# what a model may remember, as the catalogue and the layouts name it
MEMORIES = ("per_vertex", "weights", "weights_from_data", "neighbourhood", "none")


REDUCTIONS = ("sum", "mean", "amax")  # of messages


class GraphView:
    """How a model sees neighbours; the strategy decides what stands behind it.

    A view may stand for S snapshots stacked block-diagonally (rows s n .. (s + 1) n - 1 are snapshot s); its methods
    then work on all of them at once, and a model cannot tell. A model calls :meth:`gcn`, :meth:`mean`,
    :meth:`attention`, :meth:`messages` and :meth:`top`; a strategy's view defines :meth:`pull`, :meth:`columns`,
    :meth:`edges` and ``top``, and where they differ from the default :meth:`num_targets` and :meth:`drawn_share`.
    """

    @property
    def num_rows(self) -> int:
        """Nodes whose rows the model computes (own rows first)."""
        raise NotImplementedError

    def layer(self, number: int) -> GraphView:
        """Return the view as one layer of a model is to see it: a strategy may count, or lay out, layers apart."""
        return self

    def gcn(self, x: Tensor) -> Tensor:
        """Return Ã x, symmetrically normalised, with self loops: (n, F) -> (n, F)."""
        return self.pull(x, "gcn")

    def mean(self, x: Tensor, edges: str = "in") -> Tensor:
        """Return the weighted mean over in- or out-neighbours (``edges``), 0 where there are none: (n, F) -> (n, F)."""
        return self.pull(x, "diffusion-out" if edges == "out" else "mean")

    def attention(self, x: Tensor, scores_from: Tensor, scores_to: Tensor) -> Tensor:
        """Return softmax attention over in-neighbours and the node itself.

        Args:
            x: (n, heads d), the heads side by side.
            scores_from: (n, heads).
            scores_to: (n, heads): node v weighs u by the softmax over u of LeakyReLU(from[u] + to[v]), slope 0.2.
        """
        return self.pull(x, "attention", (scores_from, scores_to))

    def messages(
        self,
        x: Tensor,
        message: Callable[[Tensor, Tensor, Tensor | None], Tensor],
        edges: str = "in",
        reduce: str = "sum",
    ) -> Tensor:
        """Return any message of every edge, reduced by the node that receives it: (n, F) -> (n, C).

        Args:
            x: (n, F) rows that are sent.
            message: ``message(x_source, x_target, weight)``: (E, F), (E, F) and (E, 1), or None where edges carry no
                weight -> (E, C).
            edges: ``in`` receives along edges, ``out`` against them.
            reduce: ``sum``, ``mean`` or ``amax``; a node without such edges gets 0. Where neighbours are sampled, a sum
                is divided by the share that was drawn.

        Raises:
            UnsupportedError: there is no such way to reduce, or the view cannot send messages along such edges.
        """
        if reduce not in REDUCTIONS:
            raise UnsupportedError(f"reduce={reduce!r}: messages are reduced by {', '.join(REDUCTIONS)}. Choose one.")
        if edges not in ("in", "out"):
            raise UnsupportedError(f"edges={edges!r}: messages are received along 'in'- or 'out'-edges. Choose one.")
        sources = self.columns(x, edges)
        source, target, weight = self.edges(edges)
        sent = message(sources.index_select(0, source), x.index_select(0, target), weight)
        received = sent.new_zeros(self.num_targets(x, edges), *sent.shape[1:])
        if reduce == "sum":
            total, share = received.index_add(0, target, sent), self.drawn_share(edges)
            return total if share is None else total / share.view(-1, *(1,) * (sent.ndim - 1)).to(sent.dtype)
        index = target.view(-1, *(1,) * (sent.ndim - 1)).expand_as(sent)
        return received.scatter_reduce(0, index, sent, reduce, include_self=False)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the rows of the k nodes of the snapshot with the largest scores, largest first, and these scores.

        Ties go to the lower node; fewer than k nodes give all of them. Differentiable in both.

        Args:
            x: (n, F).
            scores: (n,).
            k: how many.

        Returns:
            (min(k, N), F) rows and (min(k, N),) scores; the same for every part of the snapshot.
        """
        raise NotImplementedError

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return one hop of neighbours' rows combined, (n, F) -> (n, F).

        Args:
            x: (n, F) rows; for ``attention`` (n, heads d).
            kind: ``gcn``, ``mean`` and ``diffusion-in`` (weighted mean over in-neighbours), ``diffusion-out`` or
                ``attention``.
            scores: for ``attention``, (from, to), each (n, heads).
        """
        raise NotImplementedError

    def columns(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows of everyone that own rows receive from, own rows first: (n, F) -> (M, F), differentiable."""
        raise NotImplementedError

    def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return of every edge the column it comes from, the row it goes to, (E,) each, and its weight, (E, 1)."""
        raise NotImplementedError

    def num_targets(self, x: Tensor, direction: str) -> int:
        """Return the number of rows that receive along a direction: of x, the first ones."""
        return len(x)

    def drawn_share(self, direction: str) -> Tensor | None:
        """Return the share of each row's neighbours that were drawn, (n,); None where all are here."""
        return None


class DynamicModel(nn.Module):
    """A DTDG model, taken apart into what mixes nodes and what runs through time.

    A layer first evolves its weights (``evolve``; memories of weights), then mixes neighbours (``spatial``, the only
    place that pulls), then runs each node through time (``temporal_sequence``, for S snapshots at once).

    A layout may compute S snapshots together, layer by layer: ``evolve`` for each of them in turn, ``spatial`` once on
    a stacked view (with the layer's weights stacked too, see :func:`dtdg_lab.models.base.stack_layer`), then
    ``temporal_sequence``, in blocks of nodes if it likes. This holds for every memory but ``neighbourhood``, whose
    ``spatial`` reads what the snapshot before left.

    Args:
        features: F, width of the input.
        hidden: H, width of every layer's output.
        layers: number of layers.
        outputs: numbers predicted for each node.
        seed: parameters are drawn from the stream (seed, "parameters").
    """

    memory: ClassVar[str]
    hops_per_layer: int = 1

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.features, self.hidden, self.layers, self.outputs = features, hidden, layers, outputs
        self.readout_layer = nn.Linear(hidden, outputs)
        self._seed = seed

    def reset_parameters(self) -> None:
        """Draw every parameter from the model's stream, in float32 on the CPU: matrices Glorot-uniform, vectors zero.

        The caller's default type and device, and torch's own random state, do not matter.
        """
        self.to_empty(device="cpu").float()
        draw = torch.Generator("cpu").manual_seed(torch_seed(self._seed, "parameters"))
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim < 2:
                    parameter.zero_()
                    continue
                for matrix in parameter.view(-1, *parameter.shape[-2:]):  # gates are stacked, each drawn for itself
                    nn.init.xavier_uniform_(matrix, generator=draw)

    def width(self, layer: int) -> int:
        """Input width of a layer."""
        return self.features if layer == 0 else self.hidden

    def initial_state(self, rows: int) -> State:
        """The state before the first snapshot, for ``rows`` nodes."""
        raise NotImplementedError

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of the parameters' type, on their device."""
        return self.readout_layer.weight.new_zeros(shape)

    def evolve(self, layer: int, graph: GraphView, x: Tensor, state: State) -> State:
        """Advance a layer's weights by one snapshot, given its input x (n, width); no change where they are constant.

        ``graph`` stands for a single snapshot. A model may define :class:`Summarising` beside it.
        """
        return state

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Mix neighbours: (n, width) -> (n, C), whatever ``temporal_sequence`` takes.

        All pulls are here, and little else after the last one: what it returns is kept for every node and snapshot.
        """
        raise NotImplementedError

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run nodes through S consecutive snapshots: (S, n, C) -> (S, n, H) and the last state; rows never mix.

        A model may take one more argument, ``heights``: S ascending numbers, where snapshot t has the first
        ``heights[t]`` of the n nodes of ``state``. Unless all are equal, rows then lie packed, those of one snapshot
        after those of the one before: (1, R, C) -> (1, R, H), R the sum of the heights. A node starts from its state
        at the first snapshot that has it, or from zero where ``state`` has fewer rows. The state returned is each
        node's after this snapshot, without history.
        """
        return x, state

    @functools.cached_property
    def takes_heights(self) -> bool:
        """Whether ``temporal_sequence`` takes packed rows; a layout that has such rows else calls it run by run."""
        return "heights" in inspect.signature(self.temporal_sequence).parameters

    @torch.no_grad()
    def states_after(self, layer: int, x: Tensor, h: Tensor, state: State) -> tuple[Tensor, ...]:
        """A layer's state after each of S snapshots, without history: each tensor (S, n, ...).

        Args:
            layer: of the model.
            x: (S, n, C), what ``temporal_sequence`` was given.
            h: (S, n, H), what it returned; a model whose state is its output returns it without computing it again.
            state: before the first snapshot.
        """
        found = []
        for of_snapshot in x:
            state = self.temporal(layer, of_snapshot, state)[1]
            found.append(state.layers[layer])
        return tuple(torch.stack(tensors) for tensors in zip(*found, strict=True))

    def temporal(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run nodes through one snapshot: (n, C) -> (n, H) and the new state."""
        h, state = self.temporal_sequence(layer, x.unsqueeze(0), state)
        return h.squeeze(0), state

    def snapshot(self, graph: GraphView, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One snapshot through all layers: (n, F) -> (n, H) and the new state."""
        for layer in range(self.layers):
            seen = graph.layer(layer)
            state = self.evolve(layer, seen, x, state)
            x = self.spatial(layer, seen, x, state)
            x, state = self.temporal(layer, x, state)
        return x, state

    def readout(self, h: Tensor) -> Tensor:
        """Predictions of each node: (..., H) -> (..., outputs)."""
        weight, bias = self.readout_layer.weight, self.readout_layer.bias
        if h.ndim < 3 or h.is_contiguous():
            return torch.nn.functional.linear(h, weight, bias)
        return vertices_last(h, weight.t()) + bias


@runtime_checkable
class Summarising(Protocol):
    """A model with ``weights_from_data`` whose ``evolve`` is ``advance`` of a ``summary``.

    Need not be defined. Where ranks hold different snapshots, they then summarise them at once and exchange the
    summaries; otherwise each waits for the state of the rank before it.
    """

    def summary(self, layer: int, graph: GraphView, x: Tensor) -> Tensor:
        """Return what a layer's weights need to know of a snapshot, (width, H), from its input (n, width)."""

    def advance(self, layer: int, summary: Tensor, state: State) -> State:
        """Return the state after a snapshot with this summary."""


def apply_weights(x: Tensor, weights: Tensor) -> Tensor:
    """Product x W with one W for all rows, or one for each of S stacked snapshots.

    Args:
        x: (n, F), or (S n, F) with the snapshots' rows one after another.
        weights: (F, C), or (S, F, C).

    Returns:
        (n, C), or (S n, C).
    """
    if weights.ndim == 2:
        return x @ weights
    return torch.bmm(x.view(len(weights), -1, x.shape[1]), weights).flatten(0, 1)


def vertices_last(x: Tensor, weights: Tensor) -> Tensor:
    """Product x W for S snapshots, (S, n, C) times (C, H): (S, n, H), which lies in memory as (S, H, n).

    Recurrences work on nodes side by side (:mod:`dtdg_lab.kernels.recurrence`): what goes into one and what comes
    out of one is best multiplied as it lies.
    """
    return torch.bmm(weights.t().expand(len(x), -1, -1), x.transpose(1, 2)).transpose(1, 2)


def side_by_side(gates: Tensor) -> Tensor:
    """Weights of G gates (G, C, H) as one matrix (C, G H), so that one product serves them all."""
    return gates.transpose(0, 1).flatten(1)
