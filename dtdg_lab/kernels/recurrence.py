"""GRU and LSTM of every node through S snapshots.

Arrays of a step are (numbers, n), with nodes in columns, so that each gate is contiguous. The state, a row of ones and
narrow inputs are stacked, z = [h ; 1 ; x], so that one product gives all gates. Wide inputs are not copied and have
their own product. The manual backward works in place, on arrays that stay in the CPU cache for n up to about two
thousand. Beside the products, it spends its time on reading saved arrays. So forward saves only z, gates, and
candidates or cells.

A sequence may be ragged: nodes enter at a snapshot and stay, so that snapshot t has the first ``heights[t]`` nodes.
Rows are then packed snapshot after snapshot, as in torch's ``PackedSequence``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_WIDE = 16  # input width from which copying costs more than a second product


def gru_sequence(
    fed: Tensor,
    h: Tensor,
    weights: Tensor,
    *,
    feed: Tensor | None = None,
    bias: Tensor | None = None,
    heights: Sequence[int] = (),
) -> Tensor:
    """Run a GRU through time; rows never mix. Differentiable once, in all arguments.

    With fed = (fed_u, fed_r, fed_c) and weights = (W_u, W_r, W_c): u = sigma(fed_u + h W_u), r = sigma(fed_r + h W_r),
    c = tanh(fed_c + (r * h) W_c), h' = u * h + (1 - u) * c.

    Args:
        fed: (S, n, 3H) contribution of the inputs to gates u, r, c, with biases. With ``feed`` and ``bias``, the inputs
            themselves, (S, n, C), whose contribution is ``fed feed + bias``.
        h: (n, H) hidden state before the first snapshot.
        weights: (3, H, H) state matrices of u, r, c.
        feed: (C, 3H) input matrices of u, r, c, side by side.
        bias: (3H,) biases of the gates.
        heights: S ascending numbers from 1 to n, for a ragged sequence. ``fed`` is then packed, (1, R, .), with R the
            sum of the heights; equal heights allow the dense form too. A node starts from its row of ``h`` at its first
            snapshot, or from zero if ``h`` has no such row.

    Returns:
        (S, n, H) hidden state after each snapshot, with memory layout (S, H, n); or packed, (1, R, H), with (H, R).
    """
    states: Tensor = _GRU.apply(fed, h, _joined(fed, weights, feed, bias), tuple(heights))
    return states


def lstm_sequence(
    fed: Tensor,
    h: Tensor,
    c: Tensor,
    weights: Tensor,
    *,
    feed: Tensor | None = None,
    bias: Tensor | None = None,
    heights: Sequence[int] = (),
) -> tuple[Tensor, Tensor]:
    """Run an LSTM through time; rows never mix. Differentiable once, in all arguments.

    With gates i, f, g, o: i, f, o = sigma(fed + h W), g = tanh(fed_g + h W_g), c' = f * c + i * g, h' = o * tanh(c').

    Args:
        fed: (S, n, 4H) contribution of the inputs to gates i, f, g, o, with biases. With ``feed`` and ``bias``, the
            inputs themselves, (S, n, C), whose contribution is ``fed feed + bias``.
        h: (n, H) hidden state before the first snapshot.
        c: (n, H) cell before the first snapshot.
        weights: (4, H, H) state matrices of i, f, g, o.
        feed: (C, 4H) input matrices of i, f, g, o, side by side.
        bias: (4H,) biases of the gates.
        heights: heights of a ragged sequence, as in :func:`gru_sequence`.

    Returns:
        (S, n, H) hidden state after each snapshot, with memory layout (S, H, n), or packed; and (n, H) the last cell,
        or with heights each node's cell after its first snapshot, detached.
    """
    input_gate, forget_gate, candidate, output_gate = _joined(fed, weights, feed, bias).chunk(4)
    matrix = torch.cat([input_gate, forget_gate, output_gate, candidate])
    states: Tensor
    states, cell = _LSTM.apply(fed, h, c, matrix, tuple(heights))
    return states, cell


def by_snapshot(x: Tensor, heights: Sequence[int]) -> Sequence[Tensor]:
    """Split (S, n, C), or packed (1, R, C) with these heights, into the rows of each snapshot, (n_t, C)."""
    return x[0].split(list(heights)) if len(x) < len(heights) else x.unbind()


def carried(states: Tensor, heights: Sequence[int]) -> Tensor:
    """Return the last state, or with heights each node's state after its first snapshot, (n, H), detached."""
    return _first(by_snapshot(states.detach(), heights), heights) if heights else states[-1]


def _first(parts: Sequence[Tensor], heights: Sequence[int]) -> Tensor:
    """Return each node's row at its first snapshot: (n, H), with memory layout (H, n)."""
    new = [part[height:].t() for part, height in zip(parts, (0, *heights), strict=False) if len(part) > height]
    return (new[0] if len(new) == 1 else torch.cat(new, dim=1)).t()


def newest(states: Tensor, heights: Sequence[int], snapshots: int) -> Tensor:
    """Return the states after the last S' snapshots: (S', n, H), or packed.

    Its backward writes zeros for the other snapshots in memory order, which is faster than the backward of a slice.
    """
    newest_states: Tensor = _Newest.apply(states, tuple(heights), snapshots)
    return newest_states


class _Newest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, heights: tuple[int, ...], snapshots: int) -> Tensor:
        packed = len(states) < len(heights)
        dim, count = (1, sum(heights[-snapshots:])) if packed else (0, snapshots)
        ctx.span, ctx.layout = (dim, states.shape[dim] - count, count), (states.shape, states.stride())
        return states.narrow(*ctx.span)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        dstates = torch.empty_strided(*ctx.layout, dtype=gradient.dtype, device=gradient.device).zero_()
        dstates.narrow(*ctx.span).copy_(gradient)
        return dstates, None, None


