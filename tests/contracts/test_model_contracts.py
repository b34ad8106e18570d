"""Every model of the catalogue keeps the models' contract, and the checker finds what breaks it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import ContractError
from dtdg_lab.models.base import State
from dtdg_lab.models.evolvegcn import EvolveGCNH, EvolveGCNO
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.models.tmgcn import TMGCN
from dtdg_lab.testing.models import check_model_alone


def _variants() -> list[tuple[str, dict[str, Any]]]:
    """Each model with its defaults, and with each of its whole-number options at its upper bound."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in catalogue.names("models"):
        found.append((name, {}))
        options = [OPTIONS[option] for option in catalogue.entry("models", name).options]
        found += [(name, {o.name: int(o.high)}) for o in options if o.kind is int and o.high is not None and o.high < 9]
    return found


@pytest.mark.parametrize(("name", "options"), _variants())
def test_every_model_keeps_the_contract(name: str, options: dict[str, Any]) -> None:
    check_model_alone(functools.partial(catalogue.entry("models", name).load(), **options))


class Unseeded(TGCN):
    def reset_parameters(self) -> None:
        draw = torch.Generator()
        draw.seed()
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, generator=draw)


class StartsAtOne(TGCN):
    def initial_state(self, rows: int) -> State:
        return State(tuple((torch.ones_like(h),) for (h,) in super().initial_state(rows).layers))


class Forgets(TGCN):
    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        zero = self.initial_state(x.shape[1])
        return super().temporal_sequence(layer, x, zero)[0], state


class RemembersElsewhere(TGCN):
    kept: Tensor | None = None

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        if self.kept is not None and self.kept.shape == state.layers[layer][0].shape:
            state = state.with_layer(layer, (self.kept,))
        hs, state = super().temporal_sequence(layer, x, state)
        self.kept = hs[-1].detach()
        return hs, state


class MixesRows(TGCN):
    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().temporal_sequence(layer, x - x.mean(dim=1, keepdim=True), state)


class MixesRowsWithoutState(EvolveGCNO):
    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        return x - x.mean(dim=1, keepdim=True), state


class WritesIntoItsInput(TGCN):
    def snapshot(self, space: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().snapshot(space, x.mul_(0.5), state)


class KnowsNumbers(TGCN):
    def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        return super().spatial(layer, space, x, state) * torch.linspace(1, 2, len(x), dtype=x.dtype)[:, None]


class CountsTheSpace(TGCN):
    def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        return super().spatial(layer, space, x, state) / space.num_rows


class PullsByChance(TGCN):
    def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        pulled = super().spatial(layer, space, x, state)
        return space.gcn(pulled) if x.sum() > 0 else pulled


class HasADeadGate(TGCN):
    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, after = super().temporal_sequence(layer, x, state)
        return h.detach() + 0 * h, after


class HasADeadScorer(EvolveGCNH):
    def evolve(self, layer: int, space: Any, x: Tensor, state: State) -> State:
        return super().evolve(layer, Untaught(space), x, state)


class Untaught:
    def __init__(self, space: Any) -> None:
        self.space = space

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return self.space.top(x, scores.detach(), k)


class StartsEverySequenceAtZero(TGCN):
    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().temporal_sequence(layer, x, self.initial_state(x.shape[1]) if len(x) > 1 else state)


class LeavesTheFirstState(TMGCN):
    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, after = super().temporal_sequence(layer, x, state)
        return h, super().temporal_sequence(layer, x[:1], state)[1] if len(x) > 1 else after


class TakesTheLastWeights(EvolveGCNO):
    def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        weights = state.layers[layer][0]
        return torch.relu(space.pull(x, "gcn") @ (weights[-1] if weights.ndim == 3 else weights))


class Flat(TGCN):
    def readout(self, h: Tensor) -> Tensor:
        return self.readout_layer(h).squeeze(-1)


class AsksForMore(TGCN):
    def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        return space.pull(x, "hearsay")


class AttendsWithoutScores(TGCN):
    def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        return space.pull(x, "attention")


class DetachesNothing(State):
    def detach(self) -> State:
        return self


class NeverCut(TGCN):
    def initial_state(self, rows: int) -> State:
        return DetachesNothing(super().initial_state(rows).layers)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        hs, after = super().temporal_sequence(layer, x, state)
        return hs, DetachesNothing(after.layers)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Unseeded, "pure function of the seed"),
        (StartsAtOne, "is not zero"),
        (Forgets, "no memory is used"),
        (RemembersElsewhere, "stores state in the module"),
        (MixesRows, "mixes nodes in step"),
        (MixesRowsWithoutState, "mixes nodes in step"),
        (WritesIntoItsInput, "in place"),
        (KnowsNumbers, "node numbers"),
        (CountsTheSpace, "stacked in one view"),
        (PullsByChance, "with some values and"),
        (HasADeadGate, "no gradient reaches"),
        (HasADeadScorer, "no gradient reaches parameter scorer"),
        (StartsEverySequenceAtZero, "temporal_sequence differs from temporal"),
        (LeavesTheFirstState, "temporal_sequence leaves another state"),
        (TakesTheLastWeights, "stacked in one view"),
        (Flat, "readout gives"),
        (AsksForMore, "pulls 'hearsay'"),
        (AttendsWithoutScores, "a pull of 'attention' without scores"),
        (NeverCut, "detach changes values or keeps history"),
    ],
)
def test_a_broken_model_is_found(broken: Any, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        check_model_alone(broken)


OPERATORS = {
    "mean": [[0, 1, 0], [0.75, 0, 0.25], [0, 0, 0]],  # node 2 hears nobody
    "diffusion-in": [[0, 1, 0], [0.75, 0, 0.25], [0, 0, 0]],
    "diffusion-out": [[0, 1, 0], [1, 0, 0], [0, 1, 0]],
}


@pytest.mark.parametrize("kind", OPERATORS)
def test_the_dense_space_takes_means_as_declared(kind: str) -> None:
    space = DenseView(torch.tensor([[0.0, 2, 0], [3, 0, 1], [0, 0, 0]]))
    found = space.pull(torch.eye(3), kind)
    assert found.tolist() == OPERATORS[kind]


def test_the_dense_space_convolves_as_declared() -> None:
    found = DenseView(torch.tensor([[0.0, 3], [0, 0]])).pull(torch.eye(2), "gcn")
    torch.testing.assert_close(found, torch.tensor([[1 / 4, 3 / 2], [0, 1]]))  # degrees 1 + 3 and 1


def test_the_dense_space_attends_to_in_neighbours_and_the_vertex_itself() -> None:
    space = DenseView(torch.tensor([[5.0, 7, 0], [0, 0, 0], [0, 0, 0]]))  # a loop counts once, weights not at all
    give, take = torch.tensor([[1.0], [2], [9]]), torch.tensor([[-4.0], [0], [0]])
    found = space.pull(torch.eye(3), "attention", (give, take))
    shares = torch.softmax(0.2 * torch.tensor([-3.0, -2]), dim=0)
    torch.testing.assert_close(found, torch.tensor([[shares[0], shares[1], 0], [0, 1, 0], [0, 0, 1]]))


def test_the_dense_space_s_top_is_ordered_and_takes_the_lower_vertex_of_two() -> None:
    space = DenseView(torch.zeros(4, 4))
    x, scores = torch.arange(4.0)[:, None], torch.tensor([1.0, 3, 3, 2])
    rows, best = space.top(x, scores, 3)
    assert (rows.flatten().tolist(), best.tolist()) == ([1, 2, 3], [3, 3, 2])
    assert len(space.top(x, scores, 9)[0]) == 4
