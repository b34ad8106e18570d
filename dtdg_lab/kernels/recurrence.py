"""GRU and LSTM of every node through S snapshots.

Everything lies with nodes side by side: an array of a step is (numbers, n), so that each gate is one contiguous
piece of memory. The state, a row of ones and narrow inputs lie on top of one another, z = [h ; 1 ; x], so that one
product gives all gates; wide inputs are not copied and have their own product. Backward is written manually
and works in place, on arrays that are still in the cache when n is a thousand or two. What costs beside the products is
reading again what forward kept, so little else is kept than z, gates, and candidates or cells.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_WIDE = 16  # inputs from which on copying them costs more than a second product


def gru_sequence(
    fed: Tensor, h: Tensor, weights: Tensor, *, feed: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """A GRU through time; rows never mix. Differentiable once, in all given.

    With fed = (fed_u, fed_r, fed_c) and weights = (W_u, W_r, W_c): u = sigma(fed_u + h W_u), r = sigma(fed_r + h W_r),
    c = tanh(fed_c + (r * h) W_c), h' = u * h + (1 - u) * c.

    Args:
        fed: (S, n, 3H) what the inputs give each gate, biases included; gates u, r, c side by side. With ``feed`` and
            ``bias`` it is the inputs themselves, (S, n, C), and the gates are given ``fed feed + bias``.
        h: (n, H) hidden state before the first snapshot.
        weights: (3, H, H) the state's matrices of u, r, c.
        feed: (C, 3H) the inputs' matrices of u, r, c, side by side.
        bias: (3H,) the gates' biases.

    Returns:
        (S, n, H) the hidden state after each snapshot; in memory it is (S, H, n).
    """
    states: Tensor = _GRU.apply(fed, h, _joined(fed, weights, feed, bias))
    return states


def lstm_sequence(
    fed: Tensor, h: Tensor, c: Tensor, weights: Tensor, *, feed: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """An LSTM through time; rows never mix. Differentiable once, in all given.

    With gates i, f, g, o: i, f, o = sigma(fed + h W), g = tanh(fed_g + h W_g), c' = f * c + i * g, h' = o * tanh(c').

    Args:
        fed: (S, n, 4H) what the inputs give each gate, biases included; gates i, f, g, o side by side. With ``feed``
            and ``bias`` it is the inputs themselves, (S, n, C), and the gates are given ``fed feed + bias``.
        h: (n, H) hidden state before the first snapshot.
        c: (n, H) cell before the first snapshot.
        weights: (4, H, H) the state's matrices of i, f, g, o.
        feed: (C, 4H) the inputs' matrices of i, f, g, o, side by side.
        bias: (4H,) the gates' biases.

    Returns:
        (S, n, H) the hidden state after each snapshot, in memory (S, H, n), and (n, H) the last cell.
    """
    take, forget, candidate, give = _joined(fed, weights, feed, bias).chunk(4)
    states: Tensor
    states, cell = _LSTM.apply(fed, h, c, torch.cat([take, forget, give, candidate]))
    return states, cell


def _joined(fed: Tensor, weights: Tensor, feed: Tensor | None, bias: Tensor | None) -> Tensor:
    """What [h ; 1 ; x] is multiplied with to give all G gates: (G H, H + 1 + C), with its history."""
    if feed is None or bias is None:
        feed = torch.eye(fed.shape[2], dtype=fed.dtype, device=fed.device)
        bias = fed.new_zeros(fed.shape[2])
    return torch.cat([weights.transpose(1, 2).flatten(0, 1), bias.unsqueeze(1), feed.t()], dim=1)


def _steps(x: Tensor, height: int, rows: int) -> list[Tensor]:
    """Room for what is kept of each snapshot, (height, rows); one array for all would be too large for the heap."""
    return [x.new_empty(height, rows) for _ in range(len(x))]


class _Products:
    """Products of gates' matrices with [h ; 1 ; x], and their gradients.

    Args:
        matrix: (G H, H + 1 + C).
        x: (S, n, C).
    """

    def __init__(self, matrix: Tensor, x: Tensor) -> None:
        self.inputs = x.shape[2]
        self.width = matrix.shape[1] - self.inputs - 1
        self.wide = x if self.inputs >= _WIDE else None
        # pieces by themselves, since products are slower on parts of wider rows
        self._top = matrix if self.wide is None else matrix[:, : self.width + 1].contiguous()
        self._rest = self._top[:, self.width :].contiguous()
        self._back_h, self._feed = matrix[:, : self.width].contiguous(), matrix[:, self.width + 1 :].contiguous()

    @cached_property
    def _gradients(self) -> tuple[Tensor, ...]:
        like = (self._back_h, self._top[:, self.width :], self._feed[:, : 0 if self.wide is None else None])
        return tuple(torch.zeros_like(part, memory_format=torch.contiguous_format) for part in like)

    @property
    def gradient(self) -> Tensor:
        """The gradient of the matrix, from all that was taken."""
        return torch.cat(self._gradients, dim=1)

    def states(self, x: Tensor, h: Tensor) -> Tensor:
        """Room for z of every snapshot and after the last one, (S + 1, height, n), with the first h in it."""
        z = x.new_empty(len(x) + 1, self._top.shape[1], len(h))
        z[0, : self.width] = h.t()
        z[:, self.width] = 1.0
        if self.wide is None:
            z[:-1, self.width + 1 :] = x.transpose(1, 2)
        return z

    def put(self, t: int, rows: slice, z: Tensor, out: Tensor, *, resting: bool = False) -> Tensor:
        """Some rows of the matrix times [h ; 1 ; x] at snapshot t, into ``out``; h is not looked at where it is 0."""
        matrix, z = (self._rest, z[self.width :]) if resting else (self._top, z)
        if self.wide is None:
            return torch.mm(matrix[rows], z, out=out)
        torch.mm(self._feed[rows], self.wide[t].t(), out=out)
        return out.addmm_(matrix[rows], z)

    def take(self, rows: slice, h: Tensor, gates: Tensor, dh: Tensor) -> Tensor:
        """Add what some gates' gradient gives that of h's matrix, and write that of h."""
        self._gradients[0][rows].addmm_(gates, h.t())
        return torch.mm(self._back_h[rows].t(), gates, out=dh)

    def take_inputs(self, t: int, rest: Tensor, gates: Tensor, dx: Tensor | None) -> None:
        """Add what all gates' gradient gives biases and inputs' matrix, and write that of x at snapshot t.

        ``rest`` are the rows of z below h.
        """
        self._gradients[1].add_((rest @ gates.t()).t())  # few rows: this way round is the faster
        if self.wide is not None:
            self._gradients[2].addmm_(gates, self.wide[t])
        if dx is not None:
            torch.mm(self._feed.t(), gates, out=dx[t])


def _is_rest(*states: Tensor) -> bool:
    """Whether the states are rows of zeros that share their memory, as :func:`at_rest` gives them."""
    return all(x.device.type == "cpu" and x.stride(0) == 0 and len(x) > 1 and not bool(x[0].any()) for x in states)


def at_rest(state: Tensor, rows: int) -> Tensor:
    """A row (1, H) of zeros as the state of many, (rows, H), in the memory of one; its products are left out."""
    return state.expand(rows, -1)


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, matrix: Tensor) -> Tensor:
        width, products = h.shape[1], _Products(matrix, x)
        z = products.states(x, h)
        gates, candidates = _steps(x, 2 * width, len(h)), z.new_empty(len(x), width, len(h))
        both, last = slice(0, 2 * width), slice(2 * width, None)
        reset_z = torch.empty_like(z[0])  # [r * h ; 1 ; x]
        hs, rests = z[:, :width].unbind(), z[:, width:].unbind()
        ctx.rests = not ctx.needs_input_grad[1] and _is_rest(h)
        for t, (gate, candidate) in enumerate(zip(gates, candidates, strict=True)):
            resting = ctx.rests and t == 0
            update, reset = products.put(t, both, z[t], gate, resting=resting).sigmoid_().chunk(2)
            if not resting:
                torch.mul(reset, hs[t], out=reset_z[:width])
                reset_z[width:] = rests[t]
            products.put(t, last, z[t] if resting else reset_z, candidate, resting=resting).tanh_()
            torch.lerp(candidate, hs[t], update, out=hs[t + 1])
        ctx.save_for_backward(x, matrix, z, candidates, *gates)
        return z[1:, :width].transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, z, candidates, *gates = ctx.saved_tensors
        products = _Products(matrix, x)
        steps, width, rows = candidates.shape
        dx = z.new_empty(steps, products.inputs, rows) if ctx.needs_input_grad[0] else None
        both, last = slice(0, 2 * width), slice(2 * width, None)
        dgates, reset_h = z.new_empty(3 * width, rows), z.new_empty(width, rows)
        d_both, (d_update, d_reset, d_candidate) = dgates[both], dgates.chunk(3)
        hs, rests = z[:, :width].unbind(), z[:, width:].unbind()
        dh, before, part = z.new_zeros(width, rows), z.new_empty(width, rows), z.new_empty(width, rows)
        for t in reversed(range(steps)):
            h, candidate, (update, reset) = hs[t], candidates[t], gates[t].chunk(2)
            dh.add_(dstates[t].t())
            # h' = c + u (h - c)
            torch.sub(h, candidate, out=d_update).mul_(dh)
            torch.mul(dh, update, out=before)
            _tanh_backward(dh.sub_(before), candidate, grad_input=d_candidate)
            if ctx.rests and t == 0:  # h is zero, so r has no effect
                d_reset.zero_()
                _sigmoid_backward(d_both, gates[t], grad_input=d_both)
                products.take_inputs(t, rests[t], dgates, dx)
                break
            # c depends on h through r * h
            products.take(last, torch.mul(reset, h, out=reset_h), d_candidate, dh=part)
            torch.mul(part, h, out=d_reset)
            before.addcmul_(part, reset)
            _sigmoid_backward(d_both, gates[t], grad_input=d_both)
            before.add_(products.take(both, h, d_both, dh=part))
            products.take_inputs(t, rests[t], dgates, dx)
            dh, before = before, dh
        dh = None if ctx.rests else dh.t()
        return None if dx is None else dx.transpose(1, 2), dh, products.gradient


class _LSTM(torch.autograd.Function):
    """Gates in the order i, f, o, g: the three sigmoids are one piece of memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        width, products = h.shape[1], _Products(matrix, x)
        z = products.states(x, h)
        gates, cells = _steps(x, 4 * width, len(h)), z.new_empty(len(x) + 1, width, len(h))
        cells[0] = c.t()
        tanhs = torch.empty_like(cells[1:])
        hs = z[:, :width].unbind()
        ctx.rests = not any(ctx.needs_input_grad[1:3]) and _is_rest(h, c)
        for t, gate in enumerate(gates):
            resting = ctx.rests and t == 0
            take, forget, give, candidate = products.put(t, slice(None), z[t], gate, resting=resting).chunk(4)
            gate[: 3 * width].sigmoid_()
            cell = torch.mul(forget, cells[t], out=cells[t + 1]).addcmul_(take, candidate.tanh_())
            torch.mul(give, torch.tanh(cell, out=tanhs[t]), out=hs[t + 1])
        ctx.save_for_backward(x, matrix, z, cells, tanhs, *gates)
        return z[1:, :width].transpose(1, 2), cells[-1].t().clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor, dcell: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, z, cells, tanhs, *gates = ctx.saved_tensors
        products = _Products(matrix, x)
        steps, width, rows = len(x), cells.shape[1], cells.shape[2]
        dx = z.new_empty(steps, products.inputs, rows) if ctx.needs_input_grad[0] else None
        dgates = z.new_empty(4 * width, rows)
        d_sigmoids, (d_take, d_forget, d_give, d_candidate) = dgates[: 3 * width], dgates.chunk(4)
        hs, rests = z[:, :width].unbind(), z[:, width:].unbind()
        dh, part = z.new_zeros(width, rows), z.new_empty(width, rows)
        dc = torch.empty_like(dh).copy_(dcell.t())
        for t in reversed(range(steps)):
            take, forget, give, candidate = gates[t].chunk(4)
            dh.add_(dstates[t].t())
            # h' = o tanh(c')
            torch.mul(dh, tanhs[t], out=d_give)
            dc.add_(_tanh_backward(dh.mul_(give), tanhs[t], grad_input=part))
            # c' = f c + i g
            torch.mul(dc, candidate, out=d_take)
            torch.mul(dc, cells[t], out=d_forget)
            _tanh_backward(torch.mul(dc, take, out=part), candidate, grad_input=d_candidate)
            _sigmoid_backward(d_sigmoids, gates[t][: 3 * width], grad_input=d_sigmoids)
            dc.mul_(forget)
            if not (ctx.rests and t == 0):
                products.take(slice(None), hs[t], dgates, dh=dh)
            products.take_inputs(t, rests[t], dgates, dx)
        of_states = (None, None) if ctx.rests else (dh.t(), dc.t())
        return None if dx is None else dx.transpose(1, 2), *of_states, products.gradient
