"""Ranks learn where all parts' features are, share one token, and fetch each other's rows."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.systems.feature_cache.rpc.client import FeatureClient
from dtdg_lab.systems.feature_cache.rpc.server import FeatureServer, agree_token, exchange_addresses
from dtdg_lab.testing.processes import join_group, run_ranks

PARTS, K, F = 4, 60, 3


def _rows(part: int) -> np.ndarray:
    return np.arange(K * F, dtype=np.float32).reshape(K, F) + 1000 * part


def _on_rank(rank: int, ranks: int, address: str) -> dict:
    group = join_group(rank, ranks, address)
    token, own = agree_token(group), range(rank * PARTS // ranks, (rank + 1) * PARTS // ranks)
    keys = {part: np.arange(K, dtype=np.int64) * PARTS + part for part in range(PARTS)}
    right = []
    with FeatureServer({part: _rows(part) for part in own}, {part: keys[part] for part in own}, token) as server:
        addresses = exchange_addresses(group, server.addresses, parts=PARTS)
        asked = {}
        for part in own:
            with FeatureClient(part, addresses, token, F, parts_per_rank=PARTS // ranks) as client:
                for k in (1, 20):
                    replies = client.fetch({owner: keys[owner][part : part + k] for owner in keys if owner != part})
                    right += [
                        np.array_equal(reply.rows, _rows(owner)[part : part + k]) for owner, reply in replies.items()
                    ]
                asked[part] = (client.rpcs, client.bytes_sent + client.bytes_received)
        group.barrier()
        served = server.served()
        with pytest.raises(PlanError, match=r"part\(s\) \[0, 0\] have feature servers"):
            exchange_addresses(group, {0: "tcp://127.0.0.1:1"}, parts=PARTS)
    group.close()
    return {"token": token, "addresses": addresses, "right": right, "asked": asked, "served": served}


def test_every_part_s_rows_reach_every_other_part_and_are_counted_once() -> None:
    first, second = run_ranks(_on_rank, 2)
    assert first["token"] == second["token"]
    assert first["addresses"] == second["addresses"]
    assert list(first["addresses"]) == list(range(PARTS))
    assert all(first["right"] + second["right"])
    assert len(first["right"] + second["right"]) == 2 * PARTS * (PARTS - 1)
    served, asked = first["served"] | second["served"], first["asked"] | second["asked"]
    for part in range(PARTS):
        total = np.sum([counts for (_, requester), counts in served.items() if requester == part], axis=0)
        assert tuple(total) == asked[part]
