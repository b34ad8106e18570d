"""Rows that cross ranks: the same products and gradients as on one rank, bytes as planned, waiting as it was."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.testing.processes import run_ranks
from tests.distributed import rows_on_ranks
from tests.distributed.rows_on_ranks import ARRAYS, LATE_S, TEXTS, VERTICES, WIDTH, graphs, owners, reference

RANKS = (1, 2, 4)


@cache
def on(ranks: int) -> list[dict[str, Any]]:
    return [rows_on_ranks.everything(0, 1, "")] if ranks == 1 else run_ranks(rows_on_ranks.everything, ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("case", [*(f"{name} {index}" for name in graphs() for index in range(2)), "after"])
def test_products_and_gradients_are_those_of_one_rank(ranks: int, case: str) -> None:
    adjacency = graphs()["random" if case == "after" else case[:-2]]
    y, x_gradient, parameter_gradient = reference(adjacency)
    seen = [rank[case] for rank in on(ranks)]
    rows = np.concatenate([one["rows"] for one in seen])
    assert sorted(rows) == list(range(2 * VERTICES))
    assert torch.allclose(torch.cat([one["y"] for one in seen]), y[rows], rtol=1e-12, atol=1e-12)
    assert torch.allclose(torch.cat([one["x"] for one in seen]), x_gradient[rows], rtol=1e-12, atol=1e-12)
    total = torch.stack([one["parameter"] for one in seen]).sum(dim=0)
    assert torch.allclose(total, parameter_gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ranks", RANKS[1:])
@pytest.mark.parametrize("case", [f"{name} 0" for name in graphs()])
def test_links_are_the_plan_s_and_bytes_are_the_links_and_what_goes_in_front(ranks: int, case: str) -> None:
    seen = [rank[case] for rank in on(ranks)]
    front = 4 * (ranks - 1) * 5 * 8  # four exchanges; five numbers of eight bytes to each other rank
    for rank, one in enumerate(seen):
        expected = [
            (layer, way, to, int(counts[to]), int(counts[to]) * WIDTH * 8)
            for layer in (0, 1)
            for way, counts in (("forward", one["send_counts"]), ("backward", one["receive_counts"]))
            for to in range(ranks)
            if counts[to]
        ]
        assert sorted(one["links"]) == sorted(expected)
        assert one["drained"] == []
        assert one["sent"] == front + sum(link[4] for link in one["links"])
        to_me = [link for other in seen for link in other["links"] if link[2] == rank]
        assert one["received"] == front + sum(link[4] for link in to_me)
        assert one["phases"] == ["compute", "exchange"] * 4


def test_the_star_has_ranks_that_only_send_and_only_receive() -> None:
    counts = [(rank["star 0"]["send_counts"].sum(), rank["star 0"]["receive_counts"].sum()) for rank in on(4)]
    centre = int(owners(4)[0])
    assert counts == [(6, 0) if rank == centre else (0, 2) for rank in range(4)]


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_rows_that_go_one_way_have_gradients_that_come_back(ranks: int) -> None:
    seen = [rank["one way"] for rank in on(ranks)]
    for case in seen[0]:
        source = seen[0][case][1]
        for rank in range(ranks):
            rows, _, gradient, links = seen[rank][case]
            wanted = torch.ones_like(source)
            itemsize = source.element_size() * int(np.prod(source.shape[1:]))
            if rank == 0:
                wanted[[1, 3]] += 10
                assert links == [(0, "forward", ranks - 1, 2, 2 * itemsize)]
            elif rank == ranks - 1:
                assert torch.equal(rows, source[[3, 1]])
                assert links == [(0, "backward", 0, 2, 2 * itemsize)]
            else:
                assert links == []
            if rank != ranks - 1:
                assert rows.shape == (0, *source.shape[1:])
            assert rows.dtype == source.dtype
            assert torch.equal(gradient, wanted)


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_rows_that_need_no_gradient_send_none_back(ranks: int) -> None:
    ways = [rank["without gradient"] for rank in on(ranks)]
    assert {way for links, _ in ways for way in links} == {"forward"}
    assert not any(requires for _, requires in ways)


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_what_is_computed_again_is_noted_by_another_name(ranks: int) -> None:
    for first, second in (rank["run again"] for rank in on(ranks)):
        renamed = [(layer, "rerun" if way == "forward" else way, *rest) for layer, way, *rest in second]
        assert {way for _, way, *_ in second} == {"forward", "backward"}
        assert sorted(first) == sorted(renamed)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_gather_holds_all_rows_and_sums_their_gradients(ranks: int) -> None:
    for number, rank in enumerate(on(ranks)):
        found = rank["gathered"]
        assert found["rows"]
        assert found["gradient"].numel() == 2 * found["counts"][number]
        assert found["gradient"].abs().sum() < 1e-12
        assert found["links"] == []
        # forward sends own rows to all others, backward sends theirs back
        own, others = found["counts"][number], sum(found["counts"]) - found["counts"][number]
        assert found["sent"] == (own * (ranks - 1) + others) * 2 * 8 + 2 * (ranks - 1) * 5 * 8


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_punctual_ranks_wait_for_the_late_one(ranks: int) -> None:
    waits_s, arrivals_s = (np.array([rank["waits"][index] for rank in on(ranks)]) for index in range(2))
    late_s = arrivals_s.max(axis=0) - arrivals_s  # as the ranks saw it: a loaded machine makes others late too
    assert waits_s.shape == (ranks, 2)
    assert (arrivals_s.argmax(axis=0) == [ranks - 1, 0]).all()
    assert (late_s[: ranks - 1, 0] > LATE_S / 2).all()
    assert (late_s[1:, 1] > LATE_S / 2).all()
    assert np.abs(waits_s - late_s).max() < 0.2 * LATE_S


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_a_second_derivative_and_ranks_out_of_step_are_refused(ranks: int) -> None:
    for rank, found in enumerate(on(ranks)):
        refused = found["refusals"]
        assert "create_graph" in refused["twice"]
        assert f"rank {rank} is at exchange (0, {rank}, 0) but rank {1 if rank == 0 else 0}" in refused["place"]
        assert ("rank 0 sent 0 rows where rank 1 expected 2" in refused.get("count", "")) == (rank == 1)


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_rank_0_s_arrays_and_texts_are_everywhere(ranks: int) -> None:
    letters = sum(len(text.encode()) for text in TEXTS) + len(TEXTS) * 64
    for rank, found in enumerate(on(ranks)):
        received = found["told"]
        for mine, array in zip(received["arrays"], ARRAYS, strict=True):
            assert mine.dtype == array.dtype
            assert mine.shape == array.shape
            assert mine.tobytes() == array.tobytes()  # NaN and -0.0 too
        assert received["writable"]
        assert received["texts"] == list(TEXTS)
        assert "rank 0" in received["refusal"]
        assert ("complex128" in received["refusal"]) == (rank == 0)
        assert received["moved"] == ((letters * (ranks - 1), 0) if rank == 0 else (0, letters))
