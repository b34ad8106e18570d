"""The work of an epoch by a config's system: which count serves which layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.studies.advise_batches import hybrid_work, remote_work
from dtdg_lab.studies.advise_facts import Facts, facts_of
from dtdg_lab.studies.advise_full import cached_work, group_work, halo_work, single_work, snapshot_work
from dtdg_lab.studies.advise_windows import sampled_window_work, window_work
from dtdg_lab.studies.advise_work import EpochWork

_OF_LAYOUT: Mapping[str, Callable[[Facts], EpochWork]] = MappingProxyType(
    {
        "single": single_work, "snapshot_group": group_work, "snapshot": snapshot_work, "halo_vertex": halo_work,
        "halo_window": window_work, "sampled_window": sampled_window_work, "remote_feature": remote_work,
    }
)  # fmt: skip


def count_work(config: RunConfig, graph: DynamicGraph) -> tuple[EpochWork, Facts]:
    """What each rank does in an epoch, and the facts that it follows from; nothing is trained.

    Args:
        config: with its number of ranks and parts.
        graph: its data.

    Raises:
        LabError: the graph does not serve the config: too short, too few vertices, a partitioner that fails.
    """
    facts = facts_of(config, graph)
    of = catalogue.system(config.system).parts
    if of["parallel"] == "cached_vertex":
        return (hybrid_work if "batching" in of else cached_work)(facts), facts
    return _OF_LAYOUT[of["parallel"]](facts), facts
