"""Addresses of the parts' feature servers and the token that grants access, known to all ranks."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import PlanError

if TYPE_CHECKING:
    from dtdg_lab.distributed.group import Group


MOST_BYTES = 120  # of an address
TOKEN_BYTES = 32


def agree_token(group: Group) -> bytes:
    """Draw a fresh secret of 32 bytes, the same on all ranks; collective."""
    return bytes.fromhex(group.broadcast_text(secrets.token_hex(TOKEN_BYTES)))


def exchange_addresses(
    group: Group, own_addresses: Mapping[int, str], *, parts: int, device: str = "cpu"
) -> dict[int, str]:
    """Return all parts' addresses, by part in ascending order; collective.

    Args:
        group: the ranks.
        own_addresses: address of each part that this rank serves.
        parts: P, of all ranks together.
        device: for the tensors that are sent.

    Raises:
        PlanError: on all ranks, if a part is served by no rank or by several, or an address is too long.
    """
    import torch  # not needed by the processes that serve features

    table = torch.zeros(parts, 1 + MOST_BYTES, dtype=torch.int64, device=device)
    sendable = [
        (part, address.encode()) for part, address in own_addresses.items() if len(address.encode()) <= MOST_BYTES
    ]
    for index, (part, letters) in enumerate(sendable[:parts]):
        table[index, 0] = part + 1
        table[index, 1 : 1 + len(letters)] = torch.tensor(list(letters), dtype=torch.int64, device=device)
    rows = [row for row in group.gather_rows(table, [parts] * group.size).cpu().tolist() if row[0]]
    served = sorted(row[0] - 1 for row in rows)
    if served != list(range(parts)):
        raise PlanError(
            f"part(s) {served} have feature servers with addresses of at most {MOST_BYTES} bytes: each of the {parts} "
            "parts needs exactly one."
        )
    return {row[0] - 1: bytes(byte for byte in row[1:] if byte).decode() for row in sorted(rows)}
