"""Models against references written out densely, with the papers' symbols."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor

from dtdg_lab.models.base import DynamicModel, run_straight
from dtdg_lab.models.evolvegcn_o import EvolveGCNO
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.testing.contracts_models import DenseSpace, run_model

N, F, H, T = 9, 2, 5, 4


def _sequence() -> tuple[list[tuple[DenseSpace, Tensor]], list[Tensor], Tensor]:
    """T snapshots with loops and weights, their operators written out again, and labels (T, N)."""
    draw = torch.Generator().manual_seed(11)
    snapshots, operators = [], []
    for _ in range(T):
        mask = torch.rand(N, N, generator=draw, dtype=torch.float64) < 0.3
        a = torch.where(mask, torch.rand(N, N, generator=draw, dtype=torch.float64) + 0.5, 0.0)
        snapshots.append((DenseSpace(a), torch.randn(N, F, generator=draw, dtype=torch.float64)))
        d = torch.diag((1 + a.sum(1)) ** -0.5)
        operators.append(d @ (a + torch.eye(N, dtype=torch.float64)) @ d)
    return snapshots, operators, torch.randn(T, N, generator=draw, dtype=torch.float64)


def _copies(model: DynamicModel) -> dict[str, Tensor]:
    return {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}


def _shaken(model: DynamicModel) -> DynamicModel:
    """The model in float64 with biases that are not zero, so that a forgotten one shows."""
    draw = torch.Generator().manual_seed(4)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return model


def _tgcn_reference(p: dict[str, Tensor], operators: list[Tensor], xs: list[Tensor], layers: int, gc: int) -> Tensor:
    """PyG-Temporal's TGCN: Z, R, H~ from [conv(X) , H] by linear layers of width 2H -> H, then H = Z H + (1 - Z) H~."""
    states = [torch.zeros(N, H, dtype=torch.float64) for _ in range(layers)]
    predictions = []
    for operator, x in zip(operators, xs, strict=True):
        for layer in range(layers):
            if gc == 1:
                weight, bias = p[f"convolve.{layer}.weight"], p[f"convolve.{layer}.bias"]
                conv = [operator @ (x @ weight[g * H : (g + 1) * H].T) + bias[g * H : (g + 1) * H] for g in range(3)]
            else:
                inner = operator @ x @ p[f"first.{layer}.weight"].T + p[f"first.{layer}.bias"]
                outer = operator @ torch.relu(inner) @ p[f"second.{layer}.weight"].T + p[f"second.{layer}.bias"]
                conv = [torch.sigmoid(outer)] * 3
            linear = [torch.cat([p[f"input_gates.{layer}"][g], p[f"state_gates.{layer}"][g]]) for g in range(3)]
            bias = p[f"gate_bias.{layer}"].split(H)
            h = states[layer]
            z = torch.sigmoid(torch.cat([conv[0], h], dim=1) @ linear[0] + bias[0])
            r = torch.sigmoid(torch.cat([conv[1], h], dim=1) @ linear[1] + bias[1])
            candidate = torch.tanh(torch.cat([conv[2], h * r], dim=1) @ linear[2] + bias[2])
            states[layer] = x = z * h + (1 - z) * candidate
        predictions.append((x @ p["readout_layer.weight"].T + p["readout_layer.bias"])[:, 0])
    return torch.stack(predictions)


def _evolvegcn_reference(p: dict[str, Tensor], operators: list[Tensor], xs: list[Tensor], layers: int) -> Tensor:
    """EvolveGCN-O with an LSTM over the columns of W; gates in the order input, forget, output, candidate."""
    weights = [p[f"first_weights.{layer}"] for layer in range(layers)]
    cells = [torch.zeros_like(w) for w in weights]
    predictions = []
    for operator, x in zip(operators, xs, strict=True):
        for layer in range(layers):
            w, u = weights[layer], p[f"gates.{layer}"]
            b = p[f"gate_bias.{layer}"].reshape(4, *w.shape)
            i, f, o = (torch.sigmoid(u[g] @ w + b[g]) for g in range(3))
            cells[layer] = f * cells[layer] + i * torch.tanh(u[3] @ w + b[3])
            weights[layer] = o * torch.tanh(cells[layer])
            x = torch.relu(operator @ x @ weights[layer])
        predictions.append((x @ p["readout_layer.weight"].T + p["readout_layer.bias"])[:, 0])
    return torch.stack(predictions)


