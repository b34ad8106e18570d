"""What every model promises: a checker for one's own, a dense space to run it in, and a pytest suite to inherit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dtdg_lab.core.streams import torch_seed
from dtdg_lab.models.base import DynamicModel, run_straight
from dtdg_lab.models.state import State
from dtdg_lab.testing.requirements import require

MEMORIES = ("per_vertex", "weights")
_VERTICES, _FEATURES, _HIDDEN, _SNAPSHOTS = 10, 3, 4, 3


class MakeModel(Protocol):
    """A model's class, or a function that fills in its own options."""

    def __call__(self, features: int, hidden: int, layers: int, *, seed: int) -> DynamicModel:
        """A model with F features, H hidden and some layers."""
        ...


class DenseSpace:
    """A snapshot with its GCN operator as an (N, N) matrix, for references and tests.

    Args:
        adjacency: (N, N); row v holds the weights of the edges into v.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.operator = dense_gcn(adjacency)

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.operator)

    async def pull(self, x: Tensor, kind: str) -> Tensor:
        """The operator times x, (N, F) -> (N, F)."""
        require(kind == "gcn", f"the model pulls {kind!r}; spaces offer 'gcn'")
        return self.operator @ x


def dense_gcn(adjacency: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 with D = 1 + weighted in-degree, (N, N), written out."""
    scale = (1.0 + adjacency.sum(dim=1)).pow(-0.5)
    return scale[:, None] * (adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)) * scale[None, :]


def example_snapshots(dtype: torch.dtype = torch.float64) -> list[tuple[DenseSpace, Tensor]]:
    """Three random snapshots of ten vertices with three features; the last has no edge."""
    draw = torch.Generator().manual_seed(torch_seed(0, "contract/snapshots"))
    snapshots = []
    for t in range(_SNAPSHOTS):
        shape = (_VERTICES, _VERTICES)
        edges = (torch.rand(shape, generator=draw, dtype=torch.float64) < 0.25).to(dtype)
        x = torch.randn((_VERTICES, _FEATURES), generator=draw, dtype=torch.float64).to(dtype)
        snapshots.append((DenseSpace(edges if t < _SNAPSHOTS - 1 else torch.zeros_like(edges)), x))
    return snapshots


def run_model(model: DynamicModel, snapshots: Sequence[tuple[DenseSpace, Tensor]]) -> tuple[Tensor, State]:
    """Predictions of every snapshot from state zero, (T, N), and the last state."""
    state = model.initial_state(snapshots[0][0].num_rows)
    predictions = []
    for space, x in snapshots:
        h, state = run_straight(model.snapshot(space, x, state))
        predictions.append(model.readout(h))
    return torch.stack(predictions), state


def check_parameters(make: MakeModel) -> None:
    """Parameters are finite and a pure function of the seed, whatever torch's global generator holds.

    Raises:
        ContractError: they are not.
    """
    torch.manual_seed(1)
    one = make(_FEATURES, _HIDDEN, 2, seed=5).state_dict()
    torch.manual_seed(2)
    same, other = (make(_FEATURES, _HIDDEN, 2, seed=seed).state_dict() for seed in (5, 6))
    for name, tensor in one.items():
        require(bool(torch.isfinite(tensor).all()), f"parameter {name} is not finite at the start")
        require(torch.equal(tensor, same[name]), f"parameter {name} is not a pure function of the seed")
    require(any(not torch.equal(one[name], other[name]) for name in one), "two seeds give the same parameters")


def check_state(make: MakeModel) -> None:
    """The memory is declared, starts as it should, and can be detached and sliced.

    Raises:
        ContractError: it does not.
    """
    model = make(_FEATURES, _HIDDEN, 2, seed=0).double()
    require(model.memory in MEMORIES, f"memory {model.memory!r} is none of {', '.join(MEMORIES)}")
    state = model.initial_state(_VERTICES)
    require(len(state.layers) == model.layers, f"the state has {len(state.layers)} layers, the model {model.layers}")
    require(state.per_vertex == (model.memory == "per_vertex"), "State.per_vertex contradicts the declared memory")
    for tensor in (tensor for layer in state.layers for tensor in layer):
        require(tensor.dtype == torch.float64, "the state does not have the parameters' type")
        if state.per_vertex:
            require(len(tensor) == _VERTICES, f"a per-vertex state has {len(tensor)} rows for {_VERTICES} vertices")
            require(not tensor.any(), "the state of a vertex before the first snapshot is not zero")
    _, after = run_model(model, example_snapshots())
    for tensor, kept in zip(_tensors(after), _tensors(after.detach()), strict=True):
        require(torch.equal(tensor, kept) and not kept.requires_grad, "detach changes values or keeps history")
    for tensor, share in zip(_tensors(after), _tensors(after.slice(slice(2, 5))), strict=True):
        wanted = tensor[2:5] if after.per_vertex else tensor
        require(torch.equal(wanted, share), "slice gives other rows than asked for")


