"""GRU and LSTM of every node through S snapshots.

Everything lies with nodes side by side: an array of a step is (numbers, n), so that each gate is one contiguous
piece of memory. The state, a row of ones and narrow inputs lie on top of one another, z = [h ; 1 ; x], so that one
product gives all gates; wide inputs are not copied and have their own product. Backward is written manually
and works in place, on arrays that are still in the cache when n is a thousand or two. What costs beside the products is
reading again what forward kept, so little else is kept than z, gates, and candidates or cells.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
# Numbers in the states of all snapshots from which on the element-wise part of an LSTM is compiled, by numba if it is
# installed; it takes half the time then, and results differ by rounding.
COMPILED_NUMBERS = 1 << 20
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


def _for_sigmoids(matrix: Tensor, width: int) -> Tensor:
    """The matrix with -2 times the rows of the last gate, the candidate: see :func:`_tanh_from`."""
    return torch.cat([matrix[:-width], -2.0 * matrix[-width:]])


def _tanh_from(x: Tensor) -> Tensor:
    """tanh(a) = 1 - 2 sigma(-2 a), in the place of sigma(-2 a). A sigmoid takes a sixth of the time of torch's tanh."""
    return torch.sub(x.new_ones(()), x, alpha=2, out=x)


def _steps(x: Tensor, height: int, rows: int, *, kept: bool) -> list[Tensor]:
    """Room of each snapshot, (height, rows), the same for all where nothing is kept for backward.

    One array for all would be too large for the heap.
    """
    return [x.new_empty(height, rows) for _ in range(len(x))] if kept else [x.new_empty(height, rows)] * len(x)


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
        like = (self._back_h, self._top[:, self.width :], self._feed[:, : 0 if self.wide is None else None])
        self._gradients = tuple(torch.zeros_like(part, memory_format=torch.contiguous_format) for part in like)

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
            torch.mm(self._feed.t(), gates, out=dx[t].t())


def _is_rest(*states: Tensor) -> bool:
    """Whether the states are rows of zeros that share their memory, as :func:`at_rest` gives them."""
    return all(x.device.type == "cpu" and x.stride(0) == 0 and len(x) > 1 and not bool(x[0].any()) for x in states)


def at_rest(state: Tensor, rows: int) -> Tensor:
    """A row (1, H) of zeros as the state of many, (rows, H), in the memory of one; its products are left out."""
    return state.expand(rows, -1)


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, matrix: Tensor) -> Tensor:
        width = h.shape[1]
        products = _Products(_for_sigmoids(matrix, width), x)
        z = products.states(x, h)
        kept = any(ctx.needs_input_grad)
        gates, candidates = (_steps(x, height, len(h), kept=kept) for height in (2 * width, width))
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
            _tanh_from(products.put(t, last, z[t] if resting else reset_z, candidate, resting=resting).sigmoid_())
            torch.lerp(candidate, hs[t], update, out=hs[t + 1])
        ctx.save_for_backward(x, matrix, z, *candidates, *gates)
        return z[1:, :width].transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, z, *kept = ctx.saved_tensors
        products, steps, width, rows = _Products(matrix, x), len(x), len(matrix) // 3, z.shape[2]
        candidates, gates = kept[:steps], kept[steps:]
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None  # lies in memory as x does
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
        return dx, dh, products.gradient


