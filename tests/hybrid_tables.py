"""Small tables of runs with hybrid batches: two parts of 240 and 200 nodes, in 20 snapshots from number 3 on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from tests.tables import run_tables

CANDIDATES = (240, 200)
SNAPSHOTS, FIRST = 20, 3
GRID = tuple((snapshots, nodes) for snapshots in (0.1, 0.2, 0.3) for nodes in (0.01, 0.05, 0.1))
SHARES = 60
MIDDLE = 4  # of GRID: 20% × 5%
ROLLUPS = all_rollups()


def plan(*, shares: Sequence[tuple[float, float]] | None = None, **more: Any) -> dict[str, Any]:
    """Return the data of an event ``hybrid``: 20% × 5%, or nine sizes where a controller chooses."""
    controlled = more.get("batch_policy", "none") != "none"
    given = shares or (GRID if controlled else (GRID[MIDDLE],))
    candidates, snapshots = more.get("candidates", CANDIDATES), more.get("snapshots", SNAPSHOTS)
    data = {
        "sizes": [_size(pair, snapshots, candidates) for pair in given],
        "shares": [list(pair) for pair in given],
        "snapshots": snapshots,
        "first": FIRST,
        "nodes": 460,
        "candidates": list(candidates),
        "choice": 0,
        "batch_policy": "none",
        "reservoir": False,
        "exchange": "gradients",
        "capacities": [[40] * len(candidates)] * len(given),
        "load_groups": 10,
        "cache_bytes": None,
    }
    return data | {name: list(value) if isinstance(value, tuple) else value for name, value in more.items()}


def _size(pair: tuple[float, float], snapshots: int, candidates: Sequence[int]) -> list[int]:
    def number(value: float, whole: int) -> int:
        return int(value) if value > 1 else math.ceil(value * whole - 1e-9)

    return [number(pair[0], snapshots), number(pair[1], min(candidates)), number(pair[1], max(candidates))]


def controlled_plan(**more: Any) -> dict[str, Any]:
    """Return the plan of DynaHB: a DQN chooses among nine sizes, with a reservoir and averaged models."""
    return plan(**{"batch_policy": "dqn", "choice": MIDDLE, "reservoir": True, "exchange": "models", **more})


def planned(data: dict[str, Any], *, step: int = 0, **more: Any) -> dict[str, Any]:
    """Return the event of a plan."""
    return {"kind": "hybrid", "step": step, "data": data, **more}


def batch(step: int, part: int = 0, **more: Any) -> dict[str, Any]:
    """Return a row of ``targets``: 12 nodes in four snapshots from number 5 on, on the rank of the part's number."""
    counts = [1 if place % 5 == 0 else 0 for place in range(SHARES)]
    row = {"action": 0, "index": step, "source": "new", "first": 5, "snapshots": 4, "targets": 12, "rows": 144}
    return {"rank": part, "step": step, "part": part, "edges": 84, "built_s": 0.004, "map": counts, **row, **more}


def decision(number: int, action: int = MIDDLE, **more: Any) -> dict[str, Any]:
    """Return a row of ``decisions``, one every five steps."""
    state = {"loss_reduction": 0.1, "epsilon": 0.1, "greedy": more.pop("greedy", True)}
    values = [0.1 * (place == MIDDLE) - 0.01 * place for place in range(len(GRID))]
    step = 5 * (number + 1)
    return {"step": step, "policy": "dqn", "state": state, "values": values, "action": action, "reward": 0.1, **more}


def averaged(number: int, rank: int = 0, *, staleness: int = 1, **more: Any) -> dict[str, Any]:
    """Return a row of ``rounds``, one every ten steps."""
    applied = 10 * number
    steps = {"joined_step": applied - staleness, "applied_step": applied, "step": applied}
    return {"rank": rank, "number": number, "weight": 1.0, "gathered": False, **steps, **more}


def level(at: int, part: int = 0, action: int = 0, **more: Any) -> dict[str, Any]:
    """Return a row of ``reservoir``: one more batch every half second, at most eight."""
    held = min(at, 8)
    row = {"held": held, "capacity": 8, "bytes": 1000 * held, "made": at, "busy_s": 0.01 * at, "distinct": held}
    return {"rank": part, "step": at, "part": part, "action": action, "time_ns": _time_ns(at), **row, **more}


def _time_ns(at: int) -> int:
    return 1_700_000_000_000_000_000 + at * 500_000_000


def steps(count: int, ranks: int = 2, **more: Any) -> list[dict[str, Any]]:
    """Return rows of ``steps``, which take 10 ms each."""
    return [{"rank": rank, "step": step, "time_s": 0.01, **more} for step in range(count) for rank in range(ranks)]


def hybrid_run(
    data: dict[str, Any] | None,
    tables: dict[str, list[dict[str, Any]]] | None = None,
    *,
    events: Sequence[dict[str, Any]] = (),
    **settings: Any,
) -> RunTables:
    """Return the tables of a run with the settings of its plan."""
    known = {name: data[name] for name in ("batch_policy", "reservoir", "exchange")} if data is not None else {}
    system = "dbov" if known.get("exchange") == "gradients" else "dynahb"
    given = {"system": system, "dataset": "growing", **known, **settings}
    every = [*([] if data is None else [planned(data)]), *events]
    return run_tables(given, tables, events=every, rollups=ROLLUPS)
