"""What every model promises: a checker for one's own, and a pytest suite to inherit."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dtdg_lab.core.streams import torch_seed
from dtdg_lab.models.base import MEMORIES, DynamicModel, Space, run_straight
from dtdg_lab.models.state import State, stack_layer
from dtdg_lab.testing.dense_space import DenseSpace, dense_gcn
from dtdg_lab.testing.requirements import require

__all__ = [
    "DenseSpace", "MakeModel", "ModelContract", "check_model", "dense_gcn", "run_model", "run_stacked", "stack_dense",
]  # fmt: skip

OF_WEIGHTS = ("weights", "weights_from_data")
_VERTICES, _FEATURES, _HIDDEN, _SNAPSHOTS = 10, 3, 4, 3


class MakeModel(Protocol):
    """A model's class, or a function that fills in its own options."""

    def __call__(self, features: int, hidden: int, layers: int, *, outputs: int = 1, seed: int) -> DynamicModel:
        """A model with F features, H hidden, some layers and some outputs."""
        ...


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


def run_model(model: DynamicModel, snapshots: Sequence[tuple[Space, Tensor]]) -> tuple[Tensor, State]:
    """Predictions of every snapshot from the initial state, (T, N, outputs), and the last state."""
    state = model.initial_state(snapshots[0][0].num_rows)
    predictions = []
    for space, x in snapshots:
        h, state = run_straight(model.snapshot(space, x, state))
        predictions.append(model.readout(h))
    return torch.stack(predictions), state


def stack_dense(snapshots: Sequence[tuple[DenseSpace, Tensor]]) -> DenseSpace:
    """A space that stands for all of some snapshots, block-diagonally."""
    return DenseSpace(torch.block_diag(*(space.adjacency for space, _ in snapshots)))


def run_stacked(model: DynamicModel, snapshots: Sequence[tuple[Space, Tensor]], stacked: Space) -> tuple[Tensor, State]:
    """What :func:`run_model` gives, computed layer by layer for all snapshots at once in a space that stands for them.

    Weights evolve snapshot by snapshot, each seen by itself; ``spatial`` then gets them stacked.
    """
    state = model.initial_state(snapshots[0][0].num_rows)
    x = torch.stack([x for _, x in snapshots])
    for layer in range(model.layers):
        states = [state]
        for (space, _), now in zip(snapshots, x, strict=True):
            states.append(run_straight(model.evolve(layer, space, now, states[-1])))
        state = states[-1]
        given = stack_layer(states[1:], layer) if model.memory in OF_WEIGHTS else state
        mixed = run_straight(model.spatial(layer, stacked, x.flatten(0, 1), given))
        x, state = model.temporal_sequence(layer, mixed.unflatten(0, (len(snapshots), -1)), state)
    return model.readout(x), state


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
    require(
        state.per_vertex == (model.memory not in OF_WEIGHTS) and bool(_tensors(state)) == (model.memory != "none"),
        f"the state contradicts the declared memory {model.memory!r}",
    )
    for tensor in _tensors(state):
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
    """Shapes, the split interface, memory in use and nowhere but in the state, inputs left alone, vertices alike.

    Raises:
        ContractError: a promise is broken.
    """
    model, snapshots = make(_FEATURES, _HIDDEN, layers, seed=3).double(), example_snapshots()
    space, x = snapshots[0]
    state = model.initial_state(_VERTICES)
    before = [x.clone(), *(tensor.clone() for tensor in _tensors(state))]
    h, after = run_straight(model.snapshot(space, x, state))
    require(h.shape == (_VERTICES, _HIDDEN), f"a snapshot gives {tuple(h.shape)}, not (n, H)")
    left = [x, *_tensors(state)]
    require(all(torch.equal(*pair) for pair in zip(before, left, strict=True)), "snapshot changes its input in place")
    by_hand, hand_state = x, state
    for layer in range(layers):
        hand_state = run_straight(model.evolve(layer, space, by_hand, hand_state))
        by_hand = run_straight(model.spatial(layer, space, by_hand, hand_state))
        by_hand, hand_state = model.temporal(layer, by_hand, hand_state)
    require(
        torch.equal(h, by_hand), "snapshot() is not evolve, spatial, temporal of each layer, or keeps state elsewhere"
    )
    require(all(map(torch.equal, _tensors(after), _tensors(hand_state))), "the parts leave another state than snapshot")
    first, second = (run_straight(model.snapshot(*snapshots[1], begin))[0] for begin in (state, after))
    alike, forgets = torch.allclose(first, second), model.memory == "none"
    require(not alike or forgets, "a snapshot gives the same after another as by itself: no memory is used")
    require(alike or not forgets, "a snapshot gives something else after another than by itself: a memory is used")
    _check_rows(model, space, x, after)
    _check_order(model, snapshots)


