"""Where each part's features are served, and the token that opens them, known to all ranks."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import torch

from dtdg_lab.core.errors import PlanError
from dtdg_lab.distributed.group import Group

MOST_BYTES = 120  # of an address
TOKEN_BYTES = 32


def agree_token(group: Group) -> bytes:
    """A fresh secret of 32 bytes, the same on all ranks; collective."""
    return bytes.fromhex(group.broadcast_text(secrets.token_hex(TOKEN_BYTES)))


def exchange_addresses(group: Group, own: Mapping[int, str], *, parts: int, device: str = "cpu") -> dict[int, str]:
    """All parts' addresses, by part in ascending order; collective.

    Args:
        group: the ranks.
        own: of each part that this rank serves, where.
        parts: P, of all ranks together.
        device: where tensors that are sent must be.

    Raises:
        PlanError: on all ranks, if a part is served by no rank or by several, or an address is too long.
    """
    table = torch.zeros(parts, 1 + MOST_BYTES, dtype=torch.int64, device=device)
    sendable = [(part, address.encode()) for part, address in own.items() if len(address.encode()) <= MOST_BYTES]
    for place, (part, letters) in enumerate(sendable[:parts]):
        table[place, 0] = part + 1
        table[place, 1 : 1 + len(letters)] = torch.tensor(list(letters), dtype=torch.int64, device=device)
    rows = [row for row in group.gather_rows(table, [parts] * group.size).cpu().tolist() if row[0]]
    served = sorted(row[0] - 1 for row in rows)
    if served != list(range(parts)):
        raise PlanError(
            f"features of part(s) {served} are served at addresses of at most {MOST_BYTES} bytes: each of the {parts} "
            "parts must be, by one rank."
        )
    return {row[0] - 1: bytes(byte for byte in row[1:] if byte).decode() for row in sorted(rows)}
