"""GRU and LSTM of every node through S snapshots.

Everything lies with nodes side by side: an array of a step is (numbers, n), so that each gate is one contiguous
piece of memory. The state, a row of ones and narrow inputs lie on top of one another, z = [h ; 1 ; x], so that one
product gives all gates; wide inputs are not copied and have their own product. Backward is written manually
and works in place, on arrays that are still in the cache when n is a thousand or two. What costs beside the products is
reading again what forward kept, so little else is kept than z, gates, and candidates or cells.

A sequence may be ragged: nodes enter it at a snapshot and stay, so that snapshot t has the first ``heights[t]`` nodes.
Their rows then lie packed, those of one snapshot after those of the one before, as in torch's ``PackedSequence``.
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
_WIDE = 16  # inputs from which on copying them costs more than a second product


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
        fed: (S, n, 3H) what the inputs give each gate, biases included; gates u, r, c side by side. With ``feed`` and
            ``bias`` it is the inputs themselves, (S, n, C), and the gates are given ``fed feed + bias``.
        h: (n, H) hidden state before the first snapshot.
        weights: (3, H, H) the state's matrices of u, r, c.
        feed: (C, 3H) the inputs' matrices of u, r, c, side by side.
        bias: (3H,) the gates' biases.
        heights: S ascending numbers from 1 to n, of a ragged sequence. ``fed`` is then packed, (1, R, .), R the sum of
            the heights; where all are equal it may be as without. A node starts from its row of ``h`` at the first
            snapshot that has it, and from zero where there is no such row.

    Returns:
        (S, n, H) the hidden state after each snapshot, in memory (S, H, n); or packed, (1, R, H), in memory (H, R).
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
        fed: (S, n, 4H) what the inputs give each gate, biases included; gates i, f, g, o side by side. With ``feed``
            and ``bias`` it is the inputs themselves, (S, n, C), and the gates are given ``fed feed + bias``.
        h: (n, H) hidden state before the first snapshot.
        c: (n, H) cell before the first snapshot.
        weights: (4, H, H) the state's matrices of i, f, g, o.
        feed: (C, 4H) the inputs' matrices of i, f, g, o, side by side.
        bias: (4H,) the gates' biases.
        heights: of a ragged sequence, as in :func:`gru_sequence`.

    Returns:
        (S, n, H) the hidden state after each snapshot, in memory (S, H, n), or packed; and (n, H) the last cell, with
        heights each node's cell after its first snapshot, without history.
    """
    take, forget, candidate, give = _joined(fed, weights, feed, bias).chunk(4)
    states: Tensor
    states, cell = _LSTM.apply(fed, h, c, torch.cat([take, forget, give, candidate]), tuple(heights))
    return states, cell


def by_snapshot(x: Tensor, heights: Sequence[int]) -> Sequence[Tensor]:
    """Return the rows of each snapshot, (n_t, C), of (S, n, C), or of packed (1, R, C) with these heights."""
    return x[0].split(list(heights)) if len(x) < len(heights) else x.unbind()


def carried(states: Tensor, heights: Sequence[int]) -> Tensor:
    """Return the last state; with heights each node's state after its first snapshot, (n, H), without history."""
    return _first(by_snapshot(states.detach(), heights), heights) if heights else states[-1]


def _first(parts: Sequence[Tensor], heights: Sequence[int]) -> Tensor:
    """Return the rows of nodes that are new in each snapshot: (n, H), in memory (H, n)."""
    new = [part[height:].t() for part, height in zip(parts, (0, *heights), strict=False) if len(part) > height]
    return (new[0] if len(new) == 1 else torch.cat(new, dim=1)).t()


def newest(states: Tensor, heights: Sequence[int], snapshots: int) -> Tensor:
    """Return the states after the last snapshots alone: (S', n, H), or packed.

    Backward writes zeros for the others as the states lie in memory; that of a slice does so row by row.
    """
    newest_states: Tensor = _Newest.apply(states, tuple(heights), snapshots)
    return newest_states


