"""The contract of all models, checked on a few small dense snapshots."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dtdg_lab.core.errors import ContractError, UnsupportedError, require
from dtdg_lab.core.rng import torch_seed
from dtdg_lab.models.base import DynamicModel, State, make_model, stack_layer
from dtdg_lab.models.graph_view import DenseView, GraphView

_NODES, _FEATURES, _HIDDEN, _SNAPSHOTS = 10, 4, 4, 3
Snapshots = Sequence[tuple[GraphView, Tensor]]


class MakeModel(Protocol):
    """A model's class, or a function that fills in the class's own options."""

    def __call__(self, features: int, hidden: int, layers: int, *, outputs: int = 1) -> DynamicModel:
        """Return a model with some numbers of features F, hidden values H, layers and outputs."""


def example_snapshots(dtype: torch.dtype = torch.float64) -> list[tuple[DenseView, Tensor]]:
    """Return three random snapshots of ten nodes with four features; the last has no edges."""
    draw = torch.Generator().manual_seed(torch_seed(0, "contract/snapshots"))
    snapshots = []
    for t in range(_SNAPSHOTS):
        edges = (torch.rand((_NODES, _NODES), generator=draw, dtype=torch.float64) < 0.25).to(dtype)
        x = torch.randn((_NODES, _FEATURES), generator=draw, dtype=torch.float64).to(dtype)
        snapshots.append((DenseView(edges if t < _SNAPSHOTS - 1 else torch.zeros_like(edges)), x))
    return snapshots


def run_model(model: DynamicModel, snapshots: Snapshots) -> tuple[Tensor, State]:
    """Return the predictions for every snapshot from the initial state, (T, N, outputs), and the last state."""
    state = model.initial_state(snapshots[0][0].num_rows)
    predictions = []
    for view, x in snapshots:
        h, state = model.snapshot(view, x, state)
        predictions.append(model.readout(h))
    return torch.stack(predictions), state


def stack_dense(snapshots: Sequence[tuple[DenseView, Tensor]]) -> DenseView:
    """Return one block-diagonal view of all snapshots."""
    return DenseView(torch.block_diag(*(view.adjacency for view, _ in snapshots)))


def run_stacked(model: DynamicModel, snapshots: Snapshots, stacked: GraphView) -> tuple[Tensor, State]:
    """Return the same as :func:`run_model`, computed layer by layer for all snapshots in one stacked view.

    Weights evolve snapshot by snapshot, each from its own snapshot; ``spatial`` then gets them stacked.
    """
    state = model.initial_state(snapshots[0][0].num_rows)
    x = torch.stack([x for _, x in snapshots])
    for layer in range(model.layers):
        states = [state]
        for (view, _), rows in zip(snapshots, x, strict=True):
            states.append(model.evolve(layer, view, rows, states[-1]))
        state = states[-1]
        has_weights = model.memory in ("weights", "weights_from_data")
        mixed = model.spatial(layer, stacked, x.flatten(0, 1), stack_layer(states[1:], layer) if has_weights else state)
        x, state = model.temporal_sequence(layer, mixed.unflatten(0, (len(snapshots), -1)), state)
    return model.readout(x), state


def check_parameters(make: MakeModel) -> None:
    """Check that parameters are finite and depend only on the seed, not on torch's global generator.

    Raises:
        ContractError: they are not, or depend on something else.
    """
    torch.manual_seed(1)
    one = make_model(make, _FEATURES, _HIDDEN, 2, seed=5).state_dict()
    torch.manual_seed(2)
    same, other = (make_model(make, _FEATURES, _HIDDEN, 2, seed=seed).state_dict() for seed in (5, 6))
    for name, tensor in one.items():
        require(bool(torch.isfinite(tensor).all()), f"parameter {name} is not finite at the start")
        require(torch.equal(tensor, same[name]), f"parameter {name} is not a pure function of the seed")
    require(any(not torch.equal(one[name], other[name]) for name in one), "two seeds give the same parameters")


def check_facts(make: MakeModel) -> None:
    """Check that pulls depend only on sizes and options, so that facts can be derived.

    Raises:
        ContractError: they depend on something else.
    """
    for layers in (1, 2):
        try:
            make_model(make, _FEATURES, _HIDDEN, layers).facts  # noqa: B018
        except UnsupportedError as error:
            raise ContractError(str(error)) from error


def check_state(make: MakeModel) -> None:
    """Check that the initial state is zero, and that states can be detached and sliced.

    Raises:
        ContractError: a state breaks one of these rules.
    """
    model = make_model(make, _FEATURES, _HIDDEN, 2, seed=0).double()
    state = model.initial_state(_NODES)
    require(len(state.layers) == model.layers, f"the state has {len(state.layers)} layers, the model {model.layers}")
    for tensor in state.tensors:
        require(tensor.dtype == torch.float64, "the state does not have the parameters' type")
        if state.per_vertex:
            require(len(tensor) == _NODES, f"a per-vertex state has {len(tensor)} rows for {_NODES} nodes")
            require(not tensor.any(), "the state of a node before the first snapshot is not zero")
    _, after = run_model(model, example_snapshots())
    for tensor, detached in zip(after.tensors, after.detach().tensors, strict=True):
        require(torch.equal(tensor, detached) and not detached.requires_grad, "detach changes values or keeps history")
    for tensor, sliced in zip(after.tensors, after.slice(slice(2, 5)).tensors, strict=True):
        require(
            torch.equal(tensor[2:5] if after.per_vertex else tensor, sliced), "slice gives other rows than asked for"
        )


def check_forward(make: MakeModel, layers: int) -> None:
    """Check shapes, the split interface, that memory is only in the state, and that all nodes are treated alike.

    Raises:
        ContractError: a rule is broken.
    """
    model, snapshots = make_model(make, _FEATURES, _HIDDEN, layers, seed=3).double(), example_snapshots()
    view, x = snapshots[0]
    state = model.initial_state(_NODES)
    inputs = [x, *state.tensors]
    copies = [tensor.clone() for tensor in inputs]
    h, after = model.snapshot(view, x, state)
    require(h.shape == (_NODES, _HIDDEN), f"a snapshot gives {tuple(h.shape)}, not (n, H)")
    require(all(map(torch.equal, copies, inputs)), "snapshot changes its input in place")
    by_parts, parts_state = x, state
    for layer in range(layers):
        parts_state = model.evolve(layer, view, by_parts, parts_state)
        by_parts = model.spatial(layer, view, by_parts, parts_state)
        by_parts, parts_state = model.temporal(layer, by_parts, parts_state)
    require(
        torch.equal(h, by_parts),
        "snapshot() differs from evolve, spatial and temporal of each layer, or keeps a state of its own",
    )
    require(
        all(map(torch.equal, after.tensors, parts_state.tensors)),
        "evolve, spatial and temporal leave another state than snapshot()",
    )
    first, second = (model.snapshot(*snapshots[1], begin)[0] for begin in (state, after))
    alike, forgets = torch.allclose(first, second), model.memory == "none"
    require(not alike or forgets, "a snapshot gives the same with and without one before it, so no memory is used")
    require(alike or not forgets, "a snapshot depends on the one before it, so a memory is used")
    _check_rows(model, view, x, after)
    _check_reach(model, x.shape[1])
    order = torch.arange(_NODES).roll(3)
    renumbered = [(DenseView(view.adjacency[order][:, order]), x[order]) for view, x in snapshots]
    one, other = run_model(model, snapshots)[0], run_model(model, renumbered)[0]
    require(torch.allclose(one[:, order], other, rtol=1e-9, atol=1e-12), "predictions depend on node numbers")


def _check_rows(model: DynamicModel, view: DenseView, x: Tensor, state: State) -> None:
    """Check that ``temporal`` never mixes rows."""
    mixed = model.spatial(0, view, x, model.evolve(0, view, x, state))
    all_rows, _ = model.temporal(0, mixed, state)
    some_rows, _ = model.temporal(0, mixed[2:5], state.slice(slice(2, 5)))
    require(torch.allclose(all_rows[2:5], some_rows, rtol=1e-12, atol=1e-14), "temporal mixes rows of different nodes")


def _check_reach(model: DynamicModel, features: int) -> None:
    """Check that nodes beyond the derived number of hops have no influence, and that a node's own features have one."""
    hops = model.facts.hops
    chain = DenseView(torch.diag(torch.ones(hops + 3, dtype=torch.float64), -1))  # node v aggregates from v - 1
    one = torch.linspace(-1, 2, chain.num_rows * features, dtype=torch.float64).view(-1, features)
    _, state = model.snapshot(chain, one, model.initial_state(chain.num_rows))
    other = one.clone()
    other[0] += 1.0
    for layer in range(model.layers):  # both use the weights that the first evolves, which may depend on every node
        state = model.evolve(layer, chain, one, state)
        (one, after), (other, _) = (
            model.temporal(layer, model.spatial(layer, chain, rows, state), state) for rows in (one, other)
        )
        state = after
    require(
        torch.equal(one[hops + 1 :], other[hops + 1 :]),
        f"a node further away than {hops} hops has an effect that autograd does not see: a pull depends on another "
        "pull by an operation without gradient, such as a comparison",
    )
    require(not torch.equal(one, other), "a node's own features have no influence on it")


