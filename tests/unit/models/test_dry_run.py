"""What dry runs find out of models that a user may write."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dtdg_lab.config.model_facts import Pull, SpatialOutput
from dtdg_lab.core.errors import ConfigError, UnsupportedError
from dtdg_lab.models.base import DynamicModel, State, StepModel, make_model
from dtdg_lab.models.dry_run import facts_of, facts_of_class
from dtdg_lab.models.tgcn import TGCN


class Smoothed(StepModel):
    """A graph convolution, smoothed over time."""

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        self.convolve = nn.ModuleList(nn.Linear(self.width(i), hidden, bias=False) for i in range(layers))
        self.rate = nn.ParameterList(nn.Parameter(torch.zeros(hidden)) for _ in range(layers))

    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x)

    def step(self, layer: int, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.sigmoid(self.rate[layer])
        h = share * h + (1 - share) * torch.relu(self.convolve[layer](x))
        return h, h


class TwoHops(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        gate = torch.sigmoid(self.rate[layer].mean())
        sums = graph.messages(x, lambda source, target, weight: gate * torch.tanh(source - target))
        return graph.mean(sums, edges="out")


class OfLogarithms(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(torch.sign(x) * torch.log1p(x.abs()))


class ReadsNeighboursStates(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        (h,) = state.layers[layer]
        return graph.gcn(x) + graph.mean(h)[:, : x.shape[1]]


class EvolvesFromNodes(DynamicModel):
    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        self.first = nn.ParameterList(nn.Parameter(torch.rand(self.width(i), hidden)) for i in range(layers))

    def initial_state(self, rows: int) -> State:
        return State(tuple((first,) for first in self.first), per_vertex=False)

    def evolve(self, layer: int, graph: Any, x: Tensor, state: State) -> State:
        best, _ = graph.top(x, x.sum(1), 2)
        return state.with_layer(layer, (state.layers[layer][0] * torch.tanh(best.mean()),))

    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x) @ state.layers[layer][0]


class Detached(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x) * self.rate[layer].detach().mean()


class PullsNothing(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return x


def test_a_model_of_one_step() -> None:
    facts = Smoothed(3, 4, 2).facts
    assert facts.pulls == (Pull(0, "in", 3, False, of_features=True), Pull(1, "in", 4, True))
    assert facts.spatial == (SpatialOutput(3, False, True), SpatialOutput(4, True))
    assert (facts.layer_hops, facts.memory) == ((1, 1), "per_vertex")


def test_messages_and_two_hops() -> None:
    facts = TwoHops(3, 4).facts
    messages = Pull(0, "in", 3, False, kind="messages", of_features=True)
    assert facts.pulls == (messages, Pull(0, "out", 3, True, kind="diffusion-out"))
    assert (facts.hops, facts.directions) == (2, ("in", "out"))


def test_rows_that_only_follow_from_features_are_not_kept() -> None:
    facts = OfLogarithms(3, 4).facts
    assert facts.pulls == (Pull(0, "in", 3, False),)  # views keep what is pulled of the features themselves
    assert facts.spatial == (SpatialOutput(3, False, True),)


def test_states_that_neighbours_read() -> None:
    facts = ReadsNeighboursStates(3, 4).facts
    assert (facts.memory, facts.pulls[1].at_first, facts.pulls[1].learned) == ("neighbourhood", False, True)


def test_weights_that_evolve_from_nodes() -> None:
    facts = EvolvesFromNodes(3, 4).facts
    assert (facts.memory, [pull.direction for pull in facts.pulls]) == ("weights_from_data", ["top", "in"])


def test_a_detached_parameter_keeps_nothing_constant() -> None:
    assert Detached(3, 4).facts.spatial == (SpatialOutput(3, False, False),)


def test_a_model_without_pulls() -> None:
    facts = PullsNothing(3, 4).facts
    assert (facts.pulls, facts.layer_hops, facts.hops) == ((), (0,), 1)
    assert (facts.directions, facts.memory) == (("in",), "per_vertex")


def test_a_dry_run_changes_nothing() -> None:
    model, before = TGCN(3, 4), torch.random.get_rng_state()
    values = [parameter.clone() for parameter in model.parameters()]
    with torch.no_grad(), torch.inference_mode():
        facts = facts_of(model)
    assert facts == TGCN(3, 4).facts
    assert all(map(torch.equal, values, model.parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())
    torch.random.set_rng_state(before)


class EvolvesFromDetachedNodes(EvolvesFromNodes):
    def evolve(self, layer: int, graph: Any, x: Tensor, state: State) -> State:
        return state.with_layer(layer, (torch.tanh(state.layers[layer][0] + x.detach().mean()),))


class ReadsDetachedStates(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x) + graph.mean(state.layers[layer][0].detach()).mean(1, keepdim=True)


class DetachesBetweenHops(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(graph.gcn(x).detach())


class ComparesBetweenHops(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x) + graph.mean((graph.mean(x) > 0.5).to(x.dtype))


class ReadsStatesInTheSecondLayer(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x) + (graph.mean(state.layers[1][0]).mean(1, keepdim=True) if layer else 0)


class Frozen(Smoothed):
    def __init__(self, *sizes: int, **named: Any) -> None:
        super().__init__(*sizes, **named)
        self.scale = nn.Parameter(torch.ones(sizes[0]), requires_grad=False)

    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x * self.scale)


class CountsSteps(Smoothed):
    """A state of whole numbers beside the hidden one."""

    def initial_state(self, rows: int) -> State:
        return State(
            tuple((self.zeros(rows, self.hidden), torch.zeros(rows, 1, dtype=torch.long)) for _ in range(self.layers))
        )

    def step(self, layer: int, x: Tensor, h: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, _ = super().step(layer, x, h)
        return h, h, seen + 1


class TakesFortyBest(EvolvesFromNodes):
    def evolve(self, layer: int, graph: Any, x: Tensor, state: State) -> State:
        best, _ = graph.top(x, x.sum(1), 40)
        return state.with_layer(layer, (state.layers[layer][0] * (torch.ones(1, 40, dtype=x.dtype) @ best).mean(),))


@pytest.mark.parametrize(
    ("make", "memory", "layer_hops"),
    [
        (EvolvesFromDetachedNodes, "weights_from_data", (1, 1)),
        (ReadsDetachedStates, "neighbourhood", (1, 1)),
        (DetachesBetweenHops, "per_vertex", (2, 2)),
        (ComparesBetweenHops, "per_vertex", (2, 2)),
        (ReadsStatesInTheSecondLayer, "neighbourhood", (1, 1)),
        (CountsSteps, "per_vertex", (1, 1)),
        (TakesFortyBest, "weights_from_data", (1, 1)),
    ],
)
def test_steps_without_a_gradient_are_seen_in_values(make: Any, memory: str, layer_hops: tuple[int, ...]) -> None:
    facts = make(4, 4, 2).facts
    assert (facts.memory, facts.layer_hops) == (memory, layer_hops)


def test_a_frozen_parameter_is_not_learned() -> None:
    facts = Frozen(3, 4).facts
    assert facts.pulls == (Pull(0, "in", 3, False),)
    assert facts.spatial == (SpatialOutput(3, False, False),)


def test_a_subclass_of_a_package_model_keeps_what_it_sets() -> None:
    class Mine(TGCN):
        def __init__(self, *sizes: int, **named: Any) -> None:
            super().__init__(*sizes, **named)
            self.ones = nn.Parameter(torch.ones(3))

    model = make_model(Mine, 3, 4, seed=1)
    assert torch.equal(model.ones, torch.ones(3))
    assert torch.equal(model.convolve[0].weight, make_model(Mine, 3, 4, seed=1).convolve[0].weight)


class OfTheWrongHeight(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x[:2])


class LosesRows(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x)[:1]


class ChangesWhatIsKept(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        y = graph.gcn(x)
        y *= 0.9
        return y


class ChangesItsInput(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        x *= 0.9
        return graph.gcn(x)


class EvolvesNodes(Smoothed):
    def evolve(self, layer: int, graph: Any, x: Tensor, state: State) -> State:
        return state.with_layer(layer, (state.layers[layer][0] + 1,))


class DropsOut(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return nn.functional.dropout(graph.gcn(x), 0.1)


class HasATypo(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gnc(x)


class MixesAllNodes(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        y = graph.gcn(x)
        return y - y.mean(0)


class MixesInStep(Smoothed):
    def step(self, layer: int, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h, _ = super().step(layer, x, h)
        return h - h.mean(0), h


class IsTooWide(Smoothed):
    def step(self, layer: int, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h, _ = super().step(layer, x, h)
        return torch.cat([h, h], dim=1), h


class ReturnsNothing(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        graph.gcn(x)


class SwapsArguments(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.messages(lambda source, target, weight: source, x)


class HasNoStep(StepModel):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(x)


class PullsHearsay(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.pull(x, "hearsay")


class LooksAtValues(Smoothed):
    def spatial(self, layer: int, graph: Any, x: Tensor, state: State) -> Tensor:
        return graph.gcn(graph.gcn(x)) if self.rate[layer].sum() > 0 else graph.gcn(x)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (OfTheWrongHeight, "sends 2 rows by graph.gcn for 16 nodes"),
        (LosesRows, "returned 1 rows for 16 nodes"),
        (PullsHearsay, "pulls 'hearsay', but a view offers only gcn, mean"),
        (LooksAtValues, "with some values and .* with others"),
        (ChangesWhatIsKept, r"changes its input, or a pull of it, in place.* y = y \* 0.9"),
        (ChangesItsInput, "changes its input"),
        (EvolvesNodes, "evolve changes a state of nodes"),
        (DropsOut, "draws random numbers"),
        (MixesAllNodes, "mixes nodes without the graph: it pulls 1 times, but a node 3 nodes away"),
        (MixesInStep, "mixes nodes in step"),
        (IsTooWide, r"an output of \(16, 8\) for 16 nodes and hidden=4"),
        (ReturnsNothing, "spatial returned NoneType. Return a tensor"),
        (SwapsArguments, "graph.messages got a function. Pass a tensor of rows"),
        (HasNoStep, r"HasNoStep defines no step\(layer, x, ...\)"),
        (
            HasATypo,
            r"dry run on 16 nodes with features=3, hidden=4, .* raised AttributeError: .*gnc.* A graph offers gcn",
        ),
    ],
)
def test_models_that_no_table_describes(make: type[StepModel], said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        facts_of(make(3, 4))


def test_a_step_gives_back_the_state_that_it_takes() -> None:
    class Forgets(Smoothed):
        def step(self, layer: int, x: Tensor, h: Tensor) -> tuple[Tensor]:
            return (h,)

    with pytest.raises(ConfigError, match="takes 1 tensors of state but returned 0 after the output"):
        Forgets(3, 4).facts  # noqa: B018


def test_parameters_of_a_user_s_model_are_those_it_drew_under_the_seed() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (make_model(Smoothed, 3, 4, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.convolve[0].weight, same.convolve[0].weight)
    assert not torch.equal(one.convolve[0].weight, other.convolve[0].weight)
    assert not one.rate[0].any()


def test_a_step_that_returns_one_tensor() -> None:
    class Alone(Smoothed):
        def step(self, layer: int, x: Tensor, h: Tensor) -> Tensor:
            return super().step(layer, x, h)[0]

    class Stateless(Smoothed):
        def step(self, layer: int, x: Tensor) -> Tensor:
            return torch.relu(self.convolve[layer](x))

    with pytest.raises(ConfigError, match="takes 1 tensors of state but returned only one tensor"):
        Alone(3, 4).facts  # noqa: B018
    assert Stateless(3, 4).facts.memory == "none"


class ForgetsSuper(StepModel):
    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        self.hidden = hidden


class KeepsOutputs(Smoothed):
    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers)


@pytest.mark.parametrize("make", [ForgetsSuper, KeepsOutputs])
def test_a_constructor_begins_with_that_of_the_base(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"no readout of outputs=2. Begin its constructor with super\(\).__init__"):
        facts_of_class(make, (3, 4, 1), {})