def _assert_same(model: DynamicModel, predicted: Tensor, reference: dict[str, Tensor], wanted: Tensor) -> None:
    labels = _sequence()[2]
    loss, wanted_loss = (torch.nn.functional.mse_loss(y, labels) for y in (predicted, wanted))
    assert loss.item() == pytest.approx(wanted_loss.item(), rel=1e-10)
    torch.testing.assert_close(predicted, wanted, rtol=1e-10, atol=1e-12)
    loss.backward()
    wanted_loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad, reference[name].grad, rtol=1e-10, atol=1e-13, msg=name)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("gc_layers", [1, 2])
def test_tgcn_is_the_dense_reference(layers: int, gc_layers: int) -> None:
    snapshots, operators, _ = _sequence()
    model = _shaken(TGCN(F, H, layers, gc_layers=gc_layers, seed=2))
    copies = _copies(model)
    wanted = _tgcn_reference(copies, operators, [x for _, x in snapshots], layers, gc_layers)
    _assert_same(model, run_model(model, snapshots)[0], copies, wanted)


@pytest.mark.parametrize("layers", [1, 2])
def test_evolvegcn_is_the_dense_reference(layers: int) -> None:
    snapshots, operators, _ = _sequence()
    model = _shaken(EvolveGCNO(F, H, layers, seed=2))
    copies = _copies(model)
    wanted = _evolvegcn_reference(copies, operators, [x for _, x in snapshots], layers)
    _assert_same(model, run_model(model, snapshots)[0], copies, wanted)


def test_evolvegcn_trains_its_first_weights_and_every_gate() -> None:
    snapshots, _, labels = _sequence()
    model = EvolveGCNO(F, H, 2, seed=0).double()
    predicted, _ = run_model(model, snapshots)
    (predicted[-1] - labels[-1]).square().mean().backward()
    for layer in range(2):
        assert model.first_weights[layer].grad.abs().max() > 1e-6
        for gate in model.gates[layer].grad:  # input, forget, output, candidate
            assert gate.abs().max() > 1e-8
        for bias in model.gate_bias[layer].grad.view(4, -1):
            assert bias.abs().max() > 1e-8


@pytest.mark.parametrize("gate", range(3))
def test_tgcn_trains_every_gate_of_every_layer(gate: int) -> None:
    snapshots, _, labels = _sequence()
    model = TGCN(F, H, 2, seed=0).double()
    predicted, _ = run_model(model, snapshots)
    (predicted[-1] - labels[-1]).square().mean().backward()
    for layer in range(2):
        assert model.input_gates[layer].grad[gate].abs().max() > 1e-8
        assert model.state_gates[layer].grad[gate].abs().max() > 1e-8
        assert model.gate_bias[layer].grad.view(3, -1)[gate].abs().max() > 1e-8
        assert model.convolve[layer].weight.grad.view(3, H, -1)[gate].abs().max() > 1e-8


@pytest.mark.parametrize("make", [TGCN, EvolveGCNO])
def test_what_came_before_matters(make: type[DynamicModel]) -> None:
    snapshots, _, _ = _sequence()
    model = make(F, H, 2, seed=0).double()
    _, after_all = run_model(model, snapshots)
    _, after_one = run_model(model, snapshots[:1])
    space, x = snapshots[0]
    outputs = [run_straight(model.snapshot(space, x, s))[0] for s in (model.initial_state(N), after_one, after_all)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (outputs[one] - outputs[other]).abs().max() > 1e-4


def test_glorot_bounds_hold_for_each_gate() -> None:
    model = TGCN(40, 60, seed=1)
    bound = (6 / (60 + 60)) ** 0.5
    for gate in model.state_gates[0]:
        assert 0.9 * bound < gate.abs().max() <= bound
    assert not model.gate_bias[0].any()
    evolving = EvolveGCNO(40, 60, seed=1)
    bound = (6 / (40 + 60)) ** 0.5
    assert 0.9 * bound < evolving.first_weights[0].abs().max() <= bound


def test_a_space_that_suspends_is_refused_by_layouts_that_run_straight() -> None:
    class Waits:
        num_rows = N

        async def pull(self, x: Tensor, kind: str) -> Tensor:
            class _Never:
                def __await__(self):
                    yield "an exchange"

            await _Never()
            return x

    model = TGCN(F, H, seed=0)
    coroutine = model.snapshot(Waits(), torch.zeros(N, F), model.initial_state(N))
    with pytest.raises(RuntimeError, match="waited for an exchange"):
        run_straight(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
