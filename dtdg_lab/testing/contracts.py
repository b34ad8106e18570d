"""Contracts that every model, layout, scheduler and partitioner has to meet."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import LabError, UnsupportedError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.rng import generator, torch_seed
from dtdg_lab.engine.strategy import Step, StepMarks, Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.models.base import DynamicModel, State, make_model, stack_layer
from dtdg_lab.models.dense_view import DenseView, dense_gcn
from dtdg_lab.models.graph_view import GraphView
from dtdg_lab.partition.base import Assigned, accepted
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s

# How a contract says that it is broken.


class ContractError(LabError, AssertionError):
    """Raised when a plug-in breaks the contract of its kind; the message names the rule and the case."""


def require(holds: bool, rule: str) -> None:
    """Go on where a rule holds.

    Raises:
        ContractError: it does not.
    """
    if not holds:
        raise ContractError(rule)


# What every layout promises about its steps and gradients: a checker for one's own, and a pytest suite to inherit.
#
# Layouts of this kind exchange nothing inside ``compute``: ranks are played one after another in one process.


MakeLayout = Callable[[int, int], tuple[Strategy, DynamicModel]]
EPOCHS = 3


class RecordingMarks(StepMarks):
    """Takes down the phases, exchanges and blocks that are marked, in order; an exchange is ``exchange``."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.blocks: list[tuple[int, str]] = []

    def __call__(self, phase: str) -> None:
        """A phase has ended."""
        self.phases.append(phase)

    def exchange(self, wait_s: float) -> None:
        """An exchange has ended."""
        self.phases.append("exchange")

    def block(self, number: int, pass_name: str) -> None:
        """A block of time begins."""
        self.blocks.append((number, pass_name))


@dataclass(frozen=True, slots=True)
class SummedStep:
    """A step of all ranks: mean loss of its groups, gradients over their number, and the work done."""

    loss: float
    gradients: dict[str, Tensor]
    groups: int
    vertex_snapshots: int


def check_steps(make: MakeLayout, sizes: Sequence[int]) -> None:
    """Every rank has the same number of steps, every group has one rank, and epochs are pure functions.

    Raises:
        ContractError: they are not.
    """
    plans: dict[int, list[list[tuple[int, ...]]]] = {}
    for size in sizes:
        ranks, again = (
            [[list(layout.epoch(epoch)) for epoch in range(EPOCHS)] for layout in _layouts(make, size)] for _ in "ab"
        )
        require(ranks == again, f"R={size}: an epoch's steps are not a pure function of config and epoch")
        plans[size] = [_joined([rank[epoch] for rank in ranks], size) for epoch in range(EPOCHS)]
    for size in sizes[1:]:
        require(plans[size] == plans[sizes[0]], f"R={size} has other groups in its steps than R={sizes[0]}")


def _layouts(make: MakeLayout, size: int) -> list[Strategy]:
    return [make(rank, size)[0] for rank in range(size)]


def _joined(ranks: list[list[Step]], size: int) -> list[tuple[int, ...]]:
    """The groups of each step of all ranks, sorted."""
    require(len({len(works) for works in ranks}) == 1, f"R={size}: ranks have different numbers of steps")
    steps = []
    for number, works in enumerate(zip(*ranks, strict=True)):
        where = f"R={size}, step {number}"
        require({work.iteration for work in works} == {number}, f"{where}: iterations are not numbered from 0")
        groups = sorted(group for work in works for group in work.groups)
        require(len(set(groups)) == len(groups), f"{where}: a group is computed twice")
        totals = {work.total_groups for work in works}
        require(totals == {len(groups)}, f"{where}: total_groups is {totals}, but {len(groups)} groups are computed")
        steps.append(tuple(groups))
    return steps