class _Newest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, heights: tuple[int, ...], snapshots: int) -> Tensor:
        packed = len(states) < len(heights)
        dim, count = (1, sum(heights[-snapshots:])) if packed else (0, snapshots)
        ctx.where, ctx.lies = (dim, states.shape[dim] - count, count), (states.shape, states.stride())
        return states.narrow(*ctx.where)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        dstates = torch.empty_strided(*ctx.lies, dtype=gradient.dtype, device=gradient.device).zero_()
        dstates.narrow(*ctx.where).copy_(gradient)
        return dstates, None, None


def _joined(fed: Tensor, weights: Tensor, feed: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return the matrix that gives all G gates of [h ; 1 ; x]: (G H, H + 1 + C), with its history."""
    if feed is None or bias is None:
        feed = torch.eye(fed.shape[2], dtype=fed.dtype, device=fed.device)
        bias = fed.new_zeros(fed.shape[2])
    return torch.cat([weights.transpose(1, 2).flatten(0, 1), bias.unsqueeze(1), feed.t()], dim=1)


def _for_sigmoids(matrix: Tensor, width: int) -> Tensor:
    """Return the matrix with -2 times the rows of the last gate, the candidate: see :func:`_tanh_from`."""
    return torch.cat([matrix[:-width], -2.0 * matrix[-width:]])


def _tanh_from(x: Tensor) -> Tensor:
    """Replace sigma(-2 a) by tanh(a) = 1 - 2 sigma(-2 a). A sigmoid takes a sixth of the time of torch's tanh."""
    return torch.sub(x.new_ones(()), x, alpha=2, out=x)


def _steps(x: Tensor, height: int, rows: Sequence[int], *, saves: bool) -> list[Tensor]:
    """Allocate room of each snapshot, (height, rows), the same for all where nothing is saved for backward.

    One array for all would be too large for the heap.
    """
    if saves:
        return [x.new_empty(height, some) for some in rows]
    room = x.new_empty(height, rows[-1])
    return [room[:, :some] for some in rows]


def _room(like: Tensor, height: int, rows: Sequence[int], *, packed: bool) -> Tensor:
    """Allocate room before each snapshot and after the last: (S + 1, height, n), or packed, (height, R + n)."""
    if packed:
        return like.new_empty(height, sum(rows) + rows[-1])
    return like.new_empty(len(rows) + 1, height, rows[0])


def _cut(room: Tensor, rows: Sequence[int]) -> tuple[Sequence[Tensor], list[Tensor]]:
    """Return the parts of such room before each snapshot, (height, n_t), and after the last; and those after each."""
    starts = room.unbind() if room.ndim == 3 else room.split([*rows, rows[-1]], dim=1)
    return starts, [x[:, :count] for x, count in zip(starts[1:], rows, strict=True)]


def _enter(starts: Sequence[Tensor], state: Tensor, rows: Sequence[int]) -> None:
    """Put rows of the initial state, (n', H), where nodes enter, and zeros beyond: (H, n_t) for each snapshot."""
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
        heights: of packed x.
    """

    def __init__(self, matrix: Tensor, x: Tensor, heights: Sequence[int]) -> None:
        self.inputs = x.shape[2]
        self.width = matrix.shape[1] - self.inputs - 1
        self.wide = by_snapshot(x, heights) if self.inputs >= _WIDE else None
        # pieces by themselves, since products are slower on parts of wider rows
        self._top = matrix if self.wide is None else matrix[:, : self.width + 1].contiguous()
        self._rest = self._top[:, self.width :].contiguous()
        self._back_h, self._feed = matrix[:, : self.width].contiguous(), matrix[:, self.width + 1 :].contiguous()

    @functools.cached_property
    def _gradients(self) -> tuple[Tensor, ...]:
        like = (self._back_h, self._top[:, self.width :], self._feed[:, : 0 if self.wide is None else None])
        return tuple(torch.zeros_like(part, memory_format=torch.contiguous_format) for part in like)

    @property
    def gradient(self) -> Tensor:
        """Gradient of the matrix, summed over all calls of ``take``."""
        return torch.cat(self._gradients, dim=1)

    def states(self, x: Tensor, rows: Sequence[int]) -> Tensor:
        """Allocate z of every snapshot and after the last one, (S + 1, height, n) or (height, R + n), without h."""
        z = _room(x, self._top.shape[1], rows, packed=len(x) < len(rows))
        if z.ndim == 3:
            ones, inputs, of_x = z[:, self.width], z[:-1, self.width + 1 :], x.transpose(1, 2)
        else:
            ones, inputs, of_x = z[self.width], z[self.width + 1 :, : x.shape[1]], x[0].t()
        ones.fill_(1.0)
        if self.wide is None:
            inputs.copy_(of_x)
        return z

    def put(self, t: int, rows: slice, z: Tensor, out: Tensor, *, resting: bool = False) -> Tensor:
        """Write some rows of the matrix times [h ; 1 ; x] at snapshot t into ``out``; with ``resting``, h is 0."""
        matrix, z = (self._rest, z[self.width :]) if resting else (self._top, z)
        if self.wide is None:
            return torch.mm(matrix[rows], z, out=out)
        torch.mm(self._feed[rows], self.wide[t].t(), out=out)
        return out.addmm_(matrix[rows], z)

    def take(self, rows: slice, h: Tensor, gates: Tensor, dh: Tensor) -> Tensor:
        """Add some gates' contribution to the gradient of h's matrix; write that of h for the nodes of ``dh``."""
        self._gradients[0][rows].addmm_(gates, h.t())
        return torch.mm(self._back_h[rows].t(), gates[:, : dh.shape[1]], out=dh) if dh.shape[1] else dh

    def take_inputs(self, t: int, rest: Tensor, gates: Tensor, dx: Sequence[Tensor] | None) -> None:
        """Add all gates' contribution to the gradients of biases and inputs' matrix; write that of x at snapshot t.

        ``rest`` are the rows of z below h.
        """
        self._gradients[1].add_((rest @ gates.t()).t())  # few rows: this way round is the faster
        if self.wide is not None:
            self._gradients[2].addmm_(gates, self.wide[t])
        if dx is not None:
            torch.mm(self._feed.t(), gates, out=dx[t].t())


def _is_rest(*states: Tensor) -> bool:
    """Return whether the states are rows of zeros that share their memory, as those of :func:`at_rest`."""
    return all(x.device.type == "cpu" and x.stride(0) == 0 and len(x) > 1 and not bool(x[0].any()) for x in states)


def at_rest(state: Tensor, rows: int) -> Tensor:
    """Expand a row (1, H) of zeros to the state of many, (rows, H), in the memory of one; its products are left out."""
    return state.expand(rows, -1)


def _states_of(z: Tensor, after: Sequence[Tensor], width: int) -> Tensor:
    """Return the states after each snapshot, of z: (S, n, H) as a view, or packed."""
    return z[1:, :width].transpose(1, 2) if z.ndim == 3 else torch.cat(list(after), dim=1).t().unsqueeze(0)


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, matrix: Tensor, heights: tuple[int, ...]) -> Tensor:
        width, rows = h.shape[1], heights or (len(h),) * len(x)
        products = _Products(_for_sigmoids(matrix, width), x, rows)
        z = products.states(x, rows)
        starts, ends = _cut(z, rows)
        hs, after = [x[:width] for x in starts], [x[:width] for x in ends]
        _enter(hs, h, rows)
        saves = any(ctx.needs_input_grad)
        gates, candidates = (_steps(x, height, rows, saves=saves) for height in (2 * width, width))
        both, last = slice(0, 2 * width), slice(2 * width, None)
        reset_z = x.new_empty(len(starts[0]), rows[-1])  # [r * h ; 1 ; x]
        ctx.rows, ctx.begins, ctx.rests = rows, len(h), not ctx.needs_input_grad[1] and _is_rest(h)
        for t, (gate, candidate) in enumerate(zip(gates, candidates, strict=True)):
            resting, reset_now = ctx.rests and t == 0, reset_z[:, : rows[t]]
            update, reset = products.put(t, both, starts[t], gate, resting=resting).sigmoid_().chunk(2)
            if not resting:
                torch.mul(reset, hs[t], out=reset_now[:width])
                reset_now[width:] = starts[t][width:]
            start = starts[t] if resting else reset_now
            _tanh_from(products.put(t, last, start, candidate, resting=resting).sigmoid_())
            torch.lerp(candidate, hs[t], update, out=after[t])
        ctx.save_for_backward(x, matrix, z, *candidates, *gates)
        return _states_of(z, after, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstates: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, z, *saved = ctx.saved_tensors
        rows, width, needs_h = ctx.rows, len(matrix) // 3, ctx.needs_input_grad[1]
        products, steps, (zs, _) = _Products(matrix, x, rows), len(rows), _cut(z, rows)
        candidates, gates = saved[:steps], saved[steps:]
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None  # lies in memory as x does
        of_x, of_states = None if dx is None else by_snapshot(dx, rows), by_snapshot(dstates, rows)
        both, last = slice(0, 2 * width), slice(2 * width, None)
        dgates, reset_h = z.new_empty(3 * width, rows[-1]), z.new_empty(width, rows[-1])
        begin = z.new_empty(width, rows[-1]) if needs_h else None
        dh, dh_before, part = (z.new_zeros(width, rows[-1]), *(z.new_empty(width, rows[-1]) for _ in range(2)))
        for t in reversed(range(steps)):
            dgates, reset_h, dh, dh_before, part = (
                array[:, : rows[t]] for array in (dgates, reset_h, dh, dh_before, part)
            )
            d_both, (d_update, d_reset, d_candidate) = dgates[both], dgates.chunk(3)
            previous = rows[t - 1] if t else 0  # nodes of the snapshot before; new ones start from their initial state
            back = rows[t] if needs_h else previous
            h, rest, candidate, (update, reset) = zs[t][:width], zs[t][width:], candidates[t], gates[t].chunk(2)
            dh.add_(of_states[t].t())
            # h' = c + u (h - c)
            torch.sub(h, candidate, out=d_update).mul_(dh)
            torch.mul(dh, update, out=dh_before)
            _tanh_backward(dh.sub_(dh_before), candidate, grad_input=d_candidate)
            if ctx.rests and t == 0:  # h is zero, so r has no effect
                d_reset.zero_()
                _sigmoid_backward(d_both, gates[t], grad_input=d_both)
                products.take_inputs(t, rest, dgates, of_x)
                break
            # c depends on h through r * h
            products.take(last, torch.mul(reset, h, out=reset_h), d_candidate, dh=part)
            torch.mul(part, h, out=d_reset)
            if back:
                dh_before[:, :back].addcmul_(part[:, :back], reset[:, :back])
            _sigmoid_backward(d_both, gates[t], grad_input=d_both)
            products.take(both, h, d_both, dh=part[:, :back])
            if back:
                dh_before[:, :back].add_(part[:, :back])
            products.take_inputs(t, rest, dgates, of_x)
            if begin is not None:
                begin[:, previous : rows[t]] = dh_before[:, previous:]
            dh, dh_before = dh_before, dh
        return dx, None if begin is None else begin[:, : ctx.begins].t(), products.gradient, None


# Element-wise part of an LSTM's step, on arrays (H, n), and (4H, n) for gates i, f, o, g.


def _step_forward(gates: Tensor, cells: Tensor, after: Tensor, tanhs: Tensor, h: Tensor) -> None:
    """Write gates, the next cells, their tanh and h.

    Args:
        gates: products, those of g times -2, which become the gates.
        cells: of the step before.
        after: next cells, written.
        tanhs: of the cells after, written.
        h: state after, written.
    """
    take, forget, give, candidate = gates.sigmoid_().chunk(4)
    torch.mul(forget, cells, out=after).addcmul_(take, _tanh_from(candidate))
    torch.mul(give, _tanh_from(torch.mul(after, -2.0, out=tanhs).sigmoid_()), out=h)


def _step_backward(  # noqa: PLR0917 - the arrays of a step
    gates: Tensor, cells: Tensor, tanhs: Tensor, dh: Tensor, dc: Tensor, dgates: Tensor
) -> None:
    """Write the gradient of the gates' products; that of the next cells, ``dc``, becomes that of ``cells``.

    ``dh`` is the gradient of h and is not kept.
    """
    take, forget, give, candidate = gates.chunk(4)
    d_sigmoids, (d_take, d_forget, d_give, d_candidate) = dgates[: 3 * len(dh)], dgates.chunk(4)
    # h' = o tanh(c')
    torch.mul(dh, tanhs, out=d_give)
    dc.add_(_tanh_backward(dh.mul_(give), tanhs, grad_input=d_candidate))
    # c' = f c + i g
    torch.mul(dc, candidate, out=d_take)
    torch.mul(dc, cells, out=d_forget)
    _tanh_backward(torch.mul(dc, take, out=d_candidate), candidate, grad_input=d_candidate)
    _sigmoid_backward(d_sigmoids, gates[: 3 * len(dh)], grad_input=d_sigmoids)
    dc.mul_(forget)


class _LSTM(torch.autograd.Function):
    """Gates in the order i, f, o, g: the three sigmoids are one piece of memory."""

    @staticmethod
    def forward(  # noqa: PLR0917 - torch calls it
        ctx: Any, x: Tensor, h: Tensor, c: Tensor, matrix: Tensor, heights: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        width, rows = h.shape[1], heights or (len(h),) * len(x)
        packed = len(x) < len(rows)
        products = _Products(_for_sigmoids(matrix, width), x, rows)
        z, cells = products.states(x, rows), _room(x, width, rows, packed=packed)
        (starts, ends), (cells_before, cells_after) = _cut(z, rows), _cut(cells, rows)
        hs, after = [x[:width] for x in starts], [x[:width] for x in ends]
        _enter(hs, h, rows)
        _enter(cells_before, c, rows)
        saves = any(ctx.needs_input_grad)
        gates, tanhs = (_steps(x, height, rows, saves=saves) for height in (4 * width, width))
        ctx.rests = not any(ctx.needs_input_grad[1:3]) and _is_rest(h, c)
        ctx.rows, ctx.begins, ctx.heights = rows, len(h), heights
        for t, gate in enumerate(gates):
            products.put(t, slice(None), starts[t], gate, resting=ctx.rests and t == 0)
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
        products, (zs, _), (cells, _) = _Products(matrix, x, rows), _cut(z, rows), _cut(cells, rows)
        tanhs, gates = saved[:steps], saved[steps:]
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None  # lies in memory as x does
        of_x, of_states = None if dx is None else by_snapshot(dx, rows), by_snapshot(dstates, rows)
        dgates, dh, dc = z.new_empty(4 * width, rows[-1]), *(z.new_zeros(width, rows[-1]) for _ in range(2))
        begins = [z.new_empty(width, rows[-1]) for _ in needs] if any(needs) else []
        if not ctx.heights:
            dc.copy_(dcell.t())
        for t in reversed(range(steps)):
            dgates, dh, dc = (array[:, : rows[t]] for array in (dgates, dh, dc))
            previous = rows[t - 1] if t else 0  # nodes of the snapshot before; new ones start from their initial state
            dh.add_(of_states[t].t())
            _step_backward(gates[t], cells[t], tanhs[t], dh, dc, dgates)
            if not (ctx.rests and t == 0):
                products.take(slice(None), zs[t][:width], dgates, dh=dh[:, : rows[t] if begins else previous])
            products.take_inputs(t, zs[t][width:], dgates, of_x)
            for begin, gradient in zip(begins, (dh, dc), strict=False):
                begin[:, previous : rows[t]] = gradient[:, previous:]
        of_begin = [begin[:, : ctx.begins].t() for begin in begins] or [None, None]
        return dx, *of_begin, products.gradient, None
