"""The interface of every model, and the one way a snapshot is computed from its parts."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor, nn

from dtdg_lab.core.streams import torch_seed
from dtdg_lab.models.state import State

T = TypeVar("T")


class Space(Protocol):
    """How a model sees neighbours; the layout decides what stands behind it."""

    @property
    def num_rows(self) -> int:
        """Vertices whose rows the model computes (own rows first)."""
        ...

    async def pull(self, x: Tensor, kind: str) -> Tensor:
        """One hop of neighbours' rows combined: (n, F) -> (n, F). ``kind`` is ``gcn``."""
        ...


class DynamicModel(nn.Module):
    """A DTDG model, taken apart into what mixes vertices and what runs through time.

    A layer first evolves its weights (``evolve``; models with ``weights`` memory), then mixes neighbours
    (``spatial``), then runs each vertex through time (``temporal``; models with ``per_vertex`` memory).

    Args:
        features: F, width of the input.
        hidden: H, width of every layer's output.
        layers: number of layers.
        seed: parameters are drawn from the stream (seed, "parameters").
    """

    memory: ClassVar[str]
    hops_per_layer: int = 1

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int) -> None:
        super().__init__()
        self.features, self.hidden, self.layers = features, hidden, layers
        self.readout_layer = nn.Linear(hidden, 1)
        self._seed = seed

    def reset_parameters(self) -> None:
        """Draw every parameter anew from the model's stream: matrices Glorot-uniform, vectors zero."""
        draw = torch.Generator().manual_seed(torch_seed(self._seed, "parameters"))
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
        """The state before the first snapshot, for ``rows`` vertices."""
        raise NotImplementedError

    def evolve(self, layer: int, state: State) -> State:
        """Advance a layer's weights by one snapshot; the state unchanged where weights are constant."""
        return state

    async def spatial(self, layer: int, space: Space, x: Tensor, state: State) -> Tensor:
        """Mix neighbours: (n, width) -> (n, anything that ``temporal`` takes)."""
        raise NotImplementedError

    def temporal(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run vertices through one snapshot: -> (n, H) and the new state; rows never mix."""
        return x, state

    async def snapshot(self, space: Space, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One snapshot through all layers: (n, F) -> (n, H) and the new state."""
        for layer in range(self.layers):
            state = self.evolve(layer, state)
            x = await self.spatial(layer, space, x, state)
            x, state = self.temporal(layer, x, state)
        return x, state

    def readout(self, h: Tensor) -> Tensor:
        """One prediction a vertex: (n, H) -> (n,)."""
        return self.readout_layer(h).squeeze(-1)


def run_straight(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a model's coroutine whose space never suspends, and return its result.

    Raises:
        RuntimeError: the coroutine waited for an exchange; such a space needs a layout that drives it.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("the model waited for an exchange, but this layout has none to offer")