def summed_steps(make: MakeLayout, size: int, *, epoch: int = 0) -> list[SummedStep]:
    """All steps of an epoch with the parameters as made: what a sum over ``size`` ranks would give."""
    ranks = [make(rank, size) for rank in range(size)]
    steps = []
    for works in zip(*(layout.epoch(epoch) for layout, _ in ranks), strict=True):
        loss_sum, groups, vertex_snapshots = 0.0, 0, 0
        sums: dict[str, Tensor] = {}
        for (layout, model), work in zip(ranks, works, strict=True):
            model.zero_grad(set_to_none=False)
            marks = RecordingMarks()
            computed = layout.compute(work, marks)
            _check_marks(marks.phases)
            require(computed.groups == len(work.groups), f"{computed.groups} groups counted, {len(work.groups)} given")
            loss_sum += computed.loss_sum
            groups += computed.groups
            vertex_snapshots += computed.vertex_snapshots
            for name, parameter in model.named_parameters():
                own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
                sums[name] = sums.get(name, torch.zeros_like(own)) + own
        total = max(works[0].total_groups, 1)
        gradients = {name: gradient / total for name, gradient in sums.items()}
        steps.append(SummedStep(loss_sum / total, gradients, groups, vertex_snapshots))
    return steps


def _check_marks(phases: list[str]) -> None:
    """Batch and transfer come first; a layout may also transfer block by block, between computing."""
    fine = phases[:1] == ["batch"] and "transfer" in phases and set(phases[1:]) <= {"transfer", "compute", "exchange"}
    require(fine, f"compute marks {phases}, not 'batch' and then 'transfer', with 'compute' between where in blocks")


def check_sums(make: MakeLayout, sizes: Sequence[int], *, tolerance: float = 1e-10) -> None:
    """Losses, gradients and counted work, summed over ranks, are those of one rank.

    Args:
        make: gives rank r of R its layout and a float64 model; all with the same parameters.
        sizes: numbers of ranks R; the first is what the others are compared with.
        tolerance: allowed difference, relative to the largest gradient of the step.

    Raises:
        ContractError: they are not.
    """
    wanted = summed_steps(make, sizes[0])
    for size in sizes[1:]:
        for number, (one, step) in enumerate(zip(wanted, summed_steps(make, size), strict=True)):
            where = f"R={size}, step {number}"
            require(abs(step.loss - one.loss) <= tolerance * abs(one.loss), f"{where}: loss {step.loss} for {one.loss}")
            work = (step.groups, step.vertex_snapshots)
            require(work == (one.groups, one.vertex_snapshots), f"{where}: work {work} is not that of one rank")
            largest = max(float(gradient.abs().max()) for gradient in one.gradients.values())
            for name, gradient in one.gradients.items():
                apart = float((gradient - step.gradients[name]).abs().max())
                require(apart <= tolerance * largest, f"{where}: gradient of {name} is {apart:.2e} apart")


def check_accumulation(make: MakeLayout) -> None:
    """``compute`` adds to gradients that are there, so that they can be views of one buffer.

    Raises:
        ContractError: it replaces them, or moves them elsewhere.
    """
    layout, model = make(0, 1)
    work = layout.epoch(0)[0]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    places = [parameter.grad.data_ptr() for parameter in model.parameters() if parameter.grad is not None]
    layout.compute(work, StepMarks())
    once = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    layout.compute(work, StepMarks())
    twice = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    require([gradient.data_ptr() for gradient in twice] == places, "compute puts gradients into other memory")
    doubled = all(torch.allclose(two, 2 * one, rtol=1e-9) for one, two in zip(once, twice, strict=True))
    require(doubled, "compute replaces gradients instead of adding to them")


def check_layout(make: MakeLayout, *, sizes: Sequence[int] = (1, 2, 4)) -> None:
    """Check a layout on some numbers of ranks (see the functions of this module).

    Args:
        make: gives rank r of R its layout and a new float64 model, with the same parameters on every call.
        sizes: numbers of ranks, 1 first.

    Raises:
        ContractError: a promise is broken; the message names the rank count and the step.
    """
    check_steps(make, sizes)
    check_sums(make, sizes)
    check_accumulation(make)


class LayoutContract:
    """Pytest suite of layouts: inherit it and define fixtures ``make_layout`` and ``sizes``."""

    def test_every_group_has_one_rank_and_epochs_are_pure(self, make_layout: MakeLayout, sizes: Sequence[int]) -> None:
        """:func:`check_steps` holds."""
        check_steps(make_layout, sizes)

    def test_ranks_sum_to_one_rank(self, make_layout: MakeLayout, sizes: Sequence[int]) -> None:
        """:func:`check_sums` holds."""
        check_sums(make_layout, sizes)

    def test_gradients_are_added(self, make_layout: MakeLayout) -> None:
        """:func:`check_accumulation` holds."""
        check_accumulation(make_layout)


