"""DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.visualization.run_view import RunView, SharedViews


class HybridBatchesFamily(SystemFamily):
    """DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

    name = "hybrid_batches"

    def summary(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
        """The deviation that its last batches were measured to have: they are not the whole training split."""
        events = tables["events"]
        batches = events[events["kind"] == "hybrid"].sort_values(["attempt", "step"], kind="stable")["data"]
        if batches.empty or "deviation" not in batches.iloc[-1]:
            return {}
        return {"loss_deviation": batches.iloc[-1]["deviation"]}

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return super().memory_changes(config) if config["batch_policy"] == "none" else ()

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """Its charts, after those of every run."""
        from dtdg_lab.systems.hybrid_batches.view import HybridView

        return [HybridView(shared)]

    def has_clock(self, config: RunConfig) -> bool:
        """Whether a controller chooses sizes by a time-based reward, or batches wait in a reservoir."""
        return config.flat.get("batch_policy", "none") != "none" or bool(config.flat.get("reservoir"))


FAMILY = HybridBatchesFamily()
