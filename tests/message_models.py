"""Models of a user, not of the catalogue: the same means of neighbours by a kind of pull and by message functions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor, nn

from dtdg_lab.core import catalogue, message_passing
from dtdg_lab.core.message_passing import Pull, Seam
from dtdg_lab.models.base import DynamicModel, GraphView, State


class SmoothedModel(DynamicModel):
    """With Y_t of ``spatial``, a sigmoid of the rate: h_t = a * h_{t-1} + (1 - a) * ReLU(Y_t W)."""

    memory = "per_vertex"
    by_messages: ClassVar[bool] = False
    mixed_width: ClassVar[str] = "input"  # of what spatial returns: input or hidden

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, seed: int = 0) -> None:
        super().__init__(features, hidden, layers, outputs=outputs, seed=seed)
        widths = [self.width(layer) for layer in range(layers)]
        mixed = [hidden if self.mixed_width == "hidden" else width for width in widths]
        self.project = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.update = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in mixed)
        self.rate = nn.ParameterList(nn.Parameter(torch.empty(hidden)) for _ in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        return State(tuple((self.zeros(rows, self.hidden),) for _ in range(self.layers)))

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

    hops_per_layer = 2
    mixed_width = "hidden"

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        return self.average(graph, torch.tanh(self.average(graph, x) @ self.project[layer]))


class MeanBothWays(SmoothedModel):
    """In-neighbours of rows that depend on parameters, then out-neighbours."""

    hops_per_layer = 2
    mixed_width = "hidden"

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        return self.average(graph, torch.tanh(self.average(graph, x @ self.project[layer])), "out")


class Forgetful(MeanOfMeans):
    """Remembers nothing."""

    memory = "none"

    def initial_state(self, rows: int) -> State:
        return State(((),) * self.layers)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        return torch.relu(x @ self.update[layer]), state


class TopDriven(SmoothedModel):
    """The mean of the best rows, by a learned score, turns a weight; ``evolve`` alone is defined."""

    memory = "weights_from_data"
    K = 4

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, seed: int = 0) -> None:
        super().__init__(features, hidden, layers, outputs=outputs, seed=seed)
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


PULLS: Mapping[str, tuple[type[SmoothedModel], tuple[tuple[str, str, bool], ...]]] = MappingProxyType(
    {
        "inputs": (MeanOfInputs, (("in", "input", False),)),
        "squashed": (MeanOfSquashed, (("in", "input", False),)),
        "means": (MeanOfMeans, (("in", "input", False), ("in", "hidden", True))),
        "both-ways": (MeanBothWays, (("in", "hidden", True), ("out", "hidden", True))),
        "forgetful": (Forgetful, (("in", "input", False), ("in", "hidden", True))),
        "top": (TopDriven, (("top", "input+1", True), ("top", "input+1", True), ("in", "input", False))),
    }
)


def __getattr__(name: str) -> type[SmoothedModel]:
    """Return the class of a model's name and of how it averages, such as ``means_by_messages``."""
    kind, _, how = name.partition("_by_")
    if kind.replace("_", "-") not in PULLS:
        raise AttributeError(name)
    base = PULLS[kind.replace("_", "-")][0]
    return type(name, (base,), {"by_messages": how == "messages"})


def name_of(kind: str, *, by_messages: bool) -> str:
    """Return the name in the catalogue."""
    return f"{kind}-by-{'messages' if by_messages else 'pulls'}"


def register_models() -> None:
    """Add them to the catalogue of this process."""
    if name_of("inputs", by_messages=True) in catalogue.names("models"):
        return
    of_model, seams = dict(message_passing._OF_MODEL), dict(message_passing._SEAMS)
    for kind, (base, pulls) in PULLS.items():

        def of_layer(layer, width, learned, settings, pulls=pulls):
            widths = {"input": width, "hidden": settings.hidden, "input+1": width + 1}
            return tuple(Pull(layer, way, widths[size], of or learned) for way, size, of in pulls)

        for by_messages in (False, True):
            name = name_of(kind, by_messages=by_messages)
            of_model[name] = of_layer
            if base.memory == "per_vertex":
                seams[name] = lambda settings, last: last.width
            catalogue.ENTRIES.append(
                catalogue.Entry(
                    name=name,
                    kind="models",
                    target=f"message_models:{name.replace('-', '_')}",
                    summary="A test's.",
                    source="this test",
                    memory=base.memory,
                )
            )
    message_passing._OF_MODEL, message_passing._SEAMS = of_model, seams


assert Seam