# A snapshot whose neighbours are seen through dense matrices: what models are run in where nothing may be sparse.


# What every model promises: a checker for one's own, and a pytest suite to inherit.


__all__ = [
    "DenseView",
    "MakeModel",
    "ModelContract",
    "check_model_alone",
    "dense_gcn",
    "run_model",
    "run_stacked",
    "stack_dense",
]

OF_WEIGHTS = ("weights", "weights_from_data")
_VERTICES, _FEATURES, _HIDDEN, _SNAPSHOTS = 10, 4, 4, 3


class MakeModel(Protocol):
    """A model's class, or a function that fills in its own options."""

    def __call__(self, features: int, hidden: int, layers: int, *, outputs: int = 1) -> DynamicModel:
        """A model with F features, H hidden, some layers and some outputs."""


def example_snapshots(dtype: torch.dtype = torch.float64) -> list[tuple[DenseView, Tensor]]:
    """Three random snapshots of ten nodes with three features; the last has no edge."""
    draw = torch.Generator().manual_seed(torch_seed(0, "contract/snapshots"))
    snapshots = []
    for t in range(_SNAPSHOTS):
        shape = (_VERTICES, _VERTICES)
        edges = (torch.rand(shape, generator=draw, dtype=torch.float64) < 0.25).to(dtype)
        x = torch.randn((_VERTICES, _FEATURES), generator=draw, dtype=torch.float64).to(dtype)
        snapshots.append((DenseView(edges if t < _SNAPSHOTS - 1 else torch.zeros_like(edges)), x))
    return snapshots


def run_model(model: DynamicModel, snapshots: Sequence[tuple[GraphView, Tensor]]) -> tuple[Tensor, State]:
    """Predictions of every snapshot from the initial state, (T, N, outputs), and the last state."""
    state = model.initial_state(snapshots[0][0].num_rows)
    predictions = []
    for space, x in snapshots:
        h, state = model.snapshot(space, x, state)
        predictions.append(model.readout(h))
    return torch.stack(predictions), state


def stack_dense(snapshots: Sequence[tuple[DenseView, Tensor]]) -> DenseView:
    """A space that stands for all of some snapshots, block-diagonally."""
    return DenseView(torch.block_diag(*(space.adjacency for space, _ in snapshots)))


def run_stacked(
    model: DynamicModel, snapshots: Sequence[tuple[GraphView, Tensor]], stacked: GraphView
) -> tuple[Tensor, State]:
    """What :func:`run_model` gives, computed layer by layer for all snapshots at once in a space that stands for them.

    Weights evolve snapshot by snapshot, each seen by itself; ``spatial`` then gets them stacked.
    """
    state = model.initial_state(snapshots[0][0].num_rows)
    x = torch.stack([x for _, x in snapshots])
    for layer in range(model.layers):
        states = [state]
        for (space, _), now in zip(snapshots, x, strict=True):
            states.append(model.evolve(layer, space, now, states[-1]))
        state = states[-1]
        given = stack_layer(states[1:], layer) if model.memory in OF_WEIGHTS else state
        mixed = model.spatial(layer, stacked, x.flatten(0, 1), given)
        x, state = model.temporal_sequence(layer, mixed.unflatten(0, (len(snapshots), -1)), state)
    return model.readout(x), state


