"""GRU and LSTM through time against loops written out: forward, gradient, by differences, wide and narrow inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from dtdg_lab.kernels import recurrence
from dtdg_lab.kernels.recurrence import gru_sequence, lstm_sequence
from tests.backends import devices

STEPS, ROWS, HIDDEN = 4, 6, 3
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def gru_written_out(fed: Tensor, h: Tensor, weights: Tensor) -> Tensor:
    states = []
    for now in fed:
        fed_u, fed_r, fed_c = now.chunk(3, dim=1)
        u, r = torch.sigmoid(fed_u + h @ weights[0]), torch.sigmoid(fed_r + h @ weights[1])
        h = u * h + (1 - u) * torch.tanh(fed_c + (r * h) @ weights[2])
        states.append(h)
    return torch.stack(states)


def lstm_written_out(fed: Tensor, h: Tensor, c: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    states = []
    for now in fed:
        i, f, g, o = (part + h @ w for part, w in zip(now.chunk(4, dim=1), weights, strict=True))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states), c


def _random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _given(gates: int, inputs: int | None, *, steps: int = STEPS) -> list[Tensor]:
    """fed, h, (c,) weights, and with inputs feed and bias."""
    fed = _random(steps, ROWS, gates * HIDDEN if inputs is None else inputs, seed=1)
    states = [_random(ROWS, HIDDEN, seed=2 + k) for k in range(gates - 2)]
    arguments = [fed, *states, _random(gates, HIDDEN, HIDDEN, seed=5)]
    return (
        arguments
        if inputs is None
        else [*arguments, _random(inputs, gates * HIDDEN, seed=6), _random(gates * HIDDEN, seed=7)]
    )


def _as_tuple(actual: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return actual if isinstance(actual, tuple) else (actual,)


def _fast(gates: int, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
    run: Callable[..., Tensor | tuple[Tensor, ...]] = gru_sequence if gates == 3 else lstm_sequence
    plain = gates  # fed, states, weights
    options = dict(zip(("feed", "bias"), arguments[plain:], strict=False))
    return _as_tuple(run(*arguments[:plain], **options))


def _written_out(gates: int, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
    run: Callable[..., Tensor | tuple[Tensor, ...]] = gru_written_out if gates == 3 else lstm_written_out
    fed, *rest = arguments
    if len(arguments) > gates:
        *rest, feed, bias = rest
        fed = fed @ feed + bias
    return _as_tuple(run(fed, *rest))


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("inputs", [None, 1, 2, 15, 16, 40])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_a_sequence_is_the_loop_written_out(
    gates: int, steps: int, inputs: int | None, dtype: torch.dtype, device: str
) -> None:
    arguments = _given(gates, inputs, steps=steps)
    mine = [part.to(device, dtype).requires_grad_() for part in arguments]
    plain = [part.clone().requires_grad_() for part in arguments]
    actual, expected = _fast(gates, mine), _written_out(gates, plain)
    seeds = [_random(*part.shape, seed=8 + k) for k, part in enumerate(expected)]
    gradients = torch.autograd.grad(actual, mine, [seed.to(device, dtype) for seed in seeds])
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    for part, good in zip(actual, expected, strict=True):
        assert part.shape == good.shape
        assert part.dtype == dtype
        torch.testing.assert_close(part.detach().cpu().double(), good.detach(), **close)
    for part, good in zip(gradients, torch.autograd.grad(expected, plain, seeds), strict=True):
        torch.testing.assert_close(part.cpu().double(), good, **{**close, "atol": 20 * close["atol"]})


@pytest.mark.parametrize("inputs", [None, 2, 17])
@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_backward_is_right_by_differences(gates: int, inputs: int | None) -> None:
    arguments = [0.5 * part for part in _given(gates, inputs, steps=3)]
    assert torch.autograd.gradcheck(
        lambda *arguments: _fast(gates, arguments), [part.requires_grad_() for part in arguments]
    )


@pytest.mark.parametrize("inputs", [2, 40])
@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_inputs_that_need_no_gradient_get_none_and_the_rest_is_the_same(gates: int, inputs: int) -> None:
    arguments = _given(gates, inputs)
    learned = [part.clone().requires_grad_() for part in arguments]
    gradients = torch.autograd.grad(_fast(gates, learned)[0].sum(), learned[1:])
    constant = [arguments[0], *(part.clone().requires_grad_() for part in arguments[1:])]
    for one, other in zip(gradients, torch.autograd.grad(_fast(gates, constant)[0].sum(), constant[1:]), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_layout_in_memory_does_not_matter(gates: int) -> None:
    """Slices of wider arrays, nodes last, and gradients that are views."""
    arguments = _given(gates, 20)
    wide = _random(STEPS, 2 * ROWS, 40, seed=9)
    wide[:, :ROWS, 5:25] = arguments[0]
    last = arguments[0].transpose(1, 2).contiguous().transpose(1, 2)
    expected = [part.clone().requires_grad_() for part in arguments]
    good = torch.autograd.grad(_fast(gates, expected)[0].sum(), expected)
    for fed in (wide[:, :ROWS, 5:25], last):
        mine = [part.detach().requires_grad_() for part in (fed, *arguments[1:])]
        for one, other in zip(torch.autograd.grad(_fast(gates, mine)[0].sum(), mine), good, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_nothing_given_is_changed_and_bits_repeat(gates: int) -> None:
    arguments = [part.requires_grad_() for part in _given(gates, 2)]
    copies = [part.detach().clone() for part in arguments]
    runs = []
    for _ in range(2):
        actual = _fast(gates, arguments)
        runs.append([*actual, *torch.autograd.grad([part.sum() for part in actual], arguments)])
    assert all(torch.equal(part, copy) for part, copy in zip(arguments, copies, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_a_second_derivative_is_refused(gates: int) -> None:
    arguments = [part.requires_grad_() for part in _given(gates, 2)]
    (gradient,) = torch.autograd.grad(_fast(gates, arguments)[0].square().sum(), arguments[1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_both_ways_of_feeding_are_tested() -> None:
    assert 15 < recurrence._WIDE <= 16


@pytest.mark.parametrize("inputs", [2, 20], ids=["narrow", "wide"])
@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_a_state_at_rest_is_a_state_of_zeros(gates: int, inputs: int) -> None:
    """The products that are left out change nothing but the last bits; a row that is not zero is no rest."""
    from dtdg_lab.kernels.recurrence import at_rest

    def run(state: Tensor) -> list[Tensor]:
        arguments = _given(gates, inputs)
        arguments[1 : gates - 1] = [state] * (gates - 2)
        learned = [x.requires_grad_() for index, x in enumerate(arguments) if not 1 <= index < gates - 1]
        actual = _fast(gates, arguments)
        return [*actual, *torch.autograd.grad(sum(x.pow(2).sum() for x in actual), learned)]

    zero = torch.zeros(1, HIDDEN, dtype=torch.float64)
    for row in (zero, zero + 0.5):
        for ours, theirs in zip(run(at_rest(row, ROWS)), run(row.repeat(ROWS, 1)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_forward_alone_gives_the_same_bits(gates: int) -> None:
    arguments = _given(gates, 20)
    learned = _fast(gates, [part.clone().requires_grad_() for part in arguments])
    for alone, part in zip(_fast(gates, arguments), learned, strict=True):
        assert torch.equal(alone, part)


# ragged sequences: nodes enter late


def _ragged(gates: int, inputs: int | None, heights: Sequence[int], *, rest: bool = False) -> list[Tensor]:
    arguments = _given(gates, inputs)
    arguments[0] = _random(1, sum(heights), arguments[0].shape[2], seed=1)
    if rest:
        arguments[1 : gates - 1] = [recurrence.at_rest(arguments[1].new_zeros(1, HIDDEN), ROWS)] * (gates - 2)
    return arguments


def _node_by_node(gates: int, arguments: Sequence[Tensor], heights: Sequence[int]) -> tuple[Tensor, ...]:
    """Each node's own sequence written out: packed states, and of an LSTM the cells after the first snapshots."""
    fed, states = arguments[0].squeeze(0), arguments[1 : gates - 1]
    starts, actual, cells = [sum(heights[:step]) for step in range(len(heights))], {}, []
    for node in range(max(heights)):
        places = [start + node for start, height in zip(starts, heights, strict=True) if height > node]
        some_rows = [fed[places].unsqueeze(1), *(state[node : node + 1] for state in states), *arguments[gates - 1 :]]
        hs, *_ = _written_out(gates, some_rows)
        actual |= dict(zip(places, hs, strict=True))
        cells += [last for _, *ends in [_written_out(gates, [some_rows[0][:1], *some_rows[1:]])] for last in ends]
    packed = torch.cat([actual[index] for index in range(sum(heights))]).unsqueeze(0)
    return (packed, torch.cat(cells)) if cells else (packed,)