def _joined(fed: Tensor, weights: Tensor, feed: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return the differentiable matrix of all G gates for [h ; 1 ; x]: (G H, H + 1 + C)."""
    if feed is None or bias is None:
        feed = torch.eye(fed.shape[2], dtype=fed.dtype, device=fed.device)
        bias = fed.new_zeros(fed.shape[2])
    return torch.cat([weights.transpose(1, 2).flatten(0, 1), bias.unsqueeze(1), feed.t()], dim=1)


def _for_sigmoids(matrix: Tensor, width: int) -> Tensor:
    """Multiply the rows of the last gate, the candidate, by -2: see :func:`_tanh_from`."""
    return torch.cat([matrix[:-width], -2.0 * matrix[-width:]])


def _tanh_from(x: Tensor) -> Tensor:
    """Replace sigma(-2 a) by tanh(a) = 1 - 2 sigma(-2 a) in place; this is faster than torch's tanh."""
    return torch.sub(x.new_ones(()), x, alpha=2, out=x)


def _steps(x: Tensor, height: int, rows: Sequence[int], *, saves: bool) -> list[Tensor]:
    """Allocate a buffer for each snapshot, (height, rows), shared by all unless backward needs them.

    Each snapshot has its own array, because a single one would be too large for the heap.
    """
    if saves:
        return [x.new_empty(height, count) for count in rows]
    buffer = x.new_empty(height, rows[-1])
    return [buffer[:, :count] for count in rows]


def _allocate_states(like: Tensor, height: int, rows: Sequence[int], *, packed: bool) -> Tensor:
    """Allocate states before each snapshot and after the last: (S + 1, height, n), or packed, (height, R + n)."""
    if packed:
        return like.new_empty(height, sum(rows) + rows[-1])
    return like.new_empty(len(rows) + 1, height, rows[0])


def _split_states(states: Tensor, rows: Sequence[int]) -> tuple[Sequence[Tensor], list[Tensor]]:
    """Return the states before each snapshot, (height, n_t), and after the last; and the states after each snapshot."""
    starts = states.unbind() if states.ndim == 3 else states.split([*rows, rows[-1]], dim=1)
    return starts, [x[:, :count] for x, count in zip(starts[1:], rows, strict=True)]


def _enter(starts: Sequence[Tensor], state: Tensor, rows: Sequence[int]) -> None:
    """Write the initial state, (n', H), of entering nodes into (H, n_t) of each snapshot; zeros for further nodes."""
    for x, previous, count in zip(starts, (0, *rows), rows, strict=False):
        if count > previous:
            entering = state[previous:count]
            x[:, previous : previous + len(entering)] = entering.t()
            x[:, previous + len(entering) :] = 0.0


class _Products:
    """Products of gates' matrices with [h ; 1 ; x], and their gradients.

    Args:
        matrix: (G H, H + 1 + C).
        x: (S, n, C), or packed.
        heights: heights of packed x.
    """

    def __init__(self, matrix: Tensor, x: Tensor, heights: Sequence[int]) -> None:
        self.inputs = x.shape[2]
        self.width = matrix.shape[1] - self.inputs - 1
        self.wide = by_snapshot(x, heights) if self.inputs >= _WIDE else None
        # contiguous copies, since products are slower on slices of wider rows
        self._top = matrix if self.wide is None else matrix[:, : self.width + 1].contiguous()
        self._rest = self._top[:, self.width :].contiguous()
        self._back_h, self._feed = matrix[:, : self.width].contiguous(), matrix[:, self.width + 1 :].contiguous()

    @functools.cached_property
    def _gradients(self) -> tuple[Tensor, ...]:
        like = (self._back_h, self._top[:, self.width :], self._feed[:, : 0 if self.wide is None else None])
        return tuple(torch.zeros_like(part, memory_format=torch.contiguous_format) for part in like)

    @property
    def gradient(self) -> Tensor:
        """Gradient of the matrix, summed over all calls of ``backward_state`` and ``backward_inputs``."""
        return torch.cat(self._gradients, dim=1)

    def states(self, x: Tensor, rows: Sequence[int]) -> Tensor:
        """Allocate z of every snapshot and after the last one, (S + 1, height, n) or (height, R + n), without h."""
        z = _allocate_states(x, self._top.shape[1], rows, packed=len(x) < len(rows))
        if z.ndim == 3:
            ones, inputs, columns = z[:, self.width], z[:-1, self.width + 1 :], x.transpose(1, 2)
        else:
            ones, inputs, columns = z[self.width], z[self.width + 1 :, : x.shape[1]], x[0].t()
        ones.fill_(1.0)
        if self.wide is None:
            inputs.copy_(columns)
        return z

    def forward(self, t: int, rows: slice, z: Tensor, out: Tensor, *, zero_state: bool = False) -> Tensor:
        """Write some rows of the matrix times [h ; 1 ; x] at snapshot t into ``out``; with ``zero_state``, h is 0."""
        matrix, z = (self._rest, z[self.width :]) if zero_state else (self._top, z)
        if self.wide is None:
            return torch.mm(matrix[rows], z, out=out)
        torch.mm(self._feed[rows], self.wide[t].t(), out=out)
        return out.addmm_(matrix[rows], z)

    def backward_state(self, rows: slice, h: Tensor, gates: Tensor, dh: Tensor) -> Tensor:
        """Add some gates' contribution to the gradient of h's matrix, and write the gradient of h to ``dh``."""
        self._gradients[0][rows].addmm_(gates, h.t())
        return torch.mm(self._back_h[rows].t(), gates[:, : dh.shape[1]], out=dh) if dh.shape[1] else dh

    def backward_inputs(self, t: int, rest: Tensor, gates: Tensor, dx: Sequence[Tensor] | None) -> None:
        """Add all gates' contribution to the gradients of biases and inputs' matrix; write the gradient of x at t.

        ``rest`` are the rows of z below h.
        """
        self._gradients[1].add_((rest @ gates.t()).t())  # faster in this order, since ``rest`` has few rows
        if self.wide is not None:
            self._gradients[2].addmm_(gates, self.wide[t])
        if dx is not None:
            torch.mm(self._feed.t(), gates, out=dx[t].t())


def _is_zero_state(*states: Tensor) -> bool:
    """Return whether the states are expanded rows of zeros, as from :func:`at_rest`."""
    return all(x.device.type == "cpu" and x.stride(0) == 0 and len(x) > 1 and not bool(x[0].any()) for x in states)


def at_rest(state: Tensor, rows: int) -> Tensor:
    """Expand a zero state (1, H) to (rows, H) without copying; a recurrence skips the products of such a state."""
    return state.expand(rows, -1)


def _states_of(z: Tensor, after: Sequence[Tensor], width: int) -> Tensor:
    """Return the states after each snapshot from z: (S, n, H) as a view, or packed."""
    return z[1:, :width].transpose(1, 2) if z.ndim == 3 else torch.cat(list(after), dim=1).t().unsqueeze(0)


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, matrix: Tensor, heights: tuple[int, ...]) -> Tensor:
        width, rows = h.shape[1], heights or (len(h),) * len(x)
        products = _Products(_for_sigmoids(matrix, width), x, rows)
        z = products.states(x, rows)
        starts, ends = _split_states(z, rows)
        hs, after = [x[:width] for x in starts], [x[:width] for x in ends]
        _enter(hs, h, rows)
        saves = any(ctx.needs_input_grad)
        gates, candidates = (_steps(x, height, rows, saves=saves) for height in (2 * width, width))
        both, last = slice(0, 2 * width), slice(2 * width, None)
        reset_z = x.new_empty(len(starts[0]), rows[-1])  # [r * h ; 1 ; x]
        ctx.rows, ctx.begins, ctx.starts_at_zero = rows, len(h), not ctx.needs_input_grad[1] and _is_zero_state(h)
        for t, (gate, candidate) in enumerate(zip(gates, candidates, strict=True)):
            zero_state, reset_now = ctx.starts_at_zero and t == 0, reset_z[:, : rows[t]]
            update, reset = products.forward(t, both, starts[t], gate, zero_state=zero_state).sigmoid_().chunk(2)
            if not zero_state:
                torch.mul(reset, hs[t], out=reset_now[:width])
                reset_now[width:] = starts[t][width:]
            start = starts[t] if zero_state else reset_now
            _tanh_from(products.forward(t, last, start, candidate, zero_state=zero_state).sigmoid_())
            torch.lerp(candidate, hs[t], update, out=after[t])
        ctx.save_for_backward(x, matrix, z, *candidates, *gates)
        return _states_of(z, after, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, z, *saved = ctx.saved_tensors
        rows, width, needs_h = ctx.rows, len(matrix) // 3, ctx.needs_input_grad[1]
        products, steps, (zs, _) = _Products(matrix, x, rows), len(rows), _split_states(z, rows)
        candidates, gates = saved[:steps], saved[steps:]
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None  # same memory layout as x
        dx_parts, dstate_parts = None if dx is None else by_snapshot(dx, rows), by_snapshot(dstates, rows)
        both, last = slice(0, 2 * width), slice(2 * width, None)
        dgates, reset_h = z.new_empty(3 * width, rows[-1]), z.new_empty(width, rows[-1])
        begin = z.new_empty(width, rows[-1]) if needs_h else None
        dh, dh_before, part = (z.new_zeros(width, rows[-1]), *(z.new_empty(width, rows[-1]) for _ in range(2)))
        for t in reversed(range(steps)):
            dgates, reset_h, dh, dh_before, part = (
                array[:, : rows[t]] for array in (dgates, reset_h, dh, dh_before, part)
            )
            d_both, (d_update, d_reset, d_candidate) = dgates[both], dgates.chunk(3)
            previous = (
                rows[t - 1] if t else 0
            )  # nodes of the previous snapshot; further nodes start from their initial state
            back = rows[t] if needs_h else previous
            h, rest, candidate, (update, reset) = zs[t][:width], zs[t][width:], candidates[t], gates[t].chunk(2)
            dh.add_(dstate_parts[t].t())
            # h' = c + u (h - c)
            torch.sub(h, candidate, out=d_update).mul_(dh)
            torch.mul(dh, update, out=dh_before)
            _tanh_backward(dh.sub_(dh_before), candidate, grad_input=d_candidate)
            if ctx.starts_at_zero and t == 0:  # h is zero, so r has no effect
                d_reset.zero_()
                _sigmoid_backward(d_both, gates[t], grad_input=d_both)
                products.backward_inputs(t, rest, dgates, dx_parts)
                break
            # c depends on h through r * h
            products.backward_state(last, torch.mul(reset, h, out=reset_h), d_candidate, dh=part)
            torch.mul(part, h, out=d_reset)
            if back:
                dh_before[:, :back].addcmul_(part[:, :back], reset[:, :back])
            _sigmoid_backward(d_both, gates[t], grad_input=d_both)
            products.backward_state(both, h, d_both, dh=part[:, :back])
            if back:
                dh_before[:, :back].add_(part[:, :back])
            products.backward_inputs(t, rest, dgates, dx_parts)
            if begin is not None:
                begin[:, previous : rows[t]] = dh_before[:, previous:]
            dh, dh_before = dh_before, dh
        return dx, None if begin is None else begin[:, : ctx.begins].t(), products.gradient, None


# Element-wise part of an LSTM step, on arrays (H, n), and (4H, n) for gates i, f, o, g.


def _step_forward(gates: Tensor, cells: Tensor, after: Tensor, tanhs: Tensor, h: Tensor) -> None:
    """Compute gates, next cells, their tanh and h in place.

    Args:
        gates: pre-activations, that of g times -2; replaced by the gates.
        cells: cells before the step.
        after: output for the next cells.
        tanhs: output for their tanh.
        h: output for the next hidden state.
    """
    input_gate, forget_gate, output_gate, candidate = gates.sigmoid_().chunk(4)
    torch.mul(forget_gate, cells, out=after).addcmul_(input_gate, _tanh_from(candidate))
    torch.mul(output_gate, _tanh_from(torch.mul(after, -2.0, out=tanhs).sigmoid_()), out=h)


def _step_backward(  # noqa: PLR0917 - the arrays of a step
    gates: Tensor, cells: Tensor, tanhs: Tensor, dh: Tensor, dc: Tensor, dgates: Tensor
) -> None:
    """Write the gradient of the gates' pre-activations; replace ``dc``, of the next cells, by that of ``cells``.

    ``dh``, the gradient of h, is overwritten.
    """
    input_gate, forget_gate, output_gate, candidate = gates.chunk(4)
    d_sigmoids, (d_input, d_forget, d_output, d_candidate) = dgates[: 3 * len(dh)], dgates.chunk(4)
    # h' = o tanh(c')
    torch.mul(dh, tanhs, out=d_output)
    dc.add_(_tanh_backward(dh.mul_(output_gate), tanhs, grad_input=d_candidate))
    # c' = f c + i g
    torch.mul(dc, candidate, out=d_input)
    torch.mul(dc, cells, out=d_forget)
    _tanh_backward(torch.mul(dc, input_gate, out=d_candidate), candidate, grad_input=d_candidate)
    _sigmoid_backward(d_sigmoids, gates[: 3 * len(dh)], grad_input=d_sigmoids)
    dc.mul_(forget_gate)


class _LSTM(torch.autograd.Function):
    """LSTM with gates in the order i, f, o, g, so that the three sigmoids are contiguous."""

    @staticmethod
    def forward(  # noqa: PLR0917 - torch calls it
        ctx: Any, x: Tensor, h: Tensor, c: Tensor, matrix: Tensor, heights: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        width, rows = h.shape[1], heights or (len(h),) * len(x)
        packed = len(x) < len(rows)
        products = _Products(_for_sigmoids(matrix, width), x, rows)
        z, cells = products.states(x, rows), _allocate_states(x, width, rows, packed=packed)
        (starts, ends), (cells_before, cells_after) = _split_states(z, rows), _split_states(cells, rows)
        hs, after = [x[:width] for x in starts], [x[:width] for x in ends]
        _enter(hs, h, rows)
        _enter(cells_before, c, rows)
        saves = any(ctx.needs_input_grad)
        gates, tanhs = (_steps(x, height, rows, saves=saves) for height in (4 * width, width))
        ctx.starts_at_zero = not any(ctx.needs_input_grad[1:3]) and _is_zero_state(h, c)
        ctx.rows, ctx.begins, ctx.heights = rows, len(h), heights
        for t, gate in enumerate(gates):
            products.forward(t, slice(None), starts[t], gate, zero_state=ctx.starts_at_zero and t == 0)
            _step_forward(gate, cells_before[t], cells_after[t], tanhs[t], after[t])
        ctx.save_for_backward(x, matrix, z, cells, *tanhs, *gates)
        states = _states_of(z, after, width)
        if not heights:
            return states, cells_before[-1].t().clone()
        cell = _first([cells_of_step.t() for cells_of_step in cells_after], rows)
        ctx.mark_non_differentiable(cell)
        return states, cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor, dcell: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, z, cells, *saved = ctx.saved_tensors
        rows, width, steps, needs = ctx.rows, len(matrix) // 4, len(ctx.rows), ctx.needs_input_grad[1:3]
        products, (zs, _), (cells, _) = _Products(matrix, x, rows), _split_states(z, rows), _split_states(cells, rows)
        tanhs, gates = saved[:steps], saved[steps:]
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None  # same memory layout as x
        dx_parts, dstate_parts = None if dx is None else by_snapshot(dx, rows), by_snapshot(dstates, rows)
        dgates, dh, dc = z.new_empty(4 * width, rows[-1]), *(z.new_zeros(width, rows[-1]) for _ in range(2))
        begins = [z.new_empty(width, rows[-1]) for _ in needs] if any(needs) else []
        if not ctx.heights:
            dc.copy_(dcell.t())
        for t in reversed(range(steps)):
            dgates, dh, dc = (array[:, : rows[t]] for array in (dgates, dh, dc))
            previous = (
                rows[t - 1] if t else 0
            )  # nodes of the previous snapshot; further nodes start from their initial state
            dh.add_(dstate_parts[t].t())
            _step_backward(gates[t], cells[t], tanhs[t], dh, dc, dgates)
            if not (ctx.starts_at_zero and t == 0):
                products.backward_state(slice(None), zs[t][:width], dgates, dh=dh[:, : rows[t] if begins else previous])
            products.backward_inputs(t, zs[t][width:], dgates, dx_parts)
            for begin, gradient in zip(begins, (dh, dc), strict=False):
                begin[:, previous : rows[t]] = gradient[:, previous:]
        of_begin = [begin[:, : ctx.begins].t() for begin in begins] or [None, None]
        return dx, *of_begin, products.gradient, None
