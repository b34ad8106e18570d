"""GRU and LSTM of every vertex through S snapshots.

Everything lies with vertices side by side: an array of a step is (numbers, n), so that each gate is one contiguous piece
of memory. State, inputs and a row of ones lie on top of one another, z = [h ; x ; 1], so that one product serves all
gates, their inputs and biases, and one product each gives the gradients. Backward is written by hand and works in place,
on arrays that are still in the cache when n is about a thousand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


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
    states: Tensor
    states, cell = _LSTM.apply(fed, h, c, _joined(fed, weights, feed, bias))
    return states, cell


def _joined(fed: Tensor, weights: Tensor, feed: Tensor | None, bias: Tensor | None) -> Tensor:
    """What z = [h ; x ; 1] is multiplied with to give all G gates: (G H, H + C + 1), with its history."""
    if feed is None or bias is None:
        feed = torch.eye(fed.shape[2], dtype=fed.dtype, device=fed.device)
        bias = fed.new_zeros(fed.shape[2])
    return torch.cat([weights.transpose(1, 2).flatten(0, 1), feed.t(), bias.unsqueeze(1)], dim=1)


def _stacked(x: Tensor, h: Tensor) -> Tensor:
    """z = [h ; x ; 1] for every snapshot, (S + 1, H + C + 1, n): h before the first one, room for the others."""
    width, (steps, rows, inputs) = h.shape[1], x.shape
    z = x.new_empty(steps + 1, width + inputs + 1, rows)
    z[0, :width] = h.t()
    z[:-1, width:-1] = x.transpose(1, 2)
    z[:, -1] = 1.0
    return z


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, matrix: Tensor) -> Tensor:
        width = h.shape[1]
        z = _stacked(x, h)
        gates, candidates = z.new_empty(len(x), 2 * width, len(h)), z.new_empty(len(x), width, len(h))
        first, last = matrix.split([2 * width, width])
        reset_z = torch.empty_like(z[0])  # [r * h ; x ; 1]
        for now, after, gate, candidate in zip(z[:-1], z[1:], gates, candidates, strict=True):
            torch.mm(first, now, out=gate).sigmoid_()
            update, reset = gate.chunk(2)
            torch.mul(reset, now[:width], out=reset_z[:width])
            reset_z[width:].copy_(now[width:])
            torch.mm(last, reset_z, out=candidate).tanh_()
            torch.lerp(candidate, now[:width], update, out=after[:width])
        ctx.save_for_backward(matrix, z, gates, candidates)
        return z[1:, :width].transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        matrix, z, gates, candidates = ctx.saved_tensors
        steps, width, rows = candidates.shape
        dx = z.new_empty(steps, matrix.shape[1] - width - 1, rows) if ctx.needs_input_grad[0] else None
        reach = slice(0, width if dx is None else -1)  # the part of z whose gradient is wanted
        dmatrix = torch.zeros_like(matrix)
        dgates, reset_z = z.new_empty(3 * width, rows), torch.empty_like(z[0])
        d_update, d_reset, d_candidate = dgates.chunk(3)
        dh, before, part = z.new_zeros(width, rows), z.new_empty(width, rows), z.new_empty(width, rows)
        for t in reversed(range(steps)):
            now, candidate, (update, reset) = z[t], candidates[t], gates[t].chunk(2)
            h = now[:width]
            dh.add_(dstates[t].t())
            # h' = c + u (h - c)
            _sigmoid_backward(torch.sub(h, candidate, out=part).mul_(dh), update, grad_input=d_update)
            torch.mul(dh, update, out=before)
            _tanh_backward(dh.sub_(before), candidate, grad_input=d_candidate)
            # c hears h through r * h
            d_reset_z = matrix[2 * width :, reach].t() @ d_candidate
            _sigmoid_backward(torch.mul(d_reset_z[:width], h, out=part), reset, grad_input=d_reset)
            dz = matrix[: 2 * width, reach].t() @ dgates[: 2 * width]
            before.addcmul_(d_reset_z[:width], reset).add_(dz[:width])
            if dx is not None:
                torch.add(dz[width:], d_reset_z[width:], out=dx[t])
            torch.mul(reset, h, out=reset_z[:width])
            reset_z[width:].copy_(now[width:])
            dmatrix[: 2 * width].addmm_(dgates[: 2 * width], now.t())
            dmatrix[2 * width :].addmm_(d_candidate, reset_z.t())
            dh, before = before, dh
        return None if dx is None else dx.transpose(1, 2), dh.t(), dmatrix


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        width = h.shape[1]
        z = _stacked(x, h)
        gates = z.new_empty(len(x), 4 * width, len(h))
        cells, tanhs = z.new_empty(len(x) + 1, width, len(h)), z.new_empty(len(x), width, len(h))
        cells[0] = c.t()
        steps = zip(z[:-1], z[1:], gates, cells[:-1], cells[1:], tanhs, strict=True)
        for now, after, gate, cell_before, cell, tanh_cell in steps:
            torch.mm(matrix, now, out=gate)
            gate[: 2 * width].sigmoid_()
            gate[2 * width : 3 * width].tanh_()
            gate[3 * width :].sigmoid_()
            take, forget, candidate, give = gate.chunk(4)
            torch.mul(forget, cell_before, out=cell).addcmul_(take, candidate)
            torch.mul(give, torch.tanh(cell, out=tanh_cell), out=after[:width])
        ctx.save_for_backward(matrix, z, gates, cells, tanhs)
        return z[1:, :width].transpose(1, 2), cells[-1].t().clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor, dcell: Tensor) -> tuple[Tensor | None, ...]:
        matrix, z, gates, cells, tanhs = ctx.saved_tensors
        steps, width, rows = tanhs.shape
        dx = z.new_empty(steps, matrix.shape[1] - width - 1, rows) if ctx.needs_input_grad[0] else None
        reach = slice(0, width if dx is None else -1)  # the part of z whose gradient is wanted
        dmatrix, dgates = torch.zeros_like(matrix), z.new_empty(4 * width, rows)
        d_take, d_forget, d_candidate, d_give = dgates.chunk(4)
        dh, part = z.new_zeros(width, rows), z.new_empty(width, rows)
        dc = dcell.t().contiguous().clone()
        for t in reversed(range(steps)):
            take, forget, candidate, give = gates[t].chunk(4)
            dh.add_(dstates[t].t())
            # h' = o tanh(c')
            _sigmoid_backward(torch.mul(dh, tanhs[t], out=part), give, grad_input=d_give)
            dc.add_(_tanh_backward(dh.mul_(give), tanhs[t], grad_input=part))
            # c' = f c + i g
            _sigmoid_backward(torch.mul(dc, candidate, out=part), take, grad_input=d_take)
            _tanh_backward(torch.mul(dc, take, out=part), candidate, grad_input=d_candidate)
            _sigmoid_backward(torch.mul(dc, cells[t], out=part), forget, grad_input=d_forget)
            dc.mul_(forget)
            dz = matrix[:, reach].t() @ dgates
            dh = dz[:width]
            if dx is not None:
                dx[t] = dz[width:]
            dmatrix.addmm_(dgates, z[t].t())
        return None if dx is None else dx.transpose(1, 2), dh.t(), dc.t(), dmatrix
