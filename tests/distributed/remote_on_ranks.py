"""What tests of fetched features run on ranks: module-level, so that fresh processes can import it by name."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dtdg_lab.core.errors import LabError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group
from dtdg_lab.systems.feature_cache.pipeline import cache
from dtdg_lab.testing.training import Trained
from tests.distributed.groups import TakenStep, take_step
from tests.hybrid_training import train as train_by_steps
from tests.remote_training import (
    CHANGES,
    LONG,
    Struck,
    built_remote,
    changing_graph,
    left,
    policy_file,
    remote_config,
    static_config,
    static_graph,
    train_remote,
)

STEPS = 3
CASES: list[dict[str, Any]] = [
    {"policy": "fixed", "cache_window": 2},
    {"policy": "on_demand", "model": "evolvegcn-o"},
    {"policy": "prefetch", "model": "gatlstm", "layers": 1, "links": "1 delay=2"},
    {"policy": "epoch_hot", "static": True},
]
POLICIES = (
    "on_demand",
    "prefetch",
    "epoch_hot",
    "fixed",
    "threshold",
    "random",
    "double_dqn",
    "planner",
    "clairvoyant",
)
ALONE = {"parts": 2, "batch_size": 16}
SLOW, SLOW_HALO, DELAY_S = "1>0 delay=50", "2>1 delay=50", 0.05
HALO = {"system": "adgnn-t", "layers": 1, "epochs": 8}
COMING: list[dict[str, Any]] = [
    {"links": "* delay=3"},
    {"system": "fixed-window"},
    {"links": "2>0 delay=1"},
    {"system": "adgnn-t"},
    {"links": ""},
]


def first_steps(case: dict[str, Any], group: Group) -> list[TakenStep]:
    """The first steps of an epoch."""
    settings = {**case, "ranks": group.size}
    static = settings.pop("static", False)
    config = static_config(**settings) if static else remote_config(**settings)
    with built_remote(config, group, static_graph() if static else changing_graph()) as built:
        return [take_step(built, group, work) for work in built.strategy.epoch(0)[:STEPS]]


def all_cases(group: Group) -> list[list[TakenStep]]:
    return [first_steps(case, group) for case in CASES]


# runs


def _to_dict(done: Trained, began_s: float) -> dict[str, Any]:
    tables = done.recorder.tables
    names = ("steps", "phases", "resolved", "windows", "fetches", "links", "cache_decisions")
    return {
        "losses": done.losses,
        "parameters": done.parameters,
        "state": done.outcome.state,
        "left": left(),
        "took_s": time.monotonic() - began_s,
        "config": dict(done.config.flat),
        **{kind: done.recorder.events(kind) for kind in ("settings", "refused", "congestion", "features")},
        **{name: tables[name] for name in names},
    }


def all_stories(group: Group, folder: str, policies: list[str], struck: list[str]) -> dict[str, Any]:
    """Every run of two ranks, one after another on one group."""
    found = {}

    def go(name: str, policy: str = "fixed", *, keep: str | None = None, by_steps: bool = False, **how: Any) -> None:
        group.barrier()  # rank 0 may still be writing the checkpoint that another one reads
        began_s, where = time.monotonic(), Path(folder) / (keep or name)
        where.mkdir(exist_ok=True)
        config = remote_config(policy, ranks=group.size, **how.pop("settings", {}))
        if by_steps:
            done = train_by_steps(config, load_for(config), where / "last.pt", group=group, one_by_one=True, **how)
        else:
            done = train_remote(config, where, group=group, **how)
        found[name] = _to_dict(done, began_s)

    def fails(name: str, policy: str, sent: signal.Signals) -> None:
        recorder = Struck(sent if group.rank == 1 else None, 4, meet=group.barrier)  # nobody is past the step by then
        group.barrier()
        began_s = time.monotonic()
        try:
            go(name, policy, settings={"fetch_timeout_s": 0.5}, recorder=recorder)
        except LabError as error:
            found[name] = {
                "kind": type(error).__name__,
                "reason": str(error),
                "left": left(),
                "steps": len(recorder.tables["steps"]),
                "took_s": time.monotonic() - began_s,
            }

    for policy in policies:
        go(policy, policy, settings={"policy_file": policy_file(Path(folder))} if policy == "double_dqn" else {})
    go("live", settings=LONG, script={step: {"set": changes} for step, changes in CHANGES.items()})
    go("not live", settings=LONG)
    real = cache.psutil.virtual_memory
    cache.psutil.virtual_memory = lambda: SimpleNamespace(available=10_000_000 if group.rank == 1 else 10**12)
    refused = {1: {"set": {"cache_policy": "fixed"}}, 2: {"set": {"links": "9>0 delay=5"}}}
    go("refused", "on_demand", settings={"cache_rows": 1_000_000}, script=refused)
    cache.psutil.virtual_memory = real
    go("clean link", "on_demand", settings=ALONE)
    go("slow link", "on_demand", settings={**ALONE, "links": SLOW})
    for name, links in (("halo", ""), ("slow halo", SLOW_HALO)):
        go(name, settings={**HALO, "links": links})
    script = {step + 1: {"set": changes} for step, changes in enumerate(COMING)}
    go("coming and going", settings={**HALO, "epochs": 100}, by_steps=True, script={**script, 8: {"stop": True}})
    go("halted", script={6: {"stop": True}})
    go("resumed", keep="halted", resume=True)
    for name in struck:
        fails(name, "on_demand", {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}[name])
        go(f"{name} and resumed", keep=name, resume=True)
    return found
