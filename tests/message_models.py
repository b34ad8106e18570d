"""Models of a user, not of the catalogue: the same means of neighbours by a kind of pull and by message functions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor, nn

from dtdg_lab.core import catalogue
from dtdg_lab.models.base import GlorotModel, State
from dtdg_lab.models.graph_view import GraphView


class SmoothedModel(GlorotModel):
    """With Y_t of ``spatial``, a sigmoid of the rate: h_t = a * h_{t-1} + (1 - a) * ReLU(Y_t W)."""

    by_messages: ClassVar[bool] = False
    mixed_width: ClassVar[str] = "input"  # of what spatial returns: input or hidden

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        widths = [self.width(layer) for layer in range(layers)]
        mixed = [hidden if self.mixed_width == "hidden" else width for width in widths]
        self.project = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.update = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in mixed)
        self.rate = nn.ParameterList(nn.Parameter(torch.empty(hidden)) for _ in widths)
        self.reset_parameters()

    def average(self, graph: GraphView, x: Tensor, edges: str = "in") -> Tensor:
        """Return the mean over neighbours along edges without weights."""
        if not self.by_messages:
            return graph.mean(x, edges)
        return graph.messages(x, lambda source, target, weight: source + 0 * target, edges, "mean")

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        (h,), share, steps = state.layers[layer], torch.sigmoid(self.rate[layer]), []
        for y in torch.relu(x @ self.update[layer]):
            h = share * h + (1 - share) * y
            steps.append(h)
        return torch.stack(steps), state.with_layer(layer, (h,))


class MeanOfInputs(SmoothedModel):
    """Averages what it is fed: in the first layer, features."""

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        return self.average(graph, x)


class MeanOfSquashed(SmoothedModel):
    """Averages what depends on no parameter, yet is not what it is fed."""

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        return self.average(graph, torch.tanh(x))


class MeanOfMeans(SmoothedModel):
    """Two hops along in-edges, the second of rows that depend on parameters."""

    mixed_width = "hidden"

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        return self.average(graph, torch.tanh(self.average(graph, x) @ self.project[layer]))


class MeanBothWays(SmoothedModel):
    """In-neighbours of rows that depend on parameters, then out-neighbours."""

    mixed_width = "hidden"

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        return self.average(graph, torch.tanh(self.average(graph, x @ self.project[layer])), "out")


class Forgetful(MeanOfMeans):
    """Remembers nothing."""

    remembers = 0

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        return torch.relu(x @ self.update[layer]), state


class TopDriven(SmoothedModel):
    """The mean of the best rows, by a learned score, turns a weight; ``evolve`` alone is defined."""

    K = 4

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        widths = [self.width(layer) for layer in range(layers)]
        self.scorer = nn.ParameterList(nn.Parameter(torch.empty(width, 1)) for width in widths)
        self.first = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        return State(tuple((first,) for first in self.first), per_vertex=False)

    def evolve(self, layer: int, graph: GraphView, x: Tensor, state: State) -> State:
        (weights,), scores = state.layers[layer], (x @ self.scorer[layer]).squeeze(1)
        rows, best = graph.top(x, scores, self.K)
        least, _ = graph.top(x, -scores, 1)  # asked twice, for other numbers of rows
        driven = (rows * torch.sigmoid(best).unsqueeze(1)).mean(0) - least[0]
        return state.with_layer(layer, (torch.tanh(weights + driven.unsqueeze(1) * self.rate[layer] + weights**2),))

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        weights = state.layers[layer][0]
        return torch.relu(self.average(graph, x) @ weights)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        return x, state


MODELS: Mapping[str, type[SmoothedModel]] = MappingProxyType(
    {
        "inputs": MeanOfInputs,
        "squashed": MeanOfSquashed,
        "means": MeanOfMeans,
        "both-ways": MeanBothWays,
        "forgetful": Forgetful,
        "top": TopDriven,
    }
)


def __getattr__(name: str) -> type[SmoothedModel]:
    """Return the class of a model's name and of how it averages, such as ``means_by_messages``."""
    kind, _, how = name.partition("_by_")
    if kind.replace("_", "-") not in MODELS:
        raise AttributeError(name)
    return type(name, (MODELS[kind.replace("_", "-")],), {"by_messages": how == "messages"})


def name_of(kind: str, *, by_messages: bool) -> str:
    """Return the name in the catalogue."""
    return f"{kind}-by-{'messages' if by_messages else 'pulls'}"


def register_models() -> None:
    """Add them to the catalogue of this process."""
    for kind in MODELS:
        for by_messages in (False, True):
            name = name_of(kind, by_messages=by_messages)
            target = f"message_models:{name.replace('-', '_')}"
            if name not in catalogue.names("models"):
                about = {"summary": "A test's.", "source": "this test"}
                catalogue.ENTRIES.append(catalogue.Entry(name=name, kind="models", target=target, **about))
