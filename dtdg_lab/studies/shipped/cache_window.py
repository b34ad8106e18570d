"""The cache's window against congestion: what a step and an epoch cost for each W on each network."""

from __future__ import annotations

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.studies.shipped.entry import Panel, Shipped
from dtdg_lab.studies.shipped.sizes import QUICK
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep

NAME, W, NETWORK = "cache-window", "cache_window", "network"
NETWORKS = {
    "clean": {"links": ""},
    "20 ms late": {"links": "0 delay=20"},
    "8 Mbit/s": {"links": "0 rate=8"},
}  # of part 0's links, which the others wait for


def sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """W x network x seeds; each network holds from the first step on.

    Raises:
        ConfigError: the base's system fetches no features through a cache of a window.
    """
    small = {**QUICK, "generated_nodes": 400, "generated_edges": 2400, "epochs": 3}
    config = base or RunConfig(
        system="fixed-window", model="tgcn", parts=2, batch_size=16, fanouts="5",
        **({**small, "cache_rows": 300} if quick else {"epochs": 8}),
    )  # fmt: skip
    if W not in config.flat:
        raise ConfigError(
            f"system={config.system!r} has no cache of a window: study config.replace(system='fixed-window')."
        )
    windows = (1, 16) if quick else (1, 4, 16, 64)
    networks = {name: NETWORKS[name] for name in (("clean", "20 ms late") if quick else NETWORKS)}
    seeds = (0,) if quick else (0, 1, 2)
    return Sweep(config, {W: windows, NETWORK: networks}, seeds, objective="epoch_time_s", shipped=NAME)


def analysis(study: Study) -> dict[str, Panel]:
    """Maps of the seconds of an epoch, of its joules, and of the share of rows that the cache had."""
    return {
        NAME: study.map_panel(W, NETWORK),
        "joules": study.map_panel(W, NETWORK, "epoch_j"),
        "hits": study.map_panel(W, NETWORK, "hit_rate"),
    }


CACHE_WINDOW = Shipped(
    name=NAME, sweep=sweep, analysis=analysis,
    question="How long should a cache of features serve, and does that depend on the network?",
    source="GreenDyGNN equation 1, measured (its windows, on networks of ours)",
)  # fmt: skip
