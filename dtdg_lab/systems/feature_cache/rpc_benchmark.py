"""Round trips of this machine's own feature RPC, for calibration: initiation against payload."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.network.patterns import LinkState
from dtdg_lab.systems.feature_cache.rpc import TOKEN_BYTES, FeatureClient, FeatureServer

WARM_UP = 3  # discarded round trips: connections, and memory touched for the first time


def measure(
    rows: Sequence[int],
    features: int,
    *,
    repeats: int = 30,
    parts: int = 4,
    links: LinkState | None = None,
    condition: str = "clean",
    dataset: str = "local",
    seed: int = 0,
    timeout_s: float = 30.0,
) -> list[dict[str, Any]]:
    """Part 0 requests rows from the others, one at a time and all at once; each part has a process.

    Args:
        rows: numbers of rows to request; each owner has twice the largest number, random floats.
        features: F, floats in a row.
        repeats: round trips of each number and owner, one at a time and at once.
        parts: P, at least 2.
        links: the link of part o's replies to part 0 at ``[o, 0]``; None for no emulation.
        condition: written to each row.
        dataset: written to each row.
        seed: of the floats and the requested rows.
        timeout_s: seconds of silence that end the measurement.

    Returns:
        Rows with dataset, condition, concurrent (1: all owners were requested at once), requester, owner, rows, rtt_s
        and feat_dim (floats in a row): the columns of the campaign that the simulator's constants come from.

    Raises:
        PlanError: fewer than two parts, or no numbers of rows.
        RunFailedError: a server exited or did not reply.
    """
    if parts < 2 or not rows or min(rows) < 1 or features < 1 or repeats < 1:
        raise PlanError(
            f"rows={list(rows)}, features={features}, repeats={repeats}, parts={parts}: positive numbers of rows, at "
            "least one feature, one repeat and two parts are needed."
        )
    token, random = secrets.token_bytes(TOKEN_BYTES), generator(seed, "feature probe")
    keys = np.arange(2 * max(rows), dtype=np.int64)
    with ExitStack() as open_:
        addresses: dict[int, str] = {}
        for owner in range(1, parts):
            content = random.random((len(keys), features), dtype=np.float32)
            server = open_.enter_context(FeatureServer({owner: content}, {owner: keys}, token))
            if links is not None:
                server.set_links(links)
            addresses |= server.addresses
        client = open_.enter_context(FeatureClient(0, addresses, token, features, timeout_s))
        asked = [(1, list(addresses)), *((0, [owner]) for owner in addresses)]
        measured: list[dict[str, Any]] = []
        for repeat in range(-WARM_UP, repeats):
            # numbers and owners alternate, so that disturbances by other processes affect all of them
            for count in rows:
                for concurrent, owners in asked:
                    replies = client.fetch({owner: random.choice(keys, count, replace=False) for owner in owners})
                    measured += [
                        {
                            "dataset": dataset,
                            "condition": condition,
                            "concurrent": concurrent,
                            "requester": 0,
                            "owner": owner,
                            "rows": count,
                            "rtt_s": reply.rtt_s,
                            "feat_dim": features,
                        }
                        for owner, reply in replies.items()
                        if repeat >= 0
                    ]
    return measured