def check_forward(make: MakeModel, layers: int) -> None:
    """Shapes, the split interface, memory in use, inputs left alone, and vertices treated alike.

    Raises:
        ContractError: a promise is broken.
    """
    model, snapshots = make(_FEATURES, _HIDDEN, layers, seed=3).double(), example_snapshots()
    space, x = snapshots[0]
    state = model.initial_state(_VERTICES)
    before = [x.clone(), *(tensor.clone() for tensor in _tensors(state))]
    h, after = run_straight(model.snapshot(space, x, state))
    require(h.shape == (_VERTICES, _HIDDEN), f"a snapshot gives {tuple(h.shape)}, not (n, H)")
    require(model.readout(h).shape == (_VERTICES,), f"readout gives {tuple(model.readout(h).shape)}, not (n,)")
    left = [x, *_tensors(state)]
    require(all(torch.equal(*pair) for pair in zip(before, left, strict=True)), "snapshot changes its input in place")
    by_hand, hand_state = x, state
    for layer in range(layers):
        hand_state = model.evolve(layer, hand_state)
        by_hand = run_straight(model.spatial(layer, space, by_hand, hand_state))
        by_hand, hand_state = model.temporal(layer, by_hand, hand_state)
    require(torch.equal(h, by_hand), "snapshot() is not evolve, spatial, temporal of each layer")
    require(all(map(torch.equal, _tensors(after), _tensors(hand_state))), "the parts leave another state than snapshot")
    later, _ = run_straight(model.snapshot(space, x, after))
    require(not torch.allclose(h, later), "a snapshot after another gives what the first gave: no memory is used")
    _check_rows(model, space, x, after)
    _check_order(model, snapshots)


def _check_rows(model: DynamicModel, space: DenseSpace, x: Tensor, state: State) -> None:
    """``temporal`` never mixes rows, and vertices further than the declared hops have no influence."""
    mixed = run_straight(model.spatial(0, space, x, model.evolve(0, state)))
    whole, _ = model.temporal(0, mixed, state)
    share, _ = model.temporal(0, mixed[2:5], state.slice(slice(2, 5)))
    require(torch.allclose(whole[2:5], share, rtol=1e-12, atol=1e-14), "temporal mixes rows of different vertices")
    chain = DenseSpace(torch.diag(torch.ones(_VERTICES - 1, dtype=x.dtype), -1))  # v hears v - 1
    changed = x.clone()
    changed[0] += 1.0
    one, other = (run_straight(model.snapshot(chain, data, state))[0] for data in (x, changed))
    hops = model.layers * model.hops_per_layer
    require(torch.equal(one[hops + 1 :], other[hops + 1 :]), f"a vertex further than the declared {hops} hops is heard")


def _check_order(model: DynamicModel, snapshots: list[tuple[DenseSpace, Tensor]]) -> None:
    """Vertices numbered otherwise give the same predictions, numbered otherwise."""
    order = torch.arange(_VERTICES).roll(3)
    turned = []
    for space, x in snapshots:
        other = DenseSpace(torch.zeros_like(space.operator))
        other.operator = space.operator[order][:, order]
        turned.append((other, x[order]))
    one, other_predictions = run_model(model, snapshots)[0], run_model(model, turned)[0]
    require(
        torch.allclose(one[:, order], other_predictions, rtol=1e-9, atol=1e-12), "predictions depend on vertex numbers"
    )


def check_gradients(make: MakeModel, layers: int) -> None:
    """A loss at the last of three snapshots reaches every parameter, and two runs give the same bits.

    Raises:
        ContractError: a parameter gets no gradient, or the gradients differ.
    """
    gradients = []
    for _ in range(2):
        model = make(_FEATURES, _HIDDEN, layers, seed=3).double()
        predictions, _ = run_model(model, example_snapshots())
        (predictions[-1] - 1.0).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        require(gradient is not None and bool(gradient.any()), f"no gradient reaches parameter {name}")
        other = gradients[1][name]
        same = gradient is not None and other is not None and torch.equal(gradient, other)
        require(same, f"two runs give {name} other gradients")


def check_model(make: MakeModel) -> None:
    """Check a model with one, two and three layers (see the functions of this module).

    Args:
        make: the class, or ``functools.partial(Class, option=...)``.

    Raises:
        ContractError: a promise is broken; the message says which.
    """
    check_parameters(make)
    check_state(make)
    for layers in (1, 2, 3):
        check_forward(make, layers)
        check_gradients(make, layers)


def _tensors(state: State) -> list[Tensor]:
    return [tensor for layer in state.layers for tensor in layer]


class ModelContract:
    """Pytest suite of models: inherit it and define a fixture ``make`` that returns the class."""

    def test_parameters_come_from_the_seed(self, make: MakeModel) -> None:
        """:func:`check_parameters` holds."""
        check_parameters(make)

    def test_state_starts_at_zero_and_can_be_cut(self, make: MakeModel) -> None:
        """:func:`check_state` holds."""
        check_state(make)

    def test_forward_of_one_to_three_layers(self, make: MakeModel) -> None:
        """:func:`check_forward` holds."""
        for layers in (1, 2, 3):
            check_forward(make, layers)

    def test_gradient_reaches_every_parameter(self, make: MakeModel) -> None:
        """:func:`check_gradients` holds."""
        for layers in (1, 2, 3):
            check_gradients(make, layers)

    def test_float32_is_close_to_float64(self, make: MakeModel) -> None:
        """The same model in both types predicts the same to single precision."""
        model = make(_FEATURES, _HIDDEN, 2, seed=1)
        single, _ = run_model(model, example_snapshots(torch.float32))
        double, _ = run_model(model.double(), example_snapshots())
        require(single.dtype == torch.float32, f"a float32 model predicts {single.dtype}")
        require(torch.allclose(single.double(), double, rtol=1e-4, atol=1e-5), "float32 and float64 predict otherwise")