def check_outputs(make: MakeModel) -> None:
    """Predictions have the outputs asked for as their last axis, also where it is one, whatever axes come before.

    Raises:
        ContractError: they do not.
    """
    for outputs in (1, 3):
        model = make(_FEATURES, _HIDDEN, 1, outputs=outputs, seed=0)
        for shape in ((_VERTICES,), (_SNAPSHOTS, _VERTICES)):
            found = tuple(model.readout(torch.zeros(*shape, _HIDDEN)).shape)
            require(found == (*shape, outputs), f"readout gives {found}, not {(*shape, outputs)}")


def _check_rows(model: DynamicModel, space: DenseSpace, x: Tensor, state: State) -> None:
    """``temporal`` never mixes rows, and vertices further than the declared hops have no influence."""
    mixed = run_straight(model.spatial(0, space, x, run_straight(model.evolve(0, space, x, state))))
    whole, _ = model.temporal(0, mixed, state)
    share, _ = model.temporal(0, mixed[2:5], state.slice(slice(2, 5)))
    require(torch.allclose(whole[2:5], share, rtol=1e-12, atol=1e-14), "temporal mixes rows of different vertices")
    hops = model.layers * model.hops_per_layer
    chain = DenseSpace(torch.diag(torch.ones(hops + 3, dtype=x.dtype), -1))  # v hears v - 1
    one = torch.linspace(-1, 2, chain.num_rows * x.shape[1], dtype=x.dtype).view(-1, x.shape[1])
    _, state = run_straight(model.snapshot(chain, one, model.initial_state(chain.num_rows)))
    other = one.clone()
    other[0] += 1.0
    for layer in range(model.layers):  # both with the weights that the first evolves: those may hear every vertex
        state = run_straight(model.evolve(layer, chain, one, state))
        (one, after), (other, _) = (
            model.temporal(layer, run_straight(model.spatial(layer, chain, data, state)), state)
            for data in (one, other)
        )
        state = after
    require(torch.equal(one[hops + 1 :], other[hops + 1 :]), f"a vertex further than the declared {hops} hops is heard")
    require(not torch.equal(one, other), "a vertex's own features have no influence on it")


def _check_order(model: DynamicModel, snapshots: list[tuple[DenseSpace, Tensor]]) -> None:
    """Vertices numbered otherwise give the same predictions, numbered otherwise."""
    order = torch.arange(_VERTICES).roll(3)
    turned = [(DenseSpace(space.adjacency[order][:, order]), x[order]) for space, x in snapshots]
    one, other = run_model(model, snapshots)[0], run_model(model, turned)[0]
    require(torch.allclose(one[:, order], other, rtol=1e-9, atol=1e-12), "predictions depend on vertex numbers")