def check_parameters(make: MakeModel) -> None:
    """Parameters are finite and a pure function of the seed, whatever torch's global generator holds.

    Raises:
        ContractError: they are not.
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
    """Facts can be derived: what the model pulls depends on sizes and options alone.

    Raises:
        ContractError: they cannot.
    """
    for layers in (1, 2):
        try:
            make_model(make, _FEATURES, _HIDDEN, layers).facts  # noqa: B018
        except UnsupportedError as error:
            raise ContractError(str(error)) from error


def check_state(make: MakeModel) -> None:
    """The state starts as it should, and can be detached and sliced.

    Raises:
        ContractError: it does not.
    """
    model = make_model(make, _FEATURES, _HIDDEN, 2, seed=0).double()
    state = model.initial_state(_VERTICES)
    require(len(state.layers) == model.layers, f"the state has {len(state.layers)} layers, the model {model.layers}")
    for tensor in state.tensors:
        require(tensor.dtype == torch.float64, "the state does not have the parameters' type")
        if state.per_vertex:
            require(len(tensor) == _VERTICES, f"a per-vertex state has {len(tensor)} rows for {_VERTICES} nodes")
            require(not tensor.any(), "the state of a node before the first snapshot is not zero")
    _, after = run_model(model, example_snapshots())
    for tensor, kept in zip(after.tensors, after.detach().tensors, strict=True):
        require(torch.equal(tensor, kept) and not kept.requires_grad, "detach changes values or keeps history")
    for tensor, share in zip(after.tensors, after.slice(slice(2, 5)).tensors, strict=True):
        wanted = tensor[2:5] if after.per_vertex else tensor
        require(torch.equal(wanted, share), "slice gives other rows than asked for")


def check_forward(make: MakeModel, layers: int) -> None:
    """Shapes, the split interface, memory in use and nowhere but in the state, inputs left alone, nodes alike.

    Raises:
        ContractError: a promise is broken.
    """
    model, snapshots = make_model(make, _FEATURES, _HIDDEN, layers, seed=3).double(), example_snapshots()
    space, x = snapshots[0]
    state = model.initial_state(_VERTICES)
    before = [x.clone(), *(tensor.clone() for tensor in state.tensors)]
    h, after = model.snapshot(space, x, state)
    require(h.shape == (_VERTICES, _HIDDEN), f"a snapshot gives {tuple(h.shape)}, not (n, H)")
    left = [x, *state.tensors]
    require(all(torch.equal(*pair) for pair in zip(before, left, strict=True)), "snapshot changes its input in place")
    by_hand, hand_state = x, state
    for layer in range(layers):
        hand_state = model.evolve(layer, space, by_hand, hand_state)
        by_hand = model.spatial(layer, space, by_hand, hand_state)
        by_hand, hand_state = model.temporal(layer, by_hand, hand_state)
    require(
        torch.equal(h, by_hand), "snapshot() is not evolve, spatial, temporal of each layer, or keeps state elsewhere"
    )
    require(all(map(torch.equal, after.tensors, hand_state.tensors)), "the parts leave another state than snapshot")
    first, second = (model.snapshot(*snapshots[1], begin)[0] for begin in (state, after))
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
        model = make_model(make, _FEATURES, _HIDDEN, 1, outputs=outputs, seed=0)
        for shape in ((_VERTICES,), (_SNAPSHOTS, _VERTICES)):
            found = tuple(model.readout(torch.zeros(*shape, _HIDDEN)).shape)
            require(found == (*shape, outputs), f"readout gives {found}, not {(*shape, outputs)}")


def _check_rows(model: DynamicModel, space: DenseView, x: Tensor, state: State) -> None:
    """``temporal`` never mixes rows, and nodes further than the declared hops have no influence."""
    mixed = model.spatial(0, space, x, model.evolve(0, space, x, state))
    whole, _ = model.temporal(0, mixed, state)
    share, _ = model.temporal(0, mixed[2:5], state.slice(slice(2, 5)))
    require(torch.allclose(whole[2:5], share, rtol=1e-12, atol=1e-14), "temporal mixes rows of different nodes")
    hops = model.facts.hops
    chain = DenseView(torch.diag(torch.ones(hops + 3, dtype=x.dtype), -1))  # v aggregates from v - 1
    one = torch.linspace(-1, 2, chain.num_rows * x.shape[1], dtype=x.dtype).view(-1, x.shape[1])
    _, state = model.snapshot(chain, one, model.initial_state(chain.num_rows))
    other = one.clone()
    other[0] += 1.0
    for layer in range(model.layers):  # both with the weights that the first evolves, which may depend on every node
        state = model.evolve(layer, chain, one, state)
        (one, after), (other, _) = (
            model.temporal(layer, model.spatial(layer, chain, data, state), state) for data in (one, other)
        )
        state = after
    require(
        torch.equal(one[hops + 1 :], other[hops + 1 :]),
        f"a node further than {hops} hops has an effect, which autograd does not know of: a pull depends on another "
        "pull by a step without gradient, such as a comparison",
    )
    require(not torch.equal(one, other), "a node's own features have no influence on it")


def _check_order(model: DynamicModel, snapshots: list[tuple[DenseView, Tensor]]) -> None:
    """Nodes numbered otherwise give the same predictions, numbered otherwise."""
    order = torch.arange(_VERTICES).roll(3)
    turned = [(DenseView(space.adjacency[order][:, order]), x[order]) for space, x in snapshots]
    one, other = run_model(model, snapshots)[0], run_model(model, turned)[0]
    require(torch.allclose(one[:, order], other, rtol=1e-9, atol=1e-12), "predictions depend on node numbers")


def check_sequence(make: MakeModel, layers: int) -> None:
    """S snapshots at once give what one after another gives, in time and through a stacked space, with gradients.

    Raises:
        ContractError: they do not.
    """
    model, snapshots = make_model(make, _FEATURES, _HIDDEN, layers, seed=3).double(), example_snapshots()
    _, state = run_model(model, snapshots)
    space, x = snapshots[0]
    mixed = model.spatial(0, space, x, state).detach()
    given = torch.stack([mixed, mixed.flip(0), 0.5 * mixed])
    whole, after = model.temporal_sequence(0, given, state)
    parts, by_step = [], state
    for now in given:
        h, by_step = model.temporal(0, now, by_step)
        parts.append(h)
    _require_same(torch.stack(parts), whole, "temporal_sequence is not temporal, snapshot after snapshot")
    for one, other in zip(by_step.tensors, after.tensors, strict=True):
        _require_same(one, other, "temporal_sequence leaves another state than temporal, snapshot after snapshot")
    if model.memory != "neighbourhood":  # its spatial part needs the state that the snapshot before left
        _check_stacked(model, snapshots)


def _check_stacked(model: DynamicModel, snapshots: list[tuple[DenseView, Tensor]]) -> None:
    found = []
    for run in (run_model, functools.partial(run_stacked, stacked=stack_dense(snapshots))):
        model.zero_grad()
        predictions, state = run(model, snapshots)
        (predictions - 1.0).square().mean().backward()
        found.append((predictions, *state.tensors, *(parameter.grad for parameter in model.parameters())))
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
        model = make_model(make, _FEATURES, _HIDDEN, layers, seed=3).double()
        predictions, state = run_model(model, example_snapshots())
        (predictions[-1] - 1.0).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        require(gradient is not None and bool(gradient.any()), f"no gradient reaches parameter {name}")
        other = gradients[1][name]
        same = gradient is not None and other is not None and torch.equal(gradient, other)
        require(same, f"two runs give {name} other gradients")
    space, x = example_snapshots()[0]
    h, _ = model.snapshot(space, x, state.detach())
    try:
        model.readout(h).sum().backward()  # the history before the cut is freed: reaching it raises
    except RuntimeError as error:
        require(False, f"a step that starts from a detached state reaches behind it: {error}")


def check_model_alone(make: MakeModel) -> None:
    """Check a model by itself, with one, two and three layers (see the functions of this module).

    Args:
        make: the class, or ``functools.partial(Class, option=...)``.

    Raises:
        ContractError: a promise is broken; the message says which.
    """
    check_parameters(make)
    check_facts(make)
    check_state(make)
    check_outputs(make)
    for layers in (1, 2, 3):
        check_forward(make, layers)
        check_sequence(make, layers)
        check_gradients(make, layers)


def _require_same(one: Tensor, other: Tensor, rule: str) -> None:
    require(one.shape == other.shape and torch.allclose(one, other, rtol=1e-10, atol=1e-13), rule)


class ModelContract:
    """Pytest suite of models: inherit it and define a fixture ``make`` that returns the class."""

    def test_parameters_come_from_the_seed(self, make: MakeModel) -> None:
        """:func:`check_parameters` holds."""
        check_parameters(make)

    def test_facts_can_be_derived(self, make: MakeModel) -> None:
        """:func:`check_facts` holds."""
        check_facts(make)

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
        model = make_model(make, _FEATURES, _HIDDEN, 2, seed=1)
        single, _ = run_model(model, example_snapshots(torch.float32))
        double, _ = run_model(model.double(), example_snapshots())
        require(single.dtype == torch.float32, f"a float32 model predicts {single.dtype}")
        require(torch.allclose(single.double(), double, rtol=1e-4, atol=1e-5), "float32 and float64 predict otherwise")


# What every partitioner promises: a checker for one's own, and a pytest suite to inherit.


Edges = Sequence[tuple[int, int]]


Partitioner = Callable[..., Assigned]  # (graph, parts, *, the settings of make_partition that it uses)


def graph_of(
    nodes: int, snapshots: Sequence[Edges], *, name: str = "example", weighted: bool = False, classes: Any = None
) -> DynamicGraph:
    """A graph of T snapshots, given as edges (source, target), with nothing worth learning on its N nodes.

    Args:
        nodes: N.
        snapshots: T lists of edges; an edge given twice in a snapshot counts once.
        name: of the graph.
        weighted: edges weigh 0.5, 1.0, 1.5, ..., in the order of rows.
        classes: (N,) or (T, N) int16, -1 where unlabelled; none where None.
    """
    values = np.zeros((len(snapshots), nodes), np.float32)
    return DynamicGraph(
        name=name,
        snapshots=tuple(_snapshot(nodes, edges, weighted) for edges in snapshots),
        features=np.ones((nodes, 1), np.float32),
        targets=values,
        persistence=values,
        source="a contract's example",
        edge_life=1,
        classes=classes,
    )


def _snapshot(nodes: int, edges: Edges, weighted: bool) -> Snapshot:
    pairs = np.array(sorted({(target, source) for source, target in edges}), np.int64).reshape(-1, 2)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=nodes))]).astype(np.int64)
    weights = 0.5 * np.arange(1, len(pairs) + 1, dtype=np.float32) if weighted else None
    return Snapshot(indptr, pairs[:, 1].astype(np.int32), weights)


def power_law(nodes: int = 60, snapshots: int = 4, edges: int = 150, *, classes: Any = None) -> DynamicGraph:
    """A random graph with a few popular nodes, the same every time; classes as for :func:`graph_of`."""
    draw = generator(0, "contract/partitioners", nodes, snapshots, edges)
    chance = 1.0 / np.arange(1, nodes + 1)
    targets = draw.choice(nodes, (snapshots, edges), p=chance / chance.sum())
    sources = draw.integers(0, nodes, (snapshots, edges))
    pairs = [list(zip(a.tolist(), b.tolist(), strict=True)) for a, b in zip(sources, targets, strict=True)]
    return graph_of(nodes, pairs, name="power law", classes=classes)


def example_graphs() -> Iterator[tuple[DynamicGraph, int]]:
    """Graphs, named in words, and numbers of parts that partitioners get wrong when they get something wrong."""
    ring = [(v, (v + 1) % 8) for v in range(8)]
    star = [(v, 0) for v in range(1, 9)]
    some = np.full(60, -1, np.int16)
    some[[3, 40, 41]] = 0, 1, 1
    yield power_law(classes=some), 4
    yield graph_of(1, [[]], name="one node"), 1
    yield graph_of(8, [ring, ring], name="one part"), 1
    yield graph_of(8, [ring, ring[:3]], name="one node a part"), 8
    yield graph_of(12, [[*ring, (1, 1)], [(5, 5)]], name="weighted, loops, isolated nodes", weighted=True), 3
    yield graph_of(12, [[(3, 4)], []], name="nearly all isolated"), 3
    yield graph_of(8, [[], ring, []], name="snapshots without edges"), 2
    yield graph_of(8, [[], []], name="no edge at all"), 3
    yield graph_of(9, [star], name="one snapshot, a star"), 2
    yield graph_of(9, [star, star], name="a star in as many parts as leaves"), 8


def check_assignment(
    assign: Partitioner, graph: DynamicGraph, parts: int, *, seed: int = 0, hops: int = 2
) -> NDArray[np.int32]:
    """Divide once and check the promises; returns the owners, for checks of one's own.

    Raises:
        ContractError: a promise is broken.
    """
    before = graph.data_hash
    settings = {
        "hops": hops,
        "seed": seed,
        "assignment_order": "boustrophedon",
        "imbalance": 0.03,
        "partition_file": "",
    }
    assigned = assign(graph, parts, **accepted(assign, settings))
    case = f"{graph.name}, N={graph.num_nodes}, P={parts}, seed={seed}"
    require(isinstance(assigned, Assigned), f"a partitioner returns Assigned, not {type(assigned).__name__} ({case})")
    require(_fresh_hash(graph) == before, f"the graph was changed ({case})")
    _require_numbers("owner", assigned.owner, graph.num_nodes, case)
    owner = assigned.owner
    require(owner.min() >= 0 and owner.max() < parts, f"owners run from {owner.min()} to {owner.max()} ({case})")
    empty = np.flatnonzero(np.bincount(owner, minlength=parts) == 0).tolist()
    require(not empty, f"parts {empty} own no node ({case})")
    if assigned.groups is not None:
        _require_numbers("groups", assigned.groups, graph.num_nodes, case)
        require(assigned.groups.min() >= 0, f"groups start below 0 ({case})")
    require(isinstance(assigned.notes, str), f"notes are words, not {type(assigned.notes).__name__} ({case})")
    return owner


def _require_numbers(name: str, given: Any, nodes: int, case: str) -> None:
    kind, shape = getattr(given, "dtype", type(given).__name__), getattr(given, "shape", None)
    require(shape == (nodes,) and kind == np.int32, f"{name} is int32 of shape (N,), not {kind} of {shape} ({case})")


def _fresh_hash(graph: DynamicGraph) -> str:
    """The hash of what the arrays hold now; a graph keeps the one it was made with."""
    return dataclasses.replace(graph).data_hash


def check_repeats(assign: Partitioner, graph: DynamicGraph, parts: int) -> None:
    """Divide twice by the same seed.

    Raises:
        ContractError: the parts are not the same.
    """
    first, again = (check_assignment(assign, graph, parts, seed=12345) for _ in range(2))
    require(
        np.array_equal(first, again),
        f"the same graph and seed gave other parts: ranks would disagree ({graph.name}, P={parts})",
    )


def check_partitioner(assign: Partitioner) -> None:
    """Check a partitioner on hard and easy graphs.

    Every node is owned once, every part owns one, the graph is left as it was, and equal seeds give equal parts.
    Isolated nodes, snapshots without edges, a star, and as many parts as nodes are among the cases.

    Raises:
        ContractError: a promise is broken; the message names the case.
    """
    for graph, parts in example_graphs():
        check_assignment(assign, graph, parts)
    check_repeats(assign, power_law(), 3)


class PartitionerContract:
    """Pytest suite of partitioners: inherit it and define a fixture ``assign`` that returns the function."""

    def test_every_vertex_is_owned_and_every_part_owns(self, assign: Partitioner) -> None:
        """:func:`check_assignment` holds for every example."""
        for graph, parts in example_graphs():
            check_assignment(assign, graph, parts)

    def test_equal_seeds_give_equal_parts(self, assign: Partitioner) -> None:
        """:func:`check_repeats` holds."""
        check_repeats(assign, power_law(), 3)


# What every scheduler promises: a checker for one's own, and a pytest suite to inherit.


PARTS = (1, 2, 3, 4, 8)
PER_RANK = (1, 2, 3)


class Scheduler(Protocol):
    """A rule that assigns K groups to P parts; the parts are given by position."""

    def __call__(
        self, times_s: NDArray[np.float64], parts: int, /, *, per_rank: int = 2, allreduce_s: float = 0.0
    ) -> Schedule:
        """The plan of an epoch."""


def example_times_s() -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Named (K,) vectors of group seconds that schedulers get wrong when they get something wrong."""
    draw = generator(0, "contract/times")
    yield "one group", np.array([0.5])
    yield "two groups", np.array([1.0, 2.0])
    yield "all alike", np.ones(12)
    yield "all zero", np.zeros(7)
    yield "linear growth", np.linspace(1.0, 10.0, 23)
    yield "exponential growth with noise", np.geomspace(1.0, 20.0, 30) * (1 + 0.05 * draw.standard_normal(30))
    yield "one giant", np.concatenate([np.ones(9), [100.0], np.ones(3)])
    yield "nanoseconds", 1e-9 * draw.random(17)
    yield "ties in pairs", np.repeat([3.0, 1.0, 2.0, 5.0], 4)


