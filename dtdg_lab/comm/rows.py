"""Rows from every rank to every other, with each rank's time of arrival in front of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.core.errors import PlanError, RunFailedError

_BITS = {4: torch.int32, 8: torch.int64}  # rows travel as whole numbers of their size: what is in front is no float


@dataclass(frozen=True, slots=True)
class Received:
    """Rows that arrived, (r, F), how long this rank waited for the last to come, and what crossed to other ranks."""

    rows: Tensor
    wait_s: float
    bytes_sent: int
    bytes_received: int


def exchange_rows(
    rows: Tensor,
    send_counts: Sequence[int],
    receive_counts: Sequence[int],
    *,
    rank: int,
    size: int,
    clock_ns: Callable[[], int],
    place: Sequence[int] = (),
) -> Received:
    """Send each rank its rows and receive its own, in one collective that every rank takes part in.

    In front of its rows every rank tells every other its time of arrival, how many rows follow, and its ``place``,
    also where it has no row for it: so all know who came last and that they mean the same exchange, without another
    collective. (More rows than expected end the process on gloo: only fewer can be found here.)

    Args:
        rows: (s, F), those for rank 0 first; of 4 or 8 bytes a number; F may be several dimensions.
        send_counts: (R,) rows for each rank.
        receive_counts: (R,) rows expected from each.
        rank: this process.
        size: R, processes.
        clock_ns: a clock that all ranks share.
        place: numbers that must be the same on all ranks, as many on each, such as a count of exchanges.

    Raises:
        PlanError: counts do not fit the rows or the ranks, or the rows' type has another size.
        RunFailedError: a rank is at another place, or sent another number of rows than was expected of it.
    """
    check_counts(rows, send_counts, receive_counts, rank, size)
    bits = _bits_of(rows)
    if rows.is_cuda:  # else a rank would arrive before it has computed what it sends
        torch.cuda.current_stream(rows.device).synchronize()
    arrived_ns = clock_ns()
    words = torch.tensor([[arrived_ns, count, *place] for count in send_counts], dtype=torch.int64)
    fronts = words.to(rows.device).view(bits)
    width, head = math.prod(rows.shape[1:]), fronts.shape[1]
    own = rows.detach().reshape(-1).view(bits).split([count * width for count in send_counts])
    sent = torch.cat([piece for pair in zip(fronts.unbind(), own, strict=True) for piece in pair])
    arrived = sent.new_empty(size * head + sum(receive_counts) * width)
    due = [head + count * width for count in receive_counts]
    dist.all_to_all_single(arrived, sent, due, [head + count * width for count in send_counts])
    pieces = arrived.split([length for count in receive_counts for length in (head, count * width)])
    told = torch.cat(pieces[::2]).view(torch.int64).view(size, -1).tolist()  # waits for the device
    got = torch.cat(pieces[1::2]).view(rows.dtype).view(sum(receive_counts), *rows.shape[1:])
    ended_ns = clock_ns()
    arrivals_ns = [word[0] for word in told]
    _check_fit([word[1] for word in told], receive_counts, [tuple(word[2:]) for word in told], rank)
    itemsize = sent.element_size()
    return Received(
        got,
        wait_s=max(0, min(max(arrivals_ns), ended_ns) - arrived_ns) * 1e-9,
        bytes_sent=itemsize * (len(sent) - head - send_counts[rank] * width),
        bytes_received=itemsize * (len(arrived) - head - receive_counts[rank] * width),
    )


def check_counts(rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], rank: int, size: int) -> None:
    """Refuse counts that do not fit the rows, the number of ranks, or each other.

    Raises:
        PlanError: as said.
    """
    if len(send_counts) != size or len(receive_counts) != size:
        raise PlanError(
            f"an exchange of rows among {size} rank(s) got {len(send_counts)} counts to send and "
            f"{len(receive_counts)} to receive; give one for each rank. Partition.on_ranks merges the parts of a rank."
        )
    if min(send_counts) < 0 or min(receive_counts) < 0 or sum(send_counts) != len(rows):
        raise PlanError(
            f"counts {list(send_counts)} to send and {list(receive_counts)} to receive do not fit {len(rows)} rows: "
            "those to send must sum to the rows, and none be below 0."
        )
    if send_counts[rank] != receive_counts[rank]:
        raise PlanError(
            f"rank {rank} sends itself {send_counts[rank]} rows but expects {receive_counts[rank]} of itself; both "
            "counts must be equal."
        )


def _bits_of(rows: Tensor) -> torch.dtype:
    """The type in which the rows travel."""
    bits = _BITS.get(rows.element_size())
    if bits is None:
        raise PlanError(
            f"rows of {rows.dtype} cannot be exchanged; numbers of 4 or 8 bytes can. Convert them to float32 or "
            "float64."
        )
    return bits


def _check_fit(counts: list[int], expected: Sequence[int], places: list[tuple[int, ...]], rank: int) -> None:
    """All ranks must be in the same exchange, of as many rows: else rows of one pull would be taken for another's."""
    other = next((number for number, place in enumerate(places) if place != places[rank]), None)
    if other is not None:
        raise RunFailedError(
            f"rank {rank} is at exchange {places[rank]} but rank {other} at {places[other]} (number, layer, and 0 for "
            "forward or 1 for backward). Every rank must pull the same things in the same order: a model whose pulls "
            "depend on a rank's own rows cannot run on vertex parts. Run it on one rank, or make its pulls alike."
        )
    other = next((number for number, count in enumerate(counts) if count != expected[number]), None)
    if other is not None:
        raise RunFailedError(
            f"rank {other} sent {counts[other]} rows where rank {rank} expected {expected[other]}: their halo plans "
            "are not of one partition, or not for the same snapshots. Make the plans of all ranks from one partition."
        )
