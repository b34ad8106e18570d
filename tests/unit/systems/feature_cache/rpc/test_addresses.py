"""Ranks agree on addresses and a token."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.systems.feature_cache.rpc.addresses import agree_token, exchange_addresses


def test_one_process_knows_its_own_addresses_and_token() -> None:
    group = SoloGroup()
    assert len(agree_token(group)) == 32
    assert agree_token(group) != agree_token(group)
    own = {part: f"tcp://127.0.0.1:{5000 + part}" for part in range(12)}
    assert exchange_addresses(group, own, parts=12) == own
    with pytest.raises(PlanError, match=r"part\(s\) \[0\] have feature servers .* each of the 2 parts"):
        exchange_addresses(group, {0: "tcp://127.0.0.1:1"}, parts=2)
    with pytest.raises(PlanError, match="at most 120 bytes"):
        exchange_addresses(group, {0: "tcp://" + "a" * 200}, parts=1)
