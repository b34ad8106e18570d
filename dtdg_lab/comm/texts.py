"""A short text of every rank, known to all of them."""

from __future__ import annotations

import torch

from dtdg_lab.comm.group import Group

MOST_BYTES = 600


def gather_texts(group: Group, text: str, *, device: str = "cpu") -> list[str]:
    """Every rank's text in rank order; collective.

    Args:
        group: the ranks.
        text: this one's; of more than 600 bytes the beginning is sent.
        device: where tensors that are sent must be.
    """
    letters = text.encode()
    if len(letters) > MOST_BYTES:
        letters = letters[: MOST_BYTES - 3] + b"..."
    row = torch.zeros(1, MOST_BYTES, dtype=torch.int64, device=device)
    row[0, : len(letters)] = torch.tensor(list(letters), dtype=torch.int64, device=device)
    rows = group.gather_rows(row, [1] * group.size).cpu().tolist()
    return [bytes(byte for byte in row if byte).decode(errors="replace") for row in rows]