def check_outputs(make: MakeModel) -> None:
    """Check that the last axis of predictions has the requested outputs, also if there is only one.

    Raises:
        ContractError: predictions have another shape.
    """
    for outputs in (1, 3):
        model = make_model(make, _FEATURES, _HIDDEN, 1, outputs=outputs, seed=0)
        for shape in ((_NODES,), (_SNAPSHOTS, _NODES)):
            actual = tuple(model.readout(torch.zeros(*shape, _HIDDEN)).shape)
            require(actual == (*shape, outputs), f"readout gives {actual}, not {(*shape, outputs)}")


def check_precision(make: MakeModel) -> None:
    """Check that predictions in float32 are close to those in float64.

    Raises:
        ContractError: they differ by more than single precision explains.
    """
    model = make_model(make, _FEATURES, _HIDDEN, 2, seed=1)
    single, _ = run_model(model, example_snapshots(torch.float32))
    double, _ = run_model(model.double(), example_snapshots())
    require(single.dtype == torch.float32, f"a float32 model predicts {single.dtype}")
    require(torch.allclose(single.double(), double, rtol=1e-4, atol=1e-5), "float32 and float64 predictions differ")


def check_sequence(make: MakeModel, layers: int) -> None:
    """Check that S snapshots at once give the same results and gradients as one by one, in time and stacked.

    Raises:
        ContractError: they differ.
    """
    model, snapshots = make_model(make, _FEATURES, _HIDDEN, layers, seed=3).double(), example_snapshots()
    _, state = run_model(model, snapshots)
    view, x = snapshots[0]
    mixed = model.spatial(0, view, x, state).detach()
    sequence = torch.stack([mixed, mixed.flip(0), 0.5 * mixed])
    at_once, after = model.temporal_sequence(0, sequence, state)
    by_step, step_state = [], state
    for rows in sequence:
        h, step_state = model.temporal(0, rows, step_state)
        by_step.append(h)
    _require_close(torch.stack(by_step), at_once, "temporal_sequence differs from temporal, snapshot after snapshot")
    for one, other in zip(step_state.tensors, after.tensors, strict=True):
        _require_close(one, other, "temporal_sequence leaves another state than temporal, snapshot after snapshot")
    if model.memory != "neighbourhood":  # then spatial needs the state that the previous snapshot left
        _check_stacked(model, snapshots)