def check_plan(
    schedule: Scheduler, times_s: NDArray[np.float64], parts: int, *, per_rank: int, allreduce_s: float = 0.0
) -> Schedule:
    """Schedule once and check the promises; returns the plan, for checks of one's own.

    Raises:
        ContractError: a promise is broken.
        PlanError: the plan loses or repeats a group.
    """
    given = np.array(times_s, dtype=np.float64)
    given.setflags(write=False)  # profiles are shared: a scheduler that sorts in place fails here
    plan = schedule(given, parts, per_rank=per_rank, allreduce_s=allreduce_s)
    case = f"K={len(given)}, P={parts}, per_rank={per_rank}"
    require(isinstance(plan, Schedule), f"a scheduler returns a Schedule, not {type(plan).__name__} ({case})")
    require(plan.groups == len(given), f"the plan is for {plan.groups} groups, not for those given ({case})")
    require(plan.parts == parts, f"the plan has {plan.parts} parts, not those asked for ({case})")
    most = max(len(part) for iteration in plan.assignment for part in iteration)
    require(most <= per_rank, f"a part has {most} groups in one iteration, more than per_rank ({case})")
    kinds = {type(group) for iteration in plan.assignment for part in iteration for group in part}
    require(kinds == {int}, f"group ids are plain ints, so that plans can be stored, not {kinds} ({case})")
    again = schedule(given.copy(), parts, per_rank=per_rank, allreduce_s=allreduce_s)
    require(again.assignment == plan.assignment, f"the same times gave another plan: ranks would disagree ({case})")
    bound_s = lower_bound_s(given, parts, per_rank=per_rank, allreduce_s=allreduce_s)
    makespan_s = plan.makespan_s(given, allreduce_s=allreduce_s)
    require(makespan_s >= bound_s * (1 - 1e-9), f"{makespan_s} s is faster than any plan can be, {bound_s} s ({case})")
    if plan.gap is not None:
        farthest = makespan_s / bound_s - 1 if bound_s > 0 else 0.0  # a search may know a better bound, not a worse one
        require(0 <= plan.gap <= farthest + 1e-9, f"a gap of {plan.gap}, where at most {farthest} is left ({case})")
    return plan