@devices
@pytest.mark.parametrize("heights", [(1, 3, 3, 6), (6, 6), (2, 6), (6,)], ids=str)
@pytest.mark.parametrize("inputs", [None, 2, 40])
@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
def test_a_ragged_sequence_is_each_node_s_own(
    gates: int, inputs: int | None, heights: tuple[int, ...], device: str
) -> None:
    run: Callable[..., Tensor | tuple[Tensor, ...]] = gru_sequence if gates == 3 else lstm_sequence
    for rest, missing in ((False, 0), (True, 0), (False, 2)):
        arguments = _ragged(gates, inputs, heights, rest=rest)
        for part in arguments[1 : gates - 1] if missing else ():
            part[ROWS - missing :] = 0.0  # rows that are not given
        learns = [not (rest and 1 <= index < gates - 1) for index in range(len(arguments))]
        mine = [part.to(device).requires_grad_(of) for part, of in zip(arguments, learns, strict=True)]
        plain = [part.clone().requires_grad_() for part in arguments]
        options = dict(zip(("feed", "bias"), mine[gates:], strict=False))
        states = [part[: ROWS - missing] if missing else part for part in mine[1 : gates - 1]]
        actual = _as_tuple(run(mine[0], *states, mine[gates - 1], **options, heights=heights))
        expected = _node_by_node(gates, plain, heights)
        for part, good in zip(actual, expected, strict=True):
            torch.testing.assert_close(part.detach().cpu(), good.detach(), rtol=1e-12, atol=1e-13)
        assert not any(of.requires_grad for of in actual[1:]), "cells after first snapshots have no history"
        first = recurrence.carried(actual[0], heights)
        entered = [
            sum(heights[:step]) + node
            for step, height in enumerate(heights)
            for node in range(0 if step == 0 else heights[step - 1], height)
        ]
        torch.testing.assert_close(first.cpu(), expected[0][0, entered].detach(), rtol=1e-12, atol=1e-13)
        seed = _random(*expected[0].shape, seed=8)
        some = [index for index, of in enumerate(learns) if of]
        ours = torch.autograd.grad(actual[0], [mine[index] for index in some], seed.to(device))
        theirs = torch.autograd.grad(expected[0], [plain[index] for index in some], seed)
        for index, part, good in zip(some, ours, theirs, strict=True):
            if 1 <= index < gates - 1:
                good[ROWS - missing :] = 0.0
            torch.testing.assert_close(part.cpu(), good, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("snapshots", [1, 2])
@pytest.mark.parametrize("heights", [(6, 6, 6), (2, 3, 6)], ids=str)
def test_the_newest_states_are_a_slice_with_its_gradient(heights: tuple[int, ...], snapshots: int) -> None:
    packed = heights[0] < heights[-1]
    states = _random(1, sum(heights), HIDDEN, seed=1) if packed else _random(len(heights), ROWS, HIDDEN, seed=1)
    states = states.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()  # as they come out of a recurrence
    actual = recurrence.newest(states, heights, snapshots)
    expected = states[:, -sum(heights[-snapshots:]) :] if packed else states[-snapshots:]
    assert torch.equal(actual, expected)
    seed = _random(*expected.shape, seed=2)
    (ours,), (theirs,) = (torch.autograd.grad(of, states, seed) for of in (actual, expected))
    assert torch.equal(ours, theirs) and ours.stride() == states.stride()
