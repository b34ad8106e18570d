"""Every model of the catalogue keeps the models' contract, and the checker finds what breaks it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from dtdg_lab.core import catalogue
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.models.state import State
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.testing.contracts_models import ModelContract, check_model
from dtdg_lab.testing.requirements import ContractError


def _variants() -> list[tuple[str, dict[str, Any]]]:
    """Each model with its defaults, and with each of its whole-number options at its upper bound."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in catalogue.names("models"):
        found.append((name, {}))
        options = [OPTIONS[option] for option in catalogue.entry("models", name).options]
        found += [(name, {o.name: int(o.high)}) for o in options if o.kind is int and o.high is not None and o.high < 9]
    return found


class TestCatalogue(ModelContract):
    @pytest.fixture(params=_variants(), ids=str)
    def make(self, request: pytest.FixtureRequest) -> Any:
        name, options = request.param
        return functools.partial(catalogue.entry("models", name).load(), **options)

    def test_declares_the_memory_of_its_entry(self, make: Any) -> None:
        model = make(3, 4, 1, seed=0)
        names = [n for n in catalogue.names("models") if isinstance(model, catalogue.entry("models", n).load())]
        assert [catalogue.entry("models", name).memory for name in names] == [model.memory]


class Unseeded(TGCN):
    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter)


class StartsAtOne(TGCN):
    def initial_state(self, rows: int) -> State:
        return State(tuple((torch.ones_like(h),) for (h,) in super().initial_state(rows).layers))


class Forgets(TGCN):
    def temporal(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        zero = self.initial_state(len(x))
        return super().temporal(layer, x, zero)[0], state


class MixesRows(TGCN):
    def temporal(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().temporal(layer, x - x.mean(dim=0), state)


class WritesIntoItsInput(TGCN):
    async def snapshot(self, space: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
        return await super().snapshot(space, x.mul_(0.5), state)


class KnowsNumbers(TGCN):
    async def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        return await super().spatial(layer, space, x, state) * torch.linspace(1, 2, len(x), dtype=x.dtype)[:, None]


class HearsTooFar(TGCN):
    async def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        return await super().spatial(layer, space, await space.pull(x, "gcn"), state)


class HasADeadGate(TGCN):
    def temporal(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, after = super().temporal(layer, x, state)
        return h.detach() + 0 * h, after


class Wide(TGCN):
    def readout(self, h: Tensor) -> Tensor:
        return self.readout_layer(h)


class AsksForMore(TGCN):
    async def spatial(self, layer: int, space: Any, x: Tensor, state: State) -> Tensor:
        return self.convolve[layer](await space.pull(x, "attention"))


class Misdeclared(TGCN):
    memory = "weights"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Unseeded, "pure function of the seed"),
        (StartsAtOne, "is not zero"),
        (Forgets, "no memory is used"),
        (MixesRows, "mixes rows"),
        (WritesIntoItsInput, "in place"),
        (KnowsNumbers, "vertex numbers"),
        (HearsTooFar, "declared 1 hops"),
        (HasADeadGate, "no gradient reaches"),
        (Wide, "readout gives"),
        (AsksForMore, "pulls 'attention'"),
        (Misdeclared, "contradicts the declared memory"),
    ],
)
def test_a_broken_model_is_found(broken: Any, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        check_model(broken)