def check_scheduler(schedule: Scheduler) -> None:
    """Check a scheduler on hard and easy times, with 1 to 8 parts and 1 to 3 groups a part.

    Every group is placed once, ``per_rank`` is respected, the plan has the parts asked for and is a pure function of
    its input, which is left unchanged. No plan is faster than the lower bound, no gap larger than the distance to it.
    One group, and fewer groups than parts, are among the cases.

    Raises:
        ContractError: a promise is broken; the message names the case.
        PlanError: a plan loses or repeats a group.
    """
    for _, times_s in example_times_s():
        for parts in PARTS:
            for per_rank in PER_RANK:
                check_plan(schedule, times_s, parts, per_rank=per_rank)
                check_plan(schedule, times_s, parts, per_rank=per_rank, allreduce_s=0.25)


class SchedulerContract:
    """Pytest suite of schedulers: inherit it and define a fixture ``schedule`` that returns the function."""

    def test_keeps_every_promise(self, schedule: Scheduler) -> None:
        """:func:`check_scheduler` holds."""
        check_scheduler(schedule)

    def test_is_never_slower_than_one_part_doing_everything(self, schedule: Scheduler) -> None:
        """The predicted epoch lies between the bounds that hold for every plan."""
        for name, times_s in example_times_s():
            for parts in PARTS:
                makespan_s = check_plan(schedule, times_s, parts, per_rank=1).makespan_s(times_s)
                slack = 1e-9 * times_s.sum()
                require(makespan_s <= times_s.sum() + slack, f"{name}: {parts} parts take longer than one")
                lowest_s = max(times_s.max(), times_s.sum() / parts)
                require(makespan_s >= lowest_s - slack, f"{name}: faster than possible")

    def test_deals_fewer_groups_than_parts(self, schedule: Scheduler) -> None:
        """With more parts than groups one iteration is enough, and idle parts are allowed."""
        for groups in (1, 3):
            plan = check_plan(schedule, np.arange(1.0, groups + 1), 8, per_rank=1)
            require(len(plan.assignment) == 1, f"{groups} groups on 8 parts took {len(plan.assignment)} iterations")