def check_sequence(make: MakeModel, layers: int) -> None:
    """S snapshots at once give what one after another gives, in time and through a stacked space, with gradients.

    Raises:
        ContractError: they do not.
    """
    model, snapshots = make(_FEATURES, _HIDDEN, layers, seed=3).double(), example_snapshots()
    _, state = run_model(model, snapshots)
    space, x = snapshots[0]
    mixed = run_straight(model.spatial(0, space, x, state)).detach()
    given = torch.stack([mixed, mixed.flip(0), 0.5 * mixed])
    whole, after = model.temporal_sequence(0, given, state)
    parts, by_step = [], state
    for now in given:
        h, by_step = model.temporal(0, now, by_step)
        parts.append(h)
    _require_same(torch.stack(parts), whole, "temporal_sequence is not temporal, snapshot after snapshot")
    for one, other in zip(_tensors(by_step), _tensors(after), strict=True):
        _require_same(one, other, "temporal_sequence leaves another state than temporal, snapshot after snapshot")
    if model.memory != "neighbourhood":  # its spatial part needs the state that the snapshot before left
        _check_stacked(model, snapshots)


def _check_stacked(model: DynamicModel, snapshots: list[tuple[DenseSpace, Tensor]]) -> None:
    found = []
    for run in (run_model, functools.partial(run_stacked, stacked=stack_dense(snapshots))):
        model.zero_grad()
        predictions, state = run(model, snapshots)
        (predictions - 1.0).square().mean().backward()
        found.append((predictions, *_tensors(state), *(parameter.grad for parameter in model.parameters())))
    for one, other in zip(*found, strict=True):
        if one is not None and other is not None:
            _require_same(one, other, "snapshots stacked in one space give something else than one by one")


def check_gradients(make: MakeModel, layers: int) -> None:
    """A loss at the last of three snapshots reaches every parameter, two runs give the same bits, detach cuts.

    Raises:
        ContractError: a parameter gets no gradient, the gradients differ, or a detached state has a history.
    """
    gradients = []
    for _ in range(2):
        model = make(_FEATURES, _HIDDEN, layers, seed=3).double()
        predictions, state = run_model(model, example_snapshots())
        (predictions[-1] - 1.0).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        require(gradient is not None and bool(gradient.any()), f"no gradient reaches parameter {name}")
        other = gradients[1][name]
        same = gradient is not None and other is not None and torch.equal(gradient, other)
        require(same, f"two runs give {name} other gradients")
    space, x = example_snapshots()[0]
    h, _ = run_straight(model.snapshot(space, x, state.detach()))
    try:
        model.readout(h).sum().backward()  # the history before the cut is freed: reaching it raises
    except RuntimeError as error:
        require(False, f"a step that starts from a detached state reaches behind it: {error}")


def check_model(make: MakeModel) -> None:
    """Check a model with one, two and three layers (see the functions of this module).

    Args:
        make: the class, or ``functools.partial(Class, option=...)``.

    Raises:
        ContractError: a promise is broken; the message says which.
    """
    check_parameters(make)
    check_state(make)
    check_outputs(make)
    for layers in (1, 2, 3):
        check_forward(make, layers)
        check_sequence(make, layers)
        check_gradients(make, layers)


def _tensors(state: State) -> list[Tensor]:
    return [tensor for layer in state.layers for tensor in layer]


def _require_same(one: Tensor, other: Tensor, rule: str) -> None:
    require(one.shape == other.shape and torch.allclose(one, other, rtol=1e-10, atol=1e-13), rule)


class ModelContract:
    """Pytest suite of models: inherit it and define a fixture ``make`` that returns the class."""

    def test_parameters_come_from_the_seed(self, make: MakeModel) -> None:
        """:func:`check_parameters` holds."""
        check_parameters(make)

    def test_state_starts_at_zero_and_can_be_cut(self, make: MakeModel) -> None:
        """:func:`check_state` holds."""
        check_state(make)

    def test_readout_gives_every_output(self, make: MakeModel) -> None:
        """:func:`check_outputs` holds."""
        check_outputs(make)

    def test_forward_of_one_to_three_layers(self, make: MakeModel) -> None:
        """:func:`check_forward` holds."""
        for layers in (1, 2, 3):
            check_forward(make, layers)

    def test_snapshots_together_are_snapshots_one_by_one(self, make: MakeModel) -> None:
        """:func:`check_sequence` holds."""
        for layers in (1, 2, 3):
            check_sequence(make, layers)

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