def _check_stacked(model: DynamicModel, snapshots: list[tuple[DenseView, Tensor]]) -> None:
    results = []
    for run in (run_model, functools.partial(run_stacked, stacked=stack_dense(snapshots))):
        model.zero_grad()
        predictions, state = run(model, snapshots)
        (predictions - 1.0).square().mean().backward()
        results.append((predictions, *state.tensors, *(parameter.grad for parameter in model.parameters())))
    for one, other in zip(*results, strict=True):
        if one is not None and other is not None:
            _require_close(one, other, "snapshots stacked in one view give other results than one by one")


def check_gradients(make: MakeModel, layers: int) -> None:
    """Check that every parameter gets a gradient, the same in two runs, and that a detached state has no history.

    Raises:
        ContractError: a parameter gets no gradient, gradients differ, or a detached state has a history.
    """
    gradients = []
    for _ in range(2):
        model = make_model(make, _FEATURES, _HIDDEN, layers, seed=3).double()
        predictions, state = run_model(model, example_snapshots())
        (predictions[-1] - 1.0).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        require(gradient is not None and bool(gradient.any()), f"no gradient reaches parameter {name}")
        repeated = gradients[1][name]
        same = gradient is not None and repeated is not None and torch.equal(gradient, repeated)
        require(same, f"two runs give different gradients of {name}")
    view, x = example_snapshots()[0]
    h, _ = model.snapshot(view, x, state.detach())
    try:
        model.readout(h).sum().backward()  # the history before the cut is freed, so reaching it raises
    except RuntimeError as error:
        require(False, f"the gradient of a step that starts from a detached state goes beyond that state: {error}")


def check_model_alone(make: MakeModel) -> None:
    """Check a model by itself, with one, two and three layers (see the functions of this module).

    Args:
        make: the model's class, or ``functools.partial(Class, option=...)``.

    Raises:
        ContractError: a rule is broken; the message says which.
    """
    for check in (check_parameters, check_facts, check_state, check_outputs):
        check(make)
    for layers in (1, 2, 3):
        check_forward(make, layers)
        check_sequence(make, layers)
        check_gradients(make, layers)
    check_precision(make)


def _require_close(one: Tensor, other: Tensor, rule: str) -> None:
    require(one.shape == other.shape and torch.allclose(one, other, rtol=1e-10, atol=1e-13), rule)