class TorchPasses:
    """What an LSTM's step does element by element, of arrays (H, n), and (4H, n) for gates i, f, o, g."""

    @staticmethod
    def forward(gates: Tensor, before: Tensor, after: Tensor, tanhs: Tensor, h: Tensor) -> None:
        """Write gates, cells after, their tanh and h.

        Args:
            gates: products, those of g times -2, which become the gates.
            before: cells.
            after: cells, written.
            tanhs: of the cells after, written.
            h: state after, written.
        """
        take, forget, give, candidate = gates.sigmoid_().chunk(4)
        torch.mul(forget, before, out=after).addcmul_(take, _tanh_from(candidate))
        torch.mul(give, _tanh_from(torch.mul(after, -2.0, out=tanhs).sigmoid_()), out=h)

    @staticmethod
    def backward(  # noqa: PLR0917 - as the compiled one
        gates: Tensor, before: Tensor, tanhs: Tensor, dh: Tensor, dc: Tensor, dgates: Tensor
    ) -> None:
        """Write the gradient of the gates' products; that of the cells, ``dc``, becomes that of ``before``.

        ``dh`` is the gradient of h and is not kept.
        """
        take, forget, give, candidate = gates.chunk(4)
        d_sigmoids, (d_take, d_forget, d_give, d_candidate) = dgates[: 3 * len(dh)], dgates.chunk(4)
        # h' = o tanh(c')
        torch.mul(dh, tanhs, out=d_give)
        dc.add_(_tanh_backward(dh.mul_(give), tanhs, grad_input=d_candidate))
        # c' = f c + i g
        torch.mul(dc, candidate, out=d_take)
        torch.mul(dc, before, out=d_forget)
        _tanh_backward(torch.mul(dc, take, out=d_candidate), candidate, grad_input=d_candidate)
        _sigmoid_backward(d_sigmoids, gates[: 3 * len(dh)], grad_input=d_sigmoids)
        dc.mul_(forget)


class CompiledPasses:
    """The same, each in one pass on one thread; needs numba, and single precision on the CPU."""

    @staticmethod
    def forward(*arrays: Tensor) -> None:
        """As :meth:`TorchPasses.forward`."""
        from dtdg_lab.kernels import lstm_passes

        lstm_passes.forward(*(x.numpy() for x in arrays))

    @staticmethod
    def backward(*arrays: Tensor) -> None:
        """As :meth:`TorchPasses.backward`."""
        from dtdg_lab.kernels import lstm_passes

        lstm_passes.backward(*(x.numpy() for x in arrays))


@functools.cache
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _passes(x: Tensor, h: Tensor) -> type[TorchPasses] | type[CompiledPasses]:
    """The compiled passes where they pay: importing and compiling them takes two seconds."""
    fits = x.device.type == "cpu" and x.dtype == torch.float32 and torch.get_num_threads() == 1
    return CompiledPasses if fits and len(x) * h.numel() >= COMPILED_NUMBERS and _has_numba() else TorchPasses


class _LSTM(torch.autograd.Function):
    """Gates in the order i, f, o, g: the three sigmoids are one piece of memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        width = h.shape[1]
        products = _Products(_for_sigmoids(matrix, width), x)
        z = products.states(x, h)
        kept = any(ctx.needs_input_grad)
        gates, tanhs = (_steps(x, height, len(h), kept=kept) for height in (4 * width, width))
        cells = z.new_empty(len(x) + 1, width, len(h))
        cells[0] = c.t()
        hs = z[:, :width].unbind()
        ctx.rests, ctx.passes = not any(ctx.needs_input_grad[1:3]) and _is_rest(h, c), _passes(x, h)
        for t, gate in enumerate(gates):
            resting = ctx.rests and t == 0
            products.put(t, slice(None), z[t], gate, resting=resting)
            ctx.passes.forward(gate, cells[t], cells[t + 1], tanhs[t], hs[t + 1])
        ctx.save_for_backward(x, matrix, z, cells, *tanhs, *gates)
        return z[1:, :width].transpose(1, 2), cells[-1].t().clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor, dcell: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, z, cells, *kept = ctx.saved_tensors
        products = _Products(matrix, x)
        steps, width, rows = len(x), cells.shape[1], cells.shape[2]
        tanhs, gates = kept[:steps], kept[steps:]
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None  # lies in memory as x does
        hs, rests = z[:, :width].unbind(), z[:, width:].unbind()
        dgates, dh = z.new_empty(4 * width, rows), z.new_zeros(width, rows)
        dc = torch.empty_like(dh).copy_(dcell.t())
        for t in reversed(range(steps)):
            dh.add_(dstates[t].t())
            ctx.passes.backward(gates[t], cells[t], tanhs[t], dh, dc, dgates)
            if not (ctx.rests and t == 0):
                products.take(slice(None), hs[t], dgates, dh=dh)
            products.take_inputs(t, rests[t], dgates, dx)
        of_states = (None, None) if ctx.rests else (dh.t(), dc.t())
        return dx, *of_states, products.gradient
